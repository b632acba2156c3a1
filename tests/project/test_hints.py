"""Functions and parameters in messages exist, so that a user can call what an error names."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import posprobe
import posprobe as pp
from posprobe.errors import UsageError

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


#: Sentences of a document, which is read on a page whoever made it.
PAGES = ("cli", "words", "report/svg.py")
#: Commands of other programs that a message may give whole, and one that a training prints.
SHELL = re.compile(r"`(?:uv sync|hf download) |`? --revision |posprobe sweep --from")


def messages() -> Iterator[tuple[str, str]]:
    """Yield the strings of the library that are no docstrings, with their modules."""
    for path in sorted(ROOT.rglob("*.py")):
        module = path.relative_to(ROOT).as_posix()
        if module.startswith(PAGES):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {
            id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in docstrings:
                yield module, node.value if isinstance(node.value, str) else ""


def test_no_message_of_the_library_names_an_option_of_the_command_line() -> None:
    options = {
        (module, text)
        for module, text in messages()
        if re.search(r"(?<!\w)--[a-z]", text) and not SHELL.search(text)
    }
    assert not options


def test_parameters_that_messages_name_are_taken_by_public_functions() -> None:
    callables = [getattr(posprobe, name) for name in posprobe.__all__]
    taken = {
        parameter
        for target in callables
        if callable(target) and target is not posprobe.PosprobeError
        for parameter in inspect.signature(target).parameters
    }
    named = {name for _, text in messages() for name in re.findall(r"`([a-z_]+)=", text)}
    assert {"tensor", "grid", "nulls", "pooling", "trust_remote_code"} <= named <= taken


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (pp.check, {"a": 1, "b": 2}, "int is no copy"),
        (pp.analyze, {"table": "sinusoidal:64x16", "nulls": "many"}, "nulls: 'many'"),
        (pp.analyze, {"table": "sinusoidal:64x16", "seed": -1}, "seed=-1"),
        (pp.sinusoidal, {"length": "512", "dim": 4}, "'512' is not a whole number"),
    ],
)
def test_arguments_of_a_wrong_kind_are_named(
    function: Callable[..., object], arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        function(**arguments)
