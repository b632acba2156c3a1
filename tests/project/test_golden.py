"""The golden run: the recorded part of a document, and the differences between runs."""

from __future__ import annotations

from typing import Any

import pytest
from golden import differences, document, kept, names_of, translated


def grid_document(**answers: Any) -> dict[str, Any]:
    return {"table": {"layout": {"type": "grid"}}, "verdict": {"answers": answers}}


def changed_paths(old: Any, new: Any) -> list[str]:
    return [path for path, *_ in differences(translated(old, new), new, 1e-12)]


def make_answer(verdict: str, value: Any = None) -> dict[str, Any]:
    return {"answer": verdict, "value": value}


def test_answers_are_recorded_by_question_and_texts_are_not() -> None:
    verdict = {
        "answers": [
            {"question": "order", "answer": "yes", "sentence": "Yes: it does.", "p": 0.1}
        ]
    }
    assert kept(verdict) == {"answers": {"order": {"answer": "yes", "p": 0.1}}}
    assert kept({"undefined": {"r2": "why"}, "r2": None}) == {
        "undefined": {"r2": True},
        "r2": None,
    }


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        ({"a": [1.0, 2.0]}, {"a": [1, 2.0 + 1e-13]}, []),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-11]}, ["a.1"]),
        ({"a": [1.0, 2.0]}, {"a": [1.0]}, ["a"]),
        ({"a": True}, {"a": 1}, ["a"]),
        ({"a": {"b": 1}}, {"a": {}}, ["a.b"]),
        ({"a": 1}, {"a": 1, "b": 2}, ["b"]),
        ({"stationary": make_answer("yes", 2)}, {"absolute_position": make_answer("no", 2)}, []),
        ({"stationary": make_answer("yes")}, {"absolute_position": make_answer("yes")},
         ["absolute_position.answer"]),
        ({"effect": 1, "p": 0.5}, {"p": 0.5}, []),
        ({"effect": 1}, {"effect": 2}, ["effect"]),
        (grid_document(ladder=make_answer("cannot tell")), grid_document(), []),
        (grid_document(ladder=make_answer("no")), grid_document(), ["verdict.answers.ladder"]),
        ({"answers": {"ladder": make_answer("cannot tell")}}, {"answers": {}}, ["answers.ladder"]),
    ],
)  # fmt: skip
def test_known_translations_are_no_differences(
    old: Any, new: Any, paths: list[str]
) -> None:
    assert changed_paths(old, new) == paths


def test_a_reference_run_is_reproducible() -> None:
    names = names_of(None)
    assert len(set(names)) == len(names)
    first, second = (kept(document("few rows", None)) for _ in range(2))
    assert changed_paths(first, second) == []
    assert changed_paths(first, kept(document("2 rows", None)))
