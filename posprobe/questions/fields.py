"""Questions about patches as a random field: smoothness, absolute position, few components.

Each question is tested against random fields on the same grid. A table of patches is often a row
code plus a column code. So a stationary field is here the sum of three terms: a row code, a column
code and an isotropic remainder, each with the kernel that fits it and its share of the variance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.composition.grid_model import fit_surface
from posprobe.analyses.composition.processes import fit_kernel
from posprobe.analyses.facts import MAX_YES_P, Answer, TooFew
from posprobe.analyses.linear import (
    covariance_root,
    grid_displacements,
    grid_distances,
    halving_distance,
    leading_coordinates,
    participation_ratio,
    toeplitz,
)
from posprobe.analyses.resampling import rank_p_value
from posprobe.analyses.view import View, normalise_rows
from posprobe.arrays import Floats
from posprobe.questions.grids import NEIGHBOUR_KEYS, split_codes, unfit_grid_answer
from posprobe.questions.rank_tests import (
    MAX_OPEN_P,
    MIN_EFFECT_SHARE,
    MIN_VISIBLE_CHANGE,
    AskTable,
    draw_null,
    judge_p_value,
    null_test,
    value_property,
)
from posprobe.questions.sequences import count_directions

#: Draws of each null model of smoothness in any case, and where those do not exclude a yes: the
#: smallest p-value, 1 / 200, is significant alone among the questions about a grid.
N_PATCH_SMOOTH_DRAWS = (99, 199)
#: The same for absolute position, with a smallest p-value of 2 / 300.
N_PATCH_POSITION_DRAWS = (99, 299)
#: The same for the dimension, with a smallest p-value of 1 / 150.
N_PATCH_DIMENSION_DRAWS = (49, 149)
#: Shortest side of a grid about which these questions are asked.
MIN_FIELD_SIDE_PATCHES = 4
#: Shortest side of a grid about which the answer can be no.
MIN_DENIAL_SIDE_PATCHES = 6
#: Leading components of each term of a field.
MAX_FIELD_COMPONENTS = 8
#: Largest number of independent columns in a draw.
MAX_FIELD_COLUMNS = 192
#: Largest participation ratio of a table with fewer components, over that of fields as smooth.
MAX_FIELD_DIMENSION_RATIO = 0.6
#: Largest number of patches in a draw.
MAX_FIELD_PATCHES = 1024
#: Above this misfit, displacements hardly decide anything, though chance makes it as large.
MAX_DISPLACEMENT_MISFIT = 0.35
#: Mean cosine of neighbours from which patches are similar beyond their neighbours.
MIN_PATCH_SIMILAR_COSINE = 0.5
#: Mean cosine of neighbours from which neighbours are similar at all.
MIN_PATCH_SHORT_COSINE = 0.2


@dataclass(frozen=True, eq=False)
class Field:
    """A stationary field fitted to a table: row code, column code and isotropic term.

    Parameters
    ----------
    shape
        Height and width in patches.
    factors
        Roots of the kernels of the three terms: ``[h, h]``, ``[w, w]`` and ``[h * w, h * w]``.
    component_scales
        Norms along the principal directions of each term.
    shares
        Shares of the variance, one per term.
    """

    shape: tuple[int, int]
    factors: tuple[NDArray[np.float32], ...]
    component_scales: tuple[Floats, ...]
    shares: tuple[float, ...]

    def draw(
        self, rng: np.random.Generator, n_columns: int | None = None
    ) -> NDArray[np.float32]:
        """Draw a table ``[h * w, r]``, of ``n_columns`` independent columns where given."""
        height, width = self.shape
        term_draws = []
        for factor, component_scales in zip(
            self.factors, self.component_scales, strict=True
        ):
            scales = component_scales if n_columns is None else np.ones(n_columns)
            white = rng.standard_normal((len(factor), len(scales)), dtype=np.float32)
            term_draws.append(factor @ (white * scales.astype(np.float32)))
        isotropic_term = split_codes(term_draws[2], self.shape)[2]
        max_rank = max(term_draw.shape[-1] for term_draw in term_draws)
        patches = np.zeros((height, width, max_rank), dtype=np.float32)
        terms = term_draws[0][:, None], term_draws[1][None], isotropic_term
        for term, share in zip(terms, self.shares, strict=True):
            centred = term - term.mean(axis=(0, 1))
            mean_square = float(np.square(centred).sum(axis=-1).mean())
            if share > 0 and mean_square > 0:
                if not n_columns:
                    centred = centred @ _random_embedding(
                        rng, centred.shape[-1], max_rank
                    )
                patches += np.float32(np.sqrt(share / mean_square)) * centred
        return patches.reshape(height * width, -1)


def fit_field(points: Floats, shape: tuple[int, int]) -> Field:
    """Fit a stationary field to centred points ``[h * w, d]``."""
    height, width = shape
    rows, columns, isotropic_term = split_codes(points, shape)
    terms = rows, columns, isotropic_term.reshape(len(points), -1)
    powers = [float(np.square(term).sum() / len(term)) for term in terms]
    total_power = max(sum(powers), np.finfo(np.float64).tiny)
    kernels = (
        toeplitz(fit_kernel(rows).by_offset),
        toeplitz(fit_kernel(columns).by_offset),
        fit_surface(terms[2], height, width)[grid_displacements(height, width)],
    )
    return Field(
        shape,
        tuple(covariance_root(kernel).astype(np.float32) for kernel in kernels),
        tuple(_component_norms(term) for term in terms),
        tuple(power / total_power for power in powers),
    )


def _component_norms(points: Floats) -> Floats:
    """Return the norms of points along their leading directions."""
    return np.asarray(
        np.linalg.norm(leading_coordinates(points, MAX_FIELD_COMPONENTS), axis=0)
    )


def _random_embedding(rng: np.random.Generator, rank: int, max_rank: int) -> Floats:
    """Return a random orthonormal embedding ``[rank, max_rank]``: terms share no directions."""
    embedding = np.linalg.qr(rng.standard_normal((max_rank, rank)))[0].T
    return np.asarray(embedding, dtype=np.float32)


@dataclass(frozen=True)
class PatchSmooth:
    """Evidence that a table of patches is smooth.

    Parameters
    ----------
    stride
        Length of the steps in patches.
    cosine, typical
        Mean cosine of successive steps along rows and columns, and its median in the nearest null
        model.
    length, halves
        Distance in patches at which the mean inner product is half of that of neighbours, and
        whether it halves within the grid.
    """

    stride: int
    cosine: float
    typical: float
    length: float
    halves: bool

    value = value_property("length", "cosine", "stride")


def ask_patch_smooth(view: View) -> Answer:
    """Ask whether steps between successive patches point the same way.

    Steps along rows and columns are taken together, over one patch and over two. Both null models
    are rough: an isotropic field with an exponential kernel that is much longer than the grid, and
    a random walk of the rows plus one of the columns. In both, successive steps are independent,
    and neighbours are as similar as they can be without smoothness.
    """
    limits = (MIN_FIELD_SIDE_PATCHES, MAX_FIELD_PATCHES)
    if refusal := unfit_grid_answer("smooth", view, NEIGHBOUR_KEYS, *limits):
        return refusal
    height, width = view.shape
    # All columns are used: the leading directions of a rough field are smoother than the field.
    patches = view.points.reshape(height, width, -1)
    cosines = _step_cosines(patches)
    rng = view.rng(13)
    rough_factor = _rough_factor(height, width)
    component_norms = np.linalg.norm(view.coordinates, axis=0)
    code_scales = [
        _component_norms(code) for code in split_codes(view.points, view.shape)[:2]
    ]
    max_rank = max(len(scales) for scales in code_scales)

    def draw() -> list[Floats]:
        white = rng.standard_normal((height * width, len(component_norms)))
        rough_field = rough_factor @ (white * component_norms)
        walks = [
            np.cumsum(rng.standard_normal((n, len(scales))) * scales, axis=0)
            for n, scales in zip(view.shape, code_scales, strict=True)
        ]
        row_walk, column_walk = (
            walk @ _random_embedding(rng, walk.shape[1], max_rank) for walk in walks
        )
        return [
            _step_cosines(rough_field.reshape((*patches.shape[:2], -1))),
            _step_cosines(row_walk[:, None] + column_walk),
        ]

    def scores(null_draws: Floats) -> tuple[Floats, Floats]:
        centre = np.median(null_draws, axis=0)
        deviation = np.maximum(null_draws.std(axis=0), 1e-9)
        return (cosines - centre) / deviation, (null_draws - centre) / deviation

    def ranks(null_draws: Floats) -> list[float]:
        best_scores, null_scores = (
            by_stride.max(axis=-1) for by_stride in scores(null_draws)
        )
        return [
            rank_p_value(best_scores[k], null_scores[:, k])
            for k in range(len(best_scores))
        ]

    null_draws, p = draw_null(
        draw, lambda draws: max(ranks(draws)), *N_PATCH_SMOOTH_DRAWS
    )
    nearest = int(np.argmax(ranks(null_draws)))
    best_stride = int(np.argmax(scores(null_draws)[0][nearest]))
    null_cosines = null_draws[:, nearest, best_stride]
    length = _half_distance(patches)
    halves = length < max(height, width) - 1
    cosine = float(cosines[best_stride])
    facts = PatchSmooth(
        best_stride + 1, cosine, float(np.median(null_cosines)), length, halves
    )
    # A smooth surface of the additive model is not denied.
    has_surface = view.grid_model.shares.get("smooth", 0.0) >= MIN_EFFECT_SHARE
    can_deny = min(height, width) >= MIN_DENIAL_SIDE_PATCHES and not has_surface
    reasons = ("patch_surface", "patch_rough", "patch_open")
    answer, reason = judge_p_value(p, *reasons, has_enough=can_deny)
    # With so few steps, a significant cosine is never small.
    test = null_test(
        cosine, null_cosines, ("rough field", "walks")[nearest], p, bound=-1.0
    )
    return Answer("smooth", answer, reason, facts, test, NEIGHBOUR_KEYS)


def _step_cosines(patches: Floats) -> Floats:
    """Return mean cosines of successive steps over one patch and over two."""
    cosines = []
    for stride in (1, 2):
        overlap = mean_power = 0.0
        max_stride = max(patches.shape[:2]) - stride
        for patches_along_axis in (patches, patches.swapaxes(0, 1)):
            steps = patches_along_axis[stride:] - patches_along_axis[:-stride]
            if len(steps) > stride:
                before, after = steps[:-stride], steps[stride:]
                overlap += float(np.vdot(before, after))
                mean_power += float(np.vdot(before, before) + np.vdot(after, after)) / 2
        # A checkerboard has no steps over two patches.
        if max_stride > stride or stride == 1:
            cosines.append(overlap / mean_power if mean_power > 0 else 0.0)
    return np.array(cosines)


@lru_cache(maxsize=8)
def _rough_factor(height: int, width: int) -> Floats:
    return covariance_root(
        np.exp(-grid_distances(height, width) / (8 * max(height, width)))
    )


def _half_distance(patches: Floats) -> float:
    """Return the distance in patches at which the mean inner product is half the neighbours'."""
    max_lag = max(patches.shape[:2])
    mean_products = np.zeros(max_lag)
    for lag in range(1, max_lag):
        row_products = np.einsum("rcd,rcd->rc", patches[:, lag:], patches[:, :-lag])
        column_products = np.einsum("rcd,rcd->rc", patches[lag:], patches[:-lag])
        n_products = max(row_products.size + column_products.size, 1)
        mean_products[lag] = (row_products.sum() + column_products.sum()) / n_products
    return halving_distance(mean_products)


