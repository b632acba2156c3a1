"""Ways of resizing side by side: what each does to the structure of a table, as a document.

Of a table at another size one can ask two things that no way grants together: that a row still
stands at its relative place, and that it still stands at its position. Both are measured, with what
follows from either: periods, steps between neighbours, seams, and rows that cannot be told apart.
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
from posprobe.analyses.result import HIDDEN, As, as_block
from posprobe.arrays import Floats
from posprobe.blocks import EnvironmentBlock, TableBlock, describe, environment
from posprobe.errors import MissingExtra, NoPositionTable, UsageError
from posprobe.families.read import model_source
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Text
from posprobe.progress import stage
from posprobe.reference import parse_reference
from posprobe.relations.resized import Effect, Turns, Way
from posprobe.report.files import RESIZING
from posprobe.report.saved import Saved
from posprobe.resizing.rotary import RulesCompared, ToldRun, compare_rules
from posprobe.resizing.tables import CONTINUING, check_way, new_layout, resize, ways_of
from posprobe.schemes import Rotary
from posprobe.tables import PositionTable
from posprobe.words import resizing as words

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from posprobe.measurements.model import Contexts
    from posprobe.schemes import Scheme


#: Pairs of components whose periods are listed.
MAX_LISTED_PERIODS = 3
#: Cells along a side of a drawn matrix of cosines.
MAX_POOLED_CELLS = 160
#: Rows by which a seam may lie elsewhere and be the same one.
MAX_SEAM_SHIFT = 4


def measure_effect(resized: PositionTable, original: PositionTable, *, stretched: bool) -> Effect:
    """Measure a table beside the one that it was made of.

    Parameters
    ----------
    resized, original
        ``[m, d]`` and ``[n, d]``; the same table twice gives the numbers before.
    stretched
        Whether the way spreads old rows over the new range, so that seams move with them.

    Returns
    -------
    Effect
        Seams are pairs of positions, and special rows positions. Undefined numbers are None, with a
        reason.
    """
    values, old_values = (table.values.astype(np.float64) for table in (resized, original))
    mean, lengths, new_seams = old_values.mean(axis=0), norms(resized), seams(resized)
    place, position = (
        _nearest_patches(original.layout, resized.layout),
        _shared_patches(original.layout, resized.layout),
    )
    created_seams = (
        None
        if new_seams.undefined
        else _created_seams(original, new_seams.between, resized, stretched=stretched)
    )
    special = tuple(outlier.row + resized.start for outlier in new_seams.special)
    zero, too_many = "no row differs from the mean row", f"more than {MAX_MATRIX_ROWS} positions"
    undefined = {
        "same_place": zero,
        "same_position": zero,
        "neighbour_cosine": too_many,
        "translation_invariance": too_many,
        "seams": new_seams.undefined,
        "special": new_seams.no_special,
    }
    neighbours = invariance = None
    if len(resized) <= MAX_MATRIX_ROWS:
        cosines = similarity(resized)
        neighbours = cosines.centered.neighbour_mean
        invariance = cosines.raw.translation_invariance
        undefined["neighbour_cosine"] = cosines.centered.undefined.get("neighbour_mean", "")
        undefined["translation_invariance"] = cosines.raw.undefined.get(
            "translation_invariance", ""
        )
    measured = Effect(
        norm_mean=float(lengths.norms.mean()),
        norm_min=float(lengths.norms.min()),
        neighbour_cosine=neighbours,
        same_place=_mean_cosine(values - mean, (old_values - mean)[place]),
        same_position=_mean_cosine(values[position[1]] - mean, old_values[position[0]] - mean),
        translation_invariance=invariance,
        copies=len(resized) - len({row.tobytes() for row in resized.values}),
        turns={name: _turns(pairs) for name, pairs in _windings(resized).items()},
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


def pooled_cosines(table: PositionTable) -> Floats:
    """Return the centred cosines of all pairs of rows, ``[c, c]``, means over blocks of them."""
    rows = table.values.astype(np.float64)
    rows -= rows.mean(axis=0)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    units = np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
    starts = np.unique(np.linspace(0, len(rows), MAX_POOLED_CELLS, endpoint=False).astype(np.intp))
    sizes = np.diff(np.append(starts, len(rows)))
    # The mean over pairs of two blocks is the product of the means of each.
    means = np.add.reduceat(units, starts, axis=0) / sizes[:, None]
    return np.asarray(means @ means.T)


def _windings(table: PositionTable) -> dict[str, Winding]:
    if not isinstance(table.layout, Grid):
        return {"positions": winding(table)}
    return {name: axis.winding for name, axis in axis_codes(table).axes.items()}


def _turns(winding: Winding) -> Turns:
    # A period longer than the table is one that nobody has seen.
    pairs = [pair for pair in winding.pairs if pair.turns >= 1][:MAX_LISTED_PERIODS]
    return Turns(tuple(pair.period for pair in pairs), pairs[0].turns if pairs else None)


def _patch_indices(layout: Layout) -> NDArray[np.intp]:
    """Return the numbers of the cells ``[height, width]``; a sequence is a grid of height 1."""
    sides = (layout.height, layout.width) if isinstance(layout, Grid) else (1, layout.length)
    return np.arange(layout.size).reshape(sides)


def _nearest_patches(old: Layout, new: Layout) -> NDArray[np.intp]:
    """Return for each new cell the old one at the nearest relative place, ``[m]``."""
    patches = _patch_indices(old)
    sides = zip(patches.shape, _patch_indices(new).shape, strict=True)
    nearest = [
        (2 * np.arange(new_side) + 1) * old_side // (2 * new_side) for old_side, new_side in sides
    ]
    return patches[np.ix_(*nearest)].ravel()


def _shared_patches(old: Layout, new: Layout) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the cells that both have, counted in the old and in the new layout."""
    old_patches, new_patches = _patch_indices(old), _patch_indices(new)
    height, width = np.minimum(old_patches.shape, new_patches.shape)
    return old_patches[:height, :width].ravel(), new_patches[:height, :width].ravel()


