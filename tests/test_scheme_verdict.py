"""The verdict of encodings without a table: what is planted is said, and what is not is not."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.resources import files
from typing import Any

import jsonschema
import numpy as np
import pytest
from made_schemes import buckets, linear, rotary, source, window

from posprobe.encodings import alibi_slopes
from posprobe.layouts import Grid, Sequence
from posprobe.report.page import page_of
from posprobe.report.questions import SCHEME_QUESTIONS
from posprobe.report.schemes import analyze_schemes
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme
from posprobe.text import lookup


def told(*records: Scheme) -> tuple[str, dict[str, dict[str, Any]]]:
    block = analyze_schemes(*records).to_dict()["verdict"]
    return block["summary"], {answer["question"]: answer for answer in block["answers"]}


def noise(heads: int, n: int, seed: int, **fields: Any) -> RelativeBias:
    values = np.random.default_rng(seed).standard_normal((heads, 2 * n - 1))
    return RelativeBias(values, Sequence(n), "noise", source("noise.weight"), **fields)


def test_turns_are_counted_by_the_wavelengths() -> None:
    summary, answers = told(rotary(base=10_000.0))
    pairs = 2 * np.pi * 10_000.0 ** (np.arange(16) / 16)
    slow = int((pairs > 4096).sum())
    assert slow
    assert answers["rotary_turns"]["answer"] == "no"
    assert f"{slow} of 16 pairs never complete a turn" in answers["rotary_turns"]["sentence"]
    assert f"{16 - slow} of 16 complete a turn within the context of 4,096" in summary
    _, fast = told(rotary(base=50.0))
    assert fast["rotary_turns"]["answer"] == "yes"


def test_the_mean_rotation_is_positive_up_to_its_first_zero() -> None:
    """Where the sum of cosines first falls below 0, counted one by one."""
    omega = 10_000.0 ** (-np.arange(16) / 16)
    first = next(k for k in range(1, 10**6) if np.cos(k * omega).sum() < 0)
    for length, answer, place in ((first, "yes", "beyond"), (first + 1, "no", "within")):
        _, answers = told(rotary(max_positions=length, training_length=length))
        assert answers["rotary_positive"]["answer"] == answer
        assert f"distance {first:,}, {place}" in answers["rotary_positive"]["sentence"]


def test_what_depends_on_a_length_is_open_without_one() -> None:
    for record in (rotary(max_positions=None, training_length=None), linear(max_positions=None)):
        _, answers = told(record)
        for name in ("rotary_turns", "rotary_positive", "alibi_reach"):
            if name in answers:
                assert answers[name]["answer"] == "cannot tell"


def test_a_rule_for_longer_contexts_is_named() -> None:
    _, plain = told(rotary())
    _, longer = told(rotary(scaling={"rope_type": "linear", "factor": 8.0}))
    assert plain["rotary_stretched"]["answer"] == "no"
    assert longer["rotary_stretched"]["answer"] == "yes"
    assert "linear" in longer["rotary_stretched"]["sentence"]


def test_a_rule_that_changes_nothing_at_the_stated_length_does_not_stretch() -> None:
    """NTK-aware scaling begins beyond the length that the configuration states."""
    record = rotary(scaling={"rope_type": "dynamic", "factor": 4.0}, training_length=4096)
    _, answers = told(record)
    assert answers["rotary_stretched"]["answer"] == "no"
    assert "dynamic changes no wavelength up to 4,096" in answers["rotary_stretched"]["sentence"]
    longer = analyze_schemes(record, length=8192).to_dict()
    answer = next(a for a in longer["verdict"]["answers"] if a["question"] == "rotary_stretched")
    assert answer["answer"] == "yes"
    assert "for 8,192 positions, for more than the 4,096 of training" in answer["sentence"]
    block = longer["schemes"][0]["rotation"]
    slowest = 2 * np.pi * 10_000.0 ** (15 / 16)
    # It slows the slowest pair by as much as the text is longer, times the factor, less the rest.
    assert block["longest_wavelength"] == pytest.approx((4 * 2 - 3) * slowest)
    assert block["rescaled"]


def test_a_rule_in_layers_with_a_window_is_told_with_the_length_that_was_asked_for() -> None:
    """NTK-aware scaling changes nothing up to 4,096 positions, and a window of them is seen."""
    record = rotary(
        window=512, scaling={"rope_type": "dynamic", "factor": 4.0}, training_length=4096
    )
    for length, said in ((None, "no wavelength up to 4,096"), (8192, "them for 8,192 positions")):
        document = analyze_schemes(record, length=length).to_dict()
        told = {each["question"]: each for each in document["verdict"]["answers"]}
        assert f"the rule dynamic changes {said}" in told["rotary_stretched"]["sentence"]
        assert "within the window of 512" in told["rotary_turns"]["sentence"]


def test_rules_that_change_and_do_not_are_told_apart() -> None:
    still = rotary("still", scaling={"rope_type": "linear", "factor": 1.0})
    slowed = rotary("slowed", scaling={"rope_type": "linear", "factor": 8.0})
    _, answers = told(still, slowed)
    sentence = answers["rotary_stretched"]["sentence"]
    assert answers["rotary_stretched"]["answer"] == "yes"
    assert "slowed: the rule linear" in sentence
    assert "still" not in sentence


def test_what_was_not_looked_at_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ladder of one slow pair falls below 0 after a quarter of a turn, if one looks so far."""
    quarter = 10_000
    scaling = {"rope_type": "linear", "factor": 2 * quarter / np.pi}
    module = import_module("posprobe.analyses.rotation")
    for searched, length, answer in ((8000, 6000, "yes"), (8000, 9000, "cannot tell")):
        monkeypatch.setattr(module, "SEARCH", searched)
        record = Rotary(2, "one", source(), max_positions=length, scaling=scaling)
        summary, answers = told(record)
        sentence = answers["rotary_positive"]["sentence"]
        assert answers["rotary_positive"]["answer"] == answer
        for text in (summary, sentence):
            assert f"does not fall below 0 within {searched:,} positions" in text
            assert "never" not in text
    summary, _ = told(Rotary(2, "one", source(), scaling=scaling))
    assert "does not fall below 0 within 8,000 positions" in summary
    monkeypatch.setattr(module, "SEARCH", 2 * quarter)
    assert f"at distance {quarter + 1:,}" in told(record)[0]


