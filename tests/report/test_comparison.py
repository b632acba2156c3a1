"""Comparisons: the same in any order and rotation, and cut rather than resampled."""

from __future__ import annotations

import json
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_bundles import BUNDLE_FILES
from made_schemas import problems
from made_tables import (
    as_table,
    gaussian,
    patches,
    rotation,
    smooth as correlated,
    walk,
    waves,
)

import posprobe as pp
from posprobe.errors import InvalidTable, UsageError
from posprobe.layouts import Grid
from posprobe.report import to_json
from posprobe.report.render import build_page, render
from posprobe.report.screen import render_text
from posprobe.studies import compare
from posprobe.studies.published import find_published
from posprobe.words.formats import format_similarity

if TYPE_CHECKING:
    from pathlib import Path

    from posprobe.tables import PositionTable

Document = dict[str, Any]
NUMBERS = ("cka", "cka_biased", "procrustes", "subspace_overlap", "subspace_rank")
#: What is asked of tables where a test is about their distances: it takes next to no time.
LITTLE = ("norms",)
#: And where it is about what is drawn beside their numbers.
SOME_MEASUREMENTS = ("similarity", "pca", "spectrum")


def learned() -> PositionTable:
    return as_table(waves(90, [6.0, 18.0, 40.0], noise=0.1), name="learned")


def smooth() -> PositionTable:
    return as_table(walk(90, 10), name="smooth")


def noise() -> PositionTable:
    return as_table(gaussian(90, 7), name="noise")


def against(
    *tables: PositionTable, nulls: int = 3, measurements: tuple[str, ...] | None = None
) -> Document:
    comparison = compare(*tables, nulls=nulls, only=measurements, device="cpu")
    document: Document = json.loads(to_json(comparison.to_dict()))
    return document


def turned(table: PositionTable, seed: int = 9) -> PositionTable:
    return replace(table, values=np.asarray(table.values) @ rotation(table.dim, seed))


def pair_of(document: Document, *labels: str) -> Document:
    (pair_found,) = (
        pair for pair in document["pairs"] if set(pair["tables"]) == set(labels)
    )
    pair: Document = pair_found
    return pair


# --- order, rotation, scale, width ---


def test_the_order_of_tables_changes_no_number() -> None:
    tables = {table.name: table for table in (learned(), smooth(), noise())}
    in_order = against(*tables.values(), measurements=SOME_MEASUREMENTS)
    blocks = {entry["label"]: entry for entry in in_order["tables"]}
    order = ("noise", "learned", "smooth")
    reordered = against(*(tables[name] for name in order), measurements=SOME_MEASUREMENTS)
    assert [entry["label"] for entry in reordered["tables"]] == list(order)
    for entry in reordered["tables"]:
        assert entry | {"environment": 0} == blocks[entry["label"]] | {"environment": 0}
    for pair in reordered["pairs"]:
        expected = pair_of(in_order, *pair["tables"])
        for name in NUMBERS:
            assert pair[name] == pytest.approx(expected[name], rel=1e-12)
        assert pair["nulls"] == expected["nulls"]
        assert pair["undefined"] == expected["undefined"]


def test_a_rotation_of_either_table_changes_nothing() -> None:
    plain = against(learned(), smooth(), measurements=SOME_MEASUREMENTS)
    for a, b in ((turned(learned()), smooth()), (learned(), turned(smooth()))):
        rotated_comparison = against(a, b, measurements=SOME_MEASUREMENTS)
        for name in NUMBERS:
            assert rotated_comparison["pairs"][0][name] == pytest.approx(
                plain["pairs"][0][name], rel=1e-9
            )
        for expected, entry in zip(
            plain["tables"], rotated_comparison["tables"], strict=True
        ):
            for key, block in expected["nulls"]["numbers"].items():
                number = entry["nulls"]["numbers"][key]
                assert number["value"] == pytest.approx(block["value"], rel=1e-6), key
                assert number["sinusoid"] == block["sinusoid"]
                # The same directions and orders are drawn, whatever the axes.
                for name in ("gaussian", "permuted"):
                    if block[name] is None:
                        assert number[name] is None, key
                    else:
                        assert number[name] == pytest.approx(
                            block[name], rel=1e-3, abs=1e-4
                        ), key


