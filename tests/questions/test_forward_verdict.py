"""The answers about a run of a model follow from its numbers, and claim no more than they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_answers import is_a_sentence
from made_forward import WIDTH, forward_analysis, results_of, states_of, substitution_of

from posprobe.analyses import Result
from posprobe.analyses.facts import Answer
from posprobe.analyses.models.experiments import Change, Cost, PermutationEffect, PhaseShift
from posprobe.analyses.models.rotary_use import Summary
from posprobe.analyses.models.states import mean_decomposition, moments
from posprobe.analyses.models.subspaces import Share, subspace_overlap
from posprobe.layouts import Grid, Sequence
from posprobe.questions.models import (
    QUESTIONS,
    Blank,
    Changed,
    Enough,
    First,
    Heads,
    Kept,
    Layer,
    Overlap,
    Preferred,
    Preferring,
    Removal,
    Run,
    Worth,
)
from posprobe.sources import Source
from posprobe.tables import PositionTable
from posprobe.text import fine_percent, percent_with_error, with_error
from posprobe.words import sentence, templates
from posprobe.words.models import summary


def told(name: str, result: Result, **changes: Any) -> Mapping[str, Answer]:
    return forward_analysis(results={name: result}, **changes).answers


def permuted(known: float, zero: float) -> PermutationEffect:
    before, after = (Change(change, None, None, None) for change in (known, zero))
    return PermutationEffect(before, after, 12, 0, "wpe.weight")


def shifted(*changes: float) -> PhaseShift:
    shifts = np.arange(len(changes)) * 4
    return PhaseShift(shifts, np.array(changes), None, "", 5)


def kept(states: Any, *others: Any) -> Answer:
    """The answer about hidden states that are those of layer 5 and, before it, some others."""
    given = {number: moments(each) for number, each in enumerate((*others, states))}
    layout = Sequence(states.shape[1])
    return told("states", mean_decomposition(given, layout=layout))["kept"]


def reason_of(answer: Answer) -> str:
    return f"{answer.answer}: {answer.reason}"


EQUAL = np.full((12, 24, WIDTH), 0.25)
SEEN = states_of(Sequence(24), 12, signal=2.0)
BY_CONTEXT = np.broadcast_to(np.random.default_rng(0).normal(size=(12, 1, WIDTH)), (12, 24, WIDTH))


@pytest.mark.parametrize(
    ("states", "others", "expected"),
    [
        (states_of(Sequence(40), 30, signal=0.0, seed=3), (), "no: noise"),
        (states_of(Sequence(40), 30, signal=2.0, seed=3), (), "yes: seen"),
        # Of c contexts noise has one part in c of the variance: little hides little.
        (states_of(Sequence(40), 2, signal=0.0, seed=3), (), "cannot tell: few_contexts"),
        (states_of(Sequence(40), 10, signal=0.0, seed=3), (), "cannot tell: few_contexts"),
        # Of 400 contexts a hundredth of the variance is far above their noise.
        (states_of(Sequence(24), 400, signal=0.15, seed=3), (), "no: small"),
        (SEEN[:1], (), "cannot tell: one_context"),
        (EQUAL, (SEEN,), "no: equal_states"),
        (EQUAL[:1], (SEEN[:1],), "no: equal_states"),
        (SEEN, (EQUAL,), "yes: seen"),
        (BY_CONTEXT, (), "no: rounding"),
        (states_of(Sequence(1), 12), (), "cannot tell: one_position"),
    ],
)
def test_positions_are_seen_where_they_are_planted(
    states: Any, others: tuple[Any, ...], expected: str
) -> None:
    assert reason_of(kept(states, *others)) == expected


def test_every_number_is_of_the_layer_that_it_says() -> None:
    found = mean_decomposition({0: moments(SEEN), 5: moments(SEEN)}, layout=Sequence(24))
    answer = told("states", found)["kept"]
    layer: Any = found.layers[5]
    assert answer.value == {
        "first": found.layers[0].shares["position"],  # type: ignore[index]
        "last": layer.shares["position"], "layers": [0, 5],
    }  # fmt: skip
    assert (answer.facts.last.layer, answer.facts.last.rank) == (5, layer.rank)
    assert kept(EQUAL, SEEN).value is None


def test_noise_is_rarely_taken_for_positions_and_its_band_is_where_it_lies() -> None:
    within = yes = 0
    for seed in range(20):
        answer: Any = kept(states_of(Sequence(24), 32, signal=0.0, seed=seed))
        low, high = answer.test.interval
        assert (answer.test.draws, answer.test.of) == (4, "sampling noise")
        # Four draws: their ends are as uncertain as they are far apart.
        within += bool(2 * low - high <= answer.test.value <= 2 * high - low)
        yes += answer.yes
    assert within >= 16
    assert yes <= 1
    seen: Any = kept(states_of(Sequence(24), 32, signal=1.0))
    assert seen.test.value > 5 * seen.test.interval[1]


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
    low, high = answer.test.interval
    assert low <= answer.facts.expected == answer.test.null <= high


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


# Words.

WORTH = Worth("table", "wpe.weight", "loss", "next token")
TOLD = Summary(0.519, 0.0687, 0.697, 39, 0, 1, None, 0.876, None, 512)
LAST = Layer(12, 0.26, 0.01, 7)
FACTS: dict[str, Any] = {
    "kept": Kept(Layer(0, 0.2, 0.004, 5), LAST),
    "order": Changed(0.8),
    "order_without": Changed(1e-7),
    "absolute": Changed(0.3, shift=4),
    "apart": Overlap(30, 768, 0.005, 0.039),
    "heads": Heads(3, 24, 0.9, 0.05, (Preferred((-1,), 2), Preferred((0,), 1))),
    "first": First(5, 0.996, 0.044),
    "blank": Blank(12, 0.25, 0.3),
    "distance": Preferring(TOLD, 16, 256, "sampled"),
    "needed": Removal(WORTH, 0.52, 0.03, 2.0, 0.1, 0.2, 0.02),
    "few": Enough("3 leading components", 3, 0.95, 0.02, 5, WORTH),
    "random": Enough("its rows in random order", None, 0.12, 0.03, 4, WORTH),
}


def said(question: str, reason: str, facts: Any = None) -> str:
    return sentence(Answer(question, "yes", reason, facts or FACTS[question]))


#: Reasons of tables have a prefix, or facts of another kind.
OF_TABLES = {"neighbours", "wave", "norms", "norms_and_wave", "none", "open", "small", "winding",
             "copies"}  # fmt: skip
REASONS = [
    (question, reason)
    for question, reason in templates()
    if question in QUESTIONS
    and not (question == "order" and (reason in OF_TABLES or reason.startswith("patch_")))
]


@pytest.mark.parametrize(("question", "reason"), REASONS)
def test_a_sentence_is_short_and_does_not_begin_with_its_answer(question: str, reason: str) -> None:
    text = said(question, reason)
    assert is_a_sentence(text)
    for part in text.split(". "):
        assert len(part.split()) <= 31, part


SAID = {
    ("kept", "seen"): "Position explains 20 % of the hidden-state variance at layer 0 (sampling "
    "noise 0.40 %) and 26 % at layer 12 (sampling noise 1.0 %).",
    ("absolute", "changed"): "Shifting all positions by 4 changes the last hidden states by 0.3 "
    "times their norm.",
    ("apart", "less"): "The 30 leading position directions hold 0.50 % of the token variance; "
    "random subspaces hold 3.9 %.",
    ("heads", "sharp"): "By their weights, 3 of 24 heads pay more than half of their attention at "
    "one offset, most often the previous token (2) and same token (1).",
    # 99.6 % is not 100 %.
    ("first", "most"): "In attention layer 5, the first position receives 99.6 % of the attention "
    "of later positions (uniform attention: 4.4 %).",
    ("distance", "some"): "Distance alone explains 52 % (7 to 70 %) of the differences between a "
    "query's logits, on 16 contexts of 256 tokens sampled from the model. 39 of 40 heads have a "
    "preferred distance, 0 have none, 1 can't be told. 88 % of the strength of queries and keys "
    "lies in pairs that never turn within 512 positions.",
    ("needed", "loses"): "With the mean row in place of every row of wpe.weight, the next-token "
    "loss changes by 0.520 ± 0.030 nats (unchanged: 2.00 ± 0.10).",
    ("random", "less"): "A random table (its rows in random order) keeps 12 ± 3 % of what the "
    "table is worth to the next-token loss, the most of 4 tried.",
}


@pytest.mark.parametrize(("question", "reason"), list(SAID))
def test_sentences_name_the_numbers_that_were_tested(question: str, reason: str) -> None:
    assert said(question, reason) == SAID[question, reason]


def test_nothing_is_told_as_a_share_that_noise_explains() -> None:
    # A random Llama: 3.0 % of the variance, as much sampling noise, and no direction above it.
    none = Layer(2, 0.0301, 0.0301, 0)
    text = said("kept", "noise", Kept(Layer(0, 0.031, 0.031, 0), none))
    assert text == (
        "At layer 2, no direction of position stands above sampling noise (3.0 % of the variance)."
    )
    # Each noise is of the layer beside it.
    text = said("kept", "noise", Kept(Layer(0, 0.2, 0.004, 5), none))
    assert "20 % of the hidden-state variance at layer 0 (sampling noise 0.40 %)" in text
    assert "At layer 2, no direction" in text
    # The same of a run.
    states = states_of(Sequence(40), 40, signal=0.0, seed=3)
    found = mean_decomposition({0: moments(states), 2: moments(states)}, layout=Sequence(40))
    made = forward_analysis(results={"states": found}).to_dict()["verdict"]
    assert "explains" not in made["summary"] + made["answers"][0]["sentence"]


@pytest.mark.parametrize(
    ("known", "zero", "text"),
    [
        (0.8, 1e-7, "Without the position embedding, the model is permutation-invariant."),
        (0.8, 0.4, "The model knows order even without its position embedding."),
        (1e-7, 0.4, "The order of tokens makes no difference."),
        (0.005, 0.4, "The order of tokens makes little difference."),
    ],
)
def test_a_summary_says_what_order_is_known_by(known: float, zero: float, text: str) -> None:
    before, after = (Change(change, None, None, None) for change in (known, zero))
    effect = PermutationEffect(before, after, 12, 0, "wpe.weight")
    made = forward_analysis(results={"permutation": effect}).to_dict()
    summed = made["verdict"]["summary"]
    assert summed.startswith(text)
    assert summed.endswith(" (Measured on random tokens.)")


def test_what_random_tokens_were_not_used_for_is_told_apart() -> None:
    made = forward_analysis()
    answers = {"distance": Answer("distance", "yes", "some", FACTS["distance"])}
    first = summary(answers, made.run)
    assert first.endswith("(on 16 contexts of 256 tokens sampled from the model).")
    answers["apart"] = Answer("apart", "yes", "less", FACTS["apart"])
    assert summary(answers, made.run) == (
        f"{first} Position directions avoid those of tokens. (The rest is measured on random "
        "tokens.)"
    )


@pytest.mark.parametrize(
    ("worth", "text"),
    [(1e-6, "Removing positions costs less than 0.01 nats."),
     (1.0, "leading components of the position table are enough.")],
)  # fmt: skip
def test_a_summary_says_what_removing_positions_costs(worth: float, text: str) -> None:
    effect = substitution_of(Sequence(24), worth=worth)
    assert (
        text in forward_analysis(results={"substitution": effect}).to_dict()["verdict"]["summary"]
    )


@pytest.mark.parametrize("layout", [Sequence(24), Sequence(5), Grid(3, 4)], ids=str)
def test_a_summary_is_short_and_of_no_answer_says_so(layout: Any) -> None:
    made = forward_analysis(layout)
    text = made.to_dict()["verdict"]["summary"]
    assert len(text.split()) <= 60
    # Everything that can be so at once.
    reasons = {name: reason for name, reason in SAID if name != "random"}
    answers = {name: Answer(name, "yes", reason, FACTS[name]) for name, reason in reasons.items()}
    assert 40 < len(summary(answers, Run({}, random=True)).split()) <= 60
    assert summary({}, made.run) == "No question has a clear answer."


def test_notes_of_an_interruption_name_what_was_measured_until_then() -> None:
    from posprobe.words.models import interrupted

    states: Any = mean_decomposition(
        {0: moments(np.ones((3, 4, WIDTH)))}, layout=Sequence(4), stopped=True
    )
    assert interrupted("Hidden states", states) == (
        "Hidden states: the run was interrupted after 3 contexts",
    )
    assert interrupted("Heads", results_of(Sequence(24))["heads"]) == ()
    assert interrupted("Hidden states", replace(states, stopped=False)) == ()


# Formats.


@pytest.mark.parametrize(
    ("share", "written"),
    [
        (0.0, "0 %"), (1.0, "100 %"), (0.2, "20 %"), (0.0385, "3.9 %"), (0.00385, "0.39 %"),
        (0.0996, "10 %"), (0.996, "99.6 %"), (0.9996, "99.96 %"), (0.96, "96 %"), (1.03, "103 %"),
        (-0.2, "-20 %"), (1e-15, "less than 0.01 %"), (0.99999, "more than 99.99 %"),
    ],
)  # fmt: skip
def test_a_share_that_is_not_all_is_not_written_as_all(share: float, written: str) -> None:
    assert fine_percent(share) == written


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


def test_a_share_without_an_error_is_written_like_any_other() -> None:
    assert percent_with_error(0.996, None) == percent_with_error(0.996, 1e-9) == "99.6 %"
    assert percent_with_error(0.95, 0.02) == "95 ± 2 %"
    assert percent_with_error(0.9962, 0.0012) == "99.6 ± 0.1 %"
    assert percent_with_error(None, None) == "–"
