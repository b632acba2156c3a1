"""The questions that are asked of each kind of subject, in the order of the page."""

from __future__ import annotations

from posprobe.questions import (
    fields,
    grids,
    model_attention,
    models,
    rotary_use,
    schemes,
    substitution,
)
from posprobe.questions.absolute_position import ABSOLUTE_POSITION
from posprobe.questions.axis_rotations import AXIS_ROTATIONS
from posprobe.questions.breaks import SEAMS, SPECIAL_ROWS
from posprobe.questions.closed_form import CLOSED_FORM
from posprobe.questions.codes import ROWS_AND_COLUMNS
from posprobe.questions.ladder import LADDER
from posprobe.questions.low_dimensional import LOW_DIMENSIONAL
from posprobe.questions.order import ORDER
from posprobe.questions.rotations import ROTATIONS
from posprobe.questions.smooth import SMOOTH
from posprobe.questions.winding import WINDING

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
    model_attention.HEADS, model_attention.FIRST, models.BLANK,
    rotary_use.DISTANCE, substitution.NEEDED, substitution.FEW_COMPONENTS, substitution.RANDOM,
)  # fmt: skip
