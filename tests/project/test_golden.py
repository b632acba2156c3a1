"""The golden run: what is recorded of a document, and what counts as a difference."""

from __future__ import annotations

from typing import Any

import pytest
from golden import differences, document, kept, names_of, translated


def grid(**answers: Any) -> dict[str, Any]:
    return {"table": {"layout": {"type": "grid"}}, "verdict": {"answers": answers}}


def changed(old: Any, new: Any) -> list[str]:
    return [path for path, *_ in differences(translated(old, new), new, 1e-12)]


def answer(said: str, value: Any = None) -> dict[str, Any]:
    return {"answer": said, "value": value}


def test_answers_are_recorded_by_question_and_texts_are_not() -> None:
    told = {
        "answers": [{"question": "order", "answer": "yes", "sentence": "Yes: it does.", "p": 0.1}]
    }
    assert kept(told) == {"answers": {"order": {"answer": "yes", "p": 0.1}}}
    assert kept({"undefined": {"r2": "why"}, "r2": None}) == {"undefined": {"r2": True}, "r2": None}


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        ({"a": [1.0, 2.0]}, {"a": [1, 2.0 + 1e-13]}, []),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-11]}, ["a.1"]),
        ({"a": [1.0, 2.0]}, {"a": [1.0]}, ["a"]),
        ({"a": True}, {"a": 1}, ["a"]),
        ({"a": {"b": 1}}, {"a": {}}, ["a.b"]),
        ({"a": 1}, {"a": 1, "b": 2}, ["b"]),
        ({"stationary": answer("yes", 2)}, {"absolute_position": answer("no", 2)}, []),
        ({"stationary": answer("yes")}, {"absolute_position": answer("yes")},
         ["absolute_position.answer"]),
        ({"effect": 1, "p": 0.5}, {"p": 0.5}, []),
        ({"effect": 1}, {"effect": 2}, ["effect"]),
        (grid(ladder=answer("cannot tell")), grid(), []),
        (grid(ladder=answer("no")), grid(), ["verdict.answers.ladder"]),
        ({"answers": {"ladder": answer("cannot tell")}}, {"answers": {}}, ["answers.ladder"]),
    ],
)  # fmt: skip
def test_known_translations_are_no_differences(old: Any, new: Any, paths: list[str]) -> None:
    assert changed(old, new) == paths


def test_a_reference_is_the_same_in_every_run() -> None:
    names = names_of(None)
    assert len(set(names)) == len(names)
    first, second = (kept(document("few rows", None)) for _ in range(2))
    assert changed(first, second) == []
    assert changed(first, kept(document("2 rows", None)))
