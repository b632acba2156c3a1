"""What a notebook shows of each public result, and where a mistyped attribute is."""

import base64
import copy
import pickle
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import posprobe as pp
from posprobe.analyses.facts import Answers
from posprobe.drawable import Card, Displayable, html_card
from posprobe.errors import MissingExtra, UsageError
from posprobe.report import to_json

#: Size limit of what a notebook stores of one result, in bytes.
MAX_CARD_BYTES = 100_000

SEQUENCE = "sample:all-minilm-l6-v2"
GRID = "sample:digits-vit"
MEASUREMENTS = (
    "bridging", "budget", "clock", "norms", "pca", "seams", "shift", "similarity",
    "spectrogram", "spectrum", "winding",
)  # fmt: skip


def measured(name: str, reference: str) -> Callable[[], Any]:
    return lambda: getattr(pp, name)(reference)


#: Results with a picture, by the public name that makes them.
DRAWN: dict[str, Callable[[], Any]] = {
    "load": lambda: pp.load(SEQUENCE),
    "load_schemes": lambda: pp.load_schemes("alibi:64x4"),
    "surrogate": lambda: pp.surrogate("sinusoidal:64x8", "walk"),
    "analyze": lambda: pp.analyze(SEQUENCE),
    "analyze, grid": lambda: pp.analyze(GRID),
    "analyze, scheme": lambda: pp.analyze("rotary:128x16"),
    "compare": lambda: pp.compare("sinusoidal:32x8", "counting:32x8"),
    "compare_kernels": lambda: pp.compare_kernels("sinusoidal:32x8", "rotary:32x8"),
    "check": lambda: pp.check("rotary:512x16,base=5000", "rotary:512x16"),
    "paper_figure": lambda: pp.paper_figure("norms", "sinusoidal:64x8"),
    **{name: measured(name, SEQUENCE) for name in MEASUREMENTS},
    **{name: measured(name, GRID) for name in ("grid", "axis_codes")},
}
#: Results without one.
UNDRAWN: dict[str, Callable[[], Any]] = {
    "answers": lambda: analysis().answers,
    "answer": lambda: analysis().answers["order"],
    "nearest": lambda: pp.nearest(SEQUENCE),
    "match": lambda: pp.nearest(SEQUENCE).matches[0],
    "likeness": lambda: pp.nearest(SEQUENCE).matches[0].likeness,
    "research_table": lambda: pp.research_table("sinusoidal:64x16", numbers=["dim"]),
    "load_tokens": lambda: pp.load_tokens(GRID),
    "sweep": lambda: pp.sweep(["sinusoidal:64x16"], jobs=1),
}


def analysis() -> Any:
    return pp.analyze("sinusoidal:64x8")


def images(html: str) -> list[Image.Image]:
    addresses = re.findall(r'<img alt="[^"]*" src="data:image/png;base64,([^"]*)"', html)
    return [Image.open(BytesIO(base64.b64decode(address))) for address in addresses]


@pytest.mark.parametrize("name", DRAWN)
def test_results_show_a_picture_in_a_notebook(name: str) -> None:
    html = DRAWN[name]()._repr_html_()
    assert len(html) < MAX_CARD_BYTES
    assert "://" not in html
    drawn_pixels = [np.asarray(image.convert("L")) for image in images(html)]
    assert drawn_pixels
    assert all(np.ptp(pixels) > 100 for pixels in drawn_pixels)  # not a blank sheet


@pytest.mark.parametrize("name", UNDRAWN)
def test_results_without_picture_show_a_table(name: str) -> None:
    html = UNDRAWN[name]()._repr_html_()
    assert len(html) < MAX_CARD_BYTES
    assert "<td" in html or name == "answer"


def test_noise_fills_a_picture_and_still_keeps_the_size_limit() -> None:
    noise = pp.table(np.random.default_rng(0).normal(size=(400, 300)))
    assert len(pp.analyze(noise)._repr_html_()) < MAX_CARD_BYTES


def test_cards_of_runs_say_what_they_show_in_words() -> None:
    contexts = pp.Contexts(count=16)
    names = ("attention_budget", "places")
    run = pp.analyze_model(GRID, contexts, only=names, nulls=0)
    budget, places = (run.results[name]._repr_html_() for name in names)
    for html in (budget, places):
        assert images(html)
        assert "None" not in html
        assert "undefined" not in html
    assert run.answers["position_decides"].answer == "yes"
    assert "Position decides" in budget
    assert "share of logits, mean over heads" in budget
    assert "16 of 64 patches" in places


