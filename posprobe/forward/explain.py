"""What explanations keep of a table: the tables that take its place when a model is asked.

All but the zeros keep the mean row, so that what is compared is what rows say beyond it. No model
is needed, and no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from posprobe import nulls
from posprobe.analyses.base_fit import fit_base
from posprobe.analyses.closeness import Floats, cloud
from posprobe.analyses.predictors import linear
from posprobe.analyses.processes import fit_process
from posprobe.analyses.pursuit import choose_sinusoids
from posprobe.analyses.rounding import centred
from posprobe.analyses.seams import seams
from posprobe.analyses.special_patches import without
from posprobe.analyses.views import view
from posprobe.arrays import Array, Positions, positions, to_numpy
from posprobe.encodings.tables import sincos2d, sinusoidal
from posprobe.layouts import Grid, Layout
from posprobe.tables import PositionTable

#: What an explanation is made of: those of one kind differ in their size alone.
Kind: TypeAlias = Literal[
    "table", "components", "sinusoids", "rotations", "ladder", "smoothed", "codes", "repaired",
    "formula", "null", "removed", "given", "band", "fastest", "head",
]  # fmt: skip

#: How many components, or sinusoids, are kept.
COUNTS = (1, 2, 3, 5, 10, 20, 50)
#: Standard deviations of the Gaussian weights of neighbours, in positions; on a grid, in patches.
SMOOTHED = (1, 2, 4, 8, 16)
#: Fewest positions that are smoothed, or set against waves: of fewer, nothing can be told.
MIN_ROWS = 8
#: Singular values below this share of the largest are rounding.
ROUNDING = 1e-10
#: What stands in the place of every row when the table is removed.
REMOVED = "mean"

_NULLS = {
    "gaussian": "rows in random directions",
    "permuted": "its rows in random order",
    "walk": "a random walk of its steps",
    "stationary": "a smooth random table like it",
}


@dataclass(frozen=True, eq=False)
class Explanation:
    """A table that stands in the place of another.

    Parameters
    ----------
    name
        Its key, such as ``"components_3"``.
    label
        What it is, in words.
    rows
        ``[n, d]`` float64.
    kind
        What it is made of.
    size
        How many components, sinusoids or rotations it has, or over how many positions it is
        smoothed; None where it has no size.
    """

    name: str
    label: str
    rows: Floats = field(repr=False)
    kind: Kind
    size: int | None = None


def explanations(table: PositionTable | Array, *, seed: int = 0) -> tuple[Explanation, ...]:
    """Make the tables that different explanations of a table keep.

    The table itself; its k leading principal components; its k best sinusoids
    (`posprobe.analyses.pursuit`); the rotations that stand out of a smooth spectrum
    (`posprobe.analyses.planes`); the sinusoid of its shape, and that of the base that fits best,
    each rotated and scaled to fit (Procrustes: Schönemann 1966); the table smoothed; row code plus
    column code; the table without its special rows, or patches; a draw of each null model
    (`posprobe.nulls`); the mean row; zeros. Those that a table does not have are left out: a grid
    has no sinusoids of one axis, a sequence no row code, a table without special rows none to
    replace.

    Parameters
    ----------
    table
        ``[n, d]``.
    seed
        Random seed.

    Raises
    ------
    InvalidTable
        If the table is not ``[n, d]`` and finite.

    Examples
    --------
    >>> import posprobe as pp
    >>> made = pp.forward.explanations(pp.sinusoidal(32, 8))
    >>> [each.name for each in made][:4]
    ['itself', 'components_1', 'components_2', 'components_3']
    >>> made[0].rows.shape
    (32, 8)
    """
    given = positions(table)
    values = to_numpy(given.values).astype(np.float64)
    mean = values.mean(axis=0)
    around = centred(values)[0]
    return (
        itself(values),
        *_components(around, mean),
        *(() if isinstance(given.layout, Grid) else _waves(values, around, mean, seed)),
        *_formulas(around, mean, given.layout),
        *_smoothed(around, mean, given.layout),
        *(_codes(values, given.layout) if isinstance(given.layout, Grid) else ()),
        *_repaired(values, given),
        *_surrogates(around, mean, given.layout, seed),
        mean_row(values),
        Explanation("zeros", "zeros everywhere", np.zeros_like(values), "removed"),
    )


def itself(values: Floats) -> Explanation:
    """Return a table ``[n, d]`` in its own place."""
    return Explanation("itself", "the table itself", values, "table")


def mean_row(values: Floats) -> Explanation:
    """Return the mean row in the place of every row of a table ``[n, d]``."""
    rows = np.broadcast_to(values.mean(axis=0), values.shape).copy()
    return Explanation(REMOVED, "the mean row everywhere", rows, "removed")


def explained(values: Floats, rows: Floats) -> float | None:
    """Return the share of a table's variance that a table in its place keeps.

    Parameters
    ----------
    values, rows
        ``[n, d]``: the table, and what stands in its place.

    Returns
    -------
    float or None
        1 less the squared distance over that of the rows from their mean, below 0 where the mean
        row would be closer; None of a constant table.
    """
    around = centred(values)[0]
    scale = float(np.abs(around).max(initial=0.0))
    if not scale:
        return None
    whole = float(np.square(around / scale).sum())
    return 1 - float(np.square((values - rows) / scale).sum()) / whole


def _components(around: Floats, mean: Floats) -> Iterator[Explanation]:
    left, singular, right = np.linalg.svd(around, full_matrices=False)
    rank = int((singular > ROUNDING * singular[0]).sum()) if singular[0] > 0 else 0
    # The last is all that there are, where they are few.
    for k in sorted({min(k, rank) for k in COUNTS} - {0}):
        rows = mean + (left[:, :k] * singular[:k]) @ right[:k]
        yield _sized("components", k, rows, "leading component")


def _sized(kind: Kind, k: int, rows: Floats, noun: str) -> Explanation:
    """Return what is made of so many parts of a kind."""
    return Explanation(f"{kind}_{k}", noun if k == 1 else f"{k} {noun}s", rows, kind, k)


def _waves(values: Floats, around: Floats, mean: Floats, seed: int) -> Iterator[Explanation]:
    """Fit sinusoids, the best ones and those of the rotations, to a sequence."""
    n = len(around)
    if n < MIN_ROWS or not around.any():
        return
    chosen = choose_sinusoids(cloud(values), max(COUNTS)).frequencies
    for k in (k for k in COUNTS if k <= len(chosen)):
        rows = mean + _fitted(around, chosen[k - 1])
        yield _sized("sinusoids", k, rows, "best sinusoid")
    if n < 2 * MIN_ROWS or around.shape[1] < 2:
        return
    turning = view(values, seed=seed).turning.rotations
    if turning:
        k = len(turning)
        rows = mean + _fitted(around, np.array([1 / each.period for each in turning]))
        label = "the rotation found" if k == 1 else f"the {k} rotations found"
        yield Explanation("rotations", f"{label}, alone", rows, "rotations", k)


def _fitted(around: Floats, frequencies: Floats) -> Floats:
    """Return what sinusoids of given frequencies, in cycles per position, keep: ``[n, d]``."""
    angles = 2 * np.pi * np.outer(np.arange(len(around)), frequencies)
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    basis, _ = np.linalg.qr(waves - waves.mean(axis=0))
    return np.asarray(basis @ (basis.T @ around))


def _formulas(around: Floats, mean: Floats, layout: Layout) -> Iterator[Explanation]:
    """Rotate and scale sinusoids of the table's shape onto it."""
    n, d = around.shape
    if n < MIN_ROWS or not around.any() or d % (4 if isinstance(layout, Grid) else 2):
        return
    if isinstance(layout, Grid):
        made = sincos2d(layout.height, layout.width, d)
        rows = mean + _aligned(made.values, around)
        yield Explanation("sinusoid", "2-D sin-cos, rotated to fit", rows, "formula")
        return
    rows = mean + _aligned(sinusoidal(n, d).values, around)
    yield Explanation("sinusoid", "sinusoid, rotated to fit", rows, "formula")
    fit = fit_base(cloud(around), d)
    if fit.bases.size:
        base = fit.base or float(fit.bases[int(np.argmax(fit.cka))])
        rows = mean + _aligned(sinusoidal(n, d, base=base).values, around)
        label = f"ladder of base {base:.3g}, rotated to fit"
        yield Explanation("ladder", label, rows, "ladder")


