"""Documents that people changed are held against their schema as its own package holds them."""

from __future__ import annotations

import json
import random
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fuzz.build import mutated

from posprobe.report.held import fault

KEPT = sorted((Path(__file__).parents[1] / "data").glob("*-0.1.0/analysis.json"))


def schema_of(document: dict[str, Any]) -> dict[str, Any]:
    name = document["schema"].removeprefix("posprobe.").replace("/", "-")
    text = (files("posprobe.report") / "schema" / f"{name}.json").read_text(encoding="utf-8")
    # Keys that a later version may have added are passed over.
    loaded: dict[str, Any] = json.loads(
        text.replace('"additionalProperties": false', '"$comment": ""')
    )
    return loaded


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.parent.name)
def test_what_a_hand_changed_is_found_where_the_schema_s_package_finds_it(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    assert fault(document) is None
    validator = jsonschema.Draft202012Validator(schema_of(document))
    wrong = 0
    for seed in range(60):
        changed = mutated(random.Random(seed), document)  # noqa: S311 - drawn, not secret
        if not isinstance(changed, dict) or changed.get("schema") != document["schema"]:
            continue
        try:
            changed = json.loads(json.dumps(changed, allow_nan=False))
        except ValueError:  # NaN is no JSON, and known to no schema
            assert fault(changed)
            continue
        expected = next(validator.iter_errors(changed), None)
        found = fault(changed)
        wrong += found is not None
        assert (found is None) == (expected is None), (found, expected)
    assert wrong > 10
