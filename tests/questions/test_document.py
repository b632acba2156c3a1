"""The JSON of an analysis: strict, as the schema says, and with a reason for what is undefined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from made_bundles import TABLES, document_of, put, remove, strict_json
from made_schemas import problems

from posprobe.report import to_json

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("name", TABLES)
def test_the_document_follows_the_schema_and_is_strict_json(name: str) -> None:
    document = strict_json(document_of(name))
    assert problems("analysis", document) == []
    assert to_json(document) == document_of(name)


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


@pytest.mark.parametrize("name", TABLES)
def test_an_undefined_number_is_null_with_a_reason_beside_it(name: str) -> None:
    document = strict_json(document_of(name))
    for block, content in document.items():
        if block not in ("table", "environment", "nulls"):
            assert undefined_numbers(content, block) == []
    for reason in document["pca"]["undefined"].values():
        assert len(reason) > 10


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


def test_findings_rest_on_keys_that_are_there() -> None:
    for name in TABLES:
        document = strict_json(document_of(name))
        for finding in document["findings"]:
            assert finding["text"].strip()
            assert finding["keys"]
            for key in finding["keys"]:
                assert resolves(document, key), key


def resolves(document: Any, key: str) -> bool:
    """Whether a dotted path leads somewhere; keys along it may hold dots themselves."""
    if not isinstance(document, dict):
        return False
    return any(
        key == name or (key.startswith(f"{name}.") and resolves(value, key[len(name) + 1 :]))
        for name, value in document.items()
    )
