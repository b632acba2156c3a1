"""Principal components."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import PCA
from posprobe.measurements.base import Drawing, Measurement, TableInputs, undefined
from posprobe.report.narrator.captions import CAPTIONS, LACKS

PRINCIPAL = Measurement[TableInputs, PCA](
    name="pca",
    compute=lambda given: analyses.pca(given.positions),
    record=PCA,
    drawings=(
        Drawing(
            "variance",
            caption=CAPTIONS["variance"],
            lacks=undefined,
            several=True,
            band="variance",
        ),
        Drawing(
            "components",
            caption=CAPTIONS["components"],
            lacks=undefined,
            columns=True,
        ),
        Drawing(
            "trajectory",
            caption=CAPTIONS["trajectory"],
            lacks=LACKS["trajectory"],
        ),
    ),
)
