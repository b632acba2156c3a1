"""Tables that are compared, and what the document of a comparison is held to."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jsonschema
import referencing
from made_tables import as_table, gaussian, walk, waves

if TYPE_CHECKING:
    from posprobe.tables import PositionTable

Document = dict[str, Any]
SCHEMAS = ("comparison", "analysis")


def problems(document: Document) -> list[str]:
    folder = files("posprobe.report") / "schema"
    schemas = [json.loads((folder / f"{name}-1.json").read_text("utf-8")) for name in SCHEMAS]
    registry = referencing.Registry().with_resources(
        (schema["$id"], referencing.Resource.from_contents(schema)) for schema in schemas
    )
    validator = jsonschema.Draft202012Validator(schemas[0], registry=registry)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


def learned() -> PositionTable:
    return as_table(waves(90, [6.0, 18.0, 40.0], noise=0.1), name="learned")


def smooth() -> PositionTable:
    return as_table(walk(90, 10), name="smooth")


def noise() -> PositionTable:
    return as_table(gaussian(90, 7), name="noise")
