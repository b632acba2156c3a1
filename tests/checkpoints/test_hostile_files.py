"""Anything at all in a file ends in one clear error."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from made_files import VALUES, save_legacy, save_zip, write

from posprobe.checkpoints import open_local
from posprobe.errors import InvalidCheckpoint


def sound_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state = {"wpe.weight": torch.from_numpy(VALUES), "ids": torch.arange(3)}
        safetensors.torch.save_file(state, folder / "a.safetensors")
        save_zip(state, folder / "a.pt")
        save_legacy(state, folder / "legacy.pt")
        arrays: dict[str, Any] = {"wpe.weight": VALUES, "ids": np.arange(3)}
        np.savez(folder / "a.npz", **arrays)
        np.savez_compressed(folder / "compressed.npz", **arrays)
        np.save(folder / "wpe.weight.npy", VALUES)
        return {path.name: path.read_bytes() for path in folder.iterdir()}


SOUND = sound_files()


@pytest.mark.parametrize("suffix", ["npy", "npz", "bin", "pt", "safetensors"])
@pytest.mark.parametrize("name", SOUND)
def test_a_file_of_another_format_is_one_clear_error(
    suffix: str, name: str, tmp_path: Path
) -> None:
    path = write(tmp_path / f"model.{suffix}", SOUND[name])
    kind = name.rpartition(".")[2]
    if {kind, suffix} in ({suffix}, {"pt", "bin"}):
        assert open_local(path).tensors
        return
    with pytest.raises(InvalidCheckpoint, match=path.name) as caught:
        open_local(path)
    assert caught.value.exit_code == 4


def test_a_file_that_cannot_be_mapped_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    safetensors.numpy.save_file({"a": VALUES}, tmp_path / "model.safetensors")
    monkeypatch.setattr(mmap, "mmap", fail)
    with pytest.raises(InvalidCheckpoint, match=os.strerror(errno.EIO)):
        open_local(tmp_path)
