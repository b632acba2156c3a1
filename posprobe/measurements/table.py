"""Registrations of measurements, and all measurements of a table.

A `Measurement` states how it is computed, the type of its result, and its figures. Everything that
lists measurements or numbers follows from these records, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe import analyses
from posprobe.analyses import (
    PCA,
    Norms,
    Patches,
    Probes,
    Scale,
    Seams,
    Shift,
    Similarity,
    SinusoidFit,
    Spectrogram,
    Spectrum,
)
from posprobe.analyses.breaks.outlier_patches import MAX_OUTLIER_SHARE, replace_patches
from posprobe.analyses.breaks.stretches import Stretch, find_stretch, long_stretches
from posprobe.analyses.composition.bridging import Bridging
from posprobe.analyses.composition.budget import Budget
from posprobe.analyses.composition.grid_model import GridModel
from posprobe.analyses.composition.planes import RotationFit
from posprobe.analyses.composition.rotation_clock import Clock, describe_clock
from posprobe.analyses.descriptive.grid import AxisCodes, VideoCodes
from posprobe.analyses.descriptive.winding import Winding
from posprobe.analyses.facts import Cause, Number
from posprobe.analyses.result import Result, record_numbers
from posprobe.analyses.view import View, view
from posprobe.arrays import Array, Positions, to_numpy
from posprobe.layouts import Grid, Sequence, Video
from posprobe.tables import PositionTable
from posprobe.words.captions import MISSING_FIGURE_REASONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ResultT = TypeVar("ResultT", bound=Result)
InputsT = TypeVar("InputsT")


#: The only measurement of the patches of a video.
VIDEO_MEASUREMENT = "video_codes"
#: Leading components that are computed of the longest stretch: no measurement needs more.
N_STRETCH_COMPONENTS = 64
#: No additive model is fitted to a larger grid. No trained table has as many patches, and their
#: transform takes a second.
MAX_GRID_MODEL_PATCHES = 2**14


class Tokens(Protocol):
    """Embeddings that positions are added to: `posprobe.families.TokenSample`."""

    @property
    def values(self) -> NDArray[np.floating[Any]]:
        """``[k, d]``, one row per token."""

    def summary(self) -> dict[str, Any]:
        """Return the source of the embeddings."""


@dataclass(frozen=True)
class Drawing:
    """A figure of a measurement, drawn by the module of `posprobe.figures` for its result.

    `posprobe.words.captions` holds its caption, and why a result may lack it, under its name.

    Parameters
    ----------
    name
        Name of the figure: its file in a bundle, and its kind for `posprobe figure`.
    shows_several_tables
        Whether to show several tables in one figure.
    has_centring
        Whether to offer rows as stored or less their mean. The caption then takes ``centred``,
        None for the default.
    has_columns
        Whether to offer a choice of how many panels stand side by side.
    help_text
        Description for the help of `posprobe figure`; empty for figures that papers cannot have.
    """

    name: str
    shows_several_tables: bool = False
    has_centring: bool = False
    has_columns: bool = False
    help_text: str = ""

    def explain_absence(self, result: Result) -> str:
        """Return why a result has no such figure; empty if it can be drawn."""
        if self.name in MISSING_FIGURE_REASONS:
            return MISSING_FIGURE_REASONS[self.name](result)
        undefined = getattr(result, "undefined", "")
        # A mapping explains single numbers, without which the figure can still be drawn.
        return undefined if isinstance(undefined, str) else ""


@dataclass(frozen=True)
class Measurement(Generic[InputsT, ResultT]):
    """Registration of one measurement.

    Parameters
    ----------
    name, title
        Key in ``analysis.json`` and in ``--only``, and the heading for people.
    compute
        Function from the inputs to the frozen result.
    record
        Type of the result, from which its numbers, arrays and JSON Schema follow.
    drawings
        Figures of the result.
    needs
        Function from the inputs to what they lack for this measurement; empty if it applies.
    is_default
        Whether it runs where no measurement is asked for.
    uses_all_rows
        Whether it takes all rows of a table, and results only of measurements that do as well. It
        then neither waits for the questions, nor they for it.
    figure_inputs
        Function from the result to what its figures show beyond it.
    """

    name: str
    title: str
    compute: Callable[[InputsT], ResultT]
    record: type[ResultT]
    drawings: tuple[Drawing, ...] = ()
    needs: Callable[[InputsT], str] = lambda _: ""
    is_default: bool = True
    uses_all_rows: bool = False
    figure_inputs: Callable[[ResultT], Mapping[str, Any]] = lambda _: {}

    @cached_property
    def numbers(self) -> Mapping[str, Number]:
        """The numbers that its section lists, by key path in the block."""
        return {key: number for key, number, _ in record_numbers(self.record)}

    def prepare_figures(
        self, results: Mapping[str, ResultT]
    ) -> dict[str, Callable[[], Figure]]:
        """Return functions that draw the figures of a report, for results by label."""
        from posprobe.figures import report_figures

        names = [
            drawing.name
            for drawing in self.drawings
            if not any(drawing.explain_absence(result) for result in results.values())
        ]
        figure_inputs: dict[str, Any] = {}
        for result in results.values():
            figure_inputs |= self.figure_inputs(result)
        return report_figures(results, names, figure_inputs)


@dataclass(frozen=True, eq=False)
class TableInputs:
    """Inputs of a measurement of a table.

    Parameters
    ----------
    table
        The table.
    positions
        Values of the table on the device that computes.
    seed
        Seed of all random draws.
    tokens
        Embeddings that positions are added to; None if unknown.
    measurements
        Measurements of this run, by name.
    all_rows
        Whether to keep all rows, in spite of seams and outlier rows.
    results
        Results so far, by name; `result` adds to them.
    """

    table: PositionTable
    positions: Positions
    seed: int
    tokens: Tokens | None
    measurements: Mapping[str, Measurement[TableInputs, Any]]
    all_rows: bool = False
    results: dict[str, Result] = field(default_factory=dict)

    def result(self, name: str) -> Any:
        """Return the result of another measurement, or None if this run does not include it."""
        if name not in self.results and name in self.measurements:
            self.results[name] = self.measurements[name].compute(self)
        return self.results.get(name)

    @cached_property
    def stretch(self) -> Stretch:
        """The longest stretch of rows without seams and outlier rows, or all rows."""
        if self.all_rows:
            return Stretch(0, len(self.table), True, (Cause("all_rows"),))
        return find_stretch(self.seams)

    @cached_property
    def seams(self) -> Seams:
        """Seams and outlier rows, also if this run does not include their measurement."""
        seams = self.result("seams")
        return seams if isinstance(seams, Seams) else analyses.seams(self.positions)

    @property
    def replaced_patches(self) -> tuple[int, ...]:
        """Outlier patches that the questions see as the mean of their neighbours.

        A grid with many outlier patches keeps them: the other half of a grid that is half zeros
        says nothing about it.
        """
        outlier_rows = tuple(outlier.row for outlier in self.seams.special)
        is_grid = isinstance(self.positions.layout, Grid)
        are_rare = len(outlier_rows) <= MAX_OUTLIER_SHARE * len(self.table)
        return outlier_rows if is_grid and are_rare and not self.all_rows else ()

    @cached_property
    def kept_positions(self) -> Positions:
        """Rows of `stretch`; for a grid all patches, with `replaced_patches` replaced."""
        positions = self.positions
        layout, rows = positions.layout, self.stretch.rows
        if isinstance(layout, Grid) and self.replaced_patches:
            patches = self.replaced_patches
            filled = replace_patches(
                positions.values, patches, layout.height, layout.width, positions.xp
            )
            return replace(positions, values=filled)
        if self.stretch.is_whole:
            return positions
        return replace(
            positions,
            values=positions.values[rows],
            layout=Sequence(self.stretch.stop - self.stretch.first),
            start=positions.start + rows.start,
        )

    @cached_property
    def kept_pca(self) -> PCA:
        """Principal components of `kept_positions`."""
        pca = self.result("pca") if self.stretch.is_whole else None
        if isinstance(pca, PCA):
            return pca
        return analyses.pca(self.kept_positions, leading=N_STRETCH_COMPONENTS)

    @cached_property
    def view(self) -> View:
        """View of `kept_positions` that all questions share."""
        return view(
            _float64_on_host(self.kept_positions.values),
            seed=self.seed,
            layout=self.kept_positions.layout,
            dtype=self._dtype,
            start=self.table.start,
            seams=self.seams,
            replaced_patches=self.replaced_patches,
            all_rows=_float64_on_host(self.positions.values),
            results=self.results,
        )

    @cached_property
    def further_views(self) -> tuple[tuple[int, int, View], ...]:
        """The other long stretches, in order: first row, stop, and view."""
        if self.stretch.is_whole or isinstance(self.positions.layout, Grid):
            return ()
        further_views = []
        for first_row, stop_row in long_stretches(self.seams):
            if (first_row, stop_row) != (self.stretch.first, self.stretch.stop):
                values = _float64_on_host(self.positions.values[first_row:stop_row])
                stretch_view = view(values, seed=self.seed, dtype=self._dtype)
                further_views.append((first_row, stop_row, stretch_view))
        return tuple(further_views)

    @property
    def models_by_stretch(self) -> dict[tuple[int, int], RotationFit]:
        """Additive models of the long stretches by first row and stop; empty for a grid."""
        if isinstance(self.positions.layout, Grid):
            return {}
        models = {(self.stretch.first, self.stretch.stop): self.view.rotation_fit}
        for first_row, stop_row, stretch_view in self.further_views:
            models[first_row, stop_row] = stretch_view.rotation_fit
        return models

    @property
    def grid_model(self) -> GridModel | None:
        """Additive model of a grid; None for a sequence, and if all patches are equal."""
        is_fitted = (
            isinstance(self.positions.layout, Grid)
            and len(self.table) <= MAX_GRID_MODEL_PATCHES
        )
        return self.view.grid_model if is_fitted and not self.view.is_constant else None

    @property
    def _dtype(self) -> str:
        return self.table.source.dtype or "F32"


def _float64_on_host(values: Array) -> NDArray[np.float64]:
    return np.asarray(to_numpy(values), dtype=np.float64)


def _needs_grid(inputs: TableInputs) -> str:
    """Say that a sequence is no grid; empty for a grid."""
    layout = inputs.table.layout
    if isinstance(layout, Grid):
        return ""
    return f"positions on a grid; this is a {layout} (`grid` states one)"


def _needs_sequence(inputs: TableInputs) -> str:
    is_grid = isinstance(inputs.table.layout, Grid)
    return "a sequence: patches lie on a grid" if is_grid else ""


def explain_unmet_need(name: str, inputs: TableInputs) -> str:
    """Return what a table lacks for a measurement; empty if the measurement applies."""
    layout = inputs.table.layout
    if isinstance(layout, Video) != (name == VIDEO_MEASUREMENT):
        needed = (
            "the patches of a video" if name == VIDEO_MEASUREMENT else "a line or a grid"
        )
        return f"{needed}; this is a {layout}"
    return TABLE_MEASUREMENTS[name].needs(inputs)


def _needs_tokens(inputs: TableInputs) -> str:
    if inputs.tokens is not None:
        return ""
    return "the embeddings that positions are added to: tokens=load_tokens(table)"


def _measure_scale(inputs: TableInputs) -> Scale:
    assert inputs.tokens is not None  # noqa: S101 - `needs` refuses the rest
    scale = analyses.scale(inputs.positions, inputs.tokens.values)
    return replace(scale, sample=inputs.tokens.summary())


TableMeasurement: TypeAlias = Measurement[TableInputs, Any]

_TABLE_MEASUREMENTS: tuple[TableMeasurement, ...] = (
    Measurement[TableInputs, Budget](
        name="budget",
        title="Variance budget",
        compute=lambda inputs: analyses.budget(
            inputs.positions,
            breaks=inputs.seams,
            models=inputs.models_by_stretch,
            patches=inputs.grid_model,
        ),
        record=Budget,
        drawings=(
            Drawing(
                "budget",
                help_text="what the variance is made of, a bar per table",
                shows_several_tables=True,
            ),
        ),
    ),
    Measurement[TableInputs, Clock](
        name="clock",
        title="Rotations and their clock",
        compute=lambda inputs: describe_clock(
            inputs.view.rotation_fit,
            inputs.view.points,
            inputs.table.layout,
            inputs.table.start + inputs.stretch.first,
        ),
        record=Clock,
        drawings=(
            Drawing(
                "clock",
                help_text="circles of the rotations, and the speed of their clock",
            ),
        ),
        needs=_needs_sequence,
    ),
    Measurement[TableInputs, Patches](
        name="grid",
        title="Patches",
        compute=lambda inputs: analyses.grid(
            inputs.positions, cosines=inputs.result("similarity")
        ),
        record=Patches,
        uses_all_rows=True,
        drawings=(Drawing("mosaic", help_text="similarity of patches, a tile for each"),),
        needs=_needs_grid,
    ),
    Measurement[TableInputs, Similarity](
        name="similarity",
        title="Similarity of positions",
        compute=lambda inputs: analyses.similarity(inputs.positions),
        record=Similarity,
        uses_all_rows=True,
        drawings=(
            Drawing(
                "similarity",
                help_text="cosine matrices, a panel per table",
                shows_several_tables=True,
                has_centring=True,
                has_columns=True,
            ),
            Drawing(
                "profile",
                help_text="cosine by offset",
                shows_several_tables=True,
                has_centring=True,
            ),
        ),
    ),
    Measurement[TableInputs, AxisCodes](
        name="axis_codes",
        title="Row code and column code",
        compute=lambda inputs: analyses.axis_codes(inputs.kept_positions),
        record=AxisCodes,
        drawings=(
            Drawing(
                "axis_codes", help_text="components of the row code and the column code"
            ),
        ),
        needs=_needs_grid,
    ),
    Measurement[TableInputs, VideoCodes](
        name=VIDEO_MEASUREMENT,
        title="Time code, row code and column code",
        compute=lambda inputs: analyses.video_codes(inputs.table),
        record=VideoCodes,
        uses_all_rows=True,
        drawings=(Drawing(VIDEO_MEASUREMENT),),
    ),
    Measurement[TableInputs, Winding](
        name="winding",
        title="Winding",
        compute=lambda inputs: analyses.winding(
            inputs.kept_positions, pca=inputs.kept_pca
        ),
        record=Winding,
        drawings=(
            Drawing(
                "winding",
                help_text="two components that trace a circle, and their period along the table",
            ),
        ),
    ),
    Measurement[TableInputs, Bridging](
        name="bridging",
        title="Bridging gaps",
        compute=lambda inputs: analyses.bridging(
            inputs.kept_positions,
            pca=inputs.kept_pca,
            model=None
            if isinstance(inputs.kept_positions.layout, Grid)
            else inputs.view.rotation_fit.model,
        ),
        record=Bridging,
        drawings=(Drawing("bridging", help_text="held-out R² by width of the gap"),),
    ),
    Measurement[TableInputs, PCA](
        name="pca",
        title="Principal components",
        compute=lambda inputs: analyses.pca(inputs.positions),
        record=PCA,
        uses_all_rows=True,
        drawings=(
            Drawing(
                "variance",
                help_text="explained variance by component",
                shows_several_tables=True,
            ),
            Drawing(
                "components",
                help_text="scores of the first components against position",
                has_columns=True,
            ),
            Drawing("trajectory", help_text="the path through the first components"),
        ),
    ),
    Measurement[TableInputs, Spectrum](
        name="spectrum",
        title="Frequencies",
        compute=lambda inputs: analyses.spectrum(inputs.positions),
        record=Spectrum,
        uses_all_rows=True,
        drawings=(
            Drawing(
                "spectrum", help_text="power by frequency", shows_several_tables=True
            ),
        ),
    ),
    Measurement[TableInputs, Spectrogram](
        name="spectrogram",
        title="Frequencies along the table",
        compute=lambda inputs: analyses.spectrogram(inputs.positions),
        record=Spectrogram,
        uses_all_rows=True,
        drawings=(Drawing("spectrogram", help_text="power by position and frequency"),),
    ),
    Measurement[TableInputs, Shift](
        name="shift",
        title="The step from one position to the next",
        compute=lambda inputs: analyses.shift(inputs.positions, pca=inputs.result("pca")),
        record=Shift,
        uses_all_rows=True,
        drawings=(
            Drawing("shift", help_text="eigenvalues of the map to the next position"),
        ),
    ),
    Measurement[TableInputs, Seams](
        name="seams",
        title="Breaks and outliers",
        compute=lambda inputs: analyses.seams(inputs.positions),
        record=Seams,
        drawings=(Drawing("seams"),),
    ),
    Measurement[TableInputs, SinusoidFit](
        name="sinusoid",
        title="Compared with the sinusoid",
        compute=lambda inputs: analyses.against_sinusoid(
            inputs.positions, decomposition=inputs.result("pca")
        ),
        record=SinusoidFit,
        uses_all_rows=True,
        drawings=(Drawing("sinusoid"),),
    ),
    Measurement[TableInputs, Probes](
        name="probes",
        title="Probes",
        compute=lambda inputs: analyses.probes(inputs.positions, seed=inputs.seed),
        record=Probes,
        drawings=(Drawing("probes"),),
        is_default=False,
    ),
    Measurement[TableInputs, Scale](
        name="scale",
        title="Scale of positions and tokens",
        compute=_measure_scale,
        record=Scale,
        uses_all_rows=True,
        drawings=(Drawing("scale"),),
        needs=_needs_tokens,
    ),
    Measurement[TableInputs, Norms](
        name="norms",
        title="Norms",
        compute=lambda inputs: analyses.norms(inputs.positions),
        record=Norms,
        uses_all_rows=True,
        drawings=(Drawing("norms", help_text="the norm of every row"),),
    ),
)
#: Measurements of the longest stretch without breaks and outliers, on a grid of all patches.
STRETCH_MEASUREMENTS = frozenset({"clock", "axis_codes", "winding", "bridging"})
#: Measurements of a table by name.
TABLE_MEASUREMENTS: dict[str, TableMeasurement] = {
    measurement.name: measurement for measurement in _TABLE_MEASUREMENTS
}


def compared_numbers() -> dict[str, Number]:
    """Return the numbers that are compared with the sinusoid and null models, by key path."""
    return {
        f"{name}.{key}": number
        for name, measurement in TABLE_MEASUREMENTS.items()
        for key, number in measurement.numbers.items()
        if number.compared
    }
