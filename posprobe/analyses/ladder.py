"""The sinusoid's ladder of frequencies: the span of its columns, and the table itself, centred.

Warning: 0.99 of a random walk lies within a wide ladder's span, which holds nearly every slow wave.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from posprobe.analyses.closeness import Cloud, Floats
from posprobe.analyses.rounding import EPS
from posprobe.encodings.tables import frequencies

#: Directions in which the ladder varies less than this, as a share of its widest, do not count.
LADDER_CONDITION = 1e-6


@dataclass(frozen=True, eq=False)
class Ladder:
    """The centred sinusoid of one shape, as a span and as a table.

    Parameters
    ----------
    left
        ``[n, k]`` orthonormal, orthogonal to the constant: every direction in which the sinusoid
        varies by more than rounding.
    values
        ``[k]``: by how much it varies, falling.
    """

    left: Floats
    values: Floats

    @cached_property
    def rank(self) -> int:
        """Number of directions in which it varies by more than `LADDER_CONDITION` of its widest."""
        return int(np.count_nonzero(self.values > LADDER_CONDITION * self.values[0]))

    @property
    def basis(self) -> Floats:
        """``[n, r]``: those directions."""
        return self.left[:, : self.rank]

    @property
    def singular(self) -> Floats:
        """``[r]``: of those directions."""
        return self.values[: self.rank]

    @cached_property
    def cloud(self) -> Cloud:
        """The sinusoid, ready for comparisons."""
        return Cloud(self.basis * self.singular, self.basis, self.singular)

    @property
    def white_share(self) -> float:
        """Share of white noise that as many directions explain."""
        return self.rank / (len(self.basis) - 1)

    @property
    def spans_all(self) -> bool:
        """Whether every table of this length lies in the span, so that its share says nothing."""
        return self.rank >= len(self.basis) - 1

    def share(self, table: Cloud) -> float:
        """Return the share of a table's variance that lies in the span."""
        return float(np.square(self.basis.T @ table.points).sum() / table.total)


@lru_cache(maxsize=4)
def ladder(n: int, d: int) -> Ladder:
    """Decompose the centred sinusoid of ``n`` positions and even width ``d``.

    Seen from the middle of the table, cosines are even and sines odd, so that the two halves of
    the decomposition have half the length each.
    """
    angles = np.outer(np.arange(n // 2, n) - (n - 1) / 2, frequencies(d))  # from the middle on
    weight = np.full((len(angles), 1), np.sqrt(2.0))  # each row stands for its mirror image too
    if n % 2:
        weight[0] = 1.0
    even = np.cos(angles)
    even = even - (weight**2 * even).sum(axis=0) / n
    halves = [np.linalg.svd(weight * half, full_matrices=False) for half in (even, np.sin(angles))]
    singular = np.concatenate([half[1] for half in halves])
    whole = []
    for sign, (left, _, _) in zip((1, -1), halves, strict=True):
        upper = left / weight
        whole.append(np.concatenate([sign * upper[n % 2 :][::-1], upper]))
    basis = np.concatenate(whole, axis=1)
    order = np.argsort(-singular, kind="stable")
    order = order[singular[order] > EPS * singular[order[0]]]
    kept, values = basis[:, order], singular[order]
    for array in (kept, values):
        array.flags.writeable = False  # the next caller gets the same
    return Ladder(kept, values)
