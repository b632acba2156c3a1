"""Which periodic components stand out of a smooth spectrum."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from posprobe.analyses.bridging import Bridging
from posprobe.analyses.facts import Answer, Test, TooFew, Verdict
from posprobe.analyses.lines import DRIFT_LEVEL, MIN_ROWS as LINE_ROWS, Lines, constant_shares
from posprobe.analyses.slow_rotation import SLOW_DRAWS
from posprobe.analyses.views import View
from posprobe.questions.base import LEAST_SHARE, OPEN, Question, against, too_few

#: CKA with a sinusoid of some base from which a table may be one in noise.
ALIKE = 0.9
#: Rows below which the frequencies are too few to say that there are no rotations.
FEW_ROWS = 48
#: Least change of a period, as a share of it, that is told.
LEAST_DRIFT = 0.01
#: Times the share at which a rotation may be seen of that at which it is hardly ever missed; and
#: the least share that is said to be hidden, since less is told of nowhere.
SEEN, LEAST_HIDDEN = 3.0, 0.01
#: Share at which a rotation may be seen from which nothing is denied: a quarter of the table.
BLIND = 0.25
#: Share of what lines hold that sinusoids of constant period and size hold at least of steady ones.
STEADY = 0.75
#: Circularity (1 for a circle, 0 for a line) from which a line of the spectrum is a circle.
ROUND = 0.5
#: Held-out R² by which sinusoids must be ahead of any smooth curve.
AHEAD = 0.2
KEYS = ("shift.rotations", "spectrum.lines")


@dataclass(frozen=True)
class Line:
    """A line of the spectrum.

    Parameters
    ----------
    period, turns
        In positions, and its turns over the table.
    share, purity
        Of the variance, above the background and over all frequencies that its changes spread it
        over; and of the power near its frequency.
    circularity
        1 for a circle, 0 for a wave along one direction.
    first_period, last_period, drift, drift_p
        Period in the first and in the last third, in positions, their difference as a share of the
        period, and the p-value of a change.
    p, skill
        Its own p-value, and what it predicts of rows that were left out.
    constant_share
        Of the variance, by a sinusoid of constant period and size, beside those of stronger lines.
    """

    period: float
    turns: float
    share: float
    purity: float
    circularity: float
    first_period: float
    last_period: float
    drift: float
    drift_p: float
    p: float
    skill: float
    constant_share: float

    @property
    def round(self) -> bool:
        """Whether it is a circle rather than a wave along one direction."""
        return self.circularity >= ROUND


@dataclass(frozen=True)
class Rotations:
    """The lines that stand out, or what may be missed.

    Parameters
    ----------
    rows
        Number of rows.
    lines
        Fastest first.
    share
        Share of the variance that sinusoids of constant period, one for each line, explain
        together, less what so many explain of noise.
    hidden
        Share of the variance below which a line may well be missed.
    alternating
        Share of the variance by which even and odd positions differ.
    similar
        CKA with the most similar sinusoid, where it is high and no single base fits best.
    turn
        What another answer shows: how long whole turns of a changing pace take, in positions, the
        fastest and the slowest tenth left out.
    """

    rows: int
    lines: tuple[Line, ...]
    share: float
    hidden: float
    alternating: float
    similar: float | None = None
    turn: tuple[float, float] | None = None

    @property
    def value(self) -> list[dict[str, Any]]:
        """The lines."""
        return [asdict(line) for line in self.lines]

    @property
    def size(self) -> float:
        """The share of all lines, or of one whose changes leave little to a constant period."""
        return max([self.share, *(line.share for line in self.lines)])

    @property
    def steady(self) -> bool:
        """Whether sinusoids of constant period and size explain nearly all that lines hold."""
        return self.share >= STEADY * min(sum(line.share for line in self.lines), 1.0)

    @property
    def drifting(self) -> tuple[Line, ...]:
        """The lines whose period changes along the table, beyond what noise does to their phase."""
        level = DRIFT_LEVEL / max(len(self.lines), 1)
        return tuple(
            line for line in self.lines if line.drift_p <= level and abs(line.drift) >= LEAST_DRIFT
        )

    @property
    def alternates(self) -> bool:
        """Whether even and odd positions differ by more than may be missed."""
        return self.alternating > self.hidden


def ask(seen: View) -> Answer:
    """Ask whether periodic components stand out of a smooth spectrum, and which."""
    if few := too_few("rotations", seen, KEYS):
        return few
    n, d = seen.points.shape
    if n < LINE_ROWS or d < 2:
        return Answer("rotations", "cannot tell", "too_few", TooFew(n, d), keys=KEYS)
    found = seen.lines
    facts, test = _facts(seen, found), _test(found)
    answer: Verdict
    if facts.lines:
        answer, reason = ("yes", "stand_out") if facts.size >= LEAST_SHARE else ("no", "small")
    else:
        reason = _without(facts, found)
        answer = "no" if reason == "none" else "cannot tell"
    return Answer("rotations", answer, reason, facts, test, KEYS)


def _without(facts: Rotations, found: Lines) -> str:
    """Return why no line stands out: there is none, or it may be hidden."""
    if found.p <= OPEN:
        return "unclear"
    if facts.similar is not None:
        return "dense"
    if facts.rows < FEW_ROWS:
        return "few_frequencies"
    return "none" if found.least_share < BLIND else "unclear"


def _facts(seen: View, found: Lines) -> Rotations:
    n, points = len(seen), seen.points
    constant = constant_shares(points, found.rotations) if found.rotations else []
    lines = tuple(
        Line(
            r.period, n / r.period, r.share, r.purity, r.circularity, r.first_period,
            r.last_period, r.drift, r.drift_p, r.p, r.skill, held,
        )
        for r, held in zip(found.rotations, constant, strict=True)
    )  # fmt: skip
    free = max(n - 1 - 2 * len(lines), 1)
    apart = np.square(points[::2].mean(axis=0) - points[1::2].mean(axis=0)).sum() / 4
    return Rotations(
        rows=n,
        lines=lines,
        share=max(1 - (1 - sum(constant)) * (n - 1) / free, 0.0),  # adjusted R²
        hidden=max(SEEN * found.least_share, LEAST_HIDDEN),
        alternating=float(apart / np.square(points).sum(axis=1).mean()),
        similar=similar(seen),
    )


def similar(seen: View) -> float | None:
    """Return the CKA of the most similar sinusoid where it is high, though no base fits best."""
    fit = seen.base
    if fit is None or fit.base is not None or fit.best is None or fit.best < ALIKE:
        return None
    return fit.best


def _test(found: Lines) -> Test:
    """Return what the strongest line was held against, as a share of the variance.

    Heights over the background become shares in proportion: to the share of the strongest line, or
    as in `Lines.least_share` where there is none. All lines together, whose share is told, are
    compared with no draw.
    """
    if found.drawn.size:
        top = max(found.rotations, key=lambda r: r.height, default=None)
        share, height = (top.share, top.height) if top else (found.least_share, found.needed)
        unit = share / height if height else 0.0
        return against(unit * found.height, unit * found.drawn, "smooth", found.p)
    # Of a few turns: its draws are compared in the slow part alone. Its height is that over their
    # median.
    slow = min((r for r in found.rotations if r.band), key=lambda r: r.p, default=None)
    if slow is None or slow.band is None:
        return Test(0.0, found.p, None, None, "smooth", SLOW_DRAWS, 1 / (SLOW_DRAWS + 1))
    band = slow.share * slow.band[0], slow.share * slow.band[1]
    least = 1 / (SLOW_DRAWS + 1)
    null = slow.share / slow.height
    return Test(slow.share, found.p, null, band, "smooth", SLOW_DRAWS, least)


def by_formula(rotations: Answer, closed_form: Answer, ladder: Answer) -> Answer | None:
    """Say of a formula or a geometric series that it is made of many lines.

    Too many, and too close to each other, for any to stand out.
    """
    known = next((answer for answer in (closed_form, ladder) if answer.yes), None)
    if known is None or rotations.yes or not isinstance(rotations.facts, Rotations):
        return None
    return rotations.corrected("yes", "formula", known.question, test=None)


def by_winding(rotations: Answer, winding: Answer) -> Answer | None:
    """Say that no period is fixed where none stands out, and what winds changes its pace."""
    facts = rotations.facts
    if rotations.answer != "cannot tell" or not (winding.yes and winding.facts.changes):
        return None
    if not isinstance(facts, Rotations) or facts.rows < FEW_ROWS:
        return None
    keys = (*rotations.keys, *winding.keys)
    facts = replace(facts, turn=winding.facts.turn)
    return rotations.corrected("no", "pace", "winding", facts=facts, keys=keys)


@dataclass(frozen=True)
class Bridged:
    """Gaps in a table that sinusoids predict better than any smooth curve does.

    Parameters
    ----------
    gap
        Missing rows.
    sinusoids, curve
        Held-out R² of the best sinusoids and of the best smooth curve.
    """

    gap: int
    sinusoids: float
    curve: float


def bridged(found: Bridging | None) -> Bridged | None:
    """Return where sinusoids are furthest ahead of smooth curves; None where hardly anywhere."""
    if found is None or found.undefined:
        return None
    best = np.maximum(found.r2["sinusoids"], found.r2["ladder"])
    curve = np.max([found.r2[name] for name in ("linear", *found.kernels)], axis=0)
    if not np.nanmax(best - curve) > AHEAD:
        return None
    widest = int(np.nanargmax(best - curve))
    return Bridged(int(found.gaps[widest]), float(best[widest]), float(curve[widest]))


ROTATIONS = Question(
    "rotations",
    ask,
    ("stand_out", "small", "none", "dense", "few_frequencies", "unclear", "formula", "pace"),
)
