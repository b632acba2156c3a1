"""Relate two arrays of numbers: equal, rounded, quantised or moved; also biases and sketches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from posprobe.arrays import Floats
from posprobe.encodings.rotary import round_to_type
from posprobe.relations.rules import RULES, Finding

#: A block is this many numbers with one step, in GGUF's smaller types and in most others.
BLOCK_NUMBERS = 32
#: The largest whole number of steps in a block, by bits: symmetric, or one more below zero. A step
#: of few bits is a whole number of steps of many bits.
_MAX_LEVELS_BY_BITS = {4: (7, 8), 5: (15, 16), 8: (127, 128)}
#: The K-quants of ggml space numbers evenly between the ends of a run: bits, and the numbers of a
#: run that share a step.
_K_QUANT_RUNS = ((2, 16), (3, 16), (4, 32), (5, 32), (6, 16))
#: In each of the types above, this many adjacent numbers share a step.
RUN_NUMBERS = 16
#: A share is estimated from at most this many runs, which bounds the time.
_MAX_SAMPLED_RUNS = 2**12
#: This many blocks or runs are tested before all, because they rule out most copies.
_N_FIRST_BLOCKS = 64
#: The first row is compared before all rows, because it rules out most copies.
_FIRST_ROW_THEN_ALL = (slice(1), slice(None))
#: Numbers may be off a whole step by this share of full scale, because a stored scale is rounded
#: to float16.
_MAX_STEP_ERROR = 1e-4
#: Two tables count as related up to this chance that a random rotation of the columns of one
#: brings them as near.
MAX_RELATED_CHANCE = 1e-9
#: Smaller relative distances of sketches mean nothing: both sketches are rounded to half
#: precision, each by at most 2**-11 / 3**0.5 (for values just above a power of two).
MAX_SKETCH_ROUNDING = 4e-4
#: Rounding to a format with p significant bits makes a relative distance of at most
#: 2**-p / 3**0.5.
MAX_ROUNDING_BY_FORMAT: Mapping[str | None, float] = {
    "F16": 3e-4,
    "BF16": 2.4e-3,
    "F32": 4e-8,
}


def relative_distance(a: Floats, b: Floats) -> float:
    """Return the norm of the difference over the norm of ``a``; infinite if that norm is 0."""
    norm = float(np.linalg.norm(a))
    return float(np.linalg.norm(b - a)) / norm if norm else float("inf")


def find_same_values(a: Floats, b: Floats, subject: str) -> Finding | None:
    """Find whether one array is the other, or the other rounded or quantised; else None.

    Parameters
    ----------
    a, b
        Arrays of one shape.
    subject
        Subject of the finding, as in `Finding`.
    """
    if np.array_equal(a, b):
        return Finding(subject, "identical", value=0.0)
    for dtype in ("float32", "float16", "bfloat16"):
        for exact, rounded, side in ((a, b, "b"), (b, a, "a")):
            if all(
                np.array_equal(round_to_type(exact[rows], dtype), rounded[rows])
                for rows in _FIRST_ROW_THEN_ALL
            ):
                details = {"type": dtype, "side": side}
                return Finding(
                    subject, "rounded", value=relative_distance(a, b), more=details
                )
    for exact, rounded, side in ((a, b, "b"), (b, a, "a")):
        bits = _find_block_bits(rounded) or _find_run_bits(rounded)
        if bits and nearer_share(exact, rounded) < RULES["quantised"].tolerance:
            quantisation = {"bits": bits, "side": side}
            return Finding(
                subject, "quantised", value=relative_distance(a, b), more=quantisation
            )
    return None


def moved_finding(a: Floats, b: Floats, subject: str) -> Finding:
    """Measure how far values moved, and whether rounding alone could have moved them.

    Parameters
    ----------
    a, b
        Arrays of one shape.
    subject
        Subject of the finding, as in `Finding`.
    """
    nearer_shares = {"a": nearer_share(b, a), "b": nearer_share(a, b)}
    return Finding(
        subject, "moved", value=relative_distance(a, b), more={"beyond": nearer_shares}
    )


def nearer_share(a: Floats, b: Floats) -> float:
    """Return the share of numbers in ``a`` that are nearer to another of their run in ``b``.

    Rounding to the nearest leaves none, whatever the grid, apart from the rounding of its scale.
    A sample of the runs of `RUN_NUMBERS` numbers is compared. The share is 0 if the rows are no
    whole number of runs.
    """
    if not b.size or b.shape[-1] % RUN_NUMBERS:
        return 0.0
    n_runs = b.size // RUN_NUMBERS
    n_sampled = min(n_runs, _MAX_SAMPLED_RUNS)
    sampled_runs = np.linspace(0, n_runs - 1, n_sampled).astype(np.intp)
    exact_runs, rounded_runs = (
        values.reshape(-1, RUN_NUMBERS)[sampled_runs] for values in (a, b)
    )
    distances = np.abs(exact_runs - rounded_runs) * (1 - 1e-6)
    is_nearer = np.zeros(rounded_runs.shape, dtype=bool)
    for shift in range(1, RUN_NUMBERS):
        is_nearer |= np.abs(exact_runs - np.roll(rounded_runs, shift, axis=1)) < distances
    return float(is_nearer.mean())


def _find_block_bits(b: Floats) -> int | None:
    """Return the number of bits to which ``b`` is rounded in blocks that share a step."""
    if b.shape[-1] % BLOCK_NUMBERS or not b.any():
        return None
    blocks = b.reshape(-1, BLOCK_NUMBERS)
    for bits, levels in _MAX_LEVELS_BY_BITS.items():
        if _has_whole_steps(blocks[:_N_FIRST_BLOCKS], levels) and _has_whole_steps(
            blocks, levels
        ):
            return bits
    return None


def _has_whole_steps(blocks: Floats, levels: tuple[int, ...]) -> bool:
    """Tell whether the numbers of each block are whole steps: its largest over one level."""
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    has_whole_steps = np.zeros(len(blocks), dtype=bool)
    for level in levels:
        step = largest / level
        step_counts = np.divide(blocks, step, out=np.zeros_like(blocks), where=step > 0)
        errors = np.abs(step_counts - np.round(step_counts))
        has_whole_steps |= errors.max(axis=1) <= _MAX_STEP_ERROR * level
    return bool(has_whole_steps.all())


def _find_run_bits(b: Floats) -> int | None:
    """Return the number of bits to which ``b`` is rounded in runs with a step and a start each."""
    for bits, width in _K_QUANT_RUNS:
        if b.shape[-1] % width:
            continue
        runs = b.reshape(-1, width)
        if np.isnan(_find_steps(runs[:_N_FIRST_BLOCKS], bits)).any():
            continue
        steps = _find_steps(runs, bits)
        # A run of one repeated number shows no step.
        if not np.isnan(steps).any() and (steps > 0).mean() > 0.5:
            return bits
    return None


def _find_steps(runs: Floats, bits: int) -> Floats:
    """Return the widest step that divides the differences within each run, NaN if none does."""
    smallest = runs.min(axis=1, keepdims=True)
    span = runs.max(axis=1, keepdims=True) - smallest
    steps = np.where(span[:, 0] > 0, np.nan, 0.0)
    for n_steps in range(1, 2**bits):
        step = span / n_steps
        step_counts = np.divide(
            runs - smallest, step, out=np.zeros_like(runs), where=step > 0
        )
        errors = np.abs(step_counts - np.round(step_counts))
        has_whole_steps = errors.max(axis=1) <= _MAX_STEP_ERROR * n_steps
        steps = np.where(np.isnan(steps) & has_whole_steps, step[:, 0], steps)
    return steps


# --- sketches of tables


def relate_sketches_of_tables(
    distance: float,
    chance: float,
    formats: tuple[str | None, str | None],
    *,
    n_positions: int,
    is_complete: bool,
) -> Finding:
    """Name the relation of two tables from the distance of their sketches.

    Rounding to another format adds to the rounding of the sketches. Tables in one format have the
    same scale, so that their sketches are rounded alike.

    Parameters
    ----------
    distance, chance
        Relative distance, and the probability that a rotation of the columns makes it as small.
    formats
        Coarsest format that holds each table's values, by its name in safetensors.
    n_positions
        Number of positions that were compared; 0 for the mean rows of equal blocks.
    is_complete
        Whether these are all positions of both tables.
    """
    if chance > MAX_RELATED_CHANCE:
        return Finding("values", "unrelated", value=distance)
    if not n_positions:
        return Finding("rows", "resized", value=distance)
    coarser_format = max(formats, key=lambda name: MAX_ROUNDING_BY_FORMAT.get(name, 0.0))
    is_same_format = len(set(formats)) == 1
    if is_same_format and not is_complete and distance <= MAX_SKETCH_ROUNDING:
        return Finding("values", "identical", value=distance)
    max_rounding = MAX_ROUNDING_BY_FORMAT.get(coarser_format, 0.0)
    if distance <= max_rounding + (0.0 if is_same_format else MAX_SKETCH_ROUNDING):
        rounded: dict[str, str | None] = {"type": coarser_format}
        if not is_same_format:
            rounded["side"] = "a" if formats[0] == coarser_format else "b"
        return Finding("values", "rounded", value=distance, more=rounded)
    return Finding("values", "moved", value=distance)


# --- biases


def relate_slopes(a: Floats, b: Floats) -> tuple[Finding, ...]:
    """Relate the slopes of two linear biases, ``[heads]``."""
    if len(a) != len(b):
        return (Finding("heads", "heads", len(a), len(b)),)
    if (a <= 0).any() or (b <= 0).any():
        cause = "same_slopes" if np.array_equal(a, b) else "slopes"
        return (Finding("slopes", cause, value=relative_distance(a, b)),)
    log_ratios = np.log(b / a)
    if np.abs(log_ratios).max() < RULES["same_slopes"].tolerance:
        return (Finding("slopes", "same_slopes", value=float(np.abs(log_ratios).max())),)
    if np.ptp(log_ratios) < RULES["slopes_scaled"].tolerance:
        return (
            Finding("slopes", "slopes_scaled", value=float(np.exp(log_ratios.mean()))),
        )
    if np.allclose(np.sort(a), np.sort(b), RULES["same_slopes"].tolerance, 0):
        return (Finding("slopes", "heads_order", len(a), len(b)),)
    return (
        Finding("slopes", "slopes", float(a[0]), float(b[0]), relative_distance(a, b)),
    )


def relate_biases(a: Floats, b: Floats) -> tuple[Finding, ...]:
    """Relate the values of two relative biases.

    Parameters
    ----------
    a, b
        ``[heads, 2 r + 1]`` by offset, or ``[heads, 2 h - 1, 2 w - 1]`` by displacement.
    """
    if len(a) != len(b):
        return (Finding("heads", "heads", len(a), len(b)),)
    if a.shape[1:] != b.shape[1:]:
        if _has_same_values(a, b):
            return (Finding("buckets", "buckets", list(a.shape[1:]), list(b.shape[1:])),)
        return (Finding("buckets", "reach", list(a.shape[1:]), list(b.shape[1:])),)
    if finding := find_same_values(a, b, "values"):
        return (finding,)
    if a.ndim == 3 and a.shape[1] == a.shape[2] and np.array_equal(a.swapaxes(1, 2), b):
        return (Finding("values", "exchanged", *a.shape[1:]),)
    if np.array_equal(a.reshape(len(a), -1)[:, ::-1].reshape(a.shape), b):
        return (Finding("values", "reversed", a.shape[1], b.shape[1]),)
    rows_a, rows_b = ({row.tobytes() for row in biases} for biases in (a, b))
    if rows_a == rows_b:
        return (Finding("values", "heads_order", len(a), len(b)),)
    if _has_same_values(a, b):
        return (Finding("buckets", "buckets", list(a.shape[1:]), list(b.shape[1:])),)
    direct_distance = relative_distance(a, b)
    scale = float((a * b).sum() / ((a * a).sum() or 1.0))
    misfit = relative_distance(b, scale * a)
    if scale and misfit < min(RULES["scaled"].tolerance, direct_distance / 3):
        return (Finding("values", "scaled", value=misfit, more={"factor": scale}),)
    cause = "moved" if direct_distance < RULES["moved"].tolerance else "unrelated"
    return (Finding("values", cause, value=direct_distance),)


def _has_same_values(a: Floats, b: Floats) -> bool:
    """Tell whether the buckets of every head hold the same values, at any distances."""
    return all(
        np.array_equal(np.unique(x), np.unique(y)) and len(np.unique(x)) > 2
        for x, y in zip(a, b, strict=True)
    )
