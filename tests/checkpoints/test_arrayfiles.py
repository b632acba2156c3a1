"""Arrays as files: NumPy's, and text; read back, mapped, and never unpickled."""

from __future__ import annotations

import json
import pickle
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from hypothesis import given, strategies as st
from made_bundles import tree
from made_files import FLOAT_DTYPES, VALUES, Payload, arrays, npy, quick, write
from made_tables import as_table, gaussian, walk
from safetensors import safe_open

import posprobe as pp
from posprobe.checkpoints import open_local
from posprobe.errors import InvalidCheckpoint, InvalidTable, OutputError, UsageError
from posprobe.report import write_table


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
        assert info.dtype == FLOAT_DTYPES[array.dtype]
        read = checkpoint.read("table")
        assert read.values.shape == array.shape
        assert read.values.tobytes() == array.tobytes()
        assert read.sha256 == sha256(array.tobytes()).hexdigest()
    np.testing.assert_array_equal(
        open_local(tmp_path / "all.npz").read("other").values, VALUES
    )


def test_how_a_member_of_an_archive_is_stored_changes_no_number(tmp_path: Path) -> None:
    """What is not compressed, by rows and little-endian is mapped; anything else is unpacked."""
    values = np.tile(VALUES, (300, 1))
    ways: dict[str, Any] = {
        "rows": values, "columns": np.asfortranarray(values), "big": values.astype(">f4"),
        "half": values.astype("f2"), "turned": values.T,
    }  # fmt: skip
    np.savez(tmp_path / "plain.npz", allow_pickle=False, **ways)
    np.savez_compressed(tmp_path / "packed.npz", allow_pickle=False, **ways)
    plain, packed = (open_local(tmp_path / f"{name}.npz") for name in ("plain", "packed"))
    for name, expected in ways.items():
        np.save(tmp_path / f"{name}.npy", expected)
        for checkpoint in (plain, packed, open_local(tmp_path / f"{name}.npy")):
            np.testing.assert_array_equal(checkpoint.read(name).values, expected)
            selected_rows = checkpoint.read_rows(name, [0, 2, 3])
            np.testing.assert_array_equal(selected_rows, expected[[0, 2, 3]])
            assert checkpoint.read(name).sha256 == plain.read(name).sha256
    assert [name for name, info in plain.tensors.items() if info.stop] == ["rows", "half"]
    assert not any(info.stop for info in packed.tensors.values())
    content = bytearray((tmp_path / "plain.npz").read_bytes())
    content[plain.tensors["rows"].stop - 9] ^= 1
    (tmp_path / "bit.npz").write_bytes(content)
    with pytest.raises(InvalidCheckpoint, match=r"bit\.npz.*rows.*checksum"):
        open_local(tmp_path / "bit.npz").read("rows")


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_numpy_files_of_every_format_version(
    version: tuple[int, int], tmp_path: Path
) -> None:
    with (tmp_path / "table.npy").open("wb") as stream:
        np.lib.format.write_array(stream, VALUES, version=version)
    with zipfile.ZipFile(tmp_path / "all.npz", "w") as archive:
        archive.write(tmp_path / "table.npy", "table.npy")
        archive.writestr("README.txt", "not an array")
    with zipfile.ZipFile(tmp_path / "none.npz", "w") as archive:
        archive.writestr("README.txt", "nothing here")
    with pytest.raises(InvalidCheckpoint, match="holds no arrays"):
        open_local(tmp_path / "none.npz")
    for file in ("table.npy", "all.npz"):
        np.testing.assert_array_equal(
            open_local(tmp_path / file).read("table").values, VALUES
        )


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
    "a pickle": pickle.dumps([1, 2]),
    "data cut": npy("(6, 4)", data=b"\0" * 95),
    "shape of 2^60": npy(f"({2**60},)"),
    "shape overflows": npy(f"({2**32}, {2**32}, 16)"),
    "shape is negative": npy("(-6, -4)"),
    "shape is code": npy("(__import__('os').getpid(),)"),
    "header is nested deeply": npy("(" * 5000 + ")" * 5000),
    "dtype is void": npy("(6, 4)", "|O"),
    "version 9": npy("(6, 4)").replace(b"\x01\x00", b"\x09\x00", 1),
}


