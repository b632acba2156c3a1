"""A table as text: what `extract` writes is read again, and anything else is refused clearly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import posprobe as pp
from posprobe.errors import InvalidCheckpoint, InvalidTable, UnknownReference
from posprobe.report import write_table


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_extract_writes_is_read_again_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    rng = np.random.default_rng(0)
    values = (rng.standard_normal((50, 7)) * 10.0 ** rng.integers(-8, 8, (50, 7))).astype(dtype)
    write_table(pp.table(values, name="made"), tmp_path / "made.csv")
    table = pp.load(str(tmp_path / "made.csv"))
    assert table.values.dtype == dtype
    np.testing.assert_array_equal(table.values, values)
    assert table.name == "made.csv"


def test_a_grid_can_be_named_for_text(tmp_path: Path) -> None:
    write_table(pp.load("sample:digits-vit"), tmp_path / "digits.csv")
    table = pp.load(str(tmp_path / "digits.csv"), grid=(8, 8))
    assert table.layout == pp.load("sample:digits-vit").layout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1,2,3\n4,5\n", "number of columns changed from 3 to 2 at row 2"),
        ("1,2\nthree,4\n", r"could not convert string 'three' to float64 at row 2, column 1\)"),
        ("a,b\n1,2\n", "no heading"),
        ("", r"not a table of numbers \(input contained no data\)"),
        ("1;2\n3;4\n", "separated by commas"),
        ("\xff\xfe", "not a table of numbers"),
        ("1,,2\n3,4,5\n", "could not convert"),
    ],
)
def test_damaged_text_is_refused_with_the_place(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidCheckpoint, match=says):
        pp.load(str(path))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "could not convert"),
        ({"index": False}, "first line counts the columns, 0 to 3, as a heading"),
        ({"header": False}, "first column counts the lines, 0 to 8, as an index"),
    ],
    ids=["both", "heading", "index"],
)
def test_the_labels_of_a_data_frame_are_no_numbers_of_a_table(
    tmp_path: Path, options: dict[str, bool], says: str
) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 4)))
    frame.to_csv(tmp_path / "frame.csv", **options)
    with pytest.raises(InvalidCheckpoint, match=rf"frame\.csv: .*{says}.*header=False"):
        pp.load(str(tmp_path / "frame.csv"))
    frame.to_csv(tmp_path / "frame.csv", header=False, index=False)
    table = pp.load(str(tmp_path / "frame.csv"))
    np.testing.assert_array_equal(np.asarray(table), frame.to_numpy())
    frame[2:].to_csv(tmp_path / "frame.csv", header=False)
    with pytest.raises(InvalidCheckpoint, match="counts the lines, 2 to 8"):
        pp.load(str(tmp_path / "frame.csv"))


@pytest.mark.parametrize(
    "formula", ["counting:9x4", "counting:9x1", "binary:9x4", "sinusoidal:9x2"]
)
def test_formulas_that_count_are_no_labels(tmp_path: Path, formula: str) -> None:
    table = pp.load(formula)
    write_table(table, tmp_path / "formula.csv")
    read = np.asarray(pp.load(str(tmp_path / "formula.csv"), tensor="values"))
    np.testing.assert_array_equal(read, np.asarray(table))


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    for number in ("nan", "inf", "1e999"):
        (tmp_path / "bad.csv").write_text(f"1,2\n{number},4\n5,6\n")
        with pytest.raises(InvalidTable, match="NaN or infinity"):
            pp.load(str(tmp_path / "bad.csv"))


def test_text_too_long_for_memory_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posprobe.checkpoints.arrayfiles.MAX_TEXT", 10)
    (tmp_path / "long.csv").write_text("1,2\n" * 3)
    with pytest.raises(InvalidCheckpoint, match=r"12 bytes of text; up to 10 are read.*\.npy"):
        pp.load(str(tmp_path / "long.csv"))
    with pytest.raises(UnknownReference, match="no such file"):
        pp.load(str(tmp_path / "none.csv"))


def test_a_folder_of_checkpoints_names_them(tmp_path: Path) -> None:
    for name in ("a", "b", "deep/c", "far/far/away"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        np.save(folder / "model.npy", np.eye(4))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidCheckpoint) as caught:
        pp.load(str(tmp_path))
    names = [str(tmp_path / name) for name in ("a", "b", "deep/c")]
    assert f"Choose one: {', '.join(names)}." in str(caught.value)
    with pytest.raises(InvalidCheckpoint, match="no files"):
        pp.load(str(tmp_path / "empty"))


def test_of_many_checkpoints_some_are_named(tmp_path: Path) -> None:
    for number in range(25):
        (tmp_path / f"{number:02}").mkdir()
        np.save(tmp_path / f"{number:02}" / "model.npy", np.eye(4))
    with pytest.raises(InvalidCheckpoint, match=r"/19, and more\.$"):
        pp.load(str(tmp_path))
