"""Questions about grids: whether order matters, whether row and column codes add up, and rotate.

Lines in the spectrum of a code show rotations of many turns. Rotations of few turns are harder to
tell: the principal components of any smooth curve look like sinusoids of half a turn, one turn, one
and a half, and so on (Antognini & Sohl-Dickstein 2018, section 3). But their variances fall: two of
them seldom have equal amplitudes a quarter of a period apart, as the two phases of a rotation have.
So the share of the variance in one circle is measured, and compared with that of smooth random
curves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.composition.grid_model import MIN_RESOLVED_SIDE_PATCHES
from posprobe.analyses.composition.planes import Rotation, find_rotations
from posprobe.analyses.composition.processes import fit_kernel
from posprobe.analyses.composition.wave_scores import MAX_LINE_P
from posprobe.analyses.facts import MAX_YES_P, Answer, Test, Verdict
from posprobe.analyses.linear import MAX_VIEW_ROWS, covariance_root, toeplitz
from posprobe.analyses.resampling import rank_p_value
from posprobe.analyses.view import View, chance_cosine, normalise_rows, view
from posprobe.arrays import Floats
from posprobe.questions.rank_tests import (
    MAX_OPEN_P,
    MIN_EFFECT_SHARE,
    MIN_QUESTION_ROWS,
    AskTable,
    judge_p_value,
    null_test,
    small_table_answer,
    value_property,
)

#: Permutations of the patches: their smallest p-value is significant alone among the questions.
N_PATCH_ORDER_DRAWS = 199
#: Fewest patches at which the answer can be no: fewer have too few neighbours.
MIN_ORDER_DENIAL_PATCHES = 16
NEIGHBOUR_KEYS = ("grid.neighbour_right", "grid.neighbour_below")


@dataclass(frozen=True)
class GridLimits:
    """Facts of a grid that is too small or too large for a question.

    Parameters
    ----------
    height, width
        Height and width of the grid, in patches.
    least, most
        Fewest patches on a side and most patches in all that the question is asked of.
    """

    height: int
    width: int
    least: int
    most: int


@dataclass(frozen=True)
class PatchOrder:
    """Evidence that the position of a patch matters.

    Parameters
    ----------
    cosine, chance
        Mean cosine of centred patches side by side, and of any two patches.
    """

    cosine: float
    chance: float

    value = value_property("cosine")


def unfit_grid_answer(
    question: str,
    view: View,
    keys: tuple[str, ...],
    min_side: int = 1,
    max_patches: int = MAX_VIEW_ROWS,
) -> Answer | None:
    """Answer cannot tell for a grid that is too small or too large; else return None.

    Parameters
    ----------
    question, view, keys
        Same as for `small_table_answer`.
    min_side, max_patches
        Fewest patches on a side, and most patches in all.
    """
    if refusal := small_table_answer(question, view, keys):
        return refusal
    height, width = view.shape
    facts = GridLimits(height, width, min_side, max_patches)
    if min(height, width) < min_side:
        return Answer(question, "cannot tell", "narrow", facts, keys=keys)
    if height * width > max_patches:
        return Answer(question, "cannot tell", "large", facts, keys=keys)
    return None


def split_codes(
    points: NDArray[np.floating[Any]], shape: tuple[int, int]
) -> tuple[Floats, Floats, Floats]:
    """Split ``[h * w, d]`` into row code ``[h, d]``, column code ``[w, d]`` and remainder."""
    patches = points.astype(np.float64).reshape(*shape, -1)
    patches = patches - patches.mean(axis=(0, 1))
    rows, columns = patches.mean(axis=1), patches.mean(axis=0)
    return rows, columns, patches - rows[:, None] - columns


def ask_patch_order(view: View) -> Answer:
    """Ask whether patches side by side are more, or less, similar than permuted patches."""
    if refusal := unfit_grid_answer("order", view, NEIGHBOUR_KEYS):
        return refusal
    height, width = view.shape
    unit_rows = normalise_rows(view.points)
    # A permutation needs only the entries of neighbours in the Gram matrix.
    gram = unit_rows @ unit_rows.T
    patches = np.arange(height * width).reshape(height, width)
    second_patches = np.concatenate([patches[:, 1:].ravel(), patches[1:].ravel()])
    first_patches = np.concatenate([patches[:, :-1].ravel(), patches[:-1].ravel()])
    cosine = float(gram[second_patches, first_patches].mean())
    chance_mean = chance_cosine(unit_rows)
    rng = view.rng(12)
    permutations = (rng.permutation(len(view)) for _ in range(N_PATCH_ORDER_DRAWS))
    null_draws = np.array(
        [
            gram[order[second_patches], order[first_patches]].mean()
            for order in permutations
        ]
    )
    p = rank_p_value(abs(cosine - chance_mean), np.abs(null_draws - chance_mean))
    has_enough = len(view) >= MIN_ORDER_DENIAL_PATCHES
    reasons = ("patch_neighbours", "patch_none", "patch_open")
    answer, reason = judge_p_value(p, *reasons, has_enough=has_enough)
    if answer == "yes" and abs(cosine - chance_mean) < MIN_EFFECT_SHARE:
        answer, reason = "no", "patch_small"
    facts = PatchOrder(cosine, chance_mean)
    test = null_test(
        cosine,
        null_draws,
        "permuted",
        p,
        expected=chance_mean,
        smallest_effect=MIN_EFFECT_SHARE,
    )
    return Answer("order", answer, reason, facts, test, NEIGHBOUR_KEYS)


#: Smallest variance of a code, as a share of that of both codes; below it there is no such code.
MIN_CODE_SHARE = 0.03
#: Shortest side of a grid that can have codes: over two patches a code is hardly a sequence.
MIN_CODE_SIDE_PATCHES = 3
CODES_KEYS = ("budget.rows", "budget.columns")

LoneCode: TypeAlias = Literal["", "row", "column"]


@dataclass(frozen=True)
class RowsAndColumns:
    """Variance shares of the row code and the column code of a table of patches.

    Parameters
    ----------
    height, width
        Height and width of the grid, in patches.
    row_share, column_share
        Shares of the variance that each code holds beside surfaces and noise.
    typical
        Share of both codes in a table without codes.
    """

    height: int
    width: int
    row_share: float
    column_share: float
    typical: float

    @property
    def share(self) -> float:
        """Share of the variance that both codes hold."""
        return self.row_share + self.column_share

    @property
    def lone(self) -> LoneCode:
        """Name of the code beside which the other has next to no variance; else empty."""
        if self.column_share <= MIN_CODE_SHARE * self.row_share:
            return "row"
        return "column" if self.row_share <= MIN_CODE_SHARE * self.column_share else ""

    value = value_property("row_share", "column_share")


def ask_rows_and_columns(view: View) -> Answer:
    """Ask whether each patch is a row code plus a column code.

    The additive model of a grid gives the likelihood of the table with codes over that without.
    This ratio is compared with that of tables drawn from the fit without codes.
    """
    if refusal := unfit_grid_answer(
        "rows_and_columns", view, CODES_KEYS, MIN_CODE_SIDE_PATCHES
    ):
        return refusal
    height, width = view.shape
    grid_model = view.grid_model
    row_share, column_share = grid_model.shares["rows"], grid_model.shares["columns"]
    test = null_test(
        row_share + column_share,
        grid_model.null_draws,
        "surface",
        grid_model.p,
        smallest_effect=MIN_EFFECT_SHARE,
    )
    facts = RowsAndColumns(height, width, row_share, column_share, test.null or 0.0)
    is_short = min(height, width) < MIN_RESOLVED_SIDE_PATCHES
    undecided_reason = "few_patches" if is_short else "open"
    answer, reason = judge_p_value(
        grid_model.p, "codes", "none", undecided_reason, has_enough=not is_short
    )
    if answer == "yes" and facts.share < MIN_EFFECT_SHARE:
        answer, reason = ("cannot tell", "few_patches") if is_short else ("no", "small")
    elif answer == "yes" and facts.lone:
        reason = "lone"
    return Answer("rows_and_columns", answer, reason, facts, test, CODES_KEYS)


#: Fewest turns of a circle from the first position to the last: any bent curve looks like half a
#: turn, but a whole turn comes back.
MIN_CIRCLE_TURNS = 1.0
#: Largest number of turns of a circle.
MAX_CIRCLE_TURNS = 4.5
#: Step between the turns that are tried.
CIRCLE_TURN_STEP = 0.05
#: Draws of each null model of circles in any case.
N_FIRST_CIRCLE_DRAWS = 299
#: Draws of each null model where the first ones do not exclude a yes. The smallest p-value of one
#: of two codes is 2 / 600: significant alone among the questions of a grid.
N_CIRCLE_DRAWS = 599
#: Length of the squared exponential kernel whose curves rotate most evenly, as a share of theirs.
ROUNDEST_KERNEL_SHARE = 0.2
#: Positions that suffice for a few turns: longer codes are averaged to this number.
MAX_CIRCLE_POSITIONS = 64
#: Fewest positions of a code whose lines may have any number of turns.
MIN_LINE_CODE_POSITIONS = 16
#: Fewest turns of a line in a shorter code: smooth curves in three directions have a line of two
#: turns in 3 of 120 tables.
MIN_SHORT_CODE_TURNS = 2.5
#: Share of a code in a circle below which a rotation may be denied.
MIN_CIRCLE_SHARE = 0.25
#: Codes of a grid, as the additive model names them.
CODE_AXES = ("rows", "columns")
AXIS_ROTATION_KEYS = ("axis_codes.rows.share", "axis_codes.columns.share")


@dataclass(frozen=True)
class Circle:
    """The rotation of few turns that explains most of a code.

    Parameters
    ----------
    turns
        Number of turns from the first position to the last.
    share
        Share of the code's variance in a circle.
    typical, p
        Median share in the nearest smooth random curves, and the rank p-value among them.
    """

    turns: float
    share: float
    typical: float
    p: float


@dataclass(frozen=True)
class Code:
    """The row code or the column code.

    Parameters
    ----------
    axis
        Axis of the grid, ``rows`` or ``columns``.
    length
        Number of positions along the axis.
    lines
        Rotations that stand out of a smooth spectrum; their periods are in positions.
    circle
        Rotation of few turns, where no code has such lines.
    """

    axis: str
    length: int
    lines: tuple[Rotation, ...] = ()
    circle: Circle | None = None

    @property
    def value(self) -> Any:
        """The lines, or the circle."""
        if self.circle is not None:
            return asdict(self.circle)
        return [asdict(line) for line in self.lines]


@dataclass(frozen=True)
class AxisRotations:
    """Rotations of the codes.

    Parameters
    ----------
    height, width
        Height and width of the grid, in patches.
    codes
        Codes that are long enough.
    rotating
        Names of the codes that rotate: ``rows``, ``columns``.
    """

    height: int
    width: int
    codes: tuple[Code, ...] = ()
    rotating: tuple[str, ...] = ()

    @property
    def round(self) -> tuple[Code, ...]:
        """The codes that rotate."""
        return tuple(code for code in self.codes if code.axis in self.rotating)

    @property
    def value(self) -> dict[str, Any] | None:
        """Lines or circle of each code, and the names of those that rotate."""
        if not self.codes:
            return None
        values_by_axis = {code.axis: code.value for code in self.codes}
        return values_by_axis | {"rotating": list(self.rotating)}


def ask_axis_rotations(view: View) -> Answer:
    """Ask whether the row code or the column code rotates."""
    if refusal := unfit_grid_answer("axis_rotations", view, AXIS_ROTATION_KEYS):
        return refusal
    codes = _long_codes(view)
    if not any(_has_code(view, axis) for axis in CODE_AXES):
        facts = AxisRotations(*view.shape)
        return Answer("axis_rotations", "no", "no_codes", facts, keys=AXIS_ROTATION_KEYS)
    if not codes:
        facts = AxisRotations(*view.shape)
        return Answer(
            "axis_rotations", "cannot tell", "short", facts, keys=AXIS_ROTATION_KEYS
        )
    return _answer_by_lines(view, codes) or _answer_by_circles(view, codes)


def _has_code(view: View, axis: str) -> bool:
    """Tell whether a code may be a part of the table.

    On a short grid the model cannot tell a code from a long surface.
    """
    is_short = min(view.shape) < MIN_RESOLVED_SIDE_PATCHES
    return is_short or view.grid_model.shares[axis] >= MIN_EFFECT_SHARE


def _long_codes(view: View) -> list[tuple[Code, Floats]]:
    """Return the centred codes ``[length, d]`` that are long enough and more than noise."""
    height, width = view.shape
    rows, columns, _ = split_codes(view.points, (height, width))
    powers = (
        width * float(np.square(rows).sum()),
        height * float(np.square(columns).sum()),
    )
    # With less power than this, a code is noise.
    min_power = max(
        1e-9 * float(np.square(view.points).sum()), MIN_CODE_SHARE * max(powers)
    )
    return [
        (Code(axis, len(points)), points)
        for axis, points, power in zip(CODE_AXES, (rows, columns), powers, strict=True)
        if _has_code(view, axis)
        and len(points) >= MIN_QUESTION_ROWS
        and points.shape[1] > 1
        and power > min_power
    ]


def _answer_by_lines(grid_view: View, codes: list[tuple[Code, Floats]]) -> Answer | None:
    """Answer by spectral lines; None where no code has any."""
    code_views = [view(points, seed=grid_view.seed) for _, points in codes]
    lines_by_code = [_find_lines(code_view) for code_view in code_views]
    p_values = [line.p for lines in lines_by_code for line in lines]
    if not p_values:
        return None
    codes_with_lines = tuple(
        replace(code, lines=lines)
        for (code, _), lines in zip(codes, lines_by_code, strict=True)
    )
    share = max(sum(line.share for line in code.lines) for code in codes_with_lines)
    p, smallest_p = (
        min(1.0, len(codes) * p_value) for p_value in (min(p_values), MAX_LINE_P)
    )
    test = Test(share, p, of="smooth", least=smallest_p)
    rotating = tuple(code.axis for code in codes_with_lines if code.lines)
    facts = AxisRotations(*grid_view.shape, codes_with_lines, rotating)
    return Answer("axis_rotations", "yes", "lines", facts, test, AXIS_ROTATION_KEYS)


def _find_lines(code_view: View) -> tuple[Rotation, ...]:
    """Return the rotations that stand out of the spectrum of a code."""
    rotations = find_rotations(code_view.points, code_view.seed).rotations
    is_long = len(code_view) >= MIN_LINE_CODE_POSITIONS
    return tuple(
        rotation
        for rotation in rotations
        if is_long or rotation.turns >= MIN_SHORT_CODE_TURNS
    )


def _answer_by_circles(view: View, codes: list[tuple[Code, Floats]]) -> Answer:
    """Answer by the share of each code in a circle."""
    rng = view.rng(16)
    shortened_codes = [_shorten_code(points) for _, points in codes]
    shares, turns = np.stack([_fit_circles(points[None]) for points in shortened_codes])[
        ..., 0
    ].T
    null_draws = np.empty((len(codes), 4, 0))
    for n_draws in (N_FIRST_CIRCLE_DRAWS, N_CIRCLE_DRAWS - N_FIRST_CIRCLE_DRAWS):
        extra_draws = [
            _draw_circle_shares(points, rng, n_draws) for points in shortened_codes
        ]
        null_draws = np.concatenate([null_draws, np.stack(extra_draws)], axis=2)
        code_p_values = [
            max(rank_p_value(share, draws) for draws in code_draws)
            for share, code_draws in zip(shares, null_draws, strict=True)
        ]
        p = min(1.0, len(codes) * min(code_p_values))
        if p > MAX_YES_P:
            break
    typical_shares = np.median(null_draws, axis=2).max(axis=1)
    circles = [
        Circle(*map(float, circle_numbers))
        for circle_numbers in zip(
            turns, shares, typical_shares, code_p_values, strict=True
        )
    ]
    rotating = tuple(
        code.axis
        for (code, _), code_p in zip(codes, code_p_values, strict=True)
        if len(codes) * code_p <= MAX_YES_P
    )
    best_code = int(np.argmin(code_p_values))
    p_values = [rank_p_value(shares[best_code], draws) for draws in null_draws[best_code]]
    medians = np.median(null_draws[best_code], axis=1)
    nearest_draws = null_draws[best_code][int(np.lexsort((medians, p_values))[-1])]
    test = null_test(
        float(shares[best_code]), nearest_draws, "smooth", p, n_statistics=len(codes)
    )
    answer: Verdict = "cannot tell"
    reason = "open"
    if rotating:
        answer, reason = "yes", "circles"
    elif p > MAX_OPEN_P and shares.max() < MIN_CIRCLE_SHARE:
        answer, reason = "no", "none"
    codes_with_circles = tuple(
        replace(code, circle=circle)
        for (code, _), circle in zip(codes, circles, strict=True)
    )
    facts = AxisRotations(*view.shape, codes_with_circles, rotating)
    return Answer("axis_rotations", answer, reason, facts, test, AXIS_ROTATION_KEYS)


def _shorten_code(code: Floats) -> Floats:
    """Return a centred code of at most `MAX_CIRCLE_POSITIONS`, each the mean of neighbours."""
    if len(code) > MAX_CIRCLE_POSITIONS:
        chunks = np.array_split(code, MAX_CIRCLE_POSITIONS)
        code = np.stack([chunk.mean(axis=0) for chunk in chunks])
    return np.asarray(code - code.mean(axis=0))


def _draw_circle_shares(code: Floats, rng: np.random.Generator, n_draws: int) -> Floats:
    """Return the shares of smooth random curves in a circle: ``[4, draws]``.

    The curves have the fitted falling kernel, or the kernel whose curves rotate most evenly; and
    for each kernel the code's covariance of columns, or as many independent columns.
    """
    h, d = code.shape
    u, singular_values, _ = np.linalg.svd(code, full_matrices=False)
    roundest_kernel = np.exp(-0.5 * np.square(np.arange(h) / (ROUNDEST_KERNEL_SHARE * h)))
    shares = []
    for kernel in (fit_kernel(u * singular_values).by_offset, roundest_kernel):
        factor = covariance_root(toeplitz(kernel))
        white = rng.standard_normal((n_draws, h, len(singular_values)))
        shares.append(_fit_circles(factor @ (white * singular_values))[0])
        shares.append(_fit_circles(factor @ _draw_white_rows(h, d, rng, n_draws))[0])
    return np.stack(shares)


def _draw_white_rows(h: int, d: int, rng: np.random.Generator, n_draws: int) -> Floats:
    """Draw rows whose products are those of ``[h, d]`` white noise, in at most ``h`` columns."""
    white = rng.standard_normal((n_draws, h, min(h, d)))
    if d <= h:
        return np.asarray(white)
    # Bartlett (1933): the triangular factor of a Wishart matrix.
    white = np.tril(white, -1)
    diagonal = np.arange(h)
    white[:, diagonal, diagonal] = np.sqrt(rng.chisquare(d - diagonal, (n_draws, h)))
    return white


def _fit_circles(curves: Floats) -> tuple[Floats, Floats]:
    """Return the largest shares of curves ``[m, h, d]`` in a circle, and its turns: ``[m]`` each.

    Two phases of a frequency are fitted by least squares. They make an ellipse, whose smaller
    radius is that of the circle in it.
    """
    n_curves, h, _ = curves.shape
    curves = curves - curves.mean(axis=1, keepdims=True)
    grams = curves @ curves.swapaxes(1, 2)
    turns, products = _circle_products(h)
    phase_products = (grams.reshape(n_curves, -1) @ products).reshape(n_curves, 3, -1)
    mean_power = (phase_products[:, 0] + phase_products[:, 1]) / 2
    half_difference = (phase_products[:, 0] - phase_products[:, 1]) / 2
    circle_power = mean_power - np.hypot(half_difference, phase_products[:, 2])
    best = circle_power.argmax(axis=1)
    total_power = np.maximum(np.trace(grams, axis1=1, axis2=2), np.finfo(np.float64).tiny)
    return circle_power[np.arange(n_curves), best] / total_power, turns[best]


@lru_cache(maxsize=8)
def _circle_products(h: int) -> tuple[Floats, Floats]:
    """Return turns ``[f]`` and a matrix ``[h², 3 f]`` from a Gram matrix to their ellipses.

    An ellipse is given by the squares and the product of its two phases, times the variance of a
    circle of radius 1.
    """
    turns = np.arange(
        MIN_CIRCLE_TURNS, min(MAX_CIRCLE_TURNS, (h - 1) / 3) + 1e-9, CIRCLE_TURN_STEP
    )
    angle = 2 * np.pi * turns[:, None] * np.arange(h) / (h - 1)
    waves = np.stack([np.cos(angle), np.sin(angle)], axis=2)
    waves -= waves.mean(axis=1, keepdims=True)
    norms = np.sqrt(np.square(waves).sum(axis=(1, 2)))
    cosines, sines = np.moveaxis(np.linalg.pinv(waves) * norms[:, None, None], 1, 0)
    wave_pairs = ((cosines, cosines), (sines, sines), (cosines, sines))
    products = [np.einsum("fi,fj->ijf", a, b).reshape(h * h, -1) for a, b in wave_pairs]
    return turns, np.concatenate(products, axis=1)


def axis_rotations_by_formula(
    rotations_answer: Answer, closed_form: Answer
) -> Answer | None:
    """Affirm that a formula makes both codes of rotations, one plane for each frequency."""
    if not closed_form.yes or rotations_answer.reason in {
        "too_few",
        "all_equal",
        "large",
    }:
        return None
    keys = (*AXIS_ROTATION_KEYS, *closed_form.keys)
    return rotations_answer.with_correction(
        "yes", "formula", "closed_form", test=None, keys=keys
    )


#: Questions by name, in the order of the page.
GRID_TABLE_QUESTIONS: Mapping[str, AskTable] = {
    "order": ask_patch_order,
    "rows_and_columns": ask_rows_and_columns,
    "axis_rotations": ask_axis_rotations,
}