def test_attention_under_a_slope_halves_where_the_softmax_says() -> None:
    slopes = alibi_slopes(8)
    summary, answers = told(linear())
    halving = answers["alibi_near"]["value"]["halving"]
    assert np.exp(-np.array(slopes) * halving) == pytest.approx(0.5)
    assert "of 8 heads" in summary
    (slope,) = (np.log(2) / 300,)
    for factor, answer in ((0.99, "yes"), (1.01, "no")):
        one = LinearBias(np.array([slope * factor]), "one", source(), max_positions=300)
        assert told(one)[1]["alibi_reach"]["answer"] == answer


def test_learned_order_is_told_from_noise() -> None:
    summary, answers = told(buckets(12))
    assert answers["bias_smooth"]["answer"] == "yes"
    assert answers["bias_near"]["value"] == {"near": 12, "far": 0}
    assert "12 favour near positions" in summary
    found = [told(noise(12, 60, seed))[1]["bias_smooth"]["answer"] for seed in range(20)]
    assert found.count("yes") <= 1
    assert found.count("no") >= 15
    plain = next(s for s, a in (told(noise(12, 60, k)) for k in range(20))
                 if a["bias_smooth"]["answer"] == "no")  # fmt: skip
    assert "no sign" in plain
    assert "favour" not in plain


@pytest.mark.parametrize("kind", ["line", "grid", "vectors"])
def test_random_values_favour_no_place(kind: str) -> None:
    """Of random values the greatest lies somewhere, which is nobody's preference."""
    said = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        if kind == "grid":
            record = RelativeBias(rng.standard_normal((12, 13, 13)), Grid(7, 7), "r", source("a"))
        else:
            record = noise(12, 60, seed, quantity="bias" if kind == "line" else "cosine")
        _, answers = told(record)
        name = "cosine_near" if kind == "vectors" else "bias_near"
        said.append(answers[name])
        if kind == "line":
            assert (answers["bias_sides"]["answer"] == "cannot tell") == (
                answers[name]["value"] is None
            )
    known = [answer for answer in said if answer["value"] is not None]
    assert len(known) <= 3  # two in a hundred pass the test of order
    assert all("without order" in a["sentence"] for a in said if a["value"] is None)


