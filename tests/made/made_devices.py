"""Marks of tests that need a GPU, or a machine without one."""

import pytest
import torch

needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device is there"
)
without_cuda = pytest.mark.skipif(
    torch.cuda.is_available(), reason="a CUDA device is there"
)
