"""Rows that were left out, predicted from the rest."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe import analyses
from posprobe.analyses.bridging import Bridging
from posprobe.measurements.base import Drawing, Measurement, TableInputs
from posprobe.page import Table, columns
from posprobe.text import Block, cell

#: What each rule is called, by its key.
RULES = {
    "linear": "straight line",
    "matern12": "Matern 1/2",
    "matern32": "Matern 3/2",
    "rbf": "squared exponential",
    "sinusoids": "1 to 8 sinusoids",
    "ladder": "the sinusoid's waves",
    "shift": "linear map from row to row",
}


def _r2(document: Block) -> tuple[Table, ...]:
    block = document["bridging"]
    blocks = {"": block} if block["gaps"] else block["axes"] or {}
    return tuple(_table(name, one) for name, one in blocks.items() if one["gaps"])


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


def _alt(block: Block) -> str:
    scale = cell(block["length_scale"])
    return f"Held-out R² by the width of the gap, one line for each rule; fitted length {scale}."


def _caption(results: Mapping[str, Bridging]) -> str:
    (result,) = results.values()
    fitted = (
        f" The kernel that fits best has a length scale of {result.length_scale:.3g} positions."
        if result.length_scale is not None
        else ""
    )
    last = result.start + result.stop - 1
    whose = f"held-out rows of positions {result.start + result.first} to {last}"
    if result.axes:
        whose = "held-out entries of the row code and of the column code"
    return (
        f"Share of the variance of {whose} that is predicted from the rest, by the width of "
        "the gap: by a straight line across it, by Gaussian processes over position, by a few "
        "sinusoids, by the waves of the sinusoid of this shape and by one linear step."
        f"{fitted} Smooth curves are bridged to about their length scale, rotations far beyond it."
    )


BRIDGING = Measurement[TableInputs, Bridging](
    name="bridging",
    compute=lambda given: analyses.bridging(given.kept, pca=given.kept_components),
    record=Bridging,
    drawings=(
        Drawing(
            "bridging",
            _alt,
            _caption,
            lacks=lambda result: "" if result.axes else result.undefined,
        ),
    ),
    tables=_r2,
)
