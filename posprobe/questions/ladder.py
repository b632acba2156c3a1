"""Whether the frequencies of a table form a geometric series, as those of the sinusoid do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from posprobe.analyses.base_fit import fit_base
from posprobe.analyses.closeness import cloud
from posprobe.analyses.facts import Answer, Test, Verdict
from posprobe.analyses.linear import root, toeplitz
from posprobe.analyses.views import DRAWS, LEVEL, View
from posprobe.questions.base import OPEN, Question, against, rank, too_few
from posprobe.questions.rotations import ALIKE, LEAST_HIDDEN, SEEN, similar
from posprobe.questions.winding import DRAWS_ALONE

#: Largest difference of one step of a ladder from the others, in the logarithm of the period.
UNEVEN = 0.2
#: Fewest lines of a series, and rows of which none is denied.
SERIES, ROWS = 3, 64
#: Share of the variance of fewer lines from which a base that fits may be theirs: every line falls
#: upon one of the series of some base. No line of a sinusoid holds as much, unless it has few.
LONE = 0.25
#: Sets of periods that are drawn at random, and rows of the tables that are drawn.
SETS, DRAWN_ROWS = 9999, 512
LADDER_KEYS = ("sinusoid.base",)


@dataclass(frozen=True)
class Sinusoid:
    """The sinusoid of one base, and its CKA with the table."""

    base: float
    cka: float


@dataclass(frozen=True)
class Ladder:
    """The series, or the lines that make none.

    Parameters
    ----------
    lines
        Number of lines that stand out.
    series
        The sinusoid whose frequencies the table has.
    factor
        Mean ratio of neighbouring periods.
    off, worst
        Largest distance of a period from the even series between the first and the last, in steps
        of it; and largest difference of one step from the mean one, as a share of it.
    similar
        CKA with the most similar sinusoid, where it is high and no single base fits best.
    fits
        The sinusoid of the base that was singled out, whether or not it tells of a series.
    """

    lines: int = 0
    series: Sinusoid | None = None
    factor: float | None = None
    off: float | None = None
    worst: float | None = None
    similar: float | None = None
    fits: Sinusoid | None = None

    @property
    def value(self) -> dict[str, float] | None:
        """The base with its CKA, or the factor."""
        if self.series is not None:
            return {"base": self.series.base, "cka": self.series.cka}
        return None if self.factor is None else {"factor": self.factor}


def ask_ladder(seen: View) -> Answer:
    """Ask whether the frequencies form a geometric ladder, against frequencies at random.

    Either the table resembles the sinusoid of one base more than of any other, beside draws of the
    fitted kernel; or the lines found are evenly spaced in the logarithm of their periods, beside as
    many drawn at random between the same ends.
    """
    if few := too_few("ladder", seen, LADDER_KEYS):
        return few
    n = len(seen)
    lines = seen.turning.rotations
    fit, fits = seen.base, None
    if fit is not None and fit.base is not None and fit.best is not None:
        fits = Sinusoid(fit.base, fit.best)
        lone = 0 < len(lines) < SERIES and sum(line.share for line in lines) > LONE
        if not lone or fit.best >= ALIKE:
            test = _base_test(seen, fit.best)
            if test.p <= LEVEL:
                facts = Ladder(len(lines), series=fits, fits=fits)
                return Answer("ladder", "yes", "base", facts, test, LADDER_KEYS)
    facts = Ladder(len(lines), similar=similar(seen), fits=fits)
    if len(lines) >= SERIES:
        return _even(seen, facts)
    answer: Verdict = "cannot tell"
    reason = "dense" if not lines and facts.similar is not None else "few"
    if reason == "few" and not lines and n >= ROWS:
        answer, reason = "no", "none"
    # Nothing is tested, but it is among the questions that are asked.
    return Answer("ladder", answer, reason, facts, Test(float(len(lines)), 1.0), LADDER_KEYS)


def _even(seen: View, facts: Ladder) -> Answer:
    """Ask whether the logarithms of the periods are evenly spaced."""
    found = seen.turning
    place = np.log(np.sort([line.period for line in found.rotations]))
    steps = len(place) - 1
    length = float(place[-1] - place[0])
    even = np.linspace(0, 1, len(place))
    off = float(np.abs((place - place[0]) / length - even).max())
    drawn = np.sort(seen.rng(4).random((SETS, len(place) - 2)), axis=1)
    apart = np.abs(drawn - even[1:-1]).max(axis=1)
    p = rank(-off, -apart)
    worst = float(np.abs(np.diff(place) / (length / steps) - 1).max())
    facts = replace(facts, factor=float(np.exp(length / steps)), off=off * steps, worst=worst)
    weakest = min(line.share for line in found.rotations)
    answer: Verdict = "no"
    if p > OPEN or worst > UNEVEN:
        reason = "random" if p > OPEN else "uneven"
        if weakest < max(SEEN * found.hidden, LEAST_HIDDEN):
            answer, reason = "cannot tell", "between"
    else:
        answer, reason = ("yes", "even") if p <= LEVEL else ("cannot tell", "open")
    test = against(off * steps, apart * steps, "random periods", p)
    return Answer("ladder", answer, reason, facts, test, LADDER_KEYS)


def _base_test(seen: View, best: float) -> Test:
    """Hold the CKA with the sinusoid of the best base against draws of the fitted kernel.

    A draw that singles out no base has 0 in its place.
    """
    d = seen.points.shape[1]
    rows = seen.coordinates[:DRAWN_ROWS]
    factor = root(toeplitz(seen.kernel.by_offset[: len(rows)]))
    columns = np.sqrt(np.square(rows).sum(axis=0))
    rng = seen.rng(5)
    drawn: list[float] = []
    reached, p = 0, 0.0
    for count in (DRAWS, DRAWS_ALONE):
        # Where too many reach it, the others need not be drawn.
        while len(drawn) < count and p <= LEVEL:
            fit = fit_base(cloud(factor @ rng.standard_normal(rows.shape) * columns), d - d % 2)
            drawn.append(fit.best if fit.base is not None and fit.best is not None else 0.0)
            reached += drawn[-1] >= best
            p = (1 + reached) / (count + 1)
    return against(best, np.array(drawn), "smooth", p)


def series_by_formula(ladder: Answer, closed_form: Answer) -> Answer | None:
    """Say of a formula whose base was singled out that its frequencies are a series."""
    if ladder.yes or not closed_form.yes or getattr(ladder.facts, "fits", None) is None:
        return None
    facts = replace(ladder.facts, series=ladder.facts.fits)
    return ladder.corrected("yes", "base", "closed_form", facts=facts, test=None)


LADDER = Question(
    "ladder",
    ask_ladder,
    ("base", "even", "none", "few", "dense", "uneven", "random", "between", "open"),
)
