"""The questions that are asked of each kind of subject, in the order of the page."""

from __future__ import annotations

from posprobe.questions.breaks import SEAMS, SPECIAL_ROWS
from posprobe.questions.order import ORDER

#: Of positions on a line.
SEQUENCE = (SPECIAL_ROWS, SEAMS, ORDER)
#: Of patches on a grid.
GRID = (SPECIAL_ROWS,)
