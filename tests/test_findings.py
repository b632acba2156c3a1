"""Findings: what is said of known tables, what is not said of noise, and that numbers are true."""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest
from made_tables import as_table, gaussian, patches, rotation, walk, waves

import posprobe as pp
from posprobe.encodings.sinusoidal import frequencies
from posprobe.nulls import NULLS
from posprobe.report import NAMES
from posprobe.report.findings import RULES, findings, outside
from posprobe.table import Grid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from posprobe.table import PositionTable

    Edges = Mapping[str, tuple[float, float] | None]

Document = dict[str, Any]
#: What is said of a sinusoidal or rotational structure.
STRUCTURE = {"invariance", "rotations", "sinusoid"}

TABLES: dict[str, Callable[[], PositionTable]] = {
    "sinusoid": lambda: pp.sinusoidal(256, 64),
    "turned sinusoid": lambda: as_table(np.asarray(pp.sinusoidal(256, 64)) @ rotation(64)),
    "2-D sin-cos": lambda: pp.sincos2d(12, 12, 64),
    "planted": lambda: as_table(waves(512, [6.0, 18.0, 54.0, 162.0, 486.0], noise=0.01)),
    "one circle": lambda: as_table(waves(128, [11.3], noise=0.01)),
    "minilm": lambda: pp.load("sample:all-minilm-l6-v2"),
    "minilm, tail": lambda: pp.load("sample:all-minilm-l6-v2")[128:510],
    "whisper": lambda: pp.load("sample:whisper-tiny-decoder"),
    "walk": lambda: as_table(walk(256, 64)),
    "noise": lambda: as_table(gaussian(256, 64)),
    "patches": lambda: patches(8, 8, 16),
    "constant": lambda: as_table(np.ones((40, 8))),
    "two rows": lambda: as_table(gaussian(2, 8)),
    "odd width": lambda: as_table(waves(200, [6.0, 20.0], noise=0.05)[:, :3]),
}


def analysed(table: PositionTable, nulls: int = 9, seed: int = 0) -> Document:
    text = json.dumps(pp.analyze(table, nulls=nulls, seed=seed, device="cpu").to_dict())
    document: Document = json.loads(text)
    return document


@cache
def document_of(name: str, nulls: int = 9) -> Document:
    return analysed(TABLES[name](), nulls)


def said(document: Document) -> set[str]:
    """Names of the rules that say something."""
    return {name for name, rule in RULES.items() if list(rule(document))}


def text_of(document: Document, rule: str) -> str:
    (finding,) = RULES[rule](document)
    return finding.text


# --- what must not be said ---


@pytest.mark.parametrize("shape", [(128, 32), (256, 64), (200, 300)])
@pytest.mark.parametrize("seed", range(4))
def test_a_random_walk_has_no_structure(shape: tuple[int, int], seed: int) -> None:
    assert said(analysed(as_table(walk(*shape, seed)), seed=seed)) & STRUCTURE == set()


@pytest.mark.parametrize("shape", [(128, 32), (256, 64), (100, 200)])
@pytest.mark.parametrize("seed", range(4))
def test_of_gaussian_rows_nothing_is_said(shape: tuple[int, int], seed: int) -> None:
    assert analysed(as_table(gaussian(*shape, seed)), seed=seed)["findings"] == []


@pytest.mark.parametrize("seed", range(3))
def test_of_a_grid_of_noise_nothing_is_said(seed: int) -> None:
    table = as_table(gaussian(100, 32, seed), Grid(10, 10))
    assert analysed(table, seed=seed)["findings"] == []


def test_a_random_walk_looks_sinusoidal_all_the_same() -> None:
    """The reason for the bands: the bare numbers of a walk are those of a structured table."""
    numbers = document_of("walk")["nulls"]["numbers"]
    assert numbers["sinusoid.cka"]["value"] > 0.6
    assert numbers["similarity.raw.translation_invariance"]["value"] > 0.5


# --- what must be said ---


def test_the_sinusoid_has_all_of_it() -> None:
    for name in ("sinusoid", "turned sinusoid"):
        assert said(document_of(name)) == {"neighbours", *STRUCTURE}
    # A grid has no single step, so no rotation.
    assert said(document_of("2-D sin-cos")) >= {"invariance", "sinusoid"}


def test_the_sinusoid_s_own_ladder_is_recovered() -> None:
    table = pp.sinusoidal(512, 64)
    document = analysed(table, nulls=2)
    periods = document["shift"]["periods"][:12]
    np.testing.assert_allclose(periods, 2 * np.pi / frequencies(64)[:12], rtol=1e-6)
    assert document["shift"]["rotations"][:12] == periods
    assert "6.28, 8.38, 11.2, 14.9, 19.9, 26.5 and" in text_of(document, "rotations")


def test_a_planted_ladder_is_told() -> None:
    assert text_of(document_of("planted"), "rotations").startswith(
        "4 rotations with periods 6, 18, 54, 162 predict"
    )
    one = text_of(document_of("one circle"), "rotations")
    assert one.startswith("One rotation with period 11.3 predicts")


