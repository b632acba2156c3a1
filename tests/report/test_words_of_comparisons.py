"""The words that matter: of resizing, of training runs, and of tables near each other."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import posprobe as pp
from posprobe.analyses.breaks.history import AnswerHistory, SeamHistory
from posprobe.layouts import Grid, Sequence
from posprobe.relations.fingerprints import Likeness, fingerprint, likeness
from posprobe.relations.resized import Cost, Effect, Rule, Run, Turns, Way
from posprobe.studies.resizing import compare_ways
from posprobe.words import QUESTION_TEXTS, comparisons, relations, resizing

EFFECT = Effect(
    norm_mean=1.0, norm_min=1.0, neighbour_cosine=0.5, same_place=1.0, same_position=-0.2,
    translation_invariance=0.8, copies=0, turns={"positions": Turns((24.0,), 5.0)}, seams=(),
    special=(), undefined={},
)  # fmt: skip


OLD = Sequence(1024)
NEW = Sequence(2048)


def numerals(sentences: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", sentences)


def said(*, before: Effect = EFFECT, **given: Any) -> str:
    """What is said of a way of resizing, with these facts other than usual."""
    place = {"how": "linear", "kind": "stretches", "old": OLD, "new": NEW, "start": 0}
    facts: Any = {**vars(before), **place, **given}
    return " ".join(resizing.way_sentences(Way(**facts, before=before)))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "Stretched: positions keep their relative place (mean cosine 1.00)"),
        ({}, ", so the model sees distances divided by 2."),
        ({"new": Sequence(1030)}, "keep their relative place (mean cosine 1.00)."),
        ({"same_place": 0.7}, "positions partly keep their relative place (mean cosine 0.70)."),
        ({"same_place": 0.3}, "positions do not keep their relative place (mean cosine 0.30)."),
        ({"same_position": 0.95}, "resemble the old ones at the same position (mean cosine 0.95)."),
        ({"old": Grid(8, 8), "new": Grid(16, 6)},
         "divided by 2 between rows and divided by 0.75 between columns."),
        ({"how": "sinusoids", "kind": "continues"},
         "The first 1,024 positions stay unchanged; new ones are extrapolated and untrained."),
        ({"how": "tile", "kind": "continues", "new": Sequence(60)},
         "The first 60 positions stay unchanged; the others are cut off."),
        ({"how": "sinusoids", "kind": "continues", "old": Grid(8, 8), "new": Grid(12, 6)},
         "8 × 6 patches stay unchanged; new ones are extrapolated and untrained; the others are"),
        ({"turns": {"positions": Turns((48.0,), 5.0)}},
         "The leading period of 24 positions scales (48 now)."),
        ({"turns": {"positions": Turns((70.0,), 5.0)}},
         "The leading period of 24 positions is lost."),
        ({"turns": {"positions": Turns((70.0, 48.0), 5.0)}},
         "The leading period of 24 positions scales (48 now)."),
        ({"neighbour_cosine": 0.6}, "The mean cosine of neighbours becomes 0.60 (before 0.50)."),
        ({"copies": 3}, "Exact copies of other rows: 3 more than before."),
        ({"seams": ((511, 512),)}, "The table breaks anew between positions 511 and 512."),
        ({"before": replace(EFFECT, special=(0,)), "special": ()}, "Outliers: 0 (before 1)."),
        ({"new": Sequence(1024)}, "The table has this size already: nothing changes."),
        ({"before": replace(EFFECT, copies=1023), "copies": 2047},
         "All rows are equal, before and after: the table tells no positions apart."),
    ],
)  # fmt: skip
def test_every_fact_of_a_resizing_way_has_a_sentence(
    given: dict[str, Any], expected: str
) -> None:
    told = said(**given)
    assert expected in told
    # No claim about distances is made where places are not kept.
    assert "same_place" not in given or "distances" not in told


def test_sentences_of_a_real_table_are_short_and_hold_one_number_style() -> None:
    found = compare_ways(pp.load("sample:sapiens-roberta"), to=200)
    for way in found.to_dict()["ways"]:
        for sentence in way["sentences"]:
            assert len(sentence.split()) <= 25, sentence
            assert sentence.endswith(".")
            assert "nan" not in sentence.lower()


def test_a_rule_says_what_it_slows_down_and_what_is_new() -> None:
    rule = Rule(
        rule="yarn", kept=21, slowed=43, slowest=4.0, whole_turn=46, interpolated=18,
        extrapolated=0, longest_wavelength=None, kernel_at_1=0.97, kernel_at_training=0.2,
        kernel_at_to=-0.1, first_negative=None, attention_factor=1.14, undefined={}, pairs=64,
    )  # fmt: skip
    # Queries and keys are both multiplied by the attention factor.
    assert numerals(resizing.rule_sentences(rule)) == [
        "64",
        "43",
        "4",
        "0",
        "0.97",
        "1.3",
    ]
    unscaled_rule = replace(rule, slowed=0, extrapolated=18, attention_factor=1.0)
    assert numerals(resizing.rule_sentences(unscaled_rule)) == ["64", "0", "18", "0.97"]


def test_ways_as_cheap_as_the_cheapest_are_named() -> None:
    run = Run(
        kind="a text", contexts=5, task="next token", before=Cost(2.1, 0.1),
        ways={"tile": Cost(2.5, 0.1), "linear": Cost(2.6, 0.1)}, best=("tile", "linear"),
        length=20, cut=12, losses={},
    )  # fmt: skip
    sentences = resizing.cost_sentences(run)
    assert re.findall(r"`(\w+)`", sentences) == ["tile", "linear"]
    assert numerals(sentences) == ["2.500", "20", "2.100", "12"]


# Training runs.


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (SeamHistory(7, 2, 0, None, None, 0, 2, last=False), "appears at step 2."),
        (SeamHistory(7, None, 0, None, 3, 0, 3, last=True), "is gone at step 3 (the last step)."),
        # Nothing is known of what comes after the last step.
        (SeamHistory(7, None, 2, (3, 10), None, 0, 3, last=True),
         "moves 2 times, the last time to positions 10 and 11 at step 3 (the last step)."),
        (SeamHistory(7, 2, 1, (3, 9), 5, 1, 5, last=False),
         "appears at step 2, moves to positions 9 and 10 at step 3 and is gone at step 5 (1"),
    ],
)  # fmt: skip
def test_a_moved_seam_names_both_rows(found: SeamHistory, expected: str) -> None:
    assert f"The break between positions 7 and 8 {expected}" in comparisons.seam_sentence(
        found
    )


def test_a_changed_answer_names_both_steps() -> None:
    found = AnswerHistory("order", "no", 1, "yes", 2, last=True, earlier=2)
    sentence = comparisons.answer_change_sentence(found)
    assert sentence.startswith(QUESTION_TEXTS["order"])
    assert numerals(sentence) == ["1", "2", "2"]
    assert "last step" in sentence


# Tables near each other.

LIKENESS = Likeness(
    "unrelated", 4.14, 512, 1.0, (Sequence(512), Sequence(1024)), (768, 768)
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "Relative distance 4.1 over 512 shared positions: no closer than chance (p = 1)."),
        ({"chance": 3e-4}, "chance is not excluded (p = 0.0003, required 1e-9)."),
        ({"relation": "moved", "distance": 0.131, "chance": 0.0},
         "0.13 over 512 shared positions: closer than chance (p < 1e-9). Which came first is not"),
        ({"relation": "moved", "distance": 0.9, "chance": 0.0},
         "may share only their initial values"),
        ({"relation": "resized", "distance": 0.1, "rows": 0, "chance": 0.0},
         "Relative distance 0.1 between means of 36 equal parts (512 and 1024 positions): closer "),
        ({"relation": "identical", "distance": 3e-4, "chance": 0.0},
         "below 0.0004 over 512 shared positions: equal, as far as fingerprints can tell."),
        ({"relation": "identical", "distance": 0.0, "sizes": (Sequence(512),) * 2},
         "All 512 rows are equal (same SHA-256)."),
        ({"distance": None, "chance": None, "rows": None, "widths": (4, 6)},
         "Tables of width 4 and 6 cannot be compared."),
    ],
)  # fmt: skip
def test_a_likeness_states_its_distance(given: dict[str, Any], expected: str) -> None:
    assert expected in relations.evidence_sentences(replace(LIKENESS, **given))


def test_a_rounded_copy_is_called_one() -> None:
    table = pp.load("sample:all-minilm-l6-v2")
    rounded = np.asarray(table.values).astype(np.float16).astype(np.float32)
    prints = fingerprint(pp.table(rounded)), fingerprint(table)
    copy, original = likeness(*prints), likeness(*reversed(prints))
    assert relations.relation_phrase(copy) == "a rounded copy of"
    assert relations.relation_phrase(original) == "the unrounded version of"
    assert "float16" in relations.evidence_sentences(copy)


def resizing_document(family: str, tensor: str, **numbers: float) -> dict[str, Any]:
    before = {"norm_mean": 1.0, "norm_min": 1.0, "neighbour_cosine": 0.5,
              "translation_invariance": 0.8}  # fmt: skip
    way = {"how": "bicubic", "kind": "stretches", **before}
    other = {"how": "transformers", "kind": "stretches", **before, **numbers}
    table = {"family": family, "source": {"tensor": tensor}}
    return {"table": table, "before": before, "ways": [way, other], "run": None}


def test_the_headline_of_a_resize_names_the_largest_change_and_the_library() -> None:
    document = resizing_document("timm-vit", "pos_embed", norm_mean=0.7, norm_min=0.9)
    assert resizing.ways_headline(document) == (
        "`transformers` changes the table most: the mean norm becomes 0.70 (before 1.00). "
        "The model's library, timm, resizes with `bicubic`."
    )
    document = resizing_document("vit", "vit.embeddings.position_embeddings")
    assert resizing.ways_headline(document) == (
        "The table is stretched with `bicubic` and `transformers`."
    )
    unknown = resizing_document("whisper", "model.decoder.embed_positions.weight")
    assert "library" not in resizing.ways_headline(unknown)
