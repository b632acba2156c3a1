"""How long each position's vector is, and how long beside the vectors that it is added to.

A position must be small enough not to drown the word and large enough to be told from others (AI
Coffee Break, "Positional embeddings in transformers explained", 2021). Both are lengths in the
units of the token embeddings. Layer normalisation after the sum rescales positions and tokens
alike: ratios stay, sizes do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypedDict

import numpy as np

from posprobe.analyses.facts import Number
from posprobe.analyses.linear import robust_sd
from posprobe.analyses.result import HIDDEN, JsonType, Result, StoredArray
from posprobe.arrays import Array, Floats, Positions, positions, to_float64, to_numpy
from posprobe.errors import UsageError
from posprobe.layouts import Grid, Layout
from posprobe.number_types import (
    PAIR_LIMITS,
    Cosine,
    Count,
    Natural,
    NonNegative,
    Reasons,
    Row,
    Share,
)
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from types import ModuleType

#: A row's norm stands out beyond this many robust standard deviations from the median: Gaussian
#: norms do in two of a billion rows.
OUTLIER_NORM_DEVIATIONS = 6.0


@dataclass(frozen=True)
class OutlierRow:
    """A position whose norm stands out."""

    row: Row
    norm: float


@dataclass(frozen=True, eq=False, repr=False)
class Norms(Result):
    """Euclidean norms of the rows.

    Parameters
    ----------
    norms
        ``[n]``, in the table's units.
    mean_row_norm
        Norm of the mean row: what all positions share.
    outlier_rows
        Positions whose norm is more than `OUTLIER_NORM_DEVIATIONS` robust standard deviations
        (1.4826 times the median absolute deviation) from the median.
    zero_rows
        Positions that are exactly zero.
    layout
        Layout of the positions.
    start
        Position of the first row.
    outlier_threshold
        Robust standard deviations from the median beyond which a norm stands out.
    """

    figures: ClassVar[str] = "rows.plot_norms"

    norms: Annotated[Floats, StoredArray("norms")]
    mean_row_norm: Annotated[
        float, Number("norm of the mean row", "what all positions share")
    ]
    outlier_rows: tuple[OutlierRow, ...]
    zero_rows: tuple[Row, ...]
    layout: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]
    outlier_threshold: Annotated[
        float, "In robust standard deviations from the median."
    ] = OUTLIER_NORM_DEVIATIONS

    @property
    def mean(self) -> Annotated[float, Number("mean norm", "in the table's units")]:
        """Mean over the rows."""
        return float(self.norms.mean())

    @property
    def median(self) -> Annotated[float, ""]:
        """Median over the rows."""
        return float(np.median(self.norms))

    @property
    def min(self) -> Annotated[float, Number("smallest norm", "in the table's units")]:
        """The smallest."""
        return float(self.norms.min())

    @property
    def max(self) -> Annotated[float, Number("largest norm", "in the table's units")]:
        """The largest."""
        return float(self.norms.max())


def norms(table: PositionTable | Positions | Array) -> Norms:
    """Compute the norm of every row.

    Parameters
    ----------
    table
        ``[n, d]``.

    Returns
    -------
    Norms
        Rows are counted from the table's first.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.

    Examples
    --------
    >>> import posprobe as pp
    >>> norms = pp.norms(pp.sinusoidal(64, 8))
    >>> norms.norms[:3].round(6).tolist()
    [2.0, 2.0, 2.0]
    """
    inputs = positions(table, sums_squares=True)
    values, xp = inputs.values, inputs.xp
    lengths = to_numpy(xp.linalg.vector_norm(values, axis=1)).astype(np.float64)
    median = np.median(lengths)
    spread = robust_sd(lengths)
    # Where rows are equally long by construction, rounding is the only spread there is.
    limit = OUTLIER_NORM_DEVIATIONS * max(spread, 1e-6 * median)
    outlier_indices = np.flatnonzero(np.abs(lengths - median) > limit).tolist()
    return Norms(
        norms=lengths,
        mean_row_norm=float(xp.linalg.vector_norm(xp.mean(values, axis=0))),
        outlier_rows=tuple(
            OutlierRow(row + inputs.start, float(lengths[row])) for row in outlier_indices
        ),
        zero_rows=tuple((np.flatnonzero(lengths == 0) + inputs.start).tolist()),
        layout=inputs.layout,
        start=inputs.start,
    )


#: Percentiles of the token norms between which the band of the ratio lies, as everywhere in a
#: report.
TOKEN_NORM_PERCENTILES = (5, 95)
#: A mean row shorter than this, in units of the mean norm of the rows, is rounding: ten times that
#: of float32.
MEAN_ROW_ROUNDING = 1e-6
#: Rows whose distances to all others are in memory at a time: 256 MiB beside 65,536 rows.
ROWS_PER_DISTANCE_BLOCK = 512


class TokenSampleBlock(TypedDict):
    """Where the vectors come from that positions are added to."""

    kind: Annotated[str, "What the vectors are: token, or white-noise patch."]
    tensor: str
    shape: list[Count]
    dtype: str
    sampled: Natural
    blocks: Annotated[
        list[Annotated[list[Count], PAIR_LIMITS]],
        "Stored rows, as (first, one past the last).",
    ]
    seed: int
    factor: Annotated[float, "What the model multiplies the stored rows with."]
    standard_error: Annotated[NonNegative, "Of the mean norm, relative to it."]
    note: str


@dataclass(frozen=True, eq=False, repr=False)
class Scale(Result):
    """Lengths of positions beside lengths of token embeddings.

    Parameters
    ----------
    position_norms, token_norms
        ``[n]`` and ``[k]``, Euclidean.
    ratio
        Mean position norm over mean token norm.
    ratio_band
        Mean position norm over the 95th and over the 5th percentile of the token norms: what a long
        and a short token meets.
    neighbour_distance
        Mean distance of neighbouring positions (right and lower neighbours on a grid) over the mean
        token norm.
    smallest_distance, closest
        Smallest distance of two positions over the mean token norm, and these two positions (the
        first such pair).
    mean_cosine
        Cosine of the mean position and the mean token. Far from 0, part of what positions add is
        a direction that tokens share already.
    variance_share
        ``var(p) / (var(p) + var(t))``, each the sum of the variances of the columns: the share of
        position in the variance of ``t + p`` where every token is equally likely at every position.
        A vector that all positions share does not count.
    undefined
        Reason for each number that is None.
    sample
        Source of the tokens, in the words of `posprobe.load_tokens`.
    """

    figures: ClassVar[str] = "rows.plot_scale"

    position_norms: Floats
    token_norms: Floats
    ratio: Annotated[
        NonNegative | None, Number("ratio of norms", "mean position over mean token")
    ]
    ratio_band: Annotated[
        tuple[float, float] | None,
        JsonType(list[NonNegative] | None),
        PAIR_LIMITS,
        Number(
            "ratio for long and short tokens",
            "95th and 5th percentile of tokens",
            form=" to ",
        ),
    ]
    neighbour_distance: Annotated[
        NonNegative | None, Number("distance of neighbours", "in token norms")
    ]
    smallest_distance: Annotated[
        NonNegative | None, Number("smallest distance", "in token norms")
    ]
    closest: Annotated[
        tuple[int, int] | None,
        JsonType(list[Row] | None),
        PAIR_LIMITS,
        Number("closest positions", "the two nearest positions", form=" and "),
    ]
    mean_cosine: Annotated[
        Cosine | None, Number("cosine of the means", "position and token")
    ]
    variance_share: Annotated[
        Share | None, Number("share of variance", "of token plus position")
    ]
    undefined: Reasons
    sample: Annotated[Mapping[str, Any] | None, JsonType(TokenSampleBlock)] = None

    @property
    def position_norm(
        self,
    ) -> Annotated[NonNegative, Number("mean position norm", "in the table's units")]:
        """Mean over the positions."""
        return float(self.position_norms.mean())

    @property
    def token_norm(
        self,
    ) -> Annotated[NonNegative, Number("mean token norm", "in the same units")]:
        """Mean over the sampled tokens."""
        return float(self.token_norms.mean())

    @property
    def tokens(self) -> Annotated[Natural, "Tokens in the sample."]:
        """How many were sampled."""
        return len(self.token_norms)


def scale(table: PositionTable | Positions | Array, tokens: Array) -> Scale:
    """Measure positions in units of the vectors that they are added to.

    Parameters
    ----------
    table
        ``[n, d]``.
    tokens
        ``[k, d]``: token embeddings, or a sample of them, as the model adds them to positions.

    Raises
    ------
    InvalidTable
        If either is not two-dimensional and finite, or the squares of its numbers are not.
    UsageError
        If their widths differ.

    Examples
    --------
    Unit tokens, and positions twice as long:

    >>> import posprobe as pp
    >>> import numpy as np
    >>> pp.analyses.scale(2 * np.eye(4), np.eye(4)).ratio
    2.0
    """
    inputs = positions(table, sums_squares=True)
    token_values = to_float64(positions(tokens, sums_squares=True).values)
    values, xp = inputs.values, inputs.xp
    if token_values.shape[1] != values.shape[1]:
        raise UsageError(
            f"positions have width {values.shape[1]} and tokens "
            f"{token_values.shape[1]}, so they cannot be added. Pass the "
            "embeddings at the width of the positions."
        )
    norms = to_numpy(xp.linalg.vector_norm(values, axis=1)).astype(np.float64)
    token_norms = np.linalg.norm(token_values, axis=1)
    unit = float(token_norms.mean())
    short_norm, long_norm = (
        float(norm) for norm in np.percentile(token_norms, TOKEN_NORM_PERCENTILES)
    )
    step = _neighbour_distance(values, inputs.layout, xp)
    distance, pair = _find_closest(values, xp)
    center = to_numpy(xp.mean(values, axis=0)).astype(np.float64)
    spread = float(xp.sum(xp.var(values, axis=0)))
    token_center = token_values.mean(axis=0)
    token_spread = float(token_values.var(axis=0).sum())

    undefined = _undefined_ratios(norms, token_norms)
    mean_norm = _relative_mean_norm(center, norms)
    token_mean_norm = _relative_mean_norm(token_center, token_norms)
    if min(mean_norm, token_mean_norm) <= MEAN_ROW_ROUNDING:
        undefined["mean_cosine"] = "the mean position or the mean token is zero"
    if len(token_values) < 2:
        undefined["variance_share"] = "one token has no variance"
    elif not spread + token_spread:
        undefined["variance_share"] = "neither positions nor tokens vary"

    def defined(name: str, value: float, divisor: float) -> float | None:
        return None if name in undefined else value / divisor

    mean = float(norms.mean())
    return Scale(
        position_norms=norms,
        token_norms=token_norms,
        ratio=defined("ratio", mean, unit),
        ratio_band=None
        if "ratio_band" in undefined
        else (mean / long_norm, mean / short_norm),
        neighbour_distance=defined("neighbour_distance", step, unit),
        smallest_distance=defined("smallest_distance", distance, unit),
        closest=(pair[0] + inputs.start, pair[1] + inputs.start) if pair else None,
        mean_cosine=None
        if "mean_cosine" in undefined
        else _vector_cosine(center, token_center),
        variance_share=defined("variance_share", spread, spread + token_spread),
        undefined=undefined,
    )


def _undefined_ratios(norms: Floats, token_norms: Floats) -> dict[str, str]:
    """Return the reason for each ratio of norms that is undefined."""
    undefined: dict[str, str] = {}
    if not token_norms.mean():
        reason = "all tokens are zero"
        undefined = dict.fromkeys(
            ("ratio", "neighbour_distance", "smallest_distance"), reason
        )
    if len(norms) < 2:
        reason = "there is one position"
        undefined |= dict.fromkeys(("neighbour_distance", "smallest_distance"), reason)
    percentile = TOKEN_NORM_PERCENTILES[0]
    if not np.percentile(token_norms, percentile):
        undefined["ratio_band"] = (
            f"the {percentile}th percentile of the token norms is zero"
        )
    return undefined


def _vector_cosine(a: Floats, b: Floats) -> float:
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    return float(np.clip(a @ b, -1, 1))


def _relative_mean_norm(center: Floats, norms: Floats) -> float:
    """Return the length of the mean row in units of the mean norm."""
    mean = float(norms.mean())
    return float(np.linalg.norm(center)) / mean if mean else 0.0


def _neighbour_distance(values: Array, layout: Layout, xp: ModuleType) -> float:
    """Return the mean distance of neighbours, 0 where there are none."""
    height, width = (
        (layout.height, layout.width) if isinstance(layout, Grid) else (1, layout.size)
    )
    cells = xp.reshape(values, (height, width, values.shape[1]))
    steps = [cells[:, 1:] - cells[:, :-1], cells[1:] - cells[:-1]]
    lengths = [
        to_numpy(xp.linalg.vector_norm(step, axis=-1)).reshape(-1) for step in steps
    ]
    all_lengths = np.concatenate(lengths)
    return float(all_lengths.mean()) if all_lengths.size else 0.0


def _find_closest(values: Array, xp: ModuleType) -> tuple[float, tuple[int, int] | None]:
    """Find the first two rows of the smallest distance; of one row, none.

    Pairs are compared by ``|a|² + |b|² - 2 a·b`` of the centred rows, whose rounding no shared
    mean inflates; what is equal up to rounding counts as equal.
    """
    n = values.shape[0]
    centered = values - xp.mean(values, axis=0)
    squares = xp.sum(centered * centered, axis=1)
    rounding = 8 * float(xp.finfo(values.dtype).eps) * float(xp.max(squares))
    best, pair = np.inf, None
    for begin in range(0, n - 1, ROWS_PER_DISTANCE_BLOCK):
        rows, later_rows = (
            centered[begin : begin + ROWS_PER_DISTANCE_BLOCK],
            centered[begin:],
        )
        squared = (
            squares[begin : begin + ROWS_PER_DISTANCE_BLOCK, None] + squares[None, begin:]
        )
        squared = squared - 2 * (rows @ later_rows.T)
        squared = squared + xp.tril(xp.full_like(squared, xp.inf))  # each pair once
        smallest = float(xp.min(squared))
        if smallest < best - rounding:
            flat = xp.reshape(squared <= smallest + rounding, (-1,))
            first, second = divmod(int(xp.argmax(xp.astype(flat, xp.int8))), n - begin)
            best, pair = smallest, (first + begin, second + begin)
    if pair is None:
        return 0.0, None
    return float(xp.linalg.vector_norm(values[pair[0]] - values[pair[1]])), pair
