"""Two ladders of rotary frequencies: by what one became the other, and from where it is felt."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from posprobe.arrays import Floats
from posprobe.encodings import rotary_kernel
from posprobe.encodings.rotary import MAX_ANGLE_ERROR_RADIANS, to_type
from posprobe.relations.rules import RULES, Finding

#: Longest distance at which mean rotations are compared, which bounds the time.
MAX_COMPARED_DISTANCE = 2**16
#: Fast pairs that tell how a ladder would go on: rules by parts keep more of published heads.
N_LEADING_FREQUENCIES = 6
#: Factors by which positions are stretched in practice.
_WHOLE_SCALING_FACTORS = range(2, 129)
_SAME_LADDER_TOLERANCE = RULES["same_ladder"].tolerance


@dataclass(frozen=True, eq=False)
class Ladder:
    """How the pairs of a head turn.

    Parameters
    ----------
    frequencies
        ``[pairs]``, rad per position, in the order of the pairs.
    factor
        On cosines and sines; None where it is not known.
    unscaled
        ``[pairs]`` before a rule stretched them; None where it is not known.
    head_dim, context
        Width of a head and longest distance, where known.
    cos, sin
        ``[positions, pairs]`` as an engine computed them, the factor divided out.
    """

    frequencies: Floats
    factor: float | None = None
    unscaled: Floats | None = None
    head_dim: int | None = None
    context: int | None = None
    cos: Floats | None = None
    sin: Floats | None = None


def measure_harm(a: Floats, b: Floats, context: int | None = None) -> tuple[float, float]:
    """Return the two numbers that say what a difference of ladders does.

    Parameters
    ----------
    a, b
        ``[pairs]`` of both, rad per position; pairs that one lacks stand still there.
    context
        Longest distance that is looked at; 4096 where None.

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
    return (
        MAX_ANGLE_ERROR_RADIANS / largest_difference if largest_difference else math.inf
    ), float(kernel_difference.max())


def relate_ladders(a: Ladder, b: Ladder) -> tuple[Finding, ...]:
    """Say by what the frequencies of one model became those of another.

    Examples
    --------
    >>> import posprobe as pp
    >>> ladder = pp.encodings.rotary_frequencies
    >>> one, other = (Ladder(ladder(64, base=base)[0]) for base in (5e5, 1e4))
    >>> [(found.cause, round(found.b)) for found in relate_ladders(one, other)]
    [('base', 10000)]
    """
    context = min(filter(None, (a.context, b.context)), default=None)
    findings: list[Finding] = []
    if len(a.frequencies) != len(b.frequencies):
        findings.append(
            Finding("columns", "columns", 2 * len(a.frequencies), 2 * len(b.frequencies))
        )
    elif b.cos is not None and (rounded := _find_angle_rounding(a.frequencies, b)):
        findings.append(rounded)
    else:
        findings += _relate_frequencies(a, b)
    if findings and len(a.frequencies) == len(b.frequencies):
        findings[0] = replace(findings[0], curve=b.frequencies / a.frequencies)
    if not all(finding.alike for finding in findings):
        first_distance, rotation = measure_harm(a.frequencies, b.frequencies, context)
        findings = [
            finding
            if finding.alike
            else replace(
                finding, first_distance=finding.first_distance or first_distance, rotation=rotation
            )
            for finding in findings
        ]
    limit = (
        RULES["factor"].tolerance if _has_precise_cosines(a) and _has_precise_cosines(b) else 2**-8
    )
    if a.factor is not None and b.factor is not None and abs(a.factor - b.factor) > limit:
        findings.append(Finding("factor", "factor", a.factor, b.factor, abs(a.factor - b.factor)))
    return tuple(findings)


def _has_precise_cosines(ladder: Ladder) -> bool:
    """Tell whether cosines were stored in more than half precision."""
    if ladder.cos is None:
        return True
    stored_cosines = ladder.cos * (ladder.factor or 1.0)
    return not any(
        np.allclose(to_type(stored_cosines, name), stored_cosines, 0, 1e-7)
        for name in ("float16", "bfloat16")
    )


