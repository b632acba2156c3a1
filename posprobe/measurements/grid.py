"""Patches on a grid."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import Patches
from posprobe.layouts import Grid
from posprobe.measurements.base import Drawing, Measurement, TableInputs
from posprobe.report.narrator.captions import CAPTIONS


def needs_grid(given: TableInputs) -> str:
    """Say why a table without a grid has none of this."""
    layout = given.table.layout
    if isinstance(layout, Grid):
        return ""
    return f"positions on a grid; this is a {layout} (--grid states one)"


GRID = Measurement[TableInputs, Patches](
    name="grid",
    title="Patches",
    compute=lambda given: analyses.grid(given.positions, cosines=given.result("similarity")),
    record=Patches,
    drawings=(
        Drawing(
            "mosaic", draws="similarity of patches, a tile for each", caption=CAPTIONS["mosaic"]
        ),
        Drawing("plane_spectrum"),
    ),
    needs=needs_grid,
)
