"""Whole models out of released packages, from their weights to the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_models import minilm
from registry import package

import posprobe as pp
from posprobe.measurements.model import MODEL

pytestmark = [pytest.mark.registry, pytest.mark.timeout(900)]


def rxnmapper() -> Path:
    models = package("rxnmapper", "0.4.3") / "rxnmapper/models/transformers"
    return models / "albert_heads_8_uspto_all_1310k"


def iglm() -> Path:
    return package("iglm", "0.1.0") / "iglm/trained_models/IgLM-S"


#: By name: the folder, and what cannot be measured of the architecture.
MODELS = {"MiniLM": minilm, "RXNMapper": rxnmapper, "IgLM": iglm}


@pytest.mark.parametrize("name", MODELS)
def test_everything_is_measured_of_a_released_model(name: str, tmp_path: Path) -> None:
    contexts = pp.Contexts(count=8, length=32, batch_size=4)
    analysis = pp.analyze_model(str(MODELS[name]()), contexts, nulls=2)
    assert analysis.missing == {}
    on_request = {key for key, measurement in MODEL.items() if measurement.slow}
    assert set(analysis.results) == set(MODEL) - {"blank", "rotary_use"} - on_request
    folder = analysis.save(tmp_path / "bundle")
    document = json.loads((folder / "analysis.json").read_text())
    depth = {"MiniLM": 7, "RXNMapper": 13, "IgLM": 4}[name]
    assert len(document["states"]["layers"]) == depth
    assert document["findings"]
    assert (folder / "report.html").stat().st_size < 2e6


#: Variable regions of the heavy chains of trastuzumab, adalimumab, pembrolizumab and rituximab, as
#: published: what their first 94 residues have in common is where they stand.
CHAINS = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVY",
    "EVQLVESGGGLVQPGRSLRLSCAASGFTFDDYAMHWVRQAPGKGLEWVSAITWNSGHIDYADSVEGRFTISRDNAKNSLYLQMNSLRAEDTAVY",
    "QVQLVQSGVEVKKPGASVKVSCKASGYTFTNYYMYWVRQAPGQGLEWMGGINPSNGGTNFNEKFKNRVTLTTDSSTTTAYMELKSLQFDDTAVY",
    "QVQLQQPGAELVKPGASVKMSCKASGYTFTSYNMHWVKQTPGKGLEWIGAIYPGNGDTSYNQKFKGKATLTADKSSSTAYMQLSSLTSEDSAVY",
)


def test_ten_directions_of_iglm_s_table_do_its_work_on_real_antibodies() -> None:
    words = (iglm().parent / "vocab.txt").read_text().split()
    contexts = np.array(
        [[words.index(word) for word in ("[HEAVY]", "[HUMAN]", *chain)] for chain in CHAINS]
    )
    found = pp.substitution_effect(pp.load_model(str(iglm()), device="cpu", head=True), [contexts])
    cost = {each.name: each.costs["loss"] for each in found.substitutes}
    assert found.task == "next token"
    assert cost["itself"].value == 0
    assert (cost["mean"].value or 0) > 1
    assert (cost["components_10"].kept or 0) > 0.9 > (cost["components_3"].kept or 0)
    assert (cost["permuted"].kept or 0) < 0.3


@pytest.mark.parametrize("name", ["MiniLM", "RXNMapper"])
def test_components_of_released_tables_keep_what_random_tables_do_not(name: str) -> None:
    model: Any = pp.load_model(str(MODELS[name]()), device="cpu")
    contexts = pp.forward.random_tokens(model.config, 64, 6)
    found = pp.substitution_effect(model, contexts, random=True)
    kept = {each.name: each.costs["states"].kept or 0.0 for each in found.substitutes}
    assert kept["components_20"] > 0.8
    assert max(kept[key] for key in ("gaussian", "permuted", "stationary")) < 0.6


def test_layer_0_of_iglm_is_its_table_within_sampling_error() -> None:
    model: Any = pp.load_model(str(iglm()), device="cpu")
    layer = pp.decompose(model, pp.forward.random_tokens(model.config, 64, 96), layers=[0]).layers[
        0
    ]
    rows = model.wpe.weight[:64].double().numpy()
    off = (layer.pos - (rows - rows.mean(axis=0))) / layer.error
    # Words are added to rows: what differs is the mean of other words, with a spread of 1. There
    # are 30 words, so that few of the 192 dimensions are independent.
    assert np.sqrt((off**2).mean()) == pytest.approx(1, abs=0.2)


def test_layer_0_of_rxnmapper_is_what_its_embedding_makes_of_words_and_rows() -> None:
    model: Any = pp.load_model(str(rxnmapper()), device="cpu", dtype="float64")
    allowed = np.unique(np.concatenate(list(pp.forward.random_tokens(model.config, 64, 512))))
    contexts = pp.forward.random_tokens(model.config, 64, 96)
    layer = pp.decompose(model, contexts, layers=[0]).layers[0]
    parts = model.embeddings
    words = parts.word_embeddings.weight[torch.from_numpy(allowed)]
    base = parts.token_type_embeddings.weight[0] + parts.position_embeddings.weight[:64]
    with torch.no_grad():
        narrow = torch.stack([parts.LayerNorm(words + row).mean(dim=0) for row in base])
        expected = model.encoder.embedding_hidden_mapping_in(narrow).numpy()
    off = (layer.pos - (expected - expected.mean(axis=0))) / layer.error
    assert np.sqrt((off**2).mean()) == pytest.approx(1, abs=0.1)
