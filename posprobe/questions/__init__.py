"""The questions that are asked of each kind of subject, in the order of the page."""

from __future__ import annotations

from posprobe.questions import fields, grids
from posprobe.questions.axis_rotations import AXIS_ROTATIONS
from posprobe.questions.breaks import SEAMS, SPECIAL_ROWS
from posprobe.questions.closed_form import CLOSED_FORM
from posprobe.questions.codes import ROWS_AND_COLUMNS
from posprobe.questions.ladder import LADDER
from posprobe.questions.order import ORDER
from posprobe.questions.rotations import ROTATIONS
from posprobe.questions.winding import WINDING

#: Of positions on a line.
SEQUENCE = (CLOSED_FORM, SPECIAL_ROWS, SEAMS, ORDER, ROTATIONS, WINDING, LADDER)
#: Of patches on a grid.
GRID = (
    CLOSED_FORM,
    SPECIAL_ROWS,
    grids.ORDER,
    ROWS_AND_COLUMNS,
    AXIS_ROTATIONS,
    fields.SMOOTH,
    fields.ABSOLUTE_POSITION,
    fields.LOW_DIMENSIONAL,
)
