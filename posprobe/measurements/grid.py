"""Patches on a grid."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe import analyses
from posprobe.analyses import Patches
from posprobe.layouts import Grid
from posprobe.measurements.base import Drawing, Measurement, TableInputs, sentence
from posprobe.text import show


def _mosaic_caption(results: Mapping[str, Patches]) -> str:
    from posprobe.figures.grid import MAX_TILES, tile_block

    (result,) = results.values()
    block = tile_block(result.layout)
    every = -(-max(result.layout.height, result.layout.width) // MAX_TILES)
    nth = {2: "second", 3: "third"}.get(every, f"{every}th")
    tiles = "each patch" if every == 1 else f"every {nth} patch of a row and column"
    pooled = f" Cells are means of {block} × {block} patches." if block > 1 else ""
    return (
        f"Similarity of position embeddings of patches. One tile for {tiles}, arranged as in the "
        "image; in a tile, the cosine of its patch with every patch of the image, its own cell "
        "being 1. Mean centred cosine: "
        f"{show(result.neighbour_right)} with the right neighbour, "
        f"{show(result.neighbour_below)} with the one below, {show(result.elsewhere)} with "
        f"patches of other rows and columns. The tiles show rows as stored, not centred.{pooled}"
    )


def needs_grid(given: TableInputs) -> str:
    """Say why a table without a grid has none of this."""
    layout = given.table.layout
    if isinstance(layout, Grid):
        return ""
    return f"positions on a grid; this is a {layout} (--grid states one)"


GRID = Measurement[TableInputs, Patches](
    name="grid",
    compute=lambda given: analyses.grid(given.positions, cosines=given.result("similarity")),
    record=Patches,
    drawings=(
        Drawing(
            "mosaic",
            sentence(
                "Mosaic of cosines: mean centred cosine {} to the right neighbour, {} to the one "
                "below, {} elsewhere.",
                "neighbour_right", "neighbour_below", "elsewhere",
            ),
            _mosaic_caption,
        ),
        Drawing(
            "plane_spectrum",
            sentence(
                "Two-dimensional spectrum: {} of the power lies on the axes.", "axis_power_share"
            ),
        ),
    ),
    needs=needs_grid,
)  # fmt: skip
