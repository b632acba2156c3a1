"""The document, figures and command of what is measured inside a model."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import matplotlib as mpl
import numpy as np
import pytest
import referencing
import transformers
import typer
from PIL import Image
from typer.testing import CliRunner, Result

from posprobe.analyses.attention_by_offset import attention_by_offset, attention_sums
from posprobe.analyses.head_logits import HeadLogits, head_logits
from posprobe.analyses.mean_decomposition import mean_decomposition, moments
from posprobe.cli.forward import forward
from posprobe.figures.styles import style
from posprobe.report.forward import ForwardAnalysis
from posprobe.table import Grid, Layout, PositionTable, Sequence, Source

mpl.use("agg")
logs: Any = transformers.utils.logging
logs.disable_progress_bar()

ENVIRONMENT = {
    "posprobe": "0", "python": "3", "numpy": "2", "device": "cpu", "seed": 0, "command": None,
    "created": "2024-01-01T00:00:00+00:00",
}  # fmt: skip


def schema(name: str) -> Any:
    return json.loads((files("posprobe.report") / "schema" / name).read_text(encoding="utf-8"))


def assert_valid(document: dict[str, Any]) -> None:
    shared = schema("analysis-1.json")
    registry: Any = referencing.Registry().with_resource(
        shared["$id"], referencing.Resource.from_contents(shared)
    )
    validator = jsonschema.Draft202012Validator(schema("forward-1.json"), registry=registry)
    assert list(validator.iter_errors(document)) == []


def logits(layout: Layout, seed: int) -> HeadLogits:
    rng = np.random.default_rng(seed)
    table = PositionTable(rng.normal(size=(layout.size, 6)), layout, "made", Source("a", "a"))
    return head_logits(table, rng.normal(size=(6, 8)), rng.normal(size=(6, 8)), heads=2)


def analysis(layout: Layout) -> ForwardAnalysis:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(5, layout.size, 4))
    weights = rng.random((5, 2, layout.size, layout.size))
    weights /= weights.sum(axis=-1, keepdims=True)
    return ForwardAnalysis(
        states=mean_decomposition({0: moments(states), 3: moments(states)}, layout=layout),
        heads={0: logits(layout, 0), 1: logits(layout, 1)},
        heads_missing="",
        attention=attention_by_offset({0: attention_sums(weights)}, layout=layout),
        contexts={"kind": "made", "seed": 0, "length": layout.size},
        environment=ENVIRONMENT,
    )


@pytest.mark.parametrize("layout", [Sequence(12), Sequence(50), Grid(3, 4)])
def test_every_document_is_valid_and_every_figure_can_be_drawn(
    layout: Layout, tmp_path: Path
) -> None:
    made = analysis(layout)
    assert_valid(made.to_dict())
    json.dumps(made.to_dict(), allow_nan=False)
    arrays = made.arrays()
    assert arrays["3_pos"].shape == (layout.size, 4)
    assert set(arrays) == {
        *(f"{n}_{part}" for n in (0, 3) for part in ("pos", "error", "mean")),
        "0_logits", "1_logits", "0_attention",
    }  # fmt: skip
    figures = made.figures()
    assert set(figures) == {"layers", "heads", "peaks", "attention"}
    for name, make in figures.items():
        with style():
            make().savefig(tmp_path / f"{name}.svg")
        assert (tmp_path / f"{name}.svg").stat().st_size > 5000


def test_a_figure_shows_the_curve_of_each_head_around_the_offset_0() -> None:
    made = analysis(Sequence(50))
    with style():
        ax = made.figures()["heads"]().axes[0]
    drawn = np.asarray(ax.images[0].get_array())
    curve = made.heads[1].curves[0, 49 - 16 : 49 + 17]
    curve = curve - curve.mean()
    np.testing.assert_allclose(drawn[2], curve / np.abs(curve).max())
    assert list(ax.images[0].get_extent())[:2] == [-16.5, 16.5]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0.0", "0.1", "1.0", "1.1"]


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(forward)
    return CliRunner().invoke(app, [*arguments, "--device", "cpu", "--offline"])


def document(*arguments: str) -> dict[str, Any]:
    ran = run(*arguments, "--json", "--quiet")
    assert ran.exit_code == 0, ran.exception
    found: dict[str, Any] = json.loads(ran.stdout)
    assert_valid(found)
    return found


def test_the_command_runs_a_vision_transformer_on_random_pixels_and_says_so() -> None:
    found = document("sample:digits-vit", "--contexts", "12", "--attention", "--seed", "3")
    assert found["contexts"] == {
        "kind": "random pixels, independent and normal", "shape": [1, 8, 8], "seed": 3, "used": 12,
    }  # fmt: skip
    assert [layer["layer"] for layer in found["hidden_states"]["layers"]] == [0, 1, 2]
    assert [layer["heads"] for layer in found["heads"]] == [4, 4]
    assert len(found["attention"]["layers"]) == 2
    again = document("sample:digits-vit", "--contexts", "12", "--attention", "--seed", "3")
    for key in ("hidden_states", "heads", "attention"):
        assert found[key] == again[key]


def test_the_command_runs_a_text_model_on_random_tokens_at_the_positions_asked_for(
    tmp_path: Path,
) -> None:
    config = transformers.GPT2Config(n_embd=12, n_layer=2, n_head=3, vocab_size=30, n_positions=20)
    transformers.GPT2Model(config).save_pretrained(tmp_path)
    found = document(str(tmp_path), "--rows", "1:10", "--layers", "0,2", "--contexts", "5")
    states = found["hidden_states"]
    assert found["contexts"]["length"] == 20
    assert (states["start"], states["layout"]) == (1, {"type": "sequence", "length": 9})
    assert [layer["layer"] for layer in states["layers"]] == [0, 2]
    assert found["heads"][0]["layout"]["length"] == 9
    assert found["attention"] is None
    plain = run(str(tmp_path), "--contexts", "4")
    assert plain.exit_code == 0, plain.exception
    assert "random tokens" in plain.stdout
    assert "relative norm" in plain.stdout


def test_models_without_a_table_are_run_and_the_document_says_why_heads_are_missing(
    tmp_path: Path,
) -> None:
    config = transformers.LlamaConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        vocab_size=30, max_position_embeddings=64,
    )  # fmt: skip
    transformers.LlamaModel(config).save_pretrained(tmp_path)
    found = document(str(tmp_path), "--contexts", "4", "--length", "16")
    assert found["heads"] == []
    assert "rotary" in found["heads_missing"]


def test_the_command_runs_on_pictures(tmp_path: Path) -> None:
    model, pictures = tmp_path / "model", tmp_path / "pictures"
    pictures.mkdir()
    config = transformers.ViTConfig(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=8,
        image_size=14, patch_size=7,
    )  # fmt: skip
    transformers.ViTModel(config).save_pretrained(model)
    transformers.ViTImageProcessor(size={"height": 14, "width": 14}).save_pretrained(model)
    rng = np.random.default_rng(0)
    for number in range(3):
        picture = Image.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8))
        picture.save(pictures / f"{number}.png")
    found = document(str(model), "--images", str(pictures))
    assert found["contexts"]["used"] == 3
    assert found["contexts"]["seed"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "a.txt"], "images"),
        (["--length", "9"], "images"),
        (["--text", "a.txt", "--images", "b"], "one of them"),
        (["--layers", "0,x"], "--layers"),
        (["--layers", "7"], "0 to 2"),
        (["--rows", "60:70"], None),
        (["--rows", "9:3"], "nothing is left"),
    ],
)
def test_arguments_that_cannot_mean_anything_are_one_clear_error(
    arguments: list[str], message: str | None
) -> None:
    ran = run("sample:digits-vit", "--contexts", "2", *arguments)
    if message is None:
        assert ran.exit_code == 0, ran.exception  # the last four of 64 patches
        return
    assert type(ran.exception).__name__ == "UsageError"
    assert message in str(ran.exception)