def test_heads_without_order_are_no_part_of_a_preference() -> None:
    """Of 12 heads, 4 fall from a planted peak, 4 rise, 2 are noise and 2 have one value."""
    offsets = np.abs(np.arange(-59, 60))
    rng = np.random.default_rng(5)
    noisy = rng.standard_normal((2, 119))
    falls, rises = np.exp(-offsets / 5.0), 1 - np.exp(-offsets / 20.0)
    values = np.stack([*[falls] * 4, *[rises] * 4, *noisy, *np.ones((2, 119))])
    values[:8] += 0.01 * rng.standard_normal((8, 119))
    document = analyze_schemes(RelativeBias(values, Sequence(60), "m", source("a"))).to_dict()
    (scheme,) = document["schemes"]
    assert scheme["smoothness"]["structured"] == 8
    assert scheme["heads"]["near"][-2:] == [None, None]
    answers = {a["question"]: a for a in document["verdict"]["answers"]}
    assert answers["bias_near"]["value"] == {"near": 4, "far": 4}
    assert answers["bias_near"]["answer"] == "no"  # 4 and the 2 that are noise are not most
    assert "4 of 8 heads that have an order of distances" in answers["bias_near"]["sentence"]
    assert sum(answers["bias_sides"]["value"].values()) == 8
    (table,) = (
        table for section in page_of(document).sections for table in section.tables
        if table.caption.startswith("Every head")
    )  # fmt: skip
    at = [column.label for column in table.columns].index("peak")
    assert [table.rows[head][at] for head in (0, 10, 11)] == ["0", "–", "–"]


def test_a_table_of_equal_vectors_beyond_the_first_is_not_near_by_its_own_cosine() -> None:
    """The cosine of a vector with itself is 1; what grows with distance does not favour near."""
    far = np.linspace(-0.5, 0.5, 60) ** 3
    values = np.concatenate([far[:0:-1], [1.0], far[1:]])[None]
    records = [
        RelativeBias(values, Sequence(60), f"layer {k}", source("a"), quantity="cosine")
        for k in range(4)
    ]
    _, answers = told(*records)
    assert answers["cosine_smooth"]["answer"] == "yes"
    assert answers["cosine_near"]["answer"] == "no"
    assert answers["cosine_near"]["value"] == {"near": 0, "far": 4}


def test_equal_values_on_both_sides_prefer_neither() -> None:
    distance = np.abs(np.arange(-39, 40))
    values = np.exp(-((distance - 4.0) ** 2) / 20)[None].repeat(5, axis=0)
    _, answers = told(RelativeBias(values, Sequence(40), "two peaks", source("a")))
    assert answers["bias_sides"]["value"] == {"before": 0, "after": 0, "same": 5}
    assert answers["bias_sides"]["answer"] == "no"


def test_a_little_noise_on_both_sides_is_no_side() -> None:
    """Of values that are nearly the same the greatest is on either side."""
    distance = np.abs(np.arange(-39, 40))
    values = np.exp(-((distance - 4.0) ** 2) / 20)[None].repeat(8, axis=0)
    values += 0.01 * np.random.default_rng(0).standard_normal(values.shape)
    _, answers = told(RelativeBias(values, Sequence(40), "nearly even", source("a")))
    assert answers["bias_smooth"]["answer"] == "yes"
    assert answers["bias_sides"]["answer"] == "no"


