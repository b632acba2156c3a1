"""Codes of grids: whether order matters, whether codes of row and column add up, and go round.

Lines in the spectrum of a code show rotations of many turns. Of few turns they are harder to tell:
the principal components of any smooth curve look like sinusoids of half a turn, one turn, one and a
half, and so on (Antognini & Sohl-Dickstein 2018, section 3). But their variances fall: two of them
seldom have equal amplitudes a quarter of a period apart, as the two phases of a rotation have. What
is measured is therefore how much of the variance is in one circle, and beside it stand smooth
random curves.
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
from posprobe.analyses.facts import Answer, Test, Verdict
from posprobe.analyses.linear import MAX_VIEW_ROWS, root, toeplitz
from posprobe.analyses.view import LEVEL, View, chance_cosine, units, view
from posprobe.arrays import Floats
from posprobe.questions.rank_tests import (
    MAX_OPEN_P,
    MIN_EFFECT_SHARE,
    MIN_QUESTION_ROWS,
    AskTable,
    judge_p_value,
    null_test,
    rank_p_value,
    small_table_answer,
    value_property,
)

#: Permutations of the patches: so many that the least p-value stands alone among the questions.
ORDER_DRAWS = 199
#: Patches from which it is denied that their place matters: fewer have too few neighbours.
ENOUGH = 16
NEIGHBOUR_KEYS = ("grid.neighbour_right", "grid.neighbour_below")


@dataclass(frozen=True)
class Sides:
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
    """What tells that the place of a patch matters.

    Parameters
    ----------
    cosine, chance
        Mean cosine of patches side by side as seen from the middle, and of any two patches.
    """

    cosine: float
    chance: float

    value = value_property("cosine")


def unfit(
    question: str,
    view: View,
    keys: tuple[str, ...],
    min_rows: int = 1,
    max_rows: int = MAX_VIEW_ROWS,
) -> Answer | None:
    """Answer a question about a grid that is too small or too large for it.

    Parameters
    ----------
    question, view, keys
        Same as for `small_table_answer`.
    min_rows, max_rows
        Fewest patches on a side, and most patches in all.
    """
    if too_few_answer := small_table_answer(question, view, keys):
        return too_few_answer
    height, width = view.shape
    facts = Sides(height, width, min_rows, max_rows)
    if min(height, width) < min_rows:
        return Answer(question, "cannot tell", "narrow", facts, keys=keys)
    if height * width > max_rows:
        return Answer(question, "cannot tell", "large", facts, keys=keys)
    return None


def parts(
    points: NDArray[np.floating[Any]], shape: tuple[int, int]
) -> tuple[Floats, Floats, Floats]:
    """Split ``[h * w, d]`` into row code ``[h, d]``, column code ``[w, d]`` and the rest."""
    cells = points.astype(np.float64).reshape(*shape, -1)
    cells = cells - cells.mean(axis=(0, 1))
    rows, columns = cells.mean(axis=1), cells.mean(axis=0)
    return rows, columns, cells - rows[:, None] - columns


def ask_patch_order(view: View) -> Answer:
    """Ask whether patches side by side are more, or less, similar than patches permuted."""
    if unfit_answer := unfit("order", view, NEIGHBOUR_KEYS):
        return unfit_answer
    height, width = view.shape
    unit_rows = units(view.points)
    # Of the Gram matrix, a permutation needs the entries of neighbours alone.
    gram = unit_rows @ unit_rows.T
    patches = np.arange(height * width).reshape(height, width)
    second_patches = np.concatenate([patches[:, 1:].ravel(), patches[1:].ravel()])
    first_patches = np.concatenate([patches[:, :-1].ravel(), patches[:-1].ravel()])
    cosine, chance = float(gram[second_patches, first_patches].mean()), chance_cosine(unit_rows)
    rng = view.rng(12)
    orders = (rng.permutation(len(view)) for _ in range(ORDER_DRAWS))
    null_draws = np.array(
        [gram[order[second_patches], order[first_patches]].mean() for order in orders]
    )
    p = rank_p_value(abs(cosine - chance), np.abs(null_draws - chance))
    has_enough = len(view) >= ENOUGH
    answer, reason = judge_p_value(
        p, "patch_neighbours", "patch_none", "patch_open", has_enough=has_enough
    )
    if answer == "yes" and abs(cosine - chance) < MIN_EFFECT_SHARE:
        answer, reason = "no", "patch_small"
    facts = PatchOrder(cosine, chance)
    test = null_test(cosine, null_draws, "permuted", p, expected=chance)
    return Answer("order", answer, reason, facts, test, NEIGHBOUR_KEYS)


#: A code that holds less of the variance than this share of what both hold is none.
ONE_CODE = 0.03
#: Shortest side that is asked; of two patches a code is hardly a sequence.
MIN_SIDE = 3
CODES_KEYS = ("budget.rows", "budget.columns")

Lone: TypeAlias = Literal["", "row", "column"]


@dataclass(frozen=True)
class RowsAndColumns:
    """What a row code and a column code hold of a table of patches.

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
    def lone(self) -> Lone:
        """The code beside which the other holds next to nothing, or nothing."""
        if self.column_share <= ONE_CODE * self.row_share:
            return "row"
        return "column" if self.row_share <= ONE_CODE * self.column_share else ""

    value = value_property("row_share", "column_share")