def _mean_cosine(a: Floats, b: Floats) -> float | None:
    """Return the mean cosine of rows that have a direction; None where none has."""
    product = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    # A row that is the mean row but for rounding has no direction.
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
    """Return seams of a sequence that the old one has not, as pairs of positions."""
    factor = len(resized) / len(original) if stretched else 1.0
    scaled_seams = np.array([left * factor for left, _ in seams(original).between])
    reach = MAX_SEAM_SHIFT * max(factor, 1.0)
    return tuple(
        (left + resized.start, right + resized.start)
        for left, right in new_seams
        # A table that begins again has its old seams again.
        if not any(
            (np.abs(scaled_seams - row) <= reach).any() for row in (left, left % len(original))
        )
    )


@dataclass(frozen=True)
class ToldWay(Way):
    """One way of resizing, what it does to the table, and that in words."""

    @property
    def sentences(self) -> Annotated[tuple[Text, ...], ""]:
        """What it keeps, and what it changes."""
        return words.way(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class WaysCompared(Saved):
    """Ways of resizing a table.

    Parameters
    ----------
    table, to
        Before, and the layout wanted.
    before, ways
        Numbers of the old table, and by way those of the new one.
    missing
        Why other ways were not measured.
    run
        Losses of the model with each of them; None where it was not run.
    environment
        Versions, command and time.
    tables
        Resized tables by way.
    cosines, norms
        Under ``before`` and by way, centred cosines ``[c, c]`` averaged over blocks of positions,
        and row norms ``[m]``.
    """

    schema: Literal["posprobe.resizing/1"] = RESIZING
    table: Annotated[dict[str, Any], As(TableBlock), "Before."]
    to: Layout
    before: Annotated[Effect, "The old table beside itself."]
    ways: tuple[ToldWay, ...]
    missing: Annotated[dict[str, Text], "By way, why it is left out."]
    run: Annotated[ToldRun | None, "The model run with each table; null where it was not."] = None
    environment: EnvironmentBlock
    tables: Annotated[Mapping[str, PositionTable], HIDDEN]
    cosines: Annotated[Mapping[str, Floats], HIDDEN]
    norms: Annotated[Mapping[str, Floats], HIDDEN]

    def to_dict(self) -> dict[str, Any]:
        """Return the document (schema `posprobe.resizing/1`)."""
        return as_block(self)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: by way cosines, norms, and losses if it was run."""
        losses = {} if self.run is None else self.run.losses
        arrays_by_name = {"cosines": self.cosines, "norms": self.norms, "losses": losses}
        return {
            f"{way}_{name}": array
            for name, arrays_by_way in arrays_by_name.items()
            for way, array in arrays_by_way.items()
        }

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure of the bundle."""
        from posprobe.figures.comparison import table_resizing_figures

        losses = {} if self.run is None else self.run.losses
        return table_resizing_figures(self.cosines, self.norms, losses)


def compare(
    loaded: PositionTable | tuple[Scheme, ...],
    *,
    to: int | tuple[int, int],
    how: str | None = None,
    contexts: Contexts | None = None,
    reference: str = "",
    command: str | None = None,
    **load_options: Any,
) -> WaysCompared | RulesCompared:
    """Compare ways of resizing of what a reference names: of a table, or of rotary positions.

    Parameters
    ----------
    loaded
        A table, or the encodings of a checkpoint that has none.
    to, how, command
        Same as for `compare_ways`; for rotary positions a length alone.
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
        model_source(parse_reference(reference))  # what is not a model is refused at once
    if isinstance(loaded, PositionTable):
        ways = None if how is None else (how,)
        comparison = compare_ways(loaded, to=to, ways=ways, command=command)
        if contexts is None:
            return comparison
        from posprobe.resizing.losses import run_ways

        with stage("Running the model"):
            return replace(
                comparison, run=run_ways(reference, comparison.tables, contexts, **load_options)
            )
    rotary = _one_rotation(loaded)
    if how is not None or isinstance(to, tuple):
        raise UsageError(
            f"{rotary.name}: rotary positions have no table. Give a length with --to N, without "
            "--how: all rules of scaling are compared."
        )
    rules = compare_rules(rotary, to=to, command=command)
    if contexts is None:
        return rules
    from posprobe.resizing.losses import run_rules

    with stage("Running the model"):
        location = {
            name: load_options[name] for name in ("revision", "offline") if name in load_options
        }
        return replace(rules, run=run_rules(reference, rules, contexts, **location))


def _one_rotation(loaded: tuple[Scheme, ...]) -> Rotary:
    rotations = [record for record in loaded if isinstance(record, Rotary)]
    if len(rotations) > 1:
        names = ", ".join(f"#{record.name}" for record in rotations)
        raise UsageError(
            f"{loaded[0].source.reference}: it has {len(rotations)} rotary encodings. Pick one "
            f"with {names}."
        )
    if not rotations:
        description = "the biases of ALiBi" if loaded[0].scheme == "alibi" else "relative biases"
        raise NoPositionTable(
            f"{loaded[0].name}: it has {description} and no table of positions that could "
            "be resized. `posprobe analyze REF` shows what they are."
        )
    return rotations[0]


def _check_contexts(loaded: PositionTable | tuple[Scheme, ...], contexts: Contexts) -> None:
    """Refuse positions in pictures, and contexts that are no text, before any work."""
    if isinstance(loaded, PositionTable):
        name, has_patches = loaded.name, isinstance(loaded.layout, Grid)
    else:
        name = loaded[0].name
        has_patches = any(isinstance(scheme, Rotary) and scheme.axes > 1 for scheme in loaded)
    if has_patches or not contexts.text:
        raise UsageError(
            f"{name}: a model is run at another size on a text (--text FILE), where its positions "
            "lie on a line."
        )


def compare_ways(
    table: PositionTable | ArrayLike,
    *,
    to: int | tuple[int, int],
    ways: Sequence[str] | None = None,
    command: str | None = None,
) -> WaysCompared:
    """Resize a table in several ways, and measure what each does to it.

    Parameters
    ----------
    table, to
        Same as for `posprobe.resize`.
    ways
        Some of those for its layout; None for all. A way that is a library's which is not
        installed, or that does not fit the table, is left out, with the reason.
    command
        Command line to record.

    Raises
    ------
    UsageError
        If the size or a way cannot be.
    """
    from posprobe.tables import table as as_table

    original = as_table(table)
    layout = new_layout(original, to)
    for way in ways or ():
        check_way(original, layout, way)
    requested_ways = ways or ways_of(original)
    ways_measured: list[ToldWay] = []
    missing, tables, cosines, lengths = {}, {}, {}, {}
    with stage("Measuring", len(requested_ways) + 1) as advance:
        original_effect = measure_effect(original, original, stretched=False)
        for way in ("before", *requested_ways):
            try:
                resized = original if way == "before" else resize(original, to=to, how=way)
            except (MissingExtra, UsageError) as error:
                if ways:
                    raise
                missing[way] = str(error)
            else:
                cosines[way], lengths[way] = pooled_cosines(resized), norms(resized).norms
                if way != "before":
                    tables[way] = resized
                    stretched = way not in CONTINUING
                    new_effect = measure_effect(resized, original, stretched=stretched)
                    ways_measured.append(
                        ToldWay(
                            **vars(new_effect), how=way, kind="stretches" if stretched else "continues",
                            before=original_effect, old=original.layout, new=layout, start=original.start,
                        )
                    )  # fmt: skip
            advance(1)
    return WaysCompared(
        table=describe(original),
        to=layout,
        before=original_effect,
        ways=tuple(ways_measured),
        missing=missing,
        environment=environment("cpu", 0, command),
        tables=tables,
        cosines=cosines,
        norms=lengths,
    )
