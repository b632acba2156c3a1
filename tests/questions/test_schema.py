"""The files of JSON Schema are what the types make, and real documents follow them."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import schemas
from made_bundles import TABLES, document_of, put, remove, strict_json
from made_forward import forward_analysis
from made_pages import PAGES, content
from made_schemas import VERSIONS, problems, schema
from made_tables import as_table, walk

import posprobe as pp
from posprobe.measurements import TABLE
from posprobe.measurements.model import MODEL
from posprobe.report import to_json
from posprobe.report.render import page_of

if TYPE_CHECKING:
    from collections.abc import Callable
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
    for name, block in found["$defs"].items():
        assert f'"#/$defs/{name}"' in text, f"nothing refers to {name}"
        assert block["additionalProperties"] is not True
        assert set(block["required"]) <= set(block["properties"])


# Documents.


def holds_none(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(map(holds_none, value)))


def undefined_numbers(block: Any, where: str = "") -> list[str]:
    """Paths of nulls without a reason beside them, and of reasons without a null."""
    if not isinstance(block, dict):
        return []
    reasons = block.get("undefined", {})
    reasons = reasons if isinstance(reasons, dict) else dict.fromkeys(block, reasons)
    found = [
        f"{where}.{name}"
        for name, value in block.items()
        if holds_none(value) != (name in reasons) and name != "undefined"
    ]
    for name, value in block.items():
        found += undefined_numbers(value, f"{where}.{name}")
    return found


def resolves(document: Any, key: str) -> bool:
    """Whether a dotted path leads somewhere; keys along it may hold dots themselves."""
    if isinstance(document, list):
        place, _, rest = key.partition(".")
        return not rest or resolves(document[int(place)], rest)
    if not isinstance(document, dict):
        return False
    return any(
        key == name or (key.startswith(f"{name}.") and resolves(value, key[len(name) + 1 :]))
        for name, value in document.items()
    )


@pytest.mark.parametrize("name", TABLES)
def test_a_number_of_a_table_that_is_null_has_its_reason_beside_it(name: str) -> None:
    document = strict_json(document_of(name))
    assert problems("analysis", document) == []
    assert to_json(document) == document_of(name)
    for block, numbers in document.items():
        if block not in ("table", "environment", "nulls"):
            assert undefined_numbers(numbers, block) == []
    for reason in document["pca"]["undefined"].values():
        assert len(reason) > 10
    hold_to_its_answers(document)


@pytest.mark.parametrize("name", PAGES)
def test_every_kind_of_document_follows_its_schema_and_shows_its_answers(name: str) -> None:
    made = content(name).to_dict()
    document = strict_json(to_json(made))
    assert problems(document["schema"].removeprefix("posprobe.").partition("/")[0], made) == []
    hold_to_its_answers(document)


def hold_to_its_answers(document: Any) -> None:
    """Hold answers to numbers that are there, and findings and page to the answers."""
    page = page_of(document)
    block = document.get("verdict")
    if block is None or any("answers" in answer for answer in block["answers"]):
        return
    # Of equal patches there are no codes, which answers that cannot tell would rest on.
    told = [answer for answer in block["answers"] if answer["reason"] != "all_equal"]
    for answer in (*told, *document["findings"]):
        assert answer["keys"]
        for key in answer["keys"]:
            assert resolves(document, key), key
    yes = [answer["sentence"] for answer in block["answers"] if answer["answer"] == "yes"]
    assert [finding["text"] for finding in document["findings"]] == yes
    assert page.headline == block["summary"]
    if "table" not in document:
        assert [each.name for each in page.single if each.answer] == [
            answer["question"] for answer in block["answers"]
        ]
        # Runs and encodings once had findings and no verdict.
        del document["verdict"]
        page = page_of(document)
        assert all(finding["text"] in page.headline for finding in document["findings"])
        assert not any(each.answer for each in page.single)


@pytest.mark.parametrize(
    "change",
    [
        remove("table", "source", "sha256"),
        put("posprobe.analysis/1", "schema"),
        put(1, "similarity", "centered", "surprise"),
        put(1.5, "similarity", "raw", "neighbour_mean"),
        put("hamming", "spectrum", "window"),
        put({"type": "grid", "height": 3}, "table", "layout"),
        put("", "similarity", "raw", "undefined", "minimum"),
        put([{"text": "no keys"}], "findings"),
        put({"value": 1.0}, "nulls", "numbers", "pca.top3"),
    ],
)
def test_the_schema_notices(change: Callable[[Any], None]) -> None:
    document = strict_json(document_of("sapiens-roberta"))
    change(document)
    assert problems("analysis", document)


def test_what_is_not_a_number_reaches_no_file() -> None:
    document = strict_json(document_of("sapiens-roberta"))
    document["pca"]["top3"] = float("nan")
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(document)


@pytest.mark.parametrize("name", ["sapiens-roberta", "digits-vit"])
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


def test_a_run_of_a_model_has_every_block() -> None:
    document = forward_analysis().to_dict()
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
