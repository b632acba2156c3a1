"""What the product knows of measurements, beside the mathematics, and every one of a table.

A `Measurement` says how it is computed, what its result is, and which figures there are. Everything
that lists measurements or numbers follows from these records, in their order.
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
from posprobe.analyses.breaks.outliers import MOST, without
from posprobe.analyses.breaks.seams import Stretch, long_runs, stretch
from posprobe.analyses.composition.bridging import Bridging
from posprobe.analyses.composition.budget import Budget, Clock, clock_of
from posprobe.analyses.composition.grid_model import GridModel
from posprobe.analyses.composition.planes import Turning
from posprobe.analyses.descriptive.grid import AxisCodes
from posprobe.analyses.descriptive.winding import Winding
from posprobe.analyses.facts import Cause, Number
from posprobe.analyses.result import Result, numbers_of
from posprobe.analyses.view import View, view
from posprobe.arrays import Array, Positions, to_numpy
from posprobe.layouts import Grid, Sequence
from posprobe.tables import PositionTable
from posprobe.words.captions import LACKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

R = TypeVar("R", bound=Result)
I = TypeVar("I")  # noqa: E741 - what a measurement takes


#: Leading components of the stretch that its measurements need.
LEADING = 64
#: Most patches of which a model is fitted: more than any trained table has, whose transform takes
#: a second.
MOST_PATCHES = 2**14


class Tokens(Protocol):
    """Embeddings that positions are added to: `posprobe.families.TokenSample`."""

    @property
    def values(self) -> NDArray[np.floating[Any]]:
        """``[k, d]``."""

    def summary(self) -> dict[str, Any]:
        """Return where they come from."""


@dataclass(frozen=True)
class Drawing:
    """A figure of a measurement, made by the module of `posprobe.figures` that draws its result.

    How to read it, and why it cannot be drawn of a result, are told under its name in
    `posprobe.words.captions`.

    Parameters
    ----------
    name
        Of the figure: its file in a bundle, its kind for `posprobe figure`.
    several
        Whether it shows several tables in one figure.
    centring
        Whether rows can be drawn as stored or less their mean, as asked for; its caption is then
        told which by ``centred``, None where nothing was asked for.
    columns
        Whether it has panels of which so many as asked for stand side by side.
    draws
        What it draws, for the help of `posprobe figure`; empty where papers cannot have it.
    """

    name: str
    several: bool = False
    centring: bool = False
    columns: bool = False
    draws: str = ""

    def lacks(self, result: Result) -> str:
        """Return why it cannot be drawn of a result; empty where it can."""
        if self.name in LACKS:
            return LACKS[self.name](result)
        undefined = getattr(result, "undefined", "")
        return undefined if isinstance(undefined, str) else ""  # else of single numbers


@dataclass(frozen=True)
class Measurement(Generic[I, R]):
    """One measurement: everything that the product needs to know of it.

    Parameters
    ----------
    name, title
        Its key in ``analysis.json`` and in ``--only``, and what people call it.
    compute
        From what it takes, the frozen result.
    record
        The type of the result, from which its numbers, arrays and JSON Schema follow.
    drawings
        Its figures.
    needs
        From what it takes, why it does not apply; empty where it does.
    slow
        Whether it is left out unless asked for.
    whole
        Whether it takes a table with all rows, and results of such measurements alone: it does not
        wait for the questions, nor they for it.
    drawn_with
        From the result, what its figures show beyond it, computed.
    """

    name: str
    title: str
    compute: Callable[[I], R]
    record: type[R]
    drawings: tuple[Drawing, ...] = ()
    needs: Callable[[I], str] = lambda _: ""
    slow: bool = False
    whole: bool = False
    drawn_with: Callable[[R], Mapping[str, Any]] = lambda _: {}

    @cached_property
    def numbers(self) -> Mapping[str, Number]:
        """What its section lists, by key path in the block."""
        return {key: number for key, number, _ in numbers_of(self.record)}

    def figures(self, results: Mapping[str, R]) -> dict[str, Callable[[], Figure]]:
        """Return how to make the figures of a report that results by label allow."""
        from posprobe.figures import report_figures

        names = [
            drawing.name
            for drawing in self.drawings
            if not any(drawing.lacks(result) for result in results.values())
        ]
        shown: dict[str, Any] = {}
        for result in results.values():
            shown |= self.drawn_with(result)
        return report_figures(results, names, shown)


@dataclass(frozen=True, eq=False)
class TableInputs:
    """What a measurement of a table takes.

    Parameters
    ----------
    table
        The table.
    positions
        Its values on the device that computes.
    seed
        Of everything that is drawn.
    tokens
        What the positions are added to, where it is known.
    chosen
        The measurements of this run.
    all_rows
        Whether seams and special rows are no reason to leave any row out.
    results
        What was measured so far; `result` fills it.
    """

    table: PositionTable
    positions: Positions
    seed: int
    tokens: Tokens | None
    chosen: Mapping[str, Measurement[TableInputs, Any]]
    all_rows: bool = False
    results: dict[str, Result] = field(default_factory=dict)

    def result(self, name: str) -> Any:
        """Return the result of another measurement of this run, None where it is not chosen."""
        if name not in self.results and name in self.chosen:
            self.results[name] = self.chosen[name].compute(self)
        return self.results.get(name)

    @cached_property
    def stretch(self) -> Stretch:
        """The longest stretch of rows without seams and special rows, or all rows."""
        if self.all_rows:
            return Stretch(0, len(self.table), True, (Cause("all_rows"),))
        return stretch(self.seams)

    @cached_property
    def seams(self) -> Seams:
        """Seams and special rows, whether or not they are among the chosen."""
        found = self.result("seams")
        return found if isinstance(found, Seams) else analyses.seams(self.positions)

    @property
    def replaced(self) -> tuple[int, ...]:
        """Special patches in whose place the questions see the mean of their neighbours.

        Where many are special none is replaced: of half a grid of zeros the rest says nothing.
        """
        special = tuple(found.row for found in self.seams.special)
        on_grid = isinstance(self.positions.layout, Grid)
        few = len(special) <= MOST * len(self.table)
        return special if on_grid and few and not self.all_rows else ()

    @cached_property
    def kept(self) -> Positions:
        """That stretch; of a grid all patches, with the `replaced` ones replaced."""
        given, rows = self.positions, self.stretch.rows
        if isinstance(given.layout, Grid) and self.replaced:
            height, width = given.layout.height, given.layout.width
            filled = without(given.values, self.replaced, height, width, given.xp)
            return replace(given, values=filled)
        if self.stretch.whole:
            return given
        layout = Sequence(self.stretch.stop - self.stretch.first)
        return replace(
            given, values=given.values[rows], layout=layout, start=given.start + rows.start
        )

    @cached_property
    def kept_components(self) -> PCA:
        """Its principal components."""
        found = self.result("pca") if self.stretch.whole else None
        return found if isinstance(found, PCA) else analyses.pca(self.kept, leading=LEADING)

    @cached_property
    def seen(self) -> View:
        """What all questions about that stretch share."""
        return view(
            _host(self.kept.values), seed=self.seed, layout=self.kept.layout, dtype=self._dtype,
            start=self.table.start, breaks=self.seams, replaced=self.replaced,
            all_rows=_host(self.positions.values), measured=self.results,
        )  # fmt: skip

    @cached_property
    def parts(self) -> tuple[tuple[int, int, View], ...]:
        """The other long runs between breaks, in order: first row, stop, and what is seen."""
        if self.stretch.whole or isinstance(self.positions.layout, Grid):
            return ()
        own = (self.stretch.first, self.stretch.stop)
        return tuple(
            (
                first,
                stop,
                view(_host(self.positions.values[first:stop]), seed=self.seed, dtype=self._dtype),
            )
            for first, stop in long_runs(self.seams)
            if (first, stop) != own
        )

    @property
    def models(self) -> dict[tuple[int, int], Turning]:
        """The additive model of that stretch and of the other long runs; none of a grid."""
        if isinstance(self.positions.layout, Grid):
            return {}
        own = (self.stretch.first, self.stretch.stop)
        others = {(first, stop): part.turning for first, stop, part in self.parts}
        return {own: self.seen.turning, **others}

    @property
    def patches(self) -> GridModel | None:
        """The additive model of a grid; None of a sequence, and where all patches are equal."""
        fitted = isinstance(self.positions.layout, Grid) and len(self.table) <= MOST_PATCHES
        return self.seen.grid_model if fitted and not self.seen.constant else None

    @property
    def _dtype(self) -> str:
        return self.table.source.dtype or "F32"


def _host(values: Array) -> NDArray[np.float64]:
    return np.asarray(to_numpy(values), dtype=np.float64)


def _needs_grid(given: TableInputs) -> str:
    """Say why a table without a grid has none of this."""
    layout = given.table.layout
    if isinstance(layout, Grid):
        return ""
    return f"positions on a grid; this is a {layout} (--grid states one)"


def _needs_sequence(given: TableInputs) -> str:
    on_grid = isinstance(given.table.layout, Grid)
    return "a sequence: patches lie on a grid" if on_grid else ""


def _needs_tokens(given: TableInputs) -> str:
    if given.tokens is not None:
        return ""
    return "the embeddings that positions are added to: tokens=load_tokens(table)"


def _scale(given: TableInputs) -> Scale:
    assert given.tokens is not None  # noqa: S101 - `needs` says so
    found = analyses.scale(given.positions, given.tokens.values)
    return replace(found, sample=given.tokens.summary())


TableMeasurement: TypeAlias = Measurement[TableInputs, Any]

_EVERY: tuple[TableMeasurement, ...] = (
    Measurement[TableInputs, Budget](
        name="budget",
        title="Variance budget",
        compute=lambda given: analyses.budget(
            given.positions, breaks=given.seams, models=given.models, patches=given.patches
        ),
        record=Budget,
        drawings=(
            Drawing("budget", draws="what the variance is made of, a bar per table", several=True),
        ),
    ),
    Measurement[TableInputs, Clock](
        name="clock",
        title="Rotations and their clock",
        compute=lambda given: clock_of(
            given.seen.turning,
            given.seen.points,
            given.table.layout,
            given.table.start + given.stretch.first,
        ),
        record=Clock,
        drawings=(
            Drawing("clock", draws="circles of the rotations, and the speed of their clock"),
        ),
        needs=_needs_sequence,
    ),
    Measurement[TableInputs, Patches](
        name="grid",
        title="Patches",
        compute=lambda given: analyses.grid(given.positions, cosines=given.result("similarity")),
        record=Patches,
        whole=True,
        drawings=(Drawing("mosaic", draws="similarity of patches, a tile for each"),),
        needs=_needs_grid,
    ),
    Measurement[TableInputs, Similarity](
        name="similarity",
        title="Similarity of positions",
        compute=lambda given: analyses.similarity(given.positions),
        record=Similarity,
        whole=True,
        drawings=(
            Drawing(
                "similarity",
                draws="cosine matrices, a panel per table",
                several=True,
                centring=True,
                columns=True,
            ),
            Drawing("profile", draws="cosine by offset", several=True, centring=True),
        ),
    ),
    Measurement[TableInputs, AxisCodes](
        name="axis_codes",
        title="Row code and column code",
        compute=lambda given: analyses.axis_codes(given.kept),
        record=AxisCodes,
        drawings=(Drawing("axis_codes", draws="components of the row code and the column code"),),
        needs=_needs_grid,
    ),
    Measurement[TableInputs, Winding](
        name="winding",
        title="Winding",
        compute=lambda given: analyses.winding(given.kept, pca=given.kept_components),
        record=Winding,
        drawings=(
            Drawing(
                "winding",
                draws="two components that trace a circle, and their period along the table",
            ),
        ),
    ),
    Measurement[TableInputs, Bridging](
        name="bridging",
        title="Bridging gaps",
        compute=lambda given: analyses.bridging(
            given.kept,
            pca=given.kept_components,
            model=None if isinstance(given.kept.layout, Grid) else given.seen.turning.model,
        ),
        record=Bridging,
        drawings=(Drawing("bridging", draws="held-out R² by width of the gap"),),
    ),
    Measurement[TableInputs, PCA](
        name="pca",
        title="Principal components",
        compute=lambda given: analyses.pca(given.positions),
        record=PCA,
        whole=True,
        drawings=(
            Drawing("variance", draws="explained variance by component", several=True),
            Drawing(
                "components",
                draws="scores of the first components against position",
                columns=True,
            ),
            Drawing("trajectory", draws="the path through the first components"),
        ),
    ),
    Measurement[TableInputs, Spectrum](
        name="spectrum",
        title="Frequencies",
        compute=lambda given: analyses.spectrum(given.positions),
        record=Spectrum,
        whole=True,
        drawings=(Drawing("spectrum", draws="power by frequency", several=True),),
    ),
    Measurement[TableInputs, Spectrogram](
        name="spectrogram",
        title="Frequencies along the table",
        compute=lambda given: analyses.spectrogram(given.positions),
        record=Spectrogram,
        whole=True,
        drawings=(Drawing("spectrogram", draws="power by position and frequency"),),
    ),
    Measurement[TableInputs, Shift](
        name="shift",
        title="The step from one position to the next",
        compute=lambda given: analyses.shift(given.positions, pca=given.result("pca")),
        record=Shift,
        whole=True,
        drawings=(Drawing("shift", draws="eigenvalues of the map to the next position"),),
    ),
    Measurement[TableInputs, Seams](
        name="seams",
        title="Breaks and outliers",
        compute=lambda given: analyses.seams(given.positions),
        record=Seams,
        drawings=(Drawing("seams"),),
    ),
    Measurement[TableInputs, SinusoidFit](
        name="sinusoid",
        title="Compared with the sinusoid",
        compute=lambda given: analyses.against_sinusoid(
            given.positions, decomposition=given.result("pca")
        ),
        record=SinusoidFit,
        whole=True,
        drawings=(Drawing("sinusoid"),),
    ),
    Measurement[TableInputs, Probes](
        name="probes",
        title="Probes",
        compute=lambda given: analyses.probes(given.positions, seed=given.seed),
        record=Probes,
        drawings=(Drawing("probes"),),
        slow=True,
    ),
    Measurement[TableInputs, Scale](
        name="scale",
        title="Scale of positions and tokens",
        compute=_scale,
        record=Scale,
        whole=True,
        drawings=(Drawing("scale"),),
        needs=_needs_tokens,
    ),
    Measurement[TableInputs, Norms](
        name="norms",
        title="Norms",
        compute=lambda given: analyses.norms(given.positions),
        record=Norms,
        whole=True,
        drawings=(Drawing("norms", draws="the norm of every row"),),
    ),
)
#: Measurements of a table by name.
TABLE: dict[str, TableMeasurement] = {each.name: each for each in _EVERY}


def compared_numbers() -> dict[str, Number]:
    """Return the numbers that stand beside the sinusoid and null models, by key path."""
    return {
        f"{name}.{key}": number
        for name, measurement in TABLE.items()
        for key, number in measurement.numbers.items()
        if number.compared
    }
