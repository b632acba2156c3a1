"""The documentation agrees with the code, and every command of the README exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import analyses_docs
import cli_docs
import pytest

import posprobe as pp
from posprobe.cli import app
from posprobe.measurements import TABLE_MEASUREMENTS
from posprobe.report import read_bundle
from posprobe.words import DEFINITIONS, QUESTION_TEXTS

ROOT = Path(__file__).parents[2]

COMMANDS = {command.name for command in app.registered_commands if not command.hidden}


def test_the_command_reference_is_generated_from_the_code() -> None:
    assert cli_docs.TARGET.read_text(encoding="utf-8") == cli_docs.document(), (
        "run: uv run python tools/cli_docs.py"
    )


def test_every_question_and_number_is_explained_as_on_pages() -> None:
    assert analyses_docs.TARGET.read_text(encoding="utf-8") == analyses_docs.document(), (
        "run: uv run python tools/analyses_docs.py"
    )
    assert list(DEFINITIONS["questions"]) == list(QUESTION_TEXTS)
    for sentence in (
        sentence for group in DEFINITIONS.values() for sentence in group.values()
    ):
        assert re.fullmatch(r"[A-Z][^.]*(\.\d[^.]*)*\.", sentence), sentence


def test_every_command_stands_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"uv run .*posprobe (\w+)", readme)) < COMMANDS
    commands = {
        word for pair in re.findall(r"posprobe (\w+) |`(\w+)`", readme) for word in pair
    }
    assert commands >= COMMANDS


@pytest.mark.parametrize("name", [*TABLE_MEASUREMENTS, "heads", "rotation", "smoothness"])
def test_every_analysis_is_explained(name: str) -> None:
    text = (ROOT / "docs" / "analyses.md").read_text(encoding="utf-8")
    assert re.search(rf"^##+ .*`{name}[`.]", text, re.MULTILINE)


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md"))
)
def test_internal_links_of_the_documentation_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        # The site's build copies the notebooks into docs/.
        home = ROOT if target.startswith("notebooks/") else page.parent
        assert (home / target).exists(), f"{page.name}: {target}"


def test_no_document_installs_the_unreleased_package() -> None:
    documents = [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("notebooks/*.ipynb"),
    ]
    for path in (*documents, *(ROOT / "posprobe").rglob("*.py")):
        assert not re.search(
            r"pip install .?posprobe", path.read_text(encoding="utf-8")
        ), path


def test_the_example_report_is_up_to_date() -> None:
    stored = read_bundle(ROOT / "reports" / "digits-vit")
    table = pp.load("sample:digits-vit")
    analysis = pp.analyze(table, nulls=0, tokens=pp.load_tokens(table))
    document = json.loads(json.dumps(analysis.to_dict()))
    assert set(stored) == set(document)
    for block in ("similarity", "pca", "spectrum", "grid", "norms"):
        assert numbers(stored[block]) == pytest.approx(
            numbers(document[block]), rel=1e-6, abs=1e-9
        )
    page = (ROOT / "reports" / "digits-vit" / "report.html").read_text(encoding="utf-8")
    assert str(Path.home()) not in page


def numbers(block: object) -> list[float]:
    """Return every number in a block, in order."""
    match block:
        case dict():
            return [x for key in sorted(block) for x in numbers(block[key])]
        case list():
            return [x for item in block for x in numbers(item)]
        case float() | int():
            return [float(block)]
    return []
