"""Relate two ladders of rotary frequencies: the change, and the distance from which it matters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from posprobe.arrays import Floats
from posprobe.encodings import rotary_kernel
from posprobe.encodings.rotary import MAX_ANGLE_ERROR_RADIANS, round_to_type
from posprobe.relations.rules import RULES, Finding

#: Mean rotations are compared up to this distance in positions, which bounds the time.
MAX_COMPARED_DISTANCE = 2**16
#: An unscaled ladder is extrapolated from this many fast pairs. Rules that scale parts of a head
#: keep more pairs of published heads.
N_LEADING_FREQUENCIES = 6
#: Positions are stretched by these factors in practice.
_WHOLE_SCALING_FACTORS = range(2, 129)
#: Logarithms of frequencies that differ by less are equal.
_SAME_LADDER_TOLERANCE = RULES["same_ladder"].tolerance


@dataclass(frozen=True, eq=False)
class Ladder:
    """The frequencies of the pairs of a head.

    Parameters
    ----------
    frequencies
        ``[pairs]``, radians per position, in the order of the pairs.
    factor
        Factor on cosines and sines; None if it is not known.
    unscaled
        ``[pairs]``, frequencies before a rule of scaling; None if they are not known.
    head_dim, context
        Width of a head and longest distance; None if they are not known.
    cos, sin
        ``[positions, pairs]`` as an engine computed them, divided by the factor.
    """

    frequencies: Floats
    factor: float | None = None
    unscaled: Floats | None = None
    head_dim: int | None = None
    context: int | None = None
    cos: Floats | None = None
    sin: Floats | None = None


def measure_harm(a: Floats, b: Floats, context: int | None = None) -> tuple[float, float]:
    """Return two numbers that state the effect of a difference between ladders.

    Parameters
    ----------
    a, b
        ``[pairs]``, frequencies in radians per position; a missing pair does not turn.
    context
        Longest distance that is compared; 4096 if None.

    Returns
    -------
    tuple
        First distance at which some pair is 0.1 rad off, and the largest difference of the mean
        rotation up to the context.
    """
    n_pairs = max(len(a), len(b))
    frequencies_a, frequencies_b = (
        np.pad(frequencies, (0, n_pairs - len(frequencies))) for frequencies in (a, b)
    )
    largest_difference = float(np.abs(frequencies_a - frequencies_b).max())
    distances = np.arange(min(context or 4096, MAX_COMPARED_DISTANCE) + 1)
    kernel_difference = np.abs(
        rotary_kernel(frequencies_a, distances) - rotary_kernel(frequencies_b, distances)
    )
    first_distance = (
        MAX_ANGLE_ERROR_RADIANS / largest_difference if largest_difference else math.inf
    )
    return first_distance, float(kernel_difference.max())


def relate_ladders(a: Ladder, b: Ladder) -> tuple[Finding, ...]:
    """Name the change that makes the frequencies of B of those of A.

    Examples
    --------
    >>> import posprobe as pp
    >>> ladder = pp.encodings.rotary_frequencies
    >>> a, b = (Ladder(ladder(64, base=base)[0]) for base in (5e5, 1e4))
    >>> [(finding.cause, round(finding.b)) for finding in relate_ladders(a, b)]
    [('base', 10000)]
    """
    context = min(filter(None, (a.context, b.context)), default=None)
    findings: list[Finding] = []
    pairs_a, pairs_b = len(a.frequencies), len(b.frequencies)
    if pairs_a != pairs_b:
        findings.append(Finding("columns", "columns", 2 * pairs_a, 2 * pairs_b))
    elif b.cos is not None and (rounded := _find_angle_rounding(a.frequencies, b)):
        findings.append(rounded)
    else:
        findings += _relate_frequencies(a, b)
    if findings and pairs_a == pairs_b:
        findings[0] = replace(findings[0], curve=b.frequencies / a.frequencies)
        slope = float(np.abs(b.frequencies - a.frequencies).max())
        if findings[0].cause == "same_ladder" and slope:
            findings[0] = replace(findings[0], more={"angle_error_per_position": slope})
    if not all(finding.alike for finding in findings):
        first_distance, rotation = measure_harm(a.frequencies, b.frequencies, context)
        for index, finding in enumerate(findings):
            if not finding.alike:
                distance = finding.first_distance or first_distance
                findings[index] = replace(
                    finding, first_distance=distance, rotation=rotation
                )
    is_precise = _has_precise_cosines(a) and _has_precise_cosines(b)
    tolerance = RULES["factor"].tolerance if is_precise else 2**-8
    if a.factor is not None and b.factor is not None:
        difference = abs(a.factor - b.factor)
        if difference > tolerance:
            # Logits change by its square, from the first token on.
            findings.append(
                Finding(
                    "factor", "factor", a.factor, b.factor, difference, first_distance=0.0
                )
            )
    return tuple(findings)


def _has_precise_cosines(ladder: Ladder) -> bool:
    """Tell whether cosines were stored in more than half precision."""
    if ladder.cos is None:
        return True
    stored_cosines = ladder.cos * (ladder.factor or 1.0)
    return not any(
        np.allclose(round_to_type(stored_cosines, dtype), stored_cosines, 0, 1e-7)
        for dtype in ("float16", "bfloat16")
    )


def _relate_frequencies(a: Ladder, b: Ladder) -> Iterator[Finding]:
    """Yield the changes of the frequencies of two ladders with equally many pairs."""
    frequencies_a, frequencies_b = a.frequencies, b.frequencies
    log_ratios = np.log(frequencies_b / frequencies_a)
    largest = float(np.abs(log_ratios).max())
    if largest < _SAME_LADDER_TOLERANCE:
        yield Finding("ladder", "same_ladder", ladder_base(a), ladder_base(b), largest)
        return
    for dtype in ("bfloat16", "float16"):
        for side, exact, rounded in (
            ("b", frequencies_a, frequencies_b),
            ("a", frequencies_b, frequencies_a),
        ):
            if _is_rounded(exact, rounded, dtype):
                details = {"type": dtype, "side": side}
                yield Finding("ladder", "ladder_rounded", value=largest, more=details)
                return
    sorted_log_ratios = np.log(np.sort(frequencies_b) / np.sort(frequencies_a))
    if np.abs(sorted_log_ratios).max() < _SAME_LADDER_TOLERANCE:
        yield Finding("ladder", "pair_order", value=largest)
        return
    series_a, series_b = fit_geometric(frequencies_a), fit_geometric(frequencies_b)
    if series_a and series_b:
        findings = [*_relate_geometric(a, series_a, series_b)]
        # Single pairs are further off than the line through them.
        same_ladder = Finding(
            "ladder", "same_ladder", ladder_base(a), ladder_base(a), largest
        )
        yield from findings or [same_ladder]
    elif np.ptp(log_ratios) < _SAME_LADDER_TOLERANCE:
        yield Finding(
            "ladder", "positions_scaled", value=math.exp(-float(log_ratios.mean()))
        )
    elif (slope := fit_geometric(np.exp(log_ratios))) and abs(
        slope[0]
    ) < _SAME_LADDER_TOLERANCE:
        base = ladder_base(a)
        base_ratio = math.exp(-slope[1] * len(log_ratios))
        yield Finding("ladder", "base", base, base and base * base_ratio, base_ratio)
    else:
        yield from _relate_by_parts(a, b, log_ratios)


def _is_rounded(exact: Floats, rounded: Floats, dtype: str) -> bool:
    """Tell whether one ladder is the other, rounded to a type."""
    # A ladder is rounded after it was computed in float32, which has an error of its own.
    lower, upper = 1 - _SAME_LADDER_TOLERANCE, 1 + _SAME_LADDER_TOLERANCE
    lowest, highest = (
        round_to_type(exact * lower, dtype),
        round_to_type(exact * upper, dtype),
    )
    return bool(np.all((rounded >= lowest * lower) & (rounded <= highest * upper)))


def fit_geometric(frequencies: Floats) -> tuple[float, float] | None:
    """Return start and slope of the logarithms of a ladder; None if their steps are not even."""
    if (frequencies <= 0).any():
        return None
    if len(frequencies) == 1:
        return float(np.log(frequencies[0])), 0.0
    log_frequencies, index = np.log(frequencies), np.arange(len(frequencies))
    slope, start = np.polyfit(index, log_frequencies, 1)
    is_even = (
        np.abs(log_frequencies - start - slope * index).max() < _SAME_LADDER_TOLERANCE
    )
    return (float(start), float(slope)) if is_even else None


def ladder_base(ladder: Ladder) -> float | None:
    """Return the base of the ladder before scaling; None if it is no geometric series."""
    series = fit_geometric(
        ladder.frequencies if ladder.unscaled is None else ladder.unscaled
    )
    return None if series is None else math.exp(-series[1] * len(ladder.frequencies))


def _relate_geometric(
    a: Ladder, series_a: tuple[float, float], series_b: tuple[float, float]
) -> Iterator[Finding]:
    n_pairs = len(a.frequencies)
    base_a, base_b = (math.exp(-slope * n_pairs) for _, slope in (series_a, series_b))
    if abs(series_a[1] - series_b[1]) * (n_pairs - 1) > _SAME_LADDER_TOLERANCE:
        yield _base_finding(a, base_a, base_b)
    position_factor = math.exp(series_a[0] - series_b[0])
    # The end of a fitted line has twice the error.
    if abs(math.log(position_factor)) > 2 * _SAME_LADDER_TOLERANCE:
        yield Finding("ladder", "positions_scaled", value=position_factor)


def _base_finding(a: Ladder, base_a: float, base_b: float) -> Finding:
    """Name the reason for another base."""
    n_pairs = len(a.frequencies)
    # Of a ladder that does not fall, only the steps can be named.
    if min(base_a, base_b) <= 1 + _SAME_LADDER_TOLERANCE:
        return Finding("ladder", "base", base_a, base_b, base_b / base_a)
    power = math.log(base_b) / math.log(base_a)
    tolerance = RULES["ntk"].tolerance
    if abs(power - n_pairs / (n_pairs - 1)) < tolerance / math.log(base_a):
        return Finding("ladder", "last_pair", base_a, base_b, power)
    rotated = 2 * n_pairs
    if (
        a.head_dim
        and a.head_dim > rotated
        and abs(power * a.head_dim / rotated - 1) < tolerance
    ):
        return Finding("ladder", "spread", rotated, a.head_dim, power)
    factor = (base_b / base_a) ** ((n_pairs - 1) / n_pairs)
    for whole_factor in _WHOLE_SCALING_FACTORS:
        for candidate in (whole_factor, 1 / whole_factor):
            if abs(factor / candidate - 1) < tolerance:
                return Finding("ladder", "ntk", base_a, base_b, candidate)
    return Finding("ladder", "base", base_a, base_b, base_b / base_a)


def _relate_by_parts(a: Ladder, b: Ladder, log_ratios: Floats) -> Iterator[Finding]:
    """Name rules that stretch some pairs more than others."""
    for cause, scaled, unscaled, sign in (
        ("parts_lost", a, b, 1),
        ("parts_added", b, a, -1),
    ):
        series = fit_geometric(unscaled.frequencies)
        frequencies_before = (
            None if series is None else _unscaled_frequencies(scaled, unscaled)
        )
        if series is None or frequencies_before is None:
            continue
        log_scaling = np.log(frequencies_before / scaled.frequencies)
        yield _stretch_finding(cause, log_scaling)
        series_before = fit_geometric(frequencies_before)
        difference = np.abs(np.log(frequencies_before / unscaled.frequencies)).max()
        if series_before and difference > 20 * _SAME_LADDER_TOLERANCE:
            series_a, series_b = (series_before, series)[::sign]
            ladder_before = replace(a, frequencies=frequencies_before)
            yield from _relate_geometric(ladder_before, series_a, series_b)
        return
    is_kept = np.abs(log_ratios) < _SAME_LADDER_TOLERANCE
    if _is_stretch(log_ratios, 1):
        yield _stretch_finding("parts_factor", log_ratios)
    elif is_kept[0] and is_kept[-1]:
        details = {"pairs": len(log_ratios), "kept": int(is_kept.sum())}
        yield Finding(
            "ladder", "ramp", value=float(np.abs(log_ratios).max()), more=details
        )
    else:
        yield Finding("ladder", "frequencies", value=float(np.abs(log_ratios).max()))


def _stretch_finding(cause: str, log_ratios: Floats) -> Finding:
    """State the ratio of the last pair, and the number of pairs that keep their frequency."""
    last_ratio = math.exp(float(log_ratios[-1]))
    n_kept = int((np.abs(log_ratios) < _SAME_LADDER_TOLERANCE).sum())
    details = {"pairs": len(log_ratios), "kept": n_kept, "last": last_ratio}
    return Finding("ladder", cause, value=last_ratio, more=details)


def _is_stretch(log_ratios: Floats, min_pairs: int) -> bool:
    """Tell whether at least so many fast pairs are kept, and others are ever further off."""
    is_kept = np.abs(log_ratios) < _SAME_LADDER_TOLERANCE
    steps = np.diff(np.abs(log_ratios[np.argmin(is_kept) :]))
    is_monotonic = (steps >= -2 * _SAME_LADDER_TOLERANCE).all()
    return bool(is_kept[:min_pairs].all() and not is_kept[-1] and is_monotonic)


def _unscaled_frequencies(ladder: Ladder, other_ladder: Ladder) -> Floats | None:
    """Return the ladder before scaling: as stated, the other one, or extrapolated; else None."""
    if ladder.unscaled is not None:
        return ladder.unscaled
    if _is_stretch(np.log(other_ladder.frequencies / ladder.frequencies), 1):
        return other_ladder.frequencies
    frequencies, index = ladder.frequencies, np.arange(len(ladder.frequencies))
    leading = frequencies[:N_LEADING_FREQUENCIES]
    if len(frequencies) <= N_LEADING_FREQUENCIES or fit_geometric(leading) is None:
        return None
    log_step = math.log(leading[-1] / leading[0]) / (N_LEADING_FREQUENCIES - 1)
    extrapolated = frequencies[0] * np.exp(log_step * index)
    # The error of a step that was computed from float32 numbers grows with the index.
    is_close = np.abs(np.log(extrapolated / frequencies)) < 10 * _SAME_LADDER_TOLERANCE
    unscaled = np.where(is_close, frequencies, extrapolated)
    is_stretch = _is_stretch(np.log(unscaled / frequencies), N_LEADING_FREQUENCIES)
    return unscaled if is_stretch else None


def _find_angle_rounding(frequencies: Floats, b: Ladder) -> Finding | None:
    """Find the arithmetic by which an engine computed its cosines and sines from A's ladder.

    Parameters
    ----------
    frequencies
        ``[pairs]``, frequencies of A.
    b
        Ladder with cosines and sines.
    """
    assert b.cos is not None and b.sin is not None  # noqa: S101, PT018 - callers check this
    cos, sin = b.cos, b.sin
    positions = np.arange(len(cos), dtype=np.float64)
    exact = np.outer(positions, frequencies)
    # An angle in float32 is off by at most its own rounding and that of the frequency. Numbers of
    # float16 near 0 are 2^-24 apart.
    float32_error = 2**-22 * exact + (0.0 if _has_precise_cosines(b) else 2**-24)

    def fits(angles: Floats, limit: float) -> bool:
        # The small sines of slow pairs show a frequency that cosines hide.
        sine_limits = limit * np.minimum(exact, 1.0) + float32_error
        has_sines = (np.abs(np.sin(angles) - sin) <= sine_limits).all()
        return bool(
            has_sines and (np.abs(np.cos(angles) - cos) <= limit + float32_error).all()
        )

    largest_error = float(
        max(np.abs(np.cos(exact) - cos).max(), np.abs(np.sin(exact) - sin).max())
    )
    if fits(exact, 2**-22):
        return Finding("ladder", "same_ladder", value=largest_error)
    limit = RULES["cosines_rounded"].tolerance
    # The limit is half a step, and half of that for the factor, which rounded cosines blur.
    if not _has_precise_cosines(b) and fits(exact, 0.75 * limit):
        return Finding("ladder", "cosines_rounded", value=largest_error)
    angle_limit = 2**-20 if _has_precise_cosines(b) else limit
    for dtype in ("bfloat16", "float16"):
        rounded_frequencies = round_to_type(frequencies, dtype)
        rounded_positions = round_to_type(positions, dtype)
        rounded_angles = {
            "ladder": np.outer(positions, rounded_frequencies),
            "positions": np.outer(rounded_positions, frequencies),
            "all": round_to_type(np.outer(rounded_positions, rounded_frequencies), dtype),
            "product": round_to_type(exact, dtype),
        }
        for method, angles in rounded_angles.items():
            if not fits(angles, angle_limit):
                continue
            cause = "ladder_rounded" if method == "ladder" else "angles_rounded"
            angle_errors = np.abs(angles - exact).max(axis=1)
            wrong_positions = np.flatnonzero(angle_errors > MAX_ANGLE_ERROR_RADIANS)
            if len(wrong_positions):
                first_distance = float(wrong_positions[0])
            else:
                frequency_error = float(np.abs(rounded_frequencies - frequencies).max())
                first_distance = MAX_ANGLE_ERROR_RADIANS / max(frequency_error, 1e-30)
            details = {"type": dtype, "way": method, "side": "b"}
            return Finding(
                "ladder",
                cause,
                value=largest_error,
                first_distance=first_distance,
                more=details,
            )
    return None
