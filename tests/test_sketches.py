"""The small drawings beside answers show the numbers that the answers name, for every table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from made_tables import as_table, gaussian, walk, waves
from numpy.typing import NDArray

import posprobe as pp
from posprobe.layouts import Grid
from posprobe.report.page import render
from posprobe.report.panel import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Panel
from posprobe.report.sketches import sketches


def drawn(table: pp.PositionTable) -> tuple[dict[str, Any], dict[str, str]]:
    analysis = pp.analyze(table, nulls=0)
    document = analysis.to_dict()
    return document, sketches(document, analysis.arrays())


def marks(svg: str, tag: str, kind: str) -> list[Mapping[str, str]]:
    root = ET.fromstring(svg)  # noqa: S314 - our own drawing
    return [part.attrib for part in root.iter(tag) if part.get("class") == kind]


def codes(height: int, width: int, d: int) -> NDArray[np.float64]:
    rows, columns = waves(height, [height]), waves(width, [width])
    table = np.concatenate(
        [np.repeat(rows, width, axis=0), np.tile(columns, (height, 1))], axis=1, dtype=np.float64
    )
    return table @ gaussian(table.shape[1], d, 3) + 0.05 * gaussian(height * width, d, 4)


def test_a_panel_places_points_by_its_axes() -> None:
    panel = Panel("t", (1, 100), (0, 2), log_x=True)
    panel.dots([1, 10, 100], [0, 1, 2])
    found = marks(panel.svg("a text"), "circle", "own")
    places = [(float(dot["cx"]), float(dot["cy"])) for dot in found]
    middle = ((LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2)
    assert np.array(places) == pytest.approx(
        np.array([(LEFT, BOTTOM), middle, (RIGHT, TOP)]), abs=0.06
    )


def test_words_in_a_panel_are_text() -> None:
    panel = Panel('<script>"&', (0, 1), (0, 1))
    made = panel.svg('"><script>')
    assert "<script" not in made
    root = ET.fromstring(made)  # noqa: S314 - our own drawing
    assert root.get("aria-label") == '"><script>'
    assert [part.text for part in root.iter("text")] == ['<script>"&']


def test_rotations_are_marked_at_their_periods() -> None:
    periods = [6.0, 18.0, 54.0]
    table = np.asarray(waves(324, periods), dtype=np.float64) @ gaussian(6, 32, 1)
    document, found = drawn(as_table(table + 0.3 * gaussian(324, 32, 2)))
    answer = next(a for a in document["verdict"]["answers"] if a["question"] == "rotations")
    named = [rotation["period"] for rotation in answer["value"]]
    assert sorted(named) == pytest.approx(periods, rel=0.05)
    lines = marks(found["rotations"], "line", "named")
    places = [LEFT + (RIGHT - LEFT) * np.log(p / 2) / np.log(324 / 2) for p in named]
    assert [float(line["x1"]) for line in lines] == pytest.approx(places, abs=0.06)
    # The power is greatest there: lines are drawn from the table, not from the answer.
    (curve,) = marks(found["rotations"], "polyline", "own")
    points = np.array([pair.split(",") for pair in curve["points"].split()], dtype=float)
    for place in places:
        near = points[np.abs(points[:, 0] - place) < 4, 1]
        assert near.min() < np.median(points[:, 1]) - 10


def test_special_rows_are_marked_where_they_are() -> None:
    values = walk(200, 16)
    values[77] += 40
    document, found = drawn(as_table(values))
    answer = next(a for a in document["verdict"]["answers"] if a["question"] == "special_rows")
    assert answer["value"] == [77]
    (dot,) = marks(found["special_rows"], "circle", "named")
    assert float(dot["cx"]) == pytest.approx(LEFT + (RIGHT - LEFT) * 77 / 199, abs=0.06)


def test_bars_are_as_long_as_their_shares() -> None:
    document, found = drawn(as_table(codes(12, 12, 24), Grid(12, 12)))
    answer = next(a for a in document["verdict"]["answers"] if a["question"] == "rows_and_columns")
    (row,) = marks(found["rows_and_columns"], "rect", "own")
    (column,) = marks(found["rows_and_columns"], "rect", "named")
    widths = [float(bar["width"]) / (RIGHT - LEFT) for bar in (row, column)]
    shares = [answer["value"]["row_share"], answer["value"]["column_share"]]
    assert widths == pytest.approx(shares, abs=0.001)


def test_the_winding_is_drawn_as_often_round_as_it_goes() -> None:
    place = np.arange(300) / 300
    circle = np.stack([np.cos(2 * np.pi * 5 * place), np.sin(2 * np.pi * 5 * place), place], axis=1)
    _, found = drawn(as_table(circle @ gaussian(3, 12, 1) + 0.01 * gaussian(300, 12, 2)))
    (path,) = marks(found["winding"], "polyline", "own")
    points = np.array([pair.split(",") for pair in path["points"].split()], dtype=float)
    centre = points - [(LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2]
    phase = np.unwrap(np.arctan2(centre[:, 1], centre[:, 0]))
    assert abs(phase[-1] - phase[0]) / (2 * np.pi) == pytest.approx(5, abs=0.2)


TABLES: dict[str, pp.PositionTable] = {
    "constant": as_table(np.ones((20, 4))),
    "two rows": as_table(gaussian(2, 4)),
    "three rows": as_table(gaussian(3, 4)),
    "one column": as_table(walk(64, 1)),
    "zero rows": as_table(np.where(np.arange(40)[:, None] == 30, 0.0, gaussian(40, 6))),
    "noise": as_table(gaussian(64, 16)),
    "walk": as_table(walk(128, 16)),
    "huge": as_table(gaussian(40, 6) * 1e60),
    "tiny": as_table(gaussian(40, 6) * 1e-60),
    "sinusoid": pp.sinusoidal(128, 32),
    "grid": as_table(gaussian(25, 6), Grid(5, 5)),
    "narrow grid": as_table(gaussian(6, 6), Grid(2, 3)),
    "slice": as_table(walk(90, 8))[30:],
}


@pytest.mark.parametrize("name", TABLES)
def test_every_drawing_stays_in_its_frame_and_says_what_it_shows(name: str) -> None:
    _, found = drawn(TABLES[name])
    for svg in found.values():
        assert "nan" not in svg
        assert "inf" not in svg
        root = ET.fromstring(svg)  # noqa: S314 - our own drawing
        assert len(root.get("aria-label", "")) > 20
        for part in root.iter():
            for key, limit in (("x", WIDTH), ("cx", WIDTH), ("x1", WIDTH), ("x2", WIDTH)):
                assert -2 <= float(part.get(key, 0)) <= limit + 2
            for key, limit in (("y", HEIGHT), ("cy", HEIGHT), ("y1", HEIGHT), ("y2", HEIGHT)):
                assert -2 <= float(part.get(key, 0)) <= limit + 2
            for pair in part.get("points", "").split():
                x, y = map(float, pair.split(","))
                assert -2 <= x <= WIDTH + 2
                assert -2 <= y <= HEIGHT + 2


def test_drawings_stand_on_the_page_and_only_where_there_is_a_verdict() -> None:
    analysis = pp.analyze(pp.sinusoidal(64, 16), nulls=0)
    document, arrays = analysis.to_dict(), analysis.arrays()
    page = render(document, {}, arrays)
    assert page.count('class="sketch"') == len(sketches(document, arrays)) > 3
    del document["verdict"]
    assert sketches(document, arrays) == {}
    assert 'class="sketch"' not in render(document, {}, arrays)


def test_patches_of_a_grid_are_not_drawn_as_if_they_stood_in_a_line() -> None:
    _, found = drawn(pp.sincos2d(8, 8, 32))
    assert found
    assert not {"special_rows", "smooth", "stationary"} & set(found)


def test_a_document_that_lies_about_its_numbers_puts_no_markup_on_the_page() -> None:
    analysis = pp.analyze(pp.sinusoidal(64, 16), nulls=0)
    document, arrays = analysis.to_dict(), analysis.arrays()
    for answer in document["verdict"]["answers"]:
        answer["value"] = {"cka": "<script>", "base": "<script>", "participation_ratio": "<script>"}
        answer["null"] = "<script>"
    with pytest.raises((TypeError, ValueError, LookupError)):
        sketches(document, arrays)


def test_a_table_of_any_basis_is_drawn_alike() -> None:
    values = np.asarray(waves(120, [10.0]), dtype=np.float64) @ gaussian(2, 6, 1)
    values = values + 0.1 * gaussian(120, 6, 2)
    turn = np.linalg.qr(gaussian(6, 6, 5))[0]
    heights = []
    for table in (values, values @ turn):
        _, found = drawn(as_table(table))
        heights.append(re.findall(r'points="([^"]*)"', found["stationary"]))
    assert heights[0] == heights[1]
