"""No document contradicts itself, and the tool that says so finds each kind of contradiction."""

from __future__ import annotations

from typing import Any

import golden
import numpy as np
import pytest
from contradictions import contradictions
from made_tables import as_table, gaussian, rotation, smooth, walk, waves

import posprobe as pp
from posprobe.arrays import Floats
from posprobe.layouts import Grid

Document = dict[str, Any]


def consistent_document() -> Document:
    """Return a small document that says each thing once, or the same each time."""
    return {
        "verdict": {
            "summary": "Rotations explain 60 % of the variance, a smooth curve 40 %. "
            "The rotations read one clock.",
            "answers": [
                {"question": "smooth", "answer": "yes", "facts": {"share": 0.4}},
                {
                    "question": "rotations",
                    "answer": "yes",
                    "facts": {"share": 0.6, "rows": 100},
                },
                {"question": "seams", "answer": "no"},
                {
                    "question": "order",
                    "answer": "yes",
                    "tested": 0.9,
                    "interval": [-0.1, 0.1],
                    "p": 0.01,
                },
                {
                    "question": "winding",
                    "answer": "yes",
                    "facts": {"turns": 10.0, "rotation": 10.0},
                },
            ],
        },
        "budget": {
            "parts": [
                {"part": "rotation", "share": 0.54},
                {"part": "smooth", "share": 0.36},
                {"part": "mean", "share": 0.1},
            ]
        },
        "clock": {"fixed": 0.5, "one": 0.9, "own": 0.95, "shared": True},
    }


def answer_of(document: Document, question: str) -> Document:
    (answer,) = (a for a in document["verdict"]["answers"] if a["question"] == question)
    return dict(answer)


def replace_answer(document: Document, question: str, **changes: Any) -> Document:
    changed = answer_of(document, question) | changes
    verdict = document["verdict"]
    answers = [changed if a["question"] == question else a for a in verdict["answers"]]
    return document | {"verdict": verdict | {"answers": answers}}


def test_a_consistent_document_has_no_contradiction() -> None:
    assert contradictions(consistent_document()) == []


CONSISTENT = consistent_document()
BROKEN_DOCUMENTS = {
    "no beside a part": replace_answer(CONSISTENT, "smooth", answer="no"),
    "share of another part": replace_answer(
        CONSISTENT, "rotations", facts={"share": 0.8}
    ),
    "yes without a part": replace_answer(CONSISTENT, "seams", answer="yes"),
    "no outside of chance": replace_answer(CONSISTENT, "order", answer="no"),
    "yes inside chance": replace_answer(CONSISTENT, "order", tested=0.0),
    "turns of another period": replace_answer(
        CONSISTENT, "winding", facts={"turns": 11.0, "rotation": 10.0}
    ),
    "missing part": CONSISTENT
    | {
        "verdict": CONSISTENT["verdict"]
        | {"summary": "Rotations explain 60 %. One clock."}
    },
    "smaller part first": CONSISTENT
    | {
        "verdict": CONSISTENT["verdict"]
        | {
            "summary": "A smooth curve explains 40 %, rotations 60 %. They read one clock."
        }
    },
    "missing clock": CONSISTENT
    | {
        "verdict": CONSISTENT["verdict"]
        | {"summary": "Rotations explain 60 %, a smooth curve 40 %."}
    },
    "fits in no order": CONSISTENT | {"clock": {"fixed": 0.85, "one": 0.2, "own": 0.4}},
    "sum": CONSISTENT
    | {
        "budget": {
            "parts": [*CONSISTENT["budget"]["parts"], {"part": "mean", "share": 0.2}]
        }
    },
}


@pytest.mark.parametrize("name", BROKEN_DOCUMENTS)
def test_each_contradiction_is_found(name: str) -> None:
    assert len(contradictions(BROKEN_DOCUMENTS[name])) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*golden.LINES, *golden.GRIDS, "sample:all-minilm-l6-v2", "sample:digits-vit"]
)
def test_no_reference_contradicts_itself(name: str) -> None:
    assert contradictions(golden.document(name, None)) == []


def of_size(values: Floats, share: float) -> Floats:
    centred = values - values.mean(axis=0)
    return np.asarray(np.sqrt(share / np.square(centred).sum()) * centred)


def document_of(values: Floats, layout: Any = None) -> Document:
    table = as_table(values) if layout is None else as_table(values, layout)
    return dict(pp.analyze(table).to_dict())


def share_of(document: Document, name: str) -> float:
    """Return the share of a part in the variance around the mean row."""
    shares = {"mean": 0.0}
    for part in document["budget"]["parts"]:
        shares[part["part"]] = shares.get(part["part"], 0.0) + part["share"]
    return float(shares[name] / (1 - shares["mean"]))


def test_a_curve_in_noise_has_its_share_in_bar_and_answer() -> None:
    document = document_of(
        of_size(smooth(256, 32, 20.0), 0.39) + of_size(gaussian(256, 32, 1), 0.61)
    )
    answer = answer_of(document, "smooth")
    assert answer["answer"] == "yes"
    assert answer["facts"]["share"] == pytest.approx(0.39, abs=0.05)
    assert contradictions(document) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_cubic_in_noise_has_its_share_in_bar_and_answer(seed: int) -> None:
    position = np.linspace(-1, 1, 256)
    polynomials = np.polynomial.legendre.legvander(position, 3)[:, 1:]
    cubic = of_size(polynomials @ gaussian(3, 96, seed), 0.39)
    document = document_of(cubic + of_size(gaussian(256, 96, seed + 30), 0.61))
    answer = answer_of(document, "smooth")
    assert answer["answer"] == "yes"
    assert answer["facts"]["share"] == pytest.approx(0.39, abs=0.05)
    assert answer["facts"]["share"] == pytest.approx(share_of(document, "smooth"))


