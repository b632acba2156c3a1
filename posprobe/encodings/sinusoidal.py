"""The sinusoid in its published variants, in one dimension and on a grid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import UsageError
from posprobe.table import Grid, Layout, PositionTable, Sequence, Source

Order: TypeAlias = Literal["interleaved", "halves"]

#: Largest table that a formula builds, in numbers: 4 GiB of float64.
MAX_SIZE = 2**29


def frequencies(dim: int, *, base: float = 10_000.0, endpoint: bool = False) -> NDArray[np.float64]:
    """Angular frequencies of the ladder, fastest first.

    Parameters
    ----------
    dim
        Width ``d`` of the table; even.
    base
        The slowest frequency is about ``1 / base``.
    endpoint
        Divide exponents by ``d/2 - 1``, so that the slowest frequency is exactly ``1 / base``
        (tensor2tensor, fairseq, Whisper), rather than by ``d/2`` (Vaswani et al. 2017, sec. 3.5).

    Returns
    -------
    NDArray
        ``[d/2]``, in radians per position.
    """
    pairs = dim // 2
    steps = max(pairs - 1, 1) if endpoint else pairs
    return np.asarray(base ** (-np.arange(pairs) / steps))


def sinusoidal(
    length: int,
    dim: int,
    *,
    base: float = 10_000.0,
    order: Order = "interleaved",
    endpoint: bool = False,
) -> PositionTable:
    """Build the sinusoidal table of Vaswani et al. 2017 (section 3.5).

    Parameters
    ----------
    length, dim
        Number of positions ``n`` and width ``d``; the width is even.
    base, endpoint
        The ladder of frequencies, see `frequencies`.
    order
        ``"interleaved"`` puts sine on even and cosine on odd columns (the paper), ``"halves"``
        all sines before all cosines (tensor2tensor, fairseq, Whisper).

    Returns
    -------
    PositionTable
        ``[n, d]`` float64, fixed.

    Raises
    ------
    UsageError
        If a size is not positive, the width is odd, or the table would be too large.
    """
    _check(f"sinusoidal:{length}x{dim}", length, dim, multiple=2)
    omega = frequencies(dim, base=base, endpoint=endpoint)
    values = _waves(np.arange(length), omega, order)
    return _formula(f"sinusoidal:{length}x{dim}", values, Sequence(length))


def sincos2d(height: int, width: int, dim: int, *, base: float = 10_000.0) -> PositionTable:
    """Build the two-dimensional sin-cos table of MAE (He et al. 2022, released code).

    The first half of a row encodes the column of the cell, the second half its row; each is a
    sinusoid of width ``d/2`` with all sines before all cosines.

    Returns
    -------
    PositionTable
        ``[height * width, d]`` float64 on a grid, fixed.

    Raises
    ------
    UsageError
        If a size is not positive, ``d`` is no multiple of 4, or the table would be too large.
    """
    reference = f"sincos2d:{height}x{width}x{dim}"
    _check(reference, height, width, multiple=1)
    _check(reference, height * width, dim, multiple=4)
    omega = frequencies(dim // 2, base=base)
    row, column = np.divmod(np.arange(height * width), width)
    values = np.concatenate([_waves(column, omega, "halves"), _waves(row, omega, "halves")], axis=1)
    return _formula(reference, values, Grid(height, width))


def fixed_formula(values: NDArray[np.floating[Any]], layout: Layout, dtype: str) -> str | None:
    """Name the formula that a stored table follows, or None for a learned one.

    Every published variant of the sinusoid is compared with the values; the tolerance is what
    computing and storing it in the given format costs.

    Parameters
    ----------
    values
        ``[n, d]``, rows in order from position 0.
    layout
        How they are arranged.
    dtype
        Format in which the table is stored, such as ``F16``.
    """
    tolerance = {"F16": 2e-3, "BF16": 8e-3}.get(dtype, 1e-3)
    if not np.isfinite(values).all():
        return None
    if not np.allclose(np.abs(values[0] - 0.5), 0.5, rtol=0, atol=tolerance):
        return None  # row 0 holds sines and cosines of 0 in every variant
    for name, candidate in _variants(len(values), values.shape[1], layout):
        if np.allclose(values, candidate, rtol=0, atol=tolerance):
            return name
    return None


def _variants(n: int, d: int, layout: Layout) -> Iterator[tuple[str, NDArray[np.float64]]]:
    if d % 2:
        return
    orders: tuple[Order, ...] = ("interleaved", "halves")
    for order in orders:
        for endpoint in (False, True):
            steps = "d/2 - 1" if endpoint else "d/2"
            omega = frequencies(d, endpoint=endpoint)
            yield (
                f"sinusoid, {order}, exponents over {steps}",
                _waves(np.arange(n), omega, order),
            )
    if isinstance(layout, Grid) and d % 4 == 0:
        values = sincos2d(layout.height, layout.width, d).values.astype(np.float64)
        yield "2-D sin-cos, columns first", values
        yield "2-D sin-cos, rows first", np.roll(values, d // 2, axis=1)


def _waves(
    positions: NDArray[np.integer[Any]], omega: NDArray[np.float64], order: Order
) -> NDArray[np.float64]:
    angles = positions[:, None] * omega
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=2 if order == "interleaved" else 1)
    return waves.reshape(len(positions), -1)


def _check(reference: str, rows: int, dim: int, *, multiple: int) -> None:
    if rows < 1 or dim < 1 or dim % multiple:
        raise UsageError(
            f"{reference}: sizes must be positive"
            + (f" and the table's width a multiple of {multiple}." if multiple > 1 else ".")
        )
    if rows * dim > MAX_SIZE:
        raise UsageError(
            f"{reference}: {rows * dim} numbers are more than the {MAX_SIZE} that fit comfortably "
            "into memory. Choose fewer positions."
        )


def _formula(reference: str, values: NDArray[np.float64], layout: Layout) -> PositionTable:
    source = Source(reference=reference, resolved=reference, shape=values.shape, dtype="F64")
    return PositionTable(
        values, layout, name=reference, source=source, kind="fixed", family="formula"
    )
