"""Seams and special rows: where a table changes, and which rows do not belong to the rest.

A table trained on sequences of mixed length has an edge where the shorter ones end (BERT's at
position 128), and rows that always hold the first or the last token differ from all others. Both
are read off three series: the step from each row to the next, their adjacent centred cosine, and
the row norm. Each is compared with its own neighbourhood by medians, so that slow trends raise no
alarm and neither does a general roughness.

A seam says that two parts of the table differ, not that either is untrained: the rows that a model
never saw in fine-tuning may be as regular as the rest. And a row with an odd norm stays odd in any
order: null models that keep the table's row norms or step lengths keep such rows too.

A few odd rows decide numbers that are about the rest: GPT-2's first row alone moves its first
component's share by twenty points. What is measured of a table is therefore measured on its longest
stretch without a seam and without a special row as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from types import ModuleType
from typing import Annotated, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.breaks.changes import by_level, by_norm, pace_changes, untrained_from
from posprobe.analyses.breaks.copies import equal_rows, find_beside
from posprobe.analyses.breaks.outliers import (
    EXCESS,
    FALSE_ALARM,
    MIN_DIRECTION_RATIO,
    MIN_SIDE,
    NORM_RATIO,
    TAIL_ALARM,
    WINDOW,
    BreakRecord,
    Series,
    beyond_tail,
    deviations,
    level_of,
    no_special_patches,
    odd_directions,
    odd_norms,
    sides,
    special_patches,
    stands_out,
    usual_values,
    zero_rows,
)
from posprobe.analyses.facts import Cause
from posprobe.analyses.linear import SD_PER_MAD, robust_sd
from posprobe.analyses.result import HIDDEN, NEWER, As, Result, centred
from posprobe.arrays import Array, Floats, Positions, positions, to_numpy
from posprobe.layouts import Grid, Layout
from posprobe.number_types import PAIR_LIMITS, Reasons, Row, Text
from posprobe.tables import PositionTable

#: Steps in a row that are long together where training blurred a boundary, as in Whisper's
#: decoders, and the ratio of their mean to what is usual. Of 972 tables of 54 processes without a
#: break none has such a run.
MIN_BLURRED_STEPS, MIN_BLURRED_STEP_RATIO = 5, 1.5
#: Ratio of two levels from which the two sides of a special row differ: a tenth, beside the
#: deviations that are asked for anyway.
CHANGE = 1.1


@dataclass(frozen=True)
class SpecialRow:
    """A row that does not belong to the rows around it.

    Parameters
    ----------
    row
        Counted from the table's first.
    causes
        Reasons why the row is an outlier; one or more.
    """

    row: Row
    causes: Annotated[tuple[Cause, ...], HIDDEN]

    @property
    def reason(self) -> Annotated[Cause, As(Text), "What is odd about it."]:
        """All of them, as one."""
        return Cause("together", causes=self.causes)


@dataclass(frozen=True)
class SeamRule:
    """What a seam and a special row need."""

    window: int = WINDOW
    min_side: int = MIN_SIDE
    false_alarm: float = FALSE_ALARM
    tail_alarm: float = TAIL_ALARM
    excess: float = EXCESS
    change: float = CHANGE
    norm_ratio: float = NORM_RATIO
    away: float = MIN_DIRECTION_RATIO


def _between(seams_record: Seams) -> list[tuple[int, int]] | None:
    """Return pairs of rows as positions."""
    pairs = [
        (left + seams_record.start, right + seams_record.start)
        for left, right in seams_record.between
    ]
    return None if seams_record.undefined else pairs


def _interval(seams_record: Seams) -> list[int] | None:
    """Return the interval of where rows begin to look untrained as positions."""
    untrained = seams_record.untrained_interval
    return untrained and [row + seams_record.start for row in untrained]


def _equal(seams_record: Seams) -> list[tuple[int, int]]:
    """Return ends of equal rows as positions."""
    return [
        (first + seams_record.start, last + seams_record.start)
        for first, last in seams_record.equal
    ]


def _special(seams_record: Seams) -> tuple[SpecialRow, ...] | None:
    """Return special rows as positions."""
    shifted = (
        replace(outlier, row=outlier.row + seams_record.start) for outlier in seams_record.special
    )
    return None if seams_record.no_special else tuple(shifted)


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
        Pairs of neighbouring rows ``(i, i + 1)``, counted from the table's first, with a seam
        between them.
    reasons
        Causes of the seams, one for each.
    special
        Rows far from every neighbour that they have, or with a norm far from theirs, or zero;
        patches far from those beside them on the grid, or zero.
    cosines
        ``[n - 1]``: centred cosine of rows i and i + 1; NaN where a row is the mean row.
    steps
        ``[n - 1]``: distance of rows i and i + 1, in the table's units.
    norms
        ``[n]``: as stored.
    layout, start
        Layout and first of the positions.
    undefined
        Reason why no seams were looked for, or empty.
    no_special
        Reason why no special rows were looked for, or empty.
    untrained
        First row from which on all look as they were initialised; None where none do.
    untrained_interval
        Least and most that this may be: an interval that held 95 % of planted ends or more.
    equal
        First and last row of each stretch of `MIN_SIDE` or more equal rows; none of rows of zeros,
        or in a table of blocks.
    """

    figures: ClassVar[str] = "rows.plot_seams"

    between: Annotated[
        tuple[tuple[int, int], ...],
        As(list[Pair] | None, _between),
        "Neighbouring positions between which the table breaks.",
    ]
    reasons: Annotated[
        tuple[Cause, ...],
        As(list[Text] | None, lambda record: None if record.undefined else record.reasons),
        "What changes at each, with the numbers.",
    ]
    special: Annotated[
        tuple[SpecialRow, ...],
        As(list[SpecialRow] | None, _special),
        "Single positions that differ from those around them.",
    ]
    cosines: Floats
    steps: Floats
    norms: Floats
    layout: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]
    undefined: Annotated[str, As(Reasons)] = ""
    no_special: Annotated[str, HIDDEN] = ""
    equal: Annotated[
        tuple[tuple[int, int], ...],
        As(list[Pair], _equal),
        "First and last position of each stretch of equal rows, other than zeros.",
    ] = ()
    untrained: Annotated[
        Row | None,
        NEWER,
        As(Row | None, lambda record: record.untrained and record.untrained + record.start),
        "First position from which on rows look untrained.",
    ] = None
    untrained_interval: Annotated[
        tuple[int, int] | None,
        NEWER,
        As(Pair | None, _interval),
        "Its 95 % interval.",
    ] = None
    rule: SeamRule = SeamRule()

    @property
    def partly(self) -> dict[str, str]:
        """Reason for what has one of its own."""
        missing = {"special": self.no_special} if self.no_special else {}
        if self.untrained is None:
            missing |= dict.fromkeys(("untrained", "untrained_interval"), "no rows look untrained")
        return missing