@pytest.mark.parametrize("case", BAD_NPY)
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_a_damaged_numpy_file_is_one_clear_error(
    case: str, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / f"table.{kind}"
    if kind == "npy":
        write(path, BAD_NPY[case])
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("table.npy", BAD_NPY[case])
    with pytest.raises((InvalidCheckpoint, InvalidTable), match=path.name):
        open_local(path).read("table")


def test_an_archive_that_holds_an_array_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("table.npy", npy("(6, 4)", data=bytes(96)))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("table.npy", npy("(6, 4)", data=b"\1" * 96))
    with pytest.raises(InvalidCheckpoint, match=r"table\.npy' is in the archive twice"):
        open_local(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1,2,3\n4,5\n", "number of columns changed from 3 to 2 at row 2"),
        ("1,2\nthree,4\n", "could not convert string 'three' to float64"),
        ("a,b\n1,2\n", "no heading"),
        ("", "not a table of numbers .*input contained no data"),
        ("1;2\n3;4\n", "separated by commas"),
        ("\xff\xfe", "not a table of numbers"),
        ("1,2\n" * 30, r"120 bytes of text; up to 100 are read.*\.npy"),
        ("1,2\nnan,4\n5,6\n", "NaN or infinity"),
        ("1,2\n1e999,4\n5,6\n", "NaN or infinity"),
    ],
)
def test_text_that_is_no_table_is_refused_with_the_place(
    tmp_path: Path, text: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posprobe.checkpoints.arrayfiles.MAX_TEXT_BYTES", 100)
    path = tmp_path / "bad.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises((InvalidCheckpoint, InvalidTable), match=says):
        pp.load(str(path))


@pytest.mark.parametrize(
    ("first_row", "options", "says"),
    [
        (0, {}, "could not convert"),
        (0, {"index": False}, "first line counts the columns, 0 to 3, as a heading"),
        (0, {"header": False}, "first column counts the lines, 0 to 8, as an index"),
        (2, {"header": False}, "counts the lines, 2 to 8"),
    ],
)
def test_the_labels_of_a_data_frame_are_no_numbers_of_a_table(
    tmp_path: Path, first_row: int, options: dict[str, bool], says: str
) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 4)))[first_row:]
    frame.to_csv(tmp_path / "frame.csv", **options)
    with pytest.raises(InvalidCheckpoint, match=rf"frame\.csv: .*{says}.*header=False"):
        pp.load(str(tmp_path / "frame.csv"))
    frame.to_csv(tmp_path / "frame.csv", header=False, index=False)
    table = pp.load(str(tmp_path / "frame.csv"))
    np.testing.assert_array_equal(np.asarray(table), frame.to_numpy())


@pytest.mark.parametrize(
    "formula", ["counting:9x4", "counting:9x1", "binary:9x4", "sinusoidal:9x2"]
)
def test_formulas_that_count_are_no_labels(tmp_path: Path, formula: str) -> None:
    table = pp.load(formula)
    write_table(table, tmp_path / "formula.csv")
    read = np.asarray(pp.load(str(tmp_path / "formula.csv"), tensor="values"))
    np.testing.assert_array_equal(read, np.asarray(table))


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".csv"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_extracted_table_holds_the_same_values(
    suffix: str, dtype: Any, tmp_path: Path
) -> None:
    values = (gaussian(12, 4) * 10 ** gaussian(12, 4, 1)).astype(dtype)
    table = replace(as_table(values), prefix=np.ones((2, 4), dtype=dtype))
    path = tmp_path / f"table{suffix}"
    write_table(table, path)
    match suffix:
        case ".npy":
            values = np.load(path, allow_pickle=False)
        case ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                values = arrays["values"]
                np.testing.assert_array_equal(arrays["prefix"], np.ones((2, 4)))
        case ".safetensors":
            with safe_open(path, "np") as file:
                values = file.get_tensor("values")
                assert json.loads(file.metadata()["posprobe.table"])["positions"] == 12
        case _:
            values = np.loadtxt(path, delimiter=",").astype(dtype)
    assert values.dtype == dtype
    np.testing.assert_array_equal(values, table.values)
    if dtype != np.float16:  # text is of single or double precision
        reloaded = pp.load(str(path), tensor="table" if suffix == ".npy" else "values")
        np.testing.assert_array_equal(reloaded.values, table.values)


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the suffix must be \.npy"):
        write_table(as_table(walk(12, 4)), tmp_path / "table.xlsx")
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("target", ["missing/table.npy", "taken/table.npy", "folder.npy"])
def test_a_table_that_cannot_be_written_leaves_everything_as_it_was(
    target: str, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "folder.npy").mkdir()
    files_before = tree(tmp_path)
    with pytest.raises(OutputError, match=r"no folder .*missing|taken|it is a folder"):
        write_table(as_table(walk(12, 4)), tmp_path / target)
    assert tree(tmp_path) == files_before
