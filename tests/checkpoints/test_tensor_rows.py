"""Some rows of a tensor cost their own size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from made_files import save_legacy, save_zip

from posprobe.checkpoints import Checkpoint, TensorInfo, open_local
from posprobe.errors import InvalidCheckpoint, InvalidTable, UsageError


def row_files(folder: Path, values: np.ndarray[Any, Any]) -> list[tuple[Path, str]]:
    """Save one array in every format; pairs of a file and the tensor's name in it."""
    tensor = torch.from_numpy(values)
    safetensors.torch.save_file({"before": torch.ones(3), "t": tensor}, folder / "a.safetensors")
    bfloat = {"t": tensor.to(torch.bfloat16)}
    safetensors.torch.save_file(bfloat, folder / "bfloat.safetensors")
    save_zip({"t": tensor}, folder / "zip.pt")
    save_zip(bfloat, folder / "bfloat.pt")
    save_legacy({"t": tensor}, folder / "legacy.pt")
    np.save(folder / "t.npy", np.asfortranarray(values))
    np.savez_compressed(folder / "a.npz", t=values.astype(">f4"))
    return [(path, "t") for path in sorted(folder.iterdir())]


@pytest.mark.parametrize("shape", [(40, 3), (40,), (40, 2, 3), (40, 0), (1, 4)])
def test_some_rows_are_those_of_the_whole_tensor_in_every_format(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    choices: list[list[int]] = [[], [0], list(range(shape[0]))]
    if shape[0] == 40:
        choices += [[39], [0, 1, 2, 17, 30, 31, 39], [5, 7, 9]]
    files = row_files(tmp_path, values)
    assert len(files) == 7
    for path, name in files:
        checkpoint = open_local(path)
        whole = checkpoint.read(name).values
        for rows in choices:
            read = checkpoint.read_rows(name, rows)
            assert read.dtype == whole.dtype
            assert read.shape == (len(rows), *shape[1:])
            np.testing.assert_array_equal(read, whole[np.array(rows, dtype=int)])


@pytest.mark.parametrize(
    "rows",
    [[40], [-1], [3, 2], [3, 3], [0.5], [True], [[0, 1]], [2**63], [2**70], "0", [float("nan")]],
)
def test_rows_that_are_not_there_are_one_clear_error(rows: Any, tmp_path: Path) -> None:
    for path, name in row_files(tmp_path, np.ones((40, 3), np.float32)):
        with pytest.raises(UsageError, match=rf"{path.name}.*\[40, 3\].*from 0 to 39"):
            open_local(path).read_rows(name, rows)


def test_a_number_alone_has_no_rows(tmp_path: Path) -> None:
    safetensors.torch.save_file({"t": torch.tensor(1.0)}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=r"shape \[\]"):
        open_local(tmp_path).read_rows("t", [0])


def test_rows_of_a_quantised_tensor_are_not_read(tmp_path: Path) -> None:
    state = {"t": torch.zeros(6, 4, dtype=torch.int8)}
    safetensors.torch.save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(InvalidTable, match=r"t, shape \[6, 4\], is stored as I8.*quantised"):
        open_local(tmp_path).read_rows("t", [0])


def test_rows_that_come_short_are_one_clear_error() -> None:
    info = TensorInfo("t", (6, 4), "F32", "model.safetensors", 100, 196)
    checkpoint = Checkpoint("here", {"t": info}, lambda part: bytes(part.stop - part.start - 1))
    with pytest.raises(InvalidCheckpoint, match=r"t\[2:4\], shape \[2, 4\] F32, needs 32 bytes"):
        checkpoint.read_rows("t", [2, 3])
