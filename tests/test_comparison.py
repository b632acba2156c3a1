"""Comparisons: the same in any order and rotation, cut rather than resampled, and their bundle."""

from __future__ import annotations

import json
import re
import sys
import zlib
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest
import referencing
from made_tables import as_table, gaussian, patches, rotation, walk, waves

import posprobe as pp
from posprobe.analyses.closeness import cka, procrustes
from posprobe.cli import main
from posprobe.errors import InvalidTable, UsageError
from posprobe.layouts import Grid
from posprobe.nulls import NULLS
from posprobe.report import compare, render_bundle, to_json
from posprobe.report.published import published_for

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from posprobe.report import Comparison
    from posprobe.tables import PositionTable

    Floats = NDArray[np.floating[Any]]

Document = dict[str, Any]
NUMBERS = ("cka", "cka_biased", "procrustes", "subspace_overlap", "subspace_rank")
#: What is asked of tables where a test is about their distances: it takes next to no time.
LITTLE = ("norms",)


def against(
    *tables: PositionTable, nulls: int = 3, only: tuple[str, ...] | None = None
) -> Document:
    comparison = compare(*tables, nulls=nulls, only=only, device="cpu")
    document: Document = json.loads(to_json(comparison.to_dict()))
    return document


def turned(table: PositionTable, seed: int = 9) -> PositionTable:
    return replace(table, values=np.asarray(table.values) @ rotation(table.dim, seed))


def pair_of(document: Document, *labels: str) -> Document:
    (found,) = (pair for pair in document["pairs"] if set(pair["tables"]) == set(labels))
    pair: Document = found
    return pair


def problems(document: Document) -> list[str]:
    folder = files("posprobe.report") / "schema"
    schemas = [json.loads((folder / f"{name}-1.json").read_text("utf-8")) for name in SCHEMAS]
    registry = referencing.Registry().with_resources(
        (schema["$id"], referencing.Resource.from_contents(schema)) for schema in schemas
    )
    validator = jsonschema.Draft202012Validator(schemas[0], registry=registry)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


SCHEMAS = ("comparison", "analysis")


def learned() -> PositionTable:
    return as_table(waves(90, [6.0, 18.0, 40.0], noise=0.1), name="learned")


def smooth() -> PositionTable:
    return as_table(walk(90, 10), name="smooth")


def noise() -> PositionTable:
    return as_table(gaussian(90, 7), name="noise")


# --- order ---


def test_the_order_of_the_tables_changes_nothing_but_the_order() -> None:
    tables = {table.name: table for table in (learned(), smooth(), noise())}
    first = against(*tables.values())
    blocks = {entry["label"]: entry for entry in first["tables"]}
    for order in (("noise", "learned", "smooth"), ("smooth", "noise", "learned")):
        other = against(*(tables[name] for name in order))
        assert [entry["label"] for entry in other["tables"]] == list(order)
        for entry in other["tables"]:
            expected = blocks[entry["label"]]
            assert entry | {"environment": 0} == expected | {"environment": 0}
        for pair in other["pairs"]:
            expected = pair_of(first, *pair["tables"])
            for name in NUMBERS:
                assert pair[name] == pytest.approx(expected[name], rel=1e-12)
            assert pair["nulls"] == expected["nulls"]
            assert pair["undefined"] == expected["undefined"]


def test_every_pair_stands_once_and_the_matrix_is_symmetric() -> None:
    comparison = compare(learned(), smooth(), noise(), only=LITTLE, nulls=2, device="cpu")
    pairs = [tuple(pair["tables"]) for pair in comparison.to_dict()["pairs"]]
    assert pairs == [("learned", "smooth"), ("learned", "noise"), ("smooth", "noise")]
    for name in ("cka", "procrustes", "subspace_overlap"):
        matrix = comparison.matrix(name)
        np.testing.assert_array_equal(matrix, matrix.T)
        assert np.isnan(np.diagonal(matrix)).all()
        assert np.isfinite(matrix[~np.eye(3, dtype=bool)]).all()


# --- rotation, scale, width ---


