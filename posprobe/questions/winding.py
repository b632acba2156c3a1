"""Whether a pair of components winds around a centre more than smooth curves and walks do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from posprobe.analyses.closeness import Floats
from posprobe.analyses.facts import Answer, Test, TooFew, Verdict
from posprobe.analyses.linear import leading
from posprobe.analyses.planes import Rotation
from posprobe.analyses.processes import fit_process
from posprobe.analyses.result import HIDDEN
from posprobe.analyses.views import DRAWS, LEVEL, View
from posprobe.analyses.winding import WindingPair, kept_components, rhythms, winding_pairs
from posprobe.layouts import Sequence
from posprobe.questions.base import LEAST_SHARE, OPEN, Question, against
from posprobe.questions.rotations import Rotations

#: Draws after which a yes may stand alone among the seven questions of a sequence: one in 146 is
#: less than a seventh of 0.05. As many are drawn only where the first `DRAWS` exclude no yes.
DRAWS_ALONE = 145
#: Leading directions of which pairs are looked at, in the table and in the draws alike.
DIRECTIONS = 6
#: Fewest rows that can be asked, and turns that count as winding.
MIN_ROWS, MIN_TURNS = 24, 1.0
#: Least share of the variance of the leading directions of a pair that speaks for the table.
SHARE = 0.1
#: Ratio of slow whole turns to fast ones, the outer tenths aside, from which the period changes.
DRIFT = 1.3
#: Relative difference of turns up to which what winds is a line of the spectrum.
SAME_TURNS = 0.1
#: Share of what winds from which a line of the spectrum has a part in it.
MIXED = 0.1
WINDING_KEYS = ("winding.turns", "winding.pairs")


@dataclass(frozen=True)
class Winding:
    """The pair of principal components that was tested.

    Parameters
    ----------
    components
        The two, counted from 1.
    share
        Of the variance, of both together.
    turns
        How often they go round from the first row to the last.
    radius_cv
        Standard deviation of the distance from the centre over its mean; 0 for a circle.
    local_period
        Positions per turn in each part of the table where they go forward.
    turn
        How many positions a whole turn takes, the fastest and the slowest tenth left out; None of
        less than one.
    changes
        Whether whole turns differ by more than noise of the phase makes them.
    rotation
        What another answer shows: the period of the line of the spectrum that they are.
    mixed
        What another answer shows: the lines of the spectrum that meet in them.
    pair
        The pair itself, which no document shows.
    """

    components: tuple[int, int]
    share: float
    turns: float
    radius_cv: float
    local_period: tuple[float, ...]
    turn: tuple[float, float] | None
    changes: bool
    rotation: float | None = None
    mixed: tuple[Rotation, ...] = ()
    pair: Annotated[WindingPair | None, HIDDEN] = field(default=None, repr=False, compare=False)

    @property
    def value(self) -> dict[str, Any]:
        """The pair's numbers, and the periods of the lines that it is, or mixes."""
        value = {
            "components": list(self.components), "turns": self.turns, "share": self.share,
            "radius_cv": self.radius_cv, "local_period": list(self.local_period),
        }  # fmt: skip
        more = {
            "turn": list(self.turn or ()),
            "rotation": self.rotation,
            "mixed": [line.period for line in self.mixed],
        }
        return value | {name: each for name, each in more.items() if each}


def ask_winding(seen: View) -> Answer:
    """Ask whether a pair of components goes round a centre.

    The number is ``turns * (1 - radius CV) * share`` of the pair where it is largest: many turns,
    at an even distance from the centre, of much of the variance. The nulls are the table's own
    steps with random signs, added up, and a stationary process with its fitted kernel and its
    covariance of columns: smooth curves in as few directions wind now and then as well.
    """
    n, d = seen.values.shape
    if n < MIN_ROWS or d < 2 or seen.constant:
        reason = "all_equal" if seen.constant and n >= MIN_ROWS else "too_few"
        return Answer("winding", "cannot tell", reason, TooFew(n, d), keys=WINDING_KEYS)
    points = seen.values - seen.values.mean(axis=0)
    points = points / np.abs(points).max()
    value, pair, kept = strongest(points)
    if pair is None or value <= 0:
        # Nothing is below it: no draw need be made.
        return Answer("winding", "no", "none", None, Test(0.0, 1.0), WINDING_KEYS)
    p, of, drawn = _drawn(points, value, seen.rng(11))
    facts = _winding_facts(pair, kept)
    # What is drawn is told in turns, of a pair with as large a share and as even a distance.
    test = against(pair.turns, drawn * (pair.turns / value), of, p)
    answer: Verdict = "no"
    if pair.turns < MIN_TURNS:
        reason = "part_turn"
    elif p > OPEN:
        reason = "smooth"
    elif p > LEVEL:
        answer, reason = "cannot tell", "open"
    elif facts.share < LEAST_SHARE:
        reason = "small"
    else:
        answer, reason = "yes", "turns"
    return Answer("winding", answer, reason, facts, test, WINDING_KEYS)


