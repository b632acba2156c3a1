"""Numbers that were stored twice: equal, rounded to a type, or rounded in blocks."""

from __future__ import annotations

import numpy as np

from posprobe.arrays import Floats
from posprobe.encodings.precision import to_type
from posprobe.relations.rules import RULES, Finding

#: Numbers of a block that share a step: of GGUF's smaller types and of most others.
BLOCK = 32
#: Largest whole number of a block's scale, by bits: symmetric, or with one more below zero. Steps
#: of few bits are whole ones of many.
_LEVELS = {4: (7, 8), 5: (15, 16), 8: (127, 128)}
#: Evenly spaced numbers between the ends of a block, as K-quants of ggml have them: bits, and the
#: width of the runs that share a step.
_RUNS = ((2, 16), (3, 16), (4, 32), (5, 32), (6, 16))
#: Numbers that share a step in each of these types, and how many such runs are looked at where a
#: share is asked for.
RUN, _SOME = 16, 2**12
#: Blocks and runs, and rows, that are looked at before all are: most copies are told from them.
_FIRST = 64
_PARTS = (slice(1), slice(None))
#: A stored scale is rounded to float16; steps are whole to so much of full scale.
_WHOLE = 1e-4


def distance(a: Floats, b: Floats) -> float:
    """Return the norm of the difference over the norm of ``a``; infinite where that is 0."""
    size = float(np.linalg.norm(a))
    return float(np.linalg.norm(b - a)) / size if size else float("inf")


def stored_again(a: Floats, b: Floats, what: str) -> Finding | None:
    """Find whether ``b`` is ``a``, or ``a`` rounded, or the other way round; else None.

    Parameters
    ----------
    a, b
        Of one shape.
    what
        As in `Finding`.
    """
    if np.array_equal(a, b):
        return Finding(what, "identical", value=0.0)
    for name in ("float32", "float16", "bfloat16"):
        for one, other, whose in ((a, b, "b"), (b, a, "a")):
            if all(np.array_equal(to_type(one[part], name), other[part]) for part in _PARTS):
                return Finding(
                    what, "rounded", value=distance(a, b), more={"type": name, "side": whose}
                )
    for one, other, whose in ((a, b, "b"), (b, a, "a")):
        bits = _bits(other) or _run_bits(other)
        if bits and nearer_elsewhere(one, other) < RULES["quantised"].tolerance:
            return Finding(
                what, "quantised", value=distance(a, b), more={"bits": bits, "side": whose}
            )
    return None


def moved(a: Floats, b: Floats, what: str) -> Finding:
    """Say how far values were moved, and whether rounding alone could have moved them so.

    Parameters
    ----------
    a, b
        Of one shape.
    what
        As in `Finding`.
    """
    beyond = {"a": nearer_elsewhere(b, a), "b": nearer_elsewhere(a, b)}
    return Finding(what, "moved", value=distance(a, b), more={"beyond": beyond})


def nearer_elsewhere(a: Floats, b: Floats) -> float:
    """Return the share of numbers to which another of their run in ``b`` is nearer than their own.

    Rounding to the nearest leaves none, whatever the grid, but for what rounds its scale. Some
    runs of `RUN` numbers are looked at; 0 where rows are no whole number of them.
    """
    if not b.size or b.shape[-1] % RUN:
        return 0.0
    some = np.linspace(0, b.size // RUN - 1, min(b.size // RUN, _SOME)).astype(np.intp)
    exact, runs = (each.reshape(-1, RUN)[some] for each in (a, b))
    own = np.abs(exact - runs) * (1 - 1e-6)
    nearer = np.zeros(runs.shape, dtype=bool)
    for step in range(1, RUN):
        nearer |= np.abs(exact - np.roll(runs, step, axis=1)) < own
    return float(nearer.mean())


def _bits(b: Floats) -> int | None:
    """Return to how many bits ``b`` is rounded in blocks that share a step."""
    if b.shape[-1] % BLOCK or not b.any():
        return None
    blocks = b.reshape(-1, BLOCK)
    for bits, levels in _LEVELS.items():
        if _fit(blocks[:_FIRST], levels) and _fit(blocks, levels):
            return bits
    return None


def _fit(blocks: Floats, levels: tuple[int, ...]) -> bool:
    """Tell whether numbers of each block are whole steps, its largest over one of the levels."""
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    fits = np.zeros(len(blocks), dtype=bool)
    for level in levels:
        step = largest / level
        number = np.divide(blocks, step, out=np.zeros_like(blocks), where=step > 0)
        fits |= np.abs(number - np.round(number)).max(axis=1) <= _WHOLE * level
    return bool(fits.all())


def _run_bits(b: Floats) -> int | None:
    """Return to how many bits ``b`` is rounded in runs with a step and a start of their own."""
    for bits, width in _RUNS:
        if b.shape[-1] % width:
            continue
        runs = b.reshape(-1, width)
        if np.isnan(_steps(runs[:_FIRST], bits)).any():
            continue
        step = _steps(runs, bits)
        # A run of one number shows no step.
        if not np.isnan(step).any() and (step > 0).mean() > 0.5:
            return bits
    return None


def _steps(runs: Floats, bits: int) -> Floats:
    """Return the widest step of which the numbers of a run are whole ones apart, NaN if none is."""
    low = runs.min(axis=1, keepdims=True)
    span = runs.max(axis=1, keepdims=True) - low
    found = np.where(span[:, 0] > 0, np.nan, 0.0)
    for count in range(1, 2**bits):
        step = span / count
        number = np.divide(runs - low, step, out=np.zeros_like(runs), where=step > 0)
        whole = np.abs(number - np.round(number)).max(axis=1) <= _WHOLE * count
        found = np.where(np.isnan(found) & whole, step[:, 0], found)
    return found
