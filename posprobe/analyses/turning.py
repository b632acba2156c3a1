"""Whether a table winds around a centre more than smooth curves and walks do by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from posprobe.analyses.answer import OPEN, Answer
from posprobe.analyses.closeness import Floats
from posprobe.analyses.stationary import fit_process, leading
from posprobe.analyses.views import LEVEL
from posprobe.analyses.winding import Winding, kept_components, winding, winding_pairs
from posprobe.layouts import Sequence

#: Draws of each null: the least p-value that they allow is 0.02.
DRAWS = 49
#: Leading directions of which pairs are looked at, in the table and in the draws alike.
DIRECTIONS = 6
#: Fewest rows that can be asked, and turns that count as winding.
MIN_ROWS, MIN_TURNS = 24, 1.0
#: Least share of the variance of a pair that speaks for the table.
SHARE = 0.1
#: Ratio of slow whole turns to fast ones, the outer tenths aside, from which the period changes.
DRIFT = 1.3
#: Words of what winds at no steady pace.
CHANGES = "their period changes along the table"


def _times(turns: float) -> str:
    # Near one turn, which is where the answer changes, a tenth is too coarse.
    if turns < 1:
        return f"{min(turns, 0.99):.2f}"
    return f"{turns:.2f}" if turns < 1.5 else f"{turns:.1f}"


def winds(values: Floats, found: Winding | None, *, seed: int = 0) -> Answer:
    """Ask whether a pair of components goes round a centre.

    The number is ``turns * (1 - radius CV) * share`` of the pair where it is largest: many turns,
    at an even distance from the centre, of much of the variance. The nulls are the table's own
    steps with random signs, added up, and a stationary process with its fitted kernel and its
    covariance of columns: smooth curves in as few directions wind now and then as well.

    Parameters
    ----------
    values
        ``[n, d]``, finite; rows that are special already left out.
    found
        Its winding where it was measured already, whose numbers the sentence tells.
    seed
        Of the draws.
    """
    keys = ("winding.turns", "winding.pairs")
    n = len(values)
    points = values - values.mean(axis=0)
    flat = not np.abs(points).max(initial=0.0) > 1e-12 * np.abs(values).max(initial=0.0)
    if n < MIN_ROWS or values.shape[1] < 2 or flat:
        d = values.shape[1]
        text = f"Cannot be told from {n} rows of {d} column{'s' if d > 1 else ''}."
        if flat and n >= MIN_ROWS:
            text = "Cannot be told: all rows are equal."
        return Answer("winding", "cannot tell", text, keys=keys)
    points = points / np.abs(points).max()
    here = found if found is not None and not found.undefined else winding(points)
    value = _strength(points)
    rng = np.random.default_rng([seed, 11])
    steps = leading(np.diff(points, axis=0), DIRECTIONS)
    process = fit_process(leading(points, 2 * DIRECTIONS), Sequence(n))
    drawn = np.empty((2, DRAWS))
    for k in range(DRAWS):
        signs = rng.choice([-1.0, 1.0], size=(n - 1, 1))
        walk = np.concatenate([np.zeros((1, steps.shape[1])), np.cumsum(signs * steps, axis=0)])
        drawn[:, k] = _strength(walk), _strength(np.asarray(process.draw(rng), dtype=np.float64))
    p = max(float((1 + (null >= value).sum()) / (DRAWS + 1)) for null in drawn)
    typical = float(np.median(drawn, axis=1).max())
    if value <= 0 or not here.pairs:
        text = "No: no two components go round a common centre."
        return Answer("winding", "no", text, None, typical, p, 0.0, keys)
    pair = here.pairs[0]
    turns = _times(pair.turns)
    told = f"two components with {pair.share:.0%} of the variance go round {turns} times"
    period = pair.local_period[np.isfinite(pair.local_period)]
    detail: dict[str, Any] = {
        "turns": pair.turns,
        "share": pair.share,
        "radius_cv": pair.radius_cv,
        "local_period": [float(p) for p in period],
    }
    if p <= LEVEL and pair.turns >= MIN_TURNS:
        drift = ""
        turn = turn_lengths(pair.phase)
        if len(turn):
            fast, slow = (float(q) for q in np.quantile(turn, (0.1, 0.9)))
            detail["turn"] = [fast, slow]
            if slow > DRIFT * fast * _by_noise(pair.phase):
                drift = (
                    f"; {CHANGES}: most whole turns take between "
                    f"{fast:.3g} and {slow:.3g} positions"
                )
        text = f"Yes: {told}, more evenly than smooth curves and walks do{drift}."
        return Answer("winding", "yes", text, detail, typical, p, value - typical, keys)
    if p > OPEN or pair.turns < MIN_TURNS:
        enough = pair.turns >= MIN_TURNS
        why = "as those of smooth curves and walks do" if enough else "which is less than one turn"
        text = f"No: {told}, {why}."
        return Answer("winding", "no", text, detail, typical, p, value - typical, keys)
    text = f"Cannot be told: {told}, and smooth curves seldom do so as evenly."
    return Answer("winding", "cannot tell", text, detail, typical, p, value - typical, keys)


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


def _strength(points: Floats) -> float:
    """Return ``turns * (1 - radius CV) * share`` of the pair where it is largest."""
    points = points - points.mean(axis=0)
    if points.shape[1] > 2 * DIRECTIONS:
        points = leading(points, DIRECTIONS)
    variance, directions = np.linalg.eigh(points.T @ points)
    variance, directions = variance[::-1][:DIRECTIONS], directions[:, ::-1][:, :DIRECTIONS]
    if not variance[0] > 0:
        return 0.0
    ratio = np.maximum(variance, 0.0) / variance.sum()
    kept = kept_components(ratio)
    pairs = winding_pairs(points @ directions[:, :kept], ratio) if kept > 1 else []
    return max(
        (
            pair.turns * max(1 - pair.radius_cv, 0.0) * pair.share
            for pair in pairs
            if pair.share >= SHARE
        ),
        default=0.0,
    )
