"""The headline numbers of a table, cheaply: what is asked of every surrogate.

Each analysis reduces its sums, eigenvalues or power to numbers in one function, which is called
here too. What differs is where those come from: one Gram matrix serves all of them, in float32 for
surrogates, and leading components come from a block Krylov iteration, so that twenty surrogates
cost no more than one complete analysis. Of tables too long for a Gram matrix of the rows, the rows'
factors and the Gram matrix of the columns tell the same. One number differs by design: the shift's
skill looks at the `COMPONENTS` leading components only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.gram import Floats, cosines, grams, squared_norm, total_power
from posprobe.analyses.grid import grid_numbers
from posprobe.analyses.ladder import Ladder, ladder
from posprobe.analyses.pca import eigenvalue_numbers
from posprobe.analyses.rounding import centred, centring_error
from posprobe.analyses.shift_skill import leading_skill
from posprobe.analyses.similarity import (
    monotone_fraction,
    sums_of_cosines,
    sums_of_rows,
)
from posprobe.analyses.spectrum import (
    MIN_LENGTH,
    grid_power,
    ring_power,
    spectrum_numbers,
    without_line,
)
from posprobe.analyses.unit_rows import falling_share, scale_rows, unit_rows
from posprobe.encodings.sinusoidal import sincos2d, sinusoidal
from posprobe.layouts import Grid, Layout
from posprobe.tables import PositionTable

#: Rows up to which all products of two rows are formed. Of more, tiles take less memory and a tenth
#: of the time, and give the numbers of null models in single precision.
MOST_PRODUCTS = 2048
#: Steps of the block Krylov iteration: leading eigenvalues within 0.4 % even of a flat spectrum.
STEPS = 6
#: Residual of an eigenvector, as a share of its eigenvalue, that ends the iteration early: the
#: eigenvalue is then exact to about its square.
SETTLED = 0.01
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
#: The analyses that have any.
BLOCKS = frozenset(key.split(".")[0] for key in HEADLINES)


@dataclass(frozen=True, eq=False)
class ShapeConstants:
    """What all tables of one shape are measured with.

    Parameters
    ----------
    layout
        Of the positions.
    window
        ``[n]``: the spectrum's taper.
    sinusoid
        ``[n, d]``: the sinusoid of the shape, on a grid the 2-D sin-cos; None where that has no
        table of this width.
    ladder
        Its directions, strongest first; None where none of the analyses needs them.
    blocks
        The analyses whose numbers are wanted.
    """

    layout: Layout
    window: NDArray[np.float64]
    sinusoid: NDArray[np.float64] | None
    ladder: Ladder | None
    blocks: Set[str]

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width; a sequence has height 1."""
        if isinstance(self.layout, Grid):
            return self.layout.height, self.layout.width
        return 1, self.layout.length


def shape_constants(layout: Layout, dim: int, blocks: Iterable[str] = BLOCKS) -> ShapeConstants:
    """Prepare what all tables of one shape are measured with, for the analyses in ``blocks``."""
    wanted = BLOCKS & set(blocks)
    formula = None
    if isinstance(layout, Grid) and dim % 4 == 0 and wanted:
        formula = sincos2d(layout.height, layout.width, dim)
    elif not isinstance(layout, Grid) and dim % 2 == 0 and wanted:
        formula = sinusoidal(layout.size, dim)
    return ShapeConstants(
        layout,
        np.hanning(layout.size),
        None if formula is None else np.asarray(formula.values),
        None
        if formula is None or layout.size < 4 or not wanted & {"sinusoid", "shift"}
        else _span(formula),
        wanted,
    )


def _span(formula: PositionTable) -> Ladder:
    if not isinstance(formula.layout, Grid):
        known = ladder(len(formula), formula.dim)
        return Ladder(known.basis, known.singular)  # whose matrices [n, n] end with these constants
    centered = formula.values - formula.values.mean(axis=0)
    basis, singular, _ = np.linalg.svd(centered, full_matrices=False)
    return Ladder(basis, singular)


@dataclass(frozen=True, eq=False)
class Products:
    """The Gram matrices of a table's rows, and the leading components that follow.

    Parameters
    ----------
    raw, centred
        ``[n, n]``: of the rows as they are, and centred.
    leading, vectors
        ``[k]`` and ``[n, k]``: leading eigenvalues and eigenvectors of the latter.
    """

    raw: Floats
    centred: Floats
    leading: Floats
    vectors: Floats

    def reordered(self, order: NDArray[np.intp]) -> Products:
        """Return those of the same rows in another order, without any multiplication."""
        raw, gram = (np.take(matrix[order], order, axis=1) for matrix in (self.raw, self.centred))
        return Products(raw, gram, self.leading, self.vectors[order])


def products(values: Floats) -> Products:
    """Multiply the rows of a table ``[n, d]`` with each other; n up to `MOST_PRODUCTS`."""
    table, _ = centred(values)
    raw, gram = grams(values, table)
    return Products(raw, gram, *leading_components(gram, min(COMPONENTS, *table.shape)))


