"""Write the JSON Schemas of all documents from their types.

Run with ``uv run python tools/schemas.py``; a test holds the files equal to what this makes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from inspect import cleandoc
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import documents
import numpy as np

from posprobe.analyses.facts import Number
from posprobe.analyses.result import NEWER, JsonType, annotation_metadata, shown_types
from posprobe.layouts import Grid, GridLayoutBlock, Sequence, SequenceBlock
from posprobe.measurements import TABLE_MEASUREMENTS
from posprobe.measurements.model import MODEL_MEASUREMENTS
from posprobe.number_types import Count
from posprobe.resizing.rotary import RulesCompared
from posprobe.studies.resizing import WaysCompared
from posprobe.words.formats import capitalise

#: Version of each kind of document.
VERSIONS = {
    "analysis": 2,
    "comparison": 2,
    "kernels": 3,
    "forward": 3,
    "sweep": 1,
    "resizing": 1,
    "check": 1,
}
FOLDER = Path(__file__).parents[1] / "posprobe" / "report" / "schema"


def table_blocks() -> dict[str, Any]:
    """Return the types of the blocks of a table's measurements, by name."""
    return {name: measurement.record for name, measurement in TABLE_MEASUREMENTS.items()}


def schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each file with its content."""
    blocks = table_blocks()
    built = {
        "analysis": json_schema(
            documents.AnalysisDocument | documents.SchemesDocument,
            blocks=blocks,
            into=documents.AnalysisDocument,
        ),
        "comparison": json_schema(
            documents.ComparisonDocument, blocks=blocks, into=documents.ComparedTable
        ),
        "kernels": json_schema(documents.KernelsDocument),
        "sweep": json_schema(documents.SweepDocument),
        "check": json_schema(documents.CheckDocument),
        "resizing": json_schema(WaysCompared | RulesCompared),
        "forward": json_schema(
            documents.ForwardDocument,
            blocks={
                name: _nullable(measurement.record)
                for name, measurement in MODEL_MEASUREMENTS.items()
            },
            required=True,
        ),
    }
    for name, schema in built.items():
        version = VERSIONS[name]
        titles = {
            "$id": f"urn:posprobe:{name}:{version}",
            "title": f"posprobe.{name}/{version}",
        }
        yield (
            f"{name}-{version}.json",
            {"$schema": schema.pop("$schema"), **titles, **schema},
        )


def _nullable(record: Any) -> Any:
    return record | None


def text(schema: Mapping[str, Any]) -> str:
    """Return a schema as its file has it: a line for each of its definitions."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    definitions = ",\n".join(
        f"  {line(k)}: {line(v)}" for k, v in schema["$defs"].items()
    )
    entries = "".join(
        f" {line(k)}: {line(v)},\n" for k, v in schema.items() if k != "$defs"
    )
    return f'{{\n{entries} "$defs": {{\n{definitions}\n }}\n}}\n'


def main() -> None:
    """Write all files."""
    for name, schema in schemas():
        (FOLDER / name).write_text(text(schema), encoding="utf-8")


#: A TypedDict may hold keys that are not known beforehand, as in PEP 728: their type stands here.
EXTRA = "__extra_items__"

_PLAIN: Mapping[Any, str] = {
    bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null",
}  # fmt: skip


_LAYOUTS: Mapping[Any, Any] = {Sequence: SequenceBlock, Grid: GridLayoutBlock}
_ITEMS: Mapping[Any, str] = {
    np.float64: "number", np.int64: "integer", np.bool_: "boolean",
}  # fmt: skip


