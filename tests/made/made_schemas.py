"""The JSON Schemas of documents, the newest of each, and what they find wrong."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema
import referencing

#: Kinds of documents, with the version that is written.
VERSIONS = {
    "analysis": 2, "comparison": 2, "kernels": 2, "forward": 2, "sweep": 1, "resizing": 1,
    "check": 1,
}  # fmt: skip


@cache
def schema(name: str) -> dict[str, Any]:
    """Return the schema of a kind of document."""
    folder = files("posprobe.report") / "schema"
    text = (folder / f"{name}-{VERSIONS[name]}.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def problems(asked: str | dict[str, Any], document: Any) -> list[str]:
    """Say what a document has that a schema, or that of its kind, does not allow."""
    known = referencing.Registry().with_resources(
        (schema(each)["$id"], referencing.Resource.from_contents(schema(each))) for each in VERSIONS
    )
    held = schema(asked) if isinstance(asked, str) else asked
    written = json.loads(json.dumps(document, allow_nan=False))
    found = jsonschema.Draft202012Validator(held, registry=known).iter_errors(written)
    return [f"{error.json_path}: {error.message}" for error in found]