def _aligned(shape: Array, around: Floats) -> Floats:
    """Rotate and scale a table so that it is as near as it can be: orthogonal Procrustes."""
    source = np.asarray(shape, dtype=np.float64)
    source = source - source.mean(axis=0)
    # Within the span of either's rows, which are fewer than the columns of wide tables.
    scores, size, _ = np.linalg.svd(source, full_matrices=False)
    other, spread, directions = np.linalg.svd(around, full_matrices=False)
    left, singular, right = np.linalg.svd((scores * size).T @ (other * spread))
    scale = singular.sum() / np.square(size).sum()
    return np.asarray(scale * (scores * size) @ left @ right @ directions)


def _smoothed(around: Floats, mean: Floats, layout: Layout) -> Iterator[Explanation]:
    sides = (layout.height, layout.width) if isinstance(layout, Grid) else (len(around),)
    if len(around) < MIN_ROWS:
        return
    noun = "patch" if isinstance(layout, Grid) else "position"
    cells = around.reshape(*sides, -1)
    for length in (length for length in SMOOTHED if 4 * length <= max(sides)):
        rows = cells
        for axis, size in enumerate(sides):
            rows = np.moveaxis(np.tensordot(_weights(size, length), rows, (1, axis)), 0, axis)
        plural = "" if length == 1 else ("es" if noun == "patch" else "s")
        label = f"smoothed over {length} {noun}{plural}"
        smooth = mean + rows.reshape(around.shape)
        yield Explanation(f"smoothed_{length}", label, smooth, "smoothed", length)