def headline(
    values: Floats, shared: ShapeConstants, known: Products | None = None
) -> dict[str, float | None]:
    """Compute the headline numbers of one table.

    Parameters
    ----------
    values
        ``[n, d]`` float32 or float64, which is also the precision of the computation.
    shared
        For the table's shape.
    known
        Its `products`, where they are known already.

    Returns
    -------
    dict
        Numbers of the wanted analyses by their key path in ``analysis.json``; None where undefined.
    """
    wanted = shared.blocks
    if len(values) > MOST_PRODUCTS:
        return _wanted(_long_headline(values, shared), wanted)
    table, error = centred(values)
    waves = _waves(table, shared) if wanted & {"spectrum", "grid"} else {}
    if not wanted - {"spectrum", "grid"}:
        return _wanted(waves, wanted)
    found = known or products(values)
    gram, leading = found.centred, found.leading
    cosine, there = cosines(found.raw, values, 0.0)
    raw = sums_of_cosines(cosine, there, *shared.shape, np).numbers()
    cosine[~there], cosine[:, ~there] = np.nan, np.nan
    raw["monotone_fraction"] = monotone_fraction(cosine, *shared.shape)
    cosine, there = cosines(gram, table, error)
    similarity = sums_of_cosines(cosine, there, *shared.shape, np).numbers()
    near: tuple[float | None, float | None] = _UNKNOWN
    if shared.ladder is not None and "sinusoid" in wanted:
        near = shared.ladder.from_gram(gram)
    numbers = {
        **_named("similarity.raw", raw),
        **_named("similarity.centered", similarity),
        **_components(gram, leading, found.vectors * np.sqrt(np.maximum(leading, 0)), shared),
        **_nearness(near, shared),
        **waves,
    }
    return _wanted(numbers, wanted)


def _long_headline(values: Floats, shared: ShapeConstants) -> dict[str, float | None]:
    """Compute the same from the rows' factors, and of a second table in memory no more."""
    wanted = shared.blocks
    numbers: dict[str, float | None] = {}
    if "similarity" in wanted:
        units, there = unit_rows(values, np, centered=False)
        raw = sums_of_rows(units, there, *shared.shape, np).numbers()
        raw["monotone_fraction"] = falling_share(units, there, *shared.shape, np)
        numbers |= _named("similarity.raw", raw)
        del units
    table, error = centred(values)
    if wanted & {"spectrum", "grid"}:
        numbers |= _waves(table, shared)
    if wanted & {"pca", "shift", "sinusoid"}:
        gram: Floats = table.T @ table
        leading, along = leading_components(gram, min(COMPONENTS, *table.shape))
        near: tuple[float | None, float | None] = _UNKNOWN
        if shared.ladder is not None and "sinusoid" in wanted:
            near = shared.ladder.from_rows(table, squared_norm(gram))
        numbers |= _components(gram, leading, table @ along, shared) | _nearness(near, shared)
    if "similarity" in wanted:
        there = scale_rows(table, error, np)
        centered = sums_of_rows(table, there, *shared.shape, np).numbers()
        numbers |= _named("similarity.centered", centered)
    return numbers


#: CKA and share of the ladder where there is no sinusoid of the shape.
_UNKNOWN = (None, None)


def _nearness(
    near: tuple[float | None, float | None], shared: ShapeConstants
) -> dict[str, float | None]:
    share = None if isinstance(shared.layout, Grid) else near[1]
    return {"sinusoid.cka": near[0], "sinusoid.ladder_share": share}


def _wanted(numbers: dict[str, float | None], blocks: Set[str]) -> dict[str, float | None]:
    return {
        key: None if value is None else float(value)
        for key, value in numbers.items()
        if key.split(".")[0] in blocks
    }


def sinusoid_headline(shared: ShapeConstants) -> dict[str, float | None]:
    """Compute the headline numbers of the sinusoid of a shape; empty where there is none."""
    if shared.sinusoid is None or not shared.blocks:
        return {}
    numbers = headline(shared.sinusoid, replace(shared, ladder=None))
    on_line = not isinstance(shared.layout, Grid)
    if shared.ladder is not None and "sinusoid" in shared.blocks:
        near, share = shared.ladder.from_itself()
        numbers |= {"sinusoid.cka": near, "sinusoid.ladder_share": share if on_line else None}
    if shared.ladder is not None and on_line and "shift" in shared.blocks:
        # Its exact shift needs every direction of the ladder, not the leading few.
        scores = shared.ladder.basis * shared.ladder.singular
        unused = max(0, min(shared.sinusoid.shape) - scores.shape[1])
        numbers["shift.skill"] = leading_skill(np.pad(scores, ((0, 0), (0, unused))))
    return numbers


@lru_cache(maxsize=64)
def sinusoid_numbers(
    layout: Layout, dim: int, blocks: frozenset[str]
) -> Mapping[str, float | None]:
    """Compute the headline numbers of the sinusoid of a shape, once for all tables of the shape."""
    return sinusoid_headline(shape_constants(layout, dim, blocks))


