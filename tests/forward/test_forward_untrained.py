"""Untrained models, which have learned nothing of position: nothing is said that noise explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers

import posprobe as pp
from posprobe.measurements.model import MODEL_MEASUREMENTS

if TYPE_CHECKING:
    from pathlib import Path

SIZES: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 3,
    "num_attention_heads": 4,
}  # fmt: skip


def run(
    model: Any, folder: Path, count: int, *measurements: str
) -> pp.studies.ForwardAnalysis:
    model.save_pretrained(folder)
    contexts = pp.Contexts(count=count, length=24, tokens="random")
    return pp.analyze_model(
        str(folder), contexts, only=measurements, nulls=0, device="cpu"
    )


@pytest.mark.parametrize(
    ("count", "reason"), [(4, "few_contexts"), (48, "noise")], ids=["few", "many"]
)
def test_an_untrained_llama_has_no_position_share(
    count: int, reason: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    analysis = run(model, tmp_path / "llama", count, "states")
    kept_answer = analysis.answers["kept"]
    # A share that is all noise, and no direction above it, at the first layer as at the last.
    assert (
        kept_answer.reason,
        kept_answer.facts.last.rank,
        kept_answer.facts.first.rank,
    ) == (
        reason,
        0,
        0,
    )
    assert kept_answer.facts.last.share == pytest.approx(
        kept_answer.facts.last.noise, rel=0.25
    )
    document = analysis.to_dict()
    assert "explains" not in document["verdict"]["answers"][0]["sentence"]
    assert "explains" not in document["verdict"]["summary"]
    # The noise is of the layer that is named.
    layer = document["states"]["layers"][-1]
    assert layer["layer"] == kept_answer.facts.last.layer == 3
    noise = layer["noise_share"] * layer["shares"]["position"]
    assert kept_answer.facts.last.noise == pytest.approx(noise)


def test_untrained_bert_heads_prefer_no_distance(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(**SIZES, max_position_embeddings=24)
    analysis = run(
        transformers.BertModel(config),
        tmp_path / "bert",
        16,
        "attention",
        "attention_budget",
    )
    assert analysis.answers["distance"].answer == "no"
    document = analysis.to_dict()
    assert not any("prefer" in finding["text"] for finding in document["findings"])
    for name in ("attention", "attention_budget"):
        assert any(
            "prefer" in label for label, _ in MODEL_MEASUREMENTS[name].rows(document)
        )
