"""The headline numbers of a table, cheaply: what is asked of every surrogate.

The definitions are those of the analyses, and the tests hold both to the same values. Here one Gram
matrix serves all of them, in float32 for surrogates, and leading components come from a block
Krylov iteration, so that twenty surrogates cost no more than one complete analysis. Of tables too
long for a Gram matrix of the rows, the rows' factors and the Gram matrix of the columns tell the
same. One number differs by design: the shift's skill looks at the `COMPONENTS` leading components
only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.gram import (
    Floats,
    centre,
    cosines,
    directions,
    grams,
    lengths,
    sum_of_squared_entries,
)
from posprobe.analyses.ladder import Ladder, ladder
from posprobe.analyses.shift import MIN_ROWS, shift_rank, shift_skill
from posprobe.analyses.similarity import (
    MAX_ROWS,
    by_displacement,
    monotone_fraction,
    offset_numbers,
)
from posprobe.analyses.spectrum import EDGE, MIN_LENGTH, rings
from posprobe.analyses.unit_rows import autocorrelation, falling_share, sum_of_squares
from posprobe.encodings.sinusoidal import sincos2d, sinusoidal
from posprobe.table import Grid, Layout, PositionTable

#: Steps of the block Krylov iteration: leading eigenvalues within 0.4 % even of a flat spectrum.
STEPS = 6
#: Leading components of a surrogate. More would cost time and hardly change the skill: what a null
#: model's shift predicts at all, its strongest components predict.
COMPONENTS = 16

#: Key paths in ``analysis.json`` of the numbers that stand beside the null models.
HEADLINES = (
    *(
        f"similarity.{variant}.{name}"
        for variant in ("raw", "centered")
        for name in ("neighbour_mean", "far_mean", "translation_invariance")
    ),
    "similarity.raw.monotone_fraction",
    "pca.top3",
    "pca.stable_rank",
    "pca.participation_ratio",
    "spectrum.entropy",
    "spectrum.edge_frequency",
    "shift.skill",
    "sinusoid.cka",
    "sinusoid.ladder_share",
    "grid.row_share",
    "grid.column_share",
    "grid.interaction_share",
    "grid.axis_power_share",
)


@dataclass(frozen=True, eq=False)
class Ruler:
    """What all tables of one shape share.

    Parameters
    ----------
    layout
        Of the positions.
    count
        ``[2h - 1, 2w - 1]``: number of pairs at each displacement.
    window
        ``[n, 1]``: the spectrum's taper.
    sinusoid
        ``[n, d]``: the sinusoid of the shape, on a grid the 2-D sin-cos; None where that has no
        table of this width.
    ladder
        Its directions, strongest first.
    """

    layout: Layout
    count: NDArray[np.float64]
    window: NDArray[np.float64]
    sinusoid: NDArray[np.float64] | None
    ladder: Ladder | None

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width; a sequence has height 1."""
        if isinstance(self.layout, Grid):
            return self.layout.height, self.layout.width
        return 1, self.layout.length


def ruler(layout: Layout, dim: int) -> Ruler:
    """Prepare what all tables of one shape share."""
    on_grid = isinstance(layout, Grid)
    height, width = (layout.height, layout.width) if isinstance(layout, Grid) else (1, layout.size)
    down, right = np.mgrid[1 - height : height, 1 - width : width]
    count = ((height - np.abs(down)) * (width - np.abs(right))).astype(np.float64)
    reference = None
    if on_grid and dim % 4 == 0:
        reference = sincos2d(height, width, dim)
    elif not on_grid and dim % 2 == 0:
        reference = sinusoidal(layout.size, dim)
    return Ruler(
        layout,
        count,
        np.hanning(layout.size)[:, None],
        None if reference is None else np.asarray(reference.values),
        None if reference is None or layout.size < 4 else _span(reference, on_grid=on_grid),
    )


def _span(reference: PositionTable, *, on_grid: bool) -> Ladder:
    if not on_grid:
        return ladder(len(reference), reference.dim)
    centered = reference.values - reference.values.mean(axis=0)
    basis, singular, _ = np.linalg.svd(centered, full_matrices=False)
    return Ladder(basis, singular)


def headline(values: Floats, shared: Ruler) -> dict[str, float | None]:
    """Compute the headline numbers of one table.

    Parameters
    ----------
    values
        ``[n, d]`` float32 or float64, which is also the precision of the computation.
    shared
        For the table's shape.

    Returns
    -------
    dict
        Numbers by their key path in ``analysis.json``; None where undefined.
    """
    table, ladder = centre(values), shared.ladder
    count = min(COMPONENTS, *table.shape)
    beside: tuple[float | None, float | None] = None, None
    if len(values) > MAX_ROWS:
        columns = table.T @ table
        numbers = {
            **_similarity_of_rows("raw", values, shared),
            **_similarity_of_rows("centered", table, shared),
            **_components(columns, count, shared, table),
        }
        if ladder is not None:
            beside = ladder.from_rows(table, sum_of_squared_entries(columns))
    else:
        gram, centered = grams(values, table)
        numbers = {
            **_similarity("raw", gram, lengths(values), shared),
            **_similarity("centered", centered, lengths(table), shared),
            **_components(centered, count, shared),
        }
        if ladder is not None:
            beside = ladder.from_gram(centered)
    on_grid = isinstance(shared.layout, Grid)
    numbers |= {
        "sinusoid.cka": beside[0],
        "sinusoid.ladder_share": None if on_grid else beside[1],
        **_spectrum(table, shared),
        **_patches(table, shared),
    }
    return {key: None if value is None else float(value) for key, value in numbers.items()}