def test_independent_noise_has_no_alignment_and_two_walks_do() -> None:
    """The warning that stands on the page, and the reason for the bands of pairs."""
    tables = [as_table(gaussian(90, 200, seed), name=f"noise {seed}") for seed in (0, 1)]
    tables += [as_table(walk(90, 200, seed), name=f"walk {seed}") for seed in (2, 3)]
    document = against(*tables, nulls=9, measurements=LITTLE)
    of_noise = pair_of(document, "noise 0", "noise 1")
    assert abs(of_noise["cka"]) < 0.05
    assert of_noise["cka_biased"] > 0.5
    of_walks = pair_of(document, "walk 2", "walk 3")
    assert of_walks["cka"] > 0.97
    band = of_walks["nulls"]["walk"]
    width = band["p95"] - band["p5"]
    assert band["p5"] - 2 * width < of_walks["cka"] < band["p95"] + 2 * width
    assert abs(of_walks["nulls"]["gaussian"]["p50"]) < 0.05


# --- length ---


def test_numbers_are_of_own_rows_and_distances_of_common_ones() -> None:
    long_table, short_table = (
        as_table(walk(80, 6), name="long"),
        as_table(walk(50, 8, 1), name="short"),
    )
    document = against(long_table, short_table)
    assert document["length"] == 50
    assert [entry["table"]["positions"] for entry in document["tables"]] == [80, 50]
    by_hand = against(long_table[:50], short_table, measurements=LITTLE)
    for name in NUMBERS:
        assert document["pairs"][0][name] == by_hand["pairs"][0][name]
    single_document = pp.analyze(long_table, nulls=0, device="cpu").to_dict()
    assert document["tables"][0]["pca"] == single_document["pca"]
    assert document["tables"][0]["verdict"] == single_document["verdict"]


def test_measurements_are_chosen_as_in_an_analysis() -> None:
    document = against(smooth(), noise(), measurements=("pca",))
    assert [("pca" in t, "similarity" in t) for t in document["tables"]] == [
        (True, False)
    ] * 2
    assert "verdict" not in document
    assert document["pairs"][0]["cka"] is not None
    with pytest.raises(UsageError, match="no analysis is chosen"):
        against(smooth(), noise(), measurements=())


@pytest.mark.parametrize(
    "other_table",
    [patches(7, 6, 12), patches(6, 6, 12), as_table(gaussian(42, 12))],
    ids=["turned", "smaller", "sequence"],
)
def test_a_grid_has_no_distance_from_another_layout(other_table: PositionTable) -> None:
    for pair in ((patches(6, 7, 12), other_table), (other_table, patches(6, 7, 12))):
        document = against(*pair, measurements=("pca",))
        assert document["pairs"][0]["cka"] is None
        assert "no positions in common" in document["pairs"][0]["undefined"]["cka"]
        equal_grids = against(pair[0], pair[0], measurements=("pca",))
        assert document["tables"][0]["pca"] == equal_grids["tables"][0]["pca"]


# --- names ---


def test_tables_of_one_name_get_different_labels() -> None:
    first, second = as_table(walk(30, 4)), as_table(walk(30, 4, 1))
    document = against(first, second, first, measurements=LITTLE)
    assert [entry["label"] for entry in document["tables"]] == [
        "made (1)",
        "made (2)",
        "made (3)",
    ]
    assert pair_of(document, "made (1)", "made (3)")["cka"] == pytest.approx(1)
    tricky = [replace(first, name=name) for name in ("a", "a", "a (1)")]
    labels = [entry["label"] for entry in against(*tricky, measurements=LITTLE)["tables"]]
    assert len(set(labels)) == 3
    assert labels[2] == "a (1)"


