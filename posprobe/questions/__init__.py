"""The questions that are asked of each kind of subject, in the order of the page."""

from __future__ import annotations

from posprobe.questions import fields, grids
from posprobe.questions.axis_rotations import AXIS_ROTATIONS
from posprobe.questions.codes import ROWS_AND_COLUMNS
from posprobe.questions.order import ORDER

#: Of positions on a line.
SEQUENCE = (ORDER,)
#: Of patches on a grid.
GRID = (
    grids.ORDER,
    ROWS_AND_COLUMNS,
    AXIS_ROTATIONS,
    fields.SMOOTH,
    fields.ABSOLUTE_POSITION,
    fields.LOW_DIMENSIONAL,
)