def test_a_rotation_of_either_table_changes_nothing() -> None:
    plain = against(learned(), smooth())
    for one, two in ((turned(learned()), smooth()), (learned(), turned(smooth()))):
        other = against(one, two)
        for name in NUMBERS:
            assert other["pairs"][0][name] == pytest.approx(plain["pairs"][0][name], rel=1e-9)
        for expected, entry in zip(plain["tables"], other["tables"], strict=True):
            for key, block in expected["nulls"]["numbers"].items():
                found = entry["nulls"]["numbers"][key]
                assert found["value"] == pytest.approx(block["value"], rel=1e-6), key
                assert found["sinusoid"] == block["sinusoid"]
                # The same directions and orders are drawn, whatever the axes.
                for name in ("gaussian", "permuted"):
                    assert found[name] == pytest.approx(block[name], rel=1e-3, abs=1e-4), key


def test_a_rotated_copy_is_the_same_table() -> None:
    (pair,) = against(smooth(), replace(turned(smooth()), name="copy"), only=LITTLE)["pairs"]
    assert pair["cka"] == pytest.approx(1)
    assert pair["procrustes"] == pytest.approx(0, abs=1e-6)
    assert pair["subspace_overlap"] == pytest.approx(1)


def test_a_unit_changes_nothing() -> None:
    plain = against(learned(), smooth(), only=LITTLE)["pairs"][0]
    huge = replace(smooth(), values=smooth().values * 1e30)
    other = against(learned(), huge, only=LITTLE)["pairs"][0]
    for name in NUMBERS:
        assert other[name] == pytest.approx(plain[name], rel=1e-9)
    for name in NULLS:
        # Another unit, other bytes: the two sides may have changed places, but no band breaks.
        assert np.isfinite(list(other["nulls"][name].values())).all()


def test_tables_of_other_width_are_compared_as_they_are() -> None:
    narrow, wide = learned(), as_table(walk(90, 200), name="wide")
    (pair,) = against(narrow, wide, only=LITTLE)["pairs"]
    assert pair["cka"] == pytest.approx(cka(narrow, wide))
    assert pair["procrustes"] == pytest.approx(procrustes(narrow, wide))
    # Columns of zeros add nothing to a table, so neither do they to a distance.
    padded = np.pad(np.asarray(narrow.values), ((0, 0), (0, 194)))
    (same,) = against(replace(narrow, values=padded), wide, only=LITTLE)["pairs"]
    for name in NUMBERS:
        assert same[name] == pytest.approx(pair[name], rel=1e-9)


def test_independent_noise_has_no_alignment_and_two_walks_do() -> None:
    """The warning that stands on the page, and the reason for the bands of pairs."""
    tables = [as_table(gaussian(90, 200, seed), name=f"noise {seed}") for seed in (0, 1)]
    tables += [as_table(walk(90, 200, seed), name=f"walk {seed}") for seed in (2, 3)]
    document = against(*tables, nulls=9, only=LITTLE)
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
    long, short = as_table(walk(130, 6), name="long"), as_table(walk(50, 8, 1), name="short")
    document = against(long, short)
    assert document["length"] == 50
    assert [entry["table"]["positions"] for entry in document["tables"]] == [130, 50]
    by_hand = against(long[:50], short, only=LITTLE)
    for name in NUMBERS:
        assert document["pairs"][0][name] == by_hand["pairs"][0][name]
    alone = pp.analyze(long, nulls=0, device="cpu").to_dict()
    assert document["tables"][0]["pca"] == alone["pca"]
    assert document["tables"][0]["verdict"] == alone["verdict"]


def test_measurements_are_chosen_as_in_an_analysis() -> None:
    document = against(smooth(), noise(), only=("pca",))
    assert [("pca" in t, "similarity" in t) for t in document["tables"]] == [(True, False)] * 2
    assert "verdict" not in document
    assert document["pairs"][0]["cka"] is not None


def test_a_table_keeps_the_positions_that_it_has() -> None:
    document = against(as_table(walk(130, 6))[40:90], noise(), only=LITTLE)
    assert document["tables"][0]["table"]["rows"] == [40, 90]
    assert document["tables"][1]["table"]["rows"] == [0, len(noise())]
    assert document["length"] == 50