# --- what cannot be compared ---


def test_a_comparison_needs_two_tables() -> None:
    for tables in ((), (smooth(),)):
        with pytest.raises(UsageError, match="at least two tables"):
            compare(*tables)


def test_a_single_row_has_nothing_to_compare() -> None:
    with pytest.raises(InvalidTable, match="at least two rows"):
        compare(smooth(), as_table(gaussian(1, 4)), device="cpu")


LEAN: dict[str, tuple[PositionTable, PositionTable]] = {
    "two rows": (as_table(gaussian(2, 3)), as_table(gaussian(2, 5, 1))),
    "three rows": (as_table(gaussian(3, 3)), as_table(gaussian(3, 5, 1))),
    "rank one": (as_table(np.outer(np.arange(20.0), np.ones(4))), as_table(walk(20, 4))),
    "both of rank one": (
        as_table(np.outer(np.arange(20.0), np.ones(4))),
        as_table(np.outer(np.arange(20.0) + 3, [1.0, 2, 3])),
    ),
    "constant": (as_table(np.full((20, 4), 0.1)), as_table(walk(20, 4))),
    "both constant": (as_table(np.ones((20, 4))), as_table(np.zeros((20, 4)))),
    "constant where cut": (
        as_table(walk(90, 4) * (np.arange(90) > 60)[:, None]),
        pp.sinusoidal(40, 12),
    ),
    "constant grid": (as_table(np.ones((20, 4)), Grid(4, 5)), pp.sincos2d(4, 5, 12)),
    "one column": (as_table(gaussian(20, 1)), as_table(walk(20, 1))),
    "a zero row": (
        as_table(np.vstack([np.zeros((1, 4)), gaussian(19, 4)])),
        as_table(walk(20, 4)),
    ),
}


@pytest.mark.parametrize("name", LEAN)
def test_undefined_numbers_have_a_reason(name: str, tmp_path: Path) -> None:
    comparison = compare(*LEAN[name], nulls=2, device="cpu")
    document = json.loads(to_json(comparison.to_dict()))
    assert problems("comparison", document) == []
    (pair,) = document["pairs"]
    undefined_keys = {key for key in NUMBERS if pair[key] is None}
    assert undefined_keys == set(pair["undefined"])
    assert all(pair["undefined"].values())
    expected = set()
    if "constant" in name:
        expected = {"cka", "cka_biased", "procrustes", "subspace_overlap"}
    elif name in ("two rows", "three rows"):
        expected = {"cka"}
    assert undefined_keys == expected
    if name in ("both constant", "two rows"):
        # Drawings take most of the time.
        page = (comparison.save(tmp_path / "bundle") / "report.html").read_text("utf-8")
        assert all(reason in unescape(page) for reason in pair["undefined"].values())


# --- published values ---


def test_a_known_table_has_its_published_values_beside_ours() -> None:
    # From patches it has no distance, which would take its time.
    tables = pp.sinusoidal(512, 768), patches(4, 4, 8)
    document_found = compare(*tables, only=("pca", "probes"), device="cpu").to_dict()
    document = json.loads(to_json(document_found))
    assert problems("comparison", document) == []
    known_table, unknown = document["tables"]
    assert unknown["published"] == []
    values = {value["key"]: value for value in known_table["published"]}
    assert set(values) == {value.key for value in find_published(tables[0])}
    absolute = values["probes.absolute_published.mae"]
    assert "Wang & Chen 2020" in absolute["citation"]
    assert absolute["value"] == 0
    assert absolute["ours"] == known_table["probes"]["absolute_published"]["mae"] == 0
    order = values["probes.order_published.error"]
    assert order["value"] == 0.0508
    assert abs(order["ours"] - order["value"]) < order["tolerance"]
    assert {value["matched"] for value in values.values()} == {"formula"}
    assert {value["differs"] for value in values.values()} == {""}
    page = render(document_found, {})
    for phrase in ("Published values", "Wang &amp; Chen 2020", "0.0508"):
        assert phrase in page
    assert "None" not in render_text(document_found, verbose=True).split()


