"""Rows that were left out, predicted from the rest."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses.bridging import Bridging
from posprobe.layouts import Grid
from posprobe.measurements.base import Drawing, Measurement, TableInputs
from posprobe.report.narrator.captions import CAPTIONS

BRIDGING = Measurement[TableInputs, Bridging](
    name="bridging",
    title="Bridging gaps",
    compute=lambda given: analyses.bridging(
        given.kept,
        pca=given.kept_components,
        model=None if isinstance(given.kept.layout, Grid) else given.seen.turning.model,
    ),
    record=Bridging,
    drawings=(
        Drawing(
            "bridging",
            draws="held-out R² by width of the gap",
            caption=CAPTIONS["bridging"],
            lacks=lambda result: "" if result.axes else result.undefined,
        ),
    ),
)
