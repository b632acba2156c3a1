"""The device on which a table is measured, and the error where it is absent."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from made_cli import Cli, assert_one_clear_error, cli
from made_devices import needs_cuda, without_cuda
from made_tables import as_table, gaussian

import posprobe as pp
from posprobe import arrays
from posprobe.arrays import MIN_GPU_MULTIPLY_ADDS, positions

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["cli"]


def test_auto_leaves_small_tables_on_the_processor() -> None:
    n = 128
    assert n**3 < MIN_GPU_MULTIPLY_ADDS
    rows = positions(as_table(gaussian(n, n)), "auto")
    assert rows.device == "cpu"
    assert isinstance(rows.values, np.ndarray)


@pytest.mark.skipif(arrays._has_gpu_driver(), reason="a GPU's driver is installed here")
def test_without_a_gpu_driver_pytorch_is_not_imported() -> None:
    code = (
        "import sys, numpy as np; from posprobe.arrays import MIN_GPU_MULTIPLY_ADDS, positions;"
        "table = np.ones((2**15, 64), dtype=np.float32);"
        "assert table.size * 2**15 >= MIN_GPU_MULTIPLY_ADDS;"
        "print(positions(table, 'auto').device, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.split() == ["cpu", "False"]


@needs_cuda
def test_auto_takes_the_gpu_for_a_table_large_enough_to_gain() -> None:
    rows = int((MIN_GPU_MULTIPLY_ADDS / 64) ** 0.5) + 1
    inputs = positions(np.ones((rows, 64), dtype=np.float32), "auto")
    assert inputs.device.startswith("cuda (")
    assert inputs.values.device.type == "cuda"


@needs_cuda
def test_documents_record_the_device() -> None:
    table = as_table(gaussian(16, 4))
    environment = pp.analyze(table, only=["norms"], nulls=0, device="cuda").environment
    assert environment["device"] == f"cuda ({torch.cuda.get_device_name()})"
    assert environment["torch"] == torch.__version__


@without_cuda
def test_an_absent_gpu_ends_the_command_and_leaves_no_files(
    cli: Cli, tmp_path: Path
) -> None:
    run = cli("analyze", "sinusoidal:16x4", "--device", "cuda", "--out", "bundle")
    assert_one_clear_error(run, 2)
    assert "--device cuda" in run.err
    assert "Use --device cpu" in run.err
    assert list(tmp_path.iterdir()) == []
