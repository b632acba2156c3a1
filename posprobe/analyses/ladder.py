"""The sinusoid's ladder of frequencies: the span of its columns, and the table itself, centred.

Warning: 0.99 of a random walk lies within a wide ladder's span, which holds nearly every slow wave.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.closeness import Cloud, Floats, debiased_cka
from posprobe.encodings.sinusoidal import frequencies

#: Directions in which the ladder varies less than this, as a share of its widest, do not count.
LADDER_CONDITION = 1e-6


@dataclass(frozen=True, eq=False)
class Ladder:
    """The centred sinusoid of one shape, as a span and as a table.

    Parameters
    ----------
    basis
        ``[n, r]`` orthonormal, orthogonal to the constant: every direction in which the sinusoid
        varies by more than `LADDER_CONDITION` of its widest.
    singular
        ``[r]``, falling.
    """

    basis: Floats
    singular: Floats

    @property
    def rank(self) -> int:
        """Number of directions that the ladder spans."""
        return len(self.singular)

    @property
    def white_share(self) -> float:
        """Share of white noise that as many directions explain."""
        return self.rank / (len(self.basis) - 1)

    @property
    def spans_all(self) -> bool:
        """Whether every table of this length lies in the span, so that its share says nothing."""
        return self.rank >= len(self.basis) - 1

    @cached_property
    def cloud(self) -> Cloud:
        """The sinusoid, ready for comparisons."""
        return Cloud(self.basis * self.singular, self.basis, self.singular)

    @cached_property
    def projector(self) -> Floats:
        """``[n, n]``: projection onto the span."""
        return self.basis @ self.basis.T

    def share(self, table: Cloud) -> float:
        """Return the share of a table's variance that lies in the span."""
        return float(np.square(self.basis.T @ table.points).sum() / table.total)

    @cached_property
    def _single(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        # From single precision on, since the double matrices would take twice the memory again.
        basis, points = self.basis.astype(np.float32), self.cloud.points.astype(np.float32)
        return points @ points.T, basis @ basis.T

    def from_gram(self, gram: NDArray[np.floating[Any]]) -> tuple[float | None, float | None]:
        """Return the debiased CKA and the span's share of a table known by its Gram matrix.

        Three passes over the matrix: all that a surrogate costs once it has a Gram matrix.

        Parameters
        ----------
        gram
            ``[n, n]`` of the centred rows, float32 or float64.

        Returns
        -------
        tuple
            None for a number that is undefined.
        """
        single = gram.dtype == np.float32
        reference, projector = self._single if single else (self.cloud.gram, self.projector)
        return self._reduced(
            power=np.diagonal(gram).astype(np.float64),
            squared=float(np.vdot(gram, gram)),
            cross=float(np.vdot(reference, gram)),
            inside=float(np.vdot(projector, gram)),
            eps=len(gram) * float(np.finfo(gram.dtype).eps),
        )

    def from_rows(
        self, table: NDArray[np.floating[Any]], squared: float
    ) -> tuple[float | None, float | None]:
        """Return the same numbers of a table too long for its Gram matrix.

        Parameters
        ----------
        table
            ``[n, d]``, centred, float32 or float64.
        squared
            Sum of the squares of its Gram matrix.
        """
        basis = self.basis.astype(table.dtype, copy=False)
        along = np.square(basis.T @ table, dtype=np.float64).sum(axis=1)
        return self._reduced(
            power=np.square(table, dtype=np.float64).sum(axis=1),
            squared=squared,
            cross=float(np.square(self.singular) @ along),
            inside=float(along.sum()),
            eps=table.shape[1] * float(np.finfo(table.dtype).eps),
        )

    def from_itself(self) -> tuple[float | None, float | None]:
        """Return the same numbers of the sinusoid itself, which need no product."""
        squared, power = self.cloud.squared_gram, self.cloud.power
        eps = len(self.basis) * float(np.finfo(np.float64).eps)
        return self._reduced(
            power=power, squared=squared, cross=squared, inside=float(power.sum()), eps=eps
        )

    def _reduced(
        self, *, power: Floats, squared: float, cross: float, inside: float, eps: float
    ) -> tuple[float | None, float | None]:
        """Reduce sums over both tables' Gram matrices to the two numbers."""
        if squared <= 0:
            return None, None
        squares = squared, self.cloud.squared_gram
        similarity = debiased_cka(cross, squares, (power, self.cloud.power), eps)
        return similarity, None if self.spans_all else inside / float(power.sum())


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
    order = order[singular[order] > LADDER_CONDITION * singular[order[0]]]
    kept, values = basis[:, order], singular[order]
    for array in (kept, values):
        array.flags.writeable = False  # the next caller gets the same
    return Ladder(kept, values)
