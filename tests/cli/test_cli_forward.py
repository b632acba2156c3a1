"""``posprobe forward`` as a user runs it: what it writes, what it refuses, how it is stopped."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import transformers
from made_cli import Cli, cli
from made_models import LENGTH, gpt2, vit
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from posprobe.report import read_bundle
from posprobe.report.files import FORWARD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["cli"]


@pytest.fixture
def forward(cli: Cli) -> Callable[..., tuple[int, str, str]]:
    """Run ``posprobe forward`` in this process and an empty folder."""

    def run(*arguments: object) -> tuple[int, str, str]:
        completed = cli("forward", *map(str, arguments))
        return completed.code, completed.out, completed.err

    return run


def saved(folder: Path, *, tokenizer: bool = False) -> Path:
    gpt2().save_pretrained(folder)
    if tokenizer:
        words = Tokenizer(WordLevel({f"w{k}": k for k in range(40)}, unk_token="w0"))  # noqa: S106
        words.pre_tokenizer = Whitespace()
        kind: Any = transformers.PreTrainedTokenizerFast
        built_tokenizer = kind(tokenizer_object=words)
        built_tokenizer.save_pretrained(folder)
    return folder


def test_a_run_writes_a_bundle_and_prints_what_it_found(
    forward: Any, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "gpt2")
    code, stdout, err = forward(folder, "--contexts", 8, "--nulls", 2)
    assert code == 0, err
    bundle = tmp_path / "reports/gpt2-forward"
    assert {path.name for path in bundle.iterdir()} == {
        "analysis.json", "arrays.npz", "figures", "report.html",
    }  # fmt: skip
    document = read_bundle(bundle)
    assert document["schema"] == FORWARD_SCHEMA
    assert document["contexts"]["length"] == LENGTH
    assert document["contexts"]["used"] == 8
    # Without a tokenizer a language model writes its own contexts.
    contexts = "contexts that the model itself generates"
    assert contexts in " ".join(stdout.split())
    assert contexts in (bundle / "report.html").read_text()
    assert str(bundle.relative_to(tmp_path)) in err
    assert document["attention_budget"] is None
    assert "9 tokens are too short" in document["missing"]["attention_budget"]


def test_random_tokens_are_named_where_they_are_asked_for(
    forward: Any, tmp_path: Path
) -> None:
    options = ("--tokens", "random", "--contexts", 8, "--nulls", 0)
    code, stdout, err = forward(saved(tmp_path / "gpt2"), *options)
    assert code == 0, err
    assert "(Measured on random tokens.)" in " ".join(stdout.split())
    page = (tmp_path / "reports/gpt2-forward/report.html").read_text()
    assert "random tokens" in page


def test_json_goes_to_stdout_and_quiet_leaves_nothing_else(
    forward: Any, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "gpt2")
    code, stdout, err = forward(
        folder, "--contexts", 4, "--only", "states,shift,substitution", "--length", 4,
        "--layers", "0,2", "--rows", "1:4", "--nulls", 0, "--json", "--quiet", "--out", "there",
        "--tokens", "random",
    )  # fmt: skip
    assert (code, err) == (0, "")
    document = json.loads(stdout)
    assert [layer["layer"] for layer in document["states"]["layers"]] == [0, 2]
    assert document["states"]["start"] == 1
    assert document["attention"] is None
    assert document["shift"]["shifts"][-1] == LENGTH - 4
    # Random tokens are no text: outputs are compared, and no loss.
    assert document["substitution"]["measure"] == "divergence"
    assert (tmp_path / "there/report.html").exists()


def test_two_runs_with_one_seed_are_identical(forward: Any, tmp_path: Path) -> None:
    folder = saved(tmp_path / "gpt2")
    bundles = []
    for name in ("one", "other"):
        options = (
            "--contexts",
            6,
            "--only",
            "states,attention,words",
            "--nulls",
            2,
            "--seed",
            3,
        )
        assert forward(folder, *options, "--quiet", "--out", name)[0] == 0
        document = read_bundle(tmp_path / name)
        del document["environment"]
        arrays = dict(np.load(tmp_path / name / "arrays.npz"))
        bundles.append((document, arrays))
    assert bundles[0][0] == bundles[1][0]
    for name, array in bundles[0][1].items():
        np.testing.assert_array_equal(array, bundles[1][1][name])


def test_a_text_is_read_by_the_model_s_own_tokenizer(
    forward: Any, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "gpt2", tokenizer=True)
    (tmp_path / "text.txt").write_text(" ".join(f"w{k % 40}" for k in range(200)))
    options = ("--text", "text.txt", "--length", 4, "--contexts", 10, "--only", "shift")
    code, stdout, err = forward(folder, *options, "--out", "made", "--json")
    assert code == 0, err
    document = json.loads(stdout)
    assert document["contexts"]["kind"] == "windows of text.txt"
    assert document["contexts"]["used"] == 10
    assert document["shift"]["task"] == "next token"
    assert all(loss > 0 for loss in document["shift"]["loss"])


@pytest.mark.parametrize("command", ["forward", "resize"])
def test_a_text_without_tokenizer_is_refused_before_torch_is_imported(
    command: str, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "gpt2")
    (tmp_path / "text.txt").write_text("w3 " * 200)
    size = ["--to", "64"] if command == "resize" else []
    arguments = [command, str(folder), "--text", str(tmp_path / "text.txt"), *size]
    code = (
        "import sys; from posprobe.cli import main; sys.argv[0] = 'posprobe'\n"
        "try: main()\n"
        "finally: print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True
    )
    assert done.stdout.strip() == "False", done.stderr
    assert "no tokenizer lies beside the model" in done.stderr


def test_the_same_context_again_and_again_is_one_context(
    forward: Any, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "gpt2", tokenizer=True)
    (tmp_path / "text.txt").write_text("w3 " * 200)
    code, stdout, err = forward(
        folder, "--text", "text.txt", "--json", "--only", "states,substitution"
    )
    assert code == 0, err
    document = json.loads(stdout)
    assert document["contexts"]["kind"] == "windows of text.txt, which are all the same"
    assert document["contexts"]["used"] == 1
    answers = {
        answer["question"]: answer["answer"] for answer in document["verdict"]["answers"]
    }
    assert answers == {"kept": "cannot tell", "needed": "cannot tell"}


def test_unsuitable_inputs_are_refused_before_weights_are_read(
    forward: Any, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "gpt2", tokenizer=True)
    gpt2(vocab_size=30).save_pretrained(folder)
    (tmp_path / "text.txt").write_text(" ".join(f"w{k % 40}" for k in range(200)))
    (folder / "model.safetensors").unlink()
    code, _, err = forward(folder, "--text", "text.txt")
    assert (code, "ids run from 0 to 39 and the model knows 30" in err) == (2, True), err
    images = tmp_path / "vit"
    vit().save_pretrained(images)
    transformers.ViTImageProcessor(size={"height": 21, "width": 21}).save_pretrained(
        images
    )
    (images / "model.safetensors").unlink()
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (20, 20)).save(tmp_path / "pictures/0.png")
    code, _, err = forward(images, "--images", "pictures")
    assert (code, "of 21 x 21 pixels, but the model takes 14 x 21" in err) == (2, True), (
        err
    )


def test_impossible_measurements_are_missing_with_a_reason(
    forward: Any, tmp_path: Path
) -> None:
    vit().save_pretrained(tmp_path / "vit")
    options = ("--only", "words,shift,states", "--contexts", 4, "--nulls", 0)
    code, stdout, err = forward(tmp_path / "vit", *options, "--json")
    assert code == 0, err
    missing = json.loads(stdout)["missing"]
    assert missing == dict.fromkeys(
        ("words", "shift"), "it needs a model that takes text"
    )


def test_contexts_beyond_the_stated_ones_are_described_as_such(
    forward: Any, tmp_path: Path
) -> None:
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        vocab_size=50, max_position_embeddings=32,
    )  # fmt: skip
    transformers.LlamaModel(config).save_pretrained(tmp_path / "llama")
    for length, beyond in ((40, "longer than the 32 positions"), (32, "")):
        options = ("--length", length, "--contexts", 8, "--json")
        code, stdout, err = forward(
            tmp_path / "llama", "--only", "attention_budget", *options
        )
        assert code == 0, err
        kind = json.loads(stdout)["contexts"]["kind"]
        assert ("longer than" in kind) == bool(beyond)
        assert beyond in kind


REFUSED: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no tokenizer": (("gpt2", "--text", "long.txt"), 2, "no tokenizer lies beside the model"),
    "text too short": (("words", "--text", "short.txt"), 2, "fewer than one context of 9"),
    "no text": (("words", "--text", "none.txt"), 3, "none.txt: no such file"),
    "longer than the model": (("gpt2", "--length", "10"), 2, "longer than the 9 positions"),
    "no pictures": (("vit", "--images", "empty"), 3, "contains no images"),
    "text for images": (("vit", "--text", "long.txt"), 2, "this model takes images"),
    "images for text": (("gpt2", "--images", "pictures"), 2, "this model takes text"),
    "no hidden states": (("t5",), 2, "#encoder"),
    "its own code": (("mine", "--offline"), 2, "--trust-remote-code"),
    "unknown name": (("gpt2", "--only", "states,magic"), 2, "'magic'"),
    "foreign files": (("gpt2", "--out", "pictures"), 2, "would be lost"),
    "nowhere to write": (("gpt2", "--out", "long.txt/there"), 2, "is not a folder"),
    "length for images": (("vit", "--length", "9"), 2, "--length is for text"),
    "tokens for images": (("vit", "--tokens", "random"), 2, "leave out --tokens"),
    "other shapes": (("lie",), 4, "has the shape [9, 12]"),
    "unknown layer": (("gpt2", "--layers", "7"), 2, "choose some of 0 to 2"),
    "layers in words": (("gpt2", "--layers", "all"), 2, "such as 0,6,12"),
    "rows outside": (("gpt2", "--rows", "30:40"), 2, "nothing is left"),
    "blank text": (("gpt2", "--only", "blank"), 2, "blank needs a model that takes images"),
    "a formula": (("sinusoidal:16x8",), 2, "formula"),
    "nowhere": (("./nowhere",), 3, "nowhere"),
    "too many walks": (("gpt2", "--nulls", "-1"), 2, "--nulls -1"),
    "rows of another measurement": (
        ("gpt2", "--only", "attention_budget", "--rows", "2:5"), 2, "--rows is for states and",
    ),
    "nothing measurable": (
        ("gpt2", "--only", "attention_budget,places", "--contexts", "1"), 2,
        "nothing could be measured. attention_budget:",
    ),
    "two places": (("gpt2", "--device", "cpu", "--device-map", "auto"), 2, "--device-map"),
}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    saved(folder / "gpt2")
    saved(folder / "words", tokenizer=True)
    vit().save_pretrained(folder / "vit")
    transformers.ViTImageProcessor(size={"height": 14, "width": 21}).save_pretrained(
        folder / "vit"
    )
    saved(folder / "lie")
    edited_config = json.loads((folder / "lie/config.json").read_text())
    (folder / "lie/config.json").write_text(
        json.dumps(edited_config | {"n_positions": 12})
    )
    config = transformers.T5Config(
        vocab_size=40, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    transformers.T5Model(config).save_pretrained(folder / "t5")
    (folder / "mine").mkdir()
    custom_config = {
        "model_type": "mine",
        "auto_map": {"AutoConfig": "m.M", "AutoModel": "m.N"},
    }
    (folder / "mine/config.json").write_text(json.dumps(custom_config))
    (folder / "mine/m.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    (folder / "long.txt").write_text("w1 w2 w3 " * 100)
    (folder / "short.txt").write_text("w1 w2 w3")
    (folder / "empty").mkdir()
    (folder / "pictures").mkdir()
    Image.new("RGB", (20, 20)).save(folder / "pictures/0.png")
    (folder / "pictures/1.png").write_bytes(b"no picture")
    return folder


@pytest.mark.parametrize("case", REFUSED)
def test_an_impossible_run_is_one_clear_error_and_writes_nothing(
    case: str, forward: Any, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, code, message = REFUSED[case]
    monkeypatch.chdir(models)
    files_before = sorted(models.rglob("*"))
    # A path with a dot names a folder and nothing on the Hub.
    is_folder = arguments[0] in ("gpt2", "words", "vit", "t5", "mine", "lie")
    exit_code, stdout, err = forward(
        f"./{arguments[0]}" if is_folder else arguments[0], *arguments[1:]
    )
    assert (exit_code, stdout) == (code, ""), err
    last_line = err.strip().splitlines()[-1]
    assert message in last_line
    assert last_line.startswith("posprobe: ")
    assert "Traceback" not in err
    assert sorted(models.rglob("*")) == files_before


def long_run(
    models: Path, folder: Path, *, terminal: int | None = None
) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-c", "from posprobe.cli import main; main()", "forward",
        str(models / "gpt2"), "--contexts", "2000000", "--tokens", "random",
        "--only", "states,subspaces,attention",
        "--nulls", "0", "--out", str(folder),
    ]  # fmt: skip
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if terminal is None else terminal,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def test_ctrl_c_keeps_finished_measurements(models: Path, tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
    process = long_run(models, tmp_path / "made", terminal=terminal)
    os.close(terminal)
    screen = b""
    try:
        while not (re.search(rb"[1-9]\d* of 2000000", screen) and b" left" in screen):
            screen += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        while True:
            try:
                screen += os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
        stdout, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
        print(screen[-3000:])
    assert process.returncode == 0
    document = read_bundle(tmp_path / "made")
    assert 0 < document["contexts"]["used"] < 2_000_000
    assert any("interrupted" in note for note in document["notes"])
    assert "interrupted" in document["missing"]["attention"]
    assert document["subspaces"] is not None
    assert b"interrupted" in stdout


def test_the_attention_budget_is_drawn_for_a_paper(tmp_path: Path, cli: Cli) -> None:
    name = "sample:digits-vit"
    arguments = ("figure", "attention-budget", name, "-o", "budget.svg", "--quiet")
    completed = cli(*arguments)
    assert completed.code == 0, completed.err
    drawn = (tmp_path / "budget.svg").read_text(encoding="utf-8")
    assert drawn.count("<svg") == 1
    assert "What decides where each head looks" in completed.out
    assert name in completed.out
    # The source of the contexts is stated, as in every caption of a run.
    assert "crops of two photographs" in completed.out
    refused = cli("figure", "attention-budget", "sinusoidal:64x16", "-o", "b.svg", "-q")
    assert (refused.code, not (tmp_path / "b.svg").exists()) == (2, True), refused.err
