"""Biases that are added to attention logits: one plain function for each published scheme.

Arrays are NumPy arrays or torch tensors; what comes back is of the same library, dtype and device.
Indices and offsets are constants and may be NumPy beside torch.

``n`` counts queries, ``m`` keys. Offsets run from query to key: ``j - i`` for query ``i`` and key
``j``.
"""

from posprobe.attention.bias import continuous_bias as continuous_bias, look_up as look_up
