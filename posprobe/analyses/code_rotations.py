"""Whether a short code goes round more evenly than smooth curves of its length do.

The principal components of any smooth curve look like sinusoids of half a turn, one turn, one and a
half, and so on (Antognini & Sohl-Dickstein 2018, section 3), so that sinusoids alone are no sign of
a rotation. But their variances fall: two of them seldom have equal amplitudes a quarter of a period
apart, as the two phases of a rotation have. What is measured is therefore how much of the variance
is in one pair of directions that goes round evenly, and beside it stand smooth random curves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from posprobe.analyses.answer import rank
from posprobe.analyses.closeness import Floats
from posprobe.analyses.stationary import fit_kernel, root, toeplitz

#: Turns from the first position to the last that are looked for: fewest, most, and their steps.
LEAST_TURNS, MOST_TURNS, TURN_STEP = 0.75, 4.5, 0.05
#: Draws of each null.
DRAWS = 299
#: Curves with a squared exponential kernel of this share of their length go round most evenly.
ROUNDEST = 0.2


@dataclass(frozen=True, eq=False)
class CodeRotation:
    """The rotation that a code goes through most evenly.

    Parameters
    ----------
    turns
        From the first position to the last.
    share
        Of the code's variance: twice that of the weaker of the two directions.
    drawn
        ``[4, DRAWS]``: the shares in smooth random curves.
    """

    turns: float
    share: float
    drawn: Floats

    @property
    def p(self) -> float:
        """The rank among the null that reaches it most often."""
        return max(rank(self.share, null) for null in self.drawn)

    @property
    def typical(self) -> float:
        """The median of the null that is nearest."""
        return float(np.median(self.drawn, axis=1).max())


def code_rotation(code: Floats, rng: np.random.Generator) -> CodeRotation:
    """Look for the rotation that a code goes through most evenly.

    The nulls are curves with the fitted falling kernel, and with the kernel whose curves go round
    most evenly; each with the code's covariance of columns, and with as many independent ones.

    Parameters
    ----------
    code
        ``[h, d]``, centred, not constant.
    rng
        Source of randomness.
    """
    h, d = code.shape
    left, sizes, _ = np.linalg.svd(code, full_matrices=False)
    offset = np.arange(h)
    roundest = np.exp(-0.5 * np.square(offset / (ROUNDEST * h)))
    drawn = []
    for kernel in (fit_kernel(left * sizes).by_offset(h), roundest):
        factor = root(toeplitz(kernel))
        for rows in (rng.standard_normal((DRAWS, h, len(sizes))) * sizes, _independent(h, d, rng)):
            curves = factor @ rows
            drawn.append(_evenest(curves @ curves.swapaxes(1, 2))[0])
    share, turns = _evenest((code @ code.T)[None])
    return CodeRotation(float(turns[0]), float(share[0]), np.stack(drawn))


def _independent(h: int, d: int, rng: np.random.Generator) -> Floats:
    """Draw rows whose products are those of ``[h, d]`` white noise, in at most ``h`` columns."""
    white = rng.standard_normal((DRAWS, h, min(h, d)))
    if d <= h:
        return np.asarray(white)
    # Bartlett (1933): the triangular factor of a Wishart matrix.
    white = np.tril(white, -1)
    place = np.arange(h)
    white[:, place, place] = np.sqrt(rng.chisquare(d - place, (DRAWS, h)))
    return white


def _evenest(grams: Floats) -> tuple[Floats, Floats]:
    """Return shares and turns of the rotations with the greatest even share: ``[m]`` each."""
    h = grams.shape[-1]
    grams = grams - grams.mean(axis=1, keepdims=True)
    grams = grams - grams.mean(axis=2, keepdims=True)
    turns, products = _planes(h)
    inside = (grams.reshape(len(grams), -1) @ products).reshape(len(grams), 3, -1)
    half = (inside[:, 0] + inside[:, 1]) / 2
    weaker = half - np.hypot((inside[:, 0] - inside[:, 1]) / 2, inside[:, 2])
    best = weaker.argmax(axis=1)
    whole = np.maximum(np.trace(grams, axis1=1, axis2=2), np.finfo(np.float64).tiny)
    return 2 * weaker[np.arange(len(grams)), best] / whole, turns[best]


@lru_cache(maxsize=8)
def _planes(h: int) -> tuple[Floats, Floats]:
    """Return turns ``[f]``, and what takes a Gram matrix into the plane of each: ``[h², 3 f]``."""
    turns = np.arange(LEAST_TURNS, min(MOST_TURNS, (h - 1) / 3) + 1e-9, TURN_STEP)
    angle = 2 * np.pi * turns[:, None] * np.arange(h) / (h - 1)
    waves = np.stack([np.cos(angle), np.sin(angle)], axis=2)
    planes = np.linalg.qr(waves - waves.mean(axis=1, keepdims=True))[0]
    one, other = planes[..., 0], planes[..., 1]
    pairs = ((one, one), (other, other), (one, other))
    flat = [np.einsum("fi,fj->ijf", a, b).reshape(h * h, -1) for a, b in pairs]
    return turns, np.concatenate(flat, axis=1)
