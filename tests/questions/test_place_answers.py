"""Answers about places follow from weights, their nulls and the reach, and name what was tested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from made_answers import is_sentence
from made_forward import forward_analysis, places_of

from posprobe.analyses.facts import Answer, Answers
from posprobe.analyses.models.places import Places
from posprobe.layouts import Grid, Sequence
from posprobe.questions.places import (
    MovedPreference,
    PlaceWeights,
    Reach,
    ReachAtLength,
    ask_by_table,
    ask_reach,
    ask_weigh_alike,
)
from posprobe.words import answer_sentence, templates
from posprobe.words.models import run_line


def answers_about(places: Places) -> Answers:
    return forward_analysis(results={"places": places}).answers


def reason_of(answer: Answer) -> str:
    return f"{answer.answer}: {answer.reason}"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "no: ends"),
        ({"p": 0.3}, "yes: alike"),
        ({"p": 0.3, "spread_chance": 0.4}, "cannot tell: open"),
        ({"spread": 0.05}, "yes: slight"),
        ({"first_over_last": 1.0}, "no: uneven"),
        ({"r2": 0.4}, "cannot tell: not_additive"),
    ],
)
def test_places_weigh_alike_only_where_a_difference_would_show(
    changes: dict[str, Any], expected: str
) -> None:
    places = places_of(Sequence(32))
    full_length = replace(places.full_length, **changes)
    answers = answers_about(replace(places, lengths=(full_length,)))
    answer = answers["weigh_alike"]
    assert reason_of(answer) == expected
    if answer.test and answer.p is not None and answer.p > 0.02:
        assert answer.test.interval
        assert answer.test.interval[0] <= answer.test.value <= answer.test.interval[1]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "yes: moves"),
        ({"caused": 0.05}, "no: stays"),
        ({"caused": 0.3, "caused_p": 0.2, "caused_chance": (-0.4, 0.4)}, "cannot tell: open"),
    ],
)  # fmt: skip
def test_positions_cause_what_moves_with_them(
    changes: dict[str, Any], expected: str
) -> None:
    places = places_of(Sequence(32))
    full_length = replace(places.full_length, **changes)
    answers = answers_about(replace(places, lengths=(full_length,)))
    assert reason_of(answers["by_table"]) == expected


def test_causes_are_asked_only_where_a_preference_was_found() -> None:
    places = places_of(Sequence(32))
    alike = replace(places.full_length, p=0.4, caused=None)
    answers = answers_about(replace(places, lengths=(alike,)))
    assert {"by_table", "reach"}.isdisjoint(answers)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "yes: near"),
        ({"reach": 28.0}, "no: far"),
        ({"p": 0.4}, "cannot tell: open"),
        ({"reach_error": 20.0}, "cannot tell: vague"),
        ({"reach": 28.0, "reach_chance": (3.0, 30.0)}, "cannot tell: open"),
    ],
)
def test_nearest_tokens_decide_where_the_reach_is_below_chance(
    changes: dict[str, Any], expected: str
) -> None:
    places = places_of(Sequence(32), "next_token")
    full_length = replace(places.full_length, **changes)
    answers = answers_about(replace(places, lengths=(full_length,)))
    assert not any(answer.question == "weigh_alike" for answer in answers)
    assert reason_of(answers["reach"]) == expected


def test_shorter_chunks_are_advised_where_the_last_half_weighs_little() -> None:
    places = places_of(Sequence(32))
    first, last = places.lengths
    heavy = replace(first, weights=first.weights * 0 + 1)
    answer = ask_weigh_alike(replace(places, lengths=(heavy, last)))
    assert answer is not None
    assert answer.facts.chunk_tokens == heavy.tokens
    assert f"at most {heavy.tokens} tokens" in answer_sentence(answer)
    answer = ask_weigh_alike(places)
    assert answer is not None
    assert answer.facts.chunk_tokens is None


def test_cells_at_the_border_are_compared_with_the_others() -> None:
    places = places_of(Grid(4, 4), "classes")
    cells = places.full_length.weights.reshape(4, 4).copy()
    cells[:], cells[1:3, 1:3] = 1, 2
    length = replace(places.full_length, weights=cells.ravel())
    answer = ask_weigh_alike(replace(places, lengths=(length,)))
    assert answer is not None
    assert answer.facts.border == pytest.approx(0.5)
    assert "0.5 times as much" in answer_sentence(answer)


def test_nothing_is_asked_without_places() -> None:
    assert ask_weigh_alike(None) is ask_by_table(None) is ask_reach(None) is None


FACTS: Mapping[str, Any] = {
    "weigh_alike": PlaceWeights(
        "embedding", 256, 64, 1.65, 0.25, 0.14, 0.74, 128, 0.77, None
    ),
    "by_table": MovedPreference(0.79, 0.03, "table"),
    "reach": Reach(23.4, 1.2, 256, 64, (ReachAtLength(64, 18.2),), 0.95),
}
SENTENCES = {
    ("weigh_alike", "ends"): (
        "In embeddings of 256 tokens, the first quarter of a text weighs 1.6 times as much as the "
        "last. Its last half weighs 0.74 of the mean: use chunks of at most 128 tokens. Chunks "
        "explain 77 % of an embedding."
    ),
    ("by_table", "moves"): (
        "With position rows reversed, 79 % of this preference moves with them."
    ),
    ("reach", "near"): (
        "The last 23 of 256 tokens hold 90 % of the influence on the next token (±1.2). In shorter "
        "contexts: 18 of 64."
    ),
}


@pytest.mark.parametrize(("question", "reason"), list(SENTENCES))
def test_sentences_name_weights_shares_and_reaches(question: str, reason: str) -> None:
    answer = Answer(question, "yes", reason, FACTS[question])
    assert answer_sentence(answer) == SENTENCES[question, reason]


@pytest.mark.parametrize(
    ("question", "reason"), [key for key in templates() if key[0] in FACTS]
)
def test_sentences_about_places_are_short(question: str, reason: str) -> None:
    text = answer_sentence(Answer(question, "yes", reason, FACTS[question]))
    assert is_sentence(text)
    assert all(len(part.split()) <= 31 for part in text.split(". "))


def test_lines_of_places_state_chance_in_the_unit_of_their_value() -> None:
    documents = [
        forward_analysis(results={"places": places}).to_dict()
        for places in (places_of(Sequence(32)), places_of(Sequence(32), "next_token"))
    ]
    lines = {
        answer["question"]: run_line(answer)
        for document in documents
        for answer in document["verdict"]["answers"]
    }
    assert lines["weigh_alike"].value.endswith("×")
    assert "%" not in lines["weigh_alike"].chance
    assert lines["by_table"].value.endswith("%")
    assert "%" not in lines["reach"].chance
