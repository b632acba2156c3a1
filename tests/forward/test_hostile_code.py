"""Models made to run their own code, or to build without end: each test is named after a fault.

A canary file tells whether code of a checkpoint ran; standard input always answers yes.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
import safetensors.torch
import timm
import torch
from transformers import BertConfig, BertModel, ViTConfig, ViTModel

from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.forward import load_model, load_preparation, load_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

MAP = {
    "AutoModel": "code.X", "AutoModelForMaskedLM": "code.X", "AutoModelForSeq2SeqLM": "code.X",
    "AutoModelForImageClassification": "code.X", "AutoProcessor": "code.X",
    "AutoTokenizer": ["code.X", None], "AutoImageProcessor": "code.X",
}  # fmt: skip


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 20))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "canary"


def bert(folder: Path, canary: Path, **changes: Any) -> str:
    """Save a small BERT with code beside it that writes the canary, its configuration changed."""
    config = BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=12,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder / "model")
    (folder / "model/code.py").write_text(
        f"open({str(canary)!r}, 'w').close()\nclass X: pass\n"
    )
    return changed(folder / "model", **changes)


def changed(folder: Path, **changes: Any) -> str:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return str(folder)


@pytest.mark.parametrize(
    "architectures",
    [
        *([name] for name in (*MAP, "AutoConfig", "pipeline", "Trainer", "PreTrainedModel")),
        "BertModel", 5, {"a": 1}, [5], [None], [["a"]], [""], None,
    ],
    ids=str,
)  # fmt: skip
def test_architectures_that_name_no_model_ask_and_run_nothing(
    architectures: object, tmp_path: Path, canary: Path
) -> None:
    path = bert(tmp_path, canary, architectures=architectures, auto_map=MAP)
    assert type(load_model(path, device="cpu", head=True)) is BertModel
    assert sys.stdin.read().count("y") == 20
    assert not canary.exists()


def test_a_class_of_another_architecture_does_not_stand_for_an_unknown_one(
    tmp_path: Path, canary: Path
) -> None:
    code = MAP | {"AutoConfig": "code.X"}
    path = bert(
        tmp_path, canary, model_type="no-such", architectures=["BertModel"], auto_map=code
    )
    with pytest.raises(UsageError, match="`trust_remote_code=True`"):
        load_model(path, device="cpu", head=True)
    assert not canary.exists()


KERNEL = "somebody/kernel"


@pytest.mark.parametrize(
    "config_entries",
    [
        {"attn_implementation": KERNEL}, {"_attn_implementation": KERNEL},
        {"_attn_implementation_internal": KERNEL}, {"experts_implementation": KERNEL},
        {"text_config": {"attn_implementation": KERNEL}},
        {"attn_implementation": {"text_config": KERNEL}},
    ],
)  # fmt: skip
def test_a_configuration_that_needs_hub_code_is_refused(
    config_entries: dict[str, Any], tmp_path: Path, canary: Path
) -> None:
    with pytest.raises(UsageError, match="`trust_remote_code=True`"):
        load_model(bert(tmp_path, canary, **config_entries), device="cpu")


def test_a_tokenizer_and_an_image_processor_run_no_code(
    tmp_path: Path, canary: Path
) -> None:
    path = bert(tmp_path, canary, auto_map=MAP)
    for name, content in (
        ("tokenizer_config.json", {"tokenizer_class": "X", "auto_map": MAP}),
        ("preprocessor_config.json", {"image_processor_type": "X", "auto_map": MAP}),
    ):
        (tmp_path / "model" / name).write_text(json.dumps(content))
    with pytest.raises(UsageError, match="no tokenizer"):
        load_tokenizer(path)
    with pytest.raises(UsageError, match="how it takes pictures"):
        load_preparation(path, load_model(path, device="cpu"))
    assert not canary.exists()


class Payload:
    """Its pickle writes the canary."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.canary}",)