def seams(table: PositionTable | Positions | Array) -> Seams:
    """Find the seams and the special rows of a table.

    A value stands out where it exceeds the median of up to `WINDOW` values before it, and that of
    as many after it, each time by the factor `EXCESS` and by more robust standard deviations than
    Gaussian noise reaches anywhere in the table with probability `FALSE_ALARM`: Student's quantile,
    as the deviation is itself estimated from few values. It is 1.4826 times the median absolute
    deviation, or the upper quartile's distance from the median where that is larger.

    - A pair of rows breaks where both their step and the chord of their centred directions stand
      out, and the step is outside the tail of the steps' own distribution, by `TAIL_ALARM`: where
      steps have heavy tails, a long one is no break. Breaks that reach an end of the table make the
      rows up to there special, compared with one side only. A row between two breaks is special.
    - `MIN_SIDE` or more equal rows are a stretch with a seam at either end, and the other rows are
      looked at by themselves. Of a table of `MIN_SIDE` or more blocks of equal rows these are
      usual, and there are no seams.
    - A break with no special row in it is a seam. A run of breaks is one seam if the table differs
      on both sides of it: in level, or by the chord across the run against chords of the same span.
      It stands where the table begins again with its first row; else at the middle pair (of two
      the later, as the last row of a block is the odd one).
    - A row is special, too, where its norm departs from both neighbours' to the same side, by
      `NORM_RATIO`; or rows up to an end of the table fewer than `MIN_SIDE` rows away.
    - A row is special where its mean cosine with all others is lower than its neighbours', by
      `MIN_DIRECTION_RATIO` times their distance from 1 and outside the tail of its distribution.
    - Where neighbouring rows are alike, neither that nor a norm changes without such a step.
    - Without a break there is a seam where the level of norms, steps or chords changes at once and
      for good: by as many deviations, by `EXCESS`, and at least half of it from one row to the next
      (steps and chords: over the pair that crosses).
    - Or where the mean of `MIN_SIDE` rows is further from that of the next as many than the means
      beside them are from theirs: by `EXCESS`, and by ln(n / `FALSE_ALARM`) deviations, between the
      seams found so far.
    - Where a level changes, the seam stands where single rows are explained best
      (`posprobe.analyses.breaks.changes`).
    - Or in the middle of `MIN_BLURRED_STEPS` steps that are long together: `MIN_BLURRED_STEP_RATIO`
      the usual, and outside the tail of the means of as many steps.
    - Or where the length of steps changes at once, however rough they are, and a smooth trend over
      the table does not describe it as well (`posprobe.analyses.breaks.changes`).
    - Or where rows begin that look as they were initialised, after rows that do not
      (`posprobe.analyses.breaks.changes`).
    - On a grid, where there are no seams, a patch is special that is far from those beside it
      (`posprobe.analyses.breaks.outliers`), or zero.

    Parameters
    ----------
    table
        ``[n, d]``. Seams are undefined on a grid, below ``2 * MIN_SIDE`` rows and for one column;
        special patches below `MIN_PATCHES` or `MIN_PATCHES_ALONG` on a side.

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
    positions_given = positions(table, sums_squares=True)
    values, xp, n = positions_given.values, positions_given.xp, positions_given.values.shape[0]
    series, cosines, varies = _series(values, xp)
    reason = ""
    if n < 2 * MIN_SIDE:
        reason = f"fewer than {2 * MIN_SIDE} rows"
    elif values.shape[1] < 2:
        reason = "a single column has no directions"
    elif not varies:
        reason = "all rows are equal"
    no_special, breaks = reason, BreakRecord()
    equal_groups: list[tuple[int, int]] | None = []
    untrained: tuple[int, int, int] | None = None
    if isinstance(positions_given.layout, Grid):
        reason = "patches lie on a grid: neighbours in the table need not be neighbours there"
        no_special = no_special_patches(positions_given.layout, equal=not varies)
        odd = None if no_special else special_patches(series, positions_given.layout)
        if not no_special and odd is None:
            no_special = "many patches are copies of those around them, and many are not"
        breaks = odd or breaks
    elif not reason:
        equal_groups = equal_rows(values, xp)
        breaks = _find_on_a_line(series, equal_groups, positions_given.start)
        untrained = _untrained(series, breaks)
    lefts = sorted(breaks.between)
    return Seams(
        between=tuple((left_row, left_row + 1) for left_row in lefts),
        reasons=tuple(breaks.between[left_row] for left_row in lefts),
        special=tuple(
            SpecialRow(row, tuple(breaks.special[row])) for row in sorted(breaks.special)
        ),
        cosines=cosines,
        steps=series.steps,
        norms=series.norms,
        layout=positions_given.layout,
        start=positions_given.start,
        undefined=reason,
        no_special=no_special,
        equal=tuple((start, stop - 1) for start, stop in equal_groups or () if series.norms[start]),
        untrained=untrained and untrained[0],
        untrained_interval=untrained and untrained[1:],
    )


def _series(values: Array, xp: ModuleType) -> tuple[Series, Floats, bool]:
    """Return what breaks are read off, centred cosines of neighbours, and whether rows differ."""
    centered, error = centred(values, xp)
    length = xp.linalg.vector_norm(centered, axis=1)
    rounding = error * values.shape[1] ** 0.5
    defined = to_numpy(length > rounding)
    units = centered / xp.where(length > rounding, length, 1.0)[:, None]
    cosines = _host(xp.clip(xp.sum(units[1:] * units[:-1], axis=1), -1.0, 1.0))
    cosines[~(defined[1:] & defined[:-1])] = np.nan
    steps = _host(xp.linalg.vector_norm(values[1:] - values[:-1], axis=1))
    norms = xp.linalg.vector_norm(values, axis=1)
    directions = values / xp.where(norms > 0, norms, 1.0)[:, None]
    n_nonzero = max(int(xp.sum(norms > 0)), 2)
    likeness = _host((directions @ xp.sum(directions, axis=0) - 1.0) / (n_nonzero - 1))
    likeness[to_numpy(norms == 0)] = np.nan
    # Below the rounding of a cosine, rows have one direction.
    differs = 1 - cosines > 8 * float(xp.finfo(values.dtype).eps)
    series = Series(
        norms=_host(norms),
        likeness=likeness,
        steps=np.where(steps > rounding, steps, 0.0),
        chords=np.sqrt(np.where(differs, 2 - 2 * cosines, 0.0) + 0 * cosines),
        units=_host(units),
        rows=_host(centered),
    )
    return series, cosines, bool(defined.any())


def _host(array: Array) -> Floats:
    return np.array(to_numpy(array), dtype=np.float64)


def _find_on_a_line(
    series: Series, equal_groups: list[tuple[int, int]] | None, start: int
) -> BreakRecord:
    if equal_groups is None:
        return zero_rows(series)
    return find_beside(series, equal_groups, start, _find) if equal_groups else _find(series)


def _untrained(series: Series, breaks: BreakRecord) -> tuple[int, int, int] | None:
    """Look for the first row that looks untrained, and break the table there."""
    untrained_rows = untrained_from(series.rows)
    if untrained_rows is None:
        return None
    start, low, high = untrained_rows
    # What is seen as a change there already has the better place.
    places = [
        left_row + 1
        for left_row in breaks.between
        if low - MIN_SIDE <= left_row + 1 <= high + MIN_SIDE
    ]
    start = min(places, key=lambda place: abs(place - start), default=start)
    breaks.between.setdefault(start - 1, Cause("untrained"))
    return start, min(low, start), max(high, start)


def _find(series: Series) -> BreakRecord:
    breaks = zero_rows(series)
    _breaks(series, breaks)
    odd_norms(series, breaks)
    odd_directions(series, breaks)
    _levels(series, breaks)
    for row, factor in pace_changes(series.steps):
        breaks.seam(by_norm(series, row - 1), Cause("pace", (factor,)))
    _blocks(series, breaks)
    _long_steps(series, breaks)
    return breaks


def _breaks(series: Series, breaks: BreakRecord) -> None:
    last = len(series.steps) - 1
    typical = usual_values(series.steps)
    broken = stands_out(series.steps) & stands_out(series.chords)
    broken &= series.torn
    times = np.divide(series.steps, typical, out=np.full_like(typical, np.inf), where=typical > 0)
    for first, end in _runs(broken):
        if first == 0 and end == last:
            continue
        if first == 0:
            for row in range(end + 1):
                breaks.row(row, "far_from_next", times[row])
            continue
        if end == last:
            for row in range(first + 1, last + 2):
                breaks.row(row, "far_from_previous", times[row - 1])
            continue
        for row in range(first + 1, end + 1):
            breaks.row(row, "far_from_both", times[row - 1], times[row])
        if first < MIN_SIDE or end > last - MIN_SIDE:
            continue
        if first == end:
            cosine = 1 - float(series.chords[first]) ** 2 / 2
            step = Cause("step", (float(times[first]), cosine))
            if not np.isfinite(times[first]):
                step = Cause("step_among_equal", (cosine,))
            breaks.seam(first, step)
        else:
            change = _change(series, first, end)
            if change:
                breaks.seam(_place(series, first, end), change)


def _place(series: Series, start: int, end: int) -> int:
    """Return the pair of a run of breaks at which one part of the table ends."""
    repeats_first_row = (series.rows[start + 1 : end + 2] == series.rows[0]).all(axis=1)
    begins = series.norms[0] > 0 and repeats_first_row.any()
    return start + int(np.argmax(repeats_first_row)) if begins else (start + end + 1) // 2


def _change(series: Series, start: int, end: int) -> Cause | None:
    """Return what differs between the rows up to ``start`` and those from ``end + 1``, if any."""
    span = end + 1 - start
    parts = {
        "norms": (series.norms[: start + 1], series.norms[end + 1 :]),
        "steps": (series.steps[:start], series.steps[end + 1 :]),
        "adjacent chords": (series.chords[:start], series.chords[end + 1 :]),
    }
    for name, (before, after) in parts.items():
        (low, left), (high, right) = level_of(before[-WINDOW:]), level_of(after[:WINDOW])
        limit = deviations(np.array(min(len(before), len(after), WINDOW)), 4)
        difference = abs(low - high)
        abrupt = abs(float(after[0] - before[-1])) >= difference / 2
        exceeds = difference > limit * max(left, right) and max(low, high) > CHANGE * min(low, high)
        if exceeds and abrupt:
            return Cause("level", (low, high), name)
    spans = np.linalg.norm(series.units[span:] - series.units[:-span], axis=1)
    step_length = spans[start]
    outside = (spans[: max(start - span + 1, 0)][-WINDOW:], spans[end + 1 :][:WINDOW])
    for values in outside:
        if len(values) < MIN_SIDE:
            return None
        level, deviation = level_of(values)
        excess = step_length - level > deviations(np.array(len(values)), 4) * deviation
        if not (excess and step_length > CHANGE * level):
            return None
    typical = np.median(np.concatenate(outside))
    return Cause("across", (1 - float(step_length) ** 2 / 2, span, 1 - float(typical) ** 2 / 2))


def _levels(series: Series, breaks: BreakRecord) -> None:
    """Look for levels that change at once and for good, between rows i and i + 1."""
    for name, values, crossing in (
        ("norms", series.norms, 0),
        ("steps", series.steps, 1),
        ("adjacent chords", series.chords, 1),
    ):
        before, after = sides(values)
        # Left of the change ends at value j; right of it begins after the pair that crosses.
        right = np.arange(1 + crossing, len(values))
        left = right - 1 - crossing
        low, high = before.median[left + 1], after.median[right - 1]
        deviation = np.fmax(before.deviation[left + 1], after.deviation[right - 1])
        count = np.minimum(before.count[left + 1], after.count[right - 1])
        difference = np.abs(high - low)
        jump = np.abs(values[right] - values[left])
        with np.errstate(invalid="ignore"):
            has_changed = (
                (difference > deviations(count, len(values)) * deviation)
                & (np.fmax(low, high) > EXCESS * np.fmin(low, high))
                & (jump >= difference / 2)
            )
        if name == "norms":
            has_changed &= series.may_change[left]
        for start, end in _runs(has_changed):
            best = start + int(np.argmax(difference[start : end + 1]))
            cause = Cause("level", (float(low[best]), float(high[best])), name)
            place = by_level(values, crossing, int(left[best]) + crossing)
            breaks.seam(by_norm(series, place) if crossing else place, cause)


def _blocks(series: Series, breaks: BreakRecord) -> None:
    """Look for means of `MIN_SIDE` rows further from the next than the means beside them are.

    Between the seams that are known by now, since parts of a table differ in how far is usual.
    """
    m = MIN_SIDE
    sums, width = series.rows, 1
    while width < m:
        sums, width = sums[:-width] + sums[width:], 2 * width
    # Distance of the mean of rows j to j + m - 1 from that of the m rows after them.
    distance = np.linalg.norm(sums[m:] - sums[:-m], axis=1) / m
    odd = np.array(sorted(breaks.special), dtype=int)
    edges = [0, *(left_row + 1 for left_row in sorted(breaks.between)), len(series.norms)]
    for start, stop in pairwise(edges):
        # Left rows of boundaries with two blocks on each side, and no special row in them.
        candidates = np.arange(start + 2 * m - 1, stop - 2 * m)
        before, after = (
            np.searchsorted(odd, candidates + offset) for offset in (1 - 2 * m, 2 * m + 1)
        )
        candidates = candidates[before == after]
        if not candidates.size:
            continue
        block_distance = distance[candidates + 1 - m]
        neighbour_distance = np.maximum(distance[candidates + 1 - 2 * m], distance[candidates + 1])
        excess = block_distance - neighbour_distance
        typical, upper = np.quantile(excess, (0.5, 0.75))
        spread = max(robust_sd(excess), SD_PER_MAD * (upper - typical))
        # In few dimensions, means have heavier tails than Gaussian ones.
        offset = excess - typical > np.log(len(series.norms) / FALSE_ALARM) * spread
        offset &= (block_distance > EXCESS * neighbour_distance) & series.may_change[candidates]
        typical_distance = np.median(distance[start : stop + 1 - 2 * m])
        for run in np.split(
            np.flatnonzero(offset), np.flatnonzero(np.diff(candidates[offset]) > 1) + 1
        ):
            if run.size:
                best = run[np.argmax(excess[run])]
                evidence = m, float(block_distance[best]), float(typical_distance)
                breaks.seam(int(candidates[best]), Cause("means", evidence))


def _long_steps(series: Series, breaks: BreakRecord) -> None:
    """Look for a few steps in a row that are longer than all others, none of them by much."""
    means = np.convolve(series.steps, np.full(MIN_BLURRED_STEPS, 1 / MIN_BLURRED_STEPS), "valid")
    if len(means) < 4 * MIN_SIDE:
        return
    typical = usual_values(means)
    with np.errstate(invalid="ignore"):
        odd = beyond_tail(means, typical, gap=True) & (means > MIN_BLURRED_STEP_RATIO * typical)
    odd[: 2 * MIN_SIDE] = odd[-2 * MIN_SIDE :] = False
    for start, end in _runs(odd):
        best = start + int(np.argmax(means[start : end + 1]))
        left_row = best + MIN_BLURRED_STEPS // 2
        known_rows = [*breaks.special, *breaks.between]
        if all(abs(left_row - known_row) > 2 * MIN_SIDE for known_row in known_rows):
            times = float(means[best] / typical[best])
            breaks.seam(left_row, Cause("long_steps", (MIN_BLURRED_STEPS, times)))


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return first and last index of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(start), int(stop) - 1) for start, stop in edges.reshape(-1, 2)]


#: Fewest rows of a stretch: as many as a level is told from (`outliers.MIN_SIDE`).
MIN_STRETCH_ROWS = 8
#: Fewest rows of another part that is looked at by itself, as of the smallest tables with a
#: calibration, and most such parts, which a page can tell of.
PART, MOST_PARTS = 32, 3


@dataclass(frozen=True)
class Stretch:
    """The longest run of rows without a seam and without a special row.

    Parameters
    ----------
    first, stop
        Its rows, counted from the table's first; ``stop`` is one past the last.
    whole
        Whether these are all rows.
    reasons
        Causes that end it on either side (``seam`` and ``special``, which name positions), or why
        all rows are taken.
    """

    first: int
    stop: int
    whole: bool
    reasons: tuple[Cause, ...]

    @property
    def rows(self) -> slice:
        """The rows as a slice of the table."""
        return slice(self.first, self.stop)


def runs(seams_record: Seams) -> list[tuple[int, int]]:
    """Return every run of rows without a seam and without a special row: its first, and the stop.

    Parameters
    ----------
    seams_record
        The table's seams.
    """
    special = {row.row for row in seams_record.special}
    seams = {right_row for _, right_row in seams_record.between}
    starts = sorted({0, len(seams_record.norms), *special, *(row + 1 for row in special), *seams})
    return [(start, stop) for start, stop in pairwise(starts) if start not in special]


def trained(seams_record: Seams) -> list[tuple[int, int]]:
    """Return the runs without those of rows that look untrained."""
    end = len(seams_record.norms) if seams_record.untrained is None else seams_record.untrained
    return [run for run in runs(seams_record) if run[0] < end]


def all_equal(seams_record: Seams, run: tuple[int, int]) -> bool:
    """Whether a run, its first row and the stop, is a stretch of equal rows."""
    return (run[0], run[1] - 1) in seams_record.equal


def stretch(seams_record: Seams) -> Stretch:
    """Return the longest run of rows without a seam and without a special row.

    Parameters
    ----------
    seams_record
        The table's seams. Where they are undefined, on a grid or in a short table, and where no run
        of `MIN_STRETCH_ROWS` rows is left, all rows are taken. Of runs of one length the first is.
    """
    n = len(seams_record.norms)
    if seams_record.undefined:
        return Stretch(0, n, True, (Cause("undefined", of=seams_record.undefined),))
    special = {row.row: row.causes for row in seams_record.special}
    seam = {
        right_row: cause
        for (_, right_row), cause in zip(seams_record.between, seams_record.reasons, strict=True)
    }
    trained_runs = trained(seams_record)
    if not trained_runs:
        return Stretch(0, n, True, (Cause("all_special"),))
    start, stop = max(trained_runs, key=lambda run: run[1] - run[0])
    varied_runs = [
        run
        for run in trained_runs
        if run[1] - run[0] >= MIN_STRETCH_ROWS and not all_equal(seams_record, run)
    ]
    if varied_runs:
        start, stop = max(varied_runs, key=lambda run: run[1] - run[0])
    if stop - start < MIN_STRETCH_ROWS:
        return Stretch(0, n, True, (Cause("no_run", (MIN_STRETCH_ROWS,)),))
    if (start, stop) == (0, n):
        return Stretch(0, n, True, (Cause("no_break"),))
    reasons = [
        Cause("seam", (seams_record.start + row - 1, seams_record.start + row), causes=(seam[row],))
        for row in (start, stop)
        if row in seam
    ]
    reasons += [
        Cause("special", (seams_record.start + row,), causes=special[row])
        for row in (start - 1, stop)
        if row in special
    ]
    return Stretch(start, stop, False, tuple(reasons))


def long_runs(seams_record: Seams) -> tuple[tuple[int, int], ...]:
    """Return the runs that are looked at: the longest, and other long ones, in order.

    Parameters
    ----------
    seams_record
        The table's seams.
    """
    longest_stretch = stretch(seams_record)
    if longest_stretch.whole:
        return ((longest_stretch.first, longest_stretch.stop),)
    stretch_run = (longest_stretch.first, longest_stretch.stop)
    other_runs = [
        run for run in trained(seams_record) if run != stretch_run and run[1] - run[0] >= PART
    ]
    other_runs = [run for run in other_runs if not all_equal(seams_record, run)]
    return tuple(
        sorted([stretch_run, *sorted(other_runs, key=lambda run: run[0] - run[1])[:MOST_PARTS]])
    )
