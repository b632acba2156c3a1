"""Names of functions in messages exist, so that a user can call what an error names."""

import ast
import re
from pathlib import Path

import pytest

import posprobe

ROOT = Path(posprobe.__file__).parent
#: A name of the package within a sentence: after a space or at the start, and not a whole module.
NAME = re.compile(r"(?:^|[\s(`])(?:posprobe|pp)\.([a-z_]+(?:\.[a-z_]+)*)")


def named_functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise | ast.Return)
        for text in ast.walk(node)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
        for name in NAME.findall(text.value)
        if f"posprobe.{name}" != text.value
    }


NAMED = {
    (str(path.relative_to(ROOT)), name)
    for path in sorted(ROOT.rglob("*.py"))
    for name in named_functions(path)
}


def test_messages_name_functions() -> None:
    assert {name for _, name in NAMED} >= {"load", "load_schemes", "compare_kernels"}


@pytest.mark.parametrize(("module", "name"), sorted(NAMED))
def test_functions_that_messages_name_are_public(module: str, name: str) -> None:
    target = posprobe
    for part in name.split("."):
        target = getattr(target, part)
    assert callable(target), module
