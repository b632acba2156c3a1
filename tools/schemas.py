"""Write the JSON Schemas of all documents from their types.

Run with ``uv run python tools/schemas.py``; a test holds the files equal to what this makes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from posprobe import documents
from posprobe.measurements import TABLE
from posprobe.measurements.model import MODEL
from posprobe.resizing.documents import RulesDocument, WaysDocument
from posprobe.schema import json_schema

FOLDER = Path(__file__).parents[1] / "posprobe" / "report" / "schema"


def table_blocks() -> dict[str, Any]:
    """Return the types of the blocks of a table's measurements, by name."""
    return {name: measurement.block for name, measurement in TABLE.items()}


def schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each file with its content."""
    blocks = table_blocks()
    made = {
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
        "resizing": json_schema(WaysDocument | RulesDocument),
        "forward": json_schema(
            documents.ForwardDocument,
            blocks={name: measurement.block | None for name, measurement in MODEL.items()},
            required=True,
        ),
    }
    for name, schema in made.items():
        titles = {"$id": f"urn:posprobe:{name}:1", "title": f"posprobe.{name}/1"}
        yield f"{name}-1.json", {"$schema": schema.pop("$schema"), **titles, **schema}


def text(schema: Mapping[str, Any]) -> str:
    """Return a schema as its file has it: a line for each of its definitions."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    definitions = ",\n".join(f"  {line(k)}: {line(v)}" for k, v in schema["$defs"].items())
    others = "".join(f" {line(k)}: {line(v)},\n" for k, v in schema.items() if k != "$defs")
    return f'{{\n{others} "$defs": {{\n{definitions}\n }}\n}}\n'


def main() -> None:
    """Write all files."""
    for name, schema in schemas():
        (FOLDER / name).write_text(text(schema), encoding="utf-8")


if __name__ == "__main__":
    main()
