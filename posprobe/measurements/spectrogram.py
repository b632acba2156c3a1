"""Frequencies along the table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from posprobe import analyses
from posprobe.analyses import Spectrogram
from posprobe.measurements.base import Drawing, Measurement, TableInputs, sentence, undefined


def _caption(results: Mapping[str, Spectrogram]) -> str:
    (result,) = results.values()
    lines = "Circles: the fastest line above red noise."
    if np.isnan(result.fastest).all():
        lines = "No segment has a line above red noise."
    return (
        "Power of the position embeddings by position and frequency, summed over dimensions, in "
        f"segments of {result.length} positions, {result.step} apart (each less its line, Hann "
        f"window). {lines}"
    )


SPECTROGRAM = Measurement[TableInputs, Spectrogram](
    name="spectrogram",
    compute=lambda given: analyses.spectrogram(given.positions),
    record=Spectrogram,
    drawings=(
        Drawing(
            "spectrogram",
            sentence(
                "Spectrogram in segments of {} positions; drift of the fastest line: {}.",
                "length", "drift",
            ),
            _caption,
            lacks=undefined,
        ),
    ),
)  # fmt: skip
