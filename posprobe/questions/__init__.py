"""The questions that are asked of each kind of subject, in the order of the page."""

from __future__ import annotations

from posprobe.questions.absolute_position import ABSOLUTE_POSITION
from posprobe.questions.low_dimensional import LOW_DIMENSIONAL
from posprobe.questions.order import ORDER
from posprobe.questions.smooth import SMOOTH

#: Of positions on a line.
SEQUENCE = (ORDER, SMOOTH, ABSOLUTE_POSITION, LOW_DIMENSIONAL)
