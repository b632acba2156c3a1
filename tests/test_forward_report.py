"""The bundle of a run of a model: document, findings, figures, page and what the terminal says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import matplotlib as mpl
import numpy as np
import pytest
import referencing
from hypothesis import given
from hypothesis import strategies as st
from made_forward import (
    HEADS,
    RANDOM,
    WIDTH,
    forward_analysis,
    heads_of,
    results_of,
    states_of,
    table_of,
)
from made_forward_reports import LAYOUTS, large

import posprobe as pp
from posprobe.analyses.attention_by_offset import (
    attention_by_offset,
    attention_sums,
)
from posprobe.analyses.head_logits import HeadsByLayer, head_logits
from posprobe.analyses.mean_decomposition import MeanDecomposition, mean_decomposition
from posprobe.analyses.moments import moments
from posprobe.analyses.similarity import by_displacement
from posprobe.errors import InvalidCheckpoint
from posprobe.layouts import Grid, Layout, Sequence, describe_layout
from posprobe.measurements.model import MODEL
from posprobe.measurements.model.sentences import even_choice, preferred
from posprobe.measurements.model.states import layers_table
from posprobe.report import ForwardAnalysis, forward_name, read_bundle, render_bundle
from posprobe.report.index import write_index
from posprobe.report.page import page_of as page_model
from posprobe.report.page import render
from posprobe.report.questions import MODEL_QUESTIONS
from posprobe.report.terminal import text as printed

mpl.use("agg")
LIMIT = 2_000_000


def schema(name: str) -> Any:
    return json.loads((files("posprobe.report") / "schema" / name).read_text(encoding="utf-8"))


def problems(document: dict[str, Any]) -> list[str]:
    shared, own = schema("analysis-1.json"), schema("forward-1.json")
    jsonschema.Draft202012Validator.check_schema(own)
    registry: Any = referencing.Registry().with_resource(
        shared["$id"], referencing.Resource.from_contents(shared)
    )
    written = json.loads(json.dumps(document, allow_nan=False))
    found = jsonschema.Draft202012Validator(own, registry=registry).iter_errors(written)
    return [f"{error.json_path}: {error.message[:200]}" for error in found]


def page_of(made: ForwardAnalysis) -> str:
    """The page without its drawings, which take most of the time."""
    return render(made.to_dict(), {})


# The document.


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_the_document_follows_the_schema(layout: Layout, causal: bool) -> None:
    document = forward_analysis(layout, causal=causal and not isinstance(layout, Grid)).to_dict()
    assert problems(document) == []
    assert document["contexts"]["used"] == 12


@pytest.mark.parametrize("name", MODEL)
def test_any_result_can_stand_alone_or_be_missing(name: str) -> None:
    layout: Layout = Grid(3, 4) if name == "blank" else Sequence(24)
    results = results_of(layout)
    alone = forward_analysis(layout, results={name: results[name]})
    assert problems(alone.to_dict()) == []
    assert {other for other in MODEL if alone.to_dict()[other] is not None} == {name}
    headings = set(re.findall(r'<h2 id="(\w+)"', page_of(alone)))
    assert headings == {"verdict", "findings", "contexts", name, "provenance"}
    without = {other: result for other, result in results.items() if other != name}
    lacking = forward_analysis(layout, results=without, missing={name: "<b>no</b> reason"})
    document = lacking.to_dict()
    assert problems(document) == []
    assert document[name] is None
    page = page_of(lacking)
    assert "&lt;b&gt;no&lt;/b&gt; reason" in page
    missing = next(part for part in page_model(document).sections if part.key == "missing")
    assert missing.tables[0].rows == ((MODEL[name].title, "<b>no</b> reason"),)


def test_every_null_has_its_reason_beside_it() -> None:
    states = np.ones((1, 24, WIDTH))
    flat = mean_decomposition({0: moments(states), 4: moments(states)}, layout=Sequence(24))
    document = forward_analysis(results=results_of(Sequence(24)) | {"states": flat}).to_dict()
    assert problems(document) == []
    for layer in document["states"]["layers"]:
        nulls = {key for key, value in layer.items() if value is None}
        nulls |= {key for key, value in layer["analyses"].items() if value is None}
        assert nulls - {"shares", "relative_norm_frobenius"} <= set(document["states"]["undefined"])
    assert "[0, 4]" in document["states"]["undefined"]["pca.stable_rank"]
    for key in ("special", "accuracy"):
        assert document["permutation"]["with_positions"][key] is None
        assert document["permutation"]["undefined"][key]


def test_what_only_a_line_has_is_undefined_on_a_grid_and_says_so() -> None:
    document = forward_analysis(Grid(3, 4)).to_dict()
    assert document["states"]["layers"][0]["analyses"]["shift.skill"] is None
    assert document["states"]["undefined"]["shift.skill"] == "patches are not on a line"
    assert document["attention"]["uniform_first"] is None
    assert document["attention"]["undefined"]["first"]


def test_of_repeated_words_the_first_layer_alone_is_reported() -> None:
    made = forward_analysis()
    document = made.to_dict()
    assert [layer["layer"] for layer in document["attention"]["layers"]] == [0, 1]
    assert [layer["layer"] for layer in document["words"]["layers"]] == [0]
    assert {key for key in made.arrays() if key.endswith("_words")} == {"0_words"}


@pytest.mark.parametrize("causal", [False, True])
def test_heads_that_attend_evenly_pay_the_first_position_what_is_called_uniform(
    causal: bool,
) -> None:
    layout = Sequence(11)
    seen = np.tri(11) if causal else np.ones((11, 11))
    weights = np.broadcast_to(seen / seen.sum(axis=1, keepdims=True), (2, 3, 11, 11))
    found = attention_by_offset({0: attention_sums(weights, layout)}, layout=layout)
    block = forward_analysis(layout, results={"attention": found}).to_dict()["attention"]
    assert block["causal"] is causal
    assert block["layers"][0]["first"] == pytest.approx([block["uniform_first"]] * 3)


def test_arrays_hold_what_positions_add_and_every_curve() -> None:
    made = forward_analysis(Sequence(24))
    arrays = made.arrays()
    states = made.results["states"]
    assert isinstance(states, MeanDecomposition)
    for number, layer in states.layers.items():
        np.testing.assert_allclose(arrays[f"{number}_pos"], layer.pos, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(arrays[f"{number}_error"] ** 2, (layer.error**2).sum(axis=1))
    assert arrays["1_logits"].shape == arrays["1_attention"].shape == (HEADS, 47)
    assert arrays["effective"].shape == (24, WIDTH)
    assert arrays["overlap"].shape == (WIDTH,)
    assert forward_analysis(Grid(3, 4)).arrays()["2_blank_noise"].shape == (3, 4)


def test_bundles_of_different_references_have_different_names(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    names = {
        "gpt2": "gpt2-forward",
        "sample:digits-vit": "digits-vit-forward",
        "openai/whisper-tiny@main#decoder": "whisper-tiny-main-decoder-forward",
        str(tmp_path / "a b") + "/": "a-b-forward",
    }
    assert {text: forward_name(text) for text in names} == names


# Findings.


def resolved(document: Any, key: str) -> Any:
    """Follow a dotted path; what a headline number is called holds dots itself."""
    for part in key.split("."):
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_finding_rests_on_numbers_of_the_document(layout: Layout) -> None:
    made = forward_analysis(layout)
    document = made.to_dict()
    assert len(document["findings"]) >= 8
    assert [finding["text"] for finding in document["findings"]] == [
        finding.text for finding in made.findings
    ]
    for finding in document["findings"]:
        assert finding["text"].endswith(".")
        assert "None" not in finding["text"]
        assert "nan" not in finding["text"]
        assert finding["keys"]
        for key in finding["keys"]:
            assert resolved(document, key) is not None


def said(made: ForwardAnalysis, word: str) -> list[str]:
    return [finding.text for finding in made.findings if word in finding.text]


@pytest.mark.parametrize(
    ("kind", "note"),
    [(RANDOM, "no text"), ("random pixels, independent and normal", "no pictures"), ("x.txt", "")],
)
def test_random_contexts_are_called_what_they_are_not(kind: str, note: str) -> None:
    made = forward_analysis(kind=kind)
    (share,) = said(made, "variance of the hidden states")
    (offsets,) = said(made, "attention measured on contexts")
    page = page_of(made)
    assert ("Not real input" in page) == bool(note)
    for text in (share, offsets):
        assert note in text
        assert ("are no" in text) == bool(note)


def test_what_is_mostly_noise_is_said_to_be_and_nothing_else_is_said_of_it() -> None:
    layout = Sequence(24)
    noise = moments(states_of(layout, contexts=3, signal=0.0))
    results = {"states": mean_decomposition({0: noise, 1: noise}, layout=layout)}
    made = forward_analysis(layout, results=results)
    assert len(said(made, "At 2 of 2 layers (0 and 1) more than half")) == 1
    assert not said(made, "CKA")
    assert not said(made, "translation invariance")
    clear = moments(states_of(layout, contexts=40, signal=3.0))
    results = {"states": mean_decomposition({0: clear}, layout=layout)}
    assert not said(forward_analysis(layout, results=results), "more than half")


@pytest.mark.parametrize("planted", [True, False])
def test_what_positions_add_is_called_close_to_the_sinusoid_only_beyond_random_walks(
    planted: bool,
) -> None:
    layout = Sequence(60)
    rng = np.random.default_rng(3)
    walk = np.cumsum(rng.normal(size=(60, WIDTH)), axis=0)
    pos = np.asarray(pp.sinusoidal(60, WIDTH).values) if planted else walk
    contexts = pos + 0.01 * rng.normal(size=(9, 60, WIDTH))
    sums = {number: moments(contexts) for number in range(5)}
    results = {"states": mean_decomposition(sums, layout=layout)}
    made = forward_analysis(layout, results=results)
    assert bool(said(made, "At 5 of 5 layers what positions add is closer")) == planted
    assert bool(said(made, "closer to the sinusoid")) == planted


def test_a_planted_share_of_variance_is_stated() -> None:
    layout = Sequence(24)
    pos = np.where(np.arange(24) % 2, 1.0, -1.0)[:, None] * np.ones(WIDTH)
    rest = np.random.default_rng(0).permutation(np.repeat([1.0, -1.0], 20))
    states = pos + rest[:, None, None] * np.where(np.arange(24) < 12, 1, -1)[:, None]
    found = mean_decomposition({2: moments(states)}, layout=layout)
    (text,) = said(forward_analysis(layout, results={"states": found}), "variance")
    assert "50.0 % at layer 2" in text


@given(layout=st.builds(Sequence, st.integers(2, 40)), causal=st.booleans())
def test_an_even_choice_is_among_the_offsets_that_a_peak_is_looked_for(
    layout: Sequence, causal: bool
) -> None:
    n = layout.length
    pairs = np.tri(n) if causal else np.ones((n, n))
    block: dict[str, Any] = {"layout": describe_layout(layout), "causal": causal}
    count = np.rint(by_displacement(pairs, 1, n, np))
    assert even_choice(block) == pytest.approx(1 / (count >= n / 2).sum())
    # Measured attention leaves the first position out as a key.
    pairs[:, 0] = 0
    count = np.rint(by_displacement(pairs, 1, n, np))
    assert even_choice(block | {"uniform_first": 0.1}) == pytest.approx(1 / (count >= n / 2).sum())


@given(height=st.integers(1, 9), width=st.integers(1, 9))
def test_an_even_choice_on_a_grid_is_among_displacements(height: int, width: int) -> None:
    n = height * width
    count = np.rint(by_displacement(np.ones((n, n)), height, width, np))
    block = {"layout": describe_layout(Grid(height, width)), "causal": False}
    assert even_choice(block) == pytest.approx(1 / (count >= n / 2).sum())


def test_heads_that_all_look_back_one_are_counted() -> None:
    layout = Sequence(9)
    back = np.eye(9, k=-1)
    back[0, 0] = 1
    weights = np.broadcast_to(back, (2, 3, 9, 9))
    found = attention_by_offset({5: attention_sums(weights, layout)}, layout=layout)
    made = forward_analysis(layout, results={"attention": found})
    assert said(made, "all 3 heads prefer previous token")


def test_offsets_are_frequent_where_more_heads_prefer_them_than_chance_makes() -> None:
    where = {"layout": describe_layout(Sequence(64)), "causal": False}
    offsets = round(1 / even_choice(where))

    def told(names: list[str]) -> bool:
        said = preferred({"layers": [{"peak_name": names}]}, where)
        return said.startswith("the offset")

    rng = np.random.default_rng(0)
    drawn = [list(map(str, rng.integers(offsets, size=24))) for _ in range(400)]
    assert np.mean([told(names) for names in drawn]) <= 0.04  # at a level of 2 %
    assert all(told([*names[:18], *["previous token"] * 6]) for names in drawn)


def test_of_heads_that_all_prefer_another_offset_none_is_most_frequent() -> None:
    where = {"layout": describe_layout(Sequence(64)), "causal": True}
    names = ["previous token", "2 tokens before", "same token", "none"]
    said = preferred({"layers": [{"peak_name": names}]}, where)
    assert said == "3 heads prefer as many different offsets; 1 of 4 prefers no offset"


def test_heads_that_prefer_no_offset_are_counted_apart() -> None:
    layout = Sequence(9)
    back = np.eye(9, k=-1)
    back[0, 0] = 1
    weights = np.stack([back, np.full((9, 9), 1 / 9), back])[None]
    found = attention_by_offset({5: attention_sums(weights, layout)}, layout=layout)
    made = forward_analysis(layout, results={"attention": found})
    assert said(made, "2 heads prefer previous token; 1 of 3 prefers no offset")
    even = attention_by_offset({5: attention_sums(weights[:, 1:2], layout)}, layout=layout)
    made = forward_analysis(layout, results={"attention": even})
    assert said(made, "no head of 1 prefers an offset")


def test_heads_without_logits_of_positions_look_nowhere_and_are_not_drawn(tmp_path: Path) -> None:
    table, zero = table_of(Sequence(24)), np.zeros((WIDTH, HEADS * 4))
    found = HeadsByLayer({0: head_logits(table, zero, zero, heads=HEADS, causal=True)})
    made = forward_analysis(Sequence(24), results={"heads": found})
    document = made.to_dict()
    assert problems(document) == []
    (answer,) = document["verdict"]["answers"]
    assert answer["answer"] == "no"
    assert answer["sentence"].endswith(f"no head of {HEADS} prefers an offset.")
    assert "same token" not in json.dumps(document["heads"])
    assert not said(made, "change smoothly")
    made.save(tmp_path / "made")
    assert [p.stem for p in (tmp_path / "made/figures").glob("*peaks*")] == []


@pytest.mark.parametrize(
    ("without", "dtype", "knows"),
    [
        (1e-7, "float32", False), (0.4, "float32", True),
        # What BERT's own rounding makes in half precision.
        (6e-3, "bfloat16", False), (1e-3, "float16", False), (0.1, "bfloat16", True),
    ],
)  # fmt: skip
def test_order_is_unknown_without_positions_only_where_it_makes_no_difference(
    without: float, dtype: str, knows: bool
) -> None:
    results = results_of(Sequence(24))
    effect: Any = results["permutation"]
    zero = replace(effect.without_positions, tokens=without)
    results["permutation"] = replace(effect, without_positions=zero)
    made = forward_analysis(results=results)
    made = replace(made, model=dict(made.model) | {"dtype": dtype})
    (text,) = said(made, "Permuting")
    assert ("order makes no difference" in text) != knows
    assert ("order makes a difference" in text) == knows


def test_one_context_says_nothing_of_positions() -> None:
    states = mean_decomposition(
        {0: moments(np.random.default_rng(0).normal(size=(1, 24, WIDTH)))}, layout=Sequence(24)
    )
    made = forward_analysis(Sequence(24), results={"states": states})
    assert said(made, "cannot be told from what its content adds")
    assert not said(made, "account for")


def test_how_many_contexts_were_run_is_said_whatever_was_measured() -> None:
    results = results_of(Sequence(24))
    for name, used in (("permutation", results["permutation"]), ("heads", None)):
        made = forward_analysis(results={name: results[name]}).to_dict()
        assert made["contexts"]["used"] == getattr(used, "contexts", 0)


# The page and the terminal.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return forward_analysis().save(tmp_path_factory.mktemp("page") / "bundle")


def test_the_page_is_rendered_again_from_the_folder_alone(folder: Path) -> None:
    page = (folder / "report.html").read_text("utf-8")
    assert render_bundle(folder).read_text("utf-8") == page
    assert page.count("<figure>") == len(list((folder / "figures").glob("*.svg")))
    document = read_bundle(folder)
    assert document == json.loads((folder / "analysis.json").read_text("utf-8"))
    shown = unescape(page)
    for finding in document["findings"]:
        assert f"<li>{finding['text']}</li>" in shown
    for name, found in MODEL.items():
        if document[name] is not None:
            for text in (found.title, found.reading, found.limits, found.source):
                assert text in shown


def test_a_bundle_that_lost_its_figures_says_to_run_the_model_again(tmp_path: Path) -> None:
    folder = forward_analysis(results={"heads": heads_of(Sequence(9))}).save(tmp_path / "bundle")
    for path in (folder / "figures").iterdir():
        path.unlink()
    with pytest.raises(InvalidCheckpoint, match="Run the model again"):
        render_bundle(folder)


def test_a_folder_of_bundles_lists_it(tmp_path: Path) -> None:
    states = results_of(Grid(3, 4))["states"]
    forward_analysis(Grid(3, 4), results={"states": states}).save(tmp_path / "grid")
    forward_analysis(results={"heads": heads_of(Sequence(9))}).save(tmp_path / "heads")
    page = write_index(tmp_path).read_text("utf-8")
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", page, flags=re.DOTALL)
    assert "run of a model on 12 contexts" in rows[0]
    assert re.search(r'<td class="value"[^>]*>12</td>', rows[0])
    assert "run of a model" in rows[1]
    assert re.search(r'<td class="value"[^>]*>–</td>', rows[1])


def test_the_table_of_layers_stands_above_the_sinusoid_and_the_walks() -> None:
    document = forward_analysis().to_dict()
    table = layers_table(document)
    assert [row[0] for row in table.rows] == ["0", "1", "3"]
    assert [row[0] for row in table.foot] == ["sinusoid", "random walks"]
    assert {len(row) for row in (*table.rows, *table.foot)} == {len(table.columns)}
    layer = document["states"]["layers"][1]
    assert table.rows[1][1] == f"{100 * layer['shares']['position']:.1f} %"
    assert table.rows[1][8] == f"{layer['analyses']['pca.stable_rank']:.3g}"
    bare = forward_analysis(draws=0).to_dict()
    assert problems(bare) == []
    assert [row[0] for row in layers_table(bare).foot] == ["sinusoid"]


def test_noise_is_a_share_of_the_variance_in_the_table_and_in_the_sentence() -> None:
    layout = Sequence(24)
    states = moments(states_of(layout, contexts=6, signal=0.5))
    results = {"states": mean_decomposition({0: states}, layout=layout)}
    made = forward_analysis(layout, results=results)
    (layer,) = made.to_dict()["states"]["layers"]
    # Its unit is that of the share of position, of which it is a part.
    noise = f"{100 * layer['noise_share'] * layer['shares']['position']:.1f} %"
    share = f"{100 * layer['shares']['position']:.1f} %"
    assert noise != f"{100 * layer['noise_share']:.1f} %"
    (row,) = layers_table(made.to_dict()).rows
    assert row[1:3] == (share, noise)
    (text,) = said(made, "variance of the hidden states")
    assert f"{share} at layer 0 ({noise} by sampling noise)" in text


def test_a_large_model_has_a_small_page_and_a_short_summary(tmp_path: Path) -> None:
    made = large()
    folder = made.save(tmp_path / "bundle")
    assert (folder / "report.html").stat().st_size < LIMIT
    document = read_bundle(folder)
    assert problems(document) == []
    assert sum(layer["heads"] for layer in document["heads"]["layers"]) == 1024
    lines = printed(page_model(document), 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 120


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_summary_says_findings_layers_heads_and_what_is_missing(layout: Layout) -> None:
    made = forward_analysis(layout, missing={"words": "a reason"}, notes=("it was stopped",))
    text = printed(page_model(made.to_dict()), 80)
    joined = " ".join(text.split())
    document = made.to_dict()
    assert document["verdict"]["summary"] in joined
    assert all(MODEL_QUESTIONS[a["question"]][:12] in text for a in document["verdict"]["answers"])
    everything = " ".join(printed(page_model(document), 80, verbose=True).split())
    for finding in made.findings[:12]:
        assert finding.text in everything
    for part in ("note: it was stopped", "random walks", "by their weights", "a reason"):
        assert part in joined
    assert MODEL["words"].title in text
    assert max(map(len, text.splitlines())) <= 80


HOSTILE = "<img src=x onerror=alert(1)>'\"&"


def test_hostile_names_are_shown_as_text() -> None:
    made = forward_analysis(
        name=HOSTILE, kind=HOSTILE, notes=(HOSTILE,), missing={"words": HOSTILE},
        model={"class": HOSTILE, "parameters": 1, "dtype": "float32", "device": "cpu"},
    )  # fmt: skip
    page = page_of(made)
    assert "<img src=x" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    card = made._repr_html_()
    assert "<img src=x" not in card
    assert "&lt;img" in card


def test_the_notebook_card_shows_findings_and_layers() -> None:
    made = forward_analysis()
    card = unescape(made._repr_html_())
    for finding in made.findings:
        assert finding.text in card
    assert "<th>relative norm</th>" in card
    assert "random walks" in card
    heads = forward_analysis(results={"heads": heads_of(Sequence(9))})._repr_html_()
    assert "<th>relative norm</th>" not in heads


def test_the_public_face_names_it() -> None:
    assert pp.ForwardAnalysis is ForwardAnalysis