def test_answers_have_the_marks_of_the_page() -> None:
    html = analysis().answers._repr_html_()
    assert '<span aria-hidden="true">●</span> yes</td>' in html
    assert "○" in html


def test_a_caption_in_a_card_ends_with_its_sentence() -> None:
    html = pp.paper_figure("norms", "sinusoidal:64x8")._repr_html_()
    assert "\n" not in html.partition("</p>")[0]
    assert "\\n" not in html


def test_a_card_draws_nothing_into_pyplot() -> None:
    import matplotlib.pyplot as plt

    plt.close("all")
    pp.norms("sinusoidal:64x8")._repr_html_()
    assert plt.get_fignums() == []


def test_a_picture_of_undefined_numbers_is_left_out() -> None:
    def refuse() -> Any:
        raise UsageError("its numbers are undefined.")

    assert "<img" not in html_card(Card("a", {"b": 1}, pictures=(refuse,)))


def test_long_tables_of_a_card_are_cut_with_the_number_of_omitted_lines() -> None:
    html = html_card(Card("a", {}, lines=[{"row": k} for k in range(25)]))
    assert "… and 5 more" in html
    assert html.count("<tr>") == 21


def test_the_card_of_a_sweep_lists_its_rows_after_a_run() -> None:
    sweep = pp.sweep(["sinusoidal:64x16", "rotary:64x16"], jobs=1)
    assert "not run yet" in sweep._repr_html_()
    html = sweep.run()._repr_html_()
    assert "rotary:64x16" in html
    assert "sinusoidal:64x16" in html


# Answers by name.


def test_answers_are_found_by_index_slice_and_question() -> None:
    answers = analysis().answers
    assert answers[answers[2].question] is answers[2]
    assert answers[1:3] == (answers[1], answers[2])
    assert "order" in answers
    assert "colour" not in answers
    with pytest.raises(UsageError, match=r"no answer to a question 'oder'.*order"):
        answers["oder"]
    with pytest.raises(UsageError, match=r"'xyzzy'\. There is .*order"):
        answers["xyzzy"]
    with pytest.raises(IndexError):
        answers[99]


def test_answers_make_a_data_frame_with_a_row_per_question() -> None:
    answers = pp.analyze(SEQUENCE).answers
    frame = answers.to_pandas()
    assert list(frame.columns) == [
        "question", "answer", "value", "low", "high", "p", "sentence",
    ]  # fmt: skip
    assert list(frame["question"]) == [answer.question for answer in answers]
    order = frame.set_index("question").loc["order"]
    assert order["answer"] == "yes"
    assert not order["low"] <= order["value"] <= order["high"]
    assert order["p"] == answers["order"].p
    assert order["sentence"] == answers["order"].sentence


def test_a_data_frame_without_pandas_is_one_clear_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("posprobe.drawable.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match="pip install pandas"):
        analysis().answers.to_pandas()


def test_schemes_have_answers_of_the_same_type() -> None:
    answers = pp.analyze("rotary:128x16").answers
    assert isinstance(answers, Answers)
    assert len(answers.to_pandas()) == len(answers) > 0


# Mistyped attributes.


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("pca", r"\.results\['pca'\]"),
        ("similarty", r"\.results\['similarity'\]"),
        ("answer", r"\.answers"),
        ("xyzzy", "no attribute 'xyzzy'"),
    ],
)
def test_a_mistyped_attribute_says_where_it_is(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=hint):
        getattr(analysis(), name)


def test_an_unmeasured_result_is_named_with_the_call_that_measures_it() -> None:
    table = pp.load("sinusoidal:64x8")
    norms_only = pp.analyze(table, only=["norms"])
    with pytest.raises(AttributeError, match="analyze") as caught:
        _ = norms_only.pca  # type: ignore[attr-defined]
    (call,) = re.findall(r"Use (.*)\.$", str(caught.value))
    measured = eval(call, {"posprobe": pp, "table": table})  # noqa: S307 - our own hint
    assert type(measured).__name__ == "PCA"
    with pytest.raises(AttributeError, match=r"attribute 'grid'\.$"):
        _ = norms_only.grid  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "make", [analysis, lambda: analysis().answers, lambda: pp.pca(GRID)]
)
def test_copies_and_probes_of_attributes_work(make: Callable[[], Any]) -> None:
    result = make()
    assert not hasattr(result, "_ipython_display_")
    assert not hasattr(result, "__len_hint__")
    assert getattr(result, "colour", None) is None
    for twin in (
        copy.copy(result),
        copy.deepcopy(result),
        pickle.loads(pickle.dumps(result)),  # noqa: S301 - our own bytes
    ):
        assert type(twin) is type(result)
        assert repr(twin) == repr(result)


