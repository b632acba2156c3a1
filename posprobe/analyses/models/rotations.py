"""Find by which angles a rotation turned vectors, from the same vectors at several positions.

In a pair of columns ``(i, j)`` the vectors ``z = x_i + 1j x_j`` become ``z exp(1j omega s)`` at a
position that is ``s`` later. Least squares over many vectors give the angle, and what they leave
shows whether the columns are a pair (Su et al. 2021).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.arrays import Floats

#: Order of the columns of a head in pairs; ``other`` for neither, ``none`` if no column turns.
PairOrder: TypeAlias = Literal["halves", "neighbours", "other", "none"]
#: Unit roundoff of numbers in single precision.
SINGLE_ROUNDOFF = 2.0**-24
#: Angles in radians that differ by less are equal, however exact the numbers are. Training with a
#: ladder rounded to bfloat16 would leave 0.1 at distance 50.
MIN_ANGLE_NOISE_RADIANS = 0.01
#: Rounding of vectors, and of the layers before, moves an angle by at most so many unit roundoffs.
ANGLE_NOISE_ROUNDOFFS = 13
#: In float32, an angle is off by this share of its position.
ANGLE_ROUNDING = 2.0**-22
#: Largest share of the power of a pair that its angle may leave unexplained, however exact the
#: numbers are. Columns that are no pair leave a quarter or more.
MIN_RESIDUAL_SHARE = 1e-3
#: Rounding leaves the square of at most so many unit roundoffs, as a share of the power.
RESIDUAL_ROUNDOFFS = 36
#: Columns turn if some position turns them by more, in radians, in single precision.
MIN_COLUMN_TURN_RADIANS = 3e-4
#: Columns with less than this share of the power of an average column tell nothing.
MIN_COLUMN_POWER = 1e-9
#: Positions grow by this factor, so that each angle tells how often the next one went round.
POSITION_RATIO = 8


def spread_positions(last_position: int) -> list[int]:
    """Return positions up to ``last_position`` that show each frequency up to 1."""
    powers = []
    position = 1
    while position < last_position:
        powers.append(position)
        position *= POSITION_RATIO
    return [0, *powers, *([last_position] if last_position > 0 else [])]


@dataclass(frozen=True, eq=False)
class ColumnPairs:
    """The pairs of a head's columns, and the frequency of each.

    Parameters
    ----------
    frequencies
        ``[pairs]``, radians per position.
    columns
        ``[2, pairs]``: first and second column of each.
    width
        Number of columns.
    """

    frequencies: Floats
    columns: NDArray[np.int64]
    width: int

    @property
    def order(self) -> PairOrder:
        """Order in which the columns make pairs."""
        first, second = self.columns
        gaps = set((second - first).tolist())
        if len(gaps) != 1:
            return "other" if gaps else "none"
        if gaps == {1}:
            return "neighbours"
        is_consecutive = (np.diff(first) == 1).all()
        return "halves" if is_consecutive else "other"


def arrange_pairs(
    frequencies: Floats, width: int, order: str, *, at_end: bool = False
) -> ColumnPairs:
    """Return the pairs of a head whose columns turn by a ladder, those with frequency 0 left out.

    Parameters
    ----------
    frequencies
        ``[pairs]``, radians per position.
    width
        Number of columns of the head.
    order
        ``halves`` or ``neighbours``.
    at_end
        Whether the last columns turn, where not all do.
    """
    n_pairs = len(frequencies)
    start = width - 2 * n_pairs if at_end else 0
    index = np.arange(n_pairs)
    columns = (
        np.array([2 * index, 2 * index + 1])
        if order == "neighbours"
        else np.array([index, index + n_pairs])
    )
    turns = frequencies != 0
    return ColumnPairs(frequencies[turns], (columns + start)[:, turns], width)


@dataclass(frozen=True, eq=False)
class TurnedVectors:
    """The same vectors at several positions.

    Parameters
    ----------
    vectors
        ``[positions, vectors, width]``.
    shifts
        ``[positions]``: how much later each is than the first.
    roundoff
        Unit roundoff of the precision in which they were computed.
    """

    vectors: Floats
    shifts: NDArray[np.int64]
    roundoff: float = SINGLE_ROUNDOFF
    _products: Floats = field(init=False, repr=False)
    _powers: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        vectors = np.asarray(self.vectors, dtype=np.float64)
        products = np.matmul(vectors[0].T, vectors)
        object.__setattr__(self, "_products", products)
        object.__setattr__(self, "_powers", (vectors**2).sum(axis=1))

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.vectors.shape[-1])

    def angle_limits(self) -> Floats:
        """Return the largest error of an angle at each shift that rounding explains."""
        noise = max(MIN_ANGLE_NOISE_RADIANS, ANGLE_NOISE_ROUNDOFFS * self.roundoff)
        rounding = ANGLE_ROUNDING * np.abs(self.shifts)
        return np.asarray(noise + rounding, dtype=np.float64)

    @property
    def max_residual_share(self) -> float:
        """Largest share of the power of a pair that rounding leaves beside its angle."""
        return max(MIN_RESIDUAL_SHARE, (RESIDUAL_ROUNDOFFS * self.roundoff) ** 2)

    @property
    def min_turn(self) -> float:
        """Angle in radians by which columns turn that do not seem to by rounding alone."""
        return max(MIN_COLUMN_TURN_RADIANS, ANGLE_NOISE_ROUNDOFFS * self.roundoff)

    def measure_turns(
        self, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> tuple[NDArray[np.complex128], Floats]:
        """Return how pairs of columns turned, and the share of their power that this leaves.

        Returns
        -------
        tuple
            ``[positions, pairs]`` each.
        """
        products, powers = self._products, self._powers
        numerator = products[:, first, first] + products[:, second, second]
        numerator = numerator + 1j * (
            products[:, first, second] - products[:, second, first]
        )
        before = powers[0, first] + powers[0, second]
        after = powers[:, first] + powers[:, second]
        floor = MIN_COLUMN_POWER * powers[0].mean() + 1e-300
        # Columns that are zero at all positions fit any rotation.
        is_empty = (before < floor) & (after < floor)
        turns = np.where(is_empty, 1.0, numerator / np.maximum(before, floor))
        residual_power = after - np.abs(numerator) ** 2 / np.maximum(before, floor)
        shares = np.where(is_empty, 0.0, residual_power / np.maximum(after, floor))
        return turns, np.maximum(shares, 0.0)

    def has_values(self, pairs: ColumnPairs) -> NDArray[np.bool_]:
        """Tell which pairs have any power, ``[pairs]``."""
        floor = MIN_COLUMN_POWER * self._powers[0].mean()
        power = self._powers[0][pairs.columns].sum(axis=0)
        return np.asarray(power >= floor, dtype=np.bool_)

    def measure_errors(self, pairs: ColumnPairs) -> tuple[Floats, Floats]:
        """Return how far pairs turned from their frequencies, and the share that this leaves.

        Returns
        -------
        tuple
            ``[positions, pairs]`` each; angles in radians, 0 for pairs without values.
        """
        turns, shares = self.measure_turns(*pairs.columns)
        angles = np.outer(self.shifts, pairs.frequencies)
        errors = np.abs(np.angle(turns * np.exp(-1j * angles))) * self.has_values(pairs)
        return np.asarray(errors, dtype=np.float64), shares

    def fits(self, pairs: ColumnPairs) -> bool:
        """Tell whether these pairs turned by their frequencies, and nothing else changed."""
        if pairs.width != self.width or (pairs.columns >= self.width).any():
            return False
        errors, shares = self.measure_errors(pairs)
        limits = self.angle_limits()[:, None]
        still = np.setdiff1d(np.arange(self.width), pairs.columns)
        return bool(
            (errors <= limits).all()
            and (shares <= self.max_residual_share).all()
            and (self.column_changes()[still] <= self.max_residual_share).all()
        )

    def column_changes(self) -> Floats:
        """Return the largest share of each column that its first values leave, ``[width]``."""
        products = np.einsum("kii->ki", self._products)
        floor = MIN_COLUMN_POWER * self._powers[0].mean() + 1e-300
        powers = np.maximum(self._powers, floor)
        residual_power = self._powers - products**2 / np.maximum(self._powers[0], floor)
        return np.asarray(np.maximum(residual_power / powers, 0.0).max(axis=0))


@dataclass(frozen=True, eq=False)
class ObservedRotation:
    """What a rotation did to the same vectors at several positions.

    Parameters
    ----------
    samples
        The vectors.
    length
        Length of the input, on which frequencies may depend; None for at most the trained one.
    factor
        Factor on cosines and sines; None if it was not seen.
    is_regathered
        Whether neighbouring columns are put as halves before they turn.
    offset
        Positions by which the first position was turned already.
    """

    samples: TurnedVectors
    length: int | None = None
    factor: float | None = None
    is_regathered: bool = False
    offset: float = 0.0


@dataclass(frozen=True, eq=False)
class RunningLayer:
    """What one attention layer did with position as it ran.

    Parameters
    ----------
    layer
        Number of the layer.
    rotations
        Rotations of ``queries`` and ``keys``; empty if their inputs differ between positions.
    far_rotations
        The same at positions beyond the trained length, where they were run.
    axes
        Queries of which one axis of positions was moved alone, for each axis; empty for one axis.
    window
        Most keys up to its own position that a query saw; None if it saw all.
    window_context
        Tokens of the context in which that was seen; 0 without one.
    has_sinks
        Whether attention over keys adds up to less than 1; None if it was not seen.
    """

    layer: int
    rotations: Mapping[str, ObservedRotation]
    far_rotations: Mapping[str, ObservedRotation] = field(default_factory=dict)
    axes: tuple[TurnedVectors, ...] = ()
    window: int | None = None
    window_context: int = 0
    has_sinks: bool | None = None


@dataclass(frozen=True)
class RunPlan:
    """Positions at which a model is run.

    Parameters
    ----------
    near_last
        Last position, within the trained length where frequencies depend on the length.
    far_last, far_reach
        Last position beyond that length, and how much earlier positions may begin; None without.
    window_context
        Tokens of a context in which windows are seen.
    """

    near_last: int
    far_last: int | None = None
    far_reach: int = 0
    window_context: int = 0


def measure_pairs(samples: TurnedVectors, expected: ColumnPairs) -> ColumnPairs:
    """Find the pairs of columns that turned together, and their frequencies.

    Parameters
    ----------
    samples
        Vectors at several positions.
    expected
        Pairs that are expected. They stand for those that turn too little to be told.

    Returns
    -------
    ColumnPairs
        A frequency is negative where a pair turns backwards.
    """
    # Vectors that turn by an angle leave the square of its sine.
    min_change = samples.min_turn**2
    turning = np.flatnonzero(samples.column_changes() > min_change)
    columns = _complete_pairs(samples, expected, _match_columns(samples, turning))
    turns, _ = samples.measure_turns(*columns)
    frequencies = unwrap_frequencies(np.angle(turns), samples.shifts)
    return ColumnPairs(frequencies, columns, samples.width)


def _match_columns(
    samples: TurnedVectors, turning: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the columns that are each other's best partner, ``[2, pairs]``."""
    if len(turning) < 2:
        return np.zeros((2, 0), dtype=np.int64)
    grid = np.meshgrid(turning, turning, indexing="ij")
    _, shares = samples.measure_turns(grid[0].ravel(), grid[1].ravel())
    misfits = shares.max(axis=0).reshape(len(turning), len(turning))
    np.fill_diagonal(misfits, np.inf)
    best = misfits.argmin(axis=1)
    limit = samples.max_residual_share
    chosen = [
        (turning[i], turning[j])
        for i, j in enumerate(best)
        if best[j] == i and i < j and misfits[i, j] <= limit
    ]
    return np.array(chosen, dtype=np.int64).reshape(-1, 2).T


