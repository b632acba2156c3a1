"""What ways of resizing cost a model, beside the same model built and run by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.nn import functional

import posprobe as pp
from posprobe.checkpoint_analysis import load_any
from posprobe.cli import main
from posprobe.cli.models import parse_size
from posprobe.errors import UsageError
from posprobe.forward.models import built_anew
from posprobe.measurements.model import Contexts
from posprobe.report.screen import text
from posprobe.resizing.comparison import WaysCompared, compare
from posprobe.resizing.rotary import RulesCompared
from posprobe.samples import sample_path

if TYPE_CHECKING:
    from pathlib import Path

library: Any = transformers
OLD, NEW, WORDS = 12, 20, 40


def gpt2(length: int) -> Any:
    torch.manual_seed(0)
    config = library.GPT2Config(
        vocab_size=WORDS, n_positions=length, n_embd=16, n_layer=1, n_head=2,
        initializer_range=0.5, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return library.GPT2LMHeadModel(config).train(mode=False)


def asked(reference: str, to: Any, contexts: Contexts) -> WaysCompared:
    found = compare(pp.load(reference), to=to, contexts=contexts, reference=reference)
    assert isinstance(found, WaysCompared)
    return found


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    words = Tokenizer(WordLevel({f"w{k}": k for k in range(WORDS)}, unk_token="w0"))  # noqa: S106
    words.pre_tokenizer = Whitespace()
    library.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return folder


def test_one_window_of_a_text_names_no_single_best_way(tmp_path: Path) -> None:
    folder = saved(gpt2(OLD), tmp_path / "gpt2")
    (tmp_path / "text.txt").write_text(" ".join(f"w{k}" for k in range(NEW)))
    run = asked(str(folder), NEW, Contexts(text=tmp_path / "text.txt")).to_dict()["run"]
    assert run["contexts"] == 1
    assert all(way["error"] is None for way in run["ways"].values())
    assert all(f"`{way}`" in run["sentence"] for way in run["ways"])


def test_losses_are_those_of_a_model_with_that_table(tmp_path: Path) -> None:
    old = gpt2(OLD)
    folder = saved(old, tmp_path / "gpt2")
    ids = np.random.default_rng(0).integers(0, WORDS, (5, NEW))
    (tmp_path / "text.txt").write_text(" ".join(f"w{k}" for k in ids.ravel()))
    found = asked(str(folder), NEW, Contexts(text=tmp_path / "text.txt", batch_size=2))
    run = found.to_dict()["run"]
    assert (run["contexts"], run["measure"], run["task"]) == (5, "loss", "next token")

    def losses(model: Any, windows: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            logits = model(windows).logits[:, :-1].transpose(1, 2)
        return functional.cross_entropy(logits, windows[:, 1:], reduction="none")

    windows = torch.from_numpy(ids)
    before = losses(old, windows[:, :OLD])
    assert run["before"]["value"] == pytest.approx(float(before.mean()), rel=1e-5)
    for how, cost in run["ways"].items():
        new = gpt2(NEW)
        rows = torch.from_numpy(np.array(pp.resize(pp.load(str(folder)), to=NEW, how=how).values))
        new.load_state_dict({**old.state_dict(), "transformer.wpe.weight": rows})
        each = losses(new, windows)
        assert cost["value"] == pytest.approx(float(each.mean()), rel=1e-5)
        error = each.mean(dim=1).std() / len(each) ** 0.5
        assert cost["error"] == pytest.approx(float(error), rel=1e-4)
        by_position = found.arrays()[f"{how}_losses"]
        np.testing.assert_allclose(by_position[:-1], each.mean(dim=0).numpy(), rtol=1e-4)
        last = cost["parts"][-1]
        assert (last["first"], last["last"]) == (OLD + (NEW - OLD) // 2, NEW - 1)
    best = min(run["ways"], key=lambda how: run["ways"][how]["value"])
    assert f"`{best}` costs the model least" in run["sentence"]
    assert "mean loss (nats)" in text(found.to_dict())
    assert "losses" in found.figures()


def test_agreement_is_that_of_a_model_with_that_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pictures = [np.uint8(rng.integers(0, 256, (8, 8))) for _ in range(6)]
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).save(tmp_path / f"{number}.png")
    ref, side = "sample:digits-vit", 12
    found = asked(ref, (side, side), Contexts(images=tmp_path, batch_size=4))
    run = found.to_dict()["run"]
    old = library.ViTForImageClassification.from_pretrained(sample_path("digits-vit"))
    prepare = library.AutoImageProcessor.from_pretrained(sample_path("digits-vit"))
    given = [Image.fromarray(picture) for picture in pictures]
    shown = prepare(given, return_tensors="pt")["pixel_values"]
    larger = prepare(given, size={"height": side, "width": side}, return_tensors="pt")
    with torch.no_grad():
        wanted = old(shown).logits.argmax(dim=1)
        for how, cost in run["ways"].items():
            made = pp.resize(pp.load(ref), to=(side, side), how=how)
            rows = np.concatenate([np.asarray(made.prefix), made.values])[None]
            config = library.ViTConfig(**old.config.to_dict() | {"image_size": side})
            new = library.ViTForImageClassification(config).train(mode=False)
            key = "vit.embeddings.position_embeddings"
            new.load_state_dict({**old.state_dict(), key: torch.from_numpy(rows)})
            same = new(larger["pixel_values"]).logits.argmax(dim=1) == wanted
            assert cost["value"] == pytest.approx(float(same.double().mean()))
            assert cost["error"] > 0
    assert "losses" not in found.figures()
    assert "of 6 pictures" in run["sentence"]


def test_a_model_without_answers_has_no_costs(tmp_path: Path) -> None:
    library.ViTModel(
        library.ViTConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
            image_size=8, patch_size=4,
        )
    ).save_pretrained(tmp_path / "vit")  # fmt: skip
    library.ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(tmp_path / "vit")
    (tmp_path / "pictures").mkdir()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "pictures" / "a.png")
    with pytest.raises(UsageError, match="names no classes"):
        asked(str(tmp_path / "vit"), (3, 3), Contexts(images=tmp_path / "pictures"))


@pytest.mark.parametrize(
    ("reference", "to", "option", "expected"),
    [
        ("sample:digits-vit", "12x12", "text", "patches of pictures, and --text is for models of"),
        ("sample:all-minilm-l6-v2", "600", "images", "on a line, and --images is for patches"),
    ],
)
def test_contexts_of_the_other_kind_are_refused_before_anything_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    reference: str, to: str, option: str, expected: str,
) -> None:  # fmt: skip
    def compared(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("posprobe.resizing.comparison.compare_ways", compared)
    place = tmp_path / "given"
    if option == "text":
        place.write_text("w0 w1")
    else:
        place.mkdir()
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(place / "a.png")
    command = ["posprobe", "resize", reference, "--to", to, f"--{option}", str(place), "--quiet"]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    assert (ended.value.code, told.out, told.err.count("posprobe:")) == (2, "", 1)
    assert expected in " ".join(told.err.split())
    contexts = Contexts(text=place) if option == "text" else Contexts(images=place)
    size = parse_size(to)
    with pytest.raises(UsageError, match=expected):
        compare(pp.load(reference), to=size, contexts=contexts, reference=reference)


def llama(folder: Path, **rope: Any) -> Any:
    """Save a Llama of one layer, with heads sharp enough that angles matter."""
    torch.manual_seed(0)
    config = library.LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=OLD, initializer_range=0.5,
        bos_token_id=0, eos_token_id=0, rope_parameters={"rope_theta": 100.0, **rope},
    )  # fmt: skip
    model = library.LlamaForCausalLM(config).train(mode=False)
    saved(model, folder)
    return model


def test_losses_of_rules_are_those_of_a_model_with_that_configuration(tmp_path: Path) -> None:
    factors = {"short_factor": [1.0] * 8, "long_factor": [1.0 + k for k in range(8)]}
    own = {"rope_type": "longrope", "factor": 1.0, "original_max_position_embeddings": OLD}
    old = llama(tmp_path / "llama", **own, **factors)
    ids = np.random.default_rng(0).integers(0, WORDS, (5, NEW))
    (tmp_path / "text.txt").write_text(" ".join(f"w{k}" for k in ids.ravel()))
    reference = str(tmp_path / "llama")
    found = compare(
        load_any(reference), to=NEW, contexts=Contexts(text=tmp_path / "text.txt", batch_size=2),
        reference=reference,
    )  # fmt: skip
    assert isinstance(found, RulesCompared)
    run = found.to_dict()["run"]
    assert set(run["ways"]) == {"none", "linear", "dynamic", "yarn", "llama3", "longrope"}

    def losses(model: Any, windows: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            logits = model(windows).logits[:, :-1].transpose(1, 2)
        return functional.cross_entropy(logits, windows[:, 1:], reduction="none")

    windows = torch.from_numpy(ids)
    before = losses(old, windows[:, :OLD])
    assert run["before"]["value"] == pytest.approx(float(before.mean()), rel=1e-5)
    factor, original = {"factor": NEW / OLD}, {"original_max_position_embeddings": OLD}
    stated: dict[str, dict[str, Any]] = {
        "none": {"rope_type": "default"},
        "linear": {"rope_type": "linear", **factor},
        "dynamic": {"rope_type": "dynamic", "factor": 1.0},
        "yarn": {"rope_type": "yarn", **factor, **original},
        "llama3": {"rope_type": "llama3", **factor, "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, **original},
        "longrope": {"rope_type": "longrope", **factor, **original, **factors},
    }  # fmt: skip
    for rule, cost in run["ways"].items():
        # As a user would, who writes the rule into config.json.
        folder = tmp_path / rule
        old.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())
        config["rope_parameters"] = {"rope_theta": 100.0, **stated[rule]}
        config["max_position_embeddings"] = OLD if rule == "dynamic" else NEW
        (folder / "config.json").write_text(json.dumps(config))
        each = losses(library.LlamaForCausalLM.from_pretrained(folder), windows)
        assert cost["value"] == pytest.approx(float(each.mean()), rel=1e-5)
        error = each.mean(dim=1).std() / len(each) ** 0.5
        assert cost["error"] == pytest.approx(float(error), rel=1e-4)
        by_position = found.arrays()[f"{rule}_losses"]
        np.testing.assert_allclose(by_position[:-1], each.mean(dim=0).numpy(), rtol=1e-4)
    # By hand: linear scaling is the unchanged model at positions that lie closer together.
    places = (torch.arange(NEW) * OLD / NEW)[None]
    old.config.rope_parameters = {"rope_type": "default", "rope_theta": 100.0}
    plain = built_anew(old, old.config)
    with torch.no_grad():
        logits = plain(windows, position_ids=places).logits[:, :-1].transpose(1, 2)
    by_hand = functional.cross_entropy(logits, windows[:, 1:])
    assert run["ways"]["linear"]["value"] == pytest.approx(float(by_hand), rel=1e-5)
    assert len({round(way["value"], 4) for way in run["ways"].values()}) == 6
    best = min(run["ways"], key=lambda rule: run["ways"][rule]["value"])
    assert f"`{best}` costs the model least" in run["sentence"]
    assert "mean loss (nats)" in text(found.to_dict())
    assert "losses" in found.figures()


def test_rotary_models_without_a_rule_in_their_configuration_are_refused(tmp_path: Path) -> None:
    config = library.GPTJConfig(
        vocab_size=WORDS, n_positions=OLD, n_embd=16, n_layer=1, n_head=2, rotary_dim=4,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    reference = str(saved(library.GPTJForCausalLM(config), tmp_path / "gptj"))
    (tmp_path / "text.txt").write_text(" ".join(f"w{k % WORDS}" for k in range(2 * NEW)))
    with pytest.raises(UsageError, match="has no rope_parameters"):
        compare(
            load_any(reference), to=NEW, contexts=Contexts(text=tmp_path / "text.txt"),
            reference=reference,
        )  # fmt: skip
