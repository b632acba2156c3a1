"""Row code and column code of patches."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses.axis_codes import AxisCodes
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined
from posprobe.measurements.grid import needs_grid
from posprobe.number_format import Block, show
from posprobe.page import Table, columns
from posprobe.report.narrator.captions import ALTS, CAPTIONS


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


AXIS_CODES = Measurement[TableInputs, AxisCodes](
    name="axis_codes",
    compute=lambda given: analyses.axis_codes(given.kept),
    record=AxisCodes,
    drawings=(Drawing("axis_codes", ALTS["axis_codes"], CAPTIONS["axis_codes"], lacks=undefined),),
    needs=needs_grid,
    tables=_windings,
)
