"""Whether a document is what the schema of its kind says: people edit files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

_KINDS: Mapping[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,),
    "null": (type(None),), "integer": (int,), "number": (int, float),
}  # fmt: skip
#: Numbers are smaller, NaN and infinity are not; whole ones below it are floats too.
_LARGEST = 1e300


def fault(document: Mapping[str, Any]) -> str | None:
    """Say where a document is not as its schema has it; None where it is.

    Keys that the schema does not know are passed over: a later version may have added them.

    Parameters
    ----------
    document
        With the name of its schema, such as ``posprobe.forward/2``.

    Examples
    --------
    >>> fault({"schema": "posprobe.sweep/1"})
    'it has no finished'
    """
    schema = _schema(document["schema"].removeprefix("posprobe.").replace("/", "-"))
    found = next(_faults(document, schema, schema["$defs"], ""), None)
    return found and f"{found[0].lstrip('.') or 'it'} {found[1]}"


@cache
def _schema(name: str) -> dict[str, Any]:
    text = (files("posprobe.report") / "schema" / f"{name}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def _faults(
    value: Any, schema: Mapping[str, Any], types: Mapping[str, Any], place: str
) -> Iterator[tuple[str, str]]:
    """Yield where a value at a place of a document, or a part of it, is wrong, and how."""
    if "$ref" in schema:
        yield from _faults(value, types[schema["$ref"].rpartition("/")[2]], types, place)
    if "anyOf" in schema:
        each = [next(_faults(value, part, types, place), None) for part in schema["anyOf"]]
        if None not in each:  # what is wrong deepest within it says most
            yield max(filter(None, each), key=lambda wrong: len(wrong[0]))
    if not _fits(value, schema):
        yield place, f"is {value!r:.60}"
    elif isinstance(value, dict):
        for key in schema.get("required", ()):
            if key not in value:
                yield place, f"has no {key}"
        known, others = schema.get("properties", {}), schema.get("additionalProperties") or {}
        for key, part in value.items():
            yield from _faults(part, known.get(key, others), types, f"{place}.{key}")
    elif isinstance(value, list):
        first, rest = schema.get("prefixItems", ()), schema.get("items") or {}
        for number, part in enumerate(value):
            held = first[number] if number < len(first) else rest
            yield from _faults(part, held, types, f"{place}[{number}]")


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Tell whether a value is of the kind and within the limits that a schema states."""
    stated = schema.get("type", ())
    kinds = [k for name in ([stated] if isinstance(stated, str) else stated) for k in _KINDS[name]]
    if kinds and type(value) not in kinds:  # to Python, True is a whole number
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if isinstance(value, str):
        matches = re.search(schema.get("pattern", ""), value)
        return len(value) >= schema.get("minLength", 0) and matches is not None
    if isinstance(value, list):
        return bool(schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf))
    if isinstance(value, int | float):
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        above = value > schema.get("exclusiveMinimum", -math.inf)
        return bool(abs(value) < _LARGEST and low <= value <= high and above)
    return True
