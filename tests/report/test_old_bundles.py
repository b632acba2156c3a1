"""Bundles of the last release still become pages, and follow the schema of their version."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from posprobe.report import read_bundle, render_bundle
from posprobe.report.screen import text

KEPT = sorted((Path(__file__).parents[1] / "data").glob("*-0.1.0"))


@pytest.mark.parametrize("kept", KEPT, ids=[path.name for path in KEPT])
def test_a_bundle_of_the_last_release_renders(kept: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(kept, tmp_path / "bundle"))
    page = render_bundle(folder).read_text(encoding="utf-8")
    document = read_bundle(folder)
    name = document["tables"][0]["label"] if "tables" in document else document["table"]["name"]
    assert name in page
    # Its null models are those that it names, whatever this release draws.
    models = document.get("nulls", document.get("tables", [{}])[0].get("nulls"))["models"]
    assert "phase" in models
    if "table" in document:
        assert ">phase</th>" in page
    else:
        assert "CKA (0–1)" in page
    assert "None" not in text(document).split()


@pytest.mark.parametrize("kept", KEPT, ids=[path.name for path in KEPT])
def test_a_bundle_of_the_last_release_follows_the_schema(kept: Path) -> None:
    document = read_bundle(kept)
    name = document["schema"].removeprefix("posprobe.").replace("/", "-")
    schema = json.loads((files("posprobe.report") / "schema" / f"{name}.json").read_text())
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(document)) == []
