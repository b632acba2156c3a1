"""The answers about a run of a model follow from its numbers, and claim no more than they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_forward import WIDTH, forward_analysis, results_of, states_of, substitution_of

from posprobe.analyses import Result
from posprobe.analyses.facts import Answer
from posprobe.analyses.models.experiments import Change, Cost, PermutationEffect, PhaseShift
from posprobe.analyses.models.states import mean_decomposition, moments
from posprobe.analyses.models.subspaces import Share, subspace_overlap
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.questions import MODEL as QUESTIONS
from posprobe.report.page import page_of
from posprobe.sources import Source
from posprobe.tables import PositionTable

LAYOUTS: list[Layout] = [Sequence(24), Grid(4, 6)]


def told(name: str, result: Result, **changes: Any) -> Mapping[str, Answer]:
    return forward_analysis(results={name: result}, **changes).answers


def permuted(known: float, zero: float) -> PermutationEffect:
    before, after = (Change(change, None, None, None) for change in (known, zero))
    return PermutationEffect(before, after, 12, 0, "wpe.weight")


def shifted(*changes: float) -> PhaseShift:
    shifts = np.arange(len(changes)) * 4
    return PhaseShift(shifts, np.array(changes), None, "", 5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_keys_lead_to_numbers_and_findings_are_what_is_answered_yes(layout: Layout) -> None:
    document = forward_analysis(layout).to_dict()
    answers = document["verdict"]["answers"]
    names = [answer["question"] for answer in answers]
    assert names == [question.name for question in QUESTIONS if question.name in names]
    for answer in answers:
        for key in answer["keys"]:
            assert _found(document, key), key
    yes = [answer for answer in answers if answer["answer"] == "yes"]
    assert document["findings"] == [
        {"text": answer["sentence"], "keys": answer["keys"]} for answer in yes
    ]


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
    kept = told("states", found)["kept"]
    assert (kept.answer, kept.reason) == (answer, "seen" if answer == "yes" else "noise")
    layer: Any = found.layers[5]
    assert kept.value["last"] == layer.shares["position"]
    assert (kept.facts.last.layer, kept.facts.last.rank) == (5, layer.rank)
    # Every number is of the layer that it says.
    assert kept.facts.last.clear == kept.facts.first.clear == (answer == "yes")


def test_one_context_tells_nothing_of_positions() -> None:
    found = mean_decomposition({0: moments(states_of(Sequence(24), 1))}, layout=Sequence(24))
    kept = told("states", found)["kept"]
    assert (kept.answer, kept.reason, kept.test) == ("cannot tell", "one_context", None)


@pytest.mark.parametrize("contexts", [1, 12])
def test_of_states_that_are_all_equal_nothing_is_left(contexts: int) -> None:
    states = states_of(Sequence(24), contexts, signal=2.0)
    flat = moments(np.full_like(states, 0.25))
    found = mean_decomposition({0: moments(states), 3: flat}, layout=Sequence(24))
    kept = told("states", found)["kept"]
    assert (kept.answer, kept.reason, kept.value) == ("no", "equal_states", None)
    assert kept.facts.last.layer == 3
    assert (kept.facts.first is None) == (contexts == 1)
    other = mean_decomposition({0: flat, 3: moments(states)}, layout=Sequence(24))
    assert told("states", other)["kept"].answer == ("yes" if contexts > 1 else "cannot tell")


def test_states_that_differ_between_contexts_alone_hold_no_positions() -> None:
    by_context = np.random.default_rng(0).normal(size=(12, 1, WIDTH))
    states = np.broadcast_to(by_context, (12, 24, WIDTH))
    found = mean_decomposition({0: moments(states)}, layout=Sequence(24))
    assert found.layers[0].shares is not None
    kept = told("states", found)["kept"]
    assert (kept.answer, kept.reason) == ("no", "rounding")


@pytest.mark.parametrize("contexts", [1, 12])
def test_a_single_position_has_none_to_differ_from(contexts: int) -> None:
    found = mean_decomposition({0: moments(states_of(Sequence(1), contexts))}, layout=Sequence(1))
    kept = told("states", found)["kept"]
    assert (kept.answer, kept.reason) == ("cannot tell", "one_position")
    assert forward_analysis(results={"states": found}).findings == ()


def test_that_noise_hides_nothing_takes_contexts() -> None:
    def kept(contexts: int) -> str:
        states = states_of(Sequence(40), contexts, signal=0.0, seed=3)
        found = mean_decomposition({0: moments(states)}, layout=Sequence(40))
        assert found.layers[0].rank == 0
        return told("states", found)["kept"].answer

    # Of c contexts noise has one part in c of the variance.
    assert [kept(contexts) for contexts in (2, 10, 40)] == ["cannot tell", "cannot tell", "no"]


def test_noise_is_rarely_taken_for_positions() -> None:
    def one(seed: int) -> str:
        states = states_of(Sequence(24), 12, signal=0.0, seed=seed)
        found = mean_decomposition({0: moments(states)}, layout=Sequence(24))
        return told("states", found)["kept"].answer

    assert [one(seed) for seed in range(20)].count("yes") <= 1


def test_a_share_that_is_certain_and_small_is_no_trace_to_speak_of() -> None:
    # Of 400 contexts a hundredth of the variance is far above their noise.
    states = states_of(Sequence(24), 400, signal=0.15, seed=3)
    found = mean_decomposition({0: moments(states)}, layout=Sequence(24))
    kept = told("states", found)["kept"]
    assert kept.facts.last.clear
    assert 2 * kept.facts.last.noise < kept.facts.last.share < 0.02
    assert (kept.answer, kept.reason) == ("no", "small")


def test_the_band_of_the_noise_is_where_states_without_positions_lie() -> None:
    def one(seed: int) -> bool:
        states = states_of(Sequence(24), 32, signal=0.0, seed=seed)
        found = mean_decomposition({0: moments(states)}, layout=Sequence(24))
        kept: Any = told("states", found)["kept"]
        low, high = kept.test.interval
        assert (kept.test.draws, kept.test.of) == (4, "sampling noise")
        # Four draws: their ends are as uncertain as they are far apart.
        return bool(2 * low - high <= kept.test.value <= 2 * high - low)

    assert sum(one(seed) for seed in range(20)) >= 16
    signal = states_of(Sequence(24), 32, signal=1.0)
    kept = told("states", mean_decomposition({0: moments(signal)}, layout=Sequence(24)))["kept"]
    assert kept.test is not None
    assert kept.test.interval is not None
    assert kept.test.value > 5 * kept.test.interval[1]


@pytest.mark.parametrize(
    ("known", "zero", "order", "without"),
    [
        (0.8, 1e-7, "changed", "rounding"),
        (0.8, 0.4, "changed", "changed"),
        (1e-7, 1e-7, "rounding", "rounding"),
        # Half of a hundredth of the norm is no rounding, and little.
        (0.8, 0.005, "changed", "slight"),
    ],
)
def test_order_matters_where_it_changes_more_than_rounding(
    known: float, zero: float, order: str, without: str
) -> None:
    answers = told("permutation", permuted(known, zero))
    assert (answers["order"].reason, answers["order_without"].reason) == (order, without)
    for answer in answers.values():
        assert answer.yes == (answer.reason == "changed")
        assert answer.test is not None
        assert answer.test.interval == (0.0, 1e-3)


def test_what_is_rounding_depends_on_the_number_format() -> None:
    model = {"class": "M", "parameters": 1, "dtype": "bfloat16", "device": "cpu"}
    assert told("permutation", permuted(0.01, 0.0))["order"].answer == "yes"
    assert told("permutation", permuted(0.01, 0.0), model=model)["order"].reason == "rounding"


def test_where_a_text_begins_matters_only_beyond_rounding() -> None:
    found = told("shift", shifted(0.0, 0.3, 0.2))["absolute"]
    assert (found.answer, found.facts.shift, found.value) == ("yes", 4, 0.3)
    assert told("shift", shifted(0.0, 1e-6))["absolute"].reason == "rounding"
    assert told("shift", shifted(0.0))["absolute"].reason == "no_room"


@pytest.mark.parametrize("case", ["apart", "same", "random", "all"])
def test_subspaces_are_compared_with_random_ones(case: str) -> None:
    rng = np.random.default_rng(4)
    width, rank = (8, 8) if case == "all" else (64, 6)
    spread = {"apart": 0.05, "same": 4.0}.get(case, 1.0)
    tokens = rng.normal(size=(600, width)) * np.where(np.arange(width) < rank, spread, 1.0)
    basis = np.linalg.qr(rng.normal(size=(width, width)))[0] if case == "random" else np.eye(width)
    values = rng.normal(size=(200, rank)) @ basis[:rank]
    table = PositionTable(values, Sequence(200), "made", Source("a", "a"))
    answer: Any = told("subspaces", subspace_overlap(table, tokens))["apart"]
    expected = {
        "apart": ("yes", "less"), "same": ("no", "more"), "random": ("no", "chance"),
        "all": ("cannot tell", "no_room"),
    }  # fmt: skip
    assert (answer.answer, answer.reason) == expected[case]
    assert answer.test.interval == (answer.facts.low, answer.facts.high)


@pytest.mark.parametrize(
    ("value", "band", "reason"),
    [
        # Equal but for rounding, as of a model that was never trained.
        (0.0390624, (0.0390625, 0.0390625), "open"),
        (0.0390626, (0.0390625, 0.0390625), "chance"),
        (0.05, (0.04, 0.06), "chance"),
        # One random subspace in ten lies here, or on the other side.
        (0.065, (0.04, 0.06), "chance"),
        (0.035, (0.04, 0.06), "open"),
        (0.2, (0.04, 0.06), "more"),
        (0.001, (0.04, 0.06), "less"),
        # Certainly less, by a quarter.
        (0.03, (0.0390625, 0.0390625), "small"),
        (None, (0.04, 0.06), "all_alike"),
    ],
)
def test_nothing_is_claimed_of_a_share_that_chance_explains(
    value: float | None, band: tuple[float, float], reason: str
) -> None:
    found: Any = results_of(Sequence(24))["subspaces"]
    undefined = {} if value is not None else {"variance": "all tokens are equal"}
    made = replace(found, variance=Share(sum(band) / 2, band, value), undefined=undefined)
    apart = told("subspaces", made)["apart"]
    assert (apart.reason, apart.yes) == (reason, reason == "less")


def test_a_sharp_head_is_counted_and_an_even_one_is_not() -> None:
    made: Any = results_of(Sequence(24))["heads"]
    plain = told("heads", made)["heads"]
    assert (plain.answer, plain.reason) == ("no", "even")
    assert plain.facts.sharpest <= 0.5

    def of(attention: float, uniform: float) -> Answer:
        layers = {
            number: replace(
                layer, attention=np.where(np.arange(3) == 1, attention, 0.2),
                uniform=np.full(3, uniform), peak=np.array([[0], [-1], [0]]),
                has_peak=np.ones(3, dtype=bool),
            )
            for number, layer in made.layers.items()
        }  # fmt: skip
        return told("heads", replace(made, layers=layers))["heads"]

    sharp = of(0.9, 0.1)
    assert (sharp.answer, sharp.value) == ("yes", {"heads": 2, "of": 6, "sharpest": 0.9})
    assert [(each.offset, each.heads) for each in sharp.facts.offsets] == [((-1,), 2)]
    # Of three positions any head pays more than half somewhere.
    assert (of(0.6, 0.4).answer, of(0.6, 0.4).reason) == ("no", "short")


def test_a_bundle_without_a_verdict_shows_its_findings() -> None:
    document = forward_analysis().to_dict()
    del document["verdict"]
    page = page_of(document)
    assert all(finding["text"] in page.headline for finding in document["findings"])
    assert page.single == ()


@pytest.mark.parametrize(
    ("cost", "error", "answer", "reason"),
    [
        # Two contexts far apart see nothing, and do not show that there is nothing.
        (0.4, 0.3, "cannot tell", "open"),
        (0.001, 0.02, "cannot tell", "open"),
        (0.001, 0.002, "no", "little"),
        # Without its positions the model is better: it loses nothing.
        (-0.5, 0.1, "no", "gain"),
        (-0.4, 0.15, "no", "little"),
        (-0.4, 0.3, "cannot tell", "open"),
        (0.0, None, "cannot tell", "one_context"),
        (None, None, "cannot tell", "not_finite"),
    ],
)
def test_that_a_table_is_not_needed_takes_evidence(
    cost: float | None, error: float | None, answer: str, reason: str
) -> None:
    made = substitution_of(Sequence(24))
    place = next(at for at, each in enumerate(made.substitutes) if each.name == made.removed)
    costs = {"loss": Cost(cost, error, None, None)}
    substitutes = tuple(replace(each, costs=costs) for each in made.substitutes)
    found = replace(made, substitutes=substitutes, undefined={"kept": "made so"})
    needed = told("substitution", found)["needed"]
    assert (needed.answer, needed.reason) == (answer, reason)
    assert needed.keys == (f"substitution.substitutes.{place}.loss",)
    assert needed.value == cost
    # The interval is that of no cost, of the same standard error.
    interval = needed.test.interval if needed.test else None
    assert (interval is None) == (error is None)
    if error is not None:
        assert interval == pytest.approx((-1.645 * error, 1.645 * error))


@pytest.mark.parametrize(
    ("worth", "reason"),
    [(1e-6, "little"), (0.005, "little"), (0.00995, "small"), (1.0, "loses")],
)
def test_a_cost_of_next_to_nothing_is_no_loss_however_certain(worth: float, reason: str) -> None:
    found = substitution_of(Sequence(24), worth=worth)
    assert found["mean"].costs["loss"].kept == 0  # the cost is certain: shares of it are told
    answers = told("substitution", found)
    assert answers["needed"].reason == reason
    yes = reason == "loses"
    assert (answers["needed"].yes, "few" in answers, "random" in answers) == (yes, yes, yes)


@pytest.mark.parametrize(
    ("kept", "error", "answer"),
    [(0.95, 0.02, "yes"), (0.95, 0.05, "cannot tell"), (0.85, 0.05, "cannot tell"),
     (0.5, 0.05, "no")],
)  # fmt: skip
def test_few_components_are_enough_where_two_standard_errors_less_are(
    kept: float, error: float, answer: str
) -> None:
    made = substitution_of(Sequence(24))
    substitutes = tuple(
        replace(each, costs={"loss": replace(each.costs["loss"], kept=kept, kept_error=error)})
        if each.kind == "components" else each
        for each in made.substitutes
    )  # fmt: skip
    few = told("substitution", replace(made, substitutes=substitutes))["few"]
    assert (few.answer, few.value, few.facts.error) == (answer, kept, error)
    # The smallest of those that are equally good is named.
    assert few.facts.size == 1