def _relate_frequencies(a: Ladder, b: Ladder) -> Iterator[Finding]:
    log_ratios = np.log(b.frequencies / a.frequencies)
    largest_log_ratio = float(np.abs(log_ratios).max())
    if largest_log_ratio < _SAME_LADDER_TOLERANCE:
        yield Finding("ladder", "same_ladder", ladder_base(a), ladder_base(b), largest_log_ratio)
        return
    for dtype in ("bfloat16", "float16"):
        for side, exact, rounded in (
            ("b", a.frequencies, b.frequencies),
            ("a", b.frequencies, a.frequencies),
        ):
            if _is_rounded(exact, rounded, dtype):
                yield Finding(
                    "ladder",
                    "ladder_rounded",
                    value=largest_log_ratio,
                    more={"type": dtype, "side": side},
                )
                return
    if (
        np.abs(np.log(np.sort(b.frequencies) / np.sort(a.frequencies))).max()
        < _SAME_LADDER_TOLERANCE
    ):
        yield Finding("ladder", "pair_order", value=largest_log_ratio)
        return
    series_a, series_b = fit_geometric(a.frequencies), fit_geometric(b.frequencies)
    if series_a and series_b:
        findings = [*_relate_geometric(a, series_a, series_b)]
        same_ladder = Finding(
            "ladder", "same_ladder", ladder_base(a), ladder_base(a), largest_log_ratio
        )
        yield from findings or [
            same_ladder
        ]  # single pairs are off by more than the line through them
    elif np.ptp(log_ratios) < _SAME_LADDER_TOLERANCE:
        yield Finding("ladder", "positions_scaled", value=math.exp(-float(log_ratios.mean())))
    elif (slope := fit_geometric(np.exp(log_ratios))) and abs(slope[0]) < _SAME_LADDER_TOLERANCE:
        base = ladder_base(a)
        base_ratio = math.exp(-slope[1] * len(log_ratios))
        yield Finding("ladder", "base", base, base and base * base_ratio, base_ratio)
    else:
        yield from _relate_by_parts(a, b, log_ratios)


def _is_rounded(exact: Floats, rounded: Floats, dtype: str) -> bool:
    # A ladder is rounded after it was computed in float32, which may be off by a little.
    low, high = (to_type(exact * (1 + sign * _SAME_LADDER_TOLERANCE), dtype) for sign in (-1, 1))
    return bool(
        np.all(
            (rounded >= low * (1 - _SAME_LADDER_TOLERANCE))
            & (rounded <= high * (1 + _SAME_LADDER_TOLERANCE))
        )
    )


def fit_geometric(frequencies: Floats) -> tuple[float, float] | None:
    """Return where the logarithms of a ladder start and how they step, if they do so evenly."""
    if (frequencies <= 0).any():
        return None
    if len(frequencies) == 1:
        return float(np.log(frequencies[0])), 0.0
    log_frequencies, index = np.log(frequencies), np.arange(len(frequencies))
    slope, start = np.polyfit(index, log_frequencies, 1)
    is_even = np.abs(log_frequencies - start - slope * index).max() < _SAME_LADDER_TOLERANCE
    return (float(start), float(slope)) if is_even else None


def ladder_base(ladder: Ladder) -> float | None:
    """Return the base of the ladder before a rule stretched it; None where it is no power."""
    series = fit_geometric(ladder.frequencies if ladder.unscaled is None else ladder.unscaled)
    return None if series is None else math.exp(-series[1] * len(ladder.frequencies))


def _relate_geometric(
    a: Ladder, series_a: tuple[float, float], series_b: tuple[float, float]
) -> Iterator[Finding]:
    n_pairs = len(a.frequencies)
    base_a, base_b = (math.exp(-slope * n_pairs) for _, slope in (series_a, series_b))
    if abs(series_a[1] - series_b[1]) * (n_pairs - 1) > _SAME_LADDER_TOLERANCE:
        yield _base_finding(a, base_a, base_b)
    position_factor = math.exp(series_a[0] - series_b[0])
    if (
        abs(math.log(position_factor)) > 2 * _SAME_LADDER_TOLERANCE
    ):  # the end of a line is known half as well
        yield Finding("ladder", "positions_scaled", value=position_factor)


