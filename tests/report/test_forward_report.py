"""The bundle of a run of a model: document, page, what the terminal says, and what is drawn."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, strategies as st
from made_forward import (
    HEADS,
    RANDOM_TOKENS,
    WIDTH,
    attention_of,
    budget_of,
    default_results,
    forward_analysis,
    results_of,
    states_of,
    window_of,
)
from made_schemas import problems
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from posprobe.analyses.models.attention import (
    AttentionByOffset,
    LayerAttention,
    attention_by_offset,
    sum_attention,
)
from posprobe.analyses.models.attention_budget import AttentionBudget
from posprobe.analyses.models.states import (
    LayerMeans,
    MeanDecomposition,
    build_decomposition,
    sum_moments,
)
from posprobe.errors import InvalidCheckpoint
from posprobe.figures import report_figures, style
from posprobe.figures.common import pick_evenly
from posprobe.figures.relative import MAX_STRIPES
from posprobe.figures.rotary_use import plot_pair_shares
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.measurements.model import MODEL_MEASUREMENTS
from posprobe.report import forward_name, read_bundle, render_bundle
from posprobe.report.render import build_page as page_model, render
from posprobe.report.screen import render_text as printed
from posprobe.studies import ForwardAnalysis
from posprobe.text import format_percent
from posprobe.words import QUESTION_TEXTS

mpl.use("agg")
LIMIT = 2_000_000


LAYOUTS = [Sequence(24), Sequence(5), Grid(3, 4), Grid(18, 2)]


def large_budget(layers: int, heads: int, n: int) -> AttentionBudget:
    """A budget of as many heads, copies of a measured one."""
    layout = Sequence(n)
    window = window_of(layout, causal=True)
    assert not isinstance(window, str)
    budget = budget_of(window, layout, layers=1)
    return replace(
        budget,
        heads=tuple(
            replace(budget.heads[0], layer=layer, head=head)
            for layer in range(layers)
            for head in range(heads)
        ),
        layers=tuple(replace(budget.layers[0], layer=layer) for layer in range(layers)),
        curves=np.repeat(budget.curves[:1], layers * heads, axis=0),
    )


def large(layers: int = 32, heads: int = 32, n: int = 512) -> ForwardAnalysis:
    """A run of a model as large as Llama 2 7B but for its width."""
    rng = np.random.default_rng(0)
    layout = Sequence(n)

    def curves() -> Any:
        weights = rng.random((heads, 2 * n - 1)) / n
        weights[:, n:] = 0
        return weights

    def peaks() -> Any:
        return -rng.integers(0, 30, (heads, 1))

    def share() -> Any:
        return rng.random(heads)

    def means() -> LayerMeans:
        pos = np.cumsum(rng.normal(size=(n, WIDTH)), axis=0)
        shares = {"position": 0.3, "context": 0.1, "rest": 0.6}
        return LayerMeans(
            pos[0], pos - pos.mean(axis=0), pos / 9, 2.0, 7, 0.01, 0.4, shares
        )

    attention = {
        number: LayerAttention(
            curves(), peaks(), np.full(heads, fill_value=True), share(), np.zeros(heads), share(),
            share(), 0.5,
        )
        for number in range(layers)
    }  # fmt: skip
    results = {
        "states": MeanDecomposition(
            {k: means() for k in range(layers + 1)}, 64, layout, 0, "large"
        ),
        "attention_budget": large_budget(layers, heads, n),
        "attention": AttentionByOffset(attention, 64, layout, "large"),
        "words": AttentionByOffset(attention, 64, layout, "large"),
    }
    return forward_analysis(layout, results=results)


def page_of(analysis: ForwardAnalysis) -> str:
    """The page without its drawings, which take most of the time."""
    return render(analysis.to_dict(), {})


# The document.


@pytest.mark.parametrize("name", MODEL_MEASUREMENTS)
def test_any_result_can_stand_alone_or_be_missing(name: str) -> None:
    layout: Layout = Grid(3, 4) if name == "blank" else Sequence(24)
    results = results_of(layout)
    single = forward_analysis(layout, results={name: results[name]})
    assert problems("forward", single.to_dict()) == []
    assert {
        name_found
        for name_found in MODEL_MEASUREMENTS
        if single.to_dict()[name_found] is not None
    } == {name}
    assert re.findall("<h2>(.*?)</h2>", page_of(single)) == [
        "Evidence",
        "All numbers",
        "Provenance",
    ]
    measurement = MODEL_MEASUREMENTS[name]
    labels = [number.label for number in measurement.numbers.values()]
    labels += [label for label, _ in measurement.rows(single.to_dict())]
    assert [str(row[0]) for row in page_model(single.to_dict()).numbers.rows] == labels
    other_results = {
        name_found: result for name_found, result in results.items() if name_found != name
    }
    incomplete = forward_analysis(
        layout, results=other_results, missing={name: "<b>no</b> reason"}
    )
    document = incomplete.to_dict()
    assert problems("forward", document) == []
    assert document[name] is None
    page = page_of(incomplete)
    assert "&lt;b&gt;no&lt;/b&gt; reason" in page
    assert f"Not measured: {name} (<b>no</b> reason)." in page_model(document).notes


def test_every_null_has_its_reason_beside_it() -> None:
    states = np.ones((1, 24, WIDTH))
    flat = build_decomposition(
        {0: sum_moments(states), 4: sum_moments(states)}, layout=Sequence(24)
    )
    document = forward_analysis(
        results=results_of(Sequence(24)) | {"states": flat}
    ).to_dict()
    assert problems("forward", document) == []
    for layer in document["states"]["layers"]:
        nulls = {key for key, value in layer.items() if value is None}
        nulls |= {key for key, value in layer["analyses"].items() if value is None}
        assert nulls - {"shares", "relative_norm_frobenius"} <= set(
            document["states"]["undefined"]
        )
    assert "[0, 4]" in document["states"]["undefined"]["pca.stable_rank"]
    for key in ("special", "accuracy"):
        assert document["permutation"]["with_positions"][key] is None
        assert document["permutation"]["undefined"][key]


def test_sequence_numbers_are_undefined_on_a_grid() -> None:
    document = forward_analysis(Grid(3, 4)).to_dict()
    undefined = document["states"]["undefined"]
    assert document["states"]["layers"][0]["analyses"]["sinusoid.ladder_share"] is None
    assert undefined["sinusoid.ladder_share"] == "patches are not on a line"
    for name in ("attention", "attention_budget"):
        assert document[name]["uniform_first"] is None
        assert document[name]["undefined"]["first"]
    assert {head["first"] for head in document["attention_budget"]["heads"]} == {None}


def test_of_repeated_words_the_first_layer_alone_is_reported() -> None:
    analysis = forward_analysis()
    document = analysis.to_dict()
    assert [layer["layer"] for layer in document["attention"]["layers"]] == [0, 1]
    assert [layer["layer"] for layer in document["words"]["layers"]] == [0]
    assert {key for key in analysis.arrays() if key.endswith("_words")} == {"0_words"}


@pytest.mark.parametrize("causal", [False, True])
def test_even_heads_have_the_uniform_first_position_share(
    causal: bool,
) -> None:
    layout = Sequence(11)
    mask = np.tri(11) if causal else np.ones((11, 11))
    weights = np.broadcast_to(mask / mask.sum(axis=1, keepdims=True), (2, 3, 11, 11))
    attention = attention_by_offset({0: sum_attention(weights, layout)}, layout=layout)
    block = forward_analysis(layout, results={"attention": attention}).to_dict()[
        "attention"
    ]
    assert block["causal"] is causal
    assert block["layers"][0]["first"] == pytest.approx([block["uniform_first"]] * 3)


def test_arrays_hold_position_means_and_curves() -> None:
    analysis = forward_analysis(Sequence(24))
    arrays = analysis.arrays()
    states = analysis.results["states"]
    assert isinstance(states, MeanDecomposition)
    for number, layer in states.layers.items():
        np.testing.assert_allclose(
            arrays[f"{number}_pos"], layer.pos, rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(
            arrays[f"{number}_error"] ** 2, (layer.error**2).sum(axis=1)
        )
    assert arrays["1_attention"].shape == (HEADS, 47)
    assert arrays["attention_curves"].shape == (2 * HEADS, 15)
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


@pytest.mark.parametrize(
    ("kind", "random"), [(RANDOM_TOKENS, "random tokens"), ("windows of x.txt", "")]
)
def test_random_contexts_are_named_on_the_page(kind: str, random: str) -> None:
    analysis = forward_analysis(kind=kind)
    summary = analysis.to_dict()["verdict"]["summary"]
    assert ("random tokens" in summary) == bool(random)
    assert ("To measure on text instead" in page_of(analysis)) == bool(random)
    # What is random is a field, and no word.
    of_a_text = replace(analysis, contexts={**analysis.contexts, "random": False})
    assert "To measure on text" not in page_of(of_a_text)


def test_unused_contexts_are_not_mentioned() -> None:
    overlap = results_of(Sequence(24))["subspaces"]
    analysis = forward_analysis(results={"subspaces": overlap})
    assert analysis.to_dict()["contexts"]["used"] == 0
    assert "random tokens" not in page_of(analysis)


def test_heads_that_prefer_no_offset_are_counted_apart() -> None:
    layout = Sequence(9)
    back = np.eye(9, k=-1)
    back[0, 0] = 1
    weights = np.stack([back, np.full((9, 9), 1 / 9), back])[None]
    attention = attention_by_offset({5: sum_attention(weights, layout)}, layout=layout)
    document = forward_analysis(layout, results={"attention": attention}).to_dict()
    (_, texts), *_ = MODEL_MEASUREMENTS["attention"].rows(document)
    assert texts == {5: "previous token (2 of 3)"}


def test_the_number_of_contexts_is_always_stated() -> None:
    results = results_of(Sequence(24))
    for name, expected_result in (
        ("permutation", results["permutation"]),
        ("attention_budget", results["attention_budget"]),
        ("subspaces", None),
    ):
        analysis = forward_analysis(results={name: results[name]}).to_dict()
        assert analysis["contexts"]["used"] == getattr(expected_result, "contexts", 0)


# The page and the terminal.


def test_a_bundle_that_lost_its_figures_says_to_run_the_model_again(
    tmp_path: Path,
) -> None:
    folder = forward_analysis(
        results={"subspaces": results_of(Sequence(24))["subspaces"]}
    ).save(tmp_path / "bundle")
    for path in (folder / "figures").iterdir():
        path.unlink()
    with pytest.raises(InvalidCheckpoint, match="Run the model again"):
        render_bundle(folder)


def test_layers_stand_beside_the_sinusoid_and_the_walks() -> None:
    document = forward_analysis().to_dict()
    table = page_model(document).numbers
    heads = [column.label for column in table.columns]
    assert {len(row) for row in table.rows} == {len(heads)}
    assert heads[-5:] == ["layer 0", "layer 1", "layer 3", "sinusoid", "random walks"]
    rows = {str(row[0]): dict(zip(heads, row, strict=True)) for row in table.rows}
    layer = document["states"]["layers"][1]
    share = format_percent(layer["shares"]["position"])
    assert rows["variance explained by position"]["layer 1"] == share
    rank = rows["stable rank of what positions add"]
    assert rank["layer 1"] == f"{layer['analyses']['pca.stable_rank']:.3g}"
    assert rank["sinusoid"] == f"{document['beside']['sinusoid']['pca.stable_rank']:.3g}"
    assert " to " in str(rank["random walks"])
    bare = forward_analysis(draws=0).to_dict()
    assert problems("forward", bare) == []
    assert page_model(bare).numbers.columns[-1].label == "sinusoid"


def test_noise_is_a_share_of_the_variance_in_the_table_and_in_the_sentence() -> None:
    layout = Sequence(24)
    states = sum_moments(states_of(layout, contexts=6, signal=0.5))
    results = {"states": build_decomposition({0: states}, layout=layout)}
    analysis = forward_analysis(layout, results=results)
    (layer,) = analysis.to_dict()["states"]["layers"]
    # Its unit is that of the share of position, of which it is a part.
    noise = layer["noise_share"] * layer["shares"]["position"]
    assert format_percent(noise) != format_percent(layer["noise_share"])
    rows = dict(MODEL_MEASUREMENTS["states"].rows(analysis.to_dict()))
    share = format_percent(layer["shares"]["position"])
    assert rows["variance explained by position"] == {0: share}
    assert rows["of which sampling noise"] == {0: format_percent(noise)}
    kept_answer: Any = analysis.answers["kept"]
    assert (kept_answer.facts.last.share, kept_answer.facts.last.noise) == (
        layer["shares"]["position"],
        noise,
    )
    assert (kept_answer.test.value, kept_answer.test.null) == (
        layer["shares"]["position"],
        noise,
    )


def test_a_large_model_has_a_small_page_and_a_short_summary(tmp_path: Path) -> None:
    analysis = large(n=64)
    folder = analysis.save(tmp_path / "bundle")
    assert (folder / "report.html").stat().st_size < LIMIT
    document = read_bundle(folder)
    assert problems("forward", document) == []
    assert len(document["attention_budget"]["heads"]) == 1024
    lines = printed(document, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 120


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_terminal_shows_answers_and_missing_measurements(layout: Layout) -> None:
    analysis = forward_analysis(
        layout, missing={"words": "a reason"}, notes=("it was stopped",)
    )
    text = printed(analysis.to_dict(), 80)
    joined = " ".join(text.split())
    document = analysis.to_dict()
    # Of a long headline the first sentences.
    assert f"{document['verdict']['summary'].partition('. ')[0]}." in joined
    assert all(
        QUESTION_TEXTS[a["question"]][:12] in text for a in document["verdict"]["answers"]
    )
    for part in ("note: It was stopped", "Not measured: words (a reason)"):
        assert part in joined
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("layout", [Sequence(24), Grid(3, 4)], ids=str)
def test_the_terminal_shows_a_default_run_on_one_screen(layout: Layout) -> None:
    results = default_results(layout)
    assert set(results) == {"attention_budget", "states", "places", "permutation"}
    kind = "windows of Python's documentation"
    analysis = forward_analysis(layout, kind, results=results)
    assert len(printed(analysis.to_dict(), 80).splitlines()) <= 20


# Figures.


@pytest.mark.parametrize("layout", [Sequence(5), Grid(18, 2)], ids=str)
def test_figures_are_drawn_for_existing_results(layout: Layout, tmp_path: Path) -> None:
    analysis = forward_analysis(layout)
    figures = analysis.figures()
    assert set(figures) == {
        drawing.name
        for key in analysis.results
        for drawing in MODEL_MEASUREMENTS[key].drawings
    }
    for name, make in figures.items():
        with style():
            make().savefig(tmp_path / f"{name}.svg")
    assert all(path.stat().st_size > 5000 for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", MODEL_MEASUREMENTS)
def test_every_result_draws_itself(name: str) -> None:
    result = results_of(Grid(3, 4) if name == "blank" else Sequence(24))[name]
    ax = Figure().add_subplot()
    assert result.plot(ax) is ax
    assert ax.has_data()


def test_positions_that_add_nothing_are_drawn_as_far_as_they_can_be() -> None:
    flat = build_decomposition(
        {0: sum_moments(np.ones((2, 9, WIDTH)))}, layout=Sequence(9)
    )
    figures = MODEL_MEASUREMENTS["states"].prepare_figures({"a model": flat})
    assert set(figures) == {"layers"}
    figures["layers"]()


def test_wavelengths_of_pairs_are_written_out() -> None:
    ladder = 1e4 ** (-np.arange(8) / 8)
    ax = Figure().add_subplot()
    plot_pair_shares(ax, np.zeros((9, 2)), [0, 1], np.append(ladder, 0), [4, 4])
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[0] == "6.28"
    assert labels[-2:] == ["19,900", "never"]


def test_a_row_shows_the_attention_of_its_head_around_the_offset_0() -> None:
    layout = Sequence(50)
    weights = {k: attention_of(layout, seed=k) for k in range(2)}
    sums = {k: sum_attention(layer, layout) for k, layer in weights.items()}
    attention = attention_by_offset(sums, layout=layout)
    with style():
        ax = report_figures({"a model": attention}, ("attention",))["attention"]().axes[0]
    (mesh,) = (
        mesh_candidate
        for mesh_candidate in ax.collections
        if isinstance(mesh_candidate, QuadMesh)
    )
    values = np.asarray(mesh.get_array())
    curve = attention.layers[1].curves[1, 49 - 16 : 49 + 17]
    np.testing.assert_allclose(values[HEADS + 1], curve)
    edges = np.asarray(mesh.get_coordinates())[0, :, 0]
    assert (edges[0], edges[-1]) == (-16.5, 16.5)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "1"]


def test_a_tile_shows_the_map_of_its_head_with_the_query_in_the_middle() -> None:
    layout = Grid(3, 4)
    attention = attention_by_offset(
        {
            number: sum_attention(attention_of(layout, seed=number), layout)
            for number in range(2)
        },
        layout=layout,
    )
    with style():
        ax = report_figures({"a model": attention}, ("words",))["words"]().axes[0]
    values = np.asarray(ax.images[0].get_array())
    for layer, head in ((0, 0), (1, 2)):
        tile = values[layer * 6 : layer * 6 + 5, head * 8 : head * 8 + 7]
        np.testing.assert_allclose(tile, attention.layers[layer].curves[head])


def test_bars_are_as_long_as_what_changes() -> None:
    with style():
        figure = forward_analysis(Grid(3, 4)).figures()["permutation"]()
    widths = [
        [bar.get_width() for bar in ax.patches if isinstance(bar, Rectangle)]
        for ax in figure.axes
    ]
    assert widths == [[0.8, 0.3, 1e-7, 0.0], [0.9, 0.1, 0.2, 0.1]]


def test_figures_of_large_models_name_the_heads_shown() -> None:
    analysis = large(n=64)
    with style():
        ax = analysis.figures()["attention"]().axes[0]
    (mesh,) = (
        mesh_candidate
        for mesh_candidate in ax.collections
        if isinstance(mesh_candidate, QuadMesh)
    )
    attention = analysis.results["attention"]
    assert isinstance(attention, AttentionByOffset)
    curves = np.concatenate([layer.curves for layer in attention.layers.values()])
    stride = -(-len(curves) // MAX_STRIPES)
    values = np.asarray(mesh.get_array())
    assert values.shape == (-(-len(curves) // stride), 33)
    assert f"one in {stride} is drawn" in ax.get_ylabel()
    # The second stripe is of the head so many further on; the scale has an end.
    low = min(0.1 / 64, float(curves.max()) / 10)
    curve = np.maximum(curves[stride][63 - 32 : 64], low)
    np.testing.assert_allclose(values[1], curve)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert (labels[0], labels[-1]) == ("0", "31")


@given(count=st.integers(1, 200), most=st.integers(2, 40))
def test_items_are_spread_from_the_first_to_the_last(count: int, most: int) -> None:
    spread_items = pick_evenly(range(count), most)
    assert len(spread_items) == min(count, most)
    assert (spread_items[0], spread_items[-1]) == (0, count - 1)
    steps = np.diff(spread_items)
    assert (steps >= 1).all()
    assert not len(steps) or steps.max() - steps.min() <= 1
