"""Cosine similarity of positions."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import Similarity
from posprobe.measurements.base import Drawing, Measurement, TableInputs
from posprobe.report.narrator.captions import CAPTIONS

SIMILARITY = Measurement[TableInputs, Similarity](
    name="similarity",
    title="Similarity of positions",
    compute=lambda given: analyses.similarity(given.positions),
    record=Similarity,
    whole=True,
    drawings=(
        Drawing(
            "similarity",
            draws="cosine matrices, a panel per table",
            caption=CAPTIONS["similarity"],
            several=True,
            centring=True,
            columns=True,
        ),
        Drawing(
            "profile",
            draws="cosine by offset",
            caption=CAPTIONS["profile"],
            several=True,
            centring=True,
        ),
    ),
)