def ask_rows_and_columns(view: View) -> Answer:
    """Ask whether each patch is a row code plus a column code.

    By the additive model of a grid: how much more likely the table is with codes than without, held
    against tables drawn from the fit without them.
    """
    if unfit_answer := unfit("rows_and_columns", view, CODES_KEYS, MIN_SIDE):
        return unfit_answer
    height, width = view.shape
    grid_model = view.grid_model
    rows, columns = grid_model.shares["rows"], grid_model.shares["columns"]
    test = null_test(rows + columns, grid_model.null_draws, "surface", grid_model.p)
    facts = RowsAndColumns(height, width, rows, columns, test.null or 0.0)
    is_short = min(height, width) < MIN_RESOLVED_SIDE_PATCHES
    undecided_reason = "few_patches" if is_short else "open"
    answer, reason = judge_p_value(
        grid_model.p, "codes", "none", undecided_reason, has_enough=not is_short
    )
    if answer == "yes" and facts.share < MIN_EFFECT_SHARE:
        answer, reason = "no", "small"
    elif answer == "yes" and facts.lone:
        reason = "lone"
    return Answer("rows_and_columns", answer, reason, facts, test, CODES_KEYS)


#: Turns from the first position to the last that are looked for: fewest, most, and their steps.
#: Half-way round, any bent curve looks like an arc; a whole turn comes back.
LEAST_TURNS = 1.0
MOST_TURNS = 4.5
TURN_STEP = 0.05
#: Draws of each null, and how many where those do not exclude a yes. The least p-value of one of
#: two codes, or of both together, is 3 / 600: it stands alone among the questions of a grid.
CIRCLE_DRAWS = 299
MOST_DRAWS = 599
#: Curves with a squared exponential kernel of this share of their length go round most evenly.
ROUNDEST = 0.2
#: Positions that a few turns need at most: longer codes are averaged to so many.
MOST_POSITIONS = 64
#: Codes of fewer positions have no lines of fewer turns: smooth curves in three directions have one
#: of two turns in 3 of 120 tables.
SHORT = 16
FEW_TURNS = 2.5
#: Share of a short code below which a rotation of it would not count, whatever else is there.
LITTLE = 0.25
AXIS_KEYS = ("axis_codes.rows.share", "axis_codes.columns.share")


