"""Numbers that were stored twice: equal, rounded to a type, or rounded in blocks."""

from __future__ import annotations

import numpy as np

from posprobe.arrays import Floats
from posprobe.encodings.precision import to_type
from posprobe.relations.rules import RULES, Finding

#: Numbers of a block that share a step: of GGUF's smaller types and of most others.
BLOCK = 32
#: Largest whole number of a block's scale, by bits: symmetric, or with one more below zero.
_LEVELS = {8: (127, 128), 5: (15, 16), 4: (7, 8)}
#: Evenly spaced numbers between the ends of a block, as K-quants of ggml have them: bits, and the
#: width of the runs that share a step.
_RUNS = ((2, 16), (3, 16), (4, 32), (5, 32), (6, 16))
#: Runs that are looked at before all are: others of as many evenly spaced numbers are not met.
_FIRST = 64
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
            if np.array_equal(to_type(one, name), other):
                return Finding(
                    what, "rounded", value=distance(a, b), more={"type": name, "side": whose}
                )
    for one, other, whose in ((a, b, "b"), (b, a, "a")):
        if bits := _bits(one, other) or _run_bits(one, other):
            return Finding(
                what, "quantised", value=distance(a, b), more={"bits": bits, "side": whose}
            )
    return None


def _bits(a: Floats, b: Floats) -> int | None:
    """Return to how many bits ``b`` is ``a`` rounded in blocks."""
    if b.shape[-1] % BLOCK:
        return None
    exact, blocks = a.reshape(-1, BLOCK), b.reshape(-1, BLOCK)
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    there = largest[:, 0] > 0
    if not there.any():
        return None
    for bits, levels in _LEVELS.items():
        fits = np.zeros(len(blocks), dtype=bool)
        step = np.zeros_like(largest)
        for level in levels:
            tried = largest / level
            number = np.divide(blocks, tried, out=np.zeros_like(blocks), where=tried > 0)
            whole = np.abs(number - np.round(number)).max(axis=1) <= _WHOLE * level
            step[whole & ~fits] = tried[whole & ~fits]
            fits |= whole
        if fits.all():
            near = np.abs(exact - blocks) <= RULES["quantised"].tolerance * step
            if near[there].mean() >= 0.99:
                return bits
    return None


def _run_bits(a: Floats, b: Floats) -> int | None:
    """Return to how many bits ``b`` is ``a`` rounded in runs with a step and a start of their own.

    K-quants search for the step, so that ends may be cut and a number need not be the nearest.
    """
    for bits, width in _RUNS:
        if b.shape[-1] % width:
            continue
        exact, runs = a.reshape(-1, width), b.reshape(-1, width)
        if np.isnan(_steps(runs[:_FIRST], bits)).any():
            continue
        step = _steps(runs, bits)
        near = np.abs(exact - runs) <= step[:, None]
        # A run of one number shows no step.
        if not np.isnan(step).any() and (step > 0).mean() > 0.5 and near[step > 0].mean() >= 0.99:
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
