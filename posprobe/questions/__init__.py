"""The questions that are asked of each kind of subject, in the order of the page."""

from __future__ import annotations

from posprobe.questions.order import ORDER
from posprobe.questions.schemes import ALIBI as ALIBI
from posprobe.questions.schemes import BIAS as BIAS
from posprobe.questions.schemes import COSINE as COSINE
from posprobe.questions.schemes import KERNELS as KERNELS
from posprobe.questions.schemes import ROTARY as ROTARY

#: Of positions on a line.
SEQUENCE = (ORDER,)
