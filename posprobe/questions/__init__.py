"""The questions that are asked of each kind of subject, in the order of the page."""

from __future__ import annotations

from posprobe.questions import breaks, fields, grids, models, rotations, schemes, sequences
from posprobe.questions.absolute_position import ABSOLUTE_POSITION
from posprobe.questions.axis_rotations import AXIS_ROTATIONS
from posprobe.questions.closed_form import CLOSED_FORM
from posprobe.questions.substitution import QUESTIONS as SUBSTITUTION

#: Of positions on a line.
SEQUENCE = (
    CLOSED_FORM, *breaks.QUESTIONS, *sequences.QUESTIONS, ABSOLUTE_POSITION, *rotations.QUESTIONS
)  # fmt: skip
#: Of patches on a grid.
GRID = (CLOSED_FORM, breaks.SPECIAL_ROWS, *grids.QUESTIONS, AXIS_ROTATIONS, *fields.QUESTIONS)
#: Names of all questions about a table.
TABLE = tuple(dict.fromkeys(question.name for question in (*GRID, *SEQUENCE)))
#: Names of all questions about encodings, with a table and without.
ANALYSIS = (*TABLE, *schemes.NAMES)
#: Of a run of a model.
MODEL = (*models.QUESTIONS, *SUBSTITUTION)
