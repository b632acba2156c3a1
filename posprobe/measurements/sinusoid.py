"""Closeness to the sinusoid of the table's shape."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import SinusoidFit
from posprobe.measurements.base import Drawing, Measurement, TableInputs, sentence

SINUSOID = Measurement[TableInputs, SinusoidFit](
    name="sinusoid",
    compute=lambda given: analyses.against_sinusoid(
        given.positions, decomposition=given.result("pca")
    ),
    record=SinusoidFit,
    drawings=(
        Drawing(
            "sinusoid",
            sentence(
                "Debiased CKA {} with the sinusoid; {} sinusoids explain 90 % of the variance.",
                "cka", "sinusoids_for_90",
            ),
            lacks=lambda result: "" if result.sinusoids is not None else "no wave was fitted",
        ),
    ),
)  # fmt: skip