def test_equal_grids_are_compared() -> None:
    document = against(patches(6, 7, 12), pp.sincos2d(6, 7, 24))
    assert document["length"] == 42
    assert all(entry["table"]["layout"]["type"] == "grid" for entry in document["tables"])
    assert document["tables"][1]["sinusoid"]["cka"] == pytest.approx(1)


@pytest.mark.parametrize(
    "other",
    [patches(7, 6, 12), patches(6, 6, 12), as_table(gaussian(42, 12))],
    ids=["turned", "smaller", "sequence"],
)
def test_a_grid_has_no_distance_from_what_lies_otherwise(other: PositionTable) -> None:
    for pair in ((patches(6, 7, 12), other), (other, patches(6, 7, 12))):
        document = against(*pair, only=("pca",))
        assert document["pairs"][0]["cka"] is None
        assert "no positions in common" in document["pairs"][0]["undefined"]["cka"]
        same = against(pair[0], pair[0], only=("pca",))
        assert document["tables"][0]["pca"] == same["tables"][0]["pca"]


# --- names ---


def test_tables_of_one_name_get_different_labels() -> None:
    first, second = as_table(walk(30, 4)), as_table(walk(30, 4, 1))
    document = against(first, second, first, only=LITTLE)
    assert [entry["label"] for entry in document["tables"]] == ["made (1)", "made (2)", "made (3)"]
    assert pair_of(document, "made (1)", "made (3)")["cka"] == pytest.approx(1)
    tricky = [replace(first, name=name) for name in ("a", "a", "a (1)")]
    labels = [entry["label"] for entry in against(*tricky, only=LITTLE)["tables"]]
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


def test_nan_is_no_number() -> None:
    values = walk(30, 4)
    values[3, 2] = np.nan
    with pytest.raises(InvalidTable, match="NaN"):
        compare(smooth(), as_table(values), device="cpu")


def test_more_draws_than_there_is_time_for_are_refused() -> None:
    with pytest.raises(UsageError, match="--nulls"):
        compare(smooth(), noise(), nulls=2**40, device="cpu")


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
    "a zero row": (as_table(np.vstack([np.zeros((1, 4)), gaussian(19, 4)])), as_table(walk(20, 4))),
}


@pytest.mark.parametrize("name", LEAN)
@pytest.mark.parametrize("nulls", [0, 2])
def test_what_is_undefined_has_a_reason(name: str, nulls: int, tmp_path: Path) -> None:
    comparison = compare(*LEAN[name], nulls=nulls, device="cpu")
    document = json.loads(to_json(comparison.to_dict()))
    assert problems(document) == []
    (pair,) = document["pairs"]
    none = {key for key in NUMBERS if pair[key] is None}
    assert none == set(pair["undefined"])
    assert all(pair["undefined"].values())
    expected = set()
    if "constant" in name:
        expected = {"cka", "cka_biased", "procrustes", "subspace_overlap"}
    elif name in ("two rows", "three rows"):
        expected = {"cka"}
    assert none == expected
    if nulls and name in ("rank one", "both constant", "constant grid", "two rows"):
        # Drawings take most of the time.
        page = (comparison.save(tmp_path / "bundle") / "report.html").read_text("utf-8")
        # Drawings say in words what each table's numbers are, undefined ones as well.
        drawn = r'<script.*?</script>|<svg.*?</svg>|<p class="caption".*?</p>'
        text = re.sub(drawn, "", page, flags=re.DOTALL)
        assert ("undefined" in text) == bool(expected)
        assert "No null models were drawn" not in page


def test_two_straight_lines_are_one_table() -> None:
    (pair,) = against(*LEAN["both of rank one"], only=LITTLE)["pairs"]
    assert pair["cka"] == pytest.approx(1)
    assert pair["procrustes"] == pytest.approx(0, abs=1e-6)
    assert pair["subspace_rank"] == 1


# --- published values ---


