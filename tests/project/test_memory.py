"""Arrays, parameters and lists in memory become tables; references must be loaded first."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import ml_dtypes
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pytest
import torch

import posprobe as pp
from posprobe import families
from posprobe.errors import InvalidTable, MissingExtra, NoPositionTable, UsageError
from posprobe.layouts import Grid

VALUES = np.random.default_rng(0).normal(size=(24, 6))


@pytest.mark.parametrize(
    "values",
    [
        VALUES,
        VALUES[None],
        VALUES.tolist(),
        torch.from_numpy(VALUES),
        torch.nn.Parameter(torch.from_numpy(VALUES)),
    ],
    ids=["array", "leading axis", "lists", "tensor", "parameter"],
)
def test_every_array_form_gives_the_same_table(values: Any) -> None:
    table = pp.table(values, name="mine")
    np.testing.assert_array_equal(np.asarray(table), VALUES)
    assert table.shape == (24, 6)
    assert table.source.dtype == "F64"
    assert pp.table(table) is table


def test_half_formats_are_widened_exactly_and_named() -> None:
    for kind, name in ((torch.bfloat16, "BF16"), (torch.float16, "F16")):
        stored = torch.from_numpy(VALUES).to(kind)
        table = pp.table(stored)
        assert table.source.dtype == name
        np.testing.assert_array_equal(np.asarray(table), stored.float().numpy())


def test_a_grid_must_fit_the_rows() -> None:
    assert pp.table(VALUES, grid=(4, 6)).layout == Grid(4, 6)
    with pytest.raises(InvalidTable, match="24 rows do not fill a grid of 5 x 5"):
        pp.table(VALUES, grid=(5, 5))


@pytest.mark.parametrize(
    "grid", [(-4, -6), (0, 24), (4.0, 6.0), (24,), (4, 6, 1, 1), 24, "4x6"], ids=str
)
def test_impossible_grids_are_refused(grid: Any) -> None:
    message = "is not a grid. Give height and width as two whole numbers above 0"
    with pytest.raises(UsageError, match=re.escape(message)):
        pp.table(VALUES, grid=grid)
    with pytest.raises(UsageError, match=re.escape(message)):
        pp.load("sample:digits-vit", grid=grid)


def test_an_unknown_kind_is_refused() -> None:
    assert pp.table(VALUES, kind="fixed").kind == "fixed"
    kind: Any = "made"
    with pytest.raises(UsageError, match="'learned' or 'fixed', not 'made'"):
        pp.table(VALUES, kind=kind)


def test_paths_are_references_and_arrays_are_not(tmp_path: Path) -> None:
    path = tmp_path / "mine.npy"
    np.save(path, VALUES)
    table = pp.load(path)
    np.testing.assert_array_equal(np.asarray(table), VALUES)
    assert table.source == pp.load(str(path)).source
    assert families.inspect(path) == families.inspect(str(path))
    argument: Any
    for argument in (VALUES, table, None, 3, b"gpt2", [str(path)]):
        for use in (pp.load, pp.load_schemes):
            with pytest.raises(
                UsageError, match=r"text or a path, not \w+: .*posprobe\.table"
            ):
                use(argument)


def test_schemes_of_a_position_table_are_refused_with_a_hint() -> None:
    with pytest.raises(
        NoPositionTable, match=r"position table and no other.*posprobe\.load\.$"
    ):
        pp.load_schemes("sample:digits-vit")


@pytest.mark.parametrize("rows", [3, "1:5", (1, 5), range(3)], ids=str)
def test_rows_are_a_slice(rows: Any) -> None:
    with pytest.raises(UsageError, match=r"are not rows.*slice\(1, 512\)"):
        pp.load("sample:digits-vit", rows=rows)


def test_checksums_of_tables_follow_their_values() -> None:
    first, second = pp.table(VALUES), pp.table(VALUES + 1)
    assert first.source.sha256 != second.source.sha256
    assert first.source.sha256 == pp.table(VALUES.copy()).source.sha256


def test_arrays_are_analysed_and_compared_like_tables() -> None:
    by_array = pp.analyze(VALUES, only=("pca",), nulls=0).to_dict()
    by_table = pp.analyze(pp.table(VALUES), only=("pca",), nulls=0).to_dict()
    assert by_array["pca"] == by_table["pca"]
    comparison = pp.compare(pp.sinusoidal(24, 6), VALUES, only=("pca",), nulls=0)
    assert comparison.labels == ("sinusoidal:24x6", "table")


@pytest.mark.parametrize(
    "values",
    [
        torch.nn.Embedding(4, 2),
        {"a": 1},
        None,
        3.0,
        [[1.0, 2.0], [3.0]],
        [torch.nn.Parameter(torch.ones(2))] * 4,
        np.zeros((3, 24, 8)),
        np.zeros((4, 2), dtype=int),
        np.full((4, 2), np.nan),
        np.zeros((0, 4)),
    ],
    ids=[
        "module",
        "dict",
        "none",
        "number",
        "ragged",
        "parameters",
        "3-d",
        "integers",
        "nan",
        "empty",
    ],
)
def test_values_that_are_no_table_are_refused(values: Any) -> None:
    with pytest.raises(InvalidTable, match=r"^table: "):
        pp.table(values)


COMPLEX = VALUES + 1j * VALUES[::-1]


def nested_tensor() -> torch.Tensor:
    with warnings.catch_warnings(action="ignore"):  # a prototype, says torch
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def quantised_tensor() -> torch.Tensor:
    with warnings.catch_warnings(action="ignore"):  # deprecated, says torch
        return torch.quantize_per_tensor(
            torch.from_numpy(VALUES).float(), 0.1, 0, torch.qint8
        )


#: Values that would lose information as real floating-point numbers, by dtype.
LOSSY_VALUES: dict[str, Callable[[], Any]] = {
    "complex128": lambda: COMPLEX,
    "complex128 ": COMPLEX.tolist,
    "complex128, strided": lambda: torch.from_numpy(COMPLEX).conj(),
    "float64, masked": lambda: np.ma.masked_greater(VALUES, 1),
    "float64, masked ": lambda: list(np.ma.masked_greater(VALUES, 1)),
    "bool": (VALUES > 0).tolist,
    "bool, strided": lambda: torch.from_numpy(VALUES) > 0,
    "<U1": lambda: [["1", "2"], ["3", "4"]],
    "object": lambda: VALUES.astype(object),
    "datetime64": lambda: np.zeros((4, 2), "M8[s]"),
    "'x', '<f4'": lambda: np.zeros((4, 2), [("x", "f4")]),
    "float64, sparse_coo": lambda: torch.from_numpy(VALUES).to_sparse(),
    "float8_e4m3fn, strided": lambda: torch.from_numpy(VALUES).to(torch.float8_e4m3fn),
    "float8_e5m2": lambda: VALUES.astype(ml_dtypes.float8_e5m2),
    "float32, strided": lambda: torch.empty(4, 2, device="meta"),
    "float32, strided ": nested_tensor,
    "qint8, strided": quantised_tensor,
}


@pytest.mark.parametrize("dtype", LOSSY_VALUES)
@pytest.mark.parametrize("use", [pp.table, pp.pca], ids=["table", "pca"])
def test_lossy_dtypes_are_refused_with_advice(use: Any, dtype: str) -> None:
    message = (
        rf" of .*{re.escape(dtype.strip())}.* real floating-point numbers.*x\.dequantize"
    )
    with pytest.raises(InvalidTable, match=message):
        use(LOSSY_VALUES[dtype]())


def test_dequantised_tensors_are_accepted() -> None:
    tenths = np.asarray(pp.table(quantised_tensor().dequantize())) * 10
    np.testing.assert_allclose(tenths, np.round(tenths), atol=1e-4)


def test_unusual_storage_loses_no_values() -> None:
    numbers = torch.from_numpy(COMPLEX)
    np.testing.assert_array_equal(
        np.asarray(pp.table(numbers.conj().imag)), -COMPLEX.imag
    )
    np.testing.assert_array_equal(
        np.asarray(pp.table(np.ma.masked_array(VALUES))), VALUES
    )
    for kind, name in ((ml_dtypes.bfloat16, "BF16"), (">f4", "F32")):
        stored = VALUES.astype(kind)
        table = pp.table(stored)
        assert table.source.dtype == name
        np.testing.assert_array_equal(np.asarray(table), stored.astype(np.float32))


def test_tables_convert_to_pandas_or_polars_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = pp.table(VALUES)[4:10]
    frame = table.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame["position"]) == list(range(4, 10))
    np.testing.assert_array_equal(frame.drop(columns="position").to_numpy(), VALUES[4:10])
    monkeypatch.setattr(
        "posprobe.drawable.find_spec", lambda name: name == "polars" and find_spec(name)
    )
    assert isinstance(table.to_frame(), pl.DataFrame)
    monkeypatch.setattr("posprobe.drawable.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match="pip install pandas"):
        table.to_frame()


def test_plot_passes_properties_to_the_axes() -> None:
    ax = pp.pca(VALUES).plot(title="mine", xlim=(1, 3))
    assert ax.get_title(loc="left") == "mine"
    assert ax.get_xlim() == (1, 3)
    plt.close()
    with pytest.raises(AttributeError, match="no_such"):
        pp.pca(VALUES).plot(no_such=1)
    assert not plt.get_fignums()
