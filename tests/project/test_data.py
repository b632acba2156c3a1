"""Data files: their values have the types of their records, and their keys are fields."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from posprobe.data import read_data
from posprobe.families import TableRule, architectures, relative
from posprobe.figures.styles import venues
from posprobe.studies import published


def has_type(value: object, hint: Any) -> bool:
    """Return whether a value has the type of a field, as a type checker would."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in args
    if origin in (Union, types.UnionType):
        return any(has_type(value, arg) for arg in args)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = args[:1] * len(value) if args[-1] is ... else args
        return len(kinds) == len(value) and all(map(has_type, value, kinds))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is hint


RECORDS: Mapping[str, Iterable[Any]] = {
    "families": architectures.load_registry().families,
    "published values": published.published_values(),
    "models of published values": published._models().values(),
    "relative positions": relative.load_relative_rules(),
    "venues": venues().values(),
}


@pytest.mark.parametrize("name", RECORDS)
def test_values_of_data_files_have_the_declared_types(name: str) -> None:
    records = list(RECORDS[name])
    assert records
    for record in records:
        hints = get_type_hints(type(record))
        for field in fields(record):
            assert has_type(getattr(record, field.name), hints[field.name]), (
                record,
                field.name,
            )


def test_the_type_check_finds_wrong_types() -> None:
    hints = get_type_hints(TableRule)
    assert has_type("two", hints["reserved"])
    assert not has_type("three", hints["reserved"])
    assert has_type("stored", hints["tokens"])
    assert has_type(("CLS",), hints["tokens"])
    assert not has_type(["CLS"], hints["tokens"])
    assert not has_type("false", hints["grid"])
    assert not has_type((1, 2, 3), tuple[int, int])


@pytest.mark.parametrize(
    "extra_keys", [{"title": "BERT", "grid": True}, {"tables": ({"tensor": "a"},)}]
)
def test_an_unknown_key_of_a_data_file_is_an_error(
    extra_keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = read_data("families/architectures.toml")
    data["architectures"]["bert"] |= extra_keys
    monkeypatch.setattr(architectures, "read_data", lambda _: data)
    with pytest.raises(TypeError, match=r"unexpected keyword argument '(grid|tensor)'"):
        architectures.load_registry.__wrapped__()
