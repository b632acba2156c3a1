"""Answers about a run of a model follow from its numbers and claim no more."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_answers import RUN_ORDER_REASONS, is_sentence
from made_forward import WIDTH, forward_analysis, results_of, states_of, substitution_of

from posprobe.analyses import Result
from posprobe.analyses.facts import Answer, Answers
from posprobe.analyses.models.experiments import (
    Change,
    Cost,
    PermutationEffect,
    PhaseShift,
)
from posprobe.analyses.models.states import build_decomposition, sum_moments
from posprobe.analyses.models.subspaces import Share, subspace_overlap
from posprobe.layouts import Grid, Sequence
from posprobe.questions.attention import FirstPosition, PositionShare, PreferredDistances
from posprobe.questions.models import (
    RUN_QUESTIONS,
    BlankImage,
    CostMeasure,
    KeptPositions,
    LayerShare,
    ModelRun,
    Overlap,
    Removal,
    StateChange,
    SufficientSubstitute,
)
from posprobe.questions.places import (
    MovedPreference,
    PlaceWeights,
    Reach,
    ReachAtLength,
)
from posprobe.sources import Source
from posprobe.tables import PositionTable
from posprobe.text import format_percent, format_percent_with_error, format_with_error
from posprobe.words import answer_sentence, templates
from posprobe.words.models import summarise_run


def answers_about(name: str, result: Result, **changes: Any) -> Answers:
    return forward_analysis(results={name: result}, **changes).answers


def permutation_effect(
    with_positions: float, without_positions: float
) -> PermutationEffect:
    with_table, without_table = (
        Change(change, None, None, None) for change in (with_positions, without_positions)
    )
    return PermutationEffect(with_table, without_table, 12, 0, "wpe.weight")


def phase_shift(*changes: float) -> PhaseShift:
    shifts = np.arange(len(changes)) * 4
    return PhaseShift(shifts, np.array(changes), None, "", 5)


def ask_kept(states: Any, *earlier_states: Any) -> Answer:
    """Return the answer about the hidden states of a layer and of those before it."""
    layer_moments = {
        number: sum_moments(layer_states)
        for number, layer_states in enumerate((*earlier_states, states))
    }
    layout = Sequence(states.shape[1])
    return answers_about("states", build_decomposition(layer_moments, layout=layout))[
        "kept"
    ]


def reason_of(answer: Answer) -> str:
    return f"{answer.answer}: {answer.reason}"


EQUAL_STATES = np.full((12, 24, WIDTH), 0.25)
PLANTED_STATES = states_of(Sequence(24), 12, signal=2.0)
CONTEXT_STATES = np.broadcast_to(
    np.random.default_rng(0).normal(size=(12, 1, WIDTH)), (12, 24, WIDTH)
)


@pytest.mark.parametrize(
    ("states", "earlier_states", "expected"),
    [
        (states_of(Sequence(40), 30, signal=0.0, seed=3), (), "no: noise"),
        (states_of(Sequence(40), 30, signal=2.0, seed=3), (), "yes: seen"),
        # Noise keeps 1 / c of the variance over c contexts, so few contexts hide much.
        (states_of(Sequence(40), 2, signal=0.0, seed=3), (), "cannot tell: few_contexts"),
        (
            states_of(Sequence(40), 10, signal=0.0, seed=3),
            (),
            "cannot tell: few_contexts",
        ),
        # A hundredth of the variance is far above the noise of 400 contexts.
        (states_of(Sequence(24), 400, signal=0.15, seed=3), (), "yes: seen"),
        (PLANTED_STATES[:1], (), "cannot tell: one_context"),
        (EQUAL_STATES, (PLANTED_STATES,), "no: equal_states"),
        (EQUAL_STATES[:1], (PLANTED_STATES[:1],), "no: equal_states"),
        (PLANTED_STATES, (EQUAL_STATES,), "yes: seen"),
        (CONTEXT_STATES, (), "no: rounding"),
        (states_of(Sequence(1), 12), (), "cannot tell: one_position"),
    ],
)
def test_states_hold_positions_only_where_planted(
    states: Any, earlier_states: tuple[Any, ...], expected: str
) -> None:
    assert reason_of(ask_kept(states, *earlier_states)) == expected


def test_position_shares_belong_to_their_layers() -> None:
    decomposition = build_decomposition(
        {0: sum_moments(PLANTED_STATES), 5: sum_moments(PLANTED_STATES)},
        layout=Sequence(24),
    )
    answer = answers_about("states", decomposition)["kept"]
    layer: Any = decomposition.layers[5]
    assert answer.value == {
        "first": decomposition.layers[0].shares["position"],  # type: ignore[index]
        "last": layer.shares["position"], "layers": [0, 5],
    }  # fmt: skip
    assert (answer.facts.last.layer, answer.facts.last.rank) == (5, layer.rank)
    assert ask_kept(EQUAL_STATES, PLANTED_STATES).value is None


def test_noise_is_rarely_taken_for_positions_and_lies_in_its_band() -> None:
    n_within = n_yes = 0
    for seed in range(20):
        answer: Any = ask_kept(states_of(Sequence(24), 32, signal=0.0, seed=seed))
        low, high = answer.test.interval
        assert (answer.test.draws, answer.test.of) == (4, "sampling noise")
        # The ends of four draws are as uncertain as they are far apart.
        n_within += bool(2 * low - high <= answer.test.value <= 2 * high - low)
        n_yes += answer.yes
    assert n_within >= 16
    assert n_yes <= 1
    planted_answer: Any = ask_kept(states_of(Sequence(24), 32, signal=1.0))
    assert planted_answer.test.value > 5 * planted_answer.test.interval[1]


@pytest.mark.parametrize(
    ("with_positions", "without_positions", "expected", "expected_without"),
    [
        (0.8, 1e-7, "changed", "rounding"),
        (0.8, 0.4, "changed", "changed"),
        (1e-7, 1e-7, "rounding", "rounding"),
        # A change of 0.5 % of the norm exceeds rounding and is little.
        (0.8, 0.005, "changed", "slight"),
    ],
)
def test_order_matters_beyond_rounding(
    with_positions: float, without_positions: float, expected: str, expected_without: str
) -> None:
    answers = answers_about(
        "permutation", permutation_effect(with_positions, without_positions)
    )
    assert (answers["order"].reason, answers["order_without"].reason) == (
        expected,
        expected_without,
    )
    for answer in answers:
        assert answer.yes == (answer.reason == "changed")
        assert answer.test is not None
        assert answer.test.interval == (0.0, 0.01)
        assert answer.yes == (answer.test.value > 0.01)


def test_the_rounding_limit_depends_on_the_dtype() -> None:
    model = {"class": "M", "parameters": 1, "dtype": "bfloat16", "device": "cpu"}
    assert (
        answers_about("permutation", permutation_effect(0.01, 0.0))["order"].answer
        == "yes"
    )
    assert (
        answers_about("permutation", permutation_effect(0.01, 0.0), model=model)[
            "order"
        ].reason
        == "rounding"
    )


def test_shifts_of_positions_matter_beyond_rounding() -> None:
    answer = answers_about("shift", phase_shift(0.0, 0.3, 0.2))["absolute"]
    assert (answer.answer, answer.facts.shift, answer.value) == ("yes", 4, 0.3)
    assert answers_about("shift", phase_shift(0.0, 1e-6))["absolute"].reason == "rounding"
    assert answers_about("shift", phase_shift(0.0))["absolute"].reason == "no_room"


@pytest.mark.parametrize("case", ["apart", "same", "random", "all"])
def test_subspaces_are_compared_with_random_ones(case: str) -> None:
    rng = np.random.default_rng(4)
    width, rank = (8, 8) if case == "all" else (64, 6)
    spread = {"apart": 0.05, "same": 4.0}.get(case, 1.0)
    tokens = rng.normal(size=(600, width)) * np.where(
        np.arange(width) < rank, spread, 1.0
    )
    basis = (
        np.linalg.qr(rng.normal(size=(width, width)))[0]
        if case == "random"
        else np.eye(width)
    )
    values = rng.normal(size=(200, rank)) @ basis[:rank]
    table = PositionTable(values, Sequence(200), "made", Source("a", "a"))
    answer: Any = answers_about("subspaces", subspace_overlap(table, tokens))["apart"]
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
        # Equal up to rounding, as in an untrained model.
        (0.0390624, (0.0390625, 0.0390625), "open"),
        (0.0390626, (0.0390625, 0.0390625), "chance"),
        (0.05, (0.04, 0.06), "chance"),
        # One random subspace in ten lies outside the band on either side.
        (0.065, (0.04, 0.06), "chance"),
        (0.035, (0.04, 0.06), "open"),
        (0.2, (0.04, 0.06), "more"),
        (0.001, (0.04, 0.06), "less"),
        # Surely less, but only by a quarter.
        (0.03, (0.0390625, 0.0390625), "small"),
        (None, (0.04, 0.06), "all_alike"),
    ],
)
def test_nothing_is_claimed_of_a_share_that_chance_explains(
    value: float | None, band: tuple[float, float], reason: str
) -> None:
    subspaces: Any = results_of(Sequence(24))["subspaces"]
    undefined = {} if value is not None else {"variance": "all tokens are equal"}
    changed_subspaces = replace(
        subspaces, variance=Share(sum(band) / 2, band, value), undefined=undefined
    )
    answer = answers_about("subspaces", changed_subspaces)["apart"]
    assert (answer.reason, answer.yes) == (reason, reason == "less")


@pytest.mark.parametrize(
    ("cost", "error", "answer", "reason"),
    [
        # Two contexts that differ widely neither show a cost nor exclude one.
        (0.4, 0.3, "cannot tell", "open"),
        (0.001, 0.02, "cannot tell", "open"),
        (0.001, 0.002, "no", "little"),
        # The model is better without positions, so it loses nothing.
        (-0.5, 0.1, "no", "gain"),
        (-0.4, 0.15, "no", "little"),
        (-0.4, 0.3, "cannot tell", "open"),
        (0.0, None, "cannot tell", "one_context"),
        (None, None, "cannot tell", "not_finite"),
    ],
)
def test_a_table_is_unneeded_only_if_its_cost_is_surely_small(
    cost: float | None, error: float | None, answer: str, reason: str
) -> None:
    substitution = substitution_of(Sequence(24))
    removed_index = next(
        index
        for index, substitute in enumerate(substitution.substitutes)
        if substitute.name == substitution.removed
    )
    costs = {"loss": Cost(cost, error, None, None)}
    substitutes = tuple(
        replace(substitute, costs=costs) for substitute in substitution.substitutes
    )
    changed_substitution = replace(
        substitution, substitutes=substitutes, undefined={"kept": "made so"}
    )
    needed = answers_about("substitution", changed_substitution)["needed"]
    assert (needed.answer, needed.reason) == (answer, reason)
    assert needed.keys == (f"substitution.substitutes.{removed_index}.loss",)
    assert needed.value == cost
    # The interval is centred at no cost, with the same standard error.
    interval = needed.test.interval if needed.test else None
    assert (interval is None) == (error is None)
    if error is not None:
        assert interval == pytest.approx((-1.645 * error, 1.645 * error))


@pytest.mark.parametrize(
    ("worth", "reason"),
    [(1e-6, "little"), (0.005, "little"), (0.00995, "small"), (1.0, "loses")],
)
def test_a_tiny_cost_is_no_loss_however_certain(worth: float, reason: str) -> None:
    substitution = substitution_of(Sequence(24), worth=worth)
    assert substitution["mean"].costs["loss"].kept == 0  # a certain cost has shares
    answers = answers_about("substitution", substitution)
    assert answers["needed"].reason == reason
    is_loss = reason == "loses"
    questions = {answer.question for answer in answers}
    assert (answers["needed"].yes, "few" in questions, "random" in questions) == (
        is_loss,
        is_loss,
        is_loss,
    )


@pytest.mark.parametrize(
    ("kept_share", "error", "answer"),
    [(0.95, 0.02, "yes"), (0.95, 0.05, "cannot tell"), (0.85, 0.05, "cannot tell"),
     (0.5, 0.05, "no")],
)  # fmt: skip
def test_few_components_suffice_with_two_standard_errors_to_spare(
    kept_share: float, error: float, answer: str
) -> None:
    substitution = substitution_of(Sequence(24))
    substitutes = tuple(
        replace(
            substitute,
            costs={
                "loss": replace(
                    substitute.costs["loss"], kept=kept_share, kept_error=error
                )
            },
        )
        if substitute.kind == "components"
        else substitute
        for substitute in substitution.substitutes
    )
    few_answer = answers_about(
        "substitution", replace(substitution, substitutes=substitutes)
    )["few"]
    assert (few_answer.answer, few_answer.value, few_answer.facts.error) == (
        answer,
        kept_share,
        error,
    )
    # The smallest of equally good sizes is named.
    assert few_answer.facts.size == 1


# Words.

TABLE_WORTH = CostMeasure("table", "wpe.weight", "loss", "next token")
POSITION_SHARE = PositionShare(0.313, 0.283, 0.03, 25, 72, 64, 128)
LAST_LAYER = LayerShare(12, 0.26, 0.01, 7)
FACTS_BY_QUESTION: dict[str, Any] = {
    "kept": KeptPositions(LayerShare(0, 0.2, 0.004, 5), LAST_LAYER),
    "order": StateChange(0.8),
    "order_without": StateChange(1e-7),
    "absolute": StateChange(0.3, shift=4),
    "apart": Overlap(30, 768, 0.005, 0.039),
    "position_decides": POSITION_SHARE,
    "own_places": POSITION_SHARE,
    "first": FirstPosition(3, 72, 0.996, 5, 2, 0.044),
    "blank": BlankImage(12, 0.25, 0.3),
    "distance": PreferredDistances(39, 0, 1, 1, 12, False, 16, 256),
    "weigh_alike": PlaceWeights(
        "embedding", 256, 64, 1.65, 0.25, 0.14, 0.74, 128, 0.77, None
    ),
    "by_table": MovedPreference(0.79, 0.03, "table"),
    "reach": Reach(23.4, 1.2, 256, 64, (ReachAtLength(64, 18.2),), 0.95),
    "needed": Removal(TABLE_WORTH, 0.52, 0.03, 2.0, 0.1, 0.2, 0.02),
    "few": SufficientSubstitute("3 leading components", 3, 0.95, 0.02, 5, TABLE_WORTH),
    "random": SufficientSubstitute(
        "its rows in random order", None, 0.12, 0.03, 4, TABLE_WORTH
    ),
}


def sentence_about(question: str, reason: str, facts: Any = None) -> str:
    return answer_sentence(
        Answer(question, "yes", reason, facts or FACTS_BY_QUESTION[question])
    )


REASONS = [
    (question, reason)
    for question, reason in templates()
    if question in RUN_QUESTIONS and (question != "order" or reason in RUN_ORDER_REASONS)
]


@pytest.mark.parametrize(("question", "reason"), REASONS)
def test_a_sentence_is_short_and_does_not_begin_with_its_answer(
    question: str, reason: str
) -> None:
    text = sentence_about(question, reason)
    assert is_sentence(text)
    for part in text.split(". "):
        assert len(part.split()) <= 31, part


EXPECTED_SENTENCES = {
    (
        "kept",
        "seen",
    ): "Position explains 20 % of the hidden-state variance at layer 0 (sampling "
    "noise 0.40 %) and 26 % at layer 12 (sampling noise 1.0 %).",
    (
        "absolute",
        "changed",
    ): "Shifting all positions by 4 changes the last hidden states by 0.3 times their norm.",
    (
        "apart",
        "less",
    ): "The 30 leading position directions hold 0.50 % of the token variance; "
    "random subspaces hold 3.9 %.",
    (
        "position_decides",
        "decides",
    ): "Of the variance of a query's logits over keys, 28 % goes with distance, 3 % with the "
    "place of the key or with other position, and the rest with content. This is the mean of "
    "72 heads (64 contexts of 128 tokens); position decides more than half in 25.",
    (
        "own_places",
        "decides",
    ): "Beyond distance, 3 % of the variance of a query's logits depends on where query and "
    "key stand, mean of 72 heads.",
    # 99.6 % is not 100 %.
    (
        "first",
        "sinks",
    ): "3 of 72 heads pay the first token more than 30 % of their attention; the most is 99.6 %, "
    "head 2 of layer 5 (uniform attention: 4.4 %).",
    (
        "distance",
        "some",
    ): "39 of 40 heads have a preferred distance, 0 have none, 1 can't be told (16 contexts of "
    "256 tokens), most often the previous token (12).",
    (
        "needed",
        "loses",
    ): "With the mean row in place of every row of wpe.weight, the next-token "
    "loss changes by 0.520 ± 0.030 nats (unchanged: 2.00 ± 0.10).",
    (
        "random",
        "less",
    ): "A random table (its rows in random order) keeps 12 ± 3 % of what the "
    "table is worth to the next-token loss, the most of 4 tried.",
}


@pytest.mark.parametrize(("question", "reason"), list(EXPECTED_SENTENCES))
def test_sentences_name_the_numbers_that_were_tested(question: str, reason: str) -> None:
    assert sentence_about(question, reason) == EXPECTED_SENTENCES[question, reason]


def test_sentences_report_sampling_noise_as_noise() -> None:
    # An untrained Llama: 3.0 % of the variance, all of it sampling noise.
    noise_layer = LayerShare(2, 0.0301, 0.0301, 0)
    text = sentence_about(
        "kept", "noise", KeptPositions(LayerShare(0, 0.031, 0.031, 0), noise_layer)
    )
    assert re.findall(r"layer \d|\d+\.\d+", text) == ["layer 2", "3.0"]
    # The noise belongs to the layer before it in the sentence.
    text = sentence_about(
        "kept", "noise", KeptPositions(LayerShare(0, 0.2, 0.004, 5), noise_layer)
    )
    before, _, after = text.partition("layer 0")
    assert "layer 2" in before
    assert "20 %" in before
    assert "0.40 %" in after
    # The same of a run.
    states = states_of(Sequence(40), 40, signal=0.0, seed=3)
    decomposition = build_decomposition(
        {0: sum_moments(states), 2: sum_moments(states)}, layout=Sequence(40)
    )
    verdict = forward_analysis(results={"states": decomposition}).to_dict()["verdict"]
    assert "explains" not in verdict["summary"] + verdict["answers"][0]["sentence"]


@pytest.mark.parametrize(
    ("with_positions", "without_positions", "text"),
    [
        (
            0.8,
            1e-7,
            "Without the position embedding, the model is permutation-invariant.",
        ),
        (0.8, 0.4, "The model knows order even without its position embedding."),
        (1e-7, 0.4, "The order of tokens makes no difference."),
        (0.005, 0.4, "The order of tokens makes little difference."),
    ],
)
def test_summaries_name_the_source_of_order(
    with_positions: float, without_positions: float, text: str
) -> None:
    with_table, without_table = (
        Change(change, None, None, None) for change in (with_positions, without_positions)
    )
    effect = PermutationEffect(with_table, without_table, 12, 0, "wpe.weight")
    document = forward_analysis(results={"permutation": effect}).to_dict()
    summary_text = document["verdict"]["summary"]
    assert text in summary_text
    assert summary_text.endswith(" (Measured on random tokens.)")


def test_summaries_begin_with_the_attention_budget_and_have_two_sentences() -> None:
    run = ModelRun({}, random=False)
    names = ("apart", "kept", "distance", "position_decides")
    reasons = {"apart": "less", "kept": "seen", "distance": "some"}
    answers = {
        name: Answer(name, "yes", reasons.get(name, "decides"), FACTS_BY_QUESTION[name])
        for name in names
    }
    assert summarise_run(answers, run) == (
        "Position decides 31 % of where the heads look, nearly all of it by distance; in 25 of "
        "72 heads it decides most. 39 of 40 heads prefer a distance, most often the previous "
        "token (12)."
    )


@pytest.mark.parametrize(
    ("distance", "place", "most", "text"),
    [
        (0.43, 0.0, 0, "43 % of where the heads look, all of it by distance."),
        (0.3, 0.2, 0, "50 % of where the heads look, most of it by distance."),
        (0.1, 0.3, 2, "40 % of where the heads look, 10 % by distance; in 2 of 8 heads"),
    ],
)
def test_the_headline_says_how_much_of_position_is_distance(
    distance: float, place: float, most: int, text: str
) -> None:
    facts = PositionShare(distance + place, distance, place, most, 8, 16, 128)
    answers = {"position_decides": Answer("position_decides", "yes", "decides", facts)}
    assert f"Position decides {text}" in summarise_run(answers, ModelRun({}))


@pytest.mark.parametrize(
    ("worth", "text"),
    [(1e-6, "Removing positions costs less than 0.01 nats."),
     (1.0, "leading components of the position table are enough.")],
)  # fmt: skip
def test_summaries_name_the_cost_of_removing_positions(worth: float, text: str) -> None:
    effect = substitution_of(Sequence(24), worth=worth)
    assert (
        text
        in forward_analysis(results={"substitution": effect}).to_dict()["verdict"][
            "summary"
        ]
    )


@pytest.mark.parametrize("layout", [Sequence(24), Sequence(5), Grid(3, 4)], ids=str)
def test_summaries_are_short_and_admit_that_no_answer_is_clear(layout: Any) -> None:
    analysis = forward_analysis(layout)
    text = analysis.to_dict()["verdict"]["summary"]
    assert len(text.split()) <= 60
    # All statements that can hold at once.
    reasons = {name: reason for name, reason in EXPECTED_SENTENCES if name != "random"}
    answers = {
        name: Answer(name, "yes", reason, FACTS_BY_QUESTION[name])
        for name, reason in reasons.items()
    }
    longest = summarise_run(answers, ModelRun({}, random=True))
    assert len(longest.split()) <= 60
    assert longest.count(". ") == 1
    assert summarise_run({}, analysis.run) == "No question has a clear answer."


def test_notes_of_an_interruption_count_the_finished_contexts() -> None:
    from posprobe.words.models import interrupted_notes

    states: Any = build_decomposition(
        {0: sum_moments(np.ones((3, 4, WIDTH)))}, layout=Sequence(4), is_interrupted=True
    )
    (note,) = interrupted_notes("Hidden states", states)
    assert note.startswith("Hidden states: ")
    assert note.endswith(" 3 contexts")
    overlap = results_of(Sequence(24))["subspaces"]
    assert interrupted_notes("Directions", overlap) == ()
    assert interrupted_notes("Hidden states", replace(states, stopped=False)) == ()


# Formats.


@pytest.mark.parametrize(
    ("share", "written"),
    [
        (0.0, "0 %"), (1.0, "100 %"), (0.2, "20 %"), (0.0385, "3.9 %"), (0.00385, "0.39 %"),
        (0.0996, "10 %"), (0.996, "99.6 %"), (0.9996, "99.96 %"), (0.96, "96 %"), (1.03, "103 %"),
        (-0.2, "-20 %"), (1e-15, "less than 0.01 %"), (0.99999, "more than 99.99 %"),
    ],
)  # fmt: skip
def test_a_share_that_is_not_all_is_not_written_as_all(
    share: float, written: str
) -> None:
    assert format_percent(share) == written


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
    assert format_with_error(value, error) == written


def test_a_share_without_an_error_is_written_like_any_other() -> None:
    assert (
        format_percent_with_error(0.996, None)
        == format_percent_with_error(0.996, 1e-9)
        == "99.6 %"
    )
    assert format_percent_with_error(0.95, 0.02) == "95 ± 2 %"
    assert format_percent_with_error(0.9962, 0.0012) == "99.6 ± 0.1 %"
    assert format_percent_with_error(None, None) == "–"
