"""Linear probes of position and order."""

from __future__ import annotations

from posprobe import analyses
from posprobe.analyses import Probes
from posprobe.measurements.base import (
    Drawing,
    Measurement,
    TableInputs,
    sentence,
    undefined,
)

PROBES = Measurement[TableInputs, Probes](
    name="probes",
    title="Probes",
    shows="Whether a linear model can read positions and their order from the rows.",
    reading="The published probes draw folds at random, so that each held-out row has its "
    "neighbours in training: they measure interpolation. The sound ones hold out whole blocks, and "
    "positions that no training pair contains.",
    limits="A random walk passes the published probes as well as a sinusoid.",
    source="Wang & Chen, EMNLP 2020, tables 1 and 2; the sound versions are ours.",
    compute=lambda given: analyses.probes(given.positions, seed=given.seed),
    record=Probes,
    drawings=(
        Drawing(
            "probes",
            sentence(
                "Probe errors: {} positions as published, {} with blocks held out.",
                "absolute_published.mae", "absolute_blocked.mae",
            ),
            lacks=undefined,
        ),
    ),
    slow=True,
)  # fmt: skip
