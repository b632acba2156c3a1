"""What a table of patches is as a field: smooth, stationary, of few directions.

Each is asked against random fields on the same grid. As a table of patches is often a code of its
row plus a code of its column, a stationary field is here the sum of three: a row code, a column
code, and an isotropic rest, each with the kernel that fits it and its share of the variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.answer import OPEN, Answer, Verdict, rank, too_few, verdict_of
from posprobe.analyses.closeness import Floats
from posprobe.analyses.directions_answer import participation, told_directions
from posprobe.analyses.stationary import (
    fit_grid_kernel,
    fit_kernel,
    grid_distances,
    leading,
    root,
    toeplitz,
)
from posprobe.analyses.views import LEVEL, MAX_ROWS, View, units
from posprobe.text import hundredths, two_figures

#: Draws of each null, and of the one that needs every column.
DRAWS, WIDE_DRAWS = 99, 49
#: Shortest side of a grid that is asked, and of one that no and yes can be said of.
MIN_SIDE, LONG_SIDE = 4, 6
#: Leading directions of draws, and the most independent columns.
RANK, MOST_COLUMNS = 8, 192
#: Directions are fewer if they spread over at most this share of what smoothness gives.
FEWER = 0.6
#: Most patches of which draws are made.
AREA = 1024
#: Misfit above which displacements hardly decide anything, though chance makes it as large.
TOO_SLOW = 0.35
#: Mean cosine of neighbours from which patches are alike beyond them, and from which they are so at
#: all.
ALIKE, HARDLY = 0.5, 0.2


@dataclass(frozen=True, eq=False)
class Field:
    """A stationary field like a table: row code, column code and the rest.

    Parameters
    ----------
    shape
        Height and width.
    factors
        Roots of the kernels of the three parts: ``[h, h]``, ``[w, w]`` and ``[h * w, h * w]``.
    columns
        Standard deviations along the principal directions of each part.
    shares
        Of the variance.
    """

    shape: tuple[int, int]
    factors: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]
    columns: tuple[Floats, Floats, Floats]
    shares: tuple[float, float, float]

    def draw(self, rng: np.random.Generator, count: int | None = None) -> NDArray[np.float32]:
        """Draw a table ``[h * w, r]``, with ``count`` independent columns where that is given."""
        height, width = self.shape
        drawn = []
        for factor, columns in zip(self.factors, self.columns, strict=True):
            sizes = columns if count is None else np.ones(count)
            white = rng.standard_normal((len(factor), len(sizes)), dtype=np.float32)
            drawn.append(factor @ (white * sizes.astype(np.float32)))
        inner = parts(drawn[2], self.shape)[2]
        most = max(each.shape[-1] for each in drawn)
        cells = np.zeros((height, width, most), dtype=np.float32)
        own = drawn[0][:, None], drawn[1][None], inner
        for code, share in zip(own, self.shares, strict=True):
            code = code - code.mean(axis=(0, 1))
            size = float(np.square(code).sum(axis=-1).mean())
            if share > 0 and size > 0:
                turned = code if count else code @ _turn(rng, code.shape[-1], most)
                cells += np.float32(np.sqrt(share / size)) * turned
        return cells.reshape(height * width, -1)


def _turn(rng: np.random.Generator, rank: int, most: int) -> Floats:
    """Return a random orthonormal embedding ``[rank, most]``: the parts share no directions."""
    turned = np.linalg.qr(rng.standard_normal((most, rank)))[0].T
    return np.asarray(turned, dtype=np.float32)


def parts(
    points: NDArray[np.floating[Any]], shape: tuple[int, int]
) -> tuple[Floats, Floats, Floats]:
    """Split ``[h * w, d]`` into row code ``[h, d]``, column code ``[w, d]`` and the rest."""
    cells = points.astype(np.float64).reshape(*shape, -1)
    cells = cells - cells.mean(axis=(0, 1))
    rows, columns = cells.mean(axis=1), cells.mean(axis=0)
    return rows, columns, cells - rows[:, None] - columns


def fit_field(points: Floats, shape: tuple[int, int]) -> Field:
    """Fit a stationary field to ``[h * w, d]``, centred."""
    height, width = shape
    rows, columns, rest = parts(points, shape)
    flat = rest.reshape(len(points), -1)
    sizes = [float(np.square(each).sum() / len(each)) for each in (rows, columns, flat)]
    whole = max(sum(sizes), np.finfo(np.float64).tiny)
    kernels = (
        toeplitz(fit_kernel(rows).by_offset(height)),
        toeplitz(fit_kernel(columns).by_offset(width)),
        fit_grid_kernel(flat, height, width)(grid_distances(height, width)),
    )
    spread = [np.sqrt(np.square(leading(each, RANK)).sum(axis=0)) for each in (rows, columns, flat)]
    return Field(
        shape,
        (_single(kernels[0]), _single(kernels[1]), _single(kernels[2])),
        (spread[0], spread[1], spread[2]),
        (sizes[0] / whole, sizes[1] / whole, sizes[2] / whole),
    )


def _single(covariance: Floats) -> NDArray[np.float32]:
    return root(covariance).astype(np.float32)


def field_answers(shared: View, height: int, width: int) -> list[Answer]:
    """Ask whether a table of patches is smooth, stationary, and of unusually few directions."""
    shape = (height, width)
    asked = (
        ("smooth", ("grid.neighbour_right", "grid.neighbour_below")),
        ("stationary", ("grid.row_share", "grid.column_share")),
        ("low_dimensional", ("pca.participation_ratio", "pca.top3")),
    )
    if few := [too_few(name, shared, keys) for name, keys in asked]:
        found = [answer for answer in few if answer]
        if found:
            return found
    if min(shape) < MIN_SIDE or height * width > min(AREA, MAX_ROWS):
        text = f"Cannot be told of a grid of {height} x {width}."
        return [Answer(name, "cannot tell", text, keys=keys) for name, keys in asked]
    field = fit_field(shared.points, shape)
    return [
        smooth(shared, field, asked[0][1]),
        stationary(shared, field, asked[1][1]),
        low_dimensional(shared, shape, asked[2][1]),
    ]


def smooth(shared: View, field: Field, keys: tuple[str, ...]) -> Answer:
    """Ask whether differences of successive patches point the same way.

    Along rows and columns alike, over one patch and over two. The nulls are rough: an isotropic
    field with an exponential kernel that is much longer than the grid, and a random walk of the
    rows plus one of the columns; in both, successive differences are independent, and neighbours
    as alike as can be without smoothness.
    """
    height, width = field.shape
    # All columns: the leading directions of a rough field are smoother than it is.
    cells = shared.points.reshape(height, width, -1)
    found = _bends(cells)
    rng = shared.rng(13)
    rough = _rough(height, width)
    sizes = np.sqrt(np.square(shared.coordinates).sum(axis=0))
    drawn = np.empty((2, DRAWS, len(found)))
    for k in range(DRAWS):
        isotropic = rough @ (rng.standard_normal((height * width, len(sizes))) * sizes)
        walks = [
            np.cumsum(rng.standard_normal((n, len(own))) * own, axis=0)
            for n, own in zip(field.shape, field.columns[:2], strict=True)
        ]
        most = max(len(own) for own in field.columns[:2])
        turned = [walk @ _turn(rng, walk.shape[1], most) for walk in walks]
        drawn[0, k] = _bends(isotropic.reshape(height, width, -1))
        drawn[1, k] = _bends(turned[0][:, None] + turned[1][None])
    p = 0.0
    for null in drawn:
        centre, spread = np.median(null, axis=0), np.maximum(null.std(axis=0), 1e-9)
        p = max(
            p, rank(float(((found - centre) / spread).max()), ((null - centre) / spread).max(1))
        )
    best = int(np.argmax(found))
    cosine = float(found[best])
    answer = verdict_of(p, enough=min(height, width) >= LONG_SIDE)
    over = "successive patches" if best == 0 else "patches two apart"
    told = (
        f"differences of {over} along rows and columns have a mean cosine of {hundredths(cosine)} "
        "with the next ones, in rough fields 0"
    )
    length = _half(cells)
    sentence = {
        "yes": f"Yes: it is a smooth surface: {told}; the likeness of patches falls to half of the "
        f"neighbours' over {two_figures(length)} patches.",
        "no": f"No: it is no smoother than a rough field: {told}.",
        "cannot tell": f"Cannot be told from {height} x {width} patches: {told}.",
    }[answer]
    value = {"length": length, "cosine": cosine, "stride": best + 1}
    return Answer("smooth", answer, sentence, value, 0.0, p, cosine, keys)


def _bends(cells: Floats) -> Floats:
    """Return mean cosines of successive differences over one patch and over two."""
    found = []
    for stride in (1, 2):
        ahead = size = 0.0
        longest = max(cells.shape[:2]) - stride
        for along in (cells, cells.swapaxes(0, 1)):
            step = along[stride:] - along[:-stride]
            if len(step) > stride:
                before, after = step[:-stride], step[stride:]
                ahead += float(np.vdot(before, after))
                size += float(np.vdot(before, before) + np.vdot(after, after)) / 2
        if longest > stride or stride == 1:
            # A checkerboard has no differences over two patches.
            found.append(ahead / size if size > 0 else 0.0)
    return np.array(found)


@lru_cache(maxsize=8)
def _rough(height: int, width: int) -> Floats:
    return root(np.exp(-grid_distances(height, width) / (8 * max(height, width))))


def _half(cells: Floats) -> float:
    """Return over how many patches the mean inner product halves, from that of neighbours."""
    longest = max(cells.shape[:2])
    mean = np.zeros(longest)
    for k in range(1, longest):
        right = np.einsum("rcd,rcd->rc", cells[:, k:], cells[:, :-k])
        below = np.einsum("rcd,rcd->rc", cells[k:], cells[:-k])
        mean[k] = (right.sum() + below.sum()) / max(right.size + below.size, 1)
    if mean[1] <= 0:
        return 0.0
    under = np.flatnonzero(mean[1:] <= mean[1] / 2)
    if not len(under):
        return float(longest - 1)
    k = int(under[0]) + 1
    return float(k - 1 + (mean[k - 1] - mean[1] / 2) / (mean[k - 1] - mean[k]))


def stationary(shared: View, field: Field, keys: tuple[str, ...]) -> Answer:
    """Ask whether the displacement of two patches alone decides how alike they are.

    The misfit of the means over equal displacements is set beside draws of the fitted stationary
    field, and so is how much the norms of patches vary over the grid.
    """
    shape = field.shape
    rng = shared.rng(14)
    found = _unequal(shared.coordinates[:, :RANK], shape)
    drawn = np.array([_unequal(field.draw(rng), shape) for _ in range(DRAWS)])
    each = [rank(found[k], drawn[:, k]) for k in range(2)]
    p = min(1.0, 2 * min(each))
    misfit, typical = max(found[0], 0.0), float(np.median(drawn[:, 0]))
    told = (
        f"inner products at one displacement vary by {misfit:.0%} of their squares, in draws of a "
        f"stationary field by {typical:.0%}"
    )
    value = {"misfit": misfit, "p_shift": p}
    slow = misfit > TOO_SLOW
    cells = units(shared.points).reshape(*shape, -1)
    neighbours = max(
        float(np.einsum("rcd,rcd->rc", near[1:], near[:-1]).mean())
        for near in (cells, cells.swapaxes(0, 1))
    )
    if p > OPEN and not slow and min(shape) >= LONG_SIDE:
        answer: Verdict = "yes"
        text = f"Yes: the displacement of two patches decides how alike they are: {told}."
    elif p <= LEVEL:
        answer = "no"
        where = "the norms of patches depend on where they stand" if each[1] < each[0] else told
        text = f"No: where two patches stand decides how alike they are, too: {where}."
    else:
        answer = "cannot tell"
        why = ""
        if slow and neighbours < ALIKE:
            near = "at any displacement" if neighbours < HARDLY else "but for neighbours"
            why = f", as patches are hardly alike {near}"
        elif slow:
            why = ", as on so small a grid chance alone brings that about"
        text = f"Cannot be told from {shape[0]} x {shape[1]} patches{why}: {told}."
    return Answer("stationary", answer, text, value, typical, None, misfit - typical, keys)


def _unequal(points: NDArray[np.floating[Any]], shape: tuple[int, int]) -> tuple[float, float]:
    """Return how unequal places are, by inner products and by norms.

    By inner products: the share of the Gram matrix's squares that its means over equal
    displacements leave. By norms: the squares of the changes
    of their logarithms in the slowest waves over the grid.
    """
    height, width = shape
    cells = (points - points.mean(axis=0)).reshape(height, width, -1)
    transform = np.fft.rfft2(np.moveaxis(cells, -1, 0), (2 * height, 2 * width))
    power = np.square(np.abs(transform)).sum(axis=0)
    sums = np.fft.irfft2(power, (2 * height, 2 * width))
    away = [
        np.maximum(n - np.minimum(np.arange(2 * n), 2 * n - np.arange(2 * n)), 0) for n in shape
    ]
    pairs = np.multiply.outer(*away)
    kept = float((np.square(sums) / np.maximum(pairs, 1))[pairs > 0].sum())
    flat = cells.reshape(height * width, -1)
    whole = float(np.square(flat.T @ flat).sum())
    norms = np.linalg.norm(flat, axis=1)
    logs = np.log(np.maximum(norms, 1e-9 * max(float(norms.max()), 1e-300))).reshape(shape)
    down, right = (
        np.cos(np.pi * np.outer(np.arange(3), np.arange(n) + 0.5) / n) / np.sqrt(n / 2)
        for n in shape
    )
    slow = np.square(down @ logs @ right.T)
    slow[0, 0] = 0.0
    return 1 - kept / max(whole, np.finfo(np.float64).tiny), float(slow.sum() / len(norms))


def low_dimensional(shared: View, shape: tuple[int, int], keys: tuple[str, ...]) -> Answer:
    """Ask whether there are fewer directions than in the fitted field with independent columns."""
    height, width = shape
    d = shared.points.shape[1]
    if d < 3:
        text = f"Cannot be told of {d} column{'s' if d > 1 else ''}."
        return Answer("low_dimensional", "cannot tell", text, keys=keys)
    rng = shared.rng(15)
    count = min(d, MOST_COLUMNS)
    unit = units(shared.points)  # so that no few long rows decide
    unit = unit - unit.mean(axis=0)
    field = fit_field(unit, shape)
    spread = participation(unit)
    fields = (field.draw(rng, count) for _ in range(WIDE_DRAWS))
    drawn = np.array([participation(points - points.mean(axis=0)) for points in fields])
    expected = float(np.median(drawn))
    p = rank(-spread, -drawn)
    answer = verdict_of(p if spread <= FEWER * expected else 1.0, enough=min(shape) >= LONG_SIDE)
    told, value = told_directions(shared, spread, expected, "patches")
    sentence = {
        "yes": f"Yes: {told}, so they are unusually few.",
        "no": f"No{', hardly' if p <= OPEN else ''} fewer directions than its smoothness gives: "
        f"{told}.",
        "cannot tell": f"Cannot be told from {height} x {width} patches: {told}.",
    }[answer]
    ratio = spread / expected
    return Answer("low_dimensional", answer, sentence, value, expected, p, ratio, keys)
