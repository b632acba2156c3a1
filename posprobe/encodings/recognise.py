"""Stored tables that follow a published formula, told apart from learned ones by their values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.encodings.tables import ORDERS, columns, frequencies, sinusoidal
from posprobe.layouts import Grid, Layout

#: Largest difference that computing in float32 and rounding to a format make, doubled.
_ROUNDING = {"F16": 2e-3, "BF16": 8e-3}
#: fairseq's first position is the one after its padding index, whose rows are not positions.
_STARTS = range(5)
#: Few rows refuse most candidates; the others come in blocks, to hold no second table in float64.
_PROBE, _BLOCK = 8, 512


#: Root mean squared distance, over the waves' own size, up to which a table nearly is a formula.
_NEARLY = 0.02
#: A base this near to a round number is that number.
_ROUND = 0.005


@dataclass(frozen=True)
class NearFormula:
    """A formula that a table follows up to a factor and a little noise.

    Parameters
    ----------
    name
        Its layout.
    base
        Of its frequencies.
    scale
        Factor of the waves.
    error
        Root mean squared distance, over the waves' own size.
    """

    name: str
    base: float
    scale: float
    error: float


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


def fixed_formula(
    values: NDArray[np.floating[Any]],
    layout: Layout,
    dtype: str,
    step: float = 0.0,
    begin: int = 0,
) -> str | None:
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
        How they are arranged; a sequence of ``k * k`` rows is tried as a square grid too. Of a
        grid some rows may be missing.
    dtype
        Format in which the table is stored, such as ``F16``.
    step
        Distance between neighbouring values of a quantised table.
    begin
        Position of the first row, where those before it were not read.
    """
    n, d = values.shape
    if not n or not d or d % 2:
        return None
    if not (np.abs(values[:, 0]) <= 2).all():  # no wave; nor is NaN
        return None
    first = values[:, 0].astype(np.float64)
    # A float32 angle of n is that far off.
    tolerance = max(_ROUNDING.get(dtype, 1e-3), step) + (begin + n) * 2.0**-23
    on_a_line = _on_a_line(first, d, tolerance, begin)
    for waves in (*on_a_line, *_on_a_grid(first, d, layout, tolerance, begin)):
        if _equal(values, waves, tolerance):
            return waves.name
    return None if begin else _standardised(values, first, tolerance)


def _on_a_line(
    first: NDArray[np.float64], d: int, tolerance: float, begin: int
) -> Iterator[_Waves]:
    for start, cosine_first in product(_STARTS, (False, True)):
        positions = np.arange(begin + start, begin + start + len(first))
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
    first: NDArray[np.float64], d: int, layout: Layout, tolerance: float, begin: int
) -> Iterator[_Waves]:
    n = len(first)
    width = layout.width if isinstance(layout, Grid) else isqrt(n)
    if d % 4 or not (isinstance(layout, Grid) or (width * width == n and not begin)):
        return
    cells = np.stack(np.divmod(np.arange(begin, begin + n), width), axis=1)
    suffix = "" if isinstance(layout, Grid) else f", on a grid of {width} x {width}"
    for name, axes, cosines in _quarters():
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


