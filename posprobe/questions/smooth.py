"""Whether the table bends gradually, against its own steps with random signs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.closeness import Floats
from posprobe.analyses.facts import Answer
from posprobe.analyses.linear import half_length, leading
from posprobe.analyses.views import DRAWS, LEVEL, View, random_signs, units
from posprobe.questions.base import OPEN, Question, against, rank, too_few, verdict_of

#: Steps that are compared, in positions.
STRIDES = (1, 2, 4, 8, 16, 32)
#: Least mean cosine of consecutive steps of a smooth curve: where a step tells at least 4 % of the
#: next one, its square. In long tables, a cosine of 0.01 is significant.
GRADUAL = 0.2
#: Share of the variance along a straight line from which it is told of noise, and from which it is
#: all that there is; fewest rows that are asked, and the mean cosine of neighbours beside the line
#: that counts as none.
LINE, ALL_LINE, LINE_ROWS, UNLIKE = 0.1, 0.99, 32, 0.1
#: Permutations of the places on a line: the least p-value, 1 / 491, stands alone among questions.
LINE_DRAWS = 10 * DRAWS
SMOOTH_KEYS = ("similarity.centered.offset_profile",)


@dataclass(frozen=True)
class Smooth:
    """How gradually a table bends.

    Parameters
    ----------
    rows
        Number of rows.
    cosine, stride
        Mean cosine of consecutive steps, weighted by their lengths, and how many positions a step
        is: of the strides tried, the one whose cosine is furthest above those of walks.
    length
        Distance, in positions, at which the mean inner product of centred rows falls to half of
        what neighbours have.
    straight
        Share of the variance of evenly spaced points on a straight line; None where it is no line.
    gap, waves, curve
        What another question shows: held-out R² of rotations and of the best smooth curve across
        gaps of so many positions.
    """

    rows: int
    cosine: float
    stride: int
    length: float
    straight: float | None = None
    gap: int | None = None
    waves: float | None = None
    curve: float | None = None

    @property
    def line(self) -> bool:
        """Whether a straight line is all that there is."""
        return self.straight is not None and self.straight > ALL_LINE

    @property
    def value(self) -> dict[str, float]:
        """The length, the cosine, the stride and, of a line, its share."""
        value = {"length": self.length, "cosine": self.cosine, "stride": self.stride}
        return value if self.straight is None else value | {"straight": self.straight}


def ask_smooth(seen: View) -> Answer:
    """Ask whether the table bends gradually, or is a straight line.

    Steps over 1, 2, 4, ... positions are compared with the ones after them: those of a walk are
    independent, those of a smooth curve point the same way.
    """
    if few := too_few("smooth", seen, SMOOTH_KEYS):
        return few
    n = len(seen)
    strides = [stride for stride in STRIDES if n >= 4 * stride + 4]
    signs = random_signs(n - 1, seen.rng(1))
    cosines = _cosines(np.diff(seen.points, axis=0), signs, strides)
    spread = cosines[:, 1:].std(axis=1, keepdims=True)
    middle = np.median(cosines[:, 1:], axis=1, keepdims=True)
    # Steps that are all orthogonal have no spread but rounding.
    score = (cosines - middle) / np.where(spread > 1e-9, spread, np.inf)
    best = int(score[:, 0].argmax())
    highest = score.max(axis=0)
    p = rank(highest[0], highest[1:])
    cosine = float(cosines[best, 0])
    facts = Smooth(n, cosine, strides[best], half_length(seen.points))
    answer = verdict_of(p, enough=n >= 16)
    reason = {"yes": "curve", "no": "not_smooth", "cannot tell": "open"}[answer]
    if answer == "yes" and cosine < GRADUAL:
        answer, reason = "no", "small"
    share, drawn = _straight(seen, noise=answer != "yes")
    if share > (ALL_LINE if answer == "yes" else LINE) and rank(share, drawn) <= LEVEL:
        reason = "line" if answer == "yes" else "noisy_line"
        test = against(share, drawn, "permuted", rank(share, drawn))
        return Answer("smooth", "yes", reason, replace(facts, straight=share), test, SMOOTH_KEYS)
    test = against(cosine, cosines[best, 1:], "walk", p)
    return Answer("smooth", answer, reason, facts, test, SMOOTH_KEYS)


def _cosines(steps: Floats, signs: Floats, strides: list[int]) -> Floats:
    """Return the mean cosines of consecutive steps of walks: ``[strides, walks]``.

    A cosine of two steps ``u`` and ``v`` is taken as ``2 u v / (u² + v²)``, sums over all places
    above and below, and follows from squares alone: ``(u + v)² / (u² + v²) - 1``. The squares are
    sums over pairs of single steps, of which the walks change the sign alone: no walk is formed.

    Parameters
    ----------
    steps
        ``[n - 1, d]``.
    signs
        ``[walks, n - 1]``.
    strides
        In positions.
    """
    count = len(steps)
    both, each = np.zeros((2, len(strides), len(signs)))
    for lag in range(min(2 * strides[-1], count)):
        first = np.arange(count - lag)
        last = first + lag
        # A pair of different steps stands twice in a square.
        inner = np.einsum("ij,ij->i", steps[: count - lag], steps[lag:]) * (2 if lag else 1)
        pairs = (signs[:, : count - lag] * signs[:, lag:]).T
        double = [_spans(first, last, 2 * k, 0, count - 2 * k + 1) for k in strides]
        single = [
            _spans(first, last, k, 0, count - 2 * k + 1) + _spans(first, last, k, k, count - k + 1)
            for k in strides
        ]
        both += (inner * double) @ pairs
        each += (inner * single) @ pairs
    moved = each > 1e-9 * each[0]  # a table that repeats itself comes back, but for rounding
    return np.where(moved, both / np.where(moved, each, 1.0) - 1, 0.0)


def _spans(
    first: NDArray[np.intp], last: NDArray[np.intp], length: int, start: int, stop: int
) -> NDArray[np.intp]:
    """Count the spans of so many steps, beginning at ``start`` to ``stop - 1``, that hold both."""
    latest, earliest = np.minimum(first, stop - 1), np.maximum(last - length + 1, start)
    return np.asarray(np.maximum(latest - earliest + 1, 0))


def _straight(seen: View, *, noise: bool) -> tuple[float, Floats]:
    """Return the share of the variance along a straight line, and that of permuted rows ``[k]``.

    0 where it is small, or where something other than ``noise`` was asked of and what the line
    leaves has an order of its own: a walk is no line.
    """
    n = len(seen)
    if n < LINE_ROWS:
        return 0.0, np.zeros(1)
    place = np.arange(n) - (n - 1) / 2
    place = place / np.linalg.norm(place)
    along = place @ seen.points
    share = float(along @ along) / n
    if share <= LINE:
        return 0.0, np.zeros(1)
    if noise:
        left = units(seen.points - np.outer(place, along))
        short, rng = leading(left, 8), seen.rng(8)
        orders = (rng.permutation(short) for _ in range(DRAWS))
        drawn = np.array([np.vdot(rows[1:], rows[:-1]) for rows in orders])
        found, typical = float(np.vdot(short[1:], short[:-1])), float(np.median(drawn))
        cosine = float(np.einsum("ij,ij->i", left[1:], left[:-1]).mean())
        if abs(cosine) > UNLIKE or rank(abs(found - typical), np.abs(drawn - typical)) <= OPEN:
            return 0.0, np.zeros(1)
    rng = seen.rng(9)
    places = np.stack([rng.permutation(place) for _ in range(LINE_DRAWS)])
    return share, np.square(places @ seen.points).sum(axis=1) / n


SMOOTH = Question(
    "smooth",
    ask_smooth,
    ("curve", "line", "noisy_line", "small", "not_smooth", "open", "rotations"),
)