def _weights(size: int, length: float) -> Floats:
    """Return Gaussian weights of neighbours that add up to 1 at the ends, too: ``[n, n]``."""
    place = np.arange(size)
    weights = np.exp(-0.5 * np.square((place[:, None] - place[None]) / length))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _codes(values: Floats, layout: Grid) -> Iterator[Explanation]:
    cells = values.reshape(layout.height, layout.width, -1)
    rows = cells.mean(axis=1)[:, None] + cells.mean(axis=0)[None] - values.mean(axis=0)
    yield Explanation("codes", "row code plus column code", rows.reshape(values.shape), "codes")


def _repaired(values: Floats, given: Positions) -> Iterator[Explanation]:
    special = [row.row for row in seams(given).special]
    k, grid = len(special), given.layout
    if not 0 < k < len(values) - 1:
        return
    if isinstance(grid, Grid):
        rows, nouns = without(values, special, grid.height, grid.width, np), ("patch", "patches")
    else:
        rows, nouns = values.copy(), ("row", "rows")
        missing = np.isin(np.arange(len(values)), special)
        rows[missing] = linear(values, missing)
    count = f"{k} special {nouns[1]}" if k > 1 else f"special {nouns[0]}"
    yield Explanation("repaired", f"without its {count}", rows, "repaired", k)


def _surrogates(around: Floats, mean: Floats, layout: Layout, seed: int) -> Iterator[Explanation]:
    """Draw one table of each null model about the mean row."""
    if not around.any():
        return
    scale = float(np.abs(around).max())
    for index, name in enumerate(nulls.NULLS):
        if name not in nulls.null_models(layout):
            continue
        rng = np.random.default_rng([seed, index])
        if name == "stationary":
            drawn = _stationary(around / scale, layout, rng)
        else:
            drawn = nulls.surrogate(around / scale, name, rng, layout).astype(np.float64)
        rows = mean + scale * (drawn - drawn.mean(axis=0))
        yield Explanation(name, _NULLS[name], rows, "null")


def _stationary(around: Floats, layout: Layout, rng: np.random.Generator) -> Floats:
    """Draw the stationary process in the table's own columns."""
    process = fit_process(around, layout)
    drawn = process.draw(rng).astype(np.float64)
    right = np.linalg.svd(around, full_matrices=False)[2]
    # The process has the strongest directions last, and may have one more, along the mean.
    count = int((process.columns > 0).sum())
    return np.asarray(drawn[:, :count] @ right[:count][::-1])
