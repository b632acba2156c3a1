"""The questions that are asked of each kind of subject, in the order of the page."""

from __future__ import annotations

from posprobe.questions.model_attention import FIRST, HEADS
from posprobe.questions.models import ABSOLUTE, APART, BLANK, INPUT_ORDER, KEPT, ORDER_WITHOUT
from posprobe.questions.order import ORDER
from posprobe.questions.substitution import FEW_COMPONENTS, NEEDED, RANDOM

#: Of positions on a line.
SEQUENCE = (ORDER,)
#: Of a run of a model.
MODEL = (
    KEPT, INPUT_ORDER, ORDER_WITHOUT, ABSOLUTE, APART, HEADS, FIRST, BLANK, NEEDED, FEW_COMPONENTS,
    RANDOM,
)  # fmt: skip
