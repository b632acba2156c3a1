"""Stored tables that follow a published formula, told apart from learned ones by their values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.encodings.sinusoidal import ORDERS, columns, frequencies, sinusoidal
from posprobe.table import Grid, Layout

#: Largest difference that computing in float32 and rounding to a format make, doubled.
_ROUNDING = {"F16": 2e-3, "BF16": 8e-3}
#: fairseq's first position is the one after its padding index, whose rows are not positions.
_STARTS = range(5)
#: Few rows refuse most candidates; the others come in blocks, to hold no second table in float64.
_PROBE, _BLOCK = 8, 512


@dataclass(frozen=True)
class _Waves:
    """A candidate: column ``j`` is the sine or cosine of ``omega[j]`` times one coordinate."""

    name: str
    coordinates: NDArray[np.integer[Any]]  # [n, axes]
    axis: NDArray[np.integer[Any]]  # [d], the coordinate of each column
    omega: NDArray[np.float64]  # [d]
    cosine: NDArray[np.bool_]  # [d]

    def rows(self, which: slice) -> NDArray[np.float64]:
        waves = self.coordinates[which][:, self.axis] * self.omega
        waves[:, self.cosine] = np.cos(waves[:, self.cosine])
        waves[:, ~self.cosine] = np.sin(waves[:, ~self.cosine])
        return np.asarray(waves)


def fixed_formula(values: NDArray[np.floating[Any]], layout: Layout, dtype: str) -> str | None:
    """Name the formula that a stored table follows, or None for a learned one.

    Known are the sinusoid (interleaved or in halves, sines or cosines first, exponents over ``d/2``
    or ``d/2 - 1``, beginning at position 0 to 4), the sinusoid as PatchTST and PatchTSMixer
    standardise it, and 2-D sin-cos tables (MAE's, the same with the axes exchanged, timm's). The
    tolerance is what computing the formula and storing it in the given format cost. A learned table
    is refused by its first column, in every published variant a wave of frequency 1.

    Parameters
    ----------
    values
        ``[n, d]``, the rows that are positions, in order.
    layout
        How they are arranged; a sequence of ``k * k`` rows is tried as a square grid too.
    dtype
        Format in which the table is stored, such as ``F16``.
    """
    n, d = values.shape
    if not n or not d or d % 2:
        return None
    if not (np.abs(values[:, 0]) <= 2).all():  # no wave; nor is NaN
        return None
    first = values[:, 0].astype(np.float64)
    tolerance = _ROUNDING.get(dtype, 1e-3) + n * 2.0**-23  # a float32 angle of n is that far off
    for waves in (*_on_a_line(first, d, tolerance), *_on_a_grid(first, d, layout, tolerance)):
        if _equal(values, waves, tolerance):
            return waves.name
    return _standardised(values, first, tolerance)


def _on_a_line(first: NDArray[np.float64], d: int, tolerance: float) -> Iterator[_Waves]:
    for start, cosine_first in product(_STARTS, (False, True)):
        positions = np.arange(start, start + len(first))
        if not _close(first, np.cos(positions) if cosine_first else np.sin(positions), tolerance):
            continue
        for order, endpoint in product(ORDERS, (False, True)):
            sine, cosine = columns(d, order, cosine_first=cosine_first)
            omega = np.empty(d)
            omega[sine] = omega[cosine] = frequencies(d, endpoint=endpoint)
            parts = (
                f"sinusoid, {order}",
                "cosines first" if cosine_first else "",
                f"exponents over {'d/2 - 1' if endpoint else 'd/2'}",
                f"from position {start}" if start else "",
            )
            yield _Waves(
                ", ".join(filter(None, parts)),
                positions[:, None],
                np.zeros(d, dtype=int),
                omega,
                np.isin(np.arange(d), cosine),
            )


def _on_a_grid(
    first: NDArray[np.float64], d: int, layout: Layout, tolerance: float
) -> Iterator[_Waves]:
    n = len(first)
    width = layout.width if isinstance(layout, Grid) else isqrt(n)
    if d % 4 or n % width or not (isinstance(layout, Grid) or width * width == n):
        return
    cells = np.stack(np.divmod(np.arange(n), width), axis=1)
    suffix = "" if isinstance(layout, Grid) else f", on a grid of {width} x {width}"
    row, column = 0, 1
    quarters = {
        "columns first": ([column, column, row, row], [False, True, False, True]),
        "rows first": ([row, row, column, column], [False, True, False, True]),
        "rows first, sines before cosines": (
            [row, column, row, column],
            [False, False, True, True],
        ),
    }
    for name, (axes, cosines) in quarters.items():
        if _close(first, np.sin(cells[:, axes[0]]), tolerance):
            yield _Waves(
                f"2-D sin-cos, {name}{suffix}",
                cells,
                np.repeat(axes, d // 4),
                np.tile(frequencies(d // 2), 4),
                np.repeat(cosines, d // 4),
            )


def _standardised(
    values: NDArray[np.floating[Any]], first: NDArray[np.float64], tolerance: float
) -> str | None:
    """PatchTST's table: the paper's sinusoid less its mean, over ten of its standard deviations."""
    n, d = values.shape
    for start in (0, 1):  # 1 where position 0 was given to a class token
        wave = np.sin(np.arange(start, start + n))
        ours, theirs = wave - wave.mean(), first - first.mean()
        if not ours @ theirs > 0.999 * np.linalg.norm(ours) * np.linalg.norm(theirs):
            continue
        table = sinusoidal(n + start, d).values
        scale = 0.1 / table.std(ddof=1)
        if _close(values, (table[start:] - table.mean()) * scale, tolerance * scale):
            return "sinusoid, interleaved, exponents over d/2, standardised" + (
                f", from position {start}" if start else ""
            )
    return None


def _equal(values: NDArray[np.floating[Any]], waves: _Waves, tolerance: float) -> bool:
    n = len(values)
    blocks = (slice(begin, begin + _BLOCK) for begin in range(0, n, _BLOCK))
    return all(
        _close(values[rows], waves.rows(rows), tolerance)
        for rows in (slice(_PROBE), slice(n - 1, n), *blocks)
    )


def _close(
    values: NDArray[np.floating[Any]], expected: NDArray[np.floating[Any]], tolerance: float
) -> bool:
    return bool((np.abs(values - expected) <= tolerance).all())
