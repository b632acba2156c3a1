"""A reference becomes named tensors, read lazily. Nothing here knows any architecture."""

from posprobe.checkpoints.base import Checkpoint, StoredTensor, TensorInfo
from posprobe.checkpoints.local import open_local

__all__ = ["Checkpoint", "StoredTensor", "TensorInfo", "open_local"]
