"""Every public name has an example in its docstring, and it shows what comes out."""

from __future__ import annotations

import doctest
from operator import attrgetter
from typing import Any

import matplotlib as mpl
import pytest

import posprobe as pp

NAMES = [
    *pp.__all__,
    *(f"{place}.{name}" for name, place in pp._SUBMODULES_BY_NAME.items()),
]


def example(name: str) -> doctest.DocTest | None:
    thing: Any = attrgetter(name)(pp)
    tests = doctest.DocTestFinder(recurse=False).find(thing, name, globs={})
    return next((test for test in tests if test.examples), None)


def tier(name: str) -> tuple[pytest.MarkDecorator, ...]:
    """Return the marker of examples that run a model: importing PyTorch takes seconds."""
    return (
        (pytest.mark.slow,)
        if "the extra `models`" in (attrgetter(name)(pp).__doc__ or "")
        else ()
    )


@pytest.mark.parametrize("name", [pytest.param(name, marks=tier(name)) for name in NAMES])
def test_docstring_examples_print_their_stated_output(name: str) -> None:
    mpl.use("agg")
    test = example(name)
    assert test is not None, "a public name needs an example in its docstring"
    report: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert not failed, "".join(report)
