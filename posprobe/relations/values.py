"""Numbers that were stored twice: equal, rounded, or as biases and sketches are related."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from posprobe.arrays import Floats
from posprobe.encodings.rotary import to_type
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
RUN, _MAX_SAMPLED_RUNS = 16, 2**12
#: Blocks and runs, and rows, that are looked at before all are: most copies are told from them.
_N_FIRST_BLOCKS = 64
_PARTS = (slice(1), slice(None))
#: A stored scale is rounded to float16; steps are whole to so much of full scale.
_MAX_STEP_ERROR = 1e-4
#: Largest chance, were the columns of one table turned at random, at which two count as related.
CHANCE = 1e-9
#: Relative distance below which sketches tell nothing: both are rounded to half precision, each by
#: at most 2**-11 / 3**0.5 (that of values just above a power of two).
PRECISION = 4e-4
#: Relative distance that rounding to a format makes at most, 2**-p / 3**0.5 of p significant bits.
ROUNDING: Mapping[str | None, float] = {"F16": 3e-4, "BF16": 2.4e-3, "F32": 4e-8}


def distance(a: Floats, b: Floats) -> float:
    """Return the norm of the difference over the norm of ``a``; infinite where that is 0."""
    size = float(np.linalg.norm(a))
    return float(np.linalg.norm(b - a)) / size if size else float("inf")


def stored_again(a: Floats, b: Floats, subject: str) -> Finding | None:
    """Find whether ``b`` is ``a``, or ``a`` rounded, or the other way round; else None.

    Parameters
    ----------
    a, b
        Arrays of one shape.
    subject
        Subject of the finding, as in `Finding`.
    """
    if np.array_equal(a, b):
        return Finding(subject, "identical", value=0.0)
    for name in ("float32", "float16", "bfloat16"):
        for exact, rounded, side in ((a, b, "b"), (b, a, "a")):
            if all(np.array_equal(to_type(exact[part], name), rounded[part]) for part in _PARTS):
                return Finding(
                    subject, "rounded", value=distance(a, b), more={"type": name, "side": side}
                )
    for exact, rounded, side in ((a, b, "b"), (b, a, "a")):
        bits = _bits(rounded) or _run_bits(rounded)
        if bits and nearer_elsewhere(exact, rounded) < RULES["quantised"].tolerance:
            return Finding(
                subject, "quantised", value=distance(a, b), more={"bits": bits, "side": side}
            )
    return None


def moved(a: Floats, b: Floats, subject: str) -> Finding:
    """Say how far values were moved, and whether rounding alone could have moved them so.

    Parameters
    ----------
    a, b
        Arrays of one shape.
    subject
        Subject of the finding, as in `Finding`.
    """
    nearer_by_side = {"a": nearer_elsewhere(b, a), "b": nearer_elsewhere(a, b)}
    return Finding(subject, "moved", value=distance(a, b), more={"beyond": nearer_by_side})


def nearer_elsewhere(a: Floats, b: Floats) -> float:
    """Return the share of numbers to which another of their run in ``b`` is nearer than their own.

    Rounding to the nearest leaves none, whatever the grid, but for what rounds its scale. Some
    runs of `RUN` numbers are looked at; 0 where rows are no whole number of them.
    """
    if not b.size or b.shape[-1] % RUN:
        return 0.0
    sampled_runs = np.linspace(0, b.size // RUN - 1, min(b.size // RUN, _MAX_SAMPLED_RUNS)).astype(
        np.intp
    )
    exact, runs = (values.reshape(-1, RUN)[sampled_runs] for values in (a, b))
    distances = np.abs(exact - runs) * (1 - 1e-6)
    nearer = np.zeros(runs.shape, dtype=bool)
    for step in range(1, RUN):
        nearer |= np.abs(exact - np.roll(runs, step, axis=1)) < distances
    return float(nearer.mean())


def _bits(b: Floats) -> int | None:
    """Return to how many bits ``b`` is rounded in blocks that share a step."""
    if b.shape[-1] % BLOCK or not b.any():
        return None
    blocks = b.reshape(-1, BLOCK)
    for bits, levels in _LEVELS.items():
        if _fit(blocks[:_N_FIRST_BLOCKS], levels) and _fit(blocks, levels):
            return bits
    return None


def _fit(blocks: Floats, levels: tuple[int, ...]) -> bool:
    """Tell whether numbers of each block are whole steps, its largest over one of the levels."""
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    fits = np.zeros(len(blocks), dtype=bool)
    for level in levels:
        step = largest / level
        number = np.divide(blocks, step, out=np.zeros_like(blocks), where=step > 0)
        fits |= np.abs(number - np.round(number)).max(axis=1) <= _MAX_STEP_ERROR * level
    return bool(fits.all())


def _run_bits(b: Floats) -> int | None:
    """Return to how many bits ``b`` is rounded in runs with a step and a start of their own."""
    for bits, width in _RUNS:
        if b.shape[-1] % width:
            continue
        runs = b.reshape(-1, width)
        if np.isnan(_steps(runs[:_N_FIRST_BLOCKS], bits)).any():
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
    steps = np.where(span[:, 0] > 0, np.nan, 0.0)
    for count in range(1, 2**bits):
        step = span / count
        number = np.divide(runs - low, step, out=np.zeros_like(runs), where=step > 0)
        fits_steps = np.abs(number - np.round(number)).max(axis=1) <= _MAX_STEP_ERROR * count
        steps = np.where(np.isnan(steps) & fits_steps, step[:, 0], steps)
    return steps


# --- sketches of tables


def relate_sketches_of_tables(
    distance: float,
    chance: float,
    formats: tuple[str | None, str | None],
    *,
    rows: int,
    is_complete: bool,
) -> Finding:
    """Name the relation of two tables from what their sketches tell.

    What rounds to another format adds to the rounding of sketches. Tables in one format have the
    same scale, so that what their sketches lose is the same.

    Parameters
    ----------
    distance, chance
        Relative distance, and the probability that a turn of the columns makes it as small.
    formats
        The coarsest that holds each table's values, by its name in safetensors.
    rows
        Positions that were compared; 0 for mean rows of equal parts.
    is_complete
        Whether these are all positions of both.
    """
    if chance > CHANCE:
        return Finding("values", "unrelated", value=distance)
    if not rows:
        return Finding("rows", "resized", value=distance)
    coarser = max(formats, key=lambda name: ROUNDING.get(name, 0.0))
    same_format = len(set(formats)) == 1
    if same_format and not is_complete and distance <= PRECISION:
        return Finding("values", "identical", value=distance)
    if distance <= ROUNDING.get(coarser, 0.0) + (0.0 if same_format else PRECISION):
        return Finding("values", "rounded", value=distance, more={"type": coarser})
    return Finding("values", "moved", value=distance)


# --- biases


def relate_slopes(a: Floats, b: Floats) -> tuple[Finding, ...]:
    """Say what the slopes of one linear bias, ``[heads]``, are to those of another."""
    if len(a) != len(b):
        return (Finding("heads", "heads", len(a), len(b)),)
    if (a <= 0).any() or (b <= 0).any():
        equal = np.array_equal(a, b)
        return (Finding("slopes", "same_slopes" if equal else "slopes", value=distance(a, b)),)
    ratio = np.log(b / a)
    if np.abs(ratio).max() < RULES["same_slopes"].tolerance:
        return (Finding("slopes", "same_slopes", value=float(np.abs(ratio).max())),)
    if np.ptp(ratio) < RULES["slopes_scaled"].tolerance:
        return (Finding("slopes", "slopes_scaled", value=float(np.exp(ratio.mean()))),)
    if np.allclose(np.sort(a), np.sort(b), RULES["same_slopes"].tolerance, 0):
        return (Finding("slopes", "heads_order", len(a), len(b)),)
    return (Finding("slopes", "slopes", float(a[0]), float(b[0]), distance(a, b)),)


def relate_biases(a: Floats, b: Floats) -> tuple[Finding, ...]:
    """Say what biases by distance are to others.

    Parameters
    ----------
    a, b
        ``[heads, 2 r + 1]`` by offset, or ``[heads, 2 h - 1, 2 w - 1]`` by displacement.
    """
    if len(a) != len(b):
        return (Finding("heads", "heads", len(a), len(b)),)
    if a.shape[1:] != b.shape[1:]:
        if _same_numbers(a, b):
            return (Finding("buckets", "buckets", list(a.shape[1:]), list(b.shape[1:])),)
        return (Finding("buckets", "reach", list(a.shape[1:]), list(b.shape[1:])),)
    if finding := stored_again(a, b, "values"):
        return (finding,)
    if a.ndim == 3 and a.shape[1] == a.shape[2] and np.array_equal(a.swapaxes(1, 2), b):
        return (Finding("values", "exchanged", *a.shape[1:]),)
    if np.array_equal(a.reshape(len(a), -1)[:, ::-1].reshape(a.shape), b):
        return (Finding("values", "reversed", a.shape[1], b.shape[1]),)
    rows_a, rows_b = ({row.tobytes() for row in biases} for biases in (a, b))
    if rows_a == rows_b:
        return (Finding("values", "heads_order", len(a), len(b)),)
    if _same_numbers(a, b):
        return (Finding("buckets", "buckets", list(a.shape[1:]), list(b.shape[1:])),)
    relative_distance = distance(a, b)
    scale = float((a * b).sum() / ((a * a).sum() or 1.0))
    misfit = distance(b, scale * a)
    if scale and misfit < min(RULES["scaled"].tolerance, relative_distance / 3):
        return (Finding("values", "scaled", value=misfit, more={"factor": scale}),)
    cause = "moved" if relative_distance < RULES["moved"].tolerance else "unrelated"
    return (Finding("values", cause, value=relative_distance),)


def _same_numbers(a: Floats, b: Floats) -> bool:
    """Tell whether every head has the same values, of buckets laid out over other distances."""
    return all(
        np.array_equal(np.unique(x), np.unique(y)) and len(np.unique(x)) > 2
        for x, y in zip(a, b, strict=True)
    )
