"""The series of a table's rows in which breaks are found, and the record of the breaks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.limits import MIN_SIDE_ROWS, is_beyond_tail, typical_values
from posprobe.analyses.facts import Cause
from posprobe.analyses.result import centre_rows
from posprobe.arrays import Array, Floats, to_float64, to_numpy


@dataclass(frozen=True)
class RowSeries:
    """The series of a table's rows from which seams and outlier rows are found.

    Parameters
    ----------
    norms
        ``[n]``, norms of the rows as stored.
    mean_cosines
        ``[n]``, mean cosine of each row as stored with all others; NaN for a row of zeros.
    steps
        ``[n - 1]``, distances of neighbouring rows.
    chords
        ``[n - 1]``, distances of neighbouring centred directions.
    units
        ``[n, d]``, centred rows of length 1.
    rows
        ``[n, d]``, centred rows.
    """

    norms: Floats
    mean_cosines: Floats
    steps: Floats
    chords: Floats
    units: Floats
    rows: Floats

    @cached_property
    def has_long_step(self) -> NDArray[np.bool_]:
        """Whether a step is improbable in the tail of all steps, ``[n - 1]``."""
        return is_beyond_tail(self.steps, typical_values(self.steps))

    @cached_property
    def is_smooth(self) -> bool:
        """Whether rows are nearer to their neighbours than to rows a little further away.

        Two lags are compared, because rotations bring rows back after a period.
        """
        rows = self.rows
        distances = [
            np.median(np.linalg.norm(rows[lag:] - rows[:-lag], axis=1))
            for lag in (3, MIN_SIDE_ROWS)
        ]
        return bool(np.median(self.steps) < max(distances) / 2**0.5)

    @property
    def can_change(self) -> NDArray[np.bool_]:
        """Whether a table may change between a row and the next, ``[n - 1]``.

        Where neighbours are alike, nothing changes without a step that is improbable in the tail of
        all steps. Where they are not, steps say nothing.
        """
        return self.has_long_step if self.is_smooth else np.ones_like(self.has_long_step)


class BreakRecord:
    """Causes of the seams, by their left row, and of the outlier rows."""

    def __init__(self) -> None:
        self.seam_causes: dict[int, Cause] = {}
        self.outlier_causes: dict[int, list[Cause]] = {}

    def add_seam(self, left_row: int, cause: Cause) -> None:
        """Add a seam unless one is close, because one change can be found in several ways."""
        if all(
            abs(left_row - other_row) >= MIN_SIDE_ROWS for other_row in self.seam_causes
        ):
            self.seam_causes[left_row] = cause

    def add_outlier(self, row: int, reason: str, *numbers: float) -> None:
        """Add a cause of an outlier row; numbers are infinite where the typical value is 0."""
        cause = Cause(reason, tuple(map(float, numbers)))
        if np.isinf(numbers).any():
            cause = Cause(
                "among_equal", subject="patches" if reason == "patch_far" else "rows"
            )
        self.outlier_causes.setdefault(row, []).append(cause)

    def add_stretch(self, stretch_breaks: BreakRecord, first_row: int) -> None:
        """Add the seams and outlier rows of a stretch that begins with row ``first_row``."""
        for left_row, cause in sorted(stretch_breaks.seam_causes.items()):
            self.add_seam(first_row + left_row, cause)
        for row, causes in stretch_breaks.outlier_causes.items():
            self.outlier_causes.setdefault(first_row + row, []).extend(causes)


def compute_row_series(values: Array, xp: ModuleType) -> tuple[RowSeries, Floats, bool]:
    """Return the row series, the centred cosines of neighbours, and whether rows differ."""
    centred_rows, error = centre_rows(values, xp)
    lengths = xp.linalg.vector_norm(centred_rows, axis=1)
    rounding = error * values.shape[1] ** 0.5
    is_defined = to_numpy(lengths > rounding)
    units = centred_rows / xp.where(lengths > rounding, lengths, 1.0)[:, None]
    cosines = to_float64(xp.clip(xp.sum(units[1:] * units[:-1], axis=1), -1.0, 1.0))
    cosines[~(is_defined[1:] & is_defined[:-1])] = np.nan
    steps = to_float64(xp.linalg.vector_norm(values[1:] - values[:-1], axis=1))
    norms = xp.linalg.vector_norm(values, axis=1)
    directions = values / xp.where(norms > 0, norms, 1.0)[:, None]
    n_nonzero = max(int(xp.sum(norms > 0)), 2)
    mean_cosines = to_float64(
        (directions @ xp.sum(directions, axis=0) - 1.0) / (n_nonzero - 1)
    )
    mean_cosines[to_numpy(norms == 0)] = np.nan
    # Rows whose cosine differs from 1 by less than its rounding have one direction.
    is_different = 1 - cosines > 8 * float(xp.finfo(values.dtype).eps)
    series = RowSeries(
        norms=to_float64(norms),
        mean_cosines=mean_cosines,
        steps=np.where(steps > rounding, steps, 0.0),
        chords=np.sqrt(np.where(is_different, 2 - 2 * cosines, 0.0) + 0 * cosines),
        units=to_float64(units),
        rows=to_float64(centred_rows),
    )
    return series, cosines, bool(is_defined.any())
