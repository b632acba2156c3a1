"""Find the seams and the outlier rows of a table.

A table trained on sequences of mixed length has a seam where the shorter ones end (BERT's at
position 128), and rows that always hold the first or the last token differ from all others. Both
are found in three series: the step from each row to the next, their centred cosine, and the row
norm. Each is compared with the medians of its neighbourhood, so that neither slow trends nor a
general roughness are reported.

A seam means that two stretches of the table differ, not that either is untrained: the rows that a
model never saw in fine-tuning may be as regular as the other rows. A row with an extreme norm stays
an outlier in any order: null models that keep the table's row norms or step lengths keep such rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.changes import (
    find_step_changes,
    find_untrained_rows,
    place_level_change,
    place_norm_change,
)
from posprobe.analyses.breaks.copies import find_between_equal_rows, find_equal_rows
from posprobe.analyses.breaks.levels import find_level_changes
from posprobe.analyses.breaks.limits import (
    MAX_FALSE_ALARM_P,
    MAX_TAIL_P,
    MIN_EXCESS_RATIO,
    MIN_SIDE_ROWS,
    WINDOW_ROWS,
    exceeds_sides,
    is_beyond_tail,
    noise_limits,
    robust_level,
    side_levels,
    typical_values,
)
from posprobe.analyses.breaks.outlier_patches import find_outlier_patches, patch_refusal
from posprobe.analyses.breaks.outliers import (
    MIN_DIRECTION_RATIO,
    MIN_NORM_RATIO,
    add_direction_outliers,
    add_norm_outliers,
    find_zero_rows,
)
from posprobe.analyses.breaks.row_series import BreakRecord, RowSeries, compute_row_series
from posprobe.analyses.facts import Cause
from posprobe.analyses.result import HIDDEN, NEWER, JsonType, Result
from posprobe.arrays import Array, Floats, Positions, positions
from posprobe.layouts import Grid, Layout
from posprobe.number_types import PAIR_LIMITS, Reasons, Row, Text
from posprobe.tables import PositionTable

#: Where training blurred a seam, as in Whisper's decoders, this many steps in succession are long.
MIN_BLURRED_STEPS = 5
#: The mean of these steps is this multiple of the typical one. None of 972 tables of 54 processes
#: without a break has such a run.
MIN_BLURRED_STEP_RATIO = 1.5
#: The levels on the two sides of an outlier row differ by at least a tenth, in addition to the
#: deviations that are required.
MIN_LEVEL_RATIO = 1.1


@dataclass(frozen=True)
class SpecialRow:
    """A row that does not belong to the rows around it.

    Parameters
    ----------
    row
        Index of the row in the table.
    causes
        Reasons why the row is an outlier; one or more.
    """

    row: Row
    causes: Annotated[tuple[Cause, ...], HIDDEN]

    @property
    def reason(self) -> Annotated[Cause, JsonType(Text), "What is odd about it."]:
        """All causes as one."""
        return Cause("together", causes=self.causes)


@dataclass(frozen=True)
class SeamRule:
    """What a seam and a special row need."""

    window: int = WINDOW_ROWS
    min_side: int = MIN_SIDE_ROWS
    false_alarm: float = MAX_FALSE_ALARM_P
    tail_alarm: float = MAX_TAIL_P
    excess: float = MIN_EXCESS_RATIO
    change: float = MIN_LEVEL_RATIO
    norm_ratio: float = MIN_NORM_RATIO
    away: float = MIN_DIRECTION_RATIO


def _seam_positions(seams: Seams) -> list[tuple[int, int]] | None:
    """Return the two positions of each seam; None if seams are undefined."""
    pairs = [(left + seams.start, right + seams.start) for left, right in seams.between]
    return None if seams.undefined else pairs


def _untrained_positions(seams: Seams) -> list[int] | None:
    """Return the interval of the first row that looks untrained, as positions."""
    interval = seams.untrained_interval
    return interval and [row + seams.start for row in interval]


def _equal_positions(seams: Seams) -> list[tuple[int, int]]:
    """Return first and last position of each stretch of equal rows."""
    return [(first + seams.start, last + seams.start) for first, last in seams.equal]


def _outlier_positions(seams: Seams) -> tuple[SpecialRow, ...] | None:
    """Return the outlier rows with their positions; None if they are undefined."""
    outliers = (
        replace(outlier, row=outlier.row + seams.start) for outlier in seams.special
    )
    return None if seams.no_special else tuple(outliers)


#: Two neighbouring positions, in JSON.
Pair: TypeAlias = Annotated[list[Row], PAIR_LIMITS]


@dataclass(frozen=True, eq=False, repr=False)
class Seams(Result):
    """Breaks between neighbouring rows, and rows that stand apart.

    A seam says that the two sides differ, not that one is untrained. Rows with an odd norm stay odd
    in every null model that keeps the row norms.

    Parameters
    ----------
    between
        Pairs of neighbouring rows ``(i, i + 1)`` of the table with a seam between them.
    reasons
        Causes of the seams, one for each.
    special
        Outlier rows: far from every neighbour, or with a norm far from theirs, or zero; patches
        that are far from those beside them on the grid, or zero.
    cosines
        ``[n - 1]``, centred cosine of rows i and i + 1; NaN if a row is the mean row.
    steps
        ``[n - 1]``, distance of rows i and i + 1, in the table's units.
    norms
        ``[n]``, norms of the rows as stored.
    layout, start
        Layout of the positions, and the first of them.
    undefined
        Reason why seams are undefined, or empty.
    no_special
        Reason why outlier rows are undefined, or empty.
    untrained
        First row from which on all look as they were initialised; None if no rows do.
    untrained_interval
        First and last row that this may be; the interval held 95 % of planted ends or more.
    equal
        First and last row of each stretch of `MIN_SIDE_ROWS` or more equal rows, other than zeros;
        none in a table of blocks.
    rule
        Thresholds by which seams and outlier rows were found.
    """

    figures: ClassVar[str] = "rows.plot_seams"

    between: Annotated[
        tuple[tuple[int, int], ...],
        JsonType(list[Pair] | None, _seam_positions),
        "Neighbouring positions between which the table breaks.",
    ]
    reasons: Annotated[
        tuple[Cause, ...],
        JsonType(
            list[Text] | None, lambda record: None if record.undefined else record.reasons
        ),
        "What changes at each, with the numbers.",
    ]
    special: Annotated[
        tuple[SpecialRow, ...],
        JsonType(list[SpecialRow] | None, _outlier_positions),
        "Single positions that differ from those around them.",
    ]
    cosines: Floats
    steps: Floats
    norms: Floats
    layout: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]
    undefined: Annotated[str, JsonType(Reasons)] = ""
    no_special: Annotated[str, HIDDEN] = ""
    equal: Annotated[
        tuple[tuple[int, int], ...],
        JsonType(list[Pair], _equal_positions),
        "First and last position of each stretch of equal rows, other than zeros.",
    ] = ()
    untrained: Annotated[
        Row | None,
        NEWER,
        JsonType(
            Row | None,
            lambda record: record.untrained and record.untrained + record.start,
        ),
        "First position from which on rows look untrained.",
    ] = None
    untrained_interval: Annotated[
        tuple[int, int] | None,
        NEWER,
        JsonType(Pair | None, _untrained_positions),
        "Its 95 % interval.",
    ] = None
    rule: SeamRule = SeamRule()

    @property
    def partly(self) -> dict[str, str]:
        """Reasons of the undefined fields, by field."""
        reasons = {"special": self.no_special} if self.no_special else {}
        if self.untrained is None:
            reasons |= dict.fromkeys(
                ("untrained", "untrained_interval"), "no rows look untrained"
            )
        return reasons


def seams(table: PositionTable | Positions | Array) -> Seams:
    """Find the seams and the outlier rows of a table.

    A value stands out if it exceeds the median of up to `WINDOW_ROWS` values before it, and that of
    as many after it, each time by the factor `MIN_EXCESS_RATIO` and by more robust standard
    deviations than Gaussian noise reaches anywhere in the table with probability
    `MAX_FALSE_ALARM_P`. This number is Student's quantile, because the deviation is itself
    estimated from few values: 1.4826 times the median absolute deviation, or times the distance of
    the upper quartile from the median if that is larger.

    Outlier rows:

    - A pair of rows breaks if both their step and the chord of their centred directions stand out,
      and the step is improbable in the tail of all steps, by `MAX_TAIL_P`: where steps have heavy
      tails, a long one is no break. A row between two breaks is an outlier. Breaks that reach an
      end of the table, compared with one side only, make outliers of the rows up to there.
    - The norm of an outlier is above, or below, those of both neighbours by `MIN_NORM_RATIO`. So
      may be the norms of fewer than `MIN_SIDE_ROWS` rows up to an end of the table.
    - The mean cosine of an outlier with all others is lower than those of its neighbours, by
      `MIN_DIRECTION_RATIO` times their distance from 1 and beyond the tail of its distribution.
    - Where neighbouring rows are alike, neither cosine nor norm changes without a long step.
    - On a grid, where there are no seams, a patch is an outlier if it is zero, or far from those
      beside it (`posprobe.analyses.breaks.outlier_patches`).

    Seams:

    - A break without an outlier row is a seam. A run of breaks is one seam if the table differs on
      both sides of it: in level, or by the chord across the run compared with chords of the same
      span. The seam is where the table begins again with its first row; else at the middle pair (of
      two the later, because the last row of a block is the different one).
    - `MIN_SIDE_ROWS` or more equal rows are a stretch with a seam at either end, and the other rows
      are examined by themselves. A table of `MIN_SIDE_ROWS` or more blocks of equal rows has no
      seams.
    - Without a break there is a seam where the level of norms, steps or chords changes abruptly and
      for good: by as many deviations, by `MIN_EXCESS_RATIO`, and at least half of it from one row
      to the next (for steps and chords: over the pair that crosses). It is placed where it explains
      single rows best (`posprobe.analyses.breaks.changes`).
    - There is a seam where the mean of 16 or 32 rows is further from that of the next as many than
      anywhere in draws with the same powers without a change
      (`posprobe.analyses.breaks.levels`), between the seams found so far. Outlier rows are left
      out, so that one between two stretches of unlike level does not hide their change.
    - There is a seam in the middle of `MIN_BLURRED_STEPS` long steps: `MIN_BLURRED_STEP_RATIO` the
      typical step, and beyond the tail of the means of as many steps.
    - There is a seam where the length of steps changes abruptly, however rough they are, and a
      smooth trend over the table does not describe it as well (`posprobe.analyses.breaks.changes`).
    - There is a seam where rows begin that look as they were initialised, after rows that do not
      (`posprobe.analyses.breaks.changes`).

    Parameters
    ----------
    table
        ``[n, d]``. Seams are undefined on a grid, below ``2 * MIN_SIDE_ROWS`` rows and for one
        column; outlier patches below `MIN_PATCHES` or `MIN_PATCHES_ALONG` on a side.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.

    Examples
    --------
    >>> import posprobe as pp
    >>> table = pp.load("sample:all-minilm-l6-v2")
    >>> pp.seams(table).between
    ((127, 128),)
    >>> pp.seams(table).special[0].row
    0
    """
    inputs = positions(table, sums_squares=True)
    values, xp, n = inputs.values, inputs.xp, inputs.values.shape[0]
    series, cosines, rows_differ = compute_row_series(values, xp)
    reason = ""
    if n < 2 * MIN_SIDE_ROWS:
        reason = f"fewer than {2 * MIN_SIDE_ROWS} rows"
    elif values.shape[1] < 2:
        reason = "a single column has no directions"
    elif not rows_differ:
        reason = "all rows are equal"
    no_special, breaks = reason, BreakRecord()
    equal_groups: list[tuple[int, int]] | None = []
    untrained: tuple[int, int, int] | None = None
    if isinstance(inputs.layout, Grid):
        reason = (
            "patches lie on a grid: neighbours in the table need not be neighbours there"
        )
        no_special = patch_refusal(inputs.layout, rows_equal=not rows_differ)
        patch_breaks = None if no_special else find_outlier_patches(series, inputs.layout)
        if not no_special and patch_breaks is None:
            no_special = "many patches are copies of those around them, and many are not"
        breaks = patch_breaks or breaks
    elif not reason:
        equal_groups = find_equal_rows(values, xp)
        breaks = _find_in_sequence(series, equal_groups, inputs.start)
        untrained = _add_untrained_seam(series, breaks)
    left_rows = sorted(breaks.seam_causes)
    return Seams(
        between=tuple((left_row, left_row + 1) for left_row in left_rows),
        reasons=tuple(breaks.seam_causes[left_row] for left_row in left_rows),
        special=tuple(
            SpecialRow(row, tuple(breaks.outlier_causes[row]))
            for row in sorted(breaks.outlier_causes)
        ),
        cosines=cosines,
        steps=series.steps,
        norms=series.norms,
        layout=inputs.layout,
        start=inputs.start,
        undefined=reason,
        no_special=no_special,
        equal=tuple(
            (start, stop - 1) for start, stop in equal_groups or () if series.norms[start]
        ),
        untrained=untrained and untrained[0],
        untrained_interval=untrained and untrained[1:],
    )


def _find_in_sequence(
    series: RowSeries, equal_groups: list[tuple[int, int]] | None, start: int
) -> BreakRecord:
    """Find the breaks of a sequence, whose equal rows are None if it is a table of blocks."""
    if equal_groups is None:
        return find_zero_rows(series)
    if equal_groups:
        return find_between_equal_rows(series, equal_groups, start, _find_breaks)
    return _find_breaks(series)


def _add_untrained_seam(
    series: RowSeries, breaks: BreakRecord
) -> tuple[int, int, int] | None:
    """Add a seam at the first row that looks untrained; return that row and its interval."""
    untrained_rows = find_untrained_rows(series.rows)
    if untrained_rows is None:
        return None
    start, earliest, latest = untrained_rows
    # A seam that was found by other means is placed more exactly.
    known_rows = [
        left_row + 1
        for left_row in breaks.seam_causes
        if earliest - MIN_SIDE_ROWS <= left_row + 1 <= latest + MIN_SIDE_ROWS
    ]
    start = min(known_rows, key=lambda row: abs(row - start), default=start)
    breaks.seam_causes.setdefault(start - 1, Cause("untrained"))
    return start, min(earliest, start), max(latest, start)


def _find_breaks(series: RowSeries) -> BreakRecord:
    """Find all breaks of a table without equal rows, the most certain first."""
    breaks = find_zero_rows(series)
    _add_step_breaks(series, breaks)
    add_norm_outliers(series, breaks)
    add_direction_outliers(series, breaks)
    _add_level_seams(series, breaks)
    for row, factor in find_step_changes(series.steps):
        breaks.add_seam(place_norm_change(series, row - 1), Cause("pace", (factor,)))
    _add_mean_seams(series, breaks)
    _add_blurred_seams(series, breaks)
    return breaks


def _add_step_breaks(series: RowSeries, breaks: BreakRecord) -> None:
    """Add the outlier rows and seams at steps that stand out in length and direction."""
    steps = series.steps
    end_pair = len(steps) - 1
    is_break = exceeds_sides(steps) & exceeds_sides(series.chords) & series.has_long_step
    typical_steps = typical_values(steps)
    ratios = np.full_like(typical_steps, np.inf)
    np.divide(steps, typical_steps, out=ratios, where=typical_steps > 0)
    for first_pair, last_pair in _true_runs(is_break):
        if first_pair == 0 and last_pair == end_pair:
            continue
        if first_pair == 0:
            for row in range(last_pair + 1):
                breaks.add_outlier(row, "far_from_next", ratios[row])
            continue
        if last_pair == end_pair:
            for row in range(first_pair + 1, end_pair + 2):
                breaks.add_outlier(row, "far_from_previous", ratios[row - 1])
            continue
        for row in range(first_pair + 1, last_pair + 1):
            breaks.add_outlier(row, "far_from_both", ratios[row - 1], ratios[row])
        if first_pair < MIN_SIDE_ROWS or last_pair > end_pair - MIN_SIDE_ROWS:
            continue
        if first_pair == last_pair:
            cosine = 1 - float(series.chords[first_pair]) ** 2 / 2
            step = Cause("step", (float(ratios[first_pair]), cosine))
            if not np.isfinite(ratios[first_pair]):
                step = Cause("step_among_equal", (cosine,))
            breaks.add_seam(first_pair, step)
        else:
            change = _find_change(series, first_pair, last_pair)
            if change:
                breaks.add_seam(_seam_row(series, first_pair, last_pair), change)


def _seam_row(series: RowSeries, start: int, end: int) -> int:
    """Return the left row of the seam in a run of breaks between pairs ``start`` and ``end``."""
    repeats_first_row = (series.rows[start + 1 : end + 2] == series.rows[0]).all(axis=1)
    if series.norms[0] > 0 and repeats_first_row.any():
        return start + int(np.argmax(repeats_first_row))
    return (start + end + 1) // 2


def _find_change(series: RowSeries, start: int, end: int) -> Cause | None:
    """Return the difference of the rows up to ``start`` from those after ``end``, if any."""
    span = end + 1 - start
    sides_by_series = {
        "norms": (series.norms[: start + 1], series.norms[end + 1 :]),
        "steps": (series.steps[:start], series.steps[end + 1 :]),
        "adjacent chords": (series.chords[:start], series.chords[end + 1 :]),
    }
    for name, (before, after) in sides_by_series.items():
        left_level, left_spread = robust_level(before[-WINDOW_ROWS:])
        right_level, right_spread = robust_level(after[:WINDOW_ROWS])
        min_deviations = noise_limits(
            np.array(min(len(before), len(after), WINDOW_ROWS)), 4
        )
        difference = abs(left_level - right_level)
        is_abrupt = abs(float(after[0] - before[-1])) >= difference / 2
        exceeds_noise = difference > min_deviations * max(left_spread, right_spread)
        higher, lower = max(left_level, right_level), min(left_level, right_level)
        if exceeds_noise and higher > MIN_LEVEL_RATIO * lower and is_abrupt:
            return Cause("level", (left_level, right_level), name)
    chords = np.linalg.norm(series.units[span:] - series.units[:-span], axis=1)
    crossing_chord = chords[start]
    chords_before = chords[: max(start - span + 1, 0)][-WINDOW_ROWS:]
    chords_after = chords[end + 1 :][:WINDOW_ROWS]
    for side_chords in (chords_before, chords_after):
        if len(side_chords) < MIN_SIDE_ROWS:
            return None
        level, deviation = robust_level(side_chords)
        limit = noise_limits(np.array(len(side_chords)), 4) * deviation
        if not (
            crossing_chord - level > limit and crossing_chord > MIN_LEVEL_RATIO * level
        ):
            return None
    typical_chord = np.median(np.concatenate([chords_before, chords_after]))
    crossing_cosine = 1 - float(crossing_chord) ** 2 / 2
    typical_cosine = 1 - float(typical_chord) ** 2 / 2
    return Cause("across", (crossing_cosine, span, typical_cosine))


def _add_level_seams(series: RowSeries, breaks: BreakRecord) -> None:
    """Add seams where the level of a series changes abruptly and for good."""
    for name, values, n_crossing in (
        ("norms", series.norms, 0),
        ("steps", series.steps, 1),
        ("adjacent chords", series.chords, 1),
    ):
        before, after = side_levels(values)
        # The left side ends with one value, and the right side begins after the pair that crosses.
        right = np.arange(1 + n_crossing, len(values))
        left = right - 1 - n_crossing
        low, high = before.median[left + 1], after.median[right - 1]
        deviations = np.fmax(before.deviation[left + 1], after.deviation[right - 1])
        counts = np.minimum(before.count[left + 1], after.count[right - 1])
        differences = np.abs(high - low)
        jumps = np.abs(values[right] - values[left])
        with np.errstate(invalid="ignore"):
            has_changed = (
                (differences > noise_limits(counts, len(values)) * deviations)
                & (np.fmax(low, high) > MIN_EXCESS_RATIO * np.fmin(low, high))
                & (jumps >= differences / 2)
            )
        if name == "norms":
            has_changed &= series.can_change[left]
        for start, end in _true_runs(has_changed):
            best = start + int(np.argmax(differences[start : end + 1]))
            cause = Cause("level", (float(low[best]), float(high[best])), name)
            left_row = place_level_change(
                values, n_crossing, int(left[best]) + n_crossing
            )
            breaks.add_seam(
                place_norm_change(series, left_row) if n_crossing else left_row, cause
            )


def _add_mean_seams(series: RowSeries, breaks: BreakRecord) -> None:
    """Add seams where the mean row changes, abruptly and for good."""
    for change in find_level_changes(
        series, set(breaks.outlier_causes), set(breaks.seam_causes)
    ):
        evidence = change.width, change.distance, change.typical_distance
        breaks.add_seam(change.left_row, Cause("means", evidence))


def _add_blurred_seams(series: RowSeries, breaks: BreakRecord) -> None:
    """Add seams at a few successive steps that are longer than all others, none of them by much."""
    means = np.convolve(
        series.steps, np.full(MIN_BLURRED_STEPS, 1 / MIN_BLURRED_STEPS), "valid"
    )
    if len(means) < 4 * MIN_SIDE_ROWS:
        return
    typical_means = typical_values(means)
    with np.errstate(invalid="ignore"):
        is_blurred = is_beyond_tail(means, typical_means, check_gaps=True) & (
            means > MIN_BLURRED_STEP_RATIO * typical_means
        )
    is_blurred[: 2 * MIN_SIDE_ROWS] = is_blurred[-2 * MIN_SIDE_ROWS :] = False
    for start, end in _true_runs(is_blurred):
        best = start + int(np.argmax(means[start : end + 1]))
        left_row = best + MIN_BLURRED_STEPS // 2
        other_rows = [*breaks.outlier_causes, *breaks.seam_causes]
        if all(abs(left_row - row) > 2 * MIN_SIDE_ROWS for row in other_rows):
            ratio = float(means[best] / typical_means[best])
            breaks.add_seam(left_row, Cause("long_steps", (MIN_BLURRED_STEPS, ratio)))


def _true_runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return first and last index of each run of true values."""
    edges = np.flatnonzero(
        np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8))
    )
    return [(int(start), int(stop) - 1) for start, stop in edges.reshape(-1, 2)]