@dataclass(frozen=True)
class PatchPosition:
    """Evidence that similarity depends on the positions of patches.

    Parameters
    ----------
    components
        Number of leading components in which the misfit is measured.
    misfit, typical_misfit
        Share of the squares of inner products that their means over equal displacements leave, and
        its median in stationary fields.
    norms, typical_norms
        Factor by which the norms of patches change slowly over the grid, and its median in
        stationary fields.
    p_place
        Twice the smaller of the two rank p-values.
    neighbours
        Mean cosine of patches side by side, along the axis where it is larger.
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


PATCH_POSITION_KEYS = ("grid.row_share", "grid.column_share")


def ask_patch_position(view: View) -> Answer:
    """Ask whether similarity depends on the positions of patches, not on displacement alone.

    Two statistics are compared with draws of the fitted stationary field: the misfit of the means
    over equal displacements, and the change of the norms of patches over the grid.
    """
    limits = (MIN_FIELD_SIDE_PATCHES, MAX_FIELD_PATCHES)
    if refusal := unfit_grid_answer(
        "absolute_position", view, PATCH_POSITION_KEYS, *limits
    ):
        return refusal
    rng = view.rng(14)
    field = fit_field(view.points, view.shape)
    points = view.coordinates[:, :MAX_FIELD_COMPONENTS]
    statistics = np.array(_position_statistics(points, view.shape))

    def ranks(null_draws: Floats) -> list[float]:
        return [rank_p_value(statistics[k], null_draws[:, k]) for k in range(2)]

    null_draws, p = draw_null(
        lambda: _position_statistics(field.draw(rng), view.shape),
        lambda draws: min(1.0, 2 * min(ranks(draws))),
        *N_PATCH_POSITION_DRAWS,
    )
    typical = np.median(null_draws, axis=0)
    neighbour_cosine = _neighbour_cosine(view)
    facts = PatchPosition(
        components=points.shape[1],
        misfit=max(float(statistics[0]), 0.0),
        typical_misfit=float(typical[0]),
        norms=float(statistics[1]),
        typical_norms=float(typical[1]),
        p_place=p,
        neighbours=neighbour_cosine,
    )
    # The reason names the stronger evidence among the effects that are large enough.
    is_large = (
        statistics[0] - typical[0] >= MIN_EFFECT_SHARE,
        statistics[1] >= 1 + MIN_VISIBLE_CHANGE,
    )
    significant_signs = [
        k for k in range(2) if is_large[k] and 2 * ranks(null_draws)[k] <= MAX_YES_P
    ]
    sign_index = min(significant_signs, key=lambda k: ranks(null_draws)[k], default=0)
    is_slow = facts.misfit > MAX_DISPLACEMENT_MISFIT
    has_enough = not is_slow and min(view.shape) >= MIN_DENIAL_SIDE_PATCHES
    reasons = (
        ("patch_products", "patch_norms")[sign_index],
        "patch_displacement",
        "patch_open",
    )
    answer, reason = judge_p_value(p, *reasons, has_enough=has_enough)
    if answer == "yes" and not significant_signs:
        sign_index = int(np.argmin(ranks(null_draws)))
        answer, reason = "no" if has_enough else "cannot tell", "patch_small"
    elif answer == "cannot tell" and is_slow:
        reason = _slow_reason(neighbour_cosine)
    statistic, statistic_draws = float(statistics[sign_index]), null_draws[:, sign_index]
    smallest_effects = float(typical[0]) + MIN_EFFECT_SHARE, 1 + MIN_VISIBLE_CHANGE
    test = null_test(
        statistic,
        statistic_draws,
        "stationary",
        p,
        n_statistics=2,
        smallest_effect=smallest_effects[sign_index],
    )
    return Answer("absolute_position", answer, reason, facts, test, PATCH_POSITION_KEYS)


def _slow_reason(neighbour_cosine: float) -> str:
    """Return the reason why a slowly changing table leaves the answer open."""
    if neighbour_cosine < MIN_PATCH_SHORT_COSINE:
        return "patch_unlike"
    return "patch_short" if neighbour_cosine < MIN_PATCH_SIMILAR_COSINE else "patch_slow"


def _neighbour_cosine(view: View) -> float:
    """Return the mean cosine of patches side by side, along the axis where it is larger."""
    patches = normalise_rows(view.points).reshape(*view.shape, -1)
    return max(
        float(np.einsum("rcd,rcd->rc", along_axis[1:], along_axis[:-1]).mean())
        for along_axis in (patches, patches.swapaxes(0, 1))
    )


def _position_statistics(
    points: NDArray[np.floating], shape: tuple[int, int]
) -> tuple[float, float]:
    """Return two measures of how patches differ by position: by inner products and by norms.

    The first is the share of the Gram matrix's squares that its means over equal displacements
    leave. The second is the factor by which the slowest waves over the grid change the norms.
    """
    height, width = shape
    patches = (points - points.mean(axis=0)).reshape(height, width, -1)
    transform = np.fft.rfft2(np.moveaxis(patches, -1, 0), (2 * height, 2 * width))
    power = np.square(np.abs(transform)).sum(axis=0)
    displacement_sums = np.fft.irfft2(power, (2 * height, 2 * width))
    overlaps = [
        np.maximum(n - np.minimum(np.arange(2 * n), 2 * n - np.arange(2 * n)), 0)
        for n in shape
    ]
    n_pairs = np.multiply.outer(*overlaps)
    power_by_displacement = np.square(displacement_sums) / np.maximum(n_pairs, 1)
    displacement_power = float(power_by_displacement[n_pairs > 0].sum())
    rows = patches.reshape(height * width, -1)
    total_power = float(np.square(rows.T @ rows).sum())
    norms = np.linalg.norm(rows, axis=1)
    logs = np.log(np.maximum(norms, 1e-9 * max(float(norms.max()), 1e-300))).reshape(
        shape
    )
    row_waves, column_waves = (
        np.cos(np.pi * np.outer(np.arange(3), np.arange(n) + 0.5) / n) / np.sqrt(n / 2)
        for n in shape
    )
    slow_power = np.square(row_waves @ logs @ column_waves.T)
    slow_power[0, 0] = 0.0
    # This is the amplitude of a single wave of that power, as in `slow_variation` on a line.
    wave_amplitude = np.sqrt(2 * float(slow_power.sum()) / len(norms))
    misfit = 1 - displacement_power / max(total_power, np.finfo(np.float64).tiny)
    return misfit, float(np.exp(wave_amplitude))


def position_by_order(position_answer: Answer, order_answer: Answer) -> Answer | None:
    """Correct an answer about position where the order of patches may not matter."""
    if order_answer.yes or not isinstance(position_answer.facts, PatchPosition):
        return None
    if position_answer.answer == "no":
        if order_answer.answer == "no":
            return position_answer.with_correction(
                "no", "patch_unordered", "order", test=None
            )
        return position_answer.with_correction("no", "patch_order_open", "order")
    if position_answer.yes:
        return position_answer.with_correction(
            "cannot tell", "patch_yes_unordered", "order"
        )
    return None


@dataclass(frozen=True)
class PatchDimension:
    """Number of components of a table of patches.

    Parameters
    ----------
    directions
        Number of components that explain nine tenths of the variance.
    columns
        Largest number of components that a table of this shape can have.
    participation, expected
        Participation ratio of patches scaled to one norm, and its median in random fields that are
        as smooth.
    """

    directions: int
    columns: int
    participation: float
    expected: float

    @property
    def value(self) -> dict[str, float]:
        """Number of components, participation ratio and largest number of components."""
        return {
            "directions": self.directions,
            "participation_ratio": self.participation,
            "columns": self.columns,
        }


PATCH_DIMENSION_KEYS = ("pca.participation_ratio", "pca.top3")


def ask_patch_dimension(view: View) -> Answer:
    """Ask whether there are fewer components than in the fitted field with independent columns."""
    question, keys = "low_dimensional", PATCH_DIMENSION_KEYS
    if refusal := unfit_grid_answer(
        question, view, keys, MIN_FIELD_SIDE_PATCHES, MAX_FIELD_PATCHES
    ):
        return refusal
    n, d = view.points.shape
    if d < 3:
        return Answer(question, "cannot tell", "too_few", TooFew(n, d), keys=keys)
    rng = view.rng(15)
    unit_rows = normalise_rows(view.points)  # a few long rows would decide otherwise
    unit_rows = unit_rows - unit_rows.mean(axis=0)
    field = fit_field(unit_rows, view.shape)
    dimension = participation_ratio(unit_rows)

    def draw() -> float:
        points = field.draw(rng, min(d, MAX_FIELD_COLUMNS))
        return participation_ratio(points - points.mean(axis=0))

    def dimension_p(null_draws: Floats) -> float:
        return rank_p_value(-dimension, -null_draws)

    null_draws, p = draw_null(draw, dimension_p, *N_PATCH_DIMENSION_DRAWS)
    facts = PatchDimension(
        count_directions(view), min(n - 1, d), dimension, float(np.median(null_draws))
    )
    is_fewer = dimension <= MAX_FIELD_DIMENSION_RATIO * facts.expected
    can_deny = min(view.shape) >= MIN_DENIAL_SIDE_PATCHES
    reasons = ("patch_fewer", "patch_as_many", "patch_open")
    answer, reason = judge_p_value(p if is_fewer else 1.0, *reasons, has_enough=can_deny)
    if answer == "no" and p <= MAX_OPEN_P:
        reason = "patch_small"
    test = null_test(
        dimension,
        null_draws,
        "smooth",
        p,
        bound=float(facts.columns),
        smallest_effect=MAX_FIELD_DIMENSION_RATIO * facts.expected,
    )
    return Answer(question, answer, reason, facts, test, keys)


#: Questions by name, in the order of the page.
FIELD_QUESTIONS: Mapping[str, AskTable] = {
    "smooth": ask_patch_smooth,
    "absolute_position": ask_patch_position,
    "low_dimensional": ask_patch_dimension,
}
