"""What ways of resizing cost a model, beside the same model built and run by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.nn import functional

import posprobe as pp
from posprobe.errors import UsageError
from posprobe.families.read import load_any
from posprobe.forward.models import rebuild_model
from posprobe.measurements.model import Contexts
from posprobe.report.screen import render_text
from posprobe.resizing.rotary import RulesCompared
from posprobe.studies.resizing import WaysCompared, compare

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

library: Any = transformers
OLD_LENGTH = 12
NEW_LENGTH = 20
WORDS = 40


def gpt2(length: int) -> Any:
    torch.manual_seed(0)
    config = library.GPT2Config(
        vocab_size=WORDS, n_positions=length, n_embd=16, n_layer=1, n_head=2,
        initializer_range=0.5, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return library.GPT2LMHeadModel(config).train(mode=False)


def asked(reference: str, size: Any, contexts: Contexts) -> WaysCompared:
    comparison = compare(
        pp.load(reference), to=size, contexts=contexts, reference=reference
    )
    assert isinstance(comparison, WaysCompared)
    return comparison


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    words = Tokenizer(WordLevel({f"w{k}": k for k in range(WORDS)}, unk_token="w0"))  # noqa: S106
    words.pre_tokenizer = Whitespace()
    library.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return folder


def losses_of(model: Any, windows: torch.Tensor) -> torch.Tensor:
    """The loss of each next token, by hand."""
    with torch.no_grad():
        logits = model(windows).logits[:, :-1].transpose(1, 2)
    return functional.cross_entropy(logits, windows[:, 1:], reduction="none")


def hold(
    run: Mapping[str, Any], measured_cost: Any, name: str, by_hand: torch.Tensor
) -> None:
    """Hold the losses of a way or rule to those that were computed by hand."""
    cost = run["ways"][name]
    assert cost["value"] == pytest.approx(float(by_hand.mean()), rel=1e-5)
    error = by_hand.mean(dim=1).std() / len(by_hand) ** 0.5
    assert cost["error"] == pytest.approx(float(error), rel=1e-4)
    by_position = measured_cost.arrays()[f"{name}_losses"]
    np.testing.assert_allclose(by_position[:-1], by_hand.mean(dim=0).numpy(), rtol=1e-4)


def told(run: Mapping[str, Any], comparison: Any) -> None:
    """Hold what is said and drawn to the numbers."""
    best = min(run["ways"], key=lambda name: run["ways"][name]["value"])
    assert f"`{best}` costs the model least" in run["sentence"]
    assert "mean loss (nats)" in render_text(comparison.to_dict())
    assert "losses" in comparison.figures()


def test_one_window_of_a_text_names_no_single_best_way(tmp_path: Path) -> None:
    folder = saved(gpt2(OLD_LENGTH), tmp_path / "gpt2")
    (tmp_path / "text.txt").write_text(" ".join(f"w{k}" for k in range(NEW_LENGTH)))
    run = asked(str(folder), NEW_LENGTH, Contexts(text=tmp_path / "text.txt")).to_dict()[
        "run"
    ]
    assert run["contexts"] == 1
    assert all(way["error"] is None for way in run["ways"].values())
    assert all(f"`{way}`" in run["sentence"] for way in run["ways"])


def test_losses_are_those_of_a_model_with_that_table(tmp_path: Path) -> None:
    old = gpt2(OLD_LENGTH)
    folder = saved(old, tmp_path / "gpt2")
    ids = np.random.default_rng(0).integers(0, WORDS, (5, NEW_LENGTH))
    (tmp_path / "text.txt").write_text(" ".join(f"w{k}" for k in ids.ravel()))
    comparison = asked(
        str(folder), NEW_LENGTH, Contexts(text=tmp_path / "text.txt", batch_size=2)
    )
    run = comparison.to_dict()["run"]
    assert (run["contexts"], run["measure"], run["task"]) == (5, "loss", "next token")

    windows = torch.from_numpy(ids)
    old_losses = losses_of(old, windows[:, :OLD_LENGTH])
    assert run["before"]["value"] == pytest.approx(float(old_losses.mean()), rel=1e-5)
    for way, cost in run["ways"].items():
        new = gpt2(NEW_LENGTH)
        rows = torch.from_numpy(
            np.array(pp.resize(pp.load(str(folder)), to=NEW_LENGTH, how=way).values)
        )
        new.load_state_dict({**old.state_dict(), "transformer.wpe.weight": rows})
        hold(run, comparison, way, losses_of(new, windows))
        last_block = cost["parts"][-1]
        assert (last_block["first"], last_block["last"]) == (
            OLD_LENGTH + (NEW_LENGTH - OLD_LENGTH) // 2,
            NEW_LENGTH - 1,
        )
    told(run, comparison)


def test_a_text_is_refused_for_models_of_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posprobe.studies.resizing.compare_ways", None)
    (tmp_path / "text.txt").write_text("w0 w1")
    with pytest.raises(UsageError, match="where its positions lie on a line"):
        asked("sample:digits-vit", (12, 12), Contexts(text=tmp_path / "text.txt"))


def llama(folder: Path, **rope: Any) -> Any:
    """Save a Llama of one layer, with heads sharp enough that angles matter."""
    torch.manual_seed(0)
    config = library.LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=OLD_LENGTH, initializer_range=0.5,
        bos_token_id=0, eos_token_id=0, rope_parameters={"rope_theta": 100.0, **rope},
    )  # fmt: skip
    model = library.LlamaForCausalLM(config).train(mode=False)
    saved(model, folder)
    return model


def test_losses_of_rules_are_those_of_a_model_with_that_configuration(
    tmp_path: Path,
) -> None:
    factors = {"short_factor": [1.0] * 8, "long_factor": [1.0 + k for k in range(8)]}
    own_rule = {
        "rope_type": "longrope",
        "factor": 1.0,
        "original_max_position_embeddings": OLD_LENGTH,
    }
    old = llama(tmp_path / "llama", **own_rule, **factors)
    ids = np.random.default_rng(0).integers(0, WORDS, (5, NEW_LENGTH))
    (tmp_path / "text.txt").write_text(" ".join(f"w{k}" for k in ids.ravel()))
    reference = str(tmp_path / "llama")
    comparison = compare(
        load_any(reference), to=NEW_LENGTH,
        contexts=Contexts(text=tmp_path / "text.txt", batch_size=2),
        reference=reference,
    )  # fmt: skip
    assert isinstance(comparison, RulesCompared)
    run = comparison.to_dict()["run"]
    assert set(run["ways"]) == {"none", "linear", "dynamic", "yarn", "llama3", "longrope"}

    windows = torch.from_numpy(ids)
    old_losses = losses_of(old, windows[:, :OLD_LENGTH])
    assert run["before"]["value"] == pytest.approx(float(old_losses.mean()), rel=1e-5)
    factor, original = (
        {"factor": NEW_LENGTH / OLD_LENGTH},
        {"original_max_position_embeddings": OLD_LENGTH},
    )
    rope_parameters: dict[str, dict[str, Any]] = {
        "none": {"rope_type": "default"},
        "linear": {"rope_type": "linear", **factor},
        "dynamic": {"rope_type": "dynamic", "factor": 1.0},
        "yarn": {"rope_type": "yarn", **factor, **original},
        "llama3": {"rope_type": "llama3", **factor, "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, **original},
        "longrope": {"rope_type": "longrope", **factor, **original, **factors},
    }  # fmt: skip
    for rule in run["ways"]:
        # As a user would, who writes the rule into config.json.
        folder = tmp_path / rule
        old.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())
        config["rope_parameters"] = {"rope_theta": 100.0, **rope_parameters[rule]}
        config["max_position_embeddings"] = (
            OLD_LENGTH if rule == "dynamic" else NEW_LENGTH
        )
        (folder / "config.json").write_text(json.dumps(config))
        new = library.LlamaForCausalLM.from_pretrained(folder)
        hold(run, comparison, rule, losses_of(new, windows))
    # By hand: linear scaling is the unchanged model at positions that lie closer together.
    places = (torch.arange(NEW_LENGTH) * OLD_LENGTH / NEW_LENGTH)[None]
    old.config.rope_parameters = {"rope_type": "default", "rope_theta": 100.0}
    plain = rebuild_model(old, old.config)
    with torch.no_grad():
        logits = plain(windows, position_ids=places).logits[:, :-1].transpose(1, 2)
    by_hand = functional.cross_entropy(logits, windows[:, 1:])
    assert run["ways"]["linear"]["value"] == pytest.approx(float(by_hand), rel=1e-5)
    assert len({round(way["value"], 4) for way in run["ways"].values()}) == 6
    told(run, comparison)


def test_rotary_models_without_a_rule_in_their_configuration_are_refused(
    tmp_path: Path,
) -> None:
    config = library.GPTJConfig(
        vocab_size=WORDS, n_positions=OLD_LENGTH, n_embd=16, n_layer=1, n_head=2, rotary_dim=4,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    reference = str(saved(library.GPTJForCausalLM(config), tmp_path / "gptj"))
    (tmp_path / "text.txt").write_text(
        " ".join(f"w{k % WORDS}" for k in range(2 * NEW_LENGTH))
    )
    with pytest.raises(UsageError, match="has no rope_parameters"):
        compare(
            load_any(reference), to=NEW_LENGTH, contexts=Contexts(text=tmp_path / "text.txt"),
            reference=reference,
        )  # fmt: skip
