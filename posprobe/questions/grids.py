"""What questions of grids share; whether the place of a patch matters; row and column codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import Answer, Verdict
from posprobe.analyses.grids.grid_model import SHORT_SIDE
from posprobe.analyses.tables.cached import LEVEL, MAX_ROWS, View, chance_cosine, units
from posprobe.arrays import Floats
from posprobe.questions.base import LEAST_SHARE, Question, against, rank, too_few, verdict_of

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
        Of the grid, in patches.
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
    height, width
        Of the grid, in patches.
    cosine, chance
        Mean cosine of patches side by side as seen from the middle, and of any two patches.
    """

    height: int
    width: int
    cosine: float
    chance: float

    @property
    def value(self) -> float:
        """The mean cosine of neighbours."""
        return self.cosine


def unfit(
    question: str,
    seen: View,
    keys: tuple[str, ...],
    *,
    least: int = 1,
    most: int = MAX_ROWS,
    prefix: str = "patch_",
) -> Answer | None:
    """Answer a question about a grid that is too small or too large for it.

    Parameters
    ----------
    question, seen, keys
        As for `too_few`.
    least, most
        Fewest patches on a side, and most patches in all.
    prefix
        Of the reason.
    """
    if few := too_few(question, seen, keys):
        return few
    height, width = seen.shape
    facts = Sides(height, width, least, most)
    if min(height, width) < least:
        return Answer(question, "cannot tell", f"{prefix}narrow", facts, keys=keys)
    if height * width > most:
        return Answer(question, "cannot tell", f"{prefix}large", facts, keys=keys)
    return None


def draw_until(
    draw: Callable[[], Any], p_of: Callable[[Floats], float], first: int, most: int
) -> tuple[Floats, float]:
    """Return draws of a null and the p-value: the first ones alone where they exclude a yes.

    Parameters
    ----------
    draw
        Makes one draw.
    p_of
        The p-value beside some draws.
    first, most
        How many are drawn in any case, and at most.
    """
    drawn = np.array([draw() for _ in range(first)])
    if p_of(drawn) <= LEVEL:
        drawn = np.concatenate([drawn, [draw() for _ in range(most - first)]])
    return drawn, p_of(drawn)


def parts(
    points: NDArray[np.floating[Any]], shape: tuple[int, int]
) -> tuple[Floats, Floats, Floats]:
    """Split ``[h * w, d]`` into row code ``[h, d]``, column code ``[w, d]`` and the rest."""
    cells = points.astype(np.float64).reshape(*shape, -1)
    cells = cells - cells.mean(axis=(0, 1))
    rows, columns = cells.mean(axis=1), cells.mean(axis=0)
    return rows, columns, cells - rows[:, None] - columns


def ask_patch_order(seen: View) -> Answer:
    """Ask whether patches side by side are more, or less, similar than patches permuted."""
    if none := unfit("order", seen, NEIGHBOUR_KEYS):
        return none
    height, width = seen.shape
    unit_rows = units(seen.points)
    # Of the Gram matrix, a permutation needs the entries of neighbours alone.
    gram = unit_rows @ unit_rows.T
    patches = np.arange(height * width).reshape(height, width)
    one = np.concatenate([patches[:, 1:].ravel(), patches[1:].ravel()])
    other = np.concatenate([patches[:, :-1].ravel(), patches[:-1].ravel()])
    cosine, chance = float(gram[one, other].mean()), chance_cosine(unit_rows)
    rng = seen.rng(12)
    orders = (rng.permutation(len(seen)) for _ in range(ORDER_DRAWS))
    drawn = np.array([gram[order[one], order[other]].mean() for order in orders])
    p = rank(abs(cosine - chance), np.abs(drawn - chance))
    answer = verdict_of(p, enough=len(seen) >= ENOUGH)
    reason = {"yes": "patch_neighbours", "no": "patch_none"}.get(answer, "patch_open")
    if answer == "yes" and abs(cosine - chance) < LEAST_SHARE:
        answer, reason = "no", "patch_small"
    facts = PatchOrder(height, width, cosine, chance)
    test = replace(against(cosine, drawn, "permuted", p), null=chance)
    return Answer("order", answer, reason, facts, test, NEIGHBOUR_KEYS)


ORDER = Question(
    "order",
    ask_patch_order,
    ("patch_neighbours", "patch_none", "patch_open", "patch_small", "patch_large"),
)


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
        Of the grid, in patches.
    row_share, column_share
        Of the variance, which each code holds beside surfaces and noise.
    typical
        What both hold in a table without codes.
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

    @property
    def value(self) -> dict[str, float]:
        """The shares of both codes."""
        return {"row_share": self.row_share, "column_share": self.column_share}


def ask_rows_and_columns(seen: View) -> Answer:
    """Ask whether each patch is a row code plus a column code.

    By the additive model of a grid: how much more likely the table is with codes than without, held
    against tables drawn from the fit without them.
    """
    if none := unfit("rows_and_columns", seen, CODES_KEYS, least=MIN_SIDE, prefix=""):
        return none
    height, width = seen.shape
    found = seen.grid_model
    rows, columns = found.shares["rows"], found.shares["columns"]
    test = against(rows + columns, found.drawn, "surface", found.p)
    facts = RowsAndColumns(height, width, rows, columns, test.null or 0.0)
    short = min(height, width) < SHORT_SIDE
    answer: Verdict = verdict_of(found.p, enough=not short)
    reason = {"no": "none", "cannot tell": "few_patches" if short else "open"}.get(answer, "codes")
    if answer == "yes" and facts.share < LEAST_SHARE:
        answer, reason = "no", "small"
    elif answer == "yes" and facts.lone:
        reason = "lone"
    return Answer("rows_and_columns", answer, reason, facts, test, CODES_KEYS)


ROWS_AND_COLUMNS = Question(
    "rows_and_columns",
    ask_rows_and_columns,
    ("codes", "lone", "none", "small", "few_patches", "open", "narrow", "large"),
)

#: In the order of the page.
QUESTIONS = (ORDER, ROWS_AND_COLUMNS)
