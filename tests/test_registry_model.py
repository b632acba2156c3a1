"""The registry of measurements inside a model: each has one home; lists follow from it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pytest
from made_forward import forward_analysis
from made_models import bert

import posprobe as pp
from posprobe.analyses.facts import Number
from posprobe.analyses.result import Part, Result, Stored
from posprobe.errors import UsageError
from posprobe.layouts import Grid, Sequence
from posprobe.measurements.base import Drawing
from posprobe.measurements.model import MODEL, ModelMeasurement
from posprobe.page import Reading, Table, columns
from posprobe.readings import Explanation, readings
from posprobe.report.page import page_of, render
from posprobe.report.terminal import text

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", MODEL)
def test_every_measurement_has_texts_numbers_and_figures(name: str) -> None:
    measurement = MODEL[name]
    assert measurement.name == name
    texts = measurement.texts
    for part in (texts.shows, *astuple(texts.reading)):
        assert part.endswith(".")
    assert texts.title
    document = forward_analysis(Grid(3, 4) if name == "blank" else Sequence(24)).to_dict()
    section = measurement.section(document)
    assert section.tables
    assert all(table.rows for table in section.tables)
    assert section.pictures
    assert all(picture.alt.endswith(".") for picture in section.pictures)
    assert "None" not in str([picture.alt for picture in section.pictures])


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


TEXTS = Explanation(
    Reading("More is more.", "Little.", "Made up."),
    "Tokens that are known",
    "How many tokens the model knows.",
)
TOY = ModelMeasurement[Words](
    name="vocabulary",
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
    from_weights=True,
)


def test_a_measurement_that_is_added_to_the_registry_is_everywhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(MODEL, "vocabulary", TOY)
    monkeypatch.setitem(readings("measurements/model"), "vocabulary", TEXTS)
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
    assert made.arrays()["vocabulary"].shape == (size,)
    page = page_of(document)
    section = next(section for section in page.sections if section.key == "vocabulary")
    assert section.tables[0].rows[0] == ("tokens", str(size), "rows of the embedding")
    shown = render(document, {})
    for part in (TEXTS.title, TEXTS.shows, TEXTS.reading.reading):
        assert part in shown
    assert "Tokens of BertModel" in text(page)
    assert "Tokens of BertModel" in made._repr_html_()
    with pytest.raises(UsageError, match="vocabulary"):
        pp.analyze_model(str(tmp_path / "bert"), only="magic")
