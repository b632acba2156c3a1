"""Every command and every line of Python in the README runs."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import typed
from made_hub import local_hub
from safetensors.numpy import save, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(re.split(r"\s+#", line)[0].partition(" posprobe ")[2])
    for line in README.splitlines()
    if re.match(r"uv run (--extra \w+ )?posprobe ", line)
]
logs: Any = transformers.utils.logging
logs.disable_progress_bar()
TABLE = np.cumsum(np.random.default_rng(0).normal(size=(48, 16)), axis=0).astype(
    np.float32
)


def repository(tensors: dict[str, Any], **config: Any) -> dict[str, bytes]:
    return {
        "config.json": json.dumps(config).encode(),
        "model.safetensors": save(tensors),
    }


def gpt2(folder: Path) -> dict[str, bytes]:
    """Save a tiny GPT-2 with a tokenizer, and return its files."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=16, n_layer=1, n_head=2, n_positions=512, vocab_size=30, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    words = Tokenizer(WordLevel({f"w{k}": k for k in range(30)}, unk_token="w0"))  # noqa: S106
    words.pre_tokenizer = Whitespace()
    kind: Any = transformers.PreTrainedTokenizerFast
    for part in (transformers.GPT2LMHeadModel(config), kind(tokenizer_object=words)):
        part.save_pretrained(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Publish small checkpoints under the names that the README uses."""
    with local_hub(tmp_path, monkeypatch) as server:
        server.add("gpt2", gpt2(tmp_path / "gpt2"))
        words = {"embeddings.position_embeddings.weight": TABLE[::-1].copy()}
        server.add("bert-base-uncased", repository(words, model_type="bert"))
        yield server


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 100
    assert len(README.split()) <= 900
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 11
    assert len(COMMANDS) == 6
    assert README.count("![") == 1
    assert "git clone " in README


@pytest.mark.timeout(600)
def test_every_command_of_the_readme_runs(
    hub: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert hub
    monkeypatch.chdir(tmp_path)
    for path in ("path/to/checkpoint", "path/to/runs/1"):
        folder = tmp_path / path
        folder.mkdir(parents=True)
        save_file({"wpe.weight": TABLE}, folder / "model.safetensors")
        (folder / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "list.csv").write_text("reference\nsample:digits-vit\n")
    for words in COMMANDS:
        # The sweep takes norms only, as other commands analyse whole tables.
        extra_options = ["--only", "norms", "--jobs", "1"] if words[0] == "sweep" else []
        typed.run([*words, *extra_options], monkeypatch, capsys)
    assert (tmp_path / "reports/gpt2/report.html").exists()
    assert (tmp_path / "reports/pydoc-llama-forward/report.html").exists()
    assert (tmp_path / "reports/sweep/sweep.csv").exists()
    assert (tmp_path / "fig1.pdf").exists()


def test_the_python_of_the_readme_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    try:
        exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - it is what a reader would type
    finally:
        plt.close("all")
    assert (tmp_path / "reports" / "minilm" / "report.html").exists()
    assert (tmp_path / "fig1.pdf").exists()
