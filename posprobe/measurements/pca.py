"""Principal components."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import PCA
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined
from posprobe.report.narrator.captions import CAPTIONS, LACKS

PRINCIPAL = Measurement[TableInputs, PCA](
    name="pca",
    title="Principal components",
    compute=lambda given: analyses.pca(given.positions),
    record=PCA,
    whole=True,
    drawings=(
        Drawing(
            "variance",
            draws="explained variance by component",
            caption=CAPTIONS["variance"],
            lacks=undefined,
            several=True,
        ),
        Drawing(
            "components",
            draws="scores of the first components against position",
            caption=CAPTIONS["components"],
            lacks=undefined,
            columns=True,
        ),
        Drawing(
            "trajectory",
            draws="the path through the first components",
            caption=CAPTIONS["trajectory"],
            lacks=LACKS["trajectory"],
        ),
    ),
)
