"""A reference becomes named tensors, read lazily. Nothing here knows any architecture."""

from posprobe.checkpoints.checkpoint import (
    Checkpoint as Checkpoint,
    StoredTensor as StoredTensor,
    TensorInfo as TensorInfo,
)
from posprobe.checkpoints.local import open_local as open_local