def test_a_straight_line_favours_near_positions_and_has_no_half_width() -> None:
    """Half of the fall of a straight line says how many positions were looked at."""
    offsets = np.abs(np.arange(-199, 200))
    rng = np.random.default_rng(0)
    values = -offsets * np.linspace(0.01, 0.1, 8)[:, None]
    values = values * (1 + 0.01 * rng.standard_normal(values.shape))
    record = RelativeBias(values, Sequence(200), "lines", source("a"))
    document = analyze_schemes(record).to_dict()
    (scheme,) = document["schemes"]
    assert scheme["heads"]["half_width"] == [None] * 8
    assert "straight" in scheme["heads"]["undefined"]["half_width"]
    answers = {a["question"]: a for a in document["verdict"]["answers"]}
    assert answers["bias_near"]["answer"] == "yes"
    assert answers["bias_near"]["value"] == {"near": 8, "far": 0}
    assert "half of the fall" not in answers["bias_near"]["sentence"]


@pytest.mark.parametrize("shift", [-3, 0, 2])
def test_the_side_of_the_query_that_heads_prefer_is_counted(shift: int) -> None:
    offsets = np.arange(-39, 40)
    values = np.exp(-((offsets - shift) ** 2) / 20)[None].repeat(5, axis=0)
    _, answers = told(RelativeBias(values, Sequence(40), "moved", source("a")))
    count = {"before": 5 * (shift < 0), "after": 5 * (shift > 0), "same": 5 * (shift == 0)}
    assert answers["bias_sides"]["value"] == count
    assert answers["bias_sides"]["answer"] == ("yes" if shift else "no")


def test_hidden_keys_have_no_side_and_a_grid_has_no_question_of_it() -> None:
    assert told(buckets(causal=True))[1]["bias_sides"]["answer"] == "cannot tell"
    assert "bias_sides" not in told(window())[1]


KINDS: dict[str, tuple[Scheme, ...]] = {
    "rotary": (rotary(),),
    "many rotary": tuple(rotary(f"layer {k}", base=100.0 * (k + 1)) for k in range(9)),
    "standing": (Rotary(2, "one pair", source(), max_positions=8),),
    "alibi": (linear(),),
    "one head": (linear(1),),
    "buckets": (buckets(), buckets(name="decoder", causal=True)),
    "windows": (window(), window(7, 7)),
    "vectors": (window(quantity="cosine"), buckets(1, quantity="cosine")),
    "constant": (RelativeBias(np.ones((2, 9)), Sequence(5), "flat", source()),),
    "one value": (RelativeBias(np.zeros((2, 3, 3)), Grid(2, 2), "flat", source()),),
    "all": (rotary(), linear(), buckets(3), window(), buckets(1, 30, "c", quantity="cosine")),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_answer_rests_on_numbers_and_findings_follow(name: str) -> None:
    document = analyze_schemes(*KINDS[name]).to_dict()
    text = (files("posprobe.report") / "schema" / "analysis-1.json").read_text(encoding="utf-8")
    written = json.loads(json.dumps(document, allow_nan=False))
    jsonschema.Draft202012Validator(json.loads(text)).validate(written)
    block = document["verdict"]
    names = [answer["question"] for answer in block["answers"]]
    assert names == [name for name in SCHEME_QUESTIONS if name in names]
    assert block["summary"].endswith(".")
    for answer in block["answers"]:
        begins = {"yes": ("Yes: ",), "no": ("No: ", "No sign"), "cannot tell": ("Cannot be told",)}
        assert answer["sentence"].startswith(begins[answer["answer"]])
        assert answer["sentence"].endswith(".")
        assert answer["keys"]
        for key in answer["keys"]:
            _, number, path = key.split(".", 2)
            scheme = document["schemes"][int(number)]
            parent = lookup(scheme, path.rpartition(".")[0]) if "." in path else scheme
            assert path.rpartition(".")[2] in parent
    assert len(document["findings"]) == sum(a["answer"] != "cannot tell" for a in block["answers"])
    page = page_of(document)
    assert page.sections[0].bullets == (block["summary"],)
    assert len(page.sections[0].tables[0].rows) == len(names)


def test_a_bundle_without_a_verdict_shows_its_findings() -> None:
    document = analyze_schemes(rotary()).to_dict()
    del document["verdict"]
    section = page_of(document).sections[0]
    assert section.bullets == tuple(finding["text"] for finding in document["findings"])
