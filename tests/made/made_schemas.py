"""The newest JSON Schemas of documents, and validation against them."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema
import referencing

#: Current schema versions by kind of document.
VERSIONS = {
    "analysis": 2, "comparison": 2, "kernels": 3, "forward": 3, "sweep": 1, "resizing": 1,
    "check": 1,
}  # fmt: skip


@cache
def schema(name: str) -> dict[str, Any]:
    """Return the schema of a kind of document."""
    folder = files("posprobe.report") / "schema"
    text = (folder / f"{name}-{VERSIONS[name]}.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def problems(schema_or_name: str | dict[str, Any], document: Any) -> list[str]:
    """Return the violations of a schema, given as such or by kind, in a document."""
    registry = referencing.Registry().with_resources(
        (schema(name)["$id"], referencing.Resource.from_contents(schema(name)))
        for name in VERSIONS
    )
    expected = (
        schema(schema_or_name) if isinstance(schema_or_name, str) else schema_or_name
    )
    written = json.loads(json.dumps(document, allow_nan=False))
    errors = jsonschema.Draft202012Validator(expected, registry=registry).iter_errors(
        written
    )
    return [f"{error.json_path}: {error.message}" for error in errors]
