"""Components that go round each other."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses.winding import Winding
from posprobe.measurements.base import Drawing, Measurement, TableInputs
from posprobe.number_format import Block, between, cell, show
from posprobe.page import Table, columns
from posprobe.report.narrator.captions import ALTS, CAPTIONS, LACKS


def _pairs(document: Block) -> tuple[Table, ...]:
    rows = tuple(
        (
            " and ".join(map(str, pair["components"])),
            f"{pair['share']:.1%}",
            show(pair["turns"]),
            between(pair["local_period"]),
            show(pair["phase_linearity"]),
            show(pair["radius_cv"]),
            cell(pair["pitch"]),
        )
        for pair in document["winding"]["pairs"] or ()
    )
    headings = columns(
        "components", "=variance", "=turns", "=period along the table", "=phase linearity",
        "=radius CV", "=pitch",
    )  # fmt: skip
    text = (
        "Pairs of components that go round. The period is that of tenths of the table, smallest "
        "to largest, in positions; the pitch is the rise of a third component per turn"
    )
    return (Table(f"{text}.", headings, rows),) if rows else ()


WINDING = Measurement[TableInputs, Winding](
    name="winding",
    compute=lambda given: analyses.winding(given.kept, pca=given.kept_components),
    record=Winding,
    drawings=(Drawing("winding", ALTS["winding"], CAPTIONS["winding"], lacks=LACKS["winding"]),),
    tables=_pairs,
)
