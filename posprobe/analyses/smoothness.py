"""Whether neighbouring distances share their values, beside what chance would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import As, Result, WithGaps
from posprobe.analyses.rounding import centring_error
from posprobe.errors import InvalidTable
from posprobe.schema import Count, Natural, Reasons

#: Permutations that the band is made of.
PERMUTATIONS = 199


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
        Of the permutations, and how many there were.
    """

    figures: ClassVar[str] = "schemes.plot_smoothness"

    correlation: Annotated[WithGaps, "Per head, Moran's I."]
    p95: Annotated[WithGaps, "Per head: 95 % of the permutations lie below."]
    entries: Natural
    seed: Count
    permutations: Natural = PERMUTATIONS

    @property
    def structured(
        self,
    ) -> Annotated[
        NDArray[np.bool_],
        As(Count, lambda found: found.structured.sum()),
        "Heads above it.",
    ]:
        """``[heads]``: whether a head is smoother than 95 % of its permutations."""
        return np.asarray(self.correlation > self.p95)

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for numbers that are None."""
        flat = np.isnan(self.correlation).any()
        return {"correlation": "a head has the same value at every distance"} if flat else {}


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
        Of the permutations.

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
            f"values of shape {list(array.shape)}: [heads, distances] or [heads, rows, columns] of "
            "displacements are expected."
        )
    from scipy.stats import rankdata  # half a second that tables do without

    array = _distinct(array)
    heads, rows, columns = array.shape
    permute = _lines_permuted if rows > 1 and _is_sum(array) else _permuted
    # Ranks, since one outlier, such as the bias to oneself, rules the variance of a smooth curve.
    array = rankdata(array.reshape(heads, -1), axis=1).reshape(array.shape)
    rng = np.random.default_rng(seed)
    draws = np.stack([_moran(permute(array, rng)) for _ in range(PERMUTATIONS)])
    found = _moran(array)
    p95 = np.full(heads, np.nan)
    defined = ~np.isnan(found)
    p95[defined] = np.quantile(draws[:, defined], 0.95, axis=0)
    return Smoothness(found, p95, rows * columns, seed)


def _distinct(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Leave out what is there twice: mirrored halves, and the offsets of one bucket."""
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


def _permuted(array: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    return np.asarray(rng.permuted(array.reshape(len(array), -1), axis=1).reshape(array.shape))


def _lines_permuted(array: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Permute whole rows and whole columns: values of one line are alike in any order."""
    heads, rows, columns = array.shape
    down = rng.permuted(np.tile(np.arange(rows), (heads, 1)), axis=1)
    right = rng.permuted(np.tile(np.arange(columns), (heads, 1)), axis=1)
    places = np.arange(heads)[:, None, None], down[:, :, None], right[:, None, :]
    return np.asarray(array[places])


def _moran(array: NDArray[np.float64]) -> NDArray[np.float64]:
    centered = array - array.mean(axis=(1, 2), keepdims=True)
    products = [
        (centered[:, :, 1:] * centered[:, :, :-1]).reshape(len(array), -1),
        (centered[:, 1:] * centered[:, :-1]).reshape(len(array), -1),
    ]
    pairs = sum(product.shape[1] for product in products)
    variance = (centered**2).mean(axis=(1, 2))
    nothing = np.full(len(array), np.nan)
    error = centring_error(np.abs(array).max(axis=(1, 2)), array[0].size)
    if not pairs:
        return nothing
    covariance = np.concatenate(products, axis=1).mean(axis=1)
    np.divide(covariance, variance, out=nothing, where=variance > error**2)
    return nothing
