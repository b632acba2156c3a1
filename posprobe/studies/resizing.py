"""Comparison of ways of resizing: the effect of each on the structure of a table.

A resized table can keep a row at its relative place or at its position, but not both. Both are
measured, with the consequences of either: periods, steps between neighbours, seams, and rows that
cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.seams import seams
from posprobe.analyses.descriptive.grid import axis_codes
from posprobe.analyses.descriptive.norms import norms
from posprobe.analyses.descriptive.similarity import MAX_MATRIX_ROWS, similarity
from posprobe.analyses.descriptive.winding import Winding, winding
from posprobe.analyses.result import HIDDEN, JsonType, as_block
from posprobe.arrays import Floats
from posprobe.blocks import (
    EnvironmentBlock,
    TableBlock,
    describe_environment,
    table_block,
)
from posprobe.errors import MissingExtra, NoPositionTable, UsageError
from posprobe.layouts import Grid, Layout, Video, layout_sides
from posprobe.number_types import Text
from posprobe.progress import stage
from posprobe.relations.resized import Effect, Turns, Way
from posprobe.report.files import RESIZING_SCHEMA
from posprobe.report.saved import Saveable
from posprobe.resizing.rotary import RulesCompared, ToldRun, compare_rules
from posprobe.resizing.tables import (
    CONTINUING,
    available_ways,
    check_way,
    new_layout,
    resize,
)
from posprobe.schemes import Rotary
from posprobe.tables import PositionTable
from posprobe.words import resizing as words

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from posprobe.measurements.model import Contexts
    from posprobe.schemes import Scheme


#: Number of pairs of components whose periods are listed.
MAX_LISTED_PERIODS = 3
#: Number of cells along a side of a drawn matrix of cosines: eight of more exceed 300 kB on a page.
MAX_POOLED_CELLS = 128
#: Distance in rows up to which two seams count as the same one.
MAX_SEAM_SHIFT = 4


def measure_effect(
    resized: PositionTable, original: PositionTable, *, stretched: bool
) -> Effect:
    """Measure the effect of resizing on a table.

    Parameters
    ----------
    resized, original
        Tables ``[m, d]`` and ``[n, d]``; equal ones give the numbers before resizing.
    stretched
        Whether the method spreads the old rows over the new range, so that seams move with them.

    Returns
    -------
    Effect
        Seams as pairs of positions, and outlier rows as positions. Undefined numbers are None, with
        a reason.
    """
    values, old_values = (
        table.values.astype(np.float64) for table in (resized, original)
    )
    mean, row_norms, new_seams = old_values.mean(axis=0), norms(resized), seams(resized)
    nearest_rows = _nearest_patches(original.layout, resized.layout)
    old_shared, new_shared = _shared_patches(original.layout, resized.layout)
    created_seams = (
        None
        if new_seams.undefined
        else _created_seams(original, new_seams.between, resized, stretched=stretched)
    )
    special = tuple(outlier.row + resized.start for outlier in new_seams.special)
    zero_message = "no row differs from the mean row"
    too_many = f"more than {MAX_MATRIX_ROWS} positions"
    undefined = {
        "same_place": zero_message,
        "same_position": zero_message,
        "neighbour_cosine": too_many,
        "translation_invariance": too_many,
        "seams": new_seams.undefined,
        "special": new_seams.no_special,
    }
    neighbours, invariance = _measure_cosines(resized, undefined)
    measured = Effect(
        norm_mean=float(row_norms.norms.mean()),
        norm_min=float(row_norms.norms.min()),
        neighbour_cosine=neighbours,
        same_place=_mean_cosine(values - mean, (old_values - mean)[nearest_rows]),
        same_position=_mean_cosine(
            values[new_shared] - mean, old_values[old_shared] - mean
        ),
        translation_invariance=invariance,
        copies=len(resized) - len({row.tobytes() for row in resized.values}),
        turns={
            name: _turns(axis_winding)
            for name, axis_winding in _windings(resized).items()
        },
        seams=created_seams,
        special=None if new_seams.no_special else special,
        undefined=undefined,
    )
    reasons = {
        name: reason or "there is nothing to measure"
        for name, reason in undefined.items()
        if getattr(measured, name) is None
    }
    return replace(measured, undefined=reasons)


def _measure_cosines(
    table: PositionTable, undefined: dict[str, str]
) -> tuple[float | None, float | None]:
    """Return the mean cosine of neighbours and the invariance; note why one is undefined."""
    if len(table) > MAX_MATRIX_ROWS:
        return None, None
    cosines = similarity(table)
    raw, centred = cosines.raw, cosines.centered
    undefined["neighbour_cosine"] = centred.undefined.get("neighbour_mean", "")
    undefined["translation_invariance"] = raw.undefined.get("translation_invariance", "")
    return centred.neighbour_mean, raw.translation_invariance


def pooled_cosines(table: PositionTable) -> Floats:
    """Return the centred cosines of all pairs of rows, averaged over blocks to ``[c, c]``."""
    rows = table.values.astype(np.float64)
    rows -= rows.mean(axis=0)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    units = np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
    starts = np.unique(
        np.linspace(0, len(rows), MAX_POOLED_CELLS, endpoint=False).astype(np.intp)
    )
    sizes = np.diff(np.append(starts, len(rows)))
    # The mean over all pairs of two blocks is the product of the blocks' means.
    means = np.add.reduceat(units, starts, axis=0) / sizes[:, None]
    return np.asarray(means @ means.T)


def _windings(table: PositionTable) -> dict[str, Winding]:
    if not isinstance(table.layout, Grid):
        return {"positions": winding(table)}
    return {name: axis.winding for name, axis in axis_codes(table).axes.items()}


def _turns(axis_winding: Winding) -> Turns:
    # The table does not hold one turn of a period that is longer than the table.
    pairs = [pair for pair in axis_winding.pairs if pair.turns >= 1][:MAX_LISTED_PERIODS]
    return Turns(tuple(pair.period for pair in pairs), pairs[0].turns if pairs else None)


def _patch_indices(layout: Layout) -> NDArray[np.intp]:
    """Return the indices of the patches ``[height, width]``; a sequence has height 1."""
    sides = (1, *layout_sides(layout))[-2:]
    return np.arange(layout.size).reshape(sides)


def _nearest_patches(old: Layout, new: Layout) -> NDArray[np.intp]:
    """Return for each new patch the old one at the nearest relative place, ``[m]``."""
    patches = _patch_indices(old)
    sides = zip(patches.shape, _patch_indices(new).shape, strict=True)
    nearest = [
        (2 * np.arange(new_side) + 1) * old_side // (2 * new_side)
        for old_side, new_side in sides
    ]
    return patches[np.ix_(*nearest)].ravel()


def _shared_patches(
    old: Layout, new: Layout
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices, in the old and in the new layout, of the patches that both have."""
    old_patches, new_patches = _patch_indices(old), _patch_indices(new)
    height, width = np.minimum(old_patches.shape, new_patches.shape)
    return old_patches[:height, :width].ravel(), new_patches[:height, :width].ravel()


