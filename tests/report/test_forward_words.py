"""What is said of a run of a model: every reason has words, and they are those of its facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_forward import WIDTH, forward_analysis, results_of, states_of, substitution_of

from posprobe.analyses.facts import Answer
from posprobe.analyses.models.experiments import Change, PermutationEffect
from posprobe.analyses.models.rotary_use import Summary
from posprobe.analyses.models.states import mean_decomposition, moments
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
from posprobe.report.narrator import sentence, templates
from posprobe.report.narrator.models import summary
from posprobe.text import fine_percent, percent_with_error, with_error

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
    assert text.endswith(".")
    assert not text.startswith(("Yes", "No:", "Cannot"))
    assert "None" not in text
    assert "{" not in text
    for part in text.split(". "):
        assert len(part.split()) <= 31, part


SAID = {
    ("kept", "seen"): "Position explains 20 % of the hidden-state variance at layer 0 (sampling "
    "noise 0.40 %) and 26 % at layer 12 (sampling noise 1.0 %).",
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
    from posprobe.report.narrator.models import interrupted

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
