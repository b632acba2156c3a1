"""The verdict of a run of a model follows from its numbers, and says no more than they do."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

import jsonschema
import numpy as np
import pytest
from made_forward import WIDTH, forward_analysis, results_of, states_of, substitution_of

from posprobe.analyses import Result
from posprobe.analyses.experiments import Change, PermutationEffect, PhaseShift
from posprobe.analyses.mean_decomposition import mean_decomposition
from posprobe.analyses.moments import moments
from posprobe.analyses.subspaces import subspace_overlap
from posprobe.analyses.substitution import Cost
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.measurements.model import MODEL
from posprobe.measurements.model.sentences import with_error
from posprobe.report.page import page_of
from posprobe.report.questions import MODEL_QUESTIONS
from posprobe.sources import Source
from posprobe.tables import PositionTable
from posprobe.text import lookup

LAYOUTS: list[Layout] = [Sequence(24), Grid(4, 6)]


def told(name: str, result: Result, **changes: Any) -> tuple[str, dict[str, dict[str, Any]]]:
    block = forward_analysis(results={name: result}, **changes).to_dict()["verdict"]
    return block["summary"], {answer["question"]: answer for answer in block["answers"]}


def permuted(known: float, zero: float) -> PermutationEffect:
    before, after = (Change(change, None, None, None) for change in (known, zero))
    return PermutationEffect(before, after, 12, 0, "wpe.weight")


def shifted(*changes: float) -> PhaseShift:
    shifts = np.arange(len(changes)) * 4
    return PhaseShift(shifts, np.array(changes), None, "", 5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_document_follows_the_schema_and_keys_lead_to_numbers(layout: Layout) -> None:
    document = forward_analysis(layout).to_dict()
    text = (files("posprobe.report") / "schema" / "forward-1.json").read_text(encoding="utf-8")
    jsonschema.Draft202012Validator(json.loads(text)).validate(
        json.loads(json.dumps(document, allow_nan=False))
    )
    answers = document["verdict"]["answers"]
    names = [answer["question"] for answer in answers]
    assert names == [name for name in MODEL_QUESTIONS if name in names]
    for answer in answers:
        begin = {"yes": "Yes: ", "no": "No: ", "cannot tell": "Cannot be told: "}[answer["answer"]]
        assert answer["sentence"].startswith(begin)
        for key in answer["keys"]:
            assert _found(document, key), key


def _found(block: Any, key: str) -> bool:
    for part in key.split("."):
        if isinstance(block, list):
            block = block[int(part)]
        elif part in block:
            block = block[part]
        else:
            return False
    return True


@pytest.mark.parametrize(("signal", "answer"), [(0.0, "no"), (2.0, "yes")])
def test_positions_are_seen_where_they_are_planted(signal: float, answer: str) -> None:
    states = states_of(Sequence(40), 30, signal=signal, seed=3)
    found = mean_decomposition({0: moments(states), 5: moments(states)}, layout=Sequence(40))
    summary, answers = told("states", found)
    assert answers["kept"]["answer"] == answer
    assert ("account for" in summary) == (answer == "yes")
    if answer == "yes":
        layer = found.layers[5]
        assert layer.shares is not None
        assert answers["kept"]["value"]["last"] == layer.shares["position"]
        assert "layer 5" in summary


def test_one_context_tells_nothing_of_positions() -> None:
    found = mean_decomposition({0: moments(states_of(Sequence(24), 1))}, layout=Sequence(24))
    summary, answers = told("states", found)
    assert answers["kept"]["answer"] == "cannot tell"
    assert summary == "Nothing that was measured gives a clear answer."


@pytest.mark.parametrize("contexts", [1, 12])
def test_of_states_that_are_all_equal_nothing_is_left(contexts: int) -> None:
    states = states_of(Sequence(24), contexts, signal=2.0)
    flat = moments(np.full_like(states, 0.25))
    found = mean_decomposition({0: moments(states), 3: flat}, layout=Sequence(24))
    summary, answers = told("states", found)
    assert answers["kept"]["answer"] == "no"
    assert "at layer 3, the last looked at, are equal" in answers["kept"]["sentence"]
    assert "account for" not in summary
    other = mean_decomposition({0: flat, 3: moments(states)}, layout=Sequence(24))
    assert told("states", other)[1]["kept"]["answer"] == ("yes" if contexts > 1 else "cannot tell")


def test_states_that_differ_between_contexts_alone_hold_no_positions() -> None:
    by_context = np.random.default_rng(0).normal(size=(12, 1, WIDTH))
    states = np.broadcast_to(by_context, (12, 24, WIDTH))
    found = mean_decomposition({0: moments(states)}, layout=Sequence(24))
    assert found.layers[0].shares is not None
    assert told("states", found)[1]["kept"]["answer"] == "no"


@pytest.mark.parametrize("contexts", [1, 12])
def test_a_single_position_has_none_to_differ_from(contexts: int) -> None:
    found = mean_decomposition({0: moments(states_of(Sequence(1), contexts))}, layout=Sequence(1))
    assert told("states", found)[1]["kept"]["answer"] == "cannot tell"
    made = forward_analysis(results={"states": found}).to_dict()
    assert not any("sampling noise" in finding["text"] for finding in made["findings"])


def test_that_noise_hides_nothing_takes_contexts() -> None:
    def kept(contexts: int) -> str:
        states = states_of(Sequence(40), contexts, signal=0.0, seed=3)
        found = mean_decomposition({0: moments(states)}, layout=Sequence(40))
        assert found.layers[0].rank == 0
        return str(told("states", found)[1]["kept"]["answer"])

    # Of c contexts noise has one part in c of the variance.
    assert [kept(contexts) for contexts in (2, 10, 40)] == ["cannot tell", "cannot tell", "no"]


def test_noise_is_rarely_taken_for_positions() -> None:
    def one(seed: int) -> str:
        states = states_of(Sequence(24), 12, signal=0.0, seed=seed)
        found = mean_decomposition({0: moments(states)}, layout=Sequence(24))
        return str(told("states", found)[1]["kept"]["answer"])

    assert [one(seed) for seed in range(40)].count("yes") <= 2


@pytest.mark.parametrize(
    ("known", "zero", "order", "without", "said"),
    [
        (0.8, 1e-7, "yes", "no", "the position table is all that tells it"),
        (0.8, 0.4, "yes", "yes", "something else than the position table"),
        (1e-7, 1e-7, "no", "no", "makes no difference"),
    ],
)
def test_order_matters_where_it_changes_more_than_rounding(
    known: float, zero: float, order: str, without: str, said: str
) -> None:
    summary, answers = told("permutation", permuted(known, zero))
    assert (answers["order"]["answer"], answers["order_without"]["answer"]) == (order, without)
    assert said in summary
    assert ("rounding" in answers["order_without"]["sentence"]) == (without == "no")


def test_what_is_rounding_depends_on_the_number_format() -> None:
    model = {"class": "M", "parameters": 1, "dtype": "bfloat16", "device": "cpu"}
    assert told("permutation", permuted(0.01, 0.0))[1]["order"]["answer"] == "yes"
    assert told("permutation", permuted(0.01, 0.0), model=model)[1]["order"]["answer"] == "no"


def test_where_a_text_begins_matters_only_beyond_rounding() -> None:
    assert told("shift", shifted(0.0, 0.3))[1]["absolute"]["answer"] == "yes"
    summary, answers = told("shift", shifted(0.0, 1e-6))
    assert answers["absolute"]["answer"] == "no"
    assert summary.startswith("Where the text begins makes no difference")
    assert told("shift", shifted(0.0))[1]["absolute"]["answer"] == "cannot tell"


@pytest.mark.parametrize("case", ["apart", "same", "random", "all"])
def test_subspaces_are_compared_with_random_ones(case: str) -> None:
    rng = np.random.default_rng(4)
    width, rank = (8, 8) if case == "all" else (64, 6)
    spread = {"apart": 0.05, "same": 4.0}.get(case, 1.0)
    tokens = rng.normal(size=(600, width)) * np.where(np.arange(width) < rank, spread, 1.0)
    basis = np.linalg.qr(rng.normal(size=(width, width)))[0] if case == "random" else np.eye(width)
    values = rng.normal(size=(200, rank)) @ basis[:rank]
    table = PositionTable(values, Sequence(200), "made", Source("a", "a"))
    answer = told("subspaces", subspace_overlap(table, tokens))[1]["apart"]
    expected = {"apart": "yes", "same": "no", "random": "no", "all": "cannot tell"}
    assert answer["answer"] == expected[case]


def test_a_sharp_head_is_counted_and_an_even_one_is_not() -> None:
    made = results_of(Sequence(24))["heads"]
    plain = told("heads", made)[1]["heads"]
    assert plain["answer"] == ("yes" if plain["value"]["sharpest"] > 0.5 else "no")
    layers: Any = made.layers  # type: ignore[attr-defined]
    sharp = {
        number: replace(layer, attention=np.where(np.arange(3) == 1, 0.9, 0.2))
        for number, layer in layers.items()
    }
    answer = told("heads", replace(made, layers=sharp))[1]["heads"]  # type: ignore[type-var]
    assert answer["answer"] == "yes"
    assert answer["value"] == {"heads": 2, "of": 6, "sharpest": 0.9}


@pytest.mark.parametrize("name", MODEL)
def test_any_measurement_can_stand_alone(name: str) -> None:
    for layout in LAYOUTS:
        results = results_of(layout)
        if name in results:
            analysis = forward_analysis(layout, results={name: results[name]})
            document = analysis.to_dict()
            first = page_of(document).sections[0]
            assert first.bullets == (document["verdict"]["summary"],)
            assert lookup(document, name)


def test_random_contexts_are_named_and_real_ones_are_not() -> None:
    assert WIDTH == 8
    assert "no text" in told("permutation", permuted(0.8, 0.1))[0]
    real = told("permutation", permuted(0.8, 0.1), kind="windows of a.txt")[0]
    assert "no text" not in real


def test_a_bundle_without_a_verdict_shows_its_findings() -> None:
    document = forward_analysis().to_dict()
    del document["verdict"]
    section = page_of(document).sections[0]
    assert section.bullets == tuple(finding["text"] for finding in document["findings"])
    assert not section.folded


@pytest.mark.parametrize(
    ("cost", "error", "answer"),
    [
        # Two contexts far apart see nothing, and do not show that there is nothing.
        (0.4, 0.3, "cannot tell"),
        (0.001, 0.02, "cannot tell"),
        (0.001, 0.002, "no"),
        # Without its positions the model is better: it loses nothing.
        (-0.5, 0.1, "no"),
        (-0.4, 0.15, "no"),
        (-0.4, 0.3, "cannot tell"),
        (0.0, None, "cannot tell"),
        (None, None, "cannot tell"),
    ],
)
def test_that_a_table_is_not_needed_takes_evidence(
    cost: float | None, error: float | None, answer: str
) -> None:
    made = substitution_of(Sequence(24))
    place = next(at for at, each in enumerate(made.substitutes) if each.name == made.removed)
    costs = {"loss": Cost(cost, error, None, None)}
    substitutes = tuple(replace(each, costs=costs) for each in made.substitutes)
    found = replace(made, substitutes=substitutes, undefined={"kept": "made so"})
    summary, answers = told("substitution", found)
    assert answers["needed"]["answer"] == answer
    assert answers["needed"]["keys"] == [f"substitution.substitutes.{place}.loss"]
    gain = cost == -0.5
    assert ("loses less than 0.01 nats" in summary) == (answer == "no" and not gain)
    assert ("does better without its positions" in summary) == gain


@pytest.mark.parametrize(("worth", "answer"), [(1e-6, "no"), (0.005, "no"), (1.0, "yes")])
def test_a_cost_of_next_to_nothing_is_no_loss_however_certain(worth: float, answer: str) -> None:
    found = substitution_of(Sequence(24), worth=worth)
    assert found["mean"].costs["loss"].kept == 0  # the cost is certain: shares of it are told
    summary, answers = told("substitution", found)
    assert answers["needed"]["answer"] == answer
    assert ("few" in answers) == ("random" in answers) == (answer == "yes")
    assert ("less than 0.01 nats" in summary) == (answer == "no")


@pytest.mark.parametrize(
    ("value", "error", "written"),
    [
        (4.61534, 0.00281, "4.6153 ± 0.0028"),
        (4.6, 0.00073, "4.60000 ± 0.00073"),
        (3.2e-4, 0.0013, "0.0003 ± 0.0013"),
        (-1.6e-5, 3.3e-6, "-1.6e-05 ± 3.3e-06"),
        (2.5, 0.0996, "2.50 ± 0.10"),
        (140.0, 23.0, "140 ± 23"),
        (0.0, 0.0, "0 ± 0"),
    ],
)
def test_a_number_has_as_many_decimals_as_its_error(
    value: float, error: float, written: str
) -> None:
    assert with_error(value, error) == written