def _mean_cosine(a: Floats, b: Floats) -> float | None:
    """Return the mean cosine of rows that have a direction; None if none has."""
    product = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    # A row that differs from the mean row only by rounding has no direction.
    is_defined = product > 1e-12 * max(float(product.max()), np.finfo(float).tiny)
    if not is_defined.any():
        return None
    return float(((a * b).sum(axis=1)[is_defined] / product[is_defined]).mean())


def _created_seams(
    original: PositionTable,
    new_seams: tuple[tuple[int, int], ...],
    resized: PositionTable,
    *,
    stretched: bool,
) -> tuple[tuple[int, int], ...]:
    """Return the seams of a sequence that the original lacks, as pairs of positions."""
    factor = len(resized) / len(original) if stretched else 1.0
    scaled_seams = np.array([left * factor for left, _ in seams(original).between])
    reach = MAX_SEAM_SHIFT * max(factor, 1.0)
    return tuple(
        (left + resized.start, right + resized.start)
        for left, right in new_seams
        # A table that repeats its rows repeats the old seams.
        if not any(
            (np.abs(scaled_seams - row) <= reach).any()
            for row in (left, left % len(original))
        )
    )


@dataclass(frozen=True)
class ToldWay(Way):
    """One way of resizing, what it does to the table, and that in words."""

    @property
    def sentences(self) -> Annotated[tuple[Text, ...], ""]:
        """Sentences on what the way keeps and changes."""
        return words.way_sentences(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class WaysCompared(Saveable):
    """Ways of resizing a table.

    Parameters
    ----------
    table, to
        Block of the original table, and the new layout.
    before, ways
        Numbers of the original table, and of the resized ones by way.
    missing
        Reasons why other ways were not measured.
    run
        Losses of the model with each way; None if it was not run.
    environment
        Versions, command and time.
    tables
        Resized tables by way.
    cosines, norms
        Under ``before`` and by way, centred cosines ``[c, c]`` averaged over blocks of positions,
        and row norms ``[m]``.
    """

    schema: Literal["posprobe.resizing/1"] = RESIZING_SCHEMA
    table: Annotated[dict[str, Any], JsonType(TableBlock), "Before."]
    to: Layout
    before: Annotated[Effect, "The old table beside itself."]
    ways: tuple[ToldWay, ...]
    missing: Annotated[dict[str, Text], "By way, why it is left out."]
    run: Annotated[
        ToldRun | None, "The model run with each table; null where it was not."
    ] = None
    environment: EnvironmentBlock
    tables: Annotated[Mapping[str, PositionTable], HIDDEN]
    cosines: Annotated[Mapping[str, Floats], HIDDEN]
    norms: Annotated[Mapping[str, Floats], HIDDEN]

    def to_dict(self) -> dict[str, Any]:
        """Return the document (schema `posprobe.resizing/1`)."""
        return as_block(self)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: cosines, norms and losses by way."""
        losses = {} if self.run is None else self.run.losses
        arrays_by_name = {"cosines": self.cosines, "norms": self.norms, "losses": losses}
        return {
            f"{way}_{name}": array
            for name, arrays_by_way in arrays_by_name.items()
            for way, array in arrays_by_way.items()
        }

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return the builders of the bundle's figures by name."""
        from posprobe.figures.comparison import table_resizing_figures

        losses = {} if self.run is None else self.run.losses
        return table_resizing_figures(self.cosines, self.norms, losses)


def compare(
    loaded: PositionTable | tuple[Scheme, ...],
    *,
    to: int | tuple[int, ...],
    how: str | None = None,
    contexts: Contexts | None = None,
    reference: str = "",
    command: str | None = None,
    **load_options: Any,
) -> WaysCompared | RulesCompared:
    """Compare the ways of resizing a table, or the rules of scaling rotary positions.

    Parameters
    ----------
    loaded
        Table, or the schemes of a checkpoint without one.
    to, how, command
        Options as for `compare_ways`; rotary positions take only a length.
    contexts, reference, **load_options
        Contexts on which the model runs with each table or rule, and its location, as for
        `posprobe.resizing.losses.run_ways`; None does not run it.

    Raises
    ------
    UsageError
        As for `compare_ways` and `compare_rules`, or if the model takes no such contexts.
    NoPositionTable
        If there is neither a table nor a rotation.
    """
    if contexts is not None:
        _check_contexts(loaded, contexts)
        from posprobe.forward.files import check_tokenizer_files

        check_tokenizer_files(reference)  # refuses a reference that is no model, too
    if isinstance(loaded, PositionTable):
        ways = None if how is None else (how,)
        comparison = compare_ways(loaded, to=to, ways=ways, command=command)
        if contexts is None:
            return comparison
        from posprobe.resizing.losses import run_ways

        with stage("Running the model"):
            return replace(
                comparison,
                run=run_ways(reference, comparison.tables, contexts, **load_options),
            )
    rotary = _one_rotation(loaded)
    if how is not None or isinstance(to, tuple):
        raise UsageError(
            f"{rotary.name}: rotary positions have no table. Give a length "
            "with `to=N`, without `how`: all rules of scaling are compared."
        )
    rules = compare_rules(rotary, to=to, command=command)
    if contexts is None:
        return rules
    from posprobe.resizing.losses import run_rules

    with stage("Running the model"):
        location = {
            name: load_options[name]
            for name in ("revision", "offline")
            if name in load_options
        }
        return replace(rules, run=run_rules(reference, rules, contexts, **location))


def _measure_way(
    way: str, original: PositionTable, resized: PositionTable, original_effect: Effect
) -> ToldWay:
    stretched = way not in CONTINUING
    return ToldWay(
        **vars(measure_effect(resized, original, stretched=stretched)),
        how=way,
        kind="stretches" if stretched else "continues",
        before=original_effect,
        old=original.layout,
        new=resized.layout,
        start=original.start,
    )


def _one_rotation(loaded: tuple[Scheme, ...]) -> Rotary:
    rotations = [record for record in loaded if isinstance(record, Rotary)]
    if len(rotations) > 1:
        names = ", ".join(f"#{record.name}" for record in rotations)
        raise UsageError(
            f"{loaded[0].source.reference}: it has {len(rotations)} rotary "
            f"encodings. Pick one with {names}."
        )
    if not rotations:
        description = (
            "the biases of ALiBi" if loaded[0].scheme == "alibi" else "relative biases"
        )
        raise NoPositionTable(
            f"{loaded[0].name}: it has {description} and no table of "
            "positions that could be resized. Analyse it to see "
            "what they are."
        )
    return rotations[0]


def _check_contexts(
    loaded: PositionTable | tuple[Scheme, ...], contexts: Contexts
) -> None:
    """Refuse positions in images, and contexts that are no text, before any work."""
    if isinstance(loaded, PositionTable):
        name, has_patches = loaded.name, isinstance(loaded.layout, Grid)
    else:
        name = loaded[0].name
        has_patches = any(
            isinstance(scheme, Rotary) and scheme.axes > 1 for scheme in loaded
        )
    if has_patches or not contexts.text:
        raise UsageError(
            f"{name}: a model is run at another size on a text "
            "(`text=FILE`), where its positions lie on a line."
        )


def compare_ways(
    table: PositionTable | ArrayLike,
    *,
    to: int | tuple[int, ...],
    ways: Sequence[str] | None = None,
    command: str | None = None,
) -> WaysCompared:
    """Resize a table in several ways, and measure the effect of each.

    Parameters
    ----------
    table, to
        Table and new size, as for `posprobe.resize`.
    ways
        Names of the ways; None for all of its layout. Of these, a way that needs a missing library
        or does not fit the table is left out, with the reason.
    command
        Command line to record.

    Raises
    ------
    UsageError
        If the size or a way is invalid.
    """
    from posprobe.tables import table as as_table

    original = as_table(table)
    if isinstance(original.layout, Video):
        raise UsageError(
            f"{original.name}: it is a {original.layout}, which is resized in one way only, so "
            "that there is nothing to compare. Write it with `how='trilinear'`."
        )
    layout = new_layout(original, to)
    for way in ways or ():
        check_way(original, layout, way)
    requested_ways = ways or available_ways(original)
    ways_measured: list[ToldWay] = []
    missing, tables, cosines, lengths = {}, {}, {}, {}
    with stage("Measuring", len(requested_ways) + 1) as advance:
        original_effect = measure_effect(original, original, stretched=False)
        for way in ("before", *requested_ways):
            try:
                resized = (
                    original if way == "before" else resize(original, to=to, how=way)
                )
            except (MissingExtra, UsageError) as error:
                if ways:
                    raise
                missing[way] = str(error)
            else:
                cosines[way], lengths[way] = pooled_cosines(resized), norms(resized).norms
                if way != "before":
                    tables[way] = resized
                    ways_measured.append(
                        _measure_way(way, original, resized, original_effect)
                    )
            advance(1)
    return WaysCompared(
        table=table_block(original),
        to=layout,
        before=original_effect,
        ways=tuple(ways_measured),
        missing=missing,
        environment=describe_environment("cpu", 0, command),
        tables=tables,
        cosines=cosines,
        norms=lengths,
    )