def strongest(points: Floats) -> tuple[float, WindingPair | None, float]:
    """Return the pair where ``turns * (1 - radius CV) * share`` is largest.

    Parameters
    ----------
    points
        ``[n, d]``.

    Returns
    -------
    tuple
        That number, the pair, and which share of the variance the directions hold that the pair's
        own share is of.
    """
    points = points - points.mean(axis=0)
    total = float(np.square(points).sum())
    if points.shape[1] > 2 * DIRECTIONS:
        points = leading(points, DIRECTIONS)
    variance, directions = np.linalg.eigh(points.T @ points)
    variance, directions = variance[::-1][:DIRECTIONS], directions[:, ::-1][:, :DIRECTIONS]
    if not variance[0] > 0:
        return 0.0, None, 0.0
    ratio = np.maximum(variance, 0.0) / variance.sum()
    kept = kept_components(ratio)
    pairs = winding_pairs(points @ directions[:, :kept], ratio) if kept > 1 else []
    sizes = [
        pair.turns * max(1 - pair.radius_cv, 0.0) * pair.share if pair.share >= SHARE else 0.0
        for pair in pairs
    ]
    best = int(np.argmax(sizes)) if sizes else 0
    held = float(variance.sum()) / total
    return (sizes[best], pairs[best], held) if sizes else (0.0, None, held)


def _drawn(points: Floats, value: float, rng: np.random.Generator) -> tuple[float, str, Floats]:
    """Return the p-value, and the name and the draws of the nearest null."""
    n = len(points)
    steps = leading(np.diff(points, axis=0), DIRECTIONS)
    process = fit_process(leading(points, 2 * DIRECTIONS), Sequence(n))
    drawn: dict[str, list[float]] = {"walk": [], "stationary": []}
    p = 0.0
    for count in (DRAWS, DRAWS_ALONE - DRAWS):
        for _ in range(count if p <= LEVEL else 0):
            signs = rng.choice([-1.0, 1.0], size=(n - 1, 1))
            walk = np.concatenate([np.zeros((1, steps.shape[1])), np.cumsum(signs * steps, axis=0)])
            drawn["walk"].append(strongest(walk)[0])
            curve = np.asarray(process.draw(rng), dtype=np.float64)
            drawn["stationary"].append(strongest(curve)[0])
        ranks = {
            name: (1 + sum(each >= value for each in null)) / (len(null) + 1)
            for name, null in drawn.items()
        }
        p = max(ranks.values())
    of = max(ranks, key=lambda name: (ranks[name], float(np.median(drawn[name]))))
    return p, of, np.array(drawn[of])


def _winding_facts(pair: WindingPair, held: float) -> Winding:
    period = pair.local_period
    lengths = turn_lengths(pair.phase)
    turn, changes = None, False
    if len(lengths):
        fast, slow = (float(q) for q in np.quantile(lengths, (0.1, 0.9)))
        turn = (fast, slow)
        changes = slow > DRIFT * fast * _by_noise(pair.phase)
    first, second = pair.components
    return Winding(
        components=(first + 1, second + 1),
        share=pair.share * held,
        turns=pair.turns,
        radius_cv=pair.radius_cv,
        local_period=tuple(period[np.isfinite(period)].tolist()),
        turn=turn,
        changes=changes,
        pair=pair,
    )


def _by_noise(phase: Floats) -> float:
    """Return the ratio of slow whole turns to fast ones that noise of the phase alone makes.

    By the second differences of the phase, to which a steady or slowly changing pace adds nothing.
    """
    noise = float(np.sqrt(np.square(np.diff(phase, 2)).mean() / 6))
    off = min(1.2816 * float(np.sqrt(2)) * noise / (2 * float(np.pi)), 0.9)  # a normal's tenths
    return (1 + off) / (1 - off)


def turn_lengths(phase: Floats) -> Floats:
    """Return how many positions a whole turn takes from each position that one begins at.

    Over whole turns: within one, components that share a slow trend seem to go round unevenly.

    Parameters
    ----------
    phase
        ``[n]``, radians, unwrapped.
    """
    ahead = np.maximum.accumulate(phase) + 1e-9 * np.arange(len(phase))
    begins = np.flatnonzero(ahead + 2 * np.pi <= ahead[-1])
    ends = np.interp(ahead[begins] + 2 * np.pi, ahead, np.arange(len(phase)))
    return np.asarray(ends - begins)


def by_rotations(winding: Answer, rotations: Answer) -> Answer | None:
    """Say of what winds which line of the spectrum it is, or which lines it mixes."""
    facts = winding.facts
    if not (winding.yes and rotations.yes and isinstance(rotations.facts, Rotations)):
        return None
    lines = rotations.facts.lines
    if not lines or facts.pair is None:
        return None
    shares = rhythms(facts.pair, [line.period for line in lines])
    largest = np.argsort(-shares, kind="stable").tolist()
    mixed = [lines[k] for k in largest if shares[k] >= MIXED]
    if len(mixed) > 1 and _apart(facts, mixed[0]) > SAME_TURNS:
        facts = replace(facts, mixed=tuple(sorted(mixed, key=lambda line: line.period)))
        if not all(line.round for line in mixed):
            return winding.corrected("cannot tell", "mixed_waves", "rotations", facts=facts)
        facts = replace(facts, turns=mixed[0].turns, rotation=mixed[0].period)
        return winding.corrected("yes", "mixed", "rotations", facts=facts)
    nearest = min(lines, key=lambda line: _apart(facts, line))
    if _apart(facts, nearest) > SAME_TURNS:
        return None
    facts = replace(facts, rotation=nearest.period)
    return winding.corrected("yes", "rotation", "rotations", facts=facts)


def _apart(facts: Winding, line: Rotation) -> float:
    """Return the relative difference between the turns of a pair and of a line."""
    return abs(facts.turns / line.turns - 1)


WINDING = Question(
    "winding",
    ask_winding,
    (
        "turns", "small", "part_turn", "smooth", "open", "none", "rotation", "mixed", "mixed_waves",
    ),
)  # fmt: skip
