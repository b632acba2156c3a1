"""The questions that are asked about each kind of subject, by name, in the order of the page."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe.questions import breaks, fields, grids, rotations, schemes, sequences
from posprobe.questions.absolute_position import ask_absolute_position
from posprobe.questions.closed_form import ask_closed_form
from posprobe.questions.rank_tests import AskTable

#: Questions about positions on a line.
SEQUENCE_QUESTIONS: Mapping[str, AskTable] = {
    "closed_form": ask_closed_form,
    **breaks.BREAK_QUESTIONS,
    **sequences.SEQUENCE_TABLE_QUESTIONS,
    "absolute_position": ask_absolute_position,
    **rotations.ROTATION_QUESTIONS,
}
#: Questions about patches on a grid.
GRID_QUESTIONS: Mapping[str, AskTable] = {
    "closed_form": ask_closed_form,
    "special_rows": breaks.ask_special_rows,
    **grids.GRID_TABLE_QUESTIONS,
    **fields.FIELD_QUESTIONS,
}
#: Names of all questions about a table.
TABLE_QUESTIONS = tuple(dict.fromkeys((*GRID_QUESTIONS, *SEQUENCE_QUESTIONS)))
#: Names of all questions about encodings, with a table and without.
ANALYSIS_QUESTIONS = (*TABLE_QUESTIONS, *schemes.SCHEME_QUESTIONS)
