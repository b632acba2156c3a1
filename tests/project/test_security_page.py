"""The threat model names existing tests and every class of hostile input."""

from __future__ import annotations

import re
from pathlib import Path

from fuzz.__main__ import CLASSES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")


def test_tests_named_by_the_threat_model_exist() -> None:
    names = set(re.findall(r"`(?:tests/)?(test_\w+)(?:\.py)?`", PAGE))
    assert len(names) > 15
    assert names <= {path.stem for path in (ROOT / "tests").rglob("test_*.py")}


def test_the_threat_model_names_every_fuzz_class() -> None:
    lists = re.findall(r"fuzz ((?:`\w+`(?:, )?)+)", PAGE)
    assert {name for words in lists for name in re.findall(r"\w+", words)} == set(CLASSES)
