"""Files of safetensors, rows of tensors in every format, and files under another's name."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given, strategies as st
from made_files import (
    FLOAT_DTYPES,
    VALUES,
    arrays,
    entry,
    header_of,
    quick,
    save_legacy,
    save_zip,
    write,
)

from posprobe.checkpoints import Checkpoint, TensorInfo, open_local
from posprobe.errors import InvalidCheckpoint, InvalidTable, UsageError
from posprobe.families import load

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(
    lambda name: name != "__metadata__"
)


@quick
@given(st.dictionaries(names, arrays, min_size=1, max_size=5), st.booleans())
def test_safetensors_reads_what_the_safetensors_package_wrote(
    tmp_path: Path, tensors: dict[str, np.ndarray[Any, Any]], metadata: bool
) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(tensors, path, {"format": "np"} if metadata else None)
    checkpoint = open_local(path)
    with safetensors.safe_open(path, "np") as reference:
        assert set(checkpoint.tensors) == set(reference.keys())
        for name, info in checkpoint.tensors.items():
            stored = reference.get_slice(name)
            assert list(info.shape) == stored.get_shape()
            assert info.dtype == stored.get_dtype() == FLOAT_DTYPES[tensors[name].dtype]
            assert info.file == path.name
    for name, expected in tensors.items():
        read = checkpoint.read(name)
        assert read.values.dtype == expected.dtype
        assert read.values.shape == expected.shape
        assert read.values.tobytes() == expected.tobytes()
        assert read.sha256 == sha256(expected.tobytes()).hexdigest()


def test_safetensors_bfloat16_is_widened_exactly(tmp_path: Path) -> None:
    bits = torch.arange(2**16).to(torch.uint16)  # every bfloat16 there is
    table = bits.view(torch.bfloat16).reshape(256, 256)
    safetensors.torch.save_file({"table": table}, tmp_path / "model.safetensors")
    read = open_local(tmp_path).read("table")
    assert read.info.dtype == "BF16"
    np.testing.assert_array_equal(
        read.values.view(np.uint32), table.float().numpy().view(np.uint32)
    )


@pytest.mark.parametrize(
    "dtype",
    [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
     torch.float8_e4m3fn, torch.float8_e5m2],
)  # fmt: skip
def test_a_quantised_or_integer_tensor_is_listed_and_not_read(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file({"pos_embed": torch.zeros(6, 4).to(dtype)}, path)
    checkpoint = open_local(path)
    assert checkpoint.tensors["pos_embed"].shape == (6, 4)
    name = checkpoint.tensors["pos_embed"].dtype
    with pytest.raises(InvalidTable, match=rf"pos_embed.*\[6, 4\].*{name}.*quantised"):
        checkpoint.read("pos_embed")


@pytest.mark.parametrize("file", ["model.safetensors", "table.npy", "model.npz"])
def test_values_are_mapped_and_not_copied(file: str, tmp_path: Path) -> None:
    safetensors.numpy.save_file({"table": VALUES}, tmp_path / "model.safetensors")
    np.save(tmp_path / "table.npy", VALUES)
    np.savez(tmp_path / "model.npz", table=VALUES)
    checkpoint = open_local(tmp_path / file)
    data = checkpoint.fetch(checkpoint.tensors["table"])
    assert isinstance(data, memoryview)
    assert isinstance(data.obj, mmap.mmap)
    assert not checkpoint.read("table").values.flags.writeable


def good(**changes: Any) -> bytes:
    tensors = {"a": entry([6, 4], 0, 96), "b": entry([6, 4], 96, 192)}
    return header_of(tensors | changes) + 2 * VALUES.tobytes()


#: Its own words follow, which differ between versions of the package.
REFUSED = "the safetensors package refuses its header"
DAMAGED: dict[str, tuple[bytes, str]] = {
    "seven bytes": (b"\0" * 7, "7 bytes"),
    "header of 2^64 - 1 bytes": (b"\xff" * 8 + b"{}", str(2**64 - 1)),
    "header cut": (good()[:40], "truncated"),
    "data cut": (good()[:-1], "truncated"),
    "bytes behind": (good() + b"\0", "end at byte"),
    "html": (b"<!DOCTYPE html><html>" * 9, "truncated or no"),
    "header is not JSON": ((4).to_bytes(8, "little") + b"{no}", REFUSED),
    "header is nested deeply": (
        (200_000).to_bytes(8, "little") + b"[" * 100_000 + b"]" * 100_000, REFUSED
    ),
    "entry is null": (good(a=None), REFUSED),
    "shape and size differ": (good(a=entry([6, 5], 0, 96)), REFUSED),
    "offsets beyond the file": (good(a=entry([6, 4], 960, 1056)), REFUSED),
    "tensors overlap": (good(b=entry([6, 4], 48, 144)), REFUSED),
    "bytes between tensors": (good(b=entry([5, 4], 112, 192)), REFUSED),
}  # fmt: skip


def test_names_written_twice_are_refused_though_the_package_takes_one(
    tmp_path: Path,
) -> None:
    twice = b'"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
    content = b"{" + twice + b"," + twice + b"}"
    path = write(
        tmp_path / "m.safetensors",
        len(content).to_bytes(8, "little") + content + bytes(8),
    )
    with pytest.raises(InvalidCheckpoint, match="'a' twice"):
        open_local(path)


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_safetensors_is_one_clear_error(case: str, tmp_path: Path) -> None:
    content, says = DAMAGED[case]
    path = write(tmp_path / "model.safetensors", content)
    with pytest.raises(InvalidCheckpoint, match=rf"model\.safetensors.*{says}"):
        open_local(path)
    with pytest.raises(
        safetensors.SafetensorError
    ):  # its own package refuses all of them too
        safetensors.numpy.load_file(path)


def test_a_pytorch_file_named_safetensors_is_named_as_such(tmp_path: Path) -> None:
    torch.save({"wpe.weight": torch.zeros(4, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(InvalidCheckpoint, match=r"begins as a ZIP archive.*Rename it"):
        open_local(tmp_path / "model.safetensors")


def test_a_header_length_with_zip_magic_is_read(tmp_path: Path) -> None:
    path, values = tmp_path / "model.safetensors", np.eye(4, dtype=np.float32)
    for note in range(
        19_000, 19_280
    ):  # its length is written before it: 19,280 is PK in bytes
        safetensors.numpy.save_file({"wpe.weight": values}, path, {"note": "x" * note})
        if path.read_bytes().startswith(b"PK"):
            break
    assert path.read_bytes().startswith(b"PK")
    np.testing.assert_array_equal(load(str(path)).values, values)


def row_files(folder: Path, values: np.ndarray[Any, Any]) -> list[tuple[Path, str]]:
    """Save one array in every format; pairs of a file and the tensor's name in it."""
    tensor = torch.from_numpy(values)
    safetensors.torch.save_file(
        {"before": torch.ones(3), "t": tensor}, folder / "a.safetensors"
    )
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
        all_rows = checkpoint.read(name).values
        for rows in choices:
            read = checkpoint.read_rows(name, rows)
            assert read.dtype == all_rows.dtype
            assert read.shape == (len(rows), *shape[1:])
            np.testing.assert_array_equal(read, all_rows[np.array(rows, dtype=int)])


