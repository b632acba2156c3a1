"""Preference of each head by offset: windows, half widths, asymmetry, peaks, smoothness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import (
    HIDDEN,
    JsonType,
    Result,
    StoredArray,
    WithGaps,
    centring_error,
)
from posprobe.arrays import quotient
from posprobe.errors import InvalidTable
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.number_types import PAIR_LIMITS, Count, Natural, NonNegative, Reasons, Share

#: Both sides of a curve differ if its odd part has at least this share of the variance. The odd
#: part is then a tenth of the even one in size, which a reader sees in the curve.
MIN_ODD_SHARE = 0.01
#: A curve is straight if a line explains at least this share of its variance. An exponential that
#: falls to a third by the last distance, and so to no level, has 0.98; one that falls to a fifth
#: has 0.96.
MIN_STRAIGHT_SHARE = 0.97


def _list_peaks(heads: Heads) -> list[int | list[int]]:
    return [row if len(row) > 1 else row[0] for row in heads.peak.tolist()]


def _list_near(heads: Heads) -> list[bool | None]:
    return [None if np.isnan(is_near) else bool(is_near) for is_near in heads.near]


@dataclass(frozen=True, eq=False, repr=False)
class Heads(Result):
    """Per-head curves over offsets and what they amount to.

    Parameters
    ----------
    curves
        ``[heads, 2 n - 1]`` by offset, key minus query, or ``[heads, 2 h - 1, 2 w - 1]`` by
        displacement.
    layout
        The positions.
    quantity
        ``"bias"`` for logits, ``"cosine"`` for similarities.
    causal
        Whether later keys are hidden; their offsets are left out of every number.
    unit
        Unit of the offsets.
    window
        ``[heads]``, positions: the effective number of keys that the middle query (the last one
        where causal) attends to by the bias alone, ``exp`` of the entropy of its softmax. NaN for
        similarities, which have no scale as logits.
    half_width
        ``[heads]``, positions: the smallest distance at which the curve, averaged over directions,
        has fallen half way from its largest value to its mean beyond a quarter of the positions.
        NaN where the largest value lies as far out itself, and for a straight line, which has no
        level: its half width would say how many positions were looked at.
    asymmetry
        ``[heads]``, 0 to 1: share of the curve's variance in its odd part. NaN where causal or
        constant.
    peak
        ``[heads, 1 or 2]``: the offset with the largest value; of equal ones the nearest.
    near
        ``[heads]``: 1 where the largest value lies within a quarter of the positions (on a grid of
        its shorter side) and none beyond is as large, else 0; of cosines the largest beyond
        distance 0, where every one is 1.
        NaN for a constant curve.
    monotone_fraction
        ``[heads]``: of the steps away from distance 0 at which the curve changes, the share that
        fall. NaN for a constant curve.
    """

    figures: ClassVar[str] = "relative.plot_heads"

    curves: Annotated[NDArray[np.float64], StoredArray("curves")]
    layout: Layout
    quantity: Annotated[Literal["bias", "cosine"], "Logits that are added, or cosines."]
    causal: bool
    window: Annotated[
        NDArray[np.float64],
        JsonType(list[NonNegative | None]),
        "Per head, positions: the effective number of keys by the bias alone.",
    ]
    half_width: Annotated[
        NDArray[np.float64], JsonType(list[NonNegative | None]), "Per head, positions."
    ]
    asymmetry: Annotated[
        NDArray[np.float64],
        JsonType(list[Share | None]),
        "Per head: share of the variance in the odd part.",
    ]
    peak: Annotated[
        NDArray[np.int64],
        JsonType(list[int | Annotated[list[int], PAIR_LIMITS]], _list_peaks),
        "Per head: offset of the largest value, key minus query; rows first.",
    ]
    near: Annotated[
        NDArray[np.float64],
        JsonType(list[bool | None], _list_near),
        "Per head: whether the largest value lies within a quarter of the positions.",
    ]
    monotone_fraction: Annotated[
        NDArray[np.float64],
        JsonType(list[Share | None]),
        "Per head: share of the steps away from distance 0 that do not rise.",
    ]
    unit: Annotated[str, HIDDEN] = "positions"

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for numbers that are None."""
        flat = "a head's curve is constant"
        reasons = {
            "window": "similarities have no scale as logits",
            "asymmetry": "later keys are hidden" if self.causal else flat,
            "half_width": "a head's curve does not fall to a level, or falls in a straight line "
            "to the end",
            "near": flat,
            "monotone_fraction": flat,
        }
        return {
            name: reason
            for name, reason in reasons.items()
            if np.isnan(getattr(self, name)).any()
        }


