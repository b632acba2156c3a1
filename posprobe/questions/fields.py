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
from posprobe.questions.base import (
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
from posprobe.questions.grids import NEIGHBOUR_KEYS, parts, unfit
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


def fit_field(points: Floats, shape: tuple[int, int]) -> Field:
    """Fit a stationary field to ``[h * w, d]``, centred."""
    height, width = shape
    rows, columns, rest = parts(points, shape)
    split = rows, columns, rest.reshape(len(points), -1)
    sizes = [float(np.square(each).sum() / len(each)) for each in split]
    whole = max(sum(sizes), np.finfo(np.float64).tiny)
    kernels = (
        toeplitz(fit_kernel(rows).by_offset),
        toeplitz(fit_kernel(columns).by_offset),
        fit_surface(split[2], height, width)[displacements(height, width)],
    )
    return Field(
        shape,
        tuple(root(kernel).astype(np.float32) for kernel in kernels),
        tuple(_spread(each) for each in split),
        tuple(size / whole for size in sizes),
    )


def _spread(points: Floats) -> Floats:
    """Return the sizes of points along their leading directions."""
    return np.asarray(np.linalg.norm(leading(points, RANK), axis=0))


def _turn(rng: np.random.Generator, rank: int, most: int) -> Floats:
    """Return a random orthonormal embedding ``[rank, most]``: the parts share no directions."""
    turned = np.linalg.qr(rng.standard_normal((most, rank)))[0].T
    return np.asarray(turned, dtype=np.float32)


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


def ask_patch_smooth(seen: View) -> Answer:
    """Ask whether steps between successive patches point the same way.

    Along rows and columns together, over one patch and over two. The nulls are rough: an isotropic
    field with an exponential kernel that is much longer than the grid, and a random walk of the
    rows plus one of the columns; in both, successive steps are independent, and neighbours as
    similar as can be without smoothness.
    """
    if none := unfit("smooth", seen, NEIGHBOUR_KEYS, MIN_SIDE, AREA):
        return none
    height, width = seen.shape
    # All columns: the leading directions of a rough field are smoother than it is.
    cells = seen.points.reshape(height, width, -1)
    found = _bends(cells)
    rng = seen.rng(13)
    rough = _rough(height, width)
    sizes = np.linalg.norm(seen.coordinates, axis=0)
    codes = [_spread(code) for code in parts(seen.points, seen.shape)[:2]]
    most = max(len(own) for own in codes)

    def draw() -> list[Floats]:
        isotropic = rough @ (rng.standard_normal((height * width, len(sizes))) * sizes)
        walks = [
            np.cumsum(rng.standard_normal((n, len(own))) * own, axis=0)
            for n, own in zip(seen.shape, codes, strict=True)
        ]
        down, right = (walk @ _turn(rng, walk.shape[1], most) for walk in walks)
        return [_bends(isotropic.reshape((*cells.shape[:2], -1))), _bends(down[:, None] + right)]

    def scores(drawn: Floats) -> tuple[Floats, Floats]:
        centre, spread = np.median(drawn, axis=0), np.maximum(drawn.std(axis=0), 1e-9)
        return (found - centre) / spread, (drawn - centre) / spread

    def ranks(drawn: Floats) -> list[float]:
        own, null = (each.max(axis=-1) for each in scores(drawn))
        return [rank(own[k], null[:, k]) for k in range(len(own))]

    drawn, p = draw_until(draw, lambda drawn: max(ranks(drawn)), *SMOOTH_DRAWS)
    nearest = int(np.argmax(ranks(drawn)))
    best = int(np.argmax(scores(drawn)[0][nearest]))
    null = drawn[:, nearest, best]
    length = _half(cells)
    halves = length < max(height, width) - 1
    cosine = float(found[best])
    facts = PatchSmooth(best + 1, cosine, float(np.median(null)), length, halves)
    long = min(height, width) >= LONG_SIDE
    answer, reason = judged(p, "patch_surface", "patch_rough", "patch_open", enough=long)
    # What so few steps call significant is no small cosine.
    test = against(cosine, null, ("rough field", "walks")[nearest], p)
    return Answer("smooth", answer, reason, facts, test, NEIGHBOUR_KEYS)


def _bends(cells: Floats) -> Floats:
    """Return mean cosines of successive steps over one patch and over two."""
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
            # A checkerboard has no steps over two patches.
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


def ask_patch_places(seen: View) -> Answer:
    """Ask whether similarity depends on where patches stand, not on their displacement alone.

    The misfit of the means over equal displacements is set beside draws of the fitted stationary
    field, and so is how much the norms of patches change over the grid.
    """
    if none := unfit("absolute_position", seen, PLACE_KEYS, MIN_SIDE, AREA):
        return none
    height, width = seen.shape
    rng = seen.rng(14)
    field = fit_field(seen.points, seen.shape)
    points = seen.coordinates[:, :RANK]
    found = np.array(_unequal(points, seen.shape))

    def ranks(drawn: Floats) -> list[float]:
        return [rank(found[k], drawn[:, k]) for k in range(2)]

    drawn, p = draw_until(
        lambda: _unequal(field.draw(rng), seen.shape),
        lambda drawn: min(1.0, 2 * min(ranks(drawn))),
        *PLACE_DRAWS,
    )
    typical = np.median(drawn, axis=0)
    cells = units(seen.points).reshape(height, width, -1)
    neighbours = max(
        float(np.einsum("rcd,rcd->rc", near[1:], near[:-1]).mean())
        for near in (cells, cells.swapaxes(0, 1))
    )
    facts = PatchPlaces(
        points.shape[1], max(float(found[0]), 0.0), float(typical[0]), float(found[1]),
        float(typical[1]), p, neighbours,
    )  # fmt: skip
    # Which of the two is told: the stronger evidence, of those that are large enough.
    large = found[0] - typical[0] >= LEAST_SHARE, found[1] >= 1 + SLIGHT
    told = [k for k in range(2) if large[k] and 2 * ranks(drawn)[k] <= LEVEL]
    which = min(told, key=lambda k: ranks(drawn)[k], default=0)
    slow = facts.misfit > TOO_SLOW
    enough = not slow and min(height, width) >= LONG_SIDE
    told_by = ("patch_products", "patch_norms")[which]
    answer, reason = judged(p, told_by, "patch_displacement", "patch_open", enough=enough)
    if answer == "yes" and not told:
        which = int(np.argmin(ranks(drawn)))
        answer, reason = "no" if enough else "cannot tell", "patch_small"
    elif answer == "cannot tell" and slow:
        reason = "patch_slow"
        if neighbours < ALIKE:
            reason = "patch_unlike" if neighbours < HARDLY else "patch_short"
    test = against(float(found[which]), drawn[:, which], "stationary", p, times=2)
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
    # The amplitude of one wave of that size, as on a line.
    change = np.sqrt(2 * float(slow.sum()) / len(norms))
    return 1 - kept / max(whole, np.finfo(np.float64).tiny), float(np.exp(change))


def places_by_order(own: Answer, order: Answer) -> Answer | None:
    """Say of patches whose place may not matter that similarity can hardly depend on it."""
    if order.yes or not isinstance(own.facts, PatchPlaces):
        return None
    if own.answer == "no":
        if order.answer == "no":
            return own.corrected("no", "patch_unordered", "order", test=None)
        return own.corrected("no", "patch_order_open", "order")
    if own.yes and order.answer == "no":
        return own.corrected("cannot tell", "patch_yes_unordered", "order")
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


def ask_patch_dimension(seen: View) -> Answer:
    """Ask whether there are fewer components than in the fitted field with independent columns."""
    if none := unfit("low_dimensional", seen, DIMENSION_KEYS, MIN_SIDE, AREA):
        return none
    n, d = seen.points.shape
    if d < 3:
        few = TooFew(n, d)
        return Answer("low_dimensional", "cannot tell", "too_few", few, keys=DIMENSION_KEYS)
    rng = seen.rng(15)
    unit = units(seen.points)  # so that no few long rows decide
    unit = unit - unit.mean(axis=0)
    field = fit_field(unit, seen.shape)
    found = participation(unit)

    def draw() -> float:
        points = field.draw(rng, min(d, MOST_COLUMNS))
        return participation(points - points.mean(axis=0))

    drawn, p = draw_until(draw, lambda drawn: rank(-found, -drawn), *WIDE_DRAWS)
    facts = PatchDimension(directions(seen), min(n - 1, d), found, float(np.median(drawn)))
    fewer = found <= FEWER * facts.expected
    long = min(seen.shape) >= LONG_SIDE
    by = p if fewer else 1.0
    answer, reason = judged(by, "patch_fewer", "patch_as_many", "patch_open", enough=long)
    if answer == "no" and p <= OPEN:
        reason = "patch_small"
    test = against(found, drawn, "smooth", p)
    return Answer("low_dimensional", answer, reason, facts, test, DIMENSION_KEYS)


#: By name, in the order of the page.
QUESTIONS: Mapping[str, Ask] = {
    "smooth": ask_patch_smooth, "absolute_position": ask_patch_places,
    "low_dimensional": ask_patch_dimension,
}  # fmt: skip
