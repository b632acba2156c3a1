"""What a table of patches is as a field: smooth, tied to places, of few components.

Each is asked against random fields on the same grid. As a table of patches is often a code of its
row plus a code of its column, a stationary field is here the sum of three: a row code, a column
code, and an isotropic rest, each with the kernel that fits it and its share of the variance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.composition.grid_model import fit_surface
from posprobe.analyses.composition.processes import fit_kernel
from posprobe.analyses.facts import Answer, TooFew
from posprobe.analyses.linear import (
    displacements,
    grid_distances,
    halving,
    leading,
    participation,
    root,
    toeplitz,
)
from posprobe.analyses.view import LEVEL, View, units
from posprobe.arrays import Floats
from posprobe.questions.grids import NEIGHBOUR_KEYS, parts, unfit
from posprobe.questions.rank_tests import (
    LEAST_SHARE,
    OPEN,
    SLIGHT,
    Ask,
    against,
    draw_until,
    judged,
    rank,
    shown,
)
from posprobe.questions.sequences import directions

#: Draws of each null, and how many where those do not exclude a yes: so many that the least p-value
#: of the three questions (1 / 200, 2 / 300 and 1 / 150) stands alone among the questions of a grid.
SMOOTH_DRAWS, PLACE_DRAWS, WIDE_DRAWS = (99, 199), (99, 299), (49, 149)
#: Shortest side of a grid that is asked, and of one that no can be said of.
MIN_SIDE, LONG_SIDE = 4, 6
#: Leading components of draws, and the most independent columns.
RANK, MOST_COLUMNS = 8, 192
#: Components are fewer if they spread over at most this share of what smoothness gives.
FEWER = 0.6
#: Most patches of which draws are made.
AREA = 1024
#: Misfit above which displacements hardly decide anything, though chance makes it as large.
TOO_SLOW = 0.35
#: Mean cosine of neighbours from which patches are similar beyond them, and from which they are so
#: at all.
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
    factors: tuple[NDArray[np.float32], ...]
    columns: tuple[Floats, ...]
    shares: tuple[float, ...]

    def draw(self, rng: np.random.Generator, count: int | None = None) -> NDArray[np.float32]:
        """Draw a table ``[h * w, r]``, with ``count`` independent columns where that is given."""
        height, width = self.shape
        null_draws = []
        for factor, columns in zip(self.factors, self.columns, strict=True):
            sizes = columns if count is None else np.ones(count)
            white = rng.standard_normal((len(factor), len(sizes)), dtype=np.float32)
            null_draws.append(factor @ (white * sizes.astype(np.float32)))
        inner = parts(null_draws[2], self.shape)[2]
        max_rank = max(code_draw.shape[-1] for code_draw in null_draws)
        cells = np.zeros((height, width, max_rank), dtype=np.float32)
        fields = null_draws[0][:, None], null_draws[1][None], inner
        for code, share in zip(fields, self.shares, strict=True):
            code = code - code.mean(axis=(0, 1))
            size = float(np.square(code).sum(axis=-1).mean())
            if share > 0 and size > 0:
                rotated = code if count else code @ _turn(rng, code.shape[-1], max_rank)
                cells += np.float32(np.sqrt(share / size)) * rotated
        return cells.reshape(height * width, -1)


def fit_field(points: Floats, shape: tuple[int, int]) -> Field:
    """Fit a stationary field to ``[h * w, d]``, centred."""
    height, width = shape
    rows, columns, residual = parts(points, shape)
    split = rows, columns, residual.reshape(len(points), -1)
    sizes = [float(np.square(term).sum() / len(term)) for term in split]
    total = max(sum(sizes), np.finfo(np.float64).tiny)
    kernels = (
        toeplitz(fit_kernel(rows).by_offset),
        toeplitz(fit_kernel(columns).by_offset),
        fit_surface(split[2], height, width)[displacements(height, width)],
    )
    return Field(
        shape,
        tuple(root(kernel).astype(np.float32) for kernel in kernels),
        tuple(_spread(term) for term in split),
        tuple(size / total for size in sizes),
    )


def _spread(points: Floats) -> Floats:
    """Return the sizes of points along their leading directions."""
    return np.asarray(np.linalg.norm(leading(points, RANK), axis=0))


def _turn(rng: np.random.Generator, rank: int, max_rank: int) -> Floats:
    """Return a random orthonormal embedding ``[rank, most]``: the parts share no directions."""
    rotated = np.linalg.qr(rng.standard_normal((max_rank, rank)))[0].T
    return np.asarray(rotated, dtype=np.float32)


@dataclass(frozen=True)
class PatchSmooth:
    """What tells that a table of patches is smooth.

    Parameters
    ----------
    stride
        Patches over which successive steps are taken.
    cosine, typical
        Mean cosine of successive steps along rows and columns, and the median in the nearest null.
    length, halves
        Patches over which the mean inner product halves, from that of neighbours, and whether it
        does within the grid.
    """

    stride: int
    cosine: float
    typical: float
    length: float
    halves: bool

    value = shown("length", "cosine", "stride")


def ask_patch_smooth(view: View) -> Answer:
    """Ask whether steps between successive patches point the same way.

    Along rows and columns together, over one patch and over two. The nulls are rough: an isotropic
    field with an exponential kernel that is much longer than the grid, and a random walk of the
    rows plus one of the columns; in both, successive steps are independent, and neighbours as
    similar as can be without smoothness.
    """
    if unfit_answer := unfit("smooth", view, NEIGHBOUR_KEYS, MIN_SIDE, AREA):
        return unfit_answer
    height, width = view.shape
    # All columns: the leading directions of a rough field are smoother than it is.
    cells = view.points.reshape(height, width, -1)
    bend_scores = _bends(cells)
    rng = view.rng(13)
    rough = _rough(height, width)
    sizes = np.linalg.norm(view.coordinates, axis=0)
    codes = [_spread(code) for code in parts(view.points, view.shape)[:2]]
    max_rank = max(len(code) for code in codes)

    def draw() -> list[Floats]:
        isotropic = rough @ (rng.standard_normal((height * width, len(sizes))) * sizes)
        walks = [
            np.cumsum(rng.standard_normal((n, len(code))) * code, axis=0)
            for n, code in zip(view.shape, codes, strict=True)
        ]
        row_walk, column_walk = (walk @ _turn(rng, walk.shape[1], max_rank) for walk in walks)
        return [
            _bends(isotropic.reshape((*cells.shape[:2], -1))),
            _bends(row_walk[:, None] + column_walk),
        ]

    def scores(null_draws: Floats) -> tuple[Floats, Floats]:
        centre, spread = np.median(null_draws, axis=0), np.maximum(null_draws.std(axis=0), 1e-9)
        return (bend_scores - centre) / spread, (null_draws - centre) / spread

    def ranks(null_draws: Floats) -> list[float]:
        observed, null = (scale_scores.max(axis=-1) for scale_scores in scores(null_draws))
        return [rank(observed[k], null[:, k]) for k in range(len(observed))]

    null_draws, p = draw_until(draw, lambda null_draws: max(ranks(null_draws)), *SMOOTH_DRAWS)
    nearest = int(np.argmax(ranks(null_draws)))
    best = int(np.argmax(scores(null_draws)[0][nearest]))
    null = null_draws[:, nearest, best]
    length = _half(cells)
    halves = length < max(height, width) - 1
    cosine = float(bend_scores[best])
    facts = PatchSmooth(best + 1, cosine, float(np.median(null)), length, halves)
    is_long = min(height, width) >= LONG_SIDE
    answer, reason = judged(p, "patch_surface", "patch_rough", "patch_open", has_enough=is_long)
    # What so few steps call significant is no small cosine.
    test = against(cosine, null, ("rough field", "walks")[nearest], p)
    return Answer("smooth", answer, reason, facts, test, NEIGHBOUR_KEYS)


def _bends(cells: Floats) -> Floats:
    """Return mean cosines of successive steps over one patch and over two."""
    scores = []
    for stride in (1, 2):
        overlap = size = 0.0
        max_stride = max(cells.shape[:2]) - stride
        for by_axis in (cells, cells.swapaxes(0, 1)):
            step = by_axis[stride:] - by_axis[:-stride]
            if len(step) > stride:
                before, after = step[:-stride], step[stride:]
                overlap += float(np.vdot(before, after))
                size += float(np.vdot(before, before) + np.vdot(after, after)) / 2
        if max_stride > stride or stride == 1:
            # A checkerboard has no steps over two patches.
            scores.append(overlap / size if size > 0 else 0.0)
    return np.array(scores)


@lru_cache(maxsize=8)
def _rough(height: int, width: int) -> Floats:
    return root(np.exp(-grid_distances(height, width) / (8 * max(height, width))))


def _half(cells: Floats) -> float:
    """Return over how many patches the mean inner product halves, from that of neighbours."""
    max_lag = max(cells.shape[:2])
    mean = np.zeros(max_lag)
    for k in range(1, max_lag):
        row_products = np.einsum("rcd,rcd->rc", cells[:, k:], cells[:, :-k])
        column_products = np.einsum("rcd,rcd->rc", cells[k:], cells[:-k])
        mean[k] = (row_products.sum() + column_products.sum()) / max(
            row_products.size + column_products.size, 1
        )
    return halving(mean)


@dataclass(frozen=True)
class PatchPlaces:
    """What tells that similarity depends on where patches stand.

    Parameters
    ----------
    components
        Leading components that are looked at.
    misfit, typical_misfit
        Share of the squares of inner products that their means over equal displacements leave, and
        the median in stationary fields.
    norms, typical_norms
        Factor by which the norms of patches change slowly over the grid.
    p_place
        Twice the lower of the two ranks.
    neighbours
        Mean cosine of patches side by side, along the axis where it is greater.
    """

    components: int
    misfit: float
    typical_misfit: float
    norms: float
    typical_norms: float
    p_place: float
    neighbours: float

    @property
    def value(self) -> dict[str, float]:
        """Misfit and p-value."""
        return {"misfit": self.misfit, "p_shift": self.p_place}


PLACE_KEYS = ("grid.row_share", "grid.column_share")


def ask_patch_places(view: View) -> Answer:
    """Ask whether similarity depends on where patches stand, not on their displacement alone.

    The misfit of the means over equal displacements is set beside draws of the fitted stationary
    field, and so is how much the norms of patches change over the grid.
    """
    if unfit_answer := unfit("absolute_position", view, PLACE_KEYS, MIN_SIDE, AREA):
        return unfit_answer
    height, width = view.shape
    rng = view.rng(14)
    field = fit_field(view.points, view.shape)
    points = view.coordinates[:, :RANK]
    inequalities = np.array(_unequal(points, view.shape))

    def ranks(null_draws: Floats) -> list[float]:
        return [rank(inequalities[k], null_draws[:, k]) for k in range(2)]

    null_draws, p = draw_until(
        lambda: _unequal(field.draw(rng), view.shape),
        lambda null_draws: min(1.0, 2 * min(ranks(null_draws))),
        *PLACE_DRAWS,
    )
    typical = np.median(null_draws, axis=0)
    cells = units(view.points).reshape(height, width, -1)
    neighbours = max(
        float(np.einsum("rcd,rcd->rc", by_axis[1:], by_axis[:-1]).mean())
        for by_axis in (cells, cells.swapaxes(0, 1))
    )
    facts = PatchPlaces(
        points.shape[1], max(float(inequalities[0]), 0.0), float(typical[0]),
        float(inequalities[1]),
        float(typical[1]), p, neighbours,
    )  # fmt: skip
    # Which of the two is told: the stronger evidence, of those that are large enough.
    large = inequalities[0] - typical[0] >= LEAST_SHARE, inequalities[1] >= 1 + SLIGHT
    unequal_axes = [k for k in range(2) if large[k] and 2 * ranks(null_draws)[k] <= LEVEL]
    axis = min(unequal_axes, key=lambda k: ranks(null_draws)[k], default=0)
    slow = facts.misfit > TOO_SLOW
    has_enough = not slow and min(height, width) >= LONG_SIDE
    told_by = ("patch_products", "patch_norms")[axis]
    answer, reason = judged(p, told_by, "patch_displacement", "patch_open", has_enough=has_enough)
    if answer == "yes" and not unequal_axes:
        axis = int(np.argmin(ranks(null_draws)))
        answer, reason = "no" if has_enough else "cannot tell", "patch_small"
    elif answer == "cannot tell" and slow:
        reason = "patch_slow"
        if neighbours < ALIKE:
            reason = "patch_unlike" if neighbours < HARDLY else "patch_short"
    test = against(float(inequalities[axis]), null_draws[:, axis], "stationary", p, times=2)
    return Answer("absolute_position", answer, reason, facts, test, PLACE_KEYS)


def _unequal(points: NDArray[np.floating], shape: tuple[int, int]) -> tuple[float, float]:
    """Return how unequal places are, by inner products and by norms.

    By inner products: the share of the Gram matrix's squares that its means over equal
    displacements leave. By norms: the factor by which the slowest waves over the grid change them.
    """
    height, width = shape
    cells = (points - points.mean(axis=0)).reshape(height, width, -1)
    transform = np.fft.rfft2(np.moveaxis(cells, -1, 0), (2 * height, 2 * width))
    power = np.square(np.abs(transform)).sum(axis=0)
    sums = np.fft.irfft2(power, (2 * height, 2 * width))
    deviations = [
        np.maximum(n - np.minimum(np.arange(2 * n), 2 * n - np.arange(2 * n)), 0) for n in shape
    ]
    pairs = np.multiply.outer(*deviations)
    invariant_power = float((np.square(sums) / np.maximum(pairs, 1))[pairs > 0].sum())
    flat = cells.reshape(height * width, -1)
    total_power = float(np.square(flat.T @ flat).sum())
    norms = np.linalg.norm(flat, axis=1)
    logs = np.log(np.maximum(norms, 1e-9 * max(float(norms.max()), 1e-300))).reshape(shape)
    row_offset, column_offset = (
        np.cos(np.pi * np.outer(np.arange(3), np.arange(n) + 0.5) / n) / np.sqrt(n / 2)
        for n in shape
    )
    slow = np.square(row_offset @ logs @ column_offset.T)
    slow[0, 0] = 0.0
    # The amplitude of one wave of that size, as on a line.
    change = np.sqrt(2 * float(slow.sum()) / len(norms))
    return 1 - invariant_power / max(total_power, np.finfo(np.float64).tiny), float(np.exp(change))


def places_by_order(answer: Answer, order: Answer) -> Answer | None:
    """Say of patches whose place may not matter that similarity can hardly depend on it."""
    if order.yes or not isinstance(answer.facts, PatchPlaces):
        return None
    if answer.answer == "no":
        if order.answer == "no":
            return answer.corrected("no", "patch_unordered", "order", test=None)
        return answer.corrected("no", "patch_order_open", "order")
    if answer.yes and order.answer == "no":
        return answer.corrected("cannot tell", "patch_yes_unordered", "order")
    return None


@dataclass(frozen=True)
class PatchDimension:
    """How many components a table of patches has.

    Parameters
    ----------
    directions
        Components that explain nine tenths of the variance.
    columns
        Most components that a table of this shape can have.
    participation, expected
        Participation ratio with all patches given the same length, and its median in random fields
        as smooth.
    """

    directions: int
    columns: int
    participation: float
    expected: float

    @property
    def value(self) -> dict[str, float]:
        """Components, participation ratio and the most components."""
        return {
            "directions": self.directions, "participation_ratio": self.participation,
            "columns": self.columns,
        }  # fmt: skip


DIMENSION_KEYS = ("pca.participation_ratio", "pca.top3")


def ask_patch_dimension(view: View) -> Answer:
    """Ask whether there are fewer components than in the fitted field with independent columns."""
    if unfit_answer := unfit("low_dimensional", view, DIMENSION_KEYS, MIN_SIDE, AREA):
        return unfit_answer
    n, d = view.points.shape
    if d < 3:
        too_few_facts = TooFew(n, d)
        return Answer(
            "low_dimensional", "cannot tell", "too_few", too_few_facts, keys=DIMENSION_KEYS
        )
    rng = view.rng(15)
    unit = units(view.points)  # so that no few long rows decide
    unit = unit - unit.mean(axis=0)
    field = fit_field(unit, view.shape)
    dimension = participation(unit)

    def draw() -> float:
        points = field.draw(rng, min(d, MOST_COLUMNS))
        return participation(points - points.mean(axis=0))

    null_draws, p = draw_until(draw, lambda null_draws: rank(-dimension, -null_draws), *WIDE_DRAWS)
    facts = PatchDimension(directions(view), min(n - 1, d), dimension, float(np.median(null_draws)))
    fewer = dimension <= FEWER * facts.expected
    is_long = min(view.shape) >= LONG_SIDE
    p_value = p if fewer else 1.0
    answer, reason = judged(
        p_value, "patch_fewer", "patch_as_many", "patch_open", has_enough=is_long
    )
    if answer == "no" and p <= OPEN:
        reason = "patch_small"
    test = against(dimension, null_draws, "smooth", p)
    return Answer("low_dimensional", answer, reason, facts, test, DIMENSION_KEYS)


#: By name, in the order of the page.
QUESTIONS: Mapping[str, Ask] = {
    "smooth": ask_patch_smooth, "absolute_position": ask_patch_places,
    "low_dimensional": ask_patch_dimension,
}  # fmt: skip
