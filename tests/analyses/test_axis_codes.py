"""Row codes and column codes of grids that are made of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from made_tables import as_table, patches, rotation, walk
from matplotlib.figure import Figure

from posprobe.analyses.descriptive.grid import axis_codes, grid
from posprobe.analyses.result import as_block
from posprobe.figures.grid import plot_axis_codes
from posprobe.layouts import Grid
from posprobe.tables import PositionTable


def circles(height: int, width: int, turns: tuple[float, float]) -> PositionTable:
    """Make rows go round one circle and columns another, of radius 2 and 1."""
    row_angle = 2 * np.pi * turns[0] * np.arange(height) / height
    column_angle = 2 * np.pi * turns[1] * np.arange(width) / width
    rows = 2 * np.stack([np.cos(row_angle), np.sin(row_angle)], axis=1)
    columns = np.stack([np.cos(column_angle), np.sin(column_angle)], axis=1)
    cells = np.concatenate(
        [
            np.repeat(rows[:, None], width, axis=1),
            np.repeat(columns[None], height, axis=0),
        ],
        axis=2,
    )
    return as_table(
        cells.reshape(height * width, 4) @ rotation(4, 3) + 5, Grid(height, width)
    )


def test_two_circles_are_found_with_their_shares_and_turns() -> None:
    codes = axis_codes(circles(16, 20, (1, 3)))
    # Radius 2 against 1: the variances are as 4 to 1.
    assert codes.axes["rows"].share == pytest.approx(0.8, abs=1e-12)
    assert codes.axes["columns"].share == pytest.approx(0.2, abs=1e-12)
    assert codes.interaction_share == pytest.approx(0, abs=1e-12)
    for axis, length, turns in (("rows", 16, 1), ("columns", 20, 3)):
        code = codes.axes[axis]
        assert code.code.shape == (length, 4)
        pair = code.winding.pairs[0]
        assert pair.turns == pytest.approx(turns * (length - 1) / length, abs=1e-9)
        assert pair.radius_cv == pytest.approx(0, abs=1e-9)
        assert pair.share == pytest.approx(1, abs=1e-12)


def test_codes_are_means_and_shares_those_of_the_grid() -> None:
    table = patches(7, 9, 12)
    codes = axis_codes(table)
    cells = np.asarray(table).reshape(7, 9, 12)
    np.testing.assert_allclose(
        codes.axes["columns"].code,
        cells.mean(axis=0) - cells.mean(axis=(0, 1)),
        atol=1e-12,
    )
    grid_result = grid(table)
    assert codes.axes["rows"].share == pytest.approx(grid_result.row_share)
    assert codes.axes["columns"].share == pytest.approx(grid_result.column_share)
    assert codes.interaction_share == pytest.approx(grid_result.interaction_share)
    total = (
        codes.axes["rows"].share + codes.axes["columns"].share + codes.interaction_share
    )
    assert total == pytest.approx(1, abs=1e-12)


# --- undefined results ---


def test_a_code_that_is_not_there_has_no_components() -> None:
    columns = np.tile(walk(9, 4), (7, 1))  # the same in every row of patches
    codes = axis_codes(as_table(columns, Grid(7, 9)))
    rows = as_block(codes.axes["rows"])
    assert rows["share"] == pytest.approx(0, abs=1e-20)
    assert rows["top4"] is None
    assert "same everywhere" in rows["undefined"]["top4"]
    assert rows["winding"]["pairs"] is None
    json.dumps(as_block(codes), allow_nan=False)


# --- figures ---


def test_shares_of_axes_are_drawn_as_bars() -> None:
    ax = Figure().add_subplot()
    plot_axis_codes(ax, axis_codes(circles(8, 10, (1, 2))))
    widths = [bar.get_width() for bar in ax.patches]  # type: ignore[attr-defined]
    assert widths == pytest.approx([0.8, 0.2, 0.0])
