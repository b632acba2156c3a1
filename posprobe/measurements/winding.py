"""Components that go round each other."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses.winding import Winding
from posprobe.measurements.base import Drawing, Measurement, TableInputs
from posprobe.report.narrator.captions import CAPTIONS, LACKS

WINDING = Measurement[TableInputs, Winding](
    name="winding",
    title="Winding",
    compute=lambda given: analyses.winding(given.kept, pca=given.kept_components),
    record=Winding,
    drawings=(
        Drawing(
            "winding",
            draws="two components that trace a circle, and their period along the table",
            caption=CAPTIONS["winding"],
            lacks=LACKS["winding"],
        ),
    ),
)
