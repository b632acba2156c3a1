"""A file that was written from a transposed array is told from one that was not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import posprobe as pp

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("transposed", "rows"), [(True, 64), (False, 64), (True, 9)])
def test_the_order_of_a_file_is_doubted_only_where_its_rows_can_tell(
    transposed: bool, rows: int, tmp_path: Path
) -> None:
    values = np.asarray(pp.sinusoidal(rows, 16).values)
    values = values + 0.01 * np.random.default_rng(0).standard_normal(values.shape)
    np.save(tmp_path / "table.npy", values.T.reshape(rows, 16) if transposed else values)
    notes = " ".join(pp.load(str(tmp_path / "table.npy")).notes)
    assert ("written from a transposed array" in notes) is (transposed and rows > 9)
