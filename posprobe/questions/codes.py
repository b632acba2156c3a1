"""Whether each patch is a row code plus a column code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from posprobe.analyses.facts import Answer, Verdict
from posprobe.analyses.grid_model import SHORT_SIDE
from posprobe.analyses.views import View
from posprobe.questions.base import LEAST_SHARE, Question, against, verdict_of
from posprobe.questions.grids import unfit

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
