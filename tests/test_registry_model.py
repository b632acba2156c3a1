"""The registry of measurements inside a model: each has one home; lists follow from it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pytest
from made_forward import forward_analysis, results_of
from made_models import bert

import posprobe as pp
from posprobe.analyses.facts import Number
from posprobe.analyses.result import Part, Result, Stored
from posprobe.analyses.subspaces import Share, SubspaceOverlap
from posprobe.errors import UsageError
from posprobe.layouts import Grid, Sequence
from posprobe.measurements import Finding
from posprobe.measurements.base import Drawing
from posprobe.measurements.model import MODEL, ModelMeasurement
from posprobe.page import Table, columns
from posprobe.report.page import page_of, render
from posprobe.report.terminal import text

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", MODEL)
def test_every_measurement_has_texts_numbers_and_figures(name: str) -> None:
    measurement = MODEL[name]
    assert measurement.name == name
    for part in (measurement.shows, measurement.reading, measurement.limits, measurement.source):
        assert part.endswith(".")
    assert measurement.title
    document = forward_analysis(Grid(3, 4) if name == "blank" else Sequence(24)).to_dict()
    section = measurement.section(document)
    assert section.tables
    assert all(table.rows for table in section.tables)
    assert section.pictures
    assert all(picture.alt.endswith(".") for picture in section.pictures)
    assert "None" not in str([picture.alt for picture in section.pictures])
    assert list(measurement.findings(document))


def test_figures_have_one_name_each() -> None:
    names = [drawing.name for measurement in MODEL.values() for drawing in measurement.drawings]
    assert len(names) == len(set(names))


def test_the_registry_starts_without_a_library_of_models() -> None:
    heavy = ["torch", "transformers", "timm", "matplotlib", "sklearn", "huggingface_hub"]
    code = (
        "import sys, posprobe.measurements.model\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@dataclass(frozen=True)
class Even:
    """A share."""

    even: Annotated[float, Number("even share", "of each token")]


@dataclass(frozen=True)
class Words(Result):
    """How many tokens a model knows."""

    known: Annotated[int, Number("tokens", "rows of the embedding", form="d")]
    undefined: Annotated[dict[str, str], ""] = field(default_factory=dict)

    @property
    def shares(self) -> Annotated[Even, Part()]:
        return Even(1 / self.known)

    @property
    def vocabulary(self) -> Annotated[Any, Stored()]:
        return np.arange(self.known)


TOY = ModelMeasurement[Words](
    name="vocabulary",
    title="Tokens that are known",
    shows="How many tokens the model knows.",
    reading="More is more.",
    limits="Little.",
    source="Made up.",
    compute=lambda given: Words(given.model.config.vocab_size),
    record=Words,
    drawings=(Drawing("vocabulary", lambda block: f"{block['known']} tokens."),),
    tables=lambda document: (
        Table(
            f"Tokens of {document['model']['class']}",
            columns("what", "=tokens"),
            (("known", str(document["vocabulary"]["known"])),),
            brief=True,
        ),
    ),
    findings=lambda document: iter(
        [Finding(f"It knows {document['vocabulary']['known']} tokens.", ("vocabulary.known",))]
    ),
    from_weights=True,
)


def test_a_measurement_that_is_added_to_the_registry_is_everywhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(MODEL, "vocabulary", TOY)
    model: Any = bert()
    model.save_pretrained(tmp_path / "bert")
    size = model.config.vocab_size
    made = pp.analyze_model(
        str(tmp_path / "bert"), pp.Contexts(count=2), only=["states", "vocabulary"], nulls=0,
        device="cpu",
    )  # fmt: skip
    assert list(made.results) == ["states", "vocabulary"]
    document = made.to_dict()
    assert document["vocabulary"] == {"known": size, "shares": {"even": 1 / size}, "undefined": {}}
    assert document["findings"][-1]["text"] == f"It knows {size} tokens."
    assert made.arrays()["vocabulary"].shape == (size,)
    page = page_of(document)
    section = next(section for section in page.sections if section.key == "vocabulary")
    assert section.tables[0].rows[0] == ("tokens", str(size), "rows of the embedding")
    shown = render(document, {})
    for part in (TOY.title, TOY.shows, TOY.reading, f"It knows {size} tokens."):
        assert part in shown
    assert f"It knows {size} tokens." in text(page, verbose=True)
    assert "Tokens of BertModel" in text(page)
    assert f"It knows {size} tokens." in made._repr_html_()
    with pytest.raises(UsageError, match="vocabulary"):
        pp.analyze_model(str(tmp_path / "bert"), only="magic")


def subspaces_of(value: float, band: tuple[float, float]) -> list[str]:
    found: Any = results_of(Sequence(24))["subspaces"]
    assert isinstance(found, SubspaceOverlap)
    share = Share((band[0] + band[1]) / 2, band, value)
    result = replace(found, variance=share, bottom=share, undefined={})
    document = forward_analysis(results={"subspaces": result}).to_dict()
    return [finding["text"] for finding in document["findings"]]


@pytest.mark.parametrize(
    ("value", "band", "claim"),
    [
        # Equal but for rounding, as of a model that was never trained.
        (0.0390624, (0.0390625, 0.0390625), "about as by chance"),
        (0.0390626, (0.0390625, 0.0390625), "about as by chance"),
        (0.05, (0.04, 0.06), "about as by chance"),
        # One random subspace in ten lies here.
        (0.065, (0.04, 0.06), "about as by chance"),
        (0.2, (0.04, 0.06), "more than by chance"),
        (0.001, (0.04, 0.06), "less than by chance"),
        (0.03, (0.0390625, 0.0390625), "less than by chance"),
    ],
)
def test_nothing_is_claimed_of_a_share_that_chance_explains(
    value: float, band: tuple[float, float], claim: str
) -> None:
    said = subspaces_of(value, band)
    assert len(said) == 2
    assert all(claim in one for one in said)
