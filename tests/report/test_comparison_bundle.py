"""A comparison's bundle: published values beside ours, document, arrays and page."""

from __future__ import annotations

import json
from html import unescape
from typing import TYPE_CHECKING

import numpy as np
import pytest
from made_schemas import problems
from made_tables import as_table, walk

import posprobe as pp
from posprobe.report import compare, to_json
from posprobe.report.comparison import published_for
from posprobe.report.narrator.words import similarity
from posprobe.report.page import page_of

if TYPE_CHECKING:
    from pathlib import Path

    from posprobe.report import Comparison
    from posprobe.tables import PositionTable


# --- published values ---


@pytest.fixture(scope="module")
def with_published() -> Comparison:
    only = ("pca", "probes", "sinusoid")
    return compare(pp.sinusoidal(512, 768), smooth_512(), only=only, nulls=1, device="cpu")


def smooth_512() -> PositionTable:
    return as_table(walk(512, 16), name="smooth")


def test_a_known_table_has_its_published_values_beside_ours(with_published: Comparison) -> None:
    document = json.loads(to_json(with_published.to_dict()))
    assert problems("comparison", document) == []
    known, unknown = document["tables"]
    assert unknown["published"] == []
    values = {value["key"]: value for value in known["published"]}
    assert set(values) == {value.key for value in published_for(pp.sinusoidal(512, 768))}
    absolute = values["probes.absolute_published.mae"]
    assert "Wang & Chen 2020" in absolute["citation"]
    assert absolute["value"] == 0
    assert absolute["ours"] == known["probes"]["absolute_published"]["mae"] == 0
    order = values["probes.order_published.error"]
    assert order["value"] == 0.0508
    assert abs(order["ours"] - order["value"]) < order["tolerance"]
    assert {value["matched"] for value in values.values()} == {"formula"}
    assert {value["differs"] for value in values.values()} == {""}


def test_published_values_stand_on_the_page(with_published: Comparison, tmp_path: Path) -> None:
    from posprobe.report.screen import text

    page = (with_published.save(tmp_path / "b") / "report.html").read_text("utf-8")
    assert "Published values" in page
    assert "Wang &amp; Chen 2020" in page
    assert "0.0508" in page
    assert "None" not in text(with_published.to_dict(), verbose=True).split()


# --- the bundle ---


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables = (
        pp.load("sample:all-minilm-l6-v2")[:192],
        pp.sinusoidal(192, 384),
        as_table(walk(240, 32), name='<b>bold</b> & $x_1$ "quoted"'),
    )
    comparison = compare(*tables, nulls=3, device="cpu")
    return comparison.save(tmp_path_factory.mktemp("comparison") / "bundle")


def test_the_bundle_is_complete(bundle: Path) -> None:
    assert {path.name for path in bundle.iterdir()} == {
        "analysis.json", "arrays.npz", "figures", "report.html",
    }  # fmt: skip
    drawn = {path.name for path in (bundle / "figures").iterdir()}
    names = ("similarity", "curves", "variance", "distances")
    assert drawn == {f"{name}.svg" for name in names}


def test_the_arrays_hold_every_table_and_the_distances(bundle: Path) -> None:
    document = json.loads((bundle / "analysis.json").read_text("utf-8"))
    with np.load(bundle / "arrays.npz") as arrays:
        assert arrays["0_values"].shape == (192, 384)
        assert arrays["2_values"].shape == (240, 32)
        for index in range(3):
            rows = document["tables"][index]["table"]["positions"]
            assert arrays[f"{index}_similarity"].shape == (rows, rows)
        for i, j, pair in zip((0, 0, 1), (1, 2, 2), document["pairs"], strict=True):
            assert arrays["cka"][i, j] == arrays["cka"][j, i] == pair["cka"]
            assert arrays["procrustes"][i, j] == pair["procrustes"]


def test_the_page_says_what_was_cut_and_shows_every_number(bundle: Path) -> None:
    page = (bundle / "report.html").read_text("utf-8")
    assert "use the first 192 positions" in page
    assert "between positions 127 and 128" in page
    assert "Wang &amp; Chen" not in page
    document = json.loads((bundle / "analysis.json").read_text("utf-8"))
    for pair in document["pairs"]:
        walk = pair["nulls"]["walk"]
        assert similarity(pair["cka"]) in page
        assert f"{similarity(walk['p5'])} to {similarity(walk['p95'])}" in page
        assert f"{pair['procrustes']:.3g} (0: a rotated copy)" in page


def test_what_an_answer_was_held_against_stands_beside_its_table(bundle: Path) -> None:
    page = page_of(json.loads((bundle / "analysis.json").read_text("utf-8")))
    source = unescape((bundle / "report.html").read_text("utf-8"))
    told = 0
    for found in page.evidence:
        for name, line in zip(page.subjects, found.lines, strict=False):
            if len(found.lines) > 1 and line.facts:
                assert f"{name}: {line.facts}" in source
                told += 1
    assert told > 6
