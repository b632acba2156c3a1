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
FIRST = 6
#: Factors by which positions are stretched in practice.
_FACTORS = range(2, 129)
_SAME = RULES["same_ladder"].tolerance


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
    one, other = (np.pad(omega, (0, pairs - len(omega))) for omega in (a, b))
    off = float(np.abs(one - other).max())
    distances = np.arange(min(context or 4096, FURTHEST) + 1)
    apart = np.abs(rotary_kernel(one, distances) - rotary_kernel(other, distances))
    return (MAX_ANGLE_ERROR_RADIANS / off if off else math.inf), float(apart.max())


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
    found: list[Finding] = []
    if len(a.omega) != len(b.omega):
        found.append(Finding("columns", "columns", 2 * len(a.omega), 2 * len(b.omega)))
    elif b.cos is not None and (rounded := _rounded_angles(a.omega, b)):
        found.append(rounded)
    else:
        found += _frequencies(a, b)
    if found and len(a.omega) == len(b.omega):
        found[0] = replace(found[0], curve=b.omega / a.omega)
    if not all(each.alike for each in found):
        first, rotation = harm(a.omega, b.omega, context)
        found = [
            each
            if each.alike
            else replace(each, first_distance=each.first_distance or first, rotation=rotation)
            for each in found
        ]
    limit = RULES["factor"].tolerance if _precise(a) and _precise(b) else 2**-8
    if a.factor is not None and b.factor is not None and abs(a.factor - b.factor) > limit:
        found.append(Finding("factor", "factor", a.factor, b.factor, abs(a.factor - b.factor)))
    return tuple(found)


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
    if largest < _SAME:
        yield Finding("ladder", "same_ladder", base_of(a), base_of(b), largest)
        return
    for name in ("bfloat16", "float16"):
        for whose, exact, other in (("b", a.omega, b.omega), ("a", b.omega, a.omega)):
            if _is_rounded(exact, other, name):
                yield Finding(
                    "ladder", "ladder_rounded", value=largest, more={"type": name, "side": whose}
                )
                return
    if np.abs(np.log(np.sort(b.omega) / np.sort(a.omega))).max() < _SAME:
        yield Finding("ladder", "pair_order", value=largest)
        return
    plain_a, plain_b = geometric(a.omega), geometric(b.omega)
    if plain_a and plain_b:
        found = [*_of_geometric(a, plain_a, plain_b)]
        same = Finding("ladder", "same_ladder", base_of(a), base_of(a), largest)
        yield from found or [same]  # single pairs are off by more than the line through them
    elif np.ptp(ratio) < _SAME:
        yield Finding("ladder", "positions_scaled", value=math.exp(-float(ratio.mean())))
    elif (slope := geometric(np.exp(ratio))) and abs(slope[0]) < _SAME:
        base = base_of(a)
        grown = math.exp(-slope[1] * len(ratio))
        yield Finding("ladder", "base", base, base and base * grown, grown)
    else:
        yield from _by_parts(a, b, ratio)


def _is_rounded(exact: Floats, other: Floats, name: str) -> bool:
    # A ladder is rounded after it was computed in float32, which may be off by a little.
    low, high = (to_type(exact * (1 + sign * _SAME), name) for sign in (-1, 1))
    return bool(np.all((other >= low * (1 - _SAME)) & (other <= high * (1 + _SAME))))


def geometric(omega: Floats) -> tuple[float, float] | None:
    """Return where the logarithms of a ladder start and how they step, if they do so evenly."""
    if (omega <= 0).any():
        return None
    if len(omega) == 1:
        return float(np.log(omega[0])), 0.0
    log, at = np.log(omega), np.arange(len(omega))
    slope, start = np.polyfit(at, log, 1)
    even = np.abs(log - start - slope * at).max() < _SAME
    return (float(start), float(slope)) if even else None


def base_of(ladder: Ladder) -> float | None:
    """Return the base of the ladder before a rule stretched it; None where it is no power."""
    found = geometric(ladder.omega if ladder.unscaled is None else ladder.unscaled)
    return None if found is None else math.exp(-found[1] * len(ladder.omega))