def _complete_pairs(
    samples: TurnedVectors,
    expected: ColumnPairs,
    columns: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Arrange pairs that turn too little to be told apart as most of the others are."""
    gaps = columns[1] - columns[0]
    if not len(gaps):
        return columns
    usual_gap = int(np.bincount(gaps).argmax())
    usual_first = columns[0][gaps == usual_gap]
    last_position = np.abs(samples.shifts).max()
    for candidate, slowest_angles in _usual_arrangements(
        samples.width, usual_gap, expected
    ):
        turns, shares = samples.measure_turns(*candidate)
        is_pair = bool((shares <= samples.max_residual_share).all())
        if 2 * len(usual_first) <= len(gaps) or not is_pair:
            continue
        if not np.isin(usual_first, candidate[0]).all():
            continue
        limit = samples.min_turn
        is_turning = np.abs(np.angle(turns)).max(axis=0) > limit
        return candidate[:, is_turning | (slowest_angles * last_position <= limit)]
    return columns


def _usual_arrangements(
    width: int, gap: int, expected: ColumnPairs
) -> Iterator[tuple[NDArray[np.int64], Floats]]:
    """Yield columns of pairs with a gap, and the frequencies that are stated for them."""
    if (expected.columns[1] - expected.columns[0] == gap).all():
        yield expected.columns, np.abs(expected.frequencies)
    spans = [(0, gap), (width - 2 * gap, width - gap)]
    if gap == 1:
        spans = [(0, width - 1)]
    for start, stop in spans:
        if start >= 0 and stop + gap <= width:
            first = np.arange(start, stop, 2 if gap == 1 else 1)
            slowest = np.full(len(first), np.inf)
            if len(first) == len(expected.frequencies):
                slowest = np.abs(expected.frequencies)
            yield np.array([first, first + gap]), slowest


def unwrap_frequencies(angles: Floats, shifts: NDArray[np.int64]) -> Floats:
    """Return the frequencies ``[pairs]`` that angles at growing shifts show.

    Parameters
    ----------
    angles
        ``[positions, pairs]``, between -pi and pi.
    shifts
        ``[positions]``, each at most `POSITION_RATIO` times as far as the one before.
    """
    order = np.argsort(np.abs(shifts), kind="stable")
    frequencies = np.zeros(angles.shape[1])
    for index in order:
        shift = int(shifts[index])
        if shift:
            whole_turns = np.round((frequencies * shift - angles[index]) / (2 * np.pi))
            frequencies = (angles[index] + 2 * np.pi * whole_turns) / shift
    return frequencies
