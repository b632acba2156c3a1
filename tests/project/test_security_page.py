"""The threat model names tests and classes of hostile input that there are, and leaves out none."""

from __future__ import annotations

import re
from pathlib import Path

from fuzz.__main__ import CLASSES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")


def test_the_tests_that_hold_a_promise_are_there() -> None:
    named = set(re.findall(r"`(?:tests/)?(test_\w+)(?:\.py)?`", PAGE))
    assert len(named) > 15
    assert named <= {path.stem for path in (ROOT / "tests").rglob("test_*.py")}


def test_every_class_of_hostile_input_holds_a_promise() -> None:
    listed = re.findall(r"fuzz ((?:`\w+`(?:, )?)+)", PAGE)
    assert {name for words in listed for name in re.findall(r"\w+", words)} == set(CLASSES)
