"""Hold what an encoding does as it runs against what a file states."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from posprobe.analyses.models.positions import PositionIds, find_position_change
from posprobe.analyses.models.rotations import (
    SINGLE_ROUNDOFF,
    ColumnPairs,
    ObservedRotation,
    TurnedVectors,
    arrange_pairs,
    measure_pairs,
    spread_positions,
)
from posprobe.arrays import Floats
from posprobe.checks.orders import Comparison
from posprobe.checks.sides import Side
from posprobe.encodings.rotary import MAX_ANGLE_ERROR_RADIANS, round_to_type
from posprobe.errors import PosprobeError, UsageError, first_line
from posprobe.relations import Finding, Ladder, NotCompared, relate_ladders
from posprobe.relations.ladders import measure_harm
from posprobe.schemes import AXIS_NAMES, Rotary

#: ``rotate(x, positions)``: vectors ``[tokens, heads, width]`` turned by their positions.
Rotate: TypeAlias = Callable[[Any, Any], Any]
#: Rotations are probed up to this position, within the context.
MAX_PROBED_POSITION = 2**17
#: Positions up to which a rotation is probed if its file states no context.
DEFAULT_PROBED_POSITIONS = 4096
#: The factor on cosines is measured to about this share of it, in single precision.
MIN_FACTOR_CHANGE = 1e-4
#: In others it is measured to so many unit roundoffs.
FACTOR_ROUNDOFFS = 4
#: Unit roundoffs of half precision, the coarser first: its values are often those of the other.
HALF_ROUNDOFFS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
#: Slower pairs are taken to have this frequency, in radians per position, for a logarithm.
MIN_MEASURED_FREQUENCY = 1e-12
#: Bases are tried with so many digits: published ones have few, and half precision shows few.
N_BASE_DIGITS = (1, 2, 3, 4, 5, 15)
#: A factor of NTK that is this near to a whole number, as a share of it, is that number.
MAX_FACTOR_ERROR = 0.01
#: Rules that scale a pair by its frequency, so that they scale it otherwise the second time.
RESCALED_RULES = ("llama3",)
#: Rules whose frequencies depend on the length of the input.
LENGTH_RULES = ("dynamic", "longrope", "su")


def as_array(values: Any) -> Floats:
    """Return an array of NumPy, PyTorch, JAX or MLX as float64.

    Raises
    ------
    UsageError
        If it is no array.
    """
    if hasattr(values, "detach"):
        values = values.detach().float().cpu()
    try:
        is_plain = hasattr(values, "__array__") or not hasattr(values, "__dlpack__")
        array = np.asarray(values) if is_plain else np.from_dlpack(values)
        return array.astype(np.float64)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise UsageError(
            f"rotate: it returns {type(values).__name__}, which is no array of numbers "
            f"({first_line(error)}). Return an array [tokens, heads, width]."
        ) from error


def probe_rotation(rotate: Rotate, width: int, positions: Sequence[int]) -> Floats:
    """Turn the unit vectors of a head at some positions.

    Returns
    -------
    NDArray
        ``[positions, width, width]``: where each unit vector went.

    Raises
    ------
    UsageError
        If ``rotate`` fails, or returns another shape.
    """
    units = np.broadcast_to(
        np.eye(width, dtype=np.float32), (len(positions), width, width)
    )
    try:
        returned = rotate(units.copy(), np.array(positions, dtype=np.int64))
    except PosprobeError:
        raise
    except Exception as error:
        raise UsageError(
            f"rotate: it fails for vectors [{len(positions)}, {width}, {width}] at positions "
            f"up to {positions[-1]} ({type(error).__name__}: {first_line(error)})."
        ) from error
    samples = as_array(returned)
    if samples.shape != units.shape:
        raise UsageError(
            f"rotate: it returns shape {list(samples.shape)} for vectors of shape "
            f"{list(units.shape)}. Return as many [tokens, heads, width]."
        )
    if not np.isfinite(samples).all():
        raise UsageError("rotate: it returns NaN or infinity for unit vectors.")
    return samples


def compare_with_callable(a: Side, rotate: Rotate, n_positions: int | None) -> Comparison:
    """Hold a callable that rotates against what the file of ``a`` states.

    Parameters
    ----------
    a
        The file.
    rotate
        Callable ``rotate(x, positions)``.
    n_positions
        Number of positions that are probed; the file's context for None.
    """
    rotary, refusal = _only_rotary(a)
    if rotary is None:
        return Comparison([], [refusal] if refusal else [])
    context = rotary.max_positions or DEFAULT_PROBED_POSITIONS
    last_position = (n_positions or min(context, MAX_PROBED_POSITION)) - 1
    not_compared = []
    observed: list[ObservedRotation] = []
    try:
        observed = list(_probe_lengths(rotary, rotate, last_position))
    except UsageError:
        # Engines allocate cosines for as many positions as they serve, which may be fewer.
        if n_positions or last_position < DEFAULT_PROBED_POSITIONS:
            raise
        observed = list(_probe_lengths(rotary, rotate, DEFAULT_PROBED_POSITIONS - 1))
        reach = f"{DEFAULT_PROBED_POSITIONS} | {last_position + 1}"
        not_compared.append(NotCompared("ladder", "far_refused", reach, decides=False))
    findings: list[Finding] = []
    for rotation in observed:
        findings += (
            replace(f, what="columns", cause="not_rotated")
            if f.cause == "rotating_layers"  # a callable has no layers
            else f
            for f in rotation_findings(rotary, rotation)
        )
    return Comparison(merge_findings(findings), not_compared)


def _only_rotary(a: Side) -> tuple[Rotary | None, NotCompared | None]:
    """Return the rotary encoding that a callable is held against, or why there is none."""
    rotaries = a.rotary_schemes
    if len(rotaries) == 1 and rotaries[0].axes == 1:
        return rotaries[0], None
    if not rotaries:
        return None, NotCompared("ladder", "no_rotation")
    if len(rotaries) == 1:
        return None, NotCompared("pairs", "many_axes")
    names = ", ".join(f"#{name}" for name in a.encodings["rotary"] if name)
    return None, NotCompared("ladder", "several_ladders", names)


def _probe_lengths(
    rotary: Rotary, rotate: Rotate, last_position: int
) -> Iterator[ObservedRotation]:
    """Yield what a callable does within the trained length, and beyond it where that matters."""
    trained = trained_length(rotary)
    near_last = min(last_position, trained - 1) if trained else last_position
    yield _observe_callable(rotary, rotate, near_last, None)
    if near_last < last_position:
        yield _observe_callable(rotary, rotate, last_position, last_position + 1)


def trained_length(rotary: Rotary) -> int | None:
    """Return the length within which frequencies stay the same; None if they always do."""
    if rotary.rule not in LENGTH_RULES or rotary.scaling.get("alpha"):
        return None
    return rotary.training_length or rotary.max_positions


def _observe_callable(
    rotary: Rotary, rotate: Rotate, last_position: int, length: int | None
) -> ObservedRotation:
    positions = spread_positions(last_position)
    width = rotary.head_dim
    vectors = probe_rotation(rotate, width, positions)
    roundoff = next(
        (
            roundoff
            for dtype, roundoff in HALF_ROUNDOFFS.items()
            if np.array_equal(round_to_type(vectors, dtype), vectors)
        ),
        SINGLE_ROUNDOFF,
    )
    samples = TurnedVectors(vectors, np.array(positions), roundoff)
    changed = ~np.isclose(vectors[-1], np.eye(width), atol=1e-9).all(axis=0)
    powers = (vectors[:, :, changed] ** 2).sum(axis=1)
    factor = float(np.sqrt(powers.mean())) if changed.any() else 1.0
    first = vectors[0]
    regathered = factor * np.eye(width)[:, _halves_from_neighbours(width, rotary.rotated)]
    is_regathered = bool(np.allclose(first, regathered, atol=2**-6))
    unit = TurnedVectors(np.stack([factor * np.eye(width), first]), np.array([0, 1]))
    offset = 0.0
    if not is_regathered:
        moved = measure_pairs(unit, stated_pairs(rotary, width, length))
        if moved.frequencies.size:
            fastest = float(np.abs(rotary.frequencies(length)).max())
            offset = float(np.abs(moved.frequencies).max()) / fastest
    return ObservedRotation(samples, length, factor, is_regathered, offset)


def _halves_from_neighbours(width: int, rotated: int) -> np.ndarray:
    """Return the columns in which neighbours are put as halves, ``[width]``."""
    columns = np.arange(width)
    columns[:rotated] = [*range(0, rotated, 2), *range(1, rotated, 2)]
    return columns


def stated_pairs(
    rotary: Rotary, width: int, length: int | None, *, is_regathered: bool = False
) -> ColumnPairs:
    """Return the pairs of a head as a file states them.

    Parameters
    ----------
    rotary
        Encoding of the file.
    width
        Columns of a head as it runs, which may have more than those that are stated.
    length
        Length of the input, on which frequencies may depend.
    is_regathered
        Whether neighbours are put as halves before they turn.
    """
    direction = -1 if rotary.backwards else 1
    frequencies = direction * rotary.step * rotary.ladder(length)[0]
    order = "neighbours" if rotary.interleaved and not is_regathered else "halves"
    # Of heads with latent attention the last columns turn.
    at_end = width != rotary.head_dim
    return arrange_pairs(frequencies, width, order, at_end=at_end)


def rotation_findings(
    rotary: Rotary,
    observed: ObservedRotation,
    other_rotaries: Mapping[str, Rotary] | None = None,
) -> list[Finding]:
    """Compare what a rotation did with what a file states.

    Parameters
    ----------
    rotary
        Encoding of the file.
    observed
        What the rotation did.
    other_rotaries
        Encodings of other kinds of layers, by name.
    """
    samples, length = observed.samples, observed.length
    expected = stated_pairs(
        rotary, samples.width, length, is_regathered=observed.is_regathered
    )
    measured = expected if samples.fits(expected) else measure_pairs(samples, expected)
    if not len(measured.frequencies):
        fastest = MAX_ANGLE_ERROR_RADIANS / float(np.abs(expected.frequencies).max())
        return [Finding("layers", "rotating_layers", first_distance=fastest)]
    ladder = Ladder(
        rotary.frequencies(length),
        rotary.attention_factor(length) if observed.factor is not None else None,
        rotary.unscaled(),
        rotary.head_dim,
        rotary.seen(rotary.max_positions),
    )
    cause = None
    whole = _add_slow_pairs(measured, expected)
    if measured is not expected and whole.frequencies.shape == ladder.frequencies.shape:
        cause, named_pairs = _name_ladder(
            rotary, ladder, observed, whole, other_rotaries or {}
        )
        measured = measured if named_pairs is whole else named_pairs
    findings = _ladder_findings(ladder, _settle_factor(observed, ladder), measured, cause)
    if measured is expected:
        error = float(samples.measure_errors(expected)[0].max())
        slope = error / max(int(np.abs(samples.shifts).max()), 1)
        more = {"angle_error_per_position": slope}
        findings = [
            replace(f, more={**f.more, **more}) if f.what == "ladder" else f
            for f in findings
        ]
    return [*findings, *_column_findings(rotary, expected, measured), *_offset(observed)]


def _add_slow_pairs(measured: ColumnPairs, expected: ColumnPairs) -> ColumnPairs:
    """Return the pairs with those that are expected and that turn too little to be seen."""
    frequencies = dict(
        zip(map(tuple, measured.columns.T.tolist()), measured.frequencies, strict=True)
    )
    expected_columns = [*map(tuple, expected.columns.T.tolist())]
    if not frequencies.keys() < set(expected_columns):
        return measured
    all_frequencies = [frequencies.get(columns, 0.0) for columns in expected_columns]
    return replace(expected, frequencies=np.array(all_frequencies))


def _offset(observed: ObservedRotation) -> Iterator[Finding]:
    if observed.offset > MAX_ANGLE_ERROR_RADIANS:
        yield Finding("positions", "rotation_offset", value=observed.offset)


def _settle_factor(observed: ObservedRotation, ladder: Ladder) -> float | None:
    """Return the factor on cosines: as stated, where it was measured to be so."""
    if observed.factor is None or ladder.factor is None:
        return observed.factor
    min_change = max(MIN_FACTOR_CHANGE, FACTOR_ROUNDOFFS * observed.samples.roundoff)
    is_close = abs(observed.factor / ladder.factor - 1) < min_change
    return ladder.factor if is_close else observed.factor


def _ladder_findings(
    ladder: Ladder, factor: float | None, measured: ColumnPairs, cause: Finding | None
) -> list[Finding]:
    """Return the change of the ladder: its cause if it has a name, or what the numbers show."""
    frequencies = np.maximum(np.abs(measured.frequencies), MIN_MEASURED_FREQUENCY)
    findings = list(relate_ladders(ladder, Ladder(frequencies, factor)))
    if cause is None:
        return findings
    distance, rotation = measure_harm(ladder.frequencies, frequencies, ladder.context)
    named_finding = replace(
        cause,
        first_distance=distance,
        rotation=rotation,
        curve=frequencies / ladder.frequencies,
    )
    return [named_finding, *(finding for finding in findings if finding.what != "ladder")]


def _name_ladder(
    rotary: Rotary,
    ladder: Ladder,
    observed: ObservedRotation,
    measured: ColumnPairs,
    other_rotaries: Mapping[str, Rotary],
) -> tuple[Finding | None, ColumnPairs]:
    """Return the first known ladder by which vectors turned, and its cause if it has a name.

    A pair that turns by more than half a circle from token to token seems to turn backwards, so
    that each ladder is tried forwards as well.
    """
    frequencies = np.maximum(np.abs(measured.frequencies), MIN_MEASURED_FREQUENCY)
    signs = np.where(measured.frequencies < 0, -1.0, 1.0)
    for cause, candidate in _known_ladders(
        rotary, ladder, observed, frequencies, other_rotaries
    ):
        if candidate.shape != frequencies.shape:
            continue
        for directions in (signs, 1.0):
            pairs = replace(measured, frequencies=candidate * directions)
            if observed.samples.fits(pairs):
                return cause, pairs
    return None, measured


def _find_ntk_ladder(
    rotary: Rotary, ladder: Ladder, measured: Floats
) -> tuple[Finding, Floats]:
    """Return the ladder of NTK by the factor that the measured frequencies are nearest to."""
    unscaled = rotary.unscaled()
    index = np.arange(len(unscaled))
    # Angles are equally uncertain, and NTK slows the last pair most: this one shows it best.
    best_pair = int((index * measured).argmax())
    log_growth, log_declared_growth = (
        float(np.log(unscaled / frequencies)[best_pair]) * index[-1] / best_pair
        for frequencies in (measured, ladder.frequencies)
    )
    declared = float(rotary.scaling.get("alpha") or rotary.scaling["factor"])
    trained = trained_length(rotary)
    growth_per_factor = math.expm1(log_declared_growth) / declared if trained else 1.0
    factor = (math.exp(log_growth) - bool(trained)) / growth_per_factor
    if abs(factor - round(factor)) < MAX_FACTOR_ERROR * factor:
        factor = float(round(factor))
    growth = factor * growth_per_factor + bool(trained)
    finding = Finding("ladder", "ntk_factor", declared, factor, more=_beyond(rotary))
    return finding, unscaled * growth ** (-index / index[-1])


def _beyond(rotary: Rotary) -> dict[str, int]:
    """Return the length beyond which a rule that depends on it changes frequencies, if any."""
    trained = trained_length(rotary)
    return {"trained": trained} if trained else {}


def _known_ladders(
    rotary: Rotary,
    ladder: Ladder,
    observed: ObservedRotation,
    measured: Floats,
    other_rotaries: Mapping[str, Rotary],
) -> Iterator[tuple[Finding | None, Floats]]:
    """Yield ladders that engines take in place of a stated one, and their cause."""
    expected = ladder.frequencies
    yield None, expected
    for name, other in other_rotaries.items():
        yield (
            Finding("ladder", "ladders_exchanged", rotary.layers, name),
            other.frequencies(),
        )
    unscaled = rotary.unscaled()
    is_ntk = rotary.rule == "dynamic" and not np.array_equal(expected, unscaled)
    if rotary.rule != "default":
        lost = Finding("ladder", "ntk_lost", more=_beyond(rotary)) if is_ntk else None
        yield lost, unscaled
        # Scaled by the ratios of pairs, or by the rule, which may give scaled pairs other ratios.
        yield Finding("ladder", "scaled_twice"), expected**2 / unscaled
        yield Finding("ladder", "scaled_upwards"), unscaled**2 / expected
        if rotary.rule in RESCALED_RULES:
            yield Finding("ladder", "scaled_twice"), rotary.rescaled(observed.length)
    if is_ntk:
        yield _find_ntk_ladder(rotary, ladder, measured)
    if trained_length(rotary):
        yield Finding("ladder", "other_length"), rotary.frequencies(rotary.max_positions)
        yield Finding("ladder", "other_length"), rotary.frequencies()
    for dtype in ("bfloat16", "float16"):
        yield None, round_to_type(expected, dtype)
    # A ratio of all pairs, from the fastest, which is exact.
    yield None, expected * (measured[0] / expected[0])
    if len(measured) > 1:
        yield from ((None, series) for series in _geometric_ladders(expected, measured))


def _geometric_ladders(expected: Floats, measured: Floats) -> Iterator[Floats]:
    """Yield geometric series by the pair that shows the base best, of round bases first."""
    index = np.arange(len(measured))
    # Angles are equally uncertain, and a change of the base moves this one most.
    pair = int((index * measured).argmax())
    for start in (expected[0], measured[0]):
        base = (start / measured[pair]) ** (len(measured) / pair)
        for n_digits in N_BASE_DIGITS:
            rounded_base = float(f"{base:.{n_digits}g}")
            yield start * rounded_base ** (-index / len(measured))


def _column_findings(
    rotary: Rotary, expected: ColumnPairs, measured: ColumnPairs
) -> Iterator[Finding]:
    """Compare which columns turn, which of them make pairs, and which way they turn."""
    fastest = MAX_ANGLE_ERROR_RADIANS / float(np.abs(expected.frequencies).max())
    if expected.columns.shape == measured.columns.shape:
        columns_a, columns_b = (
            np.unique(pairs.columns) for pairs in (expected, measured)
        )
        if np.array_equal(columns_a, columns_b):
            yield Finding("columns", "same_columns", rotary.rotated, measured.width)
        else:
            end_a, end_b = (
                f"{columns.min()}–{columns.max()}" for columns in (columns_a, columns_b)
            )
            yield Finding(
                "columns", "columns_moved", end_a, end_b, first_distance=fastest
            )
    if np.array_equal(expected.columns, measured.columns):
        yield Finding("pairs", "same_pairs", expected.order, measured.order)
    elif expected.order != measured.order:
        yield Finding(
            "pairs", "pairs_wrong", expected.order, measured.order, first_distance=fastest
        )
    is_backwards = (measured.frequencies < 0) != rotary.backwards
    if is_backwards.any():
        n_backwards = int(is_backwards.sum())
        details = {"pairs": len(measured.frequencies)}
        yield Finding(
            "pairs", "backwards", value=n_backwards, first_distance=fastest, more=details
        )


def merge_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Join equal findings of several probes or layers; the worst stands for all.

    Parameters
    ----------
    findings
        Findings, each with its ``layers`` in ``more`` if it is of some.
    """
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        values = (
            f"{value:.6g}" if isinstance(value, float) else str(value)
            for value in (finding.a, finding.b)
        )
        key = (finding.what, finding.cause, finding.part, *values)
        groups.setdefault(key, []).append(finding)
    merged = []
    for members in groups.values():
        layers = {
            layer for finding in members for layer in finding.more.get("layers", ())
        }
        worst = min(members, key=_first_distance)
        more = {**worst.more, "layers": sorted(layers)} if layers else {**worst.more}
        slope = "angle_error_per_position"
        if errors := [f.more[slope] for f in members if slope in f.more]:
            more[slope] = max(errors)
        merged.append(replace(worst, more=more))
    return merged


def _first_distance(finding: Finding) -> float:
    distance = finding.first_distance
    return math.inf if distance is None else distance


def compare_positions(a: PositionIds, b: PositionIds) -> Comparison:
    """Name the first token and axis at which the position ids of two runs differ."""
    if a.ids.shape[2] != b.ids.shape[2]:
        counts = f"{a.ids.shape[2]} | {b.ids.shape[2]}"
        return Comparison([], [NotCompared("positions", "other_tokens", counts)])
    change = find_position_change(a, b)
    if change is None:
        return Comparison([Finding("positions", "same_positions", a.ids.shape[2])], [])
    axis_name = AXIS_NAMES[change.axis] if max(a.ids.shape[1], b.ids.shape[1]) > 1 else ""
    more = {"token": change.token, "axis": axis_name, "layers": list(change.layers)}
    finding = Finding(
        "positions",
        change.cause,
        change.first_id,
        change.second_id,
        # Neighbours are otherwise apart, unless all ids are later by one number.
        first_distance=None if change.cause == "ids_offset" else 1.0,
        more=more,
    )
    return Comparison([finding], [])