def sinusoid_headline(shared: Ruler) -> dict[str, float | None]:
    """Compute the headline numbers of the sinusoid of a shape; empty where there is none."""
    if shared.sinusoid is None:
        return {}
    numbers = headline(shared.sinusoid, shared)
    if shared.ladder is not None and not isinstance(shared.layout, Grid):
        # Its exact shift needs every direction of the ladder, not the leading few.
        scores = shared.ladder.basis * shared.ladder.singular
        unused = max(0, min(shared.sinusoid.shape) - scores.shape[1])
        numbers["shift.skill"] = _skill(np.pad(scores, ((0, 0), (0, unused))), shared)
    return numbers


def headline_curves(values: Floats, shared: Ruler) -> dict[str, NDArray[np.float64]]:
    """Compute the curves of one sequence that figures show with a band.

    Returns
    -------
    dict
        Centred offset ``profile`` ``[n]``, ``spectrum`` as shares of its power ``[f]``, and the
        running sum of explained ``variance`` ``[16]`` (fewer where there are fewer components).
    """
    table = centre(values)
    _, width = shared.shape
    gram: Floats
    if len(values) > MAX_ROWS:
        gram = table.T @ table
        sums = autocorrelation(directions(table)[0], 1, width, np)
    else:
        _, gram = grams(values, table)
        sums = by_displacement(cosines(gram, lengths(table))[0], 1, width, np)
    count = min(COMPONENTS, *table.shape)
    leading = leading_components(gram, count)[0].astype(np.float64)
    return {
        "profile": (sums / shared.count)[0, width - 1 :],
        "spectrum": _power_share(table, shared),
        "variance": np.cumsum(leading) / float(np.trace(gram, dtype=np.float64)),
    }


def _similarity(
    variant: str, gram: Floats, length: Floats, shared: Ruler
) -> dict[str, float | None]:
    height, width = shared.shape
    cosine, there = cosines(gram, length)
    rows = int(there.sum())
    count = shared.count
    if rows < len(there):
        count = by_displacement(np.outer(there, there).astype(np.float64), height, width, np)
    total = by_displacement(cosine, height, width, np)
    own = np.diagonal(cosine).astype(np.float64)
    squares = float(np.einsum("ij,ij->i", cosine, cosine).sum(dtype=np.float64) - own @ own)
    eps = float(np.finfo(cosine.dtype).eps)
    found = _offset_numbers(variant, total, count, squares, rows, eps, shared)
    if variant == "raw":
        if rows < len(there):
            cosine[~there], cosine[:, ~there] = np.nan, np.nan
        fraction = monotone_fraction(cosine, height, width)
        found["similarity.raw.monotone_fraction"] = fraction
    return found


def _similarity_of_rows(variant: str, rows: Floats, shared: Ruler) -> dict[str, float | None]:
    """Compute the same numbers without a matrix of all pairs."""
    height, width = shared.shape
    units, there = directions(rows)
    known = int(there.sum())
    count = shared.count
    if known < len(there):
        column = there[:, None].astype(np.float64)
        count = np.rint(autocorrelation(column, height, width, np))
    total = autocorrelation(units, height, width, np)
    squares = sum_of_squares(units) - known
    eps = float(np.finfo(units.dtype).eps)
    found = _offset_numbers(variant, total, count, squares, known, eps, shared)
    if variant == "raw":
        fraction = falling_share(units, there, height, width, np)
        found["similarity.raw.monotone_fraction"] = fraction
    return found


def _offset_numbers(
    variant: str,
    total: NDArray[np.float64],
    count: NDArray[np.float64],
    squares: float,
    rows: int,
    eps: float,
    shared: Ruler,
) -> dict[str, float | None]:
    numbers = offset_numbers(total, count, squares, *shared.shape)
    # Equal cosines differ by rounding only, and then nothing is there to explain.
    spread = squares - (total.sum() - rows) ** 2 / max(rows * (rows - 1), 1)
    if spread <= 10 * eps * squares:
        numbers["translation_invariance"] = None
    return {f"similarity.{variant}.{name}": value for name, value in numbers.items()}


