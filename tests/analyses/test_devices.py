"""On which device a table is measured, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from made_cli import Cli, assert_one_clear_error, cli
from made_tables import as_table, gaussian

import posprobe as pp
from posprobe import arrays
from posprobe.arrays import MIN_GPU_MULTIPLY_ADDS, positions

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["cli"]

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is there")
without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")


def test_auto_leaves_small_tables_on_the_processor() -> None:
    n = 128
    assert n**3 < MIN_GPU_MULTIPLY_ADDS
    given = positions(as_table(gaussian(n, n)), "auto")
    assert given.device == "cpu"
    assert isinstance(given.values, np.ndarray)


@pytest.mark.skipif(arrays._has_gpu_driver(), reason="a GPU's driver is installed here")
def test_without_a_driver_nobody_waits_for_pytorch_to_find_no_gpu() -> None:
    code = (
        "import sys, numpy as np; from posprobe.arrays import MIN_GPU_MULTIPLY_ADDS, positions;"
        "table = np.ones((2**15, 64), dtype=np.float32); assert table.size * 2**15 >= MIN_GPU_MULTIPLY_ADDS;"
        "print(positions(table, 'auto').device, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["cpu", "False"]


@needs_cuda
def test_auto_takes_the_gpu_for_a_table_large_enough_to_gain() -> None:
    rows = int((MIN_GPU_MULTIPLY_ADDS / 64) ** 0.5) + 1
    given = positions(np.ones((rows, 64), dtype=np.float32), "auto")
    assert given.device.startswith("cuda (")
    assert given.values.device.type == "cuda"


@needs_cuda
def test_the_device_is_on_record() -> None:
    table = as_table(gaussian(16, 4))
    environment = pp.analyze(table, only=["norms"], nulls=0, device="cuda").environment
    assert environment["device"] == f"cuda ({torch.cuda.get_device_name()})"
    assert environment["torch"] == torch.__version__


@without_cuda
def test_a_gpu_that_is_not_there_ends_the_command_and_leaves_nothing(
    cli: Cli, tmp_path: Path
) -> None:
    done = cli("analyze", "sinusoidal:16x4", "--device", "cuda", "--out", "bundle")
    assert_one_clear_error(done, 2)
    assert "--device cuda" in done.err
    assert "Use --device cpu" in done.err
    assert list(tmp_path.iterdir()) == []