@pytest.fixture(scope="module")
def with_published() -> Comparison:
    only = ("pca", "probes", "sinusoid")
    return compare(pp.sinusoidal(512, 768), smooth_512(), only=only, nulls=1, device="cpu")


def smooth_512() -> PositionTable:
    return as_table(walk(512, 16), name="smooth")


def test_a_known_table_has_its_published_values_beside_ours(with_published: Comparison) -> None:
    document = json.loads(to_json(with_published.to_dict()))
    assert problems(document) == []
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


def test_published_values_stand_on_the_page_and_in_the_terminal(
    with_published: Comparison, tmp_path: Path
) -> None:
    from posprobe.cli.show import summary as text

    page = (with_published.save(tmp_path / "b") / "report.html").read_text("utf-8")
    assert "Published values and ours" in page
    assert "Wang &amp; Chen 2020" in page
    assert "0.0508" in page
    printed = text(with_published.to_dict())
    assert "0.0508" in printed
    assert "published" in printed
    assert "Not the same quantity" not in page


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
    assert drawn == {f"{name}.{kind}" for name in names for kind in ("svg", "png")}


def test_the_json_follows_the_schema(bundle: Path) -> None:
    document = json.loads((bundle / "analysis.json").read_text("utf-8"))
    assert document["schema"] == "posprobe.comparison/1"
    assert problems(document) == []
    assert document["length"] == 192
    assert [entry["table"]["positions"] for entry in document["tables"]] == [192, 192, 240]


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("length"),
        lambda document: document.update(surprise=1),
        lambda document: document["pairs"].clear(),
        lambda document: document["tables"].pop() and document["tables"].pop(),
        lambda document: document["tables"][0].pop("label"),
        lambda document: document["tables"][0].update(schema="posprobe.analysis/1"),
        lambda document: document["tables"][0]["table"].pop("name"),
        lambda document: document["tables"][0]["pca"].pop("stable_rank"),
        lambda document: document["pairs"][0].update(procrustes=1.5),
        lambda document: document["pairs"][0].update(tables=["one"]),
        lambda document: document["pairs"][0]["nulls"].update(walk={"p5": 1.0}),
        lambda document: document["pairs"][0].pop("undefined"),
        lambda document: document["environment"].pop("seed"),
        lambda document: document["tables"][0]["published"].append({"value": 1}),
    ],
)
def test_the_schema_notices(bundle: Path, change: Any) -> None:
    document = json.loads((bundle / "analysis.json").read_text("utf-8"))
    change(document)
    assert problems(document)


def test_the_schemas_are_schemas() -> None:
    for name in SCHEMAS:
        text = (files("posprobe.report") / "schema" / f"{name}-1.json").read_text("utf-8")
        jsonschema.Draft202012Validator.check_schema(json.loads(text))


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


def test_the_page_stands_alone(bundle: Path) -> None:
    page = (bundle / "report.html").read_text("utf-8")
    assert len(page.encode()) < 2_000_000
    assert not re.search(r"""(?:src|href|url)\s*[=(]\s*["']?\s*(?:https?:)?//""", page)
    assert page.count("<script>") == 1  # ours, the only one that the page's policy lets run
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert {address for address in addresses if "w3.org" not in address} == set()


def test_the_page_says_what_was_cut_and_shows_every_number(bundle: Path) -> None:
    page = (bundle / "report.html").read_text("utf-8")
    assert "taken over the first 192 positions" in page
    for part in ("CKA of random walks", "Wang &amp; Chen", "between positions 127 and 128"):
        assert (part in page) == (part != "Wang &amp; Chen")
    document = json.loads((bundle / "analysis.json").read_text("utf-8"))
    for pair in document["pairs"]:
        assert f"{pair['cka']:.3g}" in page
        assert f"{pair['nulls']['walk']['p5']:.3g} to {pair['nulls']['walk']['p95']:.3g}" in page


def test_names_are_escaped_on_the_page(bundle: Path) -> None:
    page = (bundle / "report.html").read_text("utf-8")
    assert "<b>bold</b>" not in page
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; $x_1$" in page


