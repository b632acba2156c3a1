"""A table that is written to a file of its own holds the same values."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_bundles import tree
from made_tables import as_table, gaussian, walk
from safetensors import safe_open

import posprobe as pp
from posprobe.errors import OutputError, UsageError
from posprobe.report import write_table


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".csv"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_extracted_table_holds_the_same_values(suffix: str, dtype: Any, tmp_path: Path) -> None:
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
        again = pp.load(str(path), tensor="table" if suffix == ".npy" else "values")
        np.testing.assert_array_equal(again.values, table.values)


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the suffix must be \.npy"):
        write_table(as_table(walk(12, 4)), tmp_path / "table.xlsx")
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("where", ["missing/table.npy", "taken/table.npy", "folder.npy"])
def test_a_table_that_cannot_be_written_leaves_everything_as_it_was(
    where: str, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "folder.npy").mkdir()
    before = tree(tmp_path)
    with pytest.raises(OutputError, match=r"no folder .*missing|taken|it is a folder"):
        write_table(as_table(walk(12, 4)), tmp_path / where)
    assert tree(tmp_path) == before