@pytest.mark.parametrize("seed", range(3))
def test_a_line_beside_a_walk_in_noise_is_in_bar_answer_and_headline(seed: int) -> None:
    line = of_size(np.outer(np.linspace(-1, 1, 256), gaussian(1, 48, seed)), 0.4)
    values = line + of_size(walk(256, 48, seed + 10), 0.1)
    document = document_of(values + of_size(gaussian(256, 48, seed + 20), 0.5))
    answer = answer_of(document, "smooth")
    assert (answer["answer"], answer["reason"]) == ("yes", "line")
    assert answer["facts"]["straight"] == pytest.approx(share_of(document, "line"))
    (line_part,) = (
        part for part in document["budget"]["parts"] if part["part"] == "line"
    )
    assert line_part["share"] == pytest.approx(0.4, abs=line_part["error"])
    assert "straight line" in document["verdict"]["summary"].lower()


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_part_comes_first_however_small_the_noise(seed: int) -> None:
    values = of_size(smooth(256, 48, 12.0, seed), 0.62)
    values += of_size(waves(256, [9.0]) @ rotation(48, seed)[:2], 0.11)
    document = document_of(values + of_size(gaussian(256, 48, seed + 20), 0.27))
    assert share_of(document, "smooth") == pytest.approx(0.62, abs=0.05)
    assert share_of(document, "rotation") == pytest.approx(0.11, abs=0.02)
    assert document["verdict"]["summary"].startswith("A smooth curve")


@pytest.mark.slow
def test_the_clock_of_minilm_is_its_absolute_position() -> None:
    document = golden.document("sample:all-minilm-l6-v2", None)
    position, rotations = (
        answer_of(document, name) for name in ("absolute_position", "rotations")
    )
    assert (position["answer"], position["reason"]) == ("yes", "clock")
    assert rotations["facts"]["share"] == pytest.approx(share_of(document, "rotation"))


@pytest.mark.parametrize("seed", range(3))
def test_smooth_independent_columns_have_as_many_dimensions_as_by_chance(
    seed: int,
) -> None:
    answer = answer_of(document_of(smooth(256, 64, 8.0, seed)), "low_dimensional")
    assert answer["answer"] == "no"
    assert answer["interval"][0] <= answer["tested"] <= answer["interval"][1]


def test_a_small_plane_beside_a_curve_is_named_after_the_curve() -> None:
    values = of_size(smooth(256, 32, 14.0), 0.42) + of_size(gaussian(256, 32, 1), 0.51)
    values += of_size(waves(256, [7.3]) @ rotation(32)[:2], 0.07)
    document = document_of(values)
    summary = document["verdict"]["summary"].lower()
    assert "noise" in summary
    assert "curve" in summary
    assert "rotation" not in summary
    assert contradictions(document) == []


@pytest.mark.parametrize("periods", [(2.3, 9.1), (7.0, 23.0)])
def test_phases_that_slip_leave_nested_clocks_in_order(
    periods: tuple[float, float],
) -> None:
    rng = np.random.default_rng(0)
    for seed in range(3):
        slips = np.cumsum(rng.standard_normal(192) * 0.05)
        angle = np.stack(
            [2 * np.pi * np.arange(192) / period + slips for period in periods]
        )
        circles = np.concatenate([np.cos(angle), np.sin(angle)]).T @ rotation(24)[:4]
        clock: Any = pp.clock(circles + 0.3 * gaussian(192, 24, seed))
        assert len(clock.periods) == 2
        assert 0.5 < clock.fixed <= clock.one + 1e-9 <= clock.own + 2e-9 < 1


def autoregressive(n: int, d: int, period: float, damping: float, seed: int) -> Floats:
    """Return noise that prefers a period, in independent columns."""
    noise, values = gaussian(n + 200, d, seed), np.zeros((n + 200, d))
    first, second = 2 * damping * np.cos(2 * np.pi / period), -(damping**2)
    for k in range(2, n + 200):
        values[k] = first * values[k - 1] + second * values[k - 2] + noise[k]
    return values[200:]


def test_noise_that_prefers_a_period_has_no_fewer_dimensions_nor_circles() -> None:
    for seed in range(4):
        document = document_of(autoregressive(128, 48, 7.0, 0.9, seed))
        for question in ("low_dimensional", "winding", "smooth"):
            assert answer_of(document, question)["answer"] != "yes"


def test_noise_that_prefers_a_period_in_two_directions_has_no_absolute_position() -> None:
    answers = []
    for seed in range(6):
        rng = np.random.default_rng([seed, 2])
        hump = autoregressive(128, 2, 8.0, 0.94, seed) @ rng.standard_normal((2, 64))
        values = hump / hump.std() + rng.standard_normal((128, 64))
        document = document_of(values)
        answers.append(answer_of(document, "absolute_position")["answer"])
    # With one spectrum for all columns in the draws, half of such tables had it.
    assert answers.count("yes") <= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_processes_do_not_contradict_themselves(seed: int) -> None:
    for values in (gaussian(96, 24, seed), walk(96, 24, seed), smooth(96, 24, 5.0, seed)):
        assert contradictions(document_of(values)) == []
    assert contradictions(document_of(autoregressive(96, 24, 6.0, 0.85, seed))) == []
    assert contradictions(document_of(gaussian(49, 24, seed), Grid(7, 7))) == []


def test_an_odd_row_between_levels_that_do_not_differ_is_no_break() -> None:
    values = gaussian(128, 24)
    values[60] *= 9
    document = document_of(values)
    assert answer_of(document, "seams")["answer"] == "no"
    assert all(part["part"] != "breaks" for part in document["budget"]["parts"])
