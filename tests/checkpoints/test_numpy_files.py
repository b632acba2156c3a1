"""Files of NumPy: read back, mapped, and never unpickled."""

from __future__ import annotations

import pickle
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from made_files import FLOATS, VALUES, Payload, arrays, npy, quick, write

from posprobe.checkpoints import open_local
from posprobe.errors import InvalidCheckpoint, InvalidTable


@quick
@given(arrays, st.booleans(), st.booleans())
def test_npy_and_npz_read_back(
    tmp_path: Path, array: np.ndarray[Any, Any], fortran: bool, compressed: bool
) -> None:
    array = np.asfortranarray(array) if fortran else array
    np.save(tmp_path / "table.npy", array)
    save = np.savez_compressed if compressed else np.savez
    save(tmp_path / "all.npz", table=array, other=VALUES)
    for file in ("table.npy", "all.npz"):
        checkpoint = open_local(tmp_path / file)
        info = checkpoint.tensors["table"]
        assert info.shape == array.shape
        assert info.dtype == FLOATS[array.dtype]
        read = checkpoint.read("table")
        assert read.values.shape == array.shape
        assert read.values.tobytes() == array.tobytes()
        assert read.sha256 == sha256(array.tobytes()).hexdigest()
    np.testing.assert_array_equal(open_local(tmp_path / "all.npz").read("other").values, VALUES)


@pytest.mark.parametrize("code", [">f8", ">f4", ">f2"])
@pytest.mark.parametrize("file", ["table.npy", "all.npz"])
def test_numpy_files_of_the_other_byte_order(code: str, file: str, tmp_path: Path) -> None:
    array = VALUES.astype(code)
    np.save(tmp_path / "table.npy", array)
    np.savez(tmp_path / "all.npz", table=array)
    read = open_local(tmp_path / file).read("table")
    np.testing.assert_array_equal(read.values, array)
    assert read.sha256 == sha256(array.astype(code.replace(">", "<")).tobytes()).hexdigest()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_numpy_files_of_every_format_version(version: tuple[int, int], tmp_path: Path) -> None:
    with (tmp_path / "table.npy").open("wb") as stream:
        np.lib.format.write_array(stream, VALUES, version=version)
    with zipfile.ZipFile(tmp_path / "all.npz", "w") as archive:
        archive.write(tmp_path / "table.npy", "table.npy")
        archive.writestr("README.txt", "not an array")
    for file in ("table.npy", "all.npz"):
        np.testing.assert_array_equal(open_local(tmp_path / file).read("table").values, VALUES)


def test_numpy_object_arrays_are_refused_without_unpickling(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    array = np.array([[Payload(trace)]], dtype=object)
    np.save(tmp_path / "table.npy", array, allow_pickle=True)
    np.savez(tmp_path / "all.npz", table=array, allow_pickle=True)
    with pytest.raises(InvalidCheckpoint, match="Python objects"):
        open_local(tmp_path / "table.npy")
    with pytest.raises(InvalidTable, match="object"):
        open_local(tmp_path / "all.npz").read("table")
    assert not trace.exists()


BAD_NPY = {
    "empty": b"",
    "magic alone": b"\x93NUMPY",
    "a pickle": pickle.dumps([1, 2]),
    "header cut": npy("(6, 4)")[:30],
    "data cut": npy("(6, 4)", data=b"\0" * 95),
    "shape of 2^60": npy(f"({2**60},)"),
    "shape beyond an index": npy(f"({2**70},)"),
    "shape overflows": npy(f"({2**32}, {2**32}, 16)"),
    "shape is negative": npy("(-6, -4)"),
    "shape is not a tuple": npy("6"),
    "shape is code": npy("(__import__('os').getpid(),)"),
    "header is nested deeply": npy("(" * 5000 + ")" * 5000),
    "header without shape": npy("(6, 4)").replace(b"shape", b"shale"),
    "dtype is none": npy("(6, 4)", "<f3"),
    "dtype is void": npy("(6, 4)", "|O"),
    "version 9": npy("(6, 4)").replace(b"\x01\x00", b"\x09\x00", 1),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_NPY)
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_a_damaged_numpy_file_is_one_clear_error(case: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.{kind}"
    if kind == "npy":
        write(path, BAD_NPY[case])
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("table.npy", BAD_NPY[case])
    with pytest.raises((InvalidCheckpoint, InvalidTable), match=path.name) as caught:
        open_local(path).read("table")
    assert caught.value.exit_code == 4


def test_an_archive_of_no_arrays_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.npz", "w") as archive:
        archive.writestr("README.txt", "nothing here")
    with pytest.raises(InvalidCheckpoint, match="holds no arrays"):
        open_local(tmp_path / "all.npz")
