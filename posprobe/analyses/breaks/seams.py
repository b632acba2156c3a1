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
    AWAY,
    EXCESS,
    FALSE_ALARM,
    MIN_SIDE,
    NORM_RATIO,
    TAIL_ALARM,
    WINDOW,
    Found,
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
LONG, TIMES = 5, 1.5
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
        What is odd about it; one or more.
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
    away: float = AWAY


def _between(found: Seams) -> list[tuple[int, int]] | None:
    """Return pairs of rows as positions."""
    pairs = [(left + found.start, right + found.start) for left, right in found.between]
    return None if found.undefined else pairs


def _interval(found: Seams) -> list[int] | None:
    """Return the interval of where rows begin to look untrained as positions."""
    within = found.untrained_interval
    return within and [row + found.start for row in within]


def _equal(found: Seams) -> list[tuple[int, int]]:
    """Return ends of equal rows as positions."""
    return [(first + found.start, last + found.start) for first, last in found.equal]


def _special(found: Seams) -> tuple[SpecialRow, ...] | None:
    """Return special rows as positions."""
    moved = (replace(each, row=each.row + found.start) for each in found.special)
    return None if found.no_special else tuple(moved)


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
        What changes at each seam.
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
        Of the positions.
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
        As(list[Text] | None, lambda found: None if found.undefined else found.reasons),
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
        As(Row | None, lambda found: found.untrained and found.untrained + found.start),
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
        found = {"special": self.no_special} if self.no_special else {}
        if self.untrained is None:
            found |= dict.fromkeys(("untrained", "untrained_interval"), "no rows look untrained")
        return found


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
      `AWAY` times their distance from 1 and outside the tail of its distribution.
    - Where neighbouring rows are alike, neither that nor a norm changes without such a step.
    - Without a break there is a seam where the level of norms, steps or chords changes at once and
      for good: by as many deviations, by `EXCESS`, and at least half of it from one row to the next
      (steps and chords: over the pair that crosses).
    - Or where the mean of `MIN_SIDE` rows is further from that of the next as many than the means
      beside them are from theirs: by `EXCESS`, and by ln(n / `FALSE_ALARM`) deviations, between the
      seams found so far.
    - Where a level changes, the seam stands where single rows are explained best
      (`posprobe.analyses.breaks.changes`).
    - Or in the middle of `LONG` steps that are long together: `TIMES` the usual, and outside the
      tail of the means of as many steps.
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
    given = positions(table, sums_squares=True)
    values, xp, n = given.values, given.xp, given.values.shape[0]
    series, cosines, varies = _series(values, xp)
    why = ""
    if n < 2 * MIN_SIDE:
        why = f"fewer than {2 * MIN_SIDE} rows"
    elif values.shape[1] < 2:
        why = "a single column has no directions"
    elif not varies:
        why = "all rows are equal"
    no_special, found = why, Found()
    alike: list[tuple[int, int]] | None = []
    untrained: tuple[int, int, int] | None = None
    if isinstance(given.layout, Grid):
        why = "patches lie on a grid: neighbours in the table need not be neighbours there"
        no_special = no_special_patches(given.layout, equal=not varies)
        odd = None if no_special else special_patches(series, given.layout)
        if not no_special and odd is None:
            no_special = "many patches are copies of those around them, and many are not"
        found = odd or found
    elif not why:
        alike = equal_rows(values, xp)
        found = _find_on_a_line(series, alike, given.start)
        untrained = _untrained(series, found)
    between = sorted(found.between)
    return Seams(
        between=tuple((left, left + 1) for left in between),
        reasons=tuple(found.between[left] for left in between),
        special=tuple(SpecialRow(row, tuple(found.special[row])) for row in sorted(found.special)),
        cosines=cosines,
        steps=series.steps,
        norms=series.norms,
        layout=given.layout,
        start=given.start,
        undefined=why,
        no_special=no_special,
        equal=tuple((first, stop - 1) for first, stop in alike or () if series.norms[first]),
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
    there = max(int(xp.sum(norms > 0)), 2)
    likeness = _host((directions @ xp.sum(directions, axis=0) - 1.0) / (there - 1))
    likeness[to_numpy(norms == 0)] = np.nan
    # Below the rounding of a cosine, rows have one direction.
    apart = 1 - cosines > 8 * float(xp.finfo(values.dtype).eps)
    series = Series(
        norms=_host(norms),
        likeness=likeness,
        steps=np.where(steps > rounding, steps, 0.0),
        chords=np.sqrt(np.where(apart, 2 - 2 * cosines, 0.0) + 0 * cosines),
        units=_host(units),
        rows=_host(centered),
    )
    return series, cosines, bool(defined.any())


def _host(array: Array) -> Floats:
    return np.array(to_numpy(array), dtype=np.float64)


def _find_on_a_line(series: Series, alike: list[tuple[int, int]] | None, start: int) -> Found:
    if alike is None:
        return zero_rows(series)
    return find_beside(series, alike, start, _find) if alike else _find(series)


def _untrained(series: Series, found: Found) -> tuple[int, int, int] | None:
    """Look for the first row that looks untrained, and break the table there."""
    told = untrained_from(series.rows)
    if told is None:
        return None
    first, least, most = told
    # What is seen as a change there already has the better place.
    places = [left + 1 for left in found.between if least - MIN_SIDE <= left + 1 <= most + MIN_SIDE]
    first = min(places, key=lambda place: abs(place - first), default=first)
    found.between.setdefault(first - 1, Cause("untrained"))
    return first, min(least, first), max(most, first)


def _find(series: Series) -> Found:
    found = zero_rows(series)
    _breaks(series, found)
    odd_norms(series, found)
    odd_directions(series, found)
    _levels(series, found)
    for row, factor in pace_changes(series.steps):
        found.seam(by_norm(series, row - 1), Cause("pace", (factor,)))
    _blocks(series, found)
    _long_steps(series, found)
    return found


def _breaks(series: Series, found: Found) -> None:
    last = len(series.steps) - 1
    usual = usual_values(series.steps)
    broken = stands_out(series.steps) & stands_out(series.chords)
    broken &= series.torn
    times = np.divide(series.steps, usual, out=np.full_like(usual, np.inf), where=usual > 0)
    for first, end in _runs(broken):
        if first == 0 and end == last:
            continue
        if first == 0:
            for row in range(end + 1):
                found.row(row, "far_from_next", times[row])
            continue
        if end == last:
            for row in range(first + 1, last + 2):
                found.row(row, "far_from_previous", times[row - 1])
            continue
        for row in range(first + 1, end + 1):
            found.row(row, "far_from_both", times[row - 1], times[row])
        if first < MIN_SIDE or end > last - MIN_SIDE:
            continue
        if first == end:
            cosine = 1 - float(series.chords[first]) ** 2 / 2
            step = Cause("step", (float(times[first]), cosine))
            if not np.isfinite(times[first]):
                step = Cause("step_among_equal", (cosine,))
            found.seam(first, step)
        else:
            change = _change(series, first, end)
            if change:
                found.seam(_place(series, first, end), change)


def _place(series: Series, first: int, end: int) -> int:
    """Return the pair of a run of breaks at which one part of the table ends."""
    again = (series.rows[first + 1 : end + 2] == series.rows[0]).all(axis=1)
    begins = series.norms[0] > 0 and again.any()
    return first + int(np.argmax(again)) if begins else (first + end + 1) // 2


def _change(series: Series, first: int, end: int) -> Cause | None:
    """Return what differs between the rows up to ``first`` and those from ``end + 1``, if any."""
    span = end + 1 - first
    parts = {
        "norms": (series.norms[: first + 1], series.norms[end + 1 :]),
        "steps": (series.steps[:first], series.steps[end + 1 :]),
        "adjacent chords": (series.chords[:first], series.chords[end + 1 :]),
    }
    for name, (before, after) in parts.items():
        (low, left), (high, right) = level_of(before[-WINDOW:]), level_of(after[:WINDOW])
        limit = deviations(np.array(min(len(before), len(after), WINDOW)), 4)
        apart = abs(low - high)
        abrupt = abs(float(after[0] - before[-1])) >= apart / 2
        beyond = apart > limit * max(left, right) and max(low, high) > CHANGE * min(low, high)
        if beyond and abrupt:
            return Cause("level", (low, high), name)
    spans = np.linalg.norm(series.units[span:] - series.units[:-span], axis=1)
    across = spans[first]
    outside = (spans[: max(first - span + 1, 0)][-WINDOW:], spans[end + 1 :][:WINDOW])
    for values in outside:
        if len(values) < MIN_SIDE:
            return None
        level, deviation = level_of(values)
        excess = across - level > deviations(np.array(len(values)), 4) * deviation
        if not (excess and across > CHANGE * level):
            return None
    usual = np.median(np.concatenate(outside))
    return Cause("across", (1 - float(across) ** 2 / 2, span, 1 - float(usual) ** 2 / 2))


def _levels(series: Series, found: Found) -> None:
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
        apart = np.abs(high - low)
        jump = np.abs(values[right] - values[left])
        with np.errstate(invalid="ignore"):
            changed = (
                (apart > deviations(count, len(values)) * deviation)
                & (np.fmax(low, high) > EXCESS * np.fmin(low, high))
                & (jump >= apart / 2)
            )
        if name == "norms":
            changed &= series.may_change[left]
        for first, end in _runs(changed):
            best = first + int(np.argmax(apart[first : end + 1]))
            cause = Cause("level", (float(low[best]), float(high[best])), name)
            place = by_level(values, crossing, int(left[best]) + crossing)
            found.seam(by_norm(series, place) if crossing else place, cause)


def _blocks(series: Series, found: Found) -> None:
    """Look for means of `MIN_SIDE` rows further from the next than the means beside them are.

    Between the seams that are known by now, since parts of a table differ in how far is usual.
    """
    m = MIN_SIDE
    sums, width = series.rows, 1
    while width < m:
        sums, width = sums[:-width] + sums[width:], 2 * width
    # Distance of the mean of rows j to j + m - 1 from that of the m rows after them.
    distance = np.linalg.norm(sums[m:] - sums[:-m], axis=1) / m
    odd = np.array(sorted(found.special), dtype=int)
    edges = [0, *(left + 1 for left in sorted(found.between)), len(series.norms)]
    for start, stop in pairwise(edges):
        # Left rows of boundaries with two blocks on each side, and no special row in them.
        between = np.arange(start + 2 * m - 1, stop - 2 * m)
        before, after = (np.searchsorted(odd, between + far) for far in (1 - 2 * m, 2 * m + 1))
        between = between[before == after]
        if not between.size:
            continue
        here = distance[between + 1 - m]
        beside = np.maximum(distance[between + 1 - 2 * m], distance[between + 1])
        excess = here - beside
        typical, upper = np.quantile(excess, (0.5, 0.75))
        spread = max(robust_sd(excess), SD_PER_MAD * (upper - typical))
        # In few dimensions, means have heavier tails than Gaussian ones.
        far = excess - typical > np.log(len(series.norms) / FALSE_ALARM) * spread
        far &= (here > EXCESS * beside) & series.may_change[between]
        usual = np.median(distance[start : stop + 1 - 2 * m])
        for run in np.split(np.flatnonzero(far), np.flatnonzero(np.diff(between[far]) > 1) + 1):
            if run.size:
                best = run[np.argmax(excess[run])]
                apart = m, float(here[best]), float(usual)
                found.seam(int(between[best]), Cause("means", apart))


def _long_steps(series: Series, found: Found) -> None:
    """Look for a few steps in a row that are longer than all others, none of them by much."""
    means = np.convolve(series.steps, np.full(LONG, 1 / LONG), "valid")
    if len(means) < 4 * MIN_SIDE:
        return
    usual = usual_values(means)
    with np.errstate(invalid="ignore"):
        odd = beyond_tail(means, usual, gap=True) & (means > TIMES * usual)
    odd[: 2 * MIN_SIDE] = odd[-2 * MIN_SIDE :] = False
    for first, end in _runs(odd):
        best = first + int(np.argmax(means[first : end + 1]))
        left = best + LONG // 2
        known = [*found.special, *found.between]
        if all(abs(left - other) > 2 * MIN_SIDE for other in known):
            times = float(means[best] / usual[best])
            found.seam(left, Cause("long_steps", (LONG, times)))


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return first and last index of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(first), int(stop) - 1) for first, stop in edges.reshape(-1, 2)]