def nearly_formula(values: NDArray[np.floating[Any]], layout: Layout) -> NearFormula | None:
    """Recognise a published layout of sines and cosines of any base, up to a factor and noise.

    In each layout, the frequency of a pair of columns is the mean angle by which it turns from one
    position to the next; all must be powers of the first, which is 1.

    Parameters
    ----------
    values
        ``[n, d]``, the rows that are positions, in order.
    layout
        How they are arranged; a sequence of ``k * k`` rows is tried as a square grid too.
    """
    n, d = values.shape
    if n < 4 or d < 4 or d % 2 or not np.isfinite(values).all():
        return None
    table: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    found = None
    if not isinstance(layout, Grid):
        for order, cosine_first in product(ORDERS, (False, True)):
            sine, cosine = columns(d, order, cosine_first=cosine_first)
            first = table[:, cosine[0]] + 1j * table[:, sine[0]]
            if not _turns_by_one(first[1:] * first[:-1].conj()):
                continue
            pairs = table[:, cosine] + 1j * table[:, sine]
            turned = pairs[1:] * pairs[:-1].conj()
            cells = np.zeros((n, d), dtype=int) + np.arange(n)[:, None]
            name = f"sinusoid, {order}{', cosines first' if cosine_first else ''}"
            found = found or _checked(table, name, turned, pairs, (sine, cosine), cells)
    width = layout.width if isinstance(layout, Grid) else isqrt(n)
    if found or d % 8 or n % width or min(width, n // width) < 2:
        return found
    if not isinstance(layout, Grid) and width * width != n:
        return None
    suffix = "" if isinstance(layout, Grid) else f", on a grid of {width} x {width}"
    place = np.stack(np.divmod(np.arange(n), width), axis=1)
    for name, axes, cosines in _quarters():
        part = [np.arange(q * d // 4, (q + 1) * d // 4) for q in range(4)]
        sine = np.concatenate([part[q] for q in range(4) if not cosines[q]])
        cosine = np.concatenate([part[q] for q in range(4) if cosines[q]])
        cell = (table[:, cosine[0]] + 1j * table[:, sine[0]]).reshape(-1, width)
        cell = cell if axes[0] == 0 else cell.T
        if not _turns_by_one(cell[1:] * cell[:-1].conj()):
            continue
        pairs = table[:, cosine] + 1j * table[:, sine]
        axis = np.repeat(axes, d // 4)
        grid = pairs.reshape(-1, width, d // 2)
        along = [
            (ahead * behind.conj()).reshape(-1, d // 2)
            for ahead, behind in ((grid[1:], grid[:-1]), (grid[:, 1:], grid[:, :-1]))
        ]
        of_pair = axis[sine]
        turned = np.stack([along[a].sum(axis=0)[k] for k, a in enumerate(of_pair)])[None]
        found = found or _checked(
            table, f"2-D sin-cos, {name}{suffix}", turned, pairs, (sine, cosine), place[:, axis],
        )  # fmt: skip
    return found


def _turns_by_one(turned: NDArray[np.complex128]) -> bool:
    """Whether neighbours turn by an angle of about 1, as the fastest pair does."""
    mean = turned.mean()
    size = np.abs(turned).mean()
    return bool(abs(mean) > 0.9 * size > 0 and abs(np.angle(mean) - 1) < 0.05)


def _checked(
    values: NDArray[np.float64],
    name: str,
    turned: NDArray[np.complex128],
    pairs: NDArray[np.complex128],
    where: tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]],
    place: NDArray[np.integer[Any]],
) -> NearFormula | None:
    """Fit base, factor and first position of one layout, and measure what is left."""
    sine, cosine = where
    omega = np.angle(turned.sum(axis=0))
    scale = float(np.sqrt(np.square(np.abs(pairs)).mean()))
    if scale == 0:
        return None
    one_axis = len(omega) // (2 if name.startswith("2-D") else 1)
    number = np.arange(len(omega)) % one_axis
    fast = (omega > 20 / len(values)) & (number > 0)  # noise hides the slow ones
    if not fast.any():
        return None
    weight = omega[fast] ** 2
    slope = -float((weight * number[fast]) @ np.log(omega[fast]) / (weight @ number[fast] ** 2))
    best: NearFormula | None = None
    least = np.inf
    for spread in (one_axis, one_axis - 1):
        if spread < 1 or slope <= 0 or slope * spread > 30:
            continue
        fitted = float(np.exp(slope * spread))
        rounded = float(f"{fitted:.1g}")
        for base in {fitted, *({rounded} if abs(fitted / rounded - 1) < 30 * _ROUND else ())}:
            steps = np.exp(-np.log(base) / spread * number)
            for start in _STARTS if not name.startswith("2-D") else (0,):
                expected = np.empty_like(values)
                expected[:, sine] = np.sin((place[:, sine] + start) * steps)
                expected[:, cosine] = np.cos((place[:, cosine] + start) * steps)
                size = float(np.square(expected).sum())
                factor = float((expected * values).sum()) / size
                if factor <= 0:
                    continue
                error = float(np.sqrt(np.square(values / factor - expected).sum() / size))
                over = "d/2 - 1" if spread < one_axis else "d/2"
                over = "" if name.startswith("2-D") and spread == one_axis else (
                    f", exponents over {over}"
                )  # fmt: skip
                full = f"{name}{over}{f', from position {start}' if start else ''}"
                # A round base is preferred unless another fits clearly better.
                worth = error if base == rounded else 1.2 * error + 1e-6
                if error <= _NEARLY and worth < least:
                    best, least = NearFormula(full, base, factor, error), worth
    return best


def _quarters() -> Iterator[tuple[str, list[int], list[bool]]]:
    """Return the published orders of the quarters of 2-D tables: axis of each, and cosines."""
    row, column = 0, 1
    yield "columns first", [column, column, row, row], [False, True, False, True]
    yield "rows first", [row, row, column, column], [False, True, False, True]
    yield (
        "rows first, sines before cosines",
        [row, column, row, column],
        [False, False, True, True],
    )


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
