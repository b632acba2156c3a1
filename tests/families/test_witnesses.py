"""Vision tables under names that no list has: read by what stands beside them, and text never."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_checkpoints import model_folder
from made_tables import sum_codes

from posprobe import check, load
from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.errors import InvalidCheckpoint
from posprobe.families import inspect
from posprobe.families.witnesses import find_patch_kernel
from posprobe.layouts import Grid, Sequence

D = 8


def random(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


#: Names as open_clip, UniFormerV2, vit-pytorch, a course, CCT, PVT and TransUNet have them.
MODELS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "open_clip": (
        "visual.positional_embedding",
        {"visual.conv1.weight": (D, 3, 16, 16), "visual.class_embedding": (D,)},
    ),
    "UniFormerV2": (
        "backbone.positional_embedding",
        {"backbone.conv1.weight": (D, 3, 1, 16, 16), "backbone.class_embedding": (D,)},
    ),
    "vit-pytorch": (
        "pos_embedding",
        {"to_patch_embedding.2.weight": (D, 768), "cls_token": (1, 1, D)},
    ),
    "course": (
        "position_embedding",
        {"patch_embedding.patcher.weight": (D, 3, 16, 16), "class_embedding": (1, 1, D)},
    ),
    "CCT": (
        "classifier.positional_emb",
        {"tokenizer.conv_layers.0.0.weight": (D, 3, 7, 7), "classifier.class_emb": (1, 1, D)},
    ),
    "PVT": (
        "pos_embed4",
        {"patch_embed4.proj.weight": (D, 4, 2, 2), "cls_token": (1, 1, D)},
    ),
    "TransUNet": (
        "transformer.embeddings.position_embeddings",
        {"transformer.embeddings.patch_embeddings.weight": (D, 16, 1, 1)},
    ),
    "Flax": (
        "encoder.pos",
        {"encoder.embedding.kernel": (16, 16, 3, D), "cls": (1, 1, D)},
    ),
}  # fmt: skip


def write(
    folder: Path, name: str, rows: int, sibling_shapes: Mapping[str, tuple[int, ...]]
) -> str:
    shapes = {name: (1, rows, D), **sibling_shapes}
    return model_folder(folder, {key: random(*shape) for key, shape in shapes.items()})


@pytest.mark.parametrize("model", MODELS)
def test_what_makes_patches_beside_a_table_makes_it_a_grid(
    model: str, tmp_path: Path
) -> None:
    name, sibling_shapes = MODELS[model]
    n_special = int(any("cl" in sibling.rpartition(".")[2] for sibling in sibling_shapes))
    path = write(tmp_path, name, 5 * 5 + n_special, sibling_shapes)
    table = load(path)
    assert table.layout == Grid(5, 5)
    assert [row.token for row in table.prefix_rows] == ["CLS"] * n_special
    kernel = next(
        key for key, shape in sibling_shapes.items() if len(shape) > 1 and shape[1] > 1
    )
    assert any(kernel in note for note in table.notes)
    (encoding,) = inspect(path)
    assert kernel in encoding["why"]


def test_registers_and_a_distillation_token_have_rows_where_they_fit(
    tmp_path: Path,
) -> None:
    sibling_shapes = {
        "net.patch_embed.weight": (D, 3, 4, 4),
        "net.cls_token": (1, 1, D),
        "net.registers": (4, D),
    }
    for n_rows, tokens in ((36 + 5, 5), (36 + 1, 1), (36, 0)):
        table = load(
            write(
                tmp_path / str(n_rows), "net.position_embedding", n_rows, sibling_shapes
            )
        )
        assert (table.layout, len(table.prefix_rows)) == (Grid(6, 6), tokens)


@pytest.mark.parametrize("n_rows", [5 * 8, 5 * 5 + 3])
def test_patches_without_a_square_are_refused_with_what_settles_it(
    n_rows: int, tmp_path: Path
) -> None:
    name, sibling_shapes = MODELS["open_clip"]
    path = write(tmp_path, name, n_rows, sibling_shapes)
    advice = rf"visual.conv1.weight.*`grid=\(HEIGHT, WIDTH\)`.*`tensor='{name}'`"
    with pytest.raises(InvalidCheckpoint, match=advice):
        load(path)
    assert load(path, tensor=name).layout == Sequence(n_rows)
    if n_rows == 40:
        assert load(path, grid=(5, 8)).layout == Grid(5, 8)


def test_convolutions_that_shorten_a_spectrogram_are_no_witness(tmp_path: Path) -> None:
    convolutions: dict[str, tuple[int, ...]] = {
        "encoder.conv.0.weight": (D, 1, 3, 3),
        "encoder.conv.2.weight": (D, D, 3, 3),
    }
    path = write(tmp_path, "encoder.pos_emb", 1024, convolutions)
    assert load(path).layout == Sequence(1024)


def test_a_convolution_between_hidden_states_is_no_witness(tmp_path: Path) -> None:
    """Not a patch kernel: a text model whose vocabulary has an unlisted name stays a sequence."""
    name = "encoder.pos_embed.weight"
    others = {"encoder.embed.weight": (50, D), "encoder.conv.weight": (D, D, 5, 5)}
    tensors = {key: random(*shape) for key, shape in {name: (64, D), **others}.items()}
    assert load(str(model_folder(tmp_path, tensors))).layout == Sequence(64)


def test_a_source_vocabulary_says_that_a_table_is_of_text(tmp_path: Path) -> None:
    """An image tower beside it is as wide, and is not what the table belongs to."""
    name = "position_embeddings.weight"
    others = {"src_embed.weight": (50, D), "image.conv.weight": (D, 3, 16, 16)}
    tensors = {key: random(*shape) for key, shape in {name: (64, D), **others}.items()}
    assert load(str(model_folder(tmp_path, tensors))).layout == Sequence(64)


def test_no_layer_of_a_language_model_is_looked_up_for_a_kernel() -> None:
    class Tensors(dict[str, TensorInfo]):
        """Tensors whose descriptions cost a request each."""

        def __getitem__(self, name: str) -> TensorInfo:
            requested.append(name)
            return super().__getitem__(name)

    requested: list[str] = []
    shapes = {
        "model.positions.pos_emb": (1024, D),
        "model.embed_tokens.weight": (20, D),
        **{f"model.layers.{k}.conv_patch_embed.weight": (D, 3, 4, 4) for k in range(9)},
    }
    infos = {
        name: TensorInfo(name, shape, "F32", "shard.safetensors")
        for name, shape in shapes.items()
    }
    table = infos["model.positions.pos_emb"]
    checkpoint = Checkpoint("here", Tensors(infos), lambda *_: b"")
    assert find_patch_kernel(checkpoint, table, [table.name]) is None
    assert not requested


def test_open_clips_configuration_states_the_grid(tmp_path: Path) -> None:
    name, sibling_shapes = MODELS["open_clip"]
    path = write(tmp_path, name, 5 * 8 + 1, sibling_shapes)
    (tmp_path / "config.json").unlink()
    vision = {"image_size": [80, 128], "width": D, "patch_size": 16}
    model = {"embed_dim": 4, "vision_cfg": vision, "text_cfg": {"context_length": 77}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": model}))
    assert load(path).layout == Grid(5, 8)
    del vision["patch_size"]  # a tower of timm: its convolution states the patch
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": model}))
    assert load(path).layout == Grid(5, 8)


@pytest.mark.parametrize("rows", [1024, 512, 77, 4096, 256, 197])
@pytest.mark.parametrize(
    ("name", "vocabulary"),
    [
        ("wpe.weight", "wte.weight"),
        ("positional_embedding", "token_embedding.weight"),
        ("text.positional_embedding", "text.token_embedding.weight"),
        ("bert.pos", "bert.tok_emb.weight"),
        ("decoder.pos_emb", ""),
    ],
)
def test_a_text_table_beside_an_image_tower_stays_a_sequence(
    name: str, vocabulary: str, rows: int, tmp_path: Path
) -> None:
    sibling_shapes = {
        "visual.conv1.weight": (D, 3, 16, 16),
        "visual.class_embedding": (D,),
    }
    sibling_shapes |= {vocabulary: (20, D)} if vocabulary else {}
    assert load(write(tmp_path, name, rows, sibling_shapes)).layout == Sequence(rows)


def test_a_convolution_of_one_channel_makes_no_patches(tmp_path: Path) -> None:
    sibling_shapes = {"enc.conv_in.weight": (D, 1, 41, 11)}
    assert load(write(tmp_path, "enc.pos", 400, sibling_shapes)).layout == Sequence(400)
    named = {"enc.patch_embed.weight": (D, 1, 7, 7)}
    assert load(write(tmp_path / "grey", "enc.pos", 400, named)).layout == Grid(20, 20)


@pytest.mark.parametrize(
    "sample", ["all-minilm-l6-v2", "rxnmapper-albert", "whisper-tiny-decoder"]
)
def test_no_text_table_looks_like_a_square(sample: str, tmp_path: Path) -> None:
    values = load(f"sample:{sample}").values
    side = int(len(values) ** 0.5)
    for n_rows in (side * side, side * side + 1):
        if n_rows <= len(values):
            path = model_folder(tmp_path / str(n_rows), {"my.pos": values[:n_rows]})
            assert not any("patches" in note for note in load(path).notes)


def test_a_bare_table_that_looks_like_patches_says_so(tmp_path: Path) -> None:
    values = np.concatenate([random(1, D), sum_codes(random(7, D), random(7, D)[::-1])])
    table = load(model_folder(tmp_path, {"my.pos": values}))
    assert table.layout == Sequence(50)
    assert any("grid: 7x7" in note for note in table.notes)


def test_copies_under_other_names_encode_position_alike(tmp_path: Path) -> None:
    tensors = {"pos_embed": random(1, 26, D), "cls_token": random(1, 1, D)}
    timm = model_folder(tmp_path / "timm", tensors)
    torch.save(
        {
            "visual.positional_embedding": torch.tensor(tensors["pos_embed"][0]),
            "visual.class_embedding": torch.zeros(D),
            "visual.conv1.weight": torch.zeros(D, 3, 16, 16),
        },
        tmp_path / "open_clip.pt",
    )
    assert check(str(tmp_path / "open_clip.pt"), timm).alike