def test_the_rotations_of_minilm() -> None:
    document = document_of("minilm, tail")
    assert said(document) == {"neighbours", "rotations"}
    periods = document["shift"]["rotations"]
    np.testing.assert_allclose(periods, [6.0, 17.8, 53.2, 159], rtol=0.01)
    assert document["shift"]["skill"] > 0.9


def test_the_seam_of_minilm() -> None:
    document = document_of("minilm")
    assert document["seams"]["between"] == [[127, 128]]
    assert "between positions 127 and 128:" in text_of(document, "seams")
    assert "Positions 0, 127" in text_of(document, "special")
    assert "sinusoid" not in said(document)


def test_the_seam_of_whisper_lies_in_the_middle() -> None:
    document = document_of("whisper")
    assert len(TABLES["whisper"]()) == 448
    assert document["seams"]["between"] == [[223, 224]]
    assert "between positions 223 and 224:" in text_of(document, "seams")


def test_positions_are_those_of_the_whole_table() -> None:
    cut = analysed(TABLES["minilm"]()[100:300], nulls=0)
    assert cut["seams"]["between"] == [[127, 128]]
    assert "between positions 127 and 128:" in text_of(cut, "seams")


# --- every sentence ---


def value_at(document: Document, key: str) -> Any:
    """What stands at a key; keys of numbers beside the nulls are paths themselves."""
    prefix = "nulls.numbers."
    if key.startswith(prefix):
        return document["nulls"]["numbers"][key.removeprefix(prefix)]
    found: Any = document
    for part in key.split("."):
        found = found[part]
    return found


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def quoted(number: str, values: list[Any]) -> bool:
    """Whether a printed number is one of the values to its last digit."""
    digits = len(number.partition(".")[2])
    unit = 10.0**-digits if digits else 10.0 ** max(len(number.lstrip("-")) - 3, 0)
    return any(
        (isinstance(value, int | float) and abs(float(number) - value) <= 0.5 * unit + 1e-12)
        or (isinstance(value, str) and number in value)
        for value in values
    )


@pytest.mark.parametrize("name", TABLES)
def test_every_sentence_rests_on_keys_and_quotes_their_numbers(name: str) -> None:
    document = document_of(name)
    for finding in document["findings"]:
        text = finding["text"]
        assert text.endswith(".")
        assert finding["keys"]
        values = [leaf for key in finding["keys"] for leaf in leaves(value_at(document, key))]
        counts = [len(value_at(document, key)) for key in finding["keys"] if "rotations" in key]
        counts += [counts[0] - 6] if counts and counts[0] > 6 else []
        bare = text.replace("(1 is a sinusoid's invariance)", "").rstrip(".")
        for number in re.findall(r"(?<![\w-])-?\d+(?:\.\d+)?", bare):
            assert quoted(number, values + counts), (number, text)


@pytest.mark.parametrize("name", TABLES)
def test_every_sentence_has_a_null_or_a_reference_in_it(name: str) -> None:
    beside = "random walk|permuted rows|smooth stationary process|the sinusoid"
    neighbourhood = "usual|change from|than beside it|no direction"
    for rule, make in RULES.items():
        for finding in make(document_of(name)):
            of_nulls = rule not in ("seams", "special")
            assert re.search(beside if of_nulls else neighbourhood, finding.text), finding
            with_bands = any(key.startswith("nulls.numbers.") for key in finding.keys)
            assert with_bands == of_nulls


@pytest.mark.parametrize("name", TABLES)
def test_the_findings_stand_in_the_document(name: str) -> None:
    document = document_of(name)
    again = [{"text": f.text, "keys": list(f.keys)} for f in findings(document)]
    assert document["findings"] == again


@pytest.mark.parametrize("name", TABLES)
def test_without_draws_there_are_only_seams_and_special_rows(name: str) -> None:
    document = document_of(name, nulls=0)
    assert said(document) <= {"seams", "special"}
    for rule in ("seams", "special"):
        assert list(RULES[rule](document)) == list(RULES[rule](document_of(name)))


