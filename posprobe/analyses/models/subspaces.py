"""Overlap of the position subspace with the directions that tokens use.

In GPT-2 the leading directions of the positions are those that tokens use least, and few
coordinates carry each (James Simon 2024, blog, "GPT-2's positional encodings"). Single coordinates
that dominate a table make all its rows alike (Luo, Kulmizev & Mao, ACL 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import JsonType, Result, StoredArray
from posprobe.arrays import Array, Positions, positions, to_numpy
from posprobe.errors import UsageError
from posprobe.number_types import PAIR_LIMITS, Count, Natural, Reasons
from posprobe.tables import PositionTable

#: Percentiles between which a chance band lies, as everywhere in a report.
CHANCE_PERCENTILES = (5, 95)
#: The summary lists so many dimensions whose absence changes the mean cosine most. Luo, Kulmizev &
#: Mao find one to three that dominate.
N_OUTLIER_DIMENSIONS = 3
#: Rows that are processed at a time, which takes 128 MiB at a width of 4,096.
_BLOCK_ROWS = 4096
#: If less of a row's squared length remains without one dimension, it is rounding error. At this
#: share, 1 less a number near 1 keeps six digits.
_MIN_REMAINING_SHARE = 1e-10


@dataclass(frozen=True)
class OutlierDimension:
    """A dimension without which the mean cosine of two positions is another."""

    dimension: Count
    change: float


@dataclass(frozen=True)
class Chance:
    """What a random subspace of the same rank has.

    Parameters
    ----------
    expected
        Mean over all subspaces of that rank.
    band
        5 and 95 % of them, by the beta distribution of that mean and its exact variance.
    """

    expected: float
    band: Annotated[
        tuple[float, float], JsonType(list[float]), "5 and 95 %.", PAIR_LIMITS
    ]


@dataclass(frozen=True)
class Share(Chance):
    """A share beside what a random subspace of the same rank has; None where it is undefined."""

    value: float | None


@dataclass(frozen=True, eq=False, repr=False)
class SubspaceOverlap(Result):
    """The subspace of the leading position directions beside the directions of the tokens.

    Directions are right singular vectors, of positions and of tokens each less their mean:
    ``u_i`` and ``v_j``, largest singular value first.

    Parameters
    ----------
    matrix
        ``[rank, m]``: ``(u_i . v_j)²``.
    overlap
        ``[m]``: squared length of the projection of ``v_j`` onto the position subspace.
    position_share
        ``[rank]``: share of each direction in the variance of the positions.
    token_share
        ``[m]``: the same for tokens.
    loadings
        ``[rank]``: number of coordinates that carry each position direction, ``1 / Σ u⁴``; about
        ``(d + 2) / 3`` for a random direction, 1 for a coordinate.
    chance
        ``overlap`` of one direction with a random subspace of that rank: mean ``rank / d``, and the
        band.
    top, bottom
        Share of the position subspace within the tenth of all directions that tokens use most, and
        within the tenth that they use least.
    variance
        Share of the tokens' variance within the position subspace.
    mean_cosine
        Mean cosine of two positions as stored; None where fewer than two have a direction.
    cosine_change
        ``[d]``: what leaving one dimension out adds to it; NaN where rows lie along that dimension
        alone.
    tokens
        Number of vectors that stand for all tokens.
    undefined
        Reason for each number that is None.
    """

    figures: ClassVar[str] = "states.plot_subspaces"

    matrix: Annotated[NDArray[np.float64], StoredArray("overlap_matrix")]
    overlap: Annotated[NDArray[np.float64], StoredArray("overlap")]
    position_share: Annotated[NDArray[np.float64], ""]
    token_share: NDArray[np.float64]
    loadings: Annotated[NDArray[np.float64], ""]
    chance: Annotated[
        Chance, "Overlap of one direction with a random subspace of that rank."
    ]
    top: Annotated[Share, "Within the tenth of the directions that tokens use most."]
    bottom: Annotated[Share, "Within the tenth of the directions that tokens use least."]
    variance: Annotated[Share, "Share of the tokens' variance within the subspace."]
    mean_cosine: float | None
    cosine_change: NDArray[np.float64]
    tokens: Natural
    undefined: Reasons

    @property
    def rank(self) -> Annotated[Count, ""]:
        """Dimensions of the position subspace."""
        return len(self.position_share)

    @property
    def width(self) -> Annotated[Natural, ""]:
        """Of positions and tokens."""
        return len(self.cosine_change)

    @property
    def token_directions(self) -> Annotated[Count, ""]:
        """Directions that the tokens span."""
        return len(self.token_share)

    @property
    def loadings_expected(self) -> Annotated[float, "Of a random direction."]:
        """What ``loadings`` is beside."""
        return (self.width + 2) / 3

    @property
    def outlier_dimensions(self) -> Annotated[list[OutlierDimension], ""]:
        """The dimensions whose absence changes the mean cosine most."""
        change = np.where(np.isnan(self.cosine_change), 0.0, self.cosine_change)
        strongest = np.argsort(-np.abs(change), kind="stable")[
            : N_OUTLIER_DIMENSIONS if np.any(change) else 0
        ]
        return [OutlierDimension(int(k), float(change[k])) for k in strongest]


def subspace_overlap(
    table: PositionTable | Positions | Array, tokens: Array, *, rank: int = 30
) -> SubspaceOverlap:
    """Measure the overlap of the leading directions of positions with those of the tokens.

    Parameters
    ----------
    table
        ``[n, d]``.
    tokens
        ``[k, d]``: token embeddings as the model adds them to positions, or a sample. Directions
        that tokens use least are there only where ``k`` exceeds ``d``, and settled only where it
        does so several times: ``load_tokens(table, rows=4 * table.dim)``.
    rank
        Position directions to take, at most as many as the positions span. Simon takes 30.

    Raises
    ------
    InvalidTable
        If either is not two-dimensional and finite.
    UsageError
        If their widths differ, or the rank is not positive.

    Examples
    --------
    Positions along the first two directions, tokens along the others:

    >>> import posprobe as pp
    >>> import numpy as np
    >>> positions = np.hstack([pp.sinusoidal(32, 2).values, np.zeros((32, 6))])
    >>> tokens = np.hstack([np.zeros((64, 2)), np.random.default_rng(0).normal(size=(64, 6))])
    >>> variance = pp.analyses.subspace_overlap(positions, tokens, rank=2).variance
    >>> print(f"{variance.value:.2f}, of random directions {variance.expected:.2f}")
    0.00, of random directions 0.25
    """
    table_positions, token_positions = positions(table), positions(tokens)
    width = table_positions.values.shape[1]
    count, token_width = token_positions.values.shape
    if token_width != width:
        raise UsageError(
            f"positions have width {width} and tokens {token_width}, so they cannot be added. "
            "Pass the embeddings at the width of the positions."
        )
    if rank < 1:
        raise UsageError(f"rank={rank}: it must be at least 1.")
    position_share, u = _find_directions(table_positions)
    token_share, v = _find_directions(token_positions)
    n_kept, n_tenth = min(rank, len(u)), max(1, round(width / 10))
    matrix = (u[:n_kept] @ v.T) ** 2
    overlap = matrix.sum(axis=0)

    undefined = _explain_undefined(n_kept, len(v), count, width)

    def share(name: str, value: float, weights: NDArray[np.float64]) -> Share:
        return Share(
            *_chance_overlap(weights, n_kept, width), None if name in undefined else value
        )

    equal_weights = np.full(n_tenth, 1 / max(n_kept, 1))
    mean_cosine, cosine_change = _drop_dimensions(table_positions)
    if mean_cosine is None:
        undefined["mean_cosine"] = "fewer than two positions have a direction"
    return SubspaceOverlap(
        matrix=matrix,
        overlap=overlap,
        position_share=position_share[:n_kept],
        token_share=token_share,
        loadings=1 / (u[:n_kept] ** 4).sum(axis=1),
        chance=Chance(*_chance_overlap(np.ones(1), n_kept, width)),
        top=share(
            "top", float(overlap[:n_tenth].sum() * equal_weights[0]), equal_weights
        ),
        bottom=share(
            "bottom", float(overlap[-n_tenth:].sum() * equal_weights[0]), equal_weights
        ),
        variance=share("variance", float(overlap @ token_share), token_share),
        mean_cosine=mean_cosine,
        cosine_change=cosine_change,
        tokens=count,
        undefined=undefined,
    )


def _explain_undefined(
    n_kept: int, n_token_directions: int, count: int, width: int
) -> dict[str, str]:
    """Return why overlaps are undefined, by their name."""
    if not (n_kept and n_token_directions):
        reason = f"all {'tokens' if n_kept else 'positions'} are equal"
        return dict.fromkeys(("top", "bottom", "variance"), reason)
    if n_token_directions >= width:
        return {}
    span_message = f"the {count} tokens span {n_token_directions} of {width} directions"
    suffix = "" if count > width else f": more than {width} are needed"
    undefined = {"bottom": f"{span_message}{suffix}"}
    if n_token_directions < max(1, round(width / 10)):
        undefined["top"] = span_message
    return undefined


def _find_directions(
    table_positions: Positions,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the shares of variance and the right singular vectors of the centred rows.

    Directions whose singular value is rounding are left out.
    """
    xp = table_positions.xp
    max_value = float(xp.max(xp.abs(table_positions.values)))
    scaled = table_positions.values / (
        max_value or 1.0
    )  # squares stay within the range of the arithmetic
    rounding = float(xp.linalg.vector_norm(scaled)) * float(xp.finfo(scaled.dtype).eps)
    centered = scaled - xp.mean(scaled, axis=0)
    if centered.shape[0] > centered.shape[1]:
        centered = xp.linalg.qr(centered)[1]
    _, singular, vectors = xp.linalg.svd(centered, full_matrices=False)
    singular_values = to_numpy(singular).astype(np.float64)
    is_significant = singular_values > max(table_positions.values.shape) * rounding
    squares = singular_values[is_significant] ** 2
    return squares / (squares.sum() or 1.0), to_numpy(vectors).astype(np.float64)[
        is_significant
    ]


