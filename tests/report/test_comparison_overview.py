"""Drawings of the first screen of a comparison, from its document and arrays."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # our own drawings are parsed here, nothing from outside
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_pages import parse_page
from made_tables import as_table, patches, walk

import posprobe as pp
from posprobe.report import render_bundle
from posprobe.report.comparison_overview import (
    CURVE_CLASSES,
    MAP_NAMES,
    MAX_COMPARED_MAPS,
    draw_comparison_overview,
)
from posprobe.report.screen import render_text
from posprobe.report.svg import read_template
from posprobe.studies import compare
from posprobe.words.comparisons import comparison_headline, comparison_lead
from posprobe.words.lines import budget_terms


@pytest.fixture(scope="module")
def comparison() -> Any:
    return compare(as_table(walk(64, 8)), pp.sinusoidal(96, 16), nulls=3, device="cpu")


def drawings_of(comparison: Any) -> dict[str, str]:
    return draw_comparison_overview(comparison.to_dict(), comparison.arrays())


def test_every_table_has_a_bar_whose_segments_are_its_shares(comparison: Any) -> None:
    bars = drawings_of(comparison)["budget"].split('class="slot"')[2::2]
    for bar, table in zip(bars, comparison.to_dict()["tables"], strict=True):
        lengths = re.findall(r'<rect class="seg[^>]* width="([\d.]+)%"', bar)
        shares = [term.share for term in budget_terms(table)]
        assert [float(length) / 100 for length in lengths] == pytest.approx(
            shares, abs=1e-4
        )


def test_every_drawing_is_sound_and_described(comparison: Any) -> None:
    svgs = drawings_of(comparison)
    assert set(svgs) == {"budget", "map-0", "map-1", "dimensions", "closeness"}
    for svg in svgs.values():
        ET.fromstring(svg)  # noqa: S314
        assert "nan" not in svg.lower()
        assert 'aria-label="' in svg


def test_the_components_of_a_plane_are_two() -> None:
    angles = np.arange(40) / 3
    circle = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    line = np.arange(40.0)[:, None] * np.array([1.0, 2.0, 3.0])
    comparison = compare(
        circle, line, labels=["circle", "line"], only=["pca"], device="cpu"
    )
    label = drawings_of(comparison)["dimensions"]
    assert "circle 2, line 1" in label


def test_the_closeness_of_a_pair_lies_beside_its_band(comparison: Any) -> None:
    (pair,) = comparison.to_dict()["pairs"]
    svg = drawings_of(comparison)["closeness"]
    left, width = map(
        float, re.findall(r'class="null" x="([\d.]+)" y="[^"]*" width="([\d.]+)"', svg)[0]
    )
    (x,) = re.findall(r'cx="([\d.]+)"', svg)
    band = pair["nulls"]["walk"]
    scale = (float(x) - left) / (pair["cka"] - band["p5"])
    assert width == pytest.approx(scale * (band["p95"] - band["p5"]), rel=0.1, abs=0.3)


def test_a_grid_and_a_sequence_have_maps_and_no_closeness() -> None:
    svgs = drawings_of(
        compare(patches(5, 5, 6), as_table(walk(30, 6)), only=["similarity"])
    )
    assert "patch; cosine" in svgs["map-0"]
    assert "position; cosine" in svgs["map-1"]
    assert "closeness" not in svgs


def test_more_tables_than_maps_keep_the_first_maps() -> None:
    tables = [as_table(walk(12, 4, seed=seed)) for seed in range(MAX_COMPARED_MAPS + 1)]
    svgs = drawings_of(compare(*tables, only=["similarity", "pca"], device="cpu"))
    assert tuple(svgs) == MAP_NAMES


def test_the_headline_names_a_baseline_and_the_largest_part(comparison: Any) -> None:
    document = comparison.to_dict()
    headline = comparison_headline(document)
    assert "Baseline: sinusoidal:96x16 (formula)" in headline
    terms = budget_terms(document["tables"][0])
    assert f"is {max(terms, key=lambda term: term.share).value} " in headline
    assert "similar than random walks" in headline


def test_many_tables_are_counted_in_the_headline(comparison: Any) -> None:
    document = comparison.to_dict()
    table, formula = document["tables"]
    document["tables"] = [table] * 4 + [formula]
    rotating = 4 * sum(
        answer["question"] == "rotations" and answer["answer"] == "yes"
        for answer in table["verdict"]["answers"]
    )
    assert f"Of 4 tables, {rotating} have rotations" in comparison_headline(document)


def test_drawn_tables_are_named_as_baselines_and_never_counted(tmp_path: Path) -> None:
    compared = compare(
        as_table(walk(64, 8)), "sinusoidal", "walk", "gaussian", nulls=2, device="cpu"
    )
    document = compared.to_dict()
    headline = comparison_headline(document)
    assert "Baselines: sinusoidal:64x8 (formula); walk and gaussian (drawn)." in headline
    # Of six pairs, one has no drawn table.
    assert "made and sinusoidal:64x8 are" in headline
    page = parse_page(compared.save(tmp_path / "bundle"))
    heads = [e.text for e in page.all("th") if e.attributes.get("scope") == "col"]
    assert "walk baseline (drawn)" in " ".join(heads)
    terminal = render_text(document, 80)
    assert re.search(r"^baseline +formula +drawn +drawn$", terminal, re.MULTILINE)
    assert comparison_lead(document["tables"]) == (
        "1 position table and 3 baselines of 64 positions × 8"
    )


def test_more_than_three_tables_have_a_matrix_of_their_pairs() -> None:
    tables = [as_table(walk(24, 6, seed=seed)) for seed in range(4)]
    compared = compare(*tables, only=["pca", "similarity"], device="cpu")
    svg = drawings_of(compared)["closeness"]
    values = re.findall(r'class="lab"[^>]*>([^<]*)<', svg)
    by_labels = {frozenset(p["tables"]): p["cka"] for p in compared.to_dict()["pairs"]}
    labels = [table["label"] for table in compared.to_dict()["tables"]]
    expected = [
        by_labels[frozenset((labels[row], labels[column]))]
        for row in range(4)
        for column in range(row)
    ]
    assert [float(value) for value in values] == pytest.approx(expected, abs=0.006)


def test_curves_of_tables_differ_in_colour_and_dash() -> None:
    style_sheet = read_template("drawings.css")
    colours = re.findall(r"--k\d: (#\w+);", style_sheet)
    assert len(colours) == 2 * len(CURVE_CLASSES)  # light and dark
    assert all(len(set(half)) == 8 for half in (colours[:8], colours[8:]))
    rules = re.findall(r"^\.k\d \{ stroke: [^;]*;(.*)\}$", style_sheet, re.MULTILINE)
    assert len(set(rules)) == len(CURVE_CLASSES)


def test_every_number_says_what_it_is_and_of_which_rows(
    comparison: Any, tmp_path: Path
) -> None:
    folder = comparison.save(tmp_path / "bundle")
    page = parse_page(folder)
    cells = [e for e in page.all("th") if e.attributes.get("scope") == "row"]
    # Cells of questions are links, with their measure.
    numbers = [cell for cell in cells if "?" not in cell.text]
    assert len(numbers) > 20
    assert all(re.search(r"all rows|positions \d+ to \d+", n.text) for n in numbers)
    assert all(cell.attributes["title"].endswith(".") for cell in numbers)
    questions = [e for e in page.all("a") if e.attributes["href"].startswith("#")]
    assert all(len(e.attributes["title"].split()) > 8 for e in questions)


def test_a_bundle_without_its_page_is_drawn_again(
    comparison: Any, tmp_path: Path
) -> None:
    folder = comparison.save(tmp_path / "bundle")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 300_000
    (folder / "report.html").unlink()
    assert render_bundle(folder).read_text(encoding="utf-8") == page


def test_a_comparison_has_the_answers_of_each_table_by_its_label(comparison: Any) -> None:
    tables = comparison.to_dict()["tables"]
    assert list(comparison.answers) == [table["label"] for table in tables]
    for table in tables:
        blocks = table["verdict"]["answers"]
        answers = comparison.answers[table["label"]]
        assert [answer.sentence for answer in answers] == [b["sentence"] for b in blocks]
        assert answers.to_pandas()["answer"].tolist() == [b["answer"] for b in blocks]
    table = comparison.analyses[0].table
    assert not any(compare(table, table, only=["norms"]).answers.values())
