"""Files of safetensors: what the package wrote is read back, and damage is one clear error."""

from __future__ import annotations

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
from made_files import FLOATS, VALUES, arrays, entry, header_of, quick, write

from posprobe.checkpoints import open_local
from posprobe.errors import InvalidCheckpoint, InvalidTable
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
            assert info.dtype == stored.get_dtype() == FLOATS[tensors[name].dtype]
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


def test_safetensors_values_are_mapped_and_not_copied(tmp_path: Path) -> None:
    safetensors.numpy.save_file({"table": VALUES}, tmp_path / "model.safetensors")
    read = open_local(tmp_path).read("table")
    assert not read.values.flags.owndata
    assert not read.values.flags.writeable


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
    "header is not UTF-8": ((4).to_bytes(8, "little") + b"\xff\xfe\xfd\xfc", REFUSED),
    "header is nested deeply": (
        (200_000).to_bytes(8, "little") + b"[" * 100_000 + b"]" * 100_000, REFUSED
    ),
    "entry is null": (good(a=None), REFUSED),
    "entry without shape": (good(a={"dtype": "F32", "data_offsets": [0, 96]}), REFUSED),
    "shape is boolean": (good(a=entry([True, 24], 0, 96)), REFUSED),
    "shape and size differ": (good(a=entry([6, 5], 0, 96)), REFUSED),
    "offsets beyond the file": (good(a=entry([6, 4], 960, 1056)), REFUSED),
    "tensors overlap": (good(b=entry([6, 4], 48, 144)), REFUSED),
    "bytes between tensors": (good(b=entry([5, 4], 112, 192)), REFUSED),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_safetensors_is_one_clear_error(case: str, tmp_path: Path) -> None:
    content, says = DAMAGED[case]
    path = write(tmp_path / "model.safetensors", content)
    with pytest.raises(InvalidCheckpoint, match=rf"model\.safetensors.*{says}") as caught:
        open_local(path)
    assert caught.value.exit_code == 4
    with pytest.raises(safetensors.SafetensorError):  # its own package refuses all of them too
        safetensors.numpy.load_file(path)


def test_a_file_of_pytorch_under_this_name_is_called_what_it_is(tmp_path: Path) -> None:
    torch.save({"wpe.weight": torch.zeros(4, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(InvalidCheckpoint, match=r"begins as a ZIP archive.*Rename it"):
        open_local(tmp_path / "model.safetensors")


def test_a_header_whose_length_begins_as_an_archive_does_is_read(tmp_path: Path) -> None:
    path, values = tmp_path / "model.safetensors", np.eye(4, dtype=np.float32)
    for note in range(19_000, 19_280):  # its length is written before it: 19,280 is PK in bytes
        safetensors.numpy.save_file({"wpe.weight": values}, path, {"note": "x" * note})
        if path.read_bytes().startswith(b"PK"):
            break
    assert path.read_bytes().startswith(b"PK")
    np.testing.assert_array_equal(load(str(path)).values, values)
