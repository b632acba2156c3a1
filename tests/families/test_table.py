"""The table: what it refuses to hold, and what a slice of it is."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from posprobe.errors import InvalidTable, UsageError
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.sources import Source
from posprobe.tables import DroppedRow, PositionTable, PrefixRow

SOURCE = Source("it", "/where/it/is", tensor="wpe.weight", shape=(9, 4), dtype="F32")


def table(values: Any, layout: Layout | None = None, **options: Any) -> PositionTable:
    return PositionTable(values, layout or Sequence(len(values)), "it", SOURCE, **options)


def numbered(n: int, layout: Layout | None = None, **options: Any) -> PositionTable:
    """Row ``i`` holds ``i``."""
    return table(np.repeat(np.arange(float(n)), 2).reshape(n, 2), layout, **options)


def positions(cut: PositionTable) -> list[int]:
    return [int(row) for row in cut.values[:, 0]]


# --- slices ---


@given(
    st.integers(1, 30), st.integers(-40, 40) | st.none(), st.integers(-40, 40) | st.none()
)
def test_a_slice_keeps_the_rows_that_a_list_would(
    n: int, a: int | None, b: int | None
) -> None:
    expected_rows = list(range(n))[a:b]
    table = numbered(n)
    if not expected_rows:
        with pytest.raises(UsageError, match="nothing is left"):
            table[a:b]
        return
    cut = table[a:b]
    assert positions(cut) == expected_rows
    assert len(cut) == len(expected_rows)
    assert cut.rows == (expected_rows[0], expected_rows[-1] + 1)
    assert cut.layout == Sequence(len(expected_rows))


@given(st.integers(1, 30), st.data())
def test_a_slice_of_a_slice_counts_from_the_slice(n: int, data: st.DataObject) -> None:
    a = data.draw(st.integers(0, n - 1))
    b = data.draw(st.integers(a + 1, n))
    c = data.draw(st.integers(0, b - a - 1))
    d = data.draw(st.integers(c + 1, b - a))
    inner, direct = numbered(n)[a:b][c:d], numbered(n)[a + c : a + d]
    assert positions(inner) == positions(direct)
    assert inner.rows == direct.rows == (a + c, a + d)
    assert inner.layout == direct.layout


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_a_slice_of_a_grid_is_a_grid_where_it_is_made_of_whole_rows(
    height: int, width: int, data: st.DataObject
) -> None:
    a = data.draw(st.integers(0, height * width - 1))
    b = data.draw(st.integers(a + 1, height * width))
    cut = numbered(height * width, Grid(height, width))[a:b]
    assert positions(cut) == list(range(a, b))
    if a % width or b % width:
        assert cut.layout == Sequence(b - a)
    else:
        assert cut.layout == Grid((b - a) // width, width)
        assert cut.start == a


def test_slices_keep_the_description_of_their_table() -> None:
    table = numbered(
        9, kind="fixed", family="bert", prefix=np.ones((1, 2)),
        prefix_rows=(PrefixRow(0, "CLS"),), dropped=(DroppedRow(1, "padding"),), notes=("seen",),
    )  # fmt: skip
    cut = table[2:5]
    for name in ("name", "source", "kind", "family", "prefix_rows", "dropped", "notes"):
        assert getattr(cut, name) == getattr(table, name)
    np.testing.assert_array_equal(cut.prefix, table.prefix)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        *((rows, r"0 <= A < B <= 9") for rows in (
            slice(0, 8, 2), slice(None, None, -1), slice(7, 2), slice(9, None), slice(3, 3))),
        *((rows, r"table\[1:128\]") for rows in (3, -1, (slice(0, 3), 1), [1, 2], None)),
        *((rows, r"it: slice\(.* are not rows.*whole numbers") for rows in (
            slice(0, 8, 0), slice(0.0, 4.0), slice("a", "b"))),
    ],
    ids=str,
)  # fmt: skip
def test_an_invalid_row_slice_is_wrong_usage(rows: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        numbered(9)[rows]
    assert caught.value.exit_code == 2


# --- values ---


def test_values_are_read_only_and_not_copied() -> None:
    values = np.ones((3, 2))
    prefix = np.zeros((1, 2))
    it = table(values, prefix=prefix, prefix_rows=(PrefixRow(0, "CLS"),))
    assert np.shares_memory(it.values, values)
    for array in (it.values, it.prefix, it[1:].values, np.asarray(it)):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 5
    values[0, 0] = 5  # the caller's own array is left as it was
    with pytest.raises(FrozenInstanceError):
        it.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_stored_precision_is_kept(dtype: type[np.floating[Any]]) -> None:
    it = table(np.ones((3, 2), dtype))
    assert it.values.dtype == np.asarray(it).dtype == dtype
    assert it.dim == 2


def test_numpy_reads_the_values() -> None:
    it = numbered(4)
    assert np.shares_memory(np.asarray(it), it.values)
    assert not np.shares_memory(np.array(it), it.values)
    assert np.asarray(it, dtype=np.float32).dtype == np.float32
    assert (
        np.linalg.norm(it, axis=1).tolist() == np.linalg.norm(it.values, axis=1).tolist()
    )
    with pytest.raises(ValueError, match="copy"):
        np.array(it, dtype=np.float32, copy=False)


@pytest.mark.parametrize(
    ("values", "layout", "says"),
    [
        (np.ones(4), Sequence(4), r"shape \[4\].*two dimensions"),
        (np.ones((4, 2), np.int64), Sequence(4), "int64.*floating-point"),
        (np.ones((4, 2), complex), Sequence(4), "complex128.*floating-point"),
        (np.array([[None]]), Sequence(1), "object.*floating-point"),
        (np.ones((0, 2)), Sequence(0), "empty"),
        (np.ones((0, 0)), Grid(0, 5), "empty"),
        (np.ones((4, 2)), Grid(2, 3), "4 rows do not fill a grid of 2 x 3"),
    ],
)
def test_an_invalid_table_is_refused(values: Any, layout: Layout, says: str) -> None:
    with pytest.raises(InvalidTable, match=rf"^it: .*{says}") as caught:
        table(values, layout)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_counted_and_named(value: float) -> None:
    values = np.ones((20, 3))
    values[[2, 3, 11], [0, 1, 2]] = value
    with pytest.raises(InvalidTable, match=r"3 of 20 rows.*2, 3, 11\b(?!, )"):
        table(values)
    with pytest.raises(InvalidTable, match=r"102, 103, 111"):
        table(values, start=100)
    values[:] = value
    with pytest.raises(InvalidTable, match=r"20 of 20 rows.*0, 1, 2, 3, 4, \.\.\."):
        table(values)


# --- how it shows itself ---


def test_the_long_form_describes_the_table() -> None:
    html = numbered(6, Grid(2, 3), dropped=(DroppedRow(0, "padding"),))._repr_html_()
    for part in ("grid of 2 x 3", "wpe.weight", "row 0: padding", "learned"):
        assert part in html


def test_the_long_form_escapes_text_from_files() -> None:
    evil = "<script>alert(1)</script>"
    source = Source(evil, evil, tensor=evil)
    it = PositionTable(
        np.ones((2, 2)), Sequence(2), evil, source, prefix=np.ones((1, 2)),
        prefix_rows=(PrefixRow(0, evil),), dropped=(DroppedRow(1, evil),),
    )  # fmt: skip
    assert "<script" not in it._repr_html_()