def test_a_saved_comparison_is_rendered_again(bundle: Path) -> None:
    page = bundle / "report.html"
    before = page.read_text("utf-8")
    page.unlink()
    assert render_bundle(bundle) == page
    assert page.read_text("utf-8") == before


def test_a_comparison_is_repeatable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    digests = []
    for name in ("one", "two"):
        folder = compare(learned(), smooth(), nulls=2, device="cpu").save(tmp_path / name)
        parts = [path for path in sorted(folder.rglob("*.*")) if path.suffix != ".npz"]
        digests.append([(p.name, zlib.crc32(p.read_bytes())) for p in parts])
    assert digests[0] == digests[1]


def test_curve_bands_are_of_the_first_table_s_walks() -> None:
    only = ("similarity", "spectrum", "pca")
    one = compare(learned(), smooth(), only=only, nulls=4, device="cpu").curve_bands
    two = compare(smooth(), learned(), only=only, nulls=4, device="cpu").curve_bands
    assert set(one) == {"profile", "spectrum", "variance"}
    assert not np.allclose(one["profile"][0], two["profile"][0])
    assert compare(learned(), smooth(), only=only, nulls=0, device="cpu").curve_bands == {}


# --- the command ---


def command(*arguments: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["posprobe", "compare", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


@pytest.fixture
def run(capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: command(*arguments, capsys=capsys, monkeypatch=monkeypatch)


def test_sinusoidal_takes_the_first_table_s_shape(run: Any, tmp_path: Path) -> None:
    code, out, err = run("sinusoidal:40x12", "sinusoidal", "--nulls", "1", "--json")
    assert code == 0
    document = json.loads(out)
    assert [entry["table"]["dim"] for entry in document["tables"]] == [12, 12]
    assert document["length"] == 40
    assert document["pairs"][0]["cka"] == pytest.approx(1)
    assert (tmp_path / "reports").is_dir()
    assert "report.html" in err


def test_the_shape_is_that_of_the_rows_that_are_kept(run: Any) -> None:
    code, out, _ = run(
        "sample:rxnmapper-albert", "sinusoidal", "--rows", "8:60", "--only", "norms", "--json"
    )
    assert code == 0
    document = json.loads(out)
    assert document["length"] == 52
    assert [entry["table"]["positions"] for entry in document["tables"]] == [52, 52]
    assert document["tables"][0]["table"]["rows"] == [8, 60]


def test_sincos2d_takes_the_first_grid_s_shape(run: Any) -> None:
    code, out, _ = run("sincos2d:4x5x12", "sincos2d", "--only", "norms", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["tables"][1]["table"]["layout"] == {"type": "grid", "height": 4, "width": 5}


@pytest.mark.parametrize(
    ("references", "message"),
    [
        (("sincos2d:4x5x12", "sinusoidal"), "no table in the shape of"),
        (("sinusoidal:40x12", "sincos2d"), "no table in the shape of"),
        (("sinusoidal", "sinusoidal:40x12"), "cannot be the first"),
        (("sinusoidal:40x12",), "at least two tables"),
        (("sinusoidal:40x12", "sinusoidal", "--nulls", "-1"), "--nulls -1"),
    ],
)
def test_what_cannot_be_compared_is_wrong_usage(
    run: Any, tmp_path: Path, references: tuple[str, ...], message: str
) -> None:
    code, out, err = run(*references, "--quiet")
    assert code == 2
    assert message in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_terminal_says_what_was_cut_and_what_was_found(run: Any) -> None:
    code, out, _ = run("sinusoidal:80x16", "sinusoidal:50x16", "--nulls", "3", "--out", "here")
    assert code == 0
    assert "distances are taken over the first 50" in " ".join(out.split())
    assert "\nsinusoidal:80x16 and sinusoidal:50x16 " in out
    assert re.search(r"\nnumber +sinusoidal:80x16 +sinusoidal:50x16\n", out)
    code, out, _ = run("sinusoidal:50x16", "sinusoidal", "--nulls", "0", "--out", "here")
    assert "No null models were drawn" in out
