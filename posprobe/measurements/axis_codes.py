"""Row code and column code of patches."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe import analyses
from posprobe.analyses.axis_codes import AxisCodes
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined
from posprobe.measurements.grid import needs_grid
from posprobe.page import Table, columns
from posprobe.text import Block, show


def _windings(document: Block) -> tuple[Table, ...]:
    block = document["axis_codes"]
    rows = tuple(
        (
            axis,
            " and ".join(map(str, pair["components"])),
            f"{pair['share']:.1%}",
            show(pair["turns"]),
            show(pair["radius_cv"]),
        )
        for axis in ("rows", "columns")
        if block[axis] is not None
        for pair in block[axis]["winding"]["pairs"] or ()
    )
    headings = columns("code of", "components", "=variance of the code", "=turns", "=radius CV")
    text = "Pairs of components of each code that go round"
    return (Table(f"{text}.", headings, rows),) if rows else ()


def _alt(block: Block) -> str:
    if block["rows"] is None:
        return "Row and column codes are undefined."
    return (
        f"Components of the row code ({block['rows']['share']:.1%} of the variance) and of the "
        f"column code ({block['columns']['share']:.1%})."
    )


def _caption(results: Mapping[str, AxisCodes]) -> str:
    (result,) = results.values()
    rows, columns_ = (result.axes[name].share for name in ("rows", "columns"))
    return (
        "Leading principal components of the row code and the column code, the marginal means of "
        f"the position embeddings of patches. They hold {rows:.1%} and {columns_:.1%} of the "
        f"variance; {result.interaction_share:.1%} is interaction of row and column. Pairs of "
        "components that go round are drawn in their plane, coloured from the first row or column "
        "(open circle) to the last (black square), with their turns and their share of the code's "
        "variance."
    )


AXIS_CODES = Measurement[TableInputs, AxisCodes](
    name="axis_codes",
    compute=lambda given: analyses.axis_codes(given.kept),
    record=AxisCodes,
    drawings=(
        Drawing(
            "axis_codes", _alt, _caption,
            lacks=undefined,
        ),
    ),
    needs=needs_grid,
    tables=_windings,
)  # fmt: skip
