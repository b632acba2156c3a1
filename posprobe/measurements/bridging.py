"""Rows that were left out, predicted from the rest."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses.bridging import Bridging
from posprobe.layouts import Grid
from posprobe.measurements.base import Drawing, Measurement, TableInputs
from posprobe.number_format import Block, cell
from posprobe.page import Table, columns
from posprobe.report.narrator.captions import CAPTIONS

#: What each rule is called, by its key.
RULES = {
    "linear": "straight line",
    "smooth": "smooth part of the model",
    "waves": "model with periodic components",
    "shift": "linear map from row to row",
}


def _table(name: str, block: Block) -> Table:
    gaps = block["gaps"]
    rows = tuple(
        (RULES.get(rule, rule), *map(cell, values), cell(block["beyond"][rule]["both"]))
        for rule, values in block["r2"].items()
    )
    of = f" of the {name.removesuffix('s')} code" if name else ""
    return Table(
        f"Held-out R²{of} by the width of the gap in positions, and beyond both ends.",
        columns("rule", *(f"={gap}" for gap in gaps), "=beyond"),
        rows,
    )


BRIDGING = Measurement[TableInputs, Bridging](
    name="bridging",
    compute=lambda given: analyses.bridging(
        given.kept,
        pca=given.kept_components,
        model=None if isinstance(given.kept.layout, Grid) else given.seen.turning.model,
    ),
    record=Bridging,
    drawings=(
        Drawing(
            "bridging",
            caption=CAPTIONS["bridging"],
            lacks=lambda result: "" if result.axes else result.undefined,
        ),
    ),
)
