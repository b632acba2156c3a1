"""The registry of measurements inside a model: each has one home; lists follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pytest
from made_forward import forward_analysis
from made_models import bert

import posprobe as pp
from posprobe.analyses.facts import Number
from posprobe.analyses.result import NumberSuffixes, Result, StoredArray
from posprobe.errors import UsageError
from posprobe.layouts import Grid, Layout, Sequence
from posprobe.measurements import Drawing
from posprobe.measurements.model import MODEL_MEASUREMENTS, ModelMeasurement
from posprobe.page import Column
from posprobe.report.render import build_page
from posprobe.report.screen import render_text
from posprobe.words import PICTURE_TEXTS

if TYPE_CHECKING:
    from pathlib import Path


@cache
def run_on(layout: Layout) -> dict[str, Any]:
    return forward_analysis(layout).to_dict()


@pytest.mark.parametrize("name", MODEL_MEASUREMENTS)
def test_every_measurement_has_texts_numbers_and_figures(name: str) -> None:
    measurement = MODEL_MEASUREMENTS[name]
    assert measurement.name == name
    assert measurement.title
    document = run_on(Grid(3, 4) if name == "blank" else Sequence(24))
    rows = list(measurement.rows(document))
    assert len({label for label, _ in rows}) == len(rows) > 0
    assert all(texts and all(texts.values()) for _, texts in rows)
    assert all(
        PICTURE_TEXTS["model"][drawing.name].endswith(".")
        for drawing in measurement.drawings
    )


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
    def shares(self) -> Annotated[Even, NumberSuffixes()]:
        return Even(1 / self.known)

    @property
    def vocabulary(self) -> Annotated[Any, StoredArray()]:
        return np.arange(self.known)


TOY = ModelMeasurement[Words](
    name="vocabulary",
    title="Tokens that are known",
    compute=lambda inputs: Words(inputs.model.config.vocab_size),
    record=Words,
    drawings=(Drawing("vocabulary"),),
    rows=lambda document: (
        (
            f"tokens of {document['model']['class']}",
            {0: str(document["vocabulary"]["known"])},
        ),
    ),
    is_from_weights=True,
)


def test_a_measurement_that_is_added_to_the_registry_is_everywhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(MODEL_MEASUREMENTS, "vocabulary", TOY)
    model: Any = bert()
    model.save_pretrained(tmp_path / "bert")
    size = model.config.vocab_size
    run = pp.analyze_model(
        str(tmp_path / "bert"), pp.Contexts(count=2), only=["states", "vocabulary"], nulls=0,
        device="cpu",
    )  # fmt: skip
    assert list(run.results) == ["states", "vocabulary"]
    document = run.to_dict()
    assert document["vocabulary"] == {
        "known": size,
        "shares": {"even": 1 / size},
        "undefined": {},
    }
    assert run.arrays()["vocabulary"].shape == (size,)
    page = build_page(document)
    rows = {
        str(row[0]): dict(zip(page.numbers.columns, row, strict=True))
        for row in page.numbers.rows
    }
    assert rows["tokens"][Column("model", is_numeric=True)] == str(size)
    assert rows["tokens of BertModel"][Column("layer 0", is_numeric=True)] == str(size)
    assert "Tokens that are known" in str(page.evidence)
    assert "tokens of BertModel" in render_text(document, verbose=True)
    with pytest.raises(UsageError, match="vocabulary"):
        pp.analyze_model(str(tmp_path / "bert"), only="magic")
