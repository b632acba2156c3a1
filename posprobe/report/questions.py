"""The questions that are asked of a table, as a reader would ask them."""

from __future__ import annotations

from collections.abc import Mapping

#: Every question in the order of the page, as a reader would ask it.
QUESTIONS: Mapping[str, str] = {
    "closed_form": "Is it a known formula?",
    "special_rows": "Are single rows unlike their neighbours?",
    "seams": "Does it break into parts?",
    "order": "Does the order of positions matter?",
    "rows_and_columns": "Is it a row code plus a column code?",
    "axis_rotations": "Do the row and column codes contain rotations?",
    "smooth": "Is it a smooth curve?",
    "stationary": "Does distance alone decide how alike positions are?",
    "low_dimensional": "Does it use unusually few directions?",
    "rotations": "Does it contain rotations of fixed period?",
    "winding": "Do two components wind around a centre?",
    "ladder": "Do its frequencies form a geometric series?",
}
#: Why a question has no answer on a grid.
ON_A_LINE = (
    "Cannot be told: this is asked of positions on a line, and these are patches on a grid; for "
    "their rows and columns see whether the row and column codes contain rotations."
)