def _chance_overlap(
    weights: NDArray[np.float64], rank: int, width: int
) -> tuple[float, tuple[float, float]]:
    """Return mean and band of a weighted sum of overlaps with a random subspace.

    The squared lengths of orthonormal directions' projections onto it are beta distributed with
    parameters ``rank / 2`` and ``(width - rank) / 2``, correlated alike, and sum to the rank, which
    gives mean and variance of any weighted sum. Its distribution is taken for the beta distribution
    of these; for a single direction it is.
    """
    from scipy.special import betaincinv

    total, squares = float(weights.sum()), float((weights**2).sum())
    if not (total and rank):
        return 0.0, (0.0, 0.0)
    mean = rank / width
    single = 2 * mean * (1 - mean) / (width + 2)
    spread = width * squares / total**2 - 1
    variance = single * spread / max(width - 1, 1)
    if variance <= 1e-15 * mean**2:
        return total * mean, (total * mean, total * mean)
    size = mean * (1 - mean) / variance - 1
    low, high = (
        betaincinv(size * mean, size * (1 - mean), np.array(CHANCE_PERCENTILES) / 100)
        * total
    )
    return total * mean, (float(low), float(high))


def _drop_dimensions(
    table_positions: Positions,
) -> tuple[float | None, NDArray[np.float64]]:
    """Return the mean cosine of two rows, and its change without each dimension.

    Rows without direction are left out. The sum over all pairs is the squared length of the sum of
    the unit rows, so that the cost does not grow with the number of pairs.
    """
    xp, width = table_positions.xp, table_positions.values.shape[1]
    values = table_positions.values / (
        float(xp.max(xp.abs(table_positions.values))) or 1.0
    )
    values = values[xp.sum(values * values, axis=1) > 0]
    n = values.shape[0]
    if n < 2:
        return None, np.full(width, np.nan)
    row_sum, sums = np.zeros(width), np.zeros((width, width))
    is_axis_aligned = np.zeros(width, dtype=bool)
    for start in range(0, n, _BLOCK_ROWS):
        rows = values[start : start + _BLOCK_ROWS]
        squares = rows * rows
        length = xp.sum(squares, axis=1)[:, None]
        rows, squares = rows / length**0.5, squares / length
        remaining = 1 - squares
        is_axis_aligned |= to_numpy(xp.any(remaining < _MIN_REMAINING_SHARE, axis=0))
        row_sum += to_numpy(xp.sum(rows, axis=0))
        # Column k is the sum of the rows, each divided by its length without dimension k.
        sums += to_numpy(
            xp.matmul(
                rows.T,
                xp.where(
                    remaining < _MIN_REMAINING_SHARE, xp.ones_like(remaining), remaining
                )
                ** -0.5,
            )
        )
    pairs = n * (n - 1)
    mean = float((row_sum @ row_sum - n) / pairs)
    lengths = (sums**2).sum(axis=0) - np.diagonal(sums) ** 2
    change = (lengths - n) / pairs - mean
    return mean, np.where(is_axis_aligned, np.nan, change)
