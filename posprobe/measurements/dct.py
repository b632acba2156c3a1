"""Slow components of the similarity matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posprobe import analyses
from posprobe.analyses import GramDCT, Similarity
from posprobe.measurements.base import Measurement, TableInputs


def _cosines(result: Similarity | None) -> NDArray[np.float64] | None:
    if result is None or result.centered.pooled > 1 or np.isnan(result.centered.matrix).any():
        return None
    return result.centered.matrix


DCT = Measurement[TableInputs, GramDCT](
    name="dct",
    title="Slow components of similarity",
    compute=lambda given: analyses.gram_dct(
        given.positions, cosines=_cosines(given.result("similarity"))
    ),
    record=GramDCT,
    whole=True,
)
