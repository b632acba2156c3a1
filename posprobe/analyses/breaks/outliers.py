"""Find outlier rows, in the norms, steps and directions of a table's rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.limits import (
    MIN_SIDE_ROWS,
    exceeds_sides,
    is_beyond_tail,
    noise_limits,
    side_levels,
    typical_values,
)
from posprobe.analyses.breaks.row_series import BreakRecord, RowSeries
from posprobe.analyses.linear import SD_PER_MAD
from posprobe.arrays import Floats

#: Norms of neighbouring rows differ from this ratio on: a random walk from 0 begins with 1.41.
MIN_NORM_RATIO = 1.5
#: The distance, 1 - cosine, of an outlier row from all others is this multiple of the typical one:
#: half as far again, as for norms.
MIN_DIRECTION_RATIO = 1.5


def find_zero_rows(series: RowSeries) -> BreakRecord:
    """Return the rows of zeros as outlier rows."""
    breaks = BreakRecord()
    for row in np.flatnonzero(series.norms == 0).tolist():
        breaks.add_outlier(row, "zero")
    return breaks


def add_norm_outliers(series: RowSeries, breaks: BreakRecord) -> None:
    """Add rows whose norm is above, or below, both neighbours', or that of all rows to an end."""
    norms = series.norms
    n = len(norms)
    norm_steps = np.diff(norms)
    is_jump = np.maximum(norms[1:], norms[:-1]) > MIN_NORM_RATIO * np.minimum(
        norms[1:], norms[:-1]
    )
    for side in side_levels(np.abs(norm_steps)):
        # Changes of norms scatter about 0, so the median of their sizes is their deviation.
        limit = noise_limits(side.count, 2 * n) * SD_PER_MAD * side.median
        is_jump &= (np.abs(norm_steps) > limit) | (side.count < MIN_SIDE_ROWS)
    typical = typical_values(norms)
    is_far = np.maximum(norms, typical) > MIN_NORM_RATIO * np.minimum(norms, typical)
    is_extreme = is_beyond_tail(norms, typical) | is_beyond_tail(typical, norms)
    is_jump &= is_extreme[1:] | is_extreme[:-1]
    is_jump &= series.can_change
    changes_sign = norm_steps[:-1] * norm_steps[1:] < 0
    is_peak = is_jump[:-1] & is_jump[1:] & changes_sign
    peaks = {pair + 1 for pair in np.flatnonzero(is_peak).tolist()}
    outlier_rows = set(peaks)
    for pair in np.flatnonzero(is_jump).tolist():
        if {pair, pair + 1} & peaks:
            continue
        for end in (slice(0, pair + 1), slice(pair + 1, n)):
            if len(norms[end]) < MIN_SIDE_ROWS and is_far[end].all():
                outlier_rows.update(range(n)[end])
    for row in sorted(outlier_rows):
        breaks.add_outlier(row, "norm", norms[row], typical[row])


def add_direction_outliers(series: RowSeries, breaks: BreakRecord) -> None:
    """Add rows whose mean cosine with all others is lower than that of the rows around them."""
    mean_cosines, can_change = series.mean_cosines, series.can_change
    cosine_distances = 1 - mean_cosines
    typical = typical_values(cosine_distances)
    is_outlier = (
        exceeds_sides(cosine_distances)
        & is_beyond_tail(cosine_distances, typical, check_gaps=True)
        & (cosine_distances > MIN_DIRECTION_RATIO * typical)
    )
    row_can_change = np.append(can_change, False) | np.append(False, can_change)
    is_outlier &= row_can_change | _is_off_path(series.rows)
    for row in np.flatnonzero(is_outlier).tolist():
        breaks.add_outlier(row, "direction", mean_cosines[row], 1 - typical[row])


def _is_off_path(rows: Floats) -> NDArray[np.bool_]:
    """Tell which rows are further from the middle of two rows around them than these are apart.

    Long steps of a random walk lead away and not back, however heavy their tails.
    """
    is_off = np.zeros(len(rows), dtype=bool)
    for lag in (1, 2, 4):
        before, middle, after = rows[: -2 * lag], rows[lag:-lag], rows[2 * lag :]
        distances = np.linalg.norm(middle - (before + after) / 2, axis=1)
        is_off[lag:-lag] |= distances > np.linalg.norm(after - before, axis=1)
    # Rows near an end are compared with one side only.
    is_off[:MIN_SIDE_ROWS] = is_off[-MIN_SIDE_ROWS:] = False
    return is_off
