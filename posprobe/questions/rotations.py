"""What goes round in a table on a line: periodic components, their series, and what winds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from posprobe.analyses.bridging import Bridging
from posprobe.analyses.facts import Answer, Test, TooFew, Verdict
from posprobe.analyses.planes import DRAWS as PLANE_DRAWS, Preferred, Rotation, Turning
from posprobe.analyses.views import View
from posprobe.analyses.wave_scores import LINE_LEVEL
from posprobe.analyses.wave_search import FEWEST
from posprobe.questions.base import LEAST_SHARE, OPEN, Question, against, too_few

#: CKA with a sinusoid of some base from which a table may be one in noise.
ALIKE = 0.9
#: Rows below which a fixed period is not told from noise that prefers one: too few turns fit in.
FEW_ROWS = 48
#: Times the share at which a rotation may be seen of that at which it is hardly ever missed; and
#: the least share that is said to be hidden, since less is told of nowhere.
SEEN, LEAST_HIDDEN = 3.0, 0.01
#: Share at which a rotation may be seen from which nothing is denied: a quarter of the table.
BLIND = 0.25
#: Share of the table over which noise keeps its phase from which it may be a rotation.
COHERENT = 1 / 6
#: Held-out R² by which waves must be ahead of any smooth curve.
AHEAD = 0.2
ROTATIONS_KEYS = ("shift.rotations", "spectrum.lines")


@dataclass(frozen=True)
class Rotations:
    """The rotations of a table, or what may be missed.

    Parameters
    ----------
    rows
        Number of rows.
    lines
        Fastest first: those that are not small, or small ones alone.
    share
        Share of the variance that they explain together.
    hidden
        Share of the variance below which one may well be missed.
    alternating
        Share of the variance by which even and odd positions differ.
    preferred
        The strongest period that noise prefers, where nothing goes round.
    similar
        CKA with the most similar sinusoid, where it is high and no single base fits best.
    turn
        What another answer shows: how long whole turns of a changing pace take, in positions, the
        fastest and the slowest tenth left out.
    """

    rows: int
    lines: tuple[Rotation, ...]
    share: float
    hidden: float
    alternating: float
    preferred: Preferred | None = None
    similar: float | None = None
    turn: tuple[float, float] | None = None

    @property
    def value(self) -> list[dict[str, Any]]:
        """The rotations."""
        return [asdict(line) for line in self.lines]

    @property
    def steady(self) -> bool:
        """Whether all periods are fixed."""
        return all(line.pace == "fixed" for line in self.lines)

    @property
    def alternates(self) -> bool:
        """Whether even and odd positions differ by more than may be missed."""
        return self.alternating > self.hidden


def ask_rotations(seen: View) -> Answer:
    """Ask whether the table goes round in planes of its own, and in which periods."""
    if few := too_few("rotations", seen, ROTATIONS_KEYS):
        return few
    n, d = seen.points.shape
    if n < FEWEST or d < 2:
        return Answer("rotations", "cannot tell", "too_few", TooFew(n, d), keys=ROTATIONS_KEYS)
    found = seen.turning
    facts = _facts(seen, found)
    test = _test(facts, found)
    answer: Verdict
    if n < FEW_ROWS:
        answer, reason = "cannot tell", "few_rows"
    elif facts.lines:
        answer, reason = ("no", "small")
        if facts.lines[0].share >= LEAST_SHARE:
            answer, reason = "yes", "stand_out"
    else:
        reason = _without(facts, found)
        answer = "no" if reason in {"none", "preferred"} else "cannot tell"
    return Answer("rotations", answer, reason, facts, test, ROTATIONS_KEYS)


def _without(facts: Rotations, found: Turning) -> str:
    """Return why nothing goes round: there is nothing, or it may be hidden."""
    if facts.similar is not None:
        return "dense"
    if any(p.coherent >= COHERENT * facts.rows and p.p <= OPEN for p in found.preferred):
        return "unclear"
    if facts.preferred is not None:
        return "preferred"
    if found.p <= OPEN:
        return "unclear"
    return "none" if found.hidden < BLIND else "unclear"


def _facts(seen: View, found: Turning) -> Rotations:
    points = seen.points
    large = tuple(line for line in found.rotations if line.share >= LEAST_SHARE)
    lines = large or found.rotations
    apart = np.square(points[::2].mean(axis=0) - points[1::2].mean(axis=0)).sum() / 4
    return Rotations(
        rows=len(seen),
        lines=lines,
        share=min(sum(line.share for line in lines), 1.0),
        hidden=max(SEEN * found.hidden, LEAST_HIDDEN),
        alternating=float(apart / np.square(points).sum(axis=1).mean()),
        preferred=next(iter(found.preferred), None) if not lines else None,
        similar=similar(seen),
    )


def similar(seen: View) -> float | None:
    """Return the CKA of the most similar sinusoid where it is high, though no base fits best."""
    fit = seen.base
    if fit is None or fit.base is not None or fit.best is None or fit.best < ALIKE:
        return None
    return fit.best


def _test(facts: Rotations, found: Turning) -> Test:
    """Return what the strongest rotation was held against: shares of lines that noise has."""
    share = max((each.share for each in facts.lines), default=found.strongest)
    p = min((each.p for each in facts.lines), default=found.p)
    return replace(
        against(share, found.drawn, "smooth", p), least=min(LINE_LEVEL, 1 / (PLANE_DRAWS + 1))
    )


def lines_by_formula(rotations: Answer, closed_form: Answer, ladder: Answer) -> Answer | None:
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
    """Gaps in a table that its waves predict better than any smooth curve does.

    Parameters
    ----------
    gap
        Missing rows.
    waves, curve
        Held-out R² of the model with its waves, and of the best smooth curve.
    """

    gap: int
    waves: float
    curve: float


def bridged(found: Bridging | None) -> Bridged | None:
    """Return where waves are furthest ahead of smooth curves; None where hardly anywhere."""
    if found is None or found.undefined:
        return None
    best, curve = found.r2["waves"], np.maximum(found.r2["linear"], found.r2["smooth"])
    if not np.nanmax(best - curve) > AHEAD:
        return None
    widest = int(np.nanargmax(best - curve))
    return Bridged(int(found.gaps[widest]), float(best[widest]), float(curve[widest]))


ROTATIONS = Question(
    "rotations",
    ask_rotations,
    ("stand_out", "small", "none", "preferred", "dense", "few_rows", "unclear", "formula", "pace"),
)
