"""Whole models out of released packages, from their weights to the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from registry import package

import posprobe as pp

pytestmark = [pytest.mark.registry, pytest.mark.timeout(900)]


def rxnmapper() -> Path:
    models = package("rxnmapper", "0.4.3") / "rxnmapper/models/transformers"
    return models / "albert_heads_8_uspto_all_1310k"


def iglm() -> Path:
    return package("iglm", "0.1.0") / "iglm/trained_models/IgLM-S"


@pytest.mark.parametrize("model", [rxnmapper, iglm])
def test_everything_is_measured_of_a_released_model(
    model: Callable[[], Path], tmp_path: Path
) -> None:
    contexts = pp.Contexts(count=16, length=34, batch_size=4)
    analysis = pp.analyze_model(str(model()), contexts, nulls=0)
    assert analysis.missing == {}
    assert set(analysis.results) == {
        "attention_budget", "states", "places", "permutation",
    }  # fmt: skip
    document = analysis.to_dict()
    assert len(document["states"]["layers"]) == (13 if model is rxnmapper else 4)
    assert document["findings"]
    if model is iglm:  # twelve layers are drawn as three are
        folder = analysis.save(tmp_path / "bundle")
        assert json.loads((folder / "analysis.json").read_text())["findings"]
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
        [
            [words.index(word) for word in ("[HEAVY]", "[HUMAN]", *chain)]
            for chain in CHAINS
        ]
    )
    effect = pp.substitution_effect(
        pp.load_model(str(iglm()), device="cpu", head=True), [contexts]
    )
    cost = {
        substitute.name: substitute.costs["loss"] for substitute in effect.substitutes
    }
    assert effect.task == "next token"
    assert cost["itself"].value == 0
    assert (cost["mean"].value or 0) > 1
    assert (cost["components_10"].kept or 0) > 0.9 > (cost["components_3"].kept or 0)
    assert (cost["permuted"].kept or 0) < 0.3


def test_components_of_a_released_table_keep_what_random_tables_do_not() -> None:
    model: Any = pp.load_model(str(rxnmapper()), device="cpu")
    contexts = pp.forward.random_tokens(model.config, 64, 6)
    effect = pp.substitution_effect(model, contexts, random=True)
    kept_shares = {
        substitute.name: substitute.costs["states"].kept or 0.0
        for substitute in effect.substitutes
    }
    assert kept_shares["components_20"] > 0.8
    assert max(kept_shares[key] for key in ("gaussian", "permuted", "stationary")) < 0.6