def heads(
    curves: NDArray[np.floating[Any]],
    *,
    quantity: Literal["bias", "cosine"] = "bias",
    causal: bool = False,
    unit: str = "positions",
) -> Heads:
    """Measure per-head curves over offsets.

    Parameters
    ----------
    curves
        ``[heads, 2 n - 1]`` or ``[heads, 2 h - 1, 2 w - 1]``, distance 0 in the middle, as
        ``curves(n)`` of an encoding returns them.
    quantity, causal, unit
        See `Heads`.

    Raises
    ------
    InvalidTable
        If the shape is another, or a value is not finite.

    Examples
    --------
    >>> import posprobe as pp
    >>> (alibi,) = pp.load_schemes("alibi:512x4")
    >>> heads = pp.analyses.heads(alibi.curves(64), causal=True)
    >>> heads.peak.tolist(), heads.monotone_fraction.tolist()
    ([[0], [0], [0], [0]], [1.0, 1.0, 1.0, 1.0])
    """
    values = np.asarray(curves, dtype=np.float64)
    spans = values.shape[1:]
    if (
        values.ndim not in (2, 3)
        or 0 in values.shape
        or any(span % 2 == 0 for span in spans)
    ):
        raise InvalidTable(
            f"curves {list(values.shape)}: give [heads, 2 n - 1] or [heads, 2 h - 1, 2 w - 1]."
        )
    if not np.isfinite(values).all():
        raise InvalidTable(
            "the curves hold NaN or infinity: a zero row has no direction."
        )
    layout: Layout = Sequence((spans[0] + 1) // 2)
    if len(spans) == 2:
        layout = Grid((spans[0] + 1) // 2, (spans[1] + 1) // 2)
    visible = values[:, : layout.size] if causal and len(spans) == 1 else values
    flat = visible.reshape(len(values), -1)
    axes = (
        np.arange(s) - span // 2 for s, span in zip(visible.shape[1:], spans, strict=True)
    )
    offsets = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(spans))
    curve = _average_directions(values, layout, causal=causal)
    steps = np.diff(curve, axis=1)
    undefined = np.full(len(values), np.nan)
    return Heads(
        curves=values,
        layout=layout,
        quantity=quantity,
        causal=causal,
        window=undefined
        if quantity == "cosine"
        else _measure_window(values, layout, causal=causal),
        half_width=_measure_half_width(curve),
        asymmetry=undefined if causal else _measure_asymmetry(values),
        peak=_find_peak(flat, offsets),
        near=_find_near(
            flat, offsets, -(-(min(spans) + 1) // 8), cosine=quantity == "cosine"
        ),
        monotone_fraction=quotient((steps < 0).sum(axis=1), (steps != 0).sum(axis=1)),
        unit=unit,
    )


def _measure_window(
    values: NDArray[np.float64], layout: Layout, *, causal: bool
) -> NDArray[np.float64]:
    """Return the perplexity of the softmax over the keys of the middle query, or of the last."""
    from scipy.special import entr, softmax

    if isinstance(layout, Grid):
        top_row, left_column = layout.height // 2, layout.width // 2
        keys = values[
            :,
            layout.height - 1 - top_row : 2 * layout.height - 1 - top_row,
            layout.width - 1 - left_column : 2 * layout.width - 1 - left_column,
        ].reshape(len(values), -1)
    else:
        n = layout.size
        query = n - 1 if causal else n // 2
        keys = values[:, n - 1 - query : 2 * n - 1 - query]
    return np.asarray(np.exp(entr(softmax(keys, axis=1)).sum(axis=1)))


def _average_directions(
    values: NDArray[np.float64], layout: Layout, *, causal: bool
) -> NDArray[np.float64]:
    """Average over directions: ``[heads, distances]``; on a grid along rows and columns."""
    if isinstance(layout, Grid):
        middle_row, middle_column = layout.height - 1, layout.width - 1
        lines = [values[:, middle_row], values[:, :, middle_column]]
        shortest = min(line.shape[1] // 2 + 1 for line in lines)
        halves = [
            half[:, :shortest]
            for line in lines
            for half in (line[:, line.shape[1] // 2 :], line[:, line.shape[1] // 2 :: -1])
        ]
        return np.asarray(np.mean(halves, axis=0))
    n = layout.size
    past = values[:, n - 1 :: -1]
    return past if causal else (past + values[:, n - 1 :]) / 2


def _measure_half_width(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    quarter = -(-curve.shape[1] // 4)
    half_widths = np.full(len(curve), np.nan)
    if curve.shape[1] < 2:
        return half_widths
    for head, line in enumerate(curve):
        peak, level = int(np.argmax(line)), line[quarter:].mean()
        below_half = np.flatnonzero(line[peak:] <= (line[peak] + level) / 2)
        if (
            peak < quarter
            and line[peak] > level
            and below_half.size
            and not _is_straight(line)
        ):
            half_widths[head] = peak + below_half[0]
    return half_widths


def _is_straight(line: NDArray[np.float64]) -> bool:
    distance = np.arange(len(line)) - (len(line) - 1) / 2
    centred = line - line.mean()
    explained = (distance @ centred) ** 2 / (distance @ distance)
    return bool(explained >= MIN_STRAIGHT_SHARE * (centred @ centred))


def _measure_asymmetry(values: NDArray[np.float64]) -> NDArray[np.float64]:
    flat = values.reshape(len(values), -1)
    odd = (flat - flat[:, ::-1]) / 2
    spread = ((flat - flat.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    error = centring_error(np.abs(flat).max(axis=1, initial=0.0), flat.shape[1])
    return quotient((odd**2).sum(axis=1), spread, spread > error**2 * flat.shape[1])


def _find_peak(
    flat: NDArray[np.float64], offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the offset of the largest value; among equals the nearest to distance 0."""
    nearest = np.argsort(np.abs(offsets).sum(axis=1), kind="stable")
    best = nearest[np.argmax(flat[:, nearest], axis=1)]
    return np.asarray(offsets[best], dtype=np.int64)


def _find_near(
    flat: NDArray[np.float64], offsets: NDArray[np.int64], quarter: int, *, cosine: bool
) -> NDArray[np.float64]:
    distance = np.abs(offsets).max(axis=1)
    # Every vector has a cosine of 1 with itself, so distance 0 does not count.
    is_counted = distance > 0 if cosine else distance >= 0
    is_inside = is_counted & (distance < (max(quarter, 2) if cosine else quarter))
    is_near = np.full(len(flat), np.nan)
    for head, values in enumerate(flat):
        if np.ptp(values) > centring_error(np.abs(values).max(), 1):
            outer_maximum = values[is_counted & ~is_inside].max(initial=-np.inf)
            is_near[head] = values[is_inside].max(initial=-np.inf) > outer_maximum
    return is_near


#: Permutations of the null band. Its 95 % quantile lies between the tenth and the eleventh largest,
#: and is exact to about 1.5 %.
N_SMOOTHNESS_PERMUTATIONS = 199


@dataclass(frozen=True, eq=False, repr=False)
class Smoothness(Result):
    """Correlation of neighbouring distances per head, and the band of permuted distances.

    Parameters
    ----------
    correlation
        ``[heads]``, Moran's I of the ranks: the covariance of neighbouring entries over the
        variance of all. 1 is smooth, 0 is noise. NaN for a constant head.
    p95
        ``[heads]``, its 95 % quantile when the entries are permuted.
    entries
        Distinct neighbouring entries per head that were compared.
    seed, permutations
        Seed and number of the permutations.
    """

    figures: ClassVar[str] = "schemes.plot_smoothness"

    correlation: Annotated[WithGaps, "Per head, Moran's I."]
    p95: Annotated[WithGaps, "Per head: 95 % of the permutations lie below."]
    entries: Natural
    seed: Count
    permutations: Natural = N_SMOOTHNESS_PERMUTATIONS

    @property
    def structured(
        self,
    ) -> Annotated[
        NDArray[np.bool_],
        JsonType(Count, lambda result: result.structured.sum()),
        "Heads above it.",
    ]:
        """``[heads]``: whether a head is smoother than 95 % of its permutations."""
        return np.asarray(self.correlation > self.p95)

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for numbers that are None."""
        flat = np.isnan(self.correlation).any()
        return (
            {"correlation": "a head has the same value at every distance"} if flat else {}
        )


def smoothness(values: NDArray[np.floating[Any]], *, seed: int = 0) -> Smoothness:
    """Measure how much neighbouring distances agree (Moran 1950), against permutations.

    Parameters
    ----------
    values
        ``[heads, 2 r + 1]`` by offset or ``[heads, 2 h - 1, 2 w - 1]`` by displacement.
        Neighbouring offsets that all heads treat alike (one bucket) count once, and so do the
        halves of what is the same before and after. Where values by displacement are a function of
        the row plus one of the column, whole rows and columns are permuted, which keeps the sum.
    seed
        Seed of the permutations.

    Raises
    ------
    InvalidTable
        If the shape is another.

    Examples
    --------
    >>> import posprobe as pp
    >>> import numpy as np
    >>> curve = np.arange(-16.0, 17.0)[None]
    >>> print(pp.analyses.smoothness(curve).correlation.round(2).tolist())
    [0.94]
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise InvalidTable(
            f"values {list(array.shape)}: give [heads, distances] or [heads, rows, columns]."
        )
    from scipy.stats import (
        rankdata,
    )  # Tables do not need this import, which takes half a second.

    array = _drop_repeats(array)
    heads, rows, columns = array.shape
    permute = _permute_lines if rows > 1 and _is_sum(array) else _permute_entries
    # Ranks are robust: one outlier, such as the bias at offset 0, dominates a curve's variance.
    array = rankdata(array.reshape(heads, -1), axis=1).reshape(array.shape)
    rng = np.random.default_rng(seed)
    draws = np.stack(
        [_morans_i(permute(array, rng)) for _ in range(N_SMOOTHNESS_PERMUTATIONS)]
    )
    correlation = _morans_i(array)
    p95 = np.full(heads, np.nan)
    defined = ~np.isnan(correlation)
    p95[defined] = np.quantile(draws[:, defined], 0.95, axis=0)
    return Smoothness(correlation, p95, rows * columns, seed)


def _drop_repeats(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Drop repeated values: mirrored halves, and the offsets of one bucket."""
    for axis in range(1, array.ndim):
        if np.array_equal(array, np.flip(array, axis)):
            array = np.take(array, range(array.shape[axis] // 2, array.shape[axis]), axis)
    if array.ndim == 3:
        return array
    changes = (np.diff(array, axis=1) != 0).any(axis=0)
    return array[:, None, np.flatnonzero(np.concatenate([[True], changes]))]


def _is_sum(array: NDArray[np.float64]) -> bool:
    """Tell whether values are a function of the row plus one of the column: SAM, ViTDet, BoTNet."""
    mixed = np.diff(np.diff(array, axis=1), axis=2)
    return bool(np.abs(mixed).max(initial=0.0) <= centring_error(np.abs(array).max(), 1))


def _permute_entries(
    array: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    return np.asarray(
        rng.permuted(array.reshape(len(array), -1), axis=1).reshape(array.shape)
    )


def _permute_lines(
    array: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Permute whole rows and whole columns, which keeps a sum of rows and columns a sum."""
    heads, rows, columns = array.shape
    row_orders = rng.permuted(np.tile(np.arange(rows), (heads, 1)), axis=1)
    column_orders = rng.permuted(np.tile(np.arange(columns), (heads, 1)), axis=1)
    indices = (
        np.arange(heads)[:, None, None],
        row_orders[:, :, None],
        column_orders[:, None, :],
    )
    return np.asarray(array[indices])


def _morans_i(array: NDArray[np.float64]) -> NDArray[np.float64]:
    centered = array - array.mean(axis=(1, 2), keepdims=True)
    products = [
        (centered[:, :, 1:] * centered[:, :, :-1]).reshape(len(array), -1),
        (centered[:, 1:] * centered[:, :-1]).reshape(len(array), -1),
    ]
    pairs = sum(product.shape[1] for product in products)
    variance = (centered**2).mean(axis=(1, 2))
    error = centring_error(np.abs(array).max(axis=(1, 2)), array[0].size)
    if not pairs:
        return np.full(len(array), np.nan)
    covariance = np.concatenate(products, axis=1).mean(axis=1)
    return quotient(covariance, variance, variance > error**2)