#: Fewest rows of a stretch: as many as a level is told from (`outliers.MIN_SIDE`).
LEAST = 8
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
        What ends it on either side (``seam`` and ``special``, which name positions), or why all
        rows are taken.
    """

    first: int
    stop: int
    whole: bool
    reasons: tuple[Cause, ...]

    @property
    def rows(self) -> slice:
        """The rows as a slice of the table."""
        return slice(self.first, self.stop)


def runs(found: Seams) -> list[tuple[int, int]]:
    """Return every run of rows without a seam and without a special row: its first, and the stop.

    Parameters
    ----------
    found
        The table's seams.
    """
    special = {row.row for row in found.special}
    seams = {right for _, right in found.between}
    starts = sorted({0, len(found.norms), *special, *(row + 1 for row in special), *seams})
    return [(first, stop) for first, stop in pairwise(starts) if first not in special]


def trained(found: Seams) -> list[tuple[int, int]]:
    """Return the runs without those of rows that look untrained."""
    end = len(found.norms) if found.untrained is None else found.untrained
    return [run for run in runs(found) if run[0] < end]


def all_equal(found: Seams, run: tuple[int, int]) -> bool:
    """Whether a run, its first row and the stop, is a stretch of equal rows."""
    return (run[0], run[1] - 1) in found.equal


def stretch(found: Seams) -> Stretch:
    """Return the longest run of rows without a seam and without a special row.

    Parameters
    ----------
    found
        The table's seams. Where they are undefined, on a grid or in a short table, and where no run
        of `LEAST` rows is left, all rows are taken. Of runs of one length the first is.
    """
    n = len(found.norms)
    if found.undefined:
        return Stretch(0, n, True, (Cause("undefined", of=found.undefined),))
    special = {row.row: row.causes for row in found.special}
    seam = {right: cause for (_, right), cause in zip(found.between, found.reasons, strict=True)}
    whole = trained(found)
    if not whole:
        return Stretch(0, n, True, (Cause("all_special"),))
    first, stop = max(whole, key=lambda run: run[1] - run[0])
    different = [run for run in whole if run[1] - run[0] >= LEAST and not all_equal(found, run)]
    if different:
        first, stop = max(different, key=lambda run: run[1] - run[0])
    if stop - first < LEAST:
        return Stretch(0, n, True, (Cause("no_run", (LEAST,)),))
    if (first, stop) == (0, n):
        return Stretch(0, n, True, (Cause("no_break"),))
    reasons = [
        Cause("seam", (found.start + row - 1, found.start + row), causes=(seam[row],))
        for row in (first, stop)
        if row in seam
    ]
    reasons += [
        Cause("special", (found.start + row,), causes=special[row])
        for row in (first - 1, stop)
        if row in special
    ]
    return Stretch(first, stop, False, tuple(reasons))


def long_runs(found: Seams) -> tuple[tuple[int, int], ...]:
    """Return the runs that are looked at: the longest, and other long ones, in order.

    Parameters
    ----------
    found
        The table's seams.
    """
    longest = stretch(found)
    if longest.whole:
        return ((longest.first, longest.stop),)
    own = (longest.first, longest.stop)
    others = [run for run in trained(found) if run != own and run[1] - run[0] >= PART]
    others = [run for run in others if not all_equal(found, run)]
    return tuple(sorted([own, *sorted(others, key=lambda run: run[0] - run[1])[:MOST_PARTS]]))