def json_schema(
    document: Any,
    *,
    blocks: Mapping[str, Any] | None = None,
    into: type | None = None,
    required: bool = False,
) -> dict[str, Any]:
    """Generate the JSON Schema of a document.

    Parameters
    ----------
    document
        A TypedDict or a dataclass, or a union of several where the document has several forms.
    blocks
        Types of further keys, by key: those of the registered measurements.
    into
        The type that they are keys of; None stands for ``document`` itself.
    required
        Whether every one of these keys must be there.

    Raises
    ------
    TypeError
        If a type has no place in JSON, a key is there twice, or two types have one name.

    Examples
    --------
    >>> from typing import TypedDict
    >>> class Point(TypedDict):
    ...     x: float
    >>> json_schema(Point)["$defs"]["Point"]["properties"]
    {'x': {'type': 'number'}}
    """
    definitions = dict(blocks or {})
    defs: dict[str, Any] = {}
    types_by_name: dict[str, type] = {}

    def define(kind: type, *, layer: bool = False) -> dict[str, Any]:
        name = kind.__name__
        if types_by_name.setdefault(name, kind) is not kind:
            raise TypeError(
                f"two types are called {name}: {types_by_name[name]} and {kind}"
            )
        if name not in defs:
            defs[name] = {}  # a type may hold itself
            record = is_dataclass(kind)
            hints = (
                dict(shown_types(kind))
                if record
                else get_type_hints(kind, include_extras=True)
            )
            hints = {"layer": Count, **hints} if layer else hints
            extra = hints.pop(EXTRA, None)
            # A reason for all that is unknown: lists are null there.
            unknown = record and get_args(hints.get("undefined"))[:1] == (str,)
            optional = {
                key
                for key, hint in hints.items()
                if get_origin(hint) is NotRequired or NEWER in annotation_metadata(hint)
            }
            if kind is (into or document):
                if twice := sorted(definitions.keys() & hints.keys()):
                    raise TypeError(f"{name} has the keys {', '.join(twice)} already")
                hints |= definitions
                optional |= set() if required else set(definitions)
            defs[name] = {
                "type": "object",
                **({"description": _about(kind)} if kind.__doc__ else {}),
                "properties": {
                    key: _or_null(_schema(hint, define))
                    if unknown and key != "undefined"
                    else _schema(hint, define)
                    for key, hint in hints.items()
                },
                "required": [key for key in hints if key not in optional],
                "additionalProperties": _schema(extra, define)
                if extra is not None
                else False,
            }
        return {"$ref": f"#/$defs/{name}"}

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_schema(document, define),
        "$defs": dict(sorted(defs.items())),
    }


def _schema(hint: Any, define: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of one type; ``define`` turns a record into a reference."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hint in _LAYOUTS:
        return define(_LAYOUTS[hint])
    if is_typeddict(hint) or is_dataclass(hint):
        return define(hint)
    if origin is NotRequired:
        return _schema(arguments[0], define)
    if origin is Annotated:
        kind = next(
            (note.target for note in arguments if isinstance(note, JsonType)),
            arguments[0],
        )
        item_schema = _schema(kind, define)
        for note in arguments[1:]:
            if isinstance(note, str) and note != NEWER:
                item_schema |= {"description": note} if note else {}
            elif isinstance(note, Number) and note.meaning:
                item_schema.setdefault("description", f"{capitalise(note.meaning)}.")
            elif isinstance(note, tuple):
                item_schema |= dict(note)
        return item_schema
    if origin is Literal:
        return (
            {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
        )
    if origin in (Union, UnionType):
        return _union([_schema(argument, define) for argument in arguments])
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], define)}
    if origin is np.ndarray:
        return {"type": "array", "items": {"type": _ITEMS[get_args(arguments[1])[0]]}}
    if origin is tuple and Ellipsis in arguments:
        return {"type": "array", "items": _schema(arguments[0], define)}
    if origin is tuple:
        kinds = [_schema(argument, define) for argument in arguments]
        return {
            "type": "array",
            "prefixItems": kinds,
            "items": False,
            "minItems": len(kinds),
        }
    if origin in (dict, Mapping) and arguments[0] is int:
        return {"type": "array", "items": define(arguments[1], layer=True)}
    if origin in (dict, Mapping) and arguments[0] is str:
        return {"type": "object", "additionalProperties": _schema(arguments[1], define)}
    raise TypeError(f"{hint!r} has no form in JSON")


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Allow for a list or a mapping that nothing is known of."""
    kind = schema.get("type")
    return schema | {"type": [kind, "null"]} if kind in ("array", "object") else schema


def _about(kind: type) -> str:
    """Return the first paragraph of what is said of a type."""
    return " ".join(cleandoc(kind.__doc__ or "").partition("\n\n")[0].split())


def _union(kinds: list[dict[str, Any]]) -> dict[str, Any]:
    null = {"type": "null"}
    alternatives = [kind for kind in kinds if kind != null]
    if (
        len(alternatives) == 1
        and len(kinds) == 2
        and isinstance(alternatives[0].get("type"), str)
    ):
        # Limits of a number, a string or a list say nothing of null.
        return alternatives[0] | {"type": [alternatives[0]["type"], "null"]}
    return {"anyOf": [*alternatives, *([null] if null in kinds else [])]}


if __name__ == "__main__":
    main()