@dataclass(frozen=True)
class Circle:
    """The rotation of few turns that explains most of a code.

    Parameters
    ----------
    turns
        From the first position to the last.
    share
        Share of the code's variance in a circle.
    typical, p
        The same in the nearest smooth random curves, in the median, and the rank among them.
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
        ``rows`` or ``columns``.
    length
        Positions along it.
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
    """What goes round in the codes.

    Parameters
    ----------
    height, width
        Height and width of the grid, in patches.
    codes
        Those that are long enough.
    rotating
        Names of the codes that go round: ``rows``, ``columns``.
    """

    height: int
    width: int
    codes: tuple[Code, ...] = ()
    rotating: tuple[str, ...] = ()

    @property
    def round(self) -> tuple[Code, ...]:
        """The codes that go round."""
        return tuple(code for code in self.codes if code.axis in self.rotating)

    @property
    def value(self) -> dict[str, Any] | None:
        """Lines or circle of each code, and which go round."""
        if not self.codes:
            return None
        values_by_axis = {code.axis: code.value for code in self.codes}
        return values_by_axis | {"rotating": list(self.rotating)}


def ask_axis_rotations(view: View) -> Answer:
    """Ask whether the row code or the column code goes round."""
    if unfit_answer := unfit("axis_rotations", view, AXIS_KEYS):
        return unfit_answer
    codes = _codes(view)
    if not codes:
        facts = AxisRotations(*view.shape)
        return Answer("axis_rotations", "cannot tell", "short", facts, keys=AXIS_KEYS)
    return _by_lines(view, codes) or _by_circles(view, codes)


def _codes(view: View) -> list[tuple[Code, Floats]]:
    """Return the codes that are long enough, and more than noise: centred ``[length, d]``."""
    height, width = view.shape
    rows, columns, _ = parts(view.points, (height, width))
    sizes = width * float(np.square(rows).sum()), height * float(np.square(columns).sum())
    # What a code that is none has is noise.
    min_power = max(1e-9 * float(np.square(view.points).sum()), ONE_CODE * max(sizes))
    return [
        (Code(axis, len(code)), code)
        for axis, code, size in zip(("rows", "columns"), (rows, columns), sizes, strict=True)
        if len(code) >= MIN_QUESTION_ROWS and code.shape[1] > 1 and size > min_power
    ]


def _by_lines(seen: View, codes: list[tuple[Code, Floats]]) -> Answer | None:
    """Answer by lines of a spectrum, where a code has any."""
    views = [view(points, seed=seen.seed) for _, points in codes]
    turning = [_lines(code_view) for code_view in views]
    ps = [line.p for lines in turning for line in lines]
    if not ps:
        return None
    axes = tuple(
        replace(code, lines=lines) for (code, _), lines in zip(codes, turning, strict=True)
    )
    share = max(sum(line.share for line in code.lines) for code in axes)
    p, line_level = (min(1.0, len(codes) * p_value) for p_value in (min(ps), MAX_LINE_P))
    test = Test(share, p, of="smooth", least=line_level)
    facts = AxisRotations(*seen.shape, axes, tuple(c.axis for c in axes if c.lines))
    return Answer("axis_rotations", "yes", "lines", facts, test, AXIS_KEYS)


def _lines(code: View) -> tuple[Rotation, ...]:
    """Return the rotations that stand out of the spectrum of a code."""
    rotations = find_rotations(code.points, code.seed).rotations
    return tuple(
        rotation for rotation in rotations if len(code) >= SHORT or rotation.turns >= FEW_TURNS
    )


def _by_circles(view: View, codes: list[tuple[Code, Floats]]) -> Answer:
    """Answer by how much of the codes is in a circle, in one code or in both together."""
    rng = view.rng(16)
    shortened_codes = [_shortened(points) for _, points in codes]
    share, turns = np.stack([_rounder(points[None]) for points in shortened_codes])[..., 0].T
    times = len(codes) + 1 if len(codes) > 1 else 1
    null_draws = np.empty((len(codes), 4, 0))
    for draws in (CIRCLE_DRAWS, MOST_DRAWS - CIRCLE_DRAWS):
        extra_draws = [_smooth_shares(points, rng, draws) for points in shortened_codes]
        null_draws = np.concatenate([null_draws, np.stack(extra_draws)], axis=2)
        code_ranks = [
            max(rank_p_value(share, null) for null in nulls)
            for share, nulls in zip(share, null_draws, strict=True)
        ]
        joint = max(rank_p_value(share.mean(), null) for null in null_draws.mean(axis=0))
        p = min(1.0, times * min(joint, *code_ranks))
        if p > LEVEL:
            break
    circles = [
        Circle(
            float(turns[k]),
            float(share[k]),
            float(np.median(null_draws[k], axis=1).max()),
            code_ranks[k],
        )
        for k in range(len(codes))
    ]
    # What is significant for both together is told of each that has more than is usual.
    rotating = tuple(
        code.axis
        for (code, _), circle in zip(codes, circles, strict=True)
        if circle.p <= LEVEL
        or (
            joint <= LEVEL
            and circle.p <= MAX_OPEN_P
            and circle.share >= circle.typical + MIN_EFFECT_SHARE
        )
    )
    best = int(np.argmin(code_ranks))
    stands_alone = code_ranks[best] <= joint
    value, nulls = (
        (share[best], null_draws[best]) if stands_alone else (share.mean(), null_draws.mean(axis=0))
    )
    nearest = nulls[int(np.argmax(np.median(nulls, axis=1)))]
    test = null_test(float(value), nearest, "smooth", p, n_statistics=times)
    answer: Verdict = "cannot tell"
    reason = "open"
    if p <= LEVEL and rotating:
        answer, reason = "yes", "circles"
    elif p > MAX_OPEN_P and share.max() < LITTLE:
        answer, reason = "no", "none"
    facts = AxisRotations(
        *view.shape,
        tuple(replace(code, circle=share) for (code, _), share in zip(codes, circles, strict=True)),
        rotating if answer == "yes" else (),
    )
    return Answer("axis_rotations", answer, reason, facts, test, AXIS_KEYS)


def _shortened(code: Floats) -> Floats:
    """Return a centred code of at most `MOST_POSITIONS`, each the mean of neighbours."""
    if len(code) > MOST_POSITIONS:
        code = np.stack([part.mean(axis=0) for part in np.array_split(code, MOST_POSITIONS)])
    return np.asarray(code - code.mean(axis=0))


def _smooth_shares(code: Floats, rng: np.random.Generator, draws: int) -> Floats:
    """Return the shares that smooth random curves have in a circle: ``[4, draws]``.

    Curves with the fitted falling kernel, and with the kernel whose curves go round most evenly;
    each with the code's covariance of columns, and with as many independent ones.
    """
    h, d = code.shape
    u, sizes, _ = np.linalg.svd(code, full_matrices=False)
    roundest = np.exp(-0.5 * np.square(np.arange(h) / (ROUNDEST * h)))
    null_draws = []
    for kernel in (fit_kernel(u * sizes).by_offset, roundest):
        factor = root(toeplitz(kernel))
        gaussian_code = rng.standard_normal((draws, h, len(sizes))) * sizes
        null_draws += [
            _rounder(factor @ rows)[0] for rows in (gaussian_code, _independent(h, d, rng, draws))
        ]
    return np.stack(null_draws)


def _independent(h: int, d: int, rng: np.random.Generator, draws: int) -> Floats:
    """Draw rows whose products are those of ``[h, d]`` white noise, in at most ``h`` columns."""
    white = rng.standard_normal((draws, h, min(h, d)))
    if d <= h:
        return np.asarray(white)
    # Bartlett (1933): the triangular factor of a Wishart matrix.
    white = np.tril(white, -1)
    place = np.arange(h)
    white[:, place, place] = np.sqrt(rng.chisquare(d - place, (draws, h)))
    return white


def _rounder(curves: Floats) -> tuple[Floats, Floats]:
    """Return the greatest shares in a circle of curves ``[m, h, d]``, and its turns: ``[m]`` each.

    Two phases of a frequency are fitted by least squares: an ellipse, whose smaller radius is that
    of the circle in it.
    """
    count, h, _ = curves.shape
    curves = curves - curves.mean(axis=1, keepdims=True)
    grams = curves @ curves.swapaxes(1, 2)
    turns, products = _planes(h)
    power_inside = (grams.reshape(count, -1) @ products).reshape(count, 3, -1)
    half = (power_inside[:, 0] + power_inside[:, 1]) / 2
    smaller = half - np.hypot((power_inside[:, 0] - power_inside[:, 1]) / 2, power_inside[:, 2])
    best = smaller.argmax(axis=1)
    total_power = np.maximum(np.trace(grams, axis1=1, axis2=2), np.finfo(np.float64).tiny)
    return smaller[np.arange(count), best] / total_power, turns[best]


@lru_cache(maxsize=8)
def _planes(h: int) -> tuple[Floats, Floats]:
    """Return turns ``[f]``, and what takes a Gram matrix to the ellipse of each: ``[h², 3 f]``.

    The squares and the product of its two phases, times the variance of a circle of radius 1.
    """
    turns = np.arange(LEAST_TURNS, min(MOST_TURNS, (h - 1) / 3) + 1e-9, TURN_STEP)
    angle = 2 * np.pi * turns[:, None] * np.arange(h) / (h - 1)
    waves = np.stack([np.cos(angle), np.sin(angle)], axis=2)
    waves -= waves.mean(axis=1, keepdims=True)
    size = np.sqrt(np.square(waves).sum(axis=(1, 2)))
    cosine_direction, sine_direction = np.moveaxis(
        np.linalg.pinv(waves) * size[:, None, None], 1, 0
    )
    pairs = (
        (cosine_direction, cosine_direction),
        (sine_direction, sine_direction),
        (cosine_direction, sine_direction),
    )
    flat = [np.einsum("fi,fj->ijf", a, b).reshape(h * h, -1) for a, b in pairs]
    return turns, np.concatenate(flat, axis=1)


def circles_by_formula(answer: Answer, closed_form: Answer) -> Answer | None:
    """Say of a formula that it makes both codes of rotations, a plane for each frequency."""
    if not closed_form.yes or answer.reason in {"too_few", "all_equal", "large"}:
        return None
    keys = (*AXIS_KEYS, *closed_form.keys)
    return answer.corrected("yes", "formula", "closed_form", test=None, keys=keys)


#: By name, in the order of the page.
QUESTIONS: Mapping[str, AskTable] = {
    "order": ask_patch_order, "rows_and_columns": ask_rows_and_columns,
    "axis_rotations": ask_axis_rotations,
}  # fmt: skip
