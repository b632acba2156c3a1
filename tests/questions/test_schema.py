"""The generator of JSON Schemas, the files that it makes, and real documents held against them."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema
import pytest
import schemas
from documents import ForwardDocument
from made_forward import forward_analysis
from made_schemas import VERSIONS, problems, schema
from made_tables import as_table, walk
from schemas import json_schema

import posprobe as pp
from posprobe.layouts import Grid, Sequence
from posprobe.measurements import TABLE
from posprobe.measurements.model import MODEL
from posprobe.schema import TWO, Count, Reasons, limits

if TYPE_CHECKING:
    from pathlib import Path

# The files.


def test_the_files_are_what_the_types_make() -> None:
    made = {name: schemas.text(schema) for name, schema in schemas.schemas()}
    folder = files("posprobe.report") / "schema"
    kept = {entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir()}
    assert {name: kept.pop(name) for name in made} == made
    # Those of version 1 stay for bundles of that version.
    assert set(kept) == {f"{name}-1.json" for name, version in VERSIONS.items() if version > 1}


@pytest.mark.parametrize("name", VERSIONS)
def test_a_file_is_a_schema_and_complete_in_itself(name: str) -> None:
    found = schema(name)
    jsonschema.Draft202012Validator.check_schema(found)
    version = VERSIONS[name]
    assert found["$id"] == f"urn:posprobe:{name}:{version}"
    assert found["title"] == f"posprobe.{name}/{version}"
    text = json.dumps(found)
    for block, content in found["$defs"].items():
        assert f'"#/$defs/{block}"' in text, f"nothing refers to {block}"
        assert content["additionalProperties"] is not True
        assert set(content["required"]) <= set(content["properties"])


# Documents.


@pytest.mark.parametrize("name", ["all-minilm-l6-v2", "digits-vit"])
def test_every_block_of_a_real_table_follows_the_schema(name: str) -> None:
    table = pp.load(f"sample:{name}")[:64]
    # The other samples hold their table alone.
    tokens = pp.load_tokens(table) if name == "digits-vit" else None
    document = pp.analyze(table, only=["all"], nulls=1, device="cpu", tokens=tokens).to_dict()
    assert set(TABLE) - {"axis_codes", "clock", "grid", "scale"} <= set(document)
    assert problems("analysis", document) == []
    if tokens is not None:
        assert {"grid", "scale"} <= set(document)
        del document["scale"]["sample"]
        assert problems("analysis", document)


def test_a_comparison_follows_the_schema_without_that_of_the_analysis() -> None:
    document = pp.compare(as_table(walk(12, 4)), pp.sinusoidal(12, 4), nulls=1).to_dict()
    assert problems("comparison", document) == []
    document["tables"][1]["norms"] = {}
    assert problems("comparison", document)


@pytest.mark.parametrize("layout", [Sequence(24), Grid(3, 4)], ids=str)
def test_a_run_of_a_model_follows_the_schema(layout: Sequence | Grid) -> None:
    document = forward_analysis(layout).to_dict()
    assert problems("forward", document) == []
    for name in MODEL:
        without = {key: value for key, value in document.items() if key != name}
        assert problems("forward", without), name
    for layer in document["states"]["layers"]:
        del layer["analyses"]
    assert problems("forward", document)


def test_a_sweep_follows_the_schema_begun_and_finished(tmp_path: Path) -> None:
    options: dict[str, Any] = {"engine": "threads", "nulls": 0, "rows": slice(0, 12)}
    sweep = pp.sweep(["sinusoidal:24x8", "./nowhere"], out=tmp_path, only=["norms"], **options)
    sweep._begin(sweep._about())
    for keys in (set(), {"run", "counts"}):
        document = json.loads((tmp_path / "sweep.json").read_text(encoding="utf-8"))
        assert keys == {"run", "counts"} & set(document)
        assert problems("sweep", document) == []
        sweep.run()
    assert problems("sweep", document | {"counts": {"rows": -1}})


# The generator.


class Point(TypedDict):
    """A place."""

    x: Annotated[float, "In metres.", limits(minimum=0)]
    y: float | None
    label: NotRequired[str]


class Shape(TypedDict):
    """Several places."""

    kind: Literal["open", "closed"]
    one: Literal[1]
    points: Annotated[list[Point], limits(minItems=1)]
    corner: tuple[int, str]
    sizes: Annotated[list[Count] | None, TWO]
    center: Annotated[Point | None, "Null where open."]
    named: dict[str, bool]
    mixed: list[int | list[int]]
    anything: Any
    undefined: Reasons


class Open(TypedDict):
    """Keys that are not known beforehand."""

    value: float
    __extra_items__: NotRequired[Point | None]


SHAPE: dict[str, Any] = {
    "kind": "open",
    "one": 1,
    "points": [{"x": 0.5, "y": None}, {"x": 1, "y": 2, "label": "b"}],
    "corner": [1, "a"],
    "sizes": [0, 3],
    "center": None,
    "named": {"a": True},
    "mixed": [1, [2, 3]],
    "anything": {"a": [None]},
    "undefined": {"center": "it is open"},
}


def test_a_document_that_has_its_type_passes() -> None:
    schema = json_schema(Shape)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert problems(schema, SHAPE) == []
    assert problems(schema, SHAPE | {"sizes": None, "center": {"x": 1, "y": 1}}) == []
    assert schema["$defs"]["Point"]["description"] == "A place."
    assert schema["$defs"]["Point"]["properties"]["x"]["description"] == "In metres."
    assert schema["$defs"]["Point"]["required"] == ["x", "y"]


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "ajar"},
        {"one": 2},
        {"points": []},
        {"points": [{"x": 1}]},
        {"points": [{"x": -1, "y": None}]},
        {"points": [{"x": None, "y": None}]},
        {"points": [{"x": 1, "y": 1, "z": 1}]},
        {"points": [{"x": 1, "y": 1, "label": None}]},
        {"corner": [1]},
        {"corner": [1, "a", 2]},
        {"corner": ["a", 1]},
        {"sizes": [1]},
        {"sizes": [1, -1]},
        {"sizes": [1, 0.5]},
        {"center": {}},
        {"named": {"a": 1}},
        {"mixed": [0.5]},
        {"undefined": {"center": ""}},
        {"surprise": 1},
    ],
    ids=str,
)
def test_another_document_is_problems(change: dict[str, Any]) -> None:
    assert problems(json_schema(Shape), SHAPE | change)


@pytest.mark.parametrize("key", SHAPE)
def test_a_missing_key_is_problems(key: str) -> None:
    without = {name: value for name, value in SHAPE.items() if name != key}
    assert problems(json_schema(Shape), without)


def test_keys_that_are_not_known_have_a_type_all_the_same() -> None:
    schema = json_schema(Open)
    assert problems(schema, {"value": 1, "a": {"x": 1, "y": 1}, "b": None}) == []
    assert problems(schema, {"value": 1, "a": 1})
    assert problems(schema, {"a": None})


def test_blocks_of_a_model_are_required_and_may_be_null() -> None:
    kinds: dict[str, Any] = {name: m.record for name, m in MODEL.items()} | {"toy": Point}
    blocks = {name: kind | None for name, kind in kinds.items()}
    schema = json_schema(ForwardDocument, blocks=blocks, required=True)
    document = forward_analysis().to_dict()
    assert problems(schema, document)
    assert problems(schema, document | {"toy": None}) == []
    assert problems(schema, document | {"toy": {"x": 1, "y": 2}}) == []


def another_point() -> type:
    class Point(TypedDict):
        x: float

    return Point


def test_what_has_no_place_in_json_is_problems() -> None:
    class Wrong(TypedDict):
        when: set[int]

    with pytest.raises(TypeError, match="no form in JSON"):
        json_schema(Wrong)
    with pytest.raises(TypeError, match="has the keys x already"):
        json_schema(Point, blocks={"x": Open})
    assert "description" not in json_schema(another_point())["$defs"]["Point"]
    with pytest.raises(TypeError, match="two types are called Point"):
        json_schema(Shape, blocks={"other": another_point()})
