"""Every measurement of a table, in the order of the page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

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
from posprobe.analyses.facts import Number
from posprobe.analyses.grids.grid import AxisCodes
from posprobe.analyses.sequences.budget import Budget, Clock, clock_of
from posprobe.analyses.sequences.winding import Winding
from posprobe.analyses.tables.bridging import Bridging
from posprobe.layouts import Grid
from posprobe.measurements.base import Drawing, Measurement, TableInputs


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
        drawings=(
            Drawing("mosaic", draws="similarity of patches, a tile for each"),
            Drawing("plane_spectrum"),
        ),
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