def _of_geometric(
    a: Ladder, one: tuple[float, float], other: tuple[float, float]
) -> Iterator[Finding]:
    pairs = len(a.omega)
    base_a, base_b = (math.exp(-slope * pairs) for _, slope in (one, other))
    if abs(one[1] - other[1]) * (pairs - 1) > _SAME:
        yield _base(a, base_a, base_b)
    stretched = math.exp(one[0] - other[0])
    if abs(math.log(stretched)) > 2 * _SAME:  # the end of a line is known half as well
        yield Finding("ladder", "positions_scaled", value=stretched)


def _base(a: Ladder, base_a: float, base_b: float) -> Finding:
    """Name why the base is another."""
    pairs = len(a.omega)
    if min(base_a, base_b) <= 1 + _SAME:  # no ladder that falls: nothing but its steps to name
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
        found = geometric(plain.omega)
        before = None if found is None else _before(scaled, plain)
        if found is None or before is None:
            continue
        yield Finding("ladder", cause, *_stretch(np.log(before / scaled.omega)))
        start = geometric(before)
        if start and np.abs(np.log(before / plain.omega)).max() > 20 * _SAME:
            ends = (start, found)[::sign]
            yield from _of_geometric(replace(a, omega=before), *ends)
        return
    kept = np.abs(ratio) < _SAME
    if _is_stretch(ratio, 1):
        yield Finding("ladder", "parts_factor", *_stretch(ratio))
    elif kept[0] and kept[-1]:
        more = {"pairs": len(ratio), "kept": int(kept.sum())}
        yield Finding("ladder", "ramp", value=float(np.abs(ratio).max()), more=more)
    else:
        yield Finding("ladder", "frequencies", value=float(np.abs(ratio).max()))


def _stretch(apart: Floats) -> tuple[None, None, float, None, None, dict[str, Any]]:
    """Return what follows the cause in a `Finding`: the last ratio, and how many pairs are kept."""
    last = math.exp(float(apart[-1]))
    kept = int((np.abs(apart) < _SAME).sum())
    return None, None, last, None, None, {"pairs": len(apart), "kept": kept, "last": last}


def _is_stretch(ratio: Floats, least: int) -> bool:
    """Tell whether so many fast pairs are kept, and others go ever further away."""
    kept = np.abs(ratio) < _SAME
    steps = np.diff(np.abs(ratio[np.argmin(kept) :]))
    return bool(kept[:least].all() and not kept[-1] and (steps >= -2 * _SAME).all())


def _before(ladder: Ladder, plain: Ladder) -> Floats | None:
    """Return the ladder before its rule: as stated, the other one, or as its first pairs go on."""
    if ladder.unscaled is not None:
        return ladder.unscaled
    if _is_stretch(np.log(plain.omega / ladder.omega), 1):
        return plain.omega
    omega, at = ladder.omega, np.arange(len(ladder.omega))
    if len(omega) <= FIRST or geometric(omega[:FIRST]) is None:
        return None
    going = omega[0] * np.exp(math.log(omega[FIRST - 1] / omega[0]) / (FIRST - 1) * at)
    apart = np.log(going / omega)
    # A step that was read off float32 is off by more, the further it goes.
    going = np.where(np.abs(apart) < 10 * _SAME, omega, going)
    return going if _is_stretch(np.log(going / omega), FIRST) else None


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
        near = np.abs(np.sin(angles) - sin) <= limit * np.minimum(exact, 1.0) + single
        return bool(near.all() and (np.abs(np.cos(angles) - cos) <= limit + single).all())

    off = float(max(np.abs(np.cos(exact) - cos).max(), np.abs(np.sin(exact) - sin).max()))
    if fits(exact, 2**-22):
        return Finding("ladder", "same_ladder", value=off)
    limit = RULES["cosines_rounded"].tolerance
    # Half a step, and half of that for the factor, which rounded cosines tell less well.
    if not _precise(b) and fits(exact, 0.75 * limit):
        return Finding("ladder", "cosines_rounded", value=off)
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
            wrong = np.flatnonzero(np.abs(angles - exact).max(axis=1) > MAX_ANGLE_ERROR_RADIANS)
            first = (
                float(wrong[0])
                if len(wrong)
                else MAX_ANGLE_ERROR_RADIANS / max(np.abs(small - omega).max(), 1e-30)
            )
            return Finding(
                "ladder", cause, value=off, first_distance=float(first),
                more={"type": name, "way": way, "side": "b"},
            )  # fmt: skip
    return None