def _components(
    gram: Floats, count: int, shared: Ruler, table: Floats | None = None
) -> dict[str, float | None]:
    """Compute what the eigenvalues say; a Gram matrix of the columns comes with its table."""
    total = float(np.trace(gram, dtype=np.float64))
    if total <= 0:
        names = ("pca.top3", "pca.stable_rank", "pca.participation_ratio", "shift.skill")
        return dict.fromkeys(names)
    leading, vectors = leading_components(gram, count)
    # Directions of rounding would be taken for noise to predict.
    kept = leading > 32 * np.finfo(gram.dtype).eps * leading[0]
    scores = vectors * np.sqrt(np.maximum(leading, 0)) if table is None else table @ vectors
    return {
        "pca.top3": float(leading[:3].sum()) / total,
        "pca.stable_rank": total / float(leading[0]),
        "pca.participation_ratio": total**2 / sum_of_squared_entries(gram),
        "shift.skill": _skill(scores[:, kept], shared),
    }


def _skill(scores: Floats, shared: Ruler) -> float | None:
    if isinstance(shared.layout, Grid) or len(scores) < MIN_ROWS:
        return None
    wide = scores.astype(np.float64) / float(np.linalg.norm(scores[:, 0]))
    return shift_skill(wide[:, : shift_rank(wide)])


def leading_components(gram: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the leading eigenvalues ``[k]`` and eigenvectors ``[n, k]`` of a Gram matrix.

    Block Krylov iteration (Musco & Musco 2015) from a fixed start, so that it is repeatable.
    """
    n = len(gram)
    if n <= 4 * (count + 8):
        eigenvalues, vectors = np.linalg.eigh(gram)
        return eigenvalues[::-1][:count], vectors[:, ::-1][:, :count]
    block = np.random.default_rng(0).standard_normal((n, count + 8), dtype=np.float32)
    blocks = []
    steps = min(STEPS, n // (count + 8))
    for _ in range(steps):
        block = np.linalg.qr(gram @ block)[0]
        blocks.append(block)
    basis = np.linalg.qr(np.concatenate(blocks, axis=1))[0]
    eigenvalues, vectors = np.linalg.eigh(basis.T @ (gram @ basis))
    return eigenvalues[::-1][:count], basis @ vectors[:, ::-1][:, :count]


def _spectrum(centered: Floats, shared: Ruler) -> dict[str, float | None]:
    height, width = shared.shape
    if max(height, width) < MIN_LENGTH:
        return {"spectrum.entropy": None, "spectrum.edge_frequency": None}
    share = _power_share(centered, shared)
    if not share.any():
        return {"spectrum.entropy": None, "spectrum.edge_frequency": None}
    positive = share[share > 0]
    length = width if height == 1 else max(height, width)
    return {
        "spectrum.entropy": -(positive * np.log(positive)).sum() / np.log(len(share)),
        "spectrum.edge_frequency": np.searchsorted(np.cumsum(share), EDGE) / length,
    }


def _power_share(centered: Floats, shared: Ruler) -> NDArray[np.float64]:
    n = len(centered)
    power: NDArray[np.float64]
    if isinstance(shared.layout, Grid):
        plane = _grid_power(centered, shared).ravel()
        power = np.bincount(rings(shared.layout).ravel(), weights=plane).astype(np.float64)
    else:
        line = (np.arange(n, dtype=centered.dtype) - (n - 1) / 2)[:, None]
        rest = centered - line * (line.T @ centered / float((line**2).sum()))
        if np.abs(rest).max() <= 32 * np.finfo(rest.dtype).eps * np.abs(centered).max():
            rest = np.zeros_like(rest)
        waves = np.fft.rfft(rest * shared.window.astype(rest.dtype), axis=0)
        power = (np.abs(waves) ** 2).sum(axis=1, dtype=np.float64)
        power[1 : (n + 1) // 2] *= 2
    share: NDArray[np.float64] = power / max(power.sum(), np.finfo(np.float64).tiny)
    return share


def _grid_power(centered: Floats, shared: Ruler) -> NDArray[np.float64]:
    waves = np.fft.fft2(centered.reshape(*shared.shape, -1), axes=(0, 1))
    power: NDArray[np.float64] = (np.abs(waves) ** 2).sum(axis=-1, dtype=np.float64)
    return power


def _patches(centered: Floats, shared: Ruler) -> dict[str, float | None]:
    if not isinstance(shared.layout, Grid):
        return {}
    height, width = shared.shape
    cells = centered.reshape(height, width, -1)
    whole = float((cells**2).sum(dtype=np.float64))
    if whole <= 0:
        return dict.fromkeys(
            f"grid.{name}"
            for name in ("row_share", "column_share", "interaction_share", "axis_power_share")
        )
    by_row, by_column = cells.mean(axis=1, keepdims=True), cells.mean(axis=0, keepdims=True)
    power = _grid_power(centered, shared)
    return {
        "grid.row_share": float((by_row**2).sum(dtype=np.float64)) * width / whole,
        "grid.column_share": float((by_column**2).sum(dtype=np.float64)) * height / whole,
        "grid.interaction_share": float(
            ((cells - by_row - by_column) ** 2).sum(dtype=np.float64) / whole
        ),
        "grid.axis_power_share": float((power[0].sum() + power[1:, 0].sum()) / power.sum()),
    }