# --- the bundle ---


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    halves = np.concatenate([correlated(80, 24, 8.0), correlated(64, 24, 8.0, seed=1)])
    tables = (
        as_table(halves),
        pp.sinusoidal(144, 48),
        as_table(walk(180, 32), name='<b>bold</b> & $x_1$ "quoted"'),
    )
    comparison = compare(*tables, nulls=9, device="cpu")
    return comparison.save(tmp_path_factory.mktemp("comparison") / "bundle")


def test_without_draws_similarity_is_not_compared_with_chance() -> None:
    tables = pp.sinusoidal(32, 8), as_table(walk(32, 8))
    document = compare(*tables, only=["norms"], device="cpu").to_dict()
    (pair,) = document["pairs"]
    assert pair["nulls"] is None
    page = build_page(document)
    assert "random walks" not in f"{page.headline} {page.key}"
    assert "--nulls" in page.key


def test_chosen_measurements_are_printed_as_analyze_prints_them() -> None:
    tables = pp.sinusoidal(48, 8), as_table(walk(48, 8))
    text = render_text(compare(*tables, only=["probes"], device="cpu").to_dict())
    for table in tables:
        document = pp.analyze(table, only=["probes"], nulls=0, device="cpu").to_dict()
        for row in build_page(document).numbers.rows:
            (line,) = (line for line in text.splitlines() if line.startswith(str(row[0])))
            assert str(row[1]) in line.removeprefix(str(row[0])).split()


def test_the_arrays_hold_every_table_and_the_distances(bundle: Path) -> None:
    assert {path.name for path in bundle.iterdir()} == BUNDLE_FILES
    figure_names = {path.stem for path in (bundle / "figures").iterdir()}
    own_names = {
        "overview-budget",
        "overview-map-0",
        "overview-map-1",
        "overview-map-2",
        "overview-dimensions",
        "overview-closeness",
    }
    assert figure_names == own_names | {"similarity", "curves", "variance", "distances"}
    document = json.loads((bundle / "analysis.json").read_text("utf-8"))
    with np.load(bundle / "arrays.npz") as arrays:
        assert arrays["0_values"].shape == (144, 24)
        assert arrays["2_values"].shape == (180, 32)
        for index in range(3):
            rows = document["tables"][index]["table"]["positions"]
            assert arrays[f"{index}_similarity"].shape == (rows, rows)
        for i, j, pair in zip((0, 0, 1), (1, 2, 2), document["pairs"], strict=True):
            assert arrays["cka"][i, j] == arrays["cka"][j, i] == pair["cka"]
            assert arrays["procrustes"][i, j] == pair["procrustes"]


def test_the_page_reports_cut_rows_and_every_number(bundle: Path) -> None:
    page = (bundle / "report.html").read_text("utf-8")
    assert "use the first 144 positions" in page
    assert "between positions 79 and 80" in page
    assert "Wang &amp; Chen" not in page
    document = json.loads((bundle / "analysis.json").read_text("utf-8"))
    for pair in document["pairs"]:
        walk = pair["nulls"]["walk"]
        assert format_similarity(pair["cka"]) in page
        assert f"up to {format_similarity(walk['p95'])}" in page
        assert f"{pair['procrustes']:.3g} (0: a rotated copy)" in page


def test_strips_show_the_null_of_every_answer(bundle: Path) -> None:
    page = build_page(json.loads((bundle / "analysis.json").read_text("utf-8")))
    source = unescape((bundle / "report.html").read_text("utf-8"))
    n_strips = 0
    for evidence in page.evidence:
        for name, line in zip(page.subjects, evidence.lines, strict=False):
            if len(evidence.lines) > 1 and line.facts:
                assert f"{name}: {line.facts}" in source
                n_strips += 1
    assert n_strips > 6