@pytest.mark.parametrize("name", TABLES)
def test_the_document_follows_the_schema(name: str) -> None:
    schema = json.loads((files("posprobe.report") / "schema" / "analysis-1.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    assert [error.message for error in validator.iter_errors(document_of(name))] == []


@pytest.mark.parametrize("only", ["norms", "shift", "sinusoid", "pca"])
def test_an_analysis_alone_can_be_judged(only: str) -> None:
    document = pp.analyze(TABLES["sinusoid"](), only=[only], nulls=4, device="cpu").to_dict()
    expected = {"shift": {"rotations"}, "sinusoid": {"sinusoid"}}.get(only, set())
    assert said(document) == expected


# --- the rule ---


def numbers(value: float | None, edges: Edges | None = None, key: str = "pca.top3") -> Any:
    block: dict[str, Any] = {"value": value, "sinusoid": None}
    for name in NULLS:
        edge = (edges or {}).get(name, (0.4, 0.5))
        block[name] = edge and {"p5": edge[0], "p50": sum(edge) / 2, "p95": edge[1]}
    return {"nulls": {"numbers": {key: block}}}


@pytest.mark.parametrize(
    ("value", "side"),
    [
        (0.45, None),
        (0.55, None),  # above the bands, by less than their width
        (0.61, "above"),
        (0.35, None),
        (0.29, "below"),
        (None, None),
    ],
)
def test_a_number_must_lie_outside_by_the_width_of_the_band(
    value: float | None, side: str | None
) -> None:
    assert outside(numbers(value), "pca.top3") == side


def test_one_null_model_that_explains_a_number_is_enough() -> None:
    for name in NULLS:
        assert outside(numbers(0.9, {name: (0.85, 0.95)}), "pca.top3") is None
        assert outside(numbers(0.9, {name: None}), "pca.top3") is None
        assert outside(numbers(0.9, {name: (0.95, 0.96)}), "pca.top3") == "between"
    assert outside(numbers(0.9), "pca.stable_rank") is None
    assert outside({}, "pca.top3") is None


def test_near_one_it_is_the_rest_that_counts() -> None:
    """A share of 0.999 is far from nulls of 0.98 to 0.99, and 0.991 is not."""
    key = "sinusoid.cka"
    close = dict.fromkeys(NULLS, (0.98, 0.99))
    assert outside(numbers(0.999, close, key), key) == "above"
    assert outside(numbers(0.991, close, key), key) is None
    assert outside(numbers(1.0, close, key), key) == "above"
    # The same numbers of a quantity that does not end at 1.
    assert outside(numbers(0.999, close), "pca.top3") is None


def test_bands_without_width_demand_a_difference_all_the_same() -> None:
    flat = dict.fromkeys(NULLS, (0.5, 0.5))
    assert outside(numbers(0.5 + 1e-5, flat), "pca.top3") is None
    assert outside(numbers(0.51, flat), "pca.top3") == "above"


def test_what_is_said_follows_the_numbers() -> None:
    """Turn a sinusoid's numbers into a null's, and nothing of it is said any more."""
    for rule, key in {
        "neighbours": "similarity.centered.neighbour_mean",
        "invariance": "similarity.raw.translation_invariance",
        "rotations": "shift.skill",
        "sinusoid": "sinusoid.cka",
    }.items():
        document = copy.deepcopy(document_of("sinusoid"))
        block = document["nulls"]["numbers"][key]
        assert rule in said(document)
        block["value"] = block["walk"]["p50"]
        assert rule not in said(document)


def test_rotations_need_rotations() -> None:
    document = copy.deepcopy(document_of("sinusoid"))
    document["shift"]["rotations"] = []
    assert "rotations" not in said(document)


def test_there_is_no_negative_zero() -> None:
    document = copy.deepcopy(document_of("sinusoid"))
    key = "similarity.centered.neighbour_mean"
    document["nulls"]["numbers"][key]["permuted"] |= {"p50": -0.001}
    assert "permuted rows 0.00," in text_of(document, "neighbours")


def test_a_long_list_of_rows_is_cut() -> None:
    rows = [{"row": row, "reason": f"reason {row}"} for row in range(3, 14)]
    document: Document = {"seams": {"special": rows}}
    assert text_of(document, "special") == (
        "Positions 3, 4, 5, 6, 7, 8, 9, 10 and 3 more are unlike their neighbours; 3 is reason 3."
    )
    document["seams"]["special"] = rows[:1]
    assert text_of(document, "special").startswith("Position 3 is unlike its neighbours")


# --- the page on analyses ---


def page() -> str:
    return (Path(__file__).parent.parent / "docs" / "analyses.md").read_text("utf-8")


def test_the_page_lists_the_rate_of_false_alarms_of_every_rule_and_null_model() -> None:
    lines = [line.strip("| ").split(" | ") for line in page().splitlines() if line[:1] == "|"]
    (header,) = [cells for cells in lines if cells[:2] == ["base", "null model"]]
    assert header[2:] == list(RULES)
    measured = [cells for cells in lines if len(cells) == len(header) and cells[1] in NULLS]
    bases = {cells[0] for cells in measured}
    assert len(bases) >= 4
    assert {(cells[0], cells[1]) for cells in measured} == set(product(bases, NULLS))
    rates = [rate for cells in measured for rate in cells[2:] if rate != "–"]
    assert all(float(rate.removesuffix("%")) <= 5 for rate in rates)


def test_the_page_covers_every_analysis_and_only_keys_that_exist() -> None:
    documented = re.findall(r"^## .*: (.*)$", page(), re.MULTILINE)
    blocks = {key.split(".")[0] for part in documented for key in re.findall("`(.+?)`", part)}
    assert blocks == set(NAMES)
    document = pp.analyze(patches(6, 6, 8), only=["all"], nulls=0, device="cpu").to_dict()
    for section in re.split(r"^## ", page(), flags=re.MULTILINE)[1:]:
        named = re.match(r".*: `(\w+)", section)
        rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", section, re.MULTILINE) if named else []
        for key in re.findall(r"`(\w+)`", " ".join(rows)):
            assert named
            block = document[named[1]]
            assert key in (block["raw"] if named[1] == "similarity" else block), key
