"""One mathematics for NumPy and torch: the same numbers, wherever the table lies."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from made_bundles import with_zero_row
from made_cli import Cli, assert_one_clear_error, cli
from made_tables import as_table, gaussian, patches, walk, waves

import posprobe as pp
from posprobe import arrays
from posprobe.arrays import GPU_PAYS, positions
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from pathlib import Path

    from posprobe.analyses import Result
    from posprobe.tables import PositionTable

__all__ = ["cli"]

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is there")
without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]
NAMES = ("norms", "similarity", "pca", "spectrum", "grid")


TABLES: dict[str, Any] = {
    "minilm": lambda: pp.load("sample:all-minilm-l6-v2"),
    "circles": lambda: as_table(waves(256, [6.0, 18.0], noise=0.1)),
    "grid": lambda: patches(9, 12, 20),
    "zero row": with_zero_row,
    "constant": lambda: as_table(np.ones((32, 5))),
    "wider than long": lambda: as_table(walk(9, 40)),
}


def on_device(table: PositionTable, device: str) -> dict[str, Result]:
    """Run every analysis on a table that was moved there, and nothing that fell back to NumPy."""
    values = torch.from_numpy(np.array(table.values)).to(device)
    given = positions(table, "cpu")
    moved = type(given)(values.to(torch.float64), given.layout, given.start, device)
    found: dict[str, Result] = {
        "norms": pp.norms(moved),
        "similarity": pp.similarity(moved),
        "pca": pp.pca(moved),
        "spectrum": pp.spectrum(moved),
    }
    return found | ({"grid": pp.grid(moved)} if isinstance(table.layout, Grid) else {})


def assert_same(found: Any, expected: Any, where: str) -> None:
    """Assert that results agree to 1e-10, arrays relative to their largest number."""
    assert type(found) is type(expected), where
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype, where
        scale = float(np.nanmax(np.abs(expected), initial=0)) if expected.dtype.kind == "f" else 0
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * scale, err_msg=where)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-10, nan_ok=True), where
    elif isinstance(expected, tuple | list):
        assert len(found) == len(expected), where
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{where}[{index}]")
    elif hasattr(expected, "__dataclass_fields__"):
        for field in fields(expected):
            one, other = getattr(found, field.name), getattr(expected, field.name)
            if field.name == "offset_std":  # the root of a difference: its square is what agrees
                one, other = one**2, other**2
                np.testing.assert_allclose(one, other, rtol=0, atol=1e-10, err_msg=where)
            else:
                assert_same(one, other, f"{where}.{field.name}")
    else:
        assert found == expected, where


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", TABLES)
def test_torch_agrees_with_numpy(name: str, device: str) -> None:
    table = TABLES[name]()
    names = [name for name in NAMES if name != "grid" or isinstance(table.layout, Grid)]
    expected = pp.analyze(table, only=names, nulls=0, device="cpu").results
    found = on_device(table, device)
    assert set(found) == set(expected)
    for analysis in ("norms", "similarity", "spectrum", "grid"):
        if analysis in expected:
            assert_same(found[analysis], expected[analysis], analysis)
    assert_same_components(found["pca"], expected["pca"])


def assert_same_components(found: Any, expected: Any) -> None:
    values = expected.singular_values
    scale = values[0] or 1.0
    np.testing.assert_allclose(found.singular_values, values, rtol=0, atol=1e-10 * scale)
    assert found.undefined == expected.undefined
    if expected.undefined:
        return
    for name in ("stable_rank", "participation_ratio", "effective_rank"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-10)
    np.testing.assert_allclose(
        found.explained_variance_ratio, expected.explained_variance_ratio, rtol=0, atol=1e-10
    )
    # A component is defined where its singular value stands apart; equal ones may turn.
    gaps = np.minimum(-np.diff(values, append=0), -np.diff(values, prepend=np.inf))
    apart = gaps > 1e-3 * scale
    assert_same(found.components[apart], expected.components[apart], "components")
    assert_same(found.scores[:, apart], expected.scores[:, apart], "scores")


def test_auto_leaves_small_tables_on_the_processor() -> None:
    n = 128
    assert n**3 < GPU_PAYS
    given = positions(as_table(gaussian(n, n)), "auto")
    assert given.device == "cpu"
    assert isinstance(given.values, np.ndarray)


@pytest.mark.skipif(arrays._driver_is_there(), reason="a GPU's driver is installed here")
def test_without_a_driver_nobody_waits_for_pytorch_to_find_no_gpu() -> None:
    code = (
        "import sys, numpy as np; from posprobe.arrays import GPU_PAYS, positions;"
        "table = np.ones((2**15, 64), dtype=np.float32); assert table.size * 2**15 >= GPU_PAYS;"
        "print(positions(table, 'auto').device, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["cpu", "False"]


@needs_cuda
def test_auto_takes_the_gpu_for_a_table_large_enough_to_gain() -> None:
    rows = int((GPU_PAYS / 64) ** 0.5) + 1
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
