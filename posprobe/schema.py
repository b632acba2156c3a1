"""JSON Schema (draft 2020-12) of documents, generated from their TypedDicts.

A TypedDict of a document states which keys there are and what they hold; ``Annotated`` adds, in any
order, a description (a string) and keywords of JSON Schema, as in
``Annotated[float, "In positions.", limits(minimum=0)]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import cleandoc
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)


def limits(**keywords: float | str) -> tuple[tuple[str, float | str], ...]:
    """Return keywords of JSON Schema in a form that ``Annotated`` can hold in a union: hashable."""
    return tuple(keywords.items())


#: Whole numbers from 0, and from 1.
Count: TypeAlias = Annotated[int, limits(minimum=0)]
Natural: TypeAlias = Annotated[int, limits(minimum=1)]
#: A position, counted after reserved and special rows are gone.
Row: TypeAlias = Annotated[int, limits(minimum=0)]
#: Numbers from 0.
Size: TypeAlias = Annotated[float, limits(minimum=0)]
#: Shares, which rounding may leave just above 1.
Share: TypeAlias = Annotated[float, limits(minimum=0, maximum=1.000001)]
Cosine: TypeAlias = Annotated[float, limits(minimum=-1, maximum=1)]
Text: TypeAlias = Annotated[str, limits(minLength=1)]
Reasons: TypeAlias = Annotated[dict[str, Text], "Reason for each number of the block that is null."]
#: Limits of a list of two.
TWO = limits(minItems=2, maxItems=2)

#: A TypedDict may hold keys that are not known beforehand, as in PEP 728: their type stands here.
EXTRA = "__extra_items__"

_PLAIN: Mapping[Any, str] = {
    bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null",
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
        A TypedDict, or a union of several where the document has several forms.
    blocks
        Types of further keys, by key: those of the registered measurements.
    into
        The TypedDict that they are keys of; None stands for ``document`` itself.
    required
        Whether every one of these keys must be there.

    Raises
    ------
    TypeError
        If a type has no place in JSON, a key is there twice, or two TypedDicts have one name.

    Examples
    --------
    >>> from typing import TypedDict
    >>> class Point(TypedDict):
    ...     x: float
    >>> json_schema(Point)["$defs"]["Point"]["properties"]
    {'x': {'type': 'number'}}
    """
    added = dict(blocks or {})
    defs: dict[str, Any] = {}
    seen: dict[str, type] = {}

    def define(kind: type) -> dict[str, Any]:
        name = kind.__name__
        if seen.setdefault(name, kind) is not kind:
            raise TypeError(f"two types are called {name}: {seen[name]} and {kind}")
        if name not in defs:
            defs[name] = {}  # a type may hold itself
            hints = get_type_hints(kind, include_extras=True)
            extra = hints.pop(EXTRA, None)
            optional = {key for key, hint in hints.items() if get_origin(hint) is NotRequired}
            if kind is (into or document):
                if twice := sorted(added.keys() & hints.keys()):
                    raise TypeError(f"{name} has the keys {', '.join(twice)} already")
                hints |= added
                optional |= set() if required else set(added)
            defs[name] = {
                "type": "object",
                **({"description": cleandoc(kind.__doc__)} if kind.__doc__ else {}),
                "properties": {key: _schema(hint, define) for key, hint in hints.items()},
                "required": [key for key in hints if key not in optional],
                "additionalProperties": _schema(extra, define) if extra is not None else False,
            }
        return {"$ref": f"#/$defs/{name}"}

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_schema(document, define),
        "$defs": dict(sorted(defs.items())),
    }


def _schema(hint: Any, define: Callable[[type], dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of one type; ``define`` turns a TypedDict into a reference."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if is_typeddict(hint):
        return define(hint)
    if origin is NotRequired:
        return _schema(arguments[0], define)
    if origin is Annotated:
        found = _schema(arguments[0], define)
        for note in arguments[1:]:
            found |= {"description": note} if isinstance(note, str) else dict(note)
        return found
    if origin is Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if origin in (Union, UnionType):
        return _union([_schema(one, define) for one in arguments])
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], define)}
    if origin is tuple and Ellipsis not in arguments:
        kinds = [_schema(one, define) for one in arguments]
        return {"type": "array", "prefixItems": kinds, "items": False, "minItems": len(kinds)}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": _schema(arguments[1], define)}
    raise TypeError(f"{hint!r} has no form in JSON")


def _union(kinds: list[dict[str, Any]]) -> dict[str, Any]:
    null = {"type": "null"}
    others = [kind for kind in kinds if kind != null]
    if len(others) == 1 and len(kinds) == 2 and isinstance(others[0].get("type"), str):
        # Limits of a number, a string or a list say nothing of null.
        return others[0] | {"type": [others[0]["type"], "null"]}
    return {"anyOf": [*others, *([null] if null in kinds else [])]}
