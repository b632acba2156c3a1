"""Closeness to the sinusoid of the table's shape."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import SinusoidFit
from posprobe.analyses.sinusoid import SinusoidBlock
from posprobe.measurements.base import Drawing, Measurement, Number, TableInputs, sentence

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
    block=SinusoidBlock,
    numbers=(
        Number(
            "cka", "CKA with the sinusoid",
            "debiased centred kernel alignment; 1 is a rotated copy", compared=True,
        ),
        Number("procrustes", "Procrustes distance", "0 is a rotated copy, 1.41 the most"),
        Number("subspace_overlap", "subspace overlap", "of the leading directions; 1 is all"),
        Number(
            "ladder_share", "explained by the sinusoid",
            "share of the variance that the sinusoid's frequencies explain", compared=True,
        ),
        Number(
            "ladder_white_share", "explained, white noise",
            "share of the variance of white noise that so many waves explain",
        ),
        Number(
            "sinusoids_for_90", "sinusoids for 90 %",
            "freely chosen frequencies that explain 90 % of the variance", "d",
        ),
        Number("base", "base", "of the geometric series of wavelengths that fits best"),
    ),
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
