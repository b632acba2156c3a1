"""The questions that are asked of each kind of subject, in the order of the page."""

from __future__ import annotations

from posprobe.questions.order import ORDER

#: Of positions on a line.
SEQUENCE = (ORDER,)
