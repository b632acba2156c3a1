"""Answers about the attention budget follow from its numbers and their chance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_forward import HEADS, budget_of, forward_analysis, window_of
from made_schemas import problems

from posprobe.analyses.facts import Answer
from posprobe.analyses.models.attention_budget import AttentionBudget
from posprobe.analyses.models.attention_window import AttentionWindow
from posprobe.forward.attention import PROBLEM_MESSAGES
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.words.models import LAYER_REASONS, unmeasured_notes


def measured(
    layout: Layout | None = None, *, causal: bool = True, **options: Any
) -> AttentionBudget:
    layout = layout or Sequence(24)
    window = window_of(layout, causal=causal)
    assert isinstance(window, AttentionWindow)
    return budget_of(window, layout, **options)


def answers_about(budget: AttentionBudget) -> Any:
    return forward_analysis(results={"attention_budget": budget}).answers


def with_shares(budget: AttentionBudget, p: float, **shares: Any) -> AttentionBudget:
    """Return a budget whose heads all have these shares, with a p-value for all of position."""
    assert budget.by_chance is not None
    heads = tuple(replace(head, **shares) for head in budget.heads)
    chance = replace(budget.by_chance, position_p=p, place_p=p)
    return replace(budget, heads=heads, by_chance=chance)


def test_planted_distances_decide_and_places_do_not() -> None:
    answers = answers_about(measured())
    decides, places = answers["position_decides"], answers["own_places"]
    assert (decides.answer, decides.reason) == ("yes", "decides")
    assert (decides.facts.most, decides.facts.heads) == (2 * (HEADS - 1), 2 * HEADS)
    assert decides.facts.share == pytest.approx(
        decides.facts.distance + decides.facts.place
    )
    assert decides.test.value == decides.facts.share > decides.test.interval[1]
    assert places.answer == "no"
    assert decides.keys == tuple(
        f"attention_budget.{key}" for key in ("distance", "key", "other", "most")
    )


def test_logits_of_content_alone_are_decided_by_no_position() -> None:
    answers = answers_about(measured(position=0.0))
    assert [answers[name].answer for name in ("position_decides", "own_places")] == [
        "no",
        "no",
    ]
    assert answers["distance"].answer == "no" or answers["distance"].reason == "open"
    assert answers["distance"].facts.yes == 0


@pytest.mark.parametrize(
    ("p", "shares", "expected"),
    [
        (0.001, {"distance": 0.3, "key": 0.0, "other": 0.0}, "yes: decides"),
        # Weak evidence of a large share denies nothing.
        (0.03, {"distance": 0.3, "key": 0.0, "other": 0.0}, "cannot tell: open"),
        (0.03, {"distance": 0.01, "key": 0.0, "other": 0.0}, "no: chance"),
        # One hundredth of the variance is more than chance and little.
        (0.001, {"distance": 0.01, "key": 0.0, "other": 0.0}, "no: small"),
        (0.001, {"distance": 0.0, "key": 0.1, "other": 0.2}, "yes: decides"),
        # The estimate of a zero share can be negative.
        (0.5, {"distance": -0.01, "key": -0.001, "other": 0.0}, "no: chance"),
    ],
)
def test_position_decides_beyond_chance_and_more_than_little(
    p: float, shares: dict[str, float], expected: str
) -> None:
    answer: Answer = answers_about(with_shares(measured(), p, **shares))[
        "position_decides"
    ]
    assert f"{answer.answer}: {answer.reason}" == expected


def test_places_of_their_own_are_what_is_beyond_distance() -> None:
    budget = with_shares(measured(), 0.001, distance=0.5, key=0.1, other=0.2)
    answer = answers_about(budget)["own_places"]
    assert (answer.answer, answer.reason) == ("yes", "decides")
    assert answer.value["share"] == pytest.approx(0.8)
    assert answer.test.value == pytest.approx(0.3)


def test_layers_without_a_budget_are_named_with_their_reason() -> None:
    budget = measured()
    first_layer, *others = budget.layers
    problem = replace(first_layer, window=0, problem="not_finite")
    changed = replace(budget, layers=(problem, *others))
    assert unmeasured_notes(changed) == (
        f"Not measured: attention budget of layer {first_layer.layer} (NaN or infinity)",
    )
    assert unmeasured_notes(budget) == ()


def test_every_reason_for_leaving_out_a_layer_has_words() -> None:
    assert set(PROBLEM_MESSAGES) <= set(LAYER_REASONS)


def test_few_contexts_have_shares_and_no_answers() -> None:
    answers = answers_about(measured(contexts=3))
    for name in ("position_decides", "own_places", "distance"):
        assert (answers[name].answer, answers[name].reason) == (
            "cannot tell",
            "few_contexts",
        )
    assert answers["position_decides"].facts.distance > 0


@pytest.mark.parametrize("contexts", [3, 12])
def test_the_document_of_a_budget_follows_its_schema(contexts: int) -> None:
    results = {"attention_budget": measured(contexts=contexts)}
    document = forward_analysis(results=results).to_dict()
    assert problems("forward", document) == []
    block = document["attention_budget"]
    for head in block["heads"]:
        assert (head["error"] is None) == (head["p"] is None) == (contexts == 3)
        assert {key for key in head if head[key] is None} <= set(block["undefined"])


def test_the_distance_that_most_heads_prefer_is_named() -> None:
    answer = answers_about(measured())["distance"]
    assert (answer.answer, answer.reason) == ("yes", "some")
    assert (answer.facts.preferred, answer.facts.agreeing) == (1, 2 * (HEADS - 1))
    assert answer.facts.yes + answer.facts.no + answer.facts.open == 2 * HEADS
    assert answer.value == {"heads": answer.facts.yes, "of": 2 * HEADS}


def test_heads_over_patches_prefer_a_displacement() -> None:
    answer = answers_about(measured(Grid(6, 6)))["distance"]
    # Keys one row above the query.
    assert answer.facts.preferred == (1, 0)
    assert answer.facts.two_sided


@pytest.mark.parametrize(
    ("first", "expected"),
    [((0.9, 0.2), "yes: sinks"), ((0.29, 0.31), "yes: sinks"), ((0.3, 0.2), "no: none")],
)
def test_a_sink_takes_a_third_of_the_attention_of_a_head(
    first: tuple[float, float], expected: str
) -> None:
    budget = measured()
    heads = tuple(replace(head, first=first[head.layer]) for head in budget.heads)
    answer = answers_about(replace(budget, heads=heads))["first"]
    assert f"{answer.answer}: {answer.reason}" == expected
    assert answer.facts.layer == int(np.argmax(first))
    n_sinks = HEADS * sum(share > 0.3 for share in first)
    assert answer.value == {"heads": n_sinks, "of": 2 * HEADS}
    assert answer.test.null == budget.uniform_first


def test_a_first_token_that_no_query_sees_is_no_sink() -> None:
    budget = measured()
    heads = tuple(replace(head, first=None) for head in budget.heads)
    assert "first" not in answers_about(replace(budget, heads=heads))


def test_patches_have_no_first_token() -> None:
    assert not any(a.question == "first" for a in answers_about(measured(Grid(6, 6))))


def test_a_run_without_a_budget_asks_nothing_of_it() -> None:
    results = {"subspaces": forward_analysis().results["subspaces"]}
    names = {answer.question for answer in forward_analysis(results=results).answers}
    assert not names & {"position_decides", "own_places", "distance", "first"}