def test_a_malicious_pickle_is_refused_in_words_of_our_own(
    tmp_path: Path, canary: Path
) -> None:
    path = bert(tmp_path, canary)
    (tmp_path / "model/model.safetensors").unlink()
    torch.save({"x": Payload(canary)}, tmp_path / "model/pytorch_model.bin")
    with pytest.raises(InvalidCheckpoint, match="could run code hidden in it"):
        load_model(path, device="cpu")
    assert not canary.exists()


@pytest.mark.parametrize("code", [5, {"AutoConfig": 5}, [1]])
def test_an_auto_map_of_another_type_is_no_traceback(
    code: object, tmp_path: Path, canary: Path
) -> None:
    path = bert(tmp_path, canary, auto_map=code)
    if isinstance(code, list):  # which transformers does not look into
        assert load_model(path, device="cpu")
        return
    with pytest.raises(InvalidCheckpoint, match="cannot be built"):
        load_model(path, device="cpu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({"num_hidden_layers": n}, "layers.*1 to 10000")
            for n in (10**9, 10**400, 0, -1)
        ),
        ({"num_hidden_layers": 1}, "does not take"),
        *(
            ({key: 10**10}, "its files have")
            for key in ("vocab_size", "max_position_embeddings", "intermediate_size")
        ),
    ],
)
@pytest.mark.parametrize("head", [False, True])
def test_a_configuration_that_is_not_of_these_files_builds_nothing(
    changes: dict[str, int], message: str, head: bool, tmp_path: Path, canary: Path
) -> None:
    with pytest.raises(InvalidCheckpoint, match=message):
        load_model(bert(tmp_path, canary, **changes), device="cpu", head=head)


def test_a_pipe_beside_a_model_is_not_waited_for(tmp_path: Path, canary: Path) -> None:
    path = bert(tmp_path, canary)
    os.mkfifo(tmp_path / "model/tokenizer.json")
    with pytest.raises(InvalidCheckpoint, match="not a regular file"):
        load_model(path, device="cpu")


SMALL: dict[str, Any] = {"depth": 1, "embed_dim": 12, "num_heads": 3, "img_size": 32}


def timm_model(folder: Path, **changes: Any) -> str:
    (folder / "timm").mkdir()
    model = timm.create_model("vit_tiny_patch16_224", num_classes=2, **SMALL)
    safetensors.torch.save_file(model.state_dict(), folder / "timm/model.safetensors")
    config = {
        "architecture": "vit_tiny_patch16_224", "num_classes": 2, "model_args": SMALL,
        "pretrained_cfg": {"input_size": [3, 32, 32], "num_classes": 2},
    }  # fmt: skip
    (folder / "timm/config.json").write_text(json.dumps(config | changes))
    return str(folder / "timm")


@pytest.mark.parametrize(
    "changes",
    [
        {"model_args": {"nonsense": 1}}, {"model_args": 5}, {"model_args": {"depth": "a"}},
        {"model_args": {"depth": 10**9}}, {"architecture": 5}, {"architecture": "nonsense"},
        {"num_classes": "a"}, {"pretrained_cfg": 5},
    ],
)  # fmt: skip
def test_arguments_that_timm_does_not_know_are_one_clear_error(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InvalidCheckpoint, match=r"cannot be built|are built"):
        load_model(timm_model(tmp_path, **changes), device="cpu")


@pytest.mark.parametrize("changes", [{"img_size": 64}, {"embed_dim": 24}])
def test_weights_of_another_shape_than_the_configuration_of_a_vit_are_refused(
    changes: dict[str, int], tmp_path: Path
) -> None:
    load_model(timm_model(tmp_path), device="cpu")
    (tmp_path / "other").mkdir()
    with pytest.raises(InvalidCheckpoint):
        load_model(
            timm_model(tmp_path / "other", model_args=SMALL | changes), device="cpu"
        )
    config = ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        image_size=16, patch_size=4,
    )  # fmt: skip
    ViTModel(config).save_pretrained(tmp_path / "vit")
    with pytest.raises(InvalidCheckpoint, match="by its configuration the model needs"):
        load_model(changed(tmp_path / "vit", image_size=32), device="cpu")