def _base_finding(a: Ladder, base_a: float, base_b: float) -> Finding:
    """Name why the base is another."""
    n_pairs = len(a.frequencies)
    if (
        min(base_a, base_b) <= 1 + _SAME_LADDER_TOLERANCE
    ):  # no ladder that falls: nothing but its steps to name
        return Finding("ladder", "base", base_a, base_b, base_b / base_a)
    power = math.log(base_b) / math.log(base_a)
    tolerance = RULES["ntk"].tolerance
    if abs(power - n_pairs / (n_pairs - 1)) < tolerance / math.log(base_a):
        return Finding("ladder", "last_pair", base_a, base_b, power)
    if (
        a.head_dim
        and a.head_dim > 2 * n_pairs
        and abs(power * a.head_dim / (2 * n_pairs) - 1) < tolerance
    ):
        return Finding("ladder", "spread", 2 * n_pairs, a.head_dim, power)
    factor = (base_b / base_a) ** ((n_pairs - 1) / n_pairs)
    for whole_factor in _WHOLE_SCALING_FACTORS:
        for candidate in (whole_factor, 1 / whole_factor):
            if abs(factor / candidate - 1) < tolerance:
                return Finding("ladder", "ntk", base_a, base_b, candidate)
    return Finding("ladder", "base", base_a, base_b, base_b / base_a)


def _relate_by_parts(a: Ladder, b: Ladder, log_ratios: Floats) -> Iterator[Finding]:
    """Name rules that stretch some pairs more than others."""
    for cause, scaled, unscaled, sign in (("parts_lost", a, b, 1), ("parts_added", b, a, -1)):
        series = fit_geometric(unscaled.frequencies)
        frequencies_before = None if series is None else _unscaled_frequencies(scaled, unscaled)
        if series is None or frequencies_before is None:
            continue
        yield Finding(
            "ladder", cause, *_stretch_fields(np.log(frequencies_before / scaled.frequencies))
        )
        unscaled_series = fit_geometric(frequencies_before)
        if (
            unscaled_series
            and np.abs(np.log(frequencies_before / unscaled.frequencies)).max()
            > 20 * _SAME_LADDER_TOLERANCE
        ):
            ordered_series = (unscaled_series, series)[::sign]
            yield from _relate_geometric(
                replace(a, frequencies=frequencies_before), *ordered_series
            )
        return
    is_kept = np.abs(log_ratios) < _SAME_LADDER_TOLERANCE
    if _is_stretch(log_ratios, 1):
        yield Finding("ladder", "parts_factor", *_stretch_fields(log_ratios))
    elif is_kept[0] and is_kept[-1]:
        details = {"pairs": len(log_ratios), "kept": int(is_kept.sum())}
        yield Finding("ladder", "ramp", value=float(np.abs(log_ratios).max()), more=details)
    else:
        yield Finding("ladder", "frequencies", value=float(np.abs(log_ratios).max()))


def _stretch_fields(log_ratios: Floats) -> tuple[None, None, float, None, None, dict[str, Any]]:
    """Return what follows the cause in a `Finding`: the last ratio, and how many pairs are kept."""
    last_ratio = math.exp(float(log_ratios[-1]))
    n_kept = int((np.abs(log_ratios) < _SAME_LADDER_TOLERANCE).sum())
    return (
        None,
        None,
        last_ratio,
        None,
        None,
        {"pairs": len(log_ratios), "kept": n_kept, "last": last_ratio},
    )


def _is_stretch(log_ratios: Floats, min_pairs: int) -> bool:
    """Tell whether so many fast pairs are kept, and others go ever further away."""
    is_kept = np.abs(log_ratios) < _SAME_LADDER_TOLERANCE
    steps = np.diff(np.abs(log_ratios[np.argmin(is_kept) :]))
    return bool(
        is_kept[:min_pairs].all()
        and not is_kept[-1]
        and (steps >= -2 * _SAME_LADDER_TOLERANCE).all()
    )