def headline_curves(values: Floats, shared: ShapeConstants) -> dict[str, NDArray[np.float64]]:
    """Compute the curves of one sequence that figures show with a band.

    Returns
    -------
    dict
        Centred offset ``profile`` ``[n]``, ``spectrum`` as shares of its power ``[f]``, and the
        running sum of explained ``variance`` ``[16]`` (fewer where there are fewer components).
    """
    table, error = centred(values)
    if len(values) > MOST_PRODUCTS:
        gram: Floats = table.T @ table
        sums = sums_of_rows(*unit_rows(values, np, centered=True), *shared.shape, np)
    else:
        _, gram = grams(values, table)
        sums = sums_of_cosines(*cosines(gram, table, error), *shared.shape, np)
    count = min(COMPONENTS, *table.shape)
    leading = leading_components(gram, count)[0].astype(np.float64)
    power = _power(table, shared)
    return {
        "profile": (sums.total / np.maximum(sums.count, 1))[0, len(values) - 1 :],
        "spectrum": power / max(power.sum(), np.finfo(np.float64).tiny),
        "variance": np.cumsum(leading) / float(np.trace(gram, dtype=np.float64)),
    }


def _named(block: str, numbers: dict[str, float | None]) -> dict[str, float | None]:
    return {f"{block}.{name}": value for name, value in numbers.items()}


def _components(
    gram: Floats, leading: Floats, scores: Floats, shared: ShapeConstants
) -> dict[str, float | None]:
    """Compute what the eigenvalues of the rows' or the columns' Gram matrix say."""
    total = float(np.trace(gram, dtype=np.float64))
    if total <= 0:
        return _named("pca", eigenvalue_numbers(np.zeros(0), 0, 0)) | {"shift.skill": None}
    numbers = _named("pca", eigenvalue_numbers(leading, total, squared_norm(gram)))
    if "shift" not in shared.blocks or isinstance(shared.layout, Grid):
        return numbers | {"shift.skill": None}
    # Directions of rounding would be taken for noise to predict.
    kept = leading > centring_error(float(leading[0]), 1, float(np.finfo(gram.dtype).eps))
    return numbers | {"shift.skill": leading_skill(scores[:, kept])}


def leading_components(gram: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the leading eigenvalues ``[k]`` and eigenvectors ``[n, k]`` of a Gram matrix.

    Block Krylov iteration (Musco & Musco 2015) from a fixed start, so that it is repeatable.
    """
    n = len(gram)
    if n <= 4 * (count + 8):
        return _falling_eigh(gram, count)
    block = np.random.default_rng(0).standard_normal((n, count + 8), dtype=np.float32)
    blocks = []
    image = gram @ block
    for _ in range(min(STEPS, n // (count + 8))):
        block = np.linalg.qr(image)[0]
        blocks.append(block)
        image = gram @ block
        # Where the spectrum falls fast, the last block alone has settled soon.
        values, vectors = _falling_eigh(block.T @ image, count)
        settled = block @ vectors
        if (np.linalg.norm(image @ vectors - settled * values, axis=0) <= SETTLED * values).all():
            return values, settled
    basis = np.linalg.qr(np.concatenate(blocks, axis=1))[0]
    values, vectors = _falling_eigh(basis.T @ (gram @ basis), count)
    return values, basis @ vectors


def _falling_eigh(matrix: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the leading eigenvalues ``[k]``, falling, and their eigenvectors ``[n, k]``."""
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1][:count], vectors[:, ::-1][:, :count]


def _waves(table: Floats, shared: ShapeConstants) -> dict[str, float | None]:
    """Compute what the power spectrum says, and on a grid the shares of its variance."""
    power, length = _power(table, shared), max(shared.shape)
    if isinstance(shared.layout, Grid):
        patches = _named("grid", grid_numbers(table, power.reshape(shared.shape)))
        power = ring_power(power, shared.layout)
    else:
        patches = {}
    if length < MIN_LENGTH:
        power = np.zeros(1)
    return _named("spectrum", spectrum_numbers(power, length)) | patches


def _power(table: Floats, shared: ShapeConstants) -> NDArray[np.float64]:
    """Return the power at each frequency, summed over columns; on a grid ``[h * w]``."""
    if isinstance(shared.layout, Grid):
        by_column = grid_power(table, shared.layout, np)
        return np.asarray(by_column.sum(axis=1, dtype=np.float64))
    n = len(table)
    if n == 1:  # through one point every line goes
        return np.zeros(1)
    rest = without_line(table, np)
    largest = float(np.abs(table).max())
    if np.abs(rest).max() <= centring_error(largest, 1, float(np.finfo(rest.dtype).eps)):
        return np.zeros(n // 2 + 1)
    power = total_power(rest * shared.window.astype(rest.dtype)[:, None], n)[: n // 2 + 1]
    # One side of the spectrum stands for both, but for 0 and the Nyquist frequency.
    power[1 : (n + 1) // 2] *= 2
    return power
