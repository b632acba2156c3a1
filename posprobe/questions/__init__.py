"""The questions that are asked of each kind of subject, in the order of the page."""

from __future__ import annotations

from posprobe.questions import fields, grids, models, schemes, substitution
from posprobe.questions.absolute_position import ABSOLUTE_POSITION
from posprobe.questions.axis_rotations import AXIS_ROTATIONS
from posprobe.questions.breaks import SEAMS, SPECIAL_ROWS
from posprobe.questions.closed_form import CLOSED_FORM
from posprobe.questions.grids import ROWS_AND_COLUMNS
from posprobe.questions.rotations import LADDER, ROTATIONS, WINDING
from posprobe.questions.sequences import LOW_DIMENSIONAL, ORDER, SMOOTH

#: Of positions on a line.
SEQUENCE = (
    CLOSED_FORM, SPECIAL_ROWS, SEAMS, ORDER, SMOOTH, ABSOLUTE_POSITION, LOW_DIMENSIONAL, ROTATIONS,
    WINDING, LADDER,
)  # fmt: skip
#: Of patches on a grid.
GRID = (
    CLOSED_FORM, SPECIAL_ROWS, grids.ORDER, ROWS_AND_COLUMNS, AXIS_ROTATIONS, fields.SMOOTH,
    fields.ABSOLUTE_POSITION, fields.LOW_DIMENSIONAL,
)  # fmt: skip
#: Names of all questions about a table.
TABLE = tuple(dict.fromkeys(question.name for question in (*GRID, *SEQUENCE)))
#: Names of all questions about encodings, with a table and without.
ANALYSIS = (*TABLE, *schemes.NAMES)
#: Of a run of a model.
MODEL = (
    models.KEPT, models.INPUT_ORDER, models.ORDER_WITHOUT, models.ABSOLUTE, models.APART,
    models.HEADS, models.FIRST, models.BLANK,
    models.DISTANCE, substitution.NEEDED, substitution.FEW_COMPONENTS, substitution.RANDOM,
)  # fmt: skip
