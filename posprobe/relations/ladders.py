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
FURTHEST = 2**16
#: Fast pairs that tell how a ladder would go on: rules by parts keep more of published heads.
N_SHOWN_FREQUENCIES = 6
#: Factors by which positions are stretched in practice.
_FACTORS = range(2, 129)
_SAME_LADDER_TOLERANCE = RULES["same_ladder"].tolerance


@dataclass(frozen=True, eq=False)
class Ladder:
    """How the pairs of a head turn.

    Parameters
    ----------
    omega
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

    omega: Floats
    factor: float | None = None
    unscaled: Floats | None = None
    head_dim: int | None = None
    context: int | None = None
    cos: Floats | None = None
    sin: Floats | None = None


def harm(a: Floats, b: Floats, context: int | None = None) -> tuple[float, float]:
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
    pairs = max(len(a), len(b))
    omega_a, omega_b = (np.pad(omega, (0, pairs - len(omega))) for omega in (a, b))
    largest_difference = float(np.abs(omega_a - omega_b).max())
    distances = np.arange(min(context or 4096, FURTHEST) + 1)
    kernel_difference = np.abs(
        rotary_kernel(omega_a, distances) - rotary_kernel(omega_b, distances)
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
    if len(a.omega) != len(b.omega):
        findings.append(Finding("columns", "columns", 2 * len(a.omega), 2 * len(b.omega)))
    elif b.cos is not None and (rounded := _rounded_angles(a.omega, b)):
        findings.append(rounded)
    else:
        findings += _frequencies(a, b)
    if findings and len(a.omega) == len(b.omega):
        findings[0] = replace(findings[0], curve=b.omega / a.omega)
    if not all(finding.alike for finding in findings):
        first_distance, rotation = harm(a.omega, b.omega, context)
        findings = [
            finding
            if finding.alike
            else replace(
                finding, first_distance=finding.first_distance or first_distance, rotation=rotation
            )
            for finding in findings
        ]
    limit = RULES["factor"].tolerance if _precise(a) and _precise(b) else 2**-8
    if a.factor is not None and b.factor is not None and abs(a.factor - b.factor) > limit:
        findings.append(Finding("factor", "factor", a.factor, b.factor, abs(a.factor - b.factor)))
    return tuple(findings)


def _precise(ladder: Ladder) -> bool:
    """Tell whether cosines were stored in more than half precision."""
    if ladder.cos is None:
        return True
    raw = ladder.cos * (ladder.factor or 1.0)
    return not any(
        np.allclose(to_type(raw, name), raw, 0, 1e-7) for name in ("float16", "bfloat16")
    )


def _frequencies(a: Ladder, b: Ladder) -> Iterator[Finding]:
    ratio = np.log(b.omega / a.omega)
    largest = float(np.abs(ratio).max())
    if largest < _SAME_LADDER_TOLERANCE:
        yield Finding("ladder", "same_ladder", base_of(a), base_of(b), largest)
        return
    for name in ("bfloat16", "float16"):
        for side, exact, rounded in (("b", a.omega, b.omega), ("a", b.omega, a.omega)):
            if _is_rounded(exact, rounded, name):
                yield Finding(
                    "ladder", "ladder_rounded", value=largest, more={"type": name, "side": side}
                )
                return
    if np.abs(np.log(np.sort(b.omega) / np.sort(a.omega))).max() < _SAME_LADDER_TOLERANCE:
        yield Finding("ladder", "pair_order", value=largest)
        return
    plain_a, plain_b = geometric(a.omega), geometric(b.omega)
    if plain_a and plain_b:
        findings = [*_of_geometric(a, plain_a, plain_b)]
        same_finding = Finding("ladder", "same_ladder", base_of(a), base_of(a), largest)
        yield from findings or [
            same_finding
        ]  # single pairs are off by more than the line through them
    elif np.ptp(ratio) < _SAME_LADDER_TOLERANCE:
        yield Finding("ladder", "positions_scaled", value=math.exp(-float(ratio.mean())))
    elif (slope := geometric(np.exp(ratio))) and abs(slope[0]) < _SAME_LADDER_TOLERANCE:
        base = base_of(a)
        grown = math.exp(-slope[1] * len(ratio))
        yield Finding("ladder", "base", base, base and base * grown, grown)
    else:
        yield from _by_parts(a, b, ratio)


def _is_rounded(exact: Floats, rounded: Floats, name: str) -> bool:
    # A ladder is rounded after it was computed in float32, which may be off by a little.
    low, high = (to_type(exact * (1 + sign * _SAME_LADDER_TOLERANCE), name) for sign in (-1, 1))
    return bool(
        np.all(
            (rounded >= low * (1 - _SAME_LADDER_TOLERANCE))
            & (rounded <= high * (1 + _SAME_LADDER_TOLERANCE))
        )
    )


def geometric(omega: Floats) -> tuple[float, float] | None:
    """Return where the logarithms of a ladder start and how they step, if they do so evenly."""
    if (omega <= 0).any():
        return None
    if len(omega) == 1:
        return float(np.log(omega[0])), 0.0
    log, index = np.log(omega), np.arange(len(omega))
    slope, start = np.polyfit(index, log, 1)
    is_even = np.abs(log - start - slope * index).max() < _SAME_LADDER_TOLERANCE
    return (float(start), float(slope)) if is_even else None


def base_of(ladder: Ladder) -> float | None:
    """Return the base of the ladder before a rule stretched it; None where it is no power."""
    series = geometric(ladder.omega if ladder.unscaled is None else ladder.unscaled)
    return None if series is None else math.exp(-series[1] * len(ladder.omega))


def _of_geometric(
    a: Ladder, series_a: tuple[float, float], series_b: tuple[float, float]
) -> Iterator[Finding]:
    pairs = len(a.omega)
    base_a, base_b = (math.exp(-slope * pairs) for _, slope in (series_a, series_b))
    if abs(series_a[1] - series_b[1]) * (pairs - 1) > _SAME_LADDER_TOLERANCE:
        yield _base(a, base_a, base_b)
    stretched = math.exp(series_a[0] - series_b[0])
    if (
        abs(math.log(stretched)) > 2 * _SAME_LADDER_TOLERANCE
    ):  # the end of a line is known half as well
        yield Finding("ladder", "positions_scaled", value=stretched)


def _base(a: Ladder, base_a: float, base_b: float) -> Finding:
    """Name why the base is another."""
    pairs = len(a.omega)
    if (
        min(base_a, base_b) <= 1 + _SAME_LADDER_TOLERANCE
    ):  # no ladder that falls: nothing but its steps to name
        return Finding("ladder", "base", base_a, base_b, base_b / base_a)
    power = math.log(base_b) / math.log(base_a)
    limit = RULES["ntk"].tolerance
    if abs(power - pairs / (pairs - 1)) < limit / math.log(base_a):
        return Finding("ladder", "last_pair", base_a, base_b, power)
    if a.head_dim and a.head_dim > 2 * pairs and abs(power * a.head_dim / (2 * pairs) - 1) < limit:
        return Finding("ladder", "spread", 2 * pairs, a.head_dim, power)
    factor = (base_b / base_a) ** ((pairs - 1) / pairs)
    for name in _FACTORS:
        for exact in (name, 1 / name):
            if abs(factor / exact - 1) < limit:
                return Finding("ladder", "ntk", base_a, base_b, exact)
    return Finding("ladder", "base", base_a, base_b, base_b / base_a)


def _by_parts(a: Ladder, b: Ladder, ratio: Floats) -> Iterator[Finding]:
    """Name rules that stretch some pairs more than others."""
    for cause, scaled, plain, sign in (("parts_lost", a, b, 1), ("parts_added", b, a, -1)):
        series = geometric(plain.omega)
        factor_before = None if series is None else _before(scaled, plain)
        if series is None or factor_before is None:
            continue
        yield Finding("ladder", cause, *_stretch(np.log(factor_before / scaled.omega)))
        start = geometric(factor_before)
        if (
            start
            and np.abs(np.log(factor_before / plain.omega)).max() > 20 * _SAME_LADDER_TOLERANCE
        ):
            ends = (start, series)[::sign]
            yield from _of_geometric(replace(a, omega=factor_before), *ends)
        return
    is_kept = np.abs(ratio) < _SAME_LADDER_TOLERANCE
    if _is_stretch(ratio, 1):
        yield Finding("ladder", "parts_factor", *_stretch(ratio))
    elif is_kept[0] and is_kept[-1]:
        details = {"pairs": len(ratio), "kept": int(is_kept.sum())}
        yield Finding("ladder", "ramp", value=float(np.abs(ratio).max()), more=details)
    else:
        yield Finding("ladder", "frequencies", value=float(np.abs(ratio).max()))


def _stretch(log_ratios: Floats) -> tuple[None, None, float, None, None, dict[str, Any]]:
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


def _is_stretch(ratio: Floats, min_pairs: int) -> bool:
    """Tell whether so many fast pairs are kept, and others go ever further away."""
    is_kept = np.abs(ratio) < _SAME_LADDER_TOLERANCE
    steps = np.diff(np.abs(ratio[np.argmin(is_kept) :]))
    return bool(
        is_kept[:min_pairs].all()
        and not is_kept[-1]
        and (steps >= -2 * _SAME_LADDER_TOLERANCE).all()
    )


def _before(ladder: Ladder, plain: Ladder) -> Floats | None:
    """Return the ladder before its rule: as stated, the other one, or as its first pairs go on."""
    if ladder.unscaled is not None:
        return ladder.unscaled
    if _is_stretch(np.log(plain.omega / ladder.omega), 1):
        return plain.omega
    omega, index = ladder.omega, np.arange(len(ladder.omega))
    if len(omega) <= N_SHOWN_FREQUENCIES or geometric(omega[:N_SHOWN_FREQUENCIES]) is None:
        return None
    going = omega[0] * np.exp(
        math.log(omega[N_SHOWN_FREQUENCIES - 1] / omega[0]) / (N_SHOWN_FREQUENCIES - 1) * index
    )
    log_ratio = np.log(going / omega)
    # A step that was read off float32 is off by more, the further it goes.
    going = np.where(np.abs(log_ratio) < 10 * _SAME_LADDER_TOLERANCE, omega, going)
    return going if _is_stretch(np.log(going / omega), N_SHOWN_FREQUENCIES) else None


def _rounded_angles(omega: Floats, b: Ladder) -> Finding | None:
    """Find the arithmetic that gave an engine's cosines and sines from A's ladder.

    Parameters
    ----------
    omega
        ``[pairs]`` of A.
    b
        With cosines and sines.
    """
    assert b.cos is not None and b.sin is not None  # noqa: S101, PT018 - asked for by the caller
    cos, sin = b.cos, b.sin
    positions = np.arange(len(cos), dtype=np.float64)
    exact = np.outer(positions, omega)
    # An angle of float32 is off by its own rounding and that of the frequency, at most; numbers
    # of float16 near 0 are 2^-24 apart.
    single = 2**-22 * exact + (0.0 if _precise(b) else 2**-24)

    def fits(angles: Floats, limit: float) -> bool:
        # Sines of slow pairs are small: they tell a frequency that cosines hide.
        is_close = np.abs(np.sin(angles) - sin) <= limit * np.minimum(exact, 1.0) + single
        return bool(is_close.all() and (np.abs(np.cos(angles) - cos) <= limit + single).all())

    largest_error = float(max(np.abs(np.cos(exact) - cos).max(), np.abs(np.sin(exact) - sin).max()))
    if fits(exact, 2**-22):
        return Finding("ladder", "same_ladder", value=largest_error)
    limit = RULES["cosines_rounded"].tolerance
    # Half a step, and half of that for the factor, which rounded cosines tell less well.
    if not _precise(b) and fits(exact, 0.75 * limit):
        return Finding("ladder", "cosines_rounded", value=largest_error)
    for name in ("bfloat16", "float16"):
        small, numbers = to_type(omega, name), to_type(positions, name)
        ways = {
            "ladder": np.outer(positions, small),
            "positions": np.outer(numbers, omega),
            "all": to_type(np.outer(numbers, small), name),
            "product": to_type(exact, name),
        }
        for way, angles in ways.items():
            if not fits(angles, 2**-20 if _precise(b) else limit):
                continue
            cause = "ladder_rounded" if way == "ladder" else "angles_rounded"
            wrong_positions = np.flatnonzero(
                np.abs(angles - exact).max(axis=1) > MAX_ANGLE_ERROR_RADIANS
            )
            first_position = (
                float(wrong_positions[0])
                if len(wrong_positions)
                else MAX_ANGLE_ERROR_RADIANS / max(np.abs(small - omega).max(), 1e-30)
            )
            return Finding(
                "ladder", cause, value=largest_error, first_distance=float(first_position),
                more={"type": name, "way": way, "side": "b"},
            )  # fmt: skip
    return None
