"""Closeness to the sinusoid of the table's shape."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import SinusoidFit
from posprobe.measurements.base import Drawing, Measurement, TableInputs, sentence

SINUSOID = Measurement[TableInputs, SinusoidFit](
    name="sinusoid",
    title="Compared with the sinusoid",
    shows="How close the table is to the sinusoid of its shape, and how few waves describe it.",
    reading="One panel shows the share of the variance that 1, 2, 3 … freely chosen frequencies "
    "explain, with their periods; the other the resemblance to sinusoids of other bases.",
    limits="Smoothness alone gives a high CKA: two independent random walks reach 0.99. Compare "
    "with the null models.",
    source="CKA: Kornblith et al. 2019, debiased after Song et al. 2012; Procrustes: Schönemann "
    "1966; the curve is matching pursuit (Mallat & Zhang 1993).",
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
