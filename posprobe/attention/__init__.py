"""How positions enter attention logits: one plain function for each published scheme.

Arrays are NumPy arrays or torch tensors; what comes back is of the same library, dtype and device.
Indices, angles and offsets are constants and may be NumPy beside torch.

``n`` counts queries, ``m`` keys, ``d_h`` is the width of a head, and ``...`` stands for batch and
heads, heads last. Offsets run from query to key: ``j - i`` for query ``i`` and key ``j``. Nothing
but `attend` divides by ``sqrt(d_h)``; each docstring says whether and where its models do.
"""

from posprobe.attention.bias import continuous_bias, look_up
from posprobe.attention.grid import relative_logits_2d
from posprobe.attention.sequence import (
    attend,
    relative_logits,
    rotate,
    shift_relative,
)

__all__ = [
    "attend",
    "continuous_bias",
    "look_up",
    "relative_logits",
    "relative_logits_2d",
    "rotate",
    "shift_relative",
]
