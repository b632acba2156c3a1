"""JSON Schema files are generated from the types, and real documents follow them."""

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
from posprobe.measurements import TABLE_MEASUREMENTS
from posprobe.measurements.model import MODEL_MEASUREMENTS
from posprobe.report import to_json
from posprobe.report.render import build_page

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The files.


def test_schema_files_are_generated_from_the_types() -> None:
    generated = {name: schemas.text(schema) for name, schema in schemas.schemas()}
    folder = files("posprobe.report") / "schema"
    stored = {entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir()}
    assert {name: stored.pop(name) for name in generated} == generated
    # Those of earlier versions stay for bundles of these versions.
    assert set(stored) == {
        f"{name}-{earlier}.json"
        for name, version in VERSIONS.items()
        for earlier in range(1, version)
    }


@pytest.mark.parametrize("name", VERSIONS)
def test_schema_files_are_valid_and_self_contained(name: str) -> None:
    content = schema(name)
    jsonschema.Draft202012Validator.check_schema(content)
    version = VERSIONS[name]
    assert content["$id"] == f"urn:posprobe:{name}:{version}"
    assert content["title"] == f"posprobe.{name}/{version}"
    text = json.dumps(content)
    for name, block in content["$defs"].items():
        assert f'"#/$defs/{name}"' in text, f"nothing refers to {name}"
        assert block["additionalProperties"] is not True
        assert set(block["required"]) <= set(block["properties"])


# Documents.


def holds_none(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(map(holds_none, value)))


def undefined_numbers(block: Any, path: str = "") -> list[str]:
    """Return paths of nulls without a reason and of reasons without a null."""
    if not isinstance(block, dict):
        return []
    reasons = block.get("undefined", {})
    reasons = reasons if isinstance(reasons, dict) else dict.fromkeys(block, reasons)
    paths = [
        f"{path}.{name}"
        for name, value in block.items()
        if holds_none(value) != (name in reasons) and name != "undefined"
    ]
    for name, value in block.items():
        paths += undefined_numbers(value, f"{path}.{name}")
    return paths


def resolves(document: Any, key: str) -> bool:
    """Return whether a dotted path exists; its keys may contain dots."""
    if isinstance(document, list):
        index, _, suffix = key.partition(".")
        return not suffix or resolves(document[int(index)], suffix)
    if not isinstance(document, dict):
        return False
    return any(
        key == name
        or (key.startswith(f"{name}.") and resolves(value, key[len(name) + 1 :]))
        for name, value in document.items()
    )


@pytest.mark.parametrize("name", TABLES)
def test_null_numbers_of_a_table_have_a_reason(name: str) -> None:
    document = strict_json(document_of(name))
    assert problems("analysis", document) == []
    assert to_json(document) == document_of(name)
    for block, numbers in document.items():
        if block not in ("table", "environment", "nulls"):
            assert undefined_numbers(numbers, block) == []
    for reason in document["pca"]["undefined"].values():
        assert len(reason) > 10
    assert_answers_hold(document)


@pytest.mark.parametrize("name", PAGES)
def test_every_kind_of_document_follows_its_schema_and_shows_its_answers(
    name: str,
) -> None:
    document_content = content(name).to_dict()
    document = strict_json(to_json(document_content))
    assert (
        problems(
            document["schema"].removeprefix("posprobe.").partition("/")[0],
            document_content,
        )
        == []
    )
    assert_answers_hold(document)


def assert_answers_hold(document: Any) -> None:
    """Assert that answers name existing numbers, and that findings and page show the answers."""
    page = build_page(document)
    block = document.get("verdict")
    if block is None or any("answers" in answer for answer in block["answers"]):
        return
    # Equal patches have no codes, so these answers have no numbers.
    defined_answers = [
        answer for answer in block["answers"] if answer["reason"] != "all_equal"
    ]
    for answer in (*defined_answers, *document["findings"]):
        assert answer["keys"]
        for key in answer["keys"]:
            assert resolves(document, key), key
    yes_sentences = [
        answer["sentence"] for answer in block["answers"] if answer["answer"] == "yes"
    ]
    assert [finding["text"] for finding in document["findings"]] == yes_sentences
    assert page.headline == block["summary"]
    if "table" not in document:
        assert [section.name for section in page.single_answers if section.answer] == [
            answer["question"] for answer in block["answers"]
        ]
        # Older documents of runs and encodings have findings and no verdict.
        del document["verdict"]
        page = build_page(document)
        assert all(finding["text"] in page.headline for finding in document["findings"])
        assert not any(section.answer for section in page.single_answers)


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
def test_the_schema_rejects_changed_documents(change: Callable[[Any], None]) -> None:
    document = strict_json(document_of("sapiens-roberta"))
    change(document)
    assert problems("analysis", document)


def test_documents_with_nan_are_not_written() -> None:
    document = strict_json(document_of("sapiens-roberta"))
    document["pca"]["top3"] = float("nan")
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(document)


@pytest.mark.parametrize("name", ["sapiens-roberta", "digits-vit"])
def test_every_block_of_a_real_table_follows_the_schema(name: str) -> None:
    table = pp.load(f"sample:{name}")[:64]
    # The other samples hold their table alone.
    tokens = pp.load_tokens(table) if name == "digits-vit" else None
    document = pp.analyze(
        table, only=["all"], nulls=1, device="cpu", tokens=tokens
    ).to_dict()
    assert set(TABLE_MEASUREMENTS) - {
        "axis_codes",
        "clock",
        "grid",
        "scale",
        "video_codes",
    } <= set(document)
    assert problems("analysis", document) == []
    if tokens is not None:
        assert {"grid", "scale"} <= set(document)
        del document["scale"]["sample"]
        assert problems("analysis", document)


def test_a_comparison_follows_its_own_schema() -> None:
    document = pp.compare(as_table(walk(12, 4)), pp.sinusoidal(12, 4), nulls=1).to_dict()
    assert problems("comparison", document) == []
    document["tables"][1]["norms"] = {}
    assert problems("comparison", document)


def test_a_run_of_a_model_has_every_block() -> None:
    document = forward_analysis().to_dict()
    for name in MODEL_MEASUREMENTS:
        incomplete = {key: value for key, value in document.items() if key != name}
        assert problems("forward", incomplete), name
    for layer in document["states"]["layers"]:
        del layer["analyses"]
    assert problems("forward", document)


def test_started_and_finished_sweeps_follow_their_schema(tmp_path: Path) -> None:
    options: dict[str, Any] = {"jobs": 1, "nulls": 0, "rows": slice(0, 12)}
    sweep = pp.sweep(
        ["sinusoidal:24x8", "./nowhere"], out=tmp_path, only=["norms"], **options
    )

    def read_document() -> Any:
        return json.loads((tmp_path / "sweep.json").read_text(encoding="utf-8"))

    documents: list[Any] = []
    sweep.run(lambda _: documents.append(read_document()))
    document = read_document()
    for stage, keys in ((documents[0], set()), (document, {"run", "counts"})):
        assert keys == {"run", "counts"} & set(stage)
        assert problems("sweep", stage) == []
    assert problems("sweep", document | {"counts": {"rows": -1}})