def _unscaled_frequencies(ladder: Ladder, other_ladder: Ladder) -> Floats | None:
    """Return the ladder before its rule: as stated, the other one, or as its first pairs go on."""
    if ladder.unscaled is not None:
        return ladder.unscaled
    if _is_stretch(np.log(other_ladder.frequencies / ladder.frequencies), 1):
        return other_ladder.frequencies
    frequencies, index = ladder.frequencies, np.arange(len(ladder.frequencies))
    if (
        len(frequencies) <= N_LEADING_FREQUENCIES
        or fit_geometric(frequencies[:N_LEADING_FREQUENCIES]) is None
    ):
        return None
    extrapolated = frequencies[0] * np.exp(
        math.log(frequencies[N_LEADING_FREQUENCIES - 1] / frequencies[0])
        / (N_LEADING_FREQUENCIES - 1)
        * index
    )
    log_ratios = np.log(extrapolated / frequencies)
    # A step that was read off float32 is off by more, the further it goes.
    extrapolated = np.where(
        np.abs(log_ratios) < 10 * _SAME_LADDER_TOLERANCE, frequencies, extrapolated
    )
    return (
        extrapolated
        if _is_stretch(np.log(extrapolated / frequencies), N_LEADING_FREQUENCIES)
        else None
    )


def _find_angle_rounding(frequencies: Floats, b: Ladder) -> Finding | None:
    """Find the arithmetic that gave an engine's cosines and sines from A's ladder.

    Parameters
    ----------
    frequencies
        ``[pairs]`` of A.
    b
        With cosines and sines.
    """
    assert b.cos is not None and b.sin is not None  # noqa: S101, PT018 - asked for by the caller
    cos, sin = b.cos, b.sin
    positions = np.arange(len(cos), dtype=np.float64)
    exact = np.outer(positions, frequencies)
    # An angle of float32 is off by its own rounding and that of the frequency, at most; numbers
    # of float16 near 0 are 2^-24 apart.
    float32_error = 2**-22 * exact + (0.0 if _has_precise_cosines(b) else 2**-24)

    def fits(angles: Floats, limit: float) -> bool:
        # Sines of slow pairs are small: they tell a frequency that cosines hide.
        is_close = np.abs(np.sin(angles) - sin) <= limit * np.minimum(exact, 1.0) + float32_error
        return bool(
            is_close.all() and (np.abs(np.cos(angles) - cos) <= limit + float32_error).all()
        )

    largest_error = float(max(np.abs(np.cos(exact) - cos).max(), np.abs(np.sin(exact) - sin).max()))
    if fits(exact, 2**-22):
        return Finding("ladder", "same_ladder", value=largest_error)
    limit = RULES["cosines_rounded"].tolerance
    # Half a step, and half of that for the factor, which rounded cosines tell less well.
    if not _has_precise_cosines(b) and fits(exact, 0.75 * limit):
        return Finding("ladder", "cosines_rounded", value=largest_error)
    for name in ("bfloat16", "float16"):
        small, numbers = to_type(frequencies, name), to_type(positions, name)
        ways = {
            "ladder": np.outer(positions, small),
            "positions": np.outer(numbers, frequencies),
            "all": to_type(np.outer(numbers, small), name),
            "product": to_type(exact, name),
        }
        for way, angles in ways.items():
            if not fits(angles, 2**-20 if _has_precise_cosines(b) else limit):
                continue
            cause = "ladder_rounded" if way == "ladder" else "angles_rounded"
            wrong_positions = np.flatnonzero(
                np.abs(angles - exact).max(axis=1) > MAX_ANGLE_ERROR_RADIANS
            )
            first_position = (
                float(wrong_positions[0])
                if len(wrong_positions)
                else MAX_ANGLE_ERROR_RADIANS / max(np.abs(small - frequencies).max(), 1e-30)
            )
            return Finding(
                "ladder", cause, value=largest_error, first_distance=float(first_position),
                more={"type": name, "way": way, "side": "b"},
            )  # fmt: skip
    return None
