"""Data files: what they hold fits the records that are made of it, and no start reads them."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from posprobe.data import read_data
from posprobe.families import TableRule, layers, relative, rows
from posprobe.figures.styles import venues
from posprobe.studies import published


def fits(value: object, hint: Any) -> bool:
    """Tell whether a value has the type that a field states, as a type checker would."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in args
    if origin in (Union, types.UnionType):
        return any(fits(value, arg) for arg in args)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = args[:1] * len(value) if args[-1] is ... else args
        return len(kinds) == len(value) and all(map(fits, value, kinds))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is hint


RECORDS: Mapping[str, Iterable[Any]] = {
    "families": rows.registry().families,
    "published values": published.published(),
    "models of published values": published._models().values(),
    "relative positions": relative.rules(),
    "layers": layers.rules(),
    "venues": venues().values(),
}


@pytest.mark.parametrize("name", RECORDS)
def test_every_field_has_the_type_that_it_states(name: str) -> None:
    records = list(RECORDS[name])
    assert records
    for record in records:
        hints = get_type_hints(type(record))
        for field in fields(record):
            assert fits(getattr(record, field.name), hints[field.name]), (record, field.name)


def test_the_check_of_types_notices() -> None:
    hints = get_type_hints(TableRule)
    assert fits("two", hints["reserved"])
    assert not fits("three", hints["reserved"])
    assert fits("stored", hints["tokens"])
    assert fits(("CLS",), hints["tokens"])
    assert not fits(["CLS"], hints["tokens"])
    assert not fits("false", hints["grid"])
    assert not fits((1, 2, 3), tuple[int, int])


@pytest.mark.parametrize("wrong", [{"title": "BERT", "grid": True}, {"tables": ({"tensor": "a"},)}])
def test_a_key_that_is_no_field_is_an_error(
    wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = read_data("families/families.toml")
    data["families"]["bert"] |= wrong
    monkeypatch.setattr(rows, "read_data", lambda _: data)
    with pytest.raises(TypeError, match=r"unexpected keyword argument '(grid|tensor)'"):
        rows.registry.__wrapped__()


def test_names_are_patterns_as_they_were_written() -> None:
    assert published._models()["sinusoid"].formula == r"sinusoidal:\d+x768"