def run_results() -> list[Any]:
    """Return what a running model gives."""
    model = pp.load_model("sample:pydoc-llama")
    contexts = np.random.default_rng(0).integers(5, 128, (16, 64))
    run = pp.analyze_model(
        "sample:pydoc-llama", pp.Contexts(count=8), only=["attention_budget"]
    )
    return [
        pp.attention_budget(model, contexts),
        pp.places(model, contexts),
        pp.rotary_use(model, [contexts]),
        pp.positions_of(model, contexts[:1]),
        run,
        run.answers,
    ]


def checks() -> list[Any]:
    return [
        pp.check("rotary:512x64", "rotary:512x64,linear=4"),
        pp.check("rotary:512x64", "rotary:512x64,base=500000"),
        pp.check("sample:rxnmapper-albert", "sample:sapiens-roberta"),
    ]


def comparisons() -> list[Any]:
    return [
        pp.compare(SEQUENCE, "walk", only=["pca"]),
        pp.compare_kernels("sinusoidal:32x8", "rotary:32x8"),
        pp.nearest("sample:digits-vit"),
        pp.analyze("rotary:128x16"),
        pp.paper_figure("norms", SEQUENCE),
    ]


@pytest.mark.parametrize("make", [run_results, checks, comparisons])
def test_results_are_the_same_after_a_copy_and_another_process(
    make: Callable[[], list[Any]],
) -> None:
    for result in make():
        for twin in (
            copy.deepcopy(result),
            pickle.loads(pickle.dumps(result)),  # noqa: S301 - our own bytes
        ):
            assert type(twin) is type(result)
            assert repr(twin) == repr(result)
            if hasattr(result, "to_dict"):
                assert to_json(twin.to_dict()) == to_json(result.to_dict())


def test_a_property_that_fails_runs_once_and_keeps_its_own_error() -> None:
    calls = []

    class Broken(Displayable):
        @property
        def colour(self) -> Any:
            calls.append("colour")
            return np.zeros(1).hue  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="hue"):
        _ = Broken().colour
    assert len(calls) == 1


# References where a table is taken.


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_measurements_take_a_reference(name: str) -> None:
    measure = getattr(pp, name)
    assert repr(measure("sinusoidal:64x8")) == repr(measure(pp.sinusoidal(64, 8)))


def test_functions_of_tables_take_references_and_paths(tmp_path: Path) -> None:
    path = tmp_path / "table.npy"
    np.save(path, pp.sinusoidal(16, 8).values)
    assert pp.table(path).shape == pp.table(str(path)).shape == (16, 8)
    assert len(pp.resize(path, to=20, how="linear")) == 20
    assert pp.surrogate(path, "walk").shape == (16, 8)
    assert pp.product(path, path, how="add").shape == (256, 8)
    analysed: Any = pp.analyze(path, only="norms")
    assert analysed.results.keys() == {"norms"}
    assert pp.paper_figure("norms", path).caption


def test_a_reference_is_analysed_as_the_command_line_does() -> None:
    assert pp.analyze("rotary:64x8").to_dict()["schemes"]
    analysed: Any = pp.analyze("sample:pydoc-llama")
    assert "weights" in analysed.results[0]
    with pytest.raises(UsageError, match="unknown analysis 'pcs'"):
        pp.analyze("no-such-repository/x", only=["pcs"])


def test_comparisons_give_formulas_and_null_models_the_shape_of_the_first_table() -> None:
    table = pp.sinusoidal(32, 8)
    comparison = pp.compare(table, "counting", "walk")
    assert [a.table.shape for a in comparison.analyses] == [(32, 8)] * 3
    kernels = pp.compare_kernels(table, "sinusoidal", "rotary:32x8")
    assert kernels.labels[2] == "rotary:32x8"
    with pytest.raises(UsageError, match="cannot be the first"):
        pp.compare("sinusoidal", table)
    with pytest.raises(UsageError, match=r"no table.*compare_kernels"):
        pp.compare(table, "rotary:32x8")


@pytest.mark.parametrize("reference", ["rotary:64x8", "alibi:64x4"])
def test_an_encoding_without_a_table_is_refused_where_one_is_measured(
    reference: str,
) -> None:
    for use in (pp.similarity, pp.table, pp.nearest):
        with pytest.raises(pp.PosprobeError, match="no table"):
            use(reference)
