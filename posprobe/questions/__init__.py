"""The questions that are asked of each kind of subject, by name, in the order of the page."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe.questions import breaks, fields, grids, rotations, schemes, sequences
from posprobe.questions.absolute_position import ask_absolute_position
from posprobe.questions.closed_form import ask_closed_form
from posprobe.questions.rank_tests import Ask

#: Of positions on a line.
SEQUENCE: Mapping[str, Ask] = {
    "closed_form": ask_closed_form, **breaks.QUESTIONS, **sequences.QUESTIONS,
    "absolute_position": ask_absolute_position, **rotations.QUESTIONS,
}  # fmt: skip
#: Of patches on a grid.
GRID: Mapping[str, Ask] = {
    "closed_form": ask_closed_form, "special_rows": breaks.ask_special_rows,
    **grids.QUESTIONS, **fields.QUESTIONS,
}  # fmt: skip
#: Names of all questions about a table.
TABLE = tuple(dict.fromkeys((*GRID, *SEQUENCE)))
#: Names of all questions about encodings, with a table and without.
ANALYSIS = (*TABLE, *schemes.NAMES)