@pytest.mark.parametrize(
    "rows",
    [
        [40],
        [-1],
        [3, 2],
        [3, 3],
        [0.5],
        [True],
        [[0, 1]],
        [2**63],
        [2**70],
        "0",
        [float("nan")],
    ],
)
def test_rows_that_are_not_there_are_one_clear_error(rows: Any, tmp_path: Path) -> None:
    for path, name in row_files(tmp_path, np.ones((40, 3), np.float32)):
        with pytest.raises(UsageError, match=rf"{path.name}.*\[40, 3\].*from 0 to 39"):
            open_local(path).read_rows(name, rows)


def test_rows_that_come_short_are_one_clear_error() -> None:
    info = TensorInfo("t", (6, 4), "F32", "model.safetensors", 100, 196)
    checkpoint = Checkpoint(
        "here", {"t": info}, lambda part: bytes(part.stop - part.start - 1)
    )
    with pytest.raises(
        InvalidCheckpoint, match=r"t\[2:4\], shape \[2, 4\] F32, needs 32 bytes"
    ):
        checkpoint.read_rows("t", [2, 3])


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
    # The endings of PyTorch are those of other formats, too: the first bytes decide.
    if kind in (suffix, "pt", "safetensors", "npy") and suffix in (kind, "pt", "bin"):
        (tensor,) = {"wpe.weight", "model"} & set(open_local(path).tensors)
        np.testing.assert_array_equal(open_local(path).read(tensor).values, VALUES)
        return
    with pytest.raises(InvalidCheckpoint, match=path.name):
        open_local(path)


def test_a_file_that_cannot_be_mapped_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    safetensors.numpy.save_file({"a": VALUES}, tmp_path / "model.safetensors")
    monkeypatch.setattr(mmap, "mmap", fail)
    with pytest.raises(InvalidCheckpoint, match=os.strerror(errno.EIO)):
        open_local(tmp_path)
