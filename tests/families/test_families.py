"""Families: what is read back is what the model's own forward pass uses."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from made_checkpoints import model_folder
from made_family_checks import assert_same_bits, assert_table_as_in_model
from tiny_models import (
    CASES,
    VIT,
    Case,
    Tiny,
    hf_two_towers,
    hf_vision,
    hf_whisper,
    roberta,
    save_pretrained,
    save_state_dict,
    save_timm,
    timm_vit,
)

from posprobe.errors import (
    AmbiguousTable,
    InvalidCheckpoint,
    InvalidTable,
    UnknownReference,
    UsageError,
)
from posprobe.families import load
from posprobe.families.architectures import load_registry
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


#: Families of other libraries than PyTorch; test_formats.py reads what those write.
ELSEWHERE = {"jax-vit", "keras-hub"}


def test_every_family_and_every_model_type_has_a_tiny_model() -> None:
    model_types = {
        (family.name, model_type)
        for family in load_registry().families
        if family.name not in ELSEWHERE
        for model_type in family.model_types or (None,)
    }
    assert {(case.family, case.model_type) for case in CASES} == model_types
    assert len({case.id for case in CASES}) == len(CASES)


def test_every_table_of_a_family_is_picked_by_some_tiny_model() -> None:
    ours = [family for family in load_registry().families if family.name not in ELSEWHERE]
    rule_names = {(f.name, rule.name) for f in ours for rule in f.tables if rule.name}
    assert {
        (case.family, case.pick.removeprefix("#")) for case in CASES if case.pick
    } >= rule_names


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_rows_are_those_that_the_forward_pass_uses(
    case: Case, tmp_path: Path
) -> None:
    tiny = case.build()
    reference = case.save(tiny, tmp_path / "model")
    table = load(reference + case.pick)
    assert table.family == case.family
    assert table.kind == case.kind
    assert_table_as_in_model(table, tiny)


# --- several tables, naming a tensor, stating a grid ---


def encoder_decoder() -> Tiny:
    return hf_whisper("WhisperModel", "decoder")


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (encoder_decoder, ("encoder", "decoder")),
        (lambda: hf_two_towers("CLIPModel", "text"), ("text", "vision")),
    ],
)
def test_several_tables_and_no_choice_lists_them(
    build: Callable[[], Tiny], parts: tuple[str, ...], tmp_path: Path
) -> None:
    reference = save_pretrained(build(), tmp_path / "model")
    with pytest.raises(AmbiguousTable) as caught:
        load(reference)
    for part in parts:
        source = load(f"{reference}#{part}").source
        assert source.shape is not None
        size = " x ".join(map(str, source.shape))
        assert f"{reference}#{part} ({source.tensor}, {size}, F32)" in str(caught.value)
    assert caught.value.exit_code == 2
    with pytest.raises(UnknownReference, match=rf"'nosuch'[\s\S]*#{parts[0]}"):
        load(f"{reference}#nosuch")


def test_a_table_is_picked_by_its_tensor_too(tmp_path: Path) -> None:
    tiny = encoder_decoder()
    reference = save_pretrained(tiny, tmp_path / "model")
    assert_table_as_in_model(load(f"{reference}#decoder.embed_positions.weight"), tiny)
    with pytest.raises(UsageError, match="Use one"):
        load(f"{reference}#decoder", tensor="decoder.embed_positions.weight")


def test_a_named_tensor_is_taken_whole(tmp_path: Path) -> None:
    tiny = roberta(3)()
    reference = save_pretrained(tiny, tmp_path / "model")
    table = load(reference, tensor="embeddings.position_embeddings.weight")
    assert_same_bits(table.values, tiny.rows)
    assert table.dropped == ()
    assert any("named by the user" in note for note in table.notes)
    with pytest.raises(UnknownReference, match="has no tensor nosuch"):
        load(reference, tensor="nosuch")
    with pytest.raises(InvalidTable, match=r"\[16\].*two dimensions"):
        load(reference, tensor="embeddings.LayerNorm.weight")


def wide_vit(**options: Any) -> Tiny:
    """4 x 7 patches: with CLS, 29 rows, which no square explains."""
    return timm_vit("vit_tiny_patch16_224", img_size=(28, 49), patch_size=7, **options)


@pytest.mark.parametrize("options", [{}, {"reg_tokens": 2}, {"no_embed_class": True}])
def test_a_stated_grid_settles_an_ambiguous_layout(
    options: dict[str, Any], tmp_path: Path
) -> None:
    tiny = wide_vit(**options)
    path = save_state_dict(tiny, tmp_path / "model")
    with pytest.raises(
        InvalidCheckpoint, match=r"`grid=\(HEIGHT, WIDTH\)`.*`tensor='pos_embed'`"
    ):
        load(path)
    assert_table_as_in_model(load(path, grid=(4, 7)), tiny)
    assert_table_as_in_model(load(path, tensor="pos_embed", grid=(4, 7)), tiny)


@pytest.mark.parametrize(("rows", "partly"), [((7, 21), False), ((0, 10), True)])
def test_parts_of_the_rows_of_a_grid_are_noted(
    rows: tuple[int, int], partly: bool, tmp_path: Path
) -> None:
    path = save_state_dict(wide_vit(), tmp_path / "model")
    table = load(path, grid=(4, 7))
    for part in (load(path, grid=(4, 7), rows=slice(*rows)), table[slice(*rows)]):
        assert isinstance(part.layout, Grid) is not partly
        matching_notes = [
            note
            for note in part.notes
            if "patches below each other are 7 positions" in note
        ]
        assert bool(matching_notes) is partly


def test_a_stated_grid_counts_for_more_than_the_familys_special_row(
    tmp_path: Path,
) -> None:
    name = "transformer.embeddings.position_embeddings"  # ViT's, whose row 0 is CLS
    path = model_folder(tmp_path / "model", {name: np.ones((1, 28, 8))})
    table = load(path, grid=(4, 7))
    assert (table.layout, table.prefix_rows) == (Grid(4, 7), ())


def test_a_grid_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = save_state_dict(wide_vit(), tmp_path / "model")
    with pytest.raises(
        InvalidCheckpoint, match=r"29 rows do not fit .* 1 or 0 special tokens"
    ):
        load(path, grid=(4, 6))
    with pytest.raises(InvalidCheckpoint, match="State a grid of 28 or 29 patches"):
        load(path, grid=(4, 6))
    for grid in ((0, 28), (-4, -7)):
        with pytest.raises(UsageError, match="grid"):
            load(path, grid=grid)
    folder = tmp_path / "configured"
    save_pretrained(hf_vision("ViTModel", VIT), folder)
    stated(folder, image_size=[28, 56])
    with pytest.raises(InvalidCheckpoint, match=r"shape \[1, 13, 16\].*grid of 4 x 4"):
        load(str(folder))


def stated(folder: Path, **overrides: Any) -> None:
    """Change what the configuration in a folder states."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | overrides))


def test_timm_states_an_input_size_that_is_not_the_models(tmp_path: Path) -> None:
    tiny = timm_vit("vit_tiny_patch16_224")
    folder = tmp_path / "model"
    save_timm(tiny, folder)
    stated(folder, pretrained_cfg={"input_size": [3, 224, 224]}, model_args=None)
    table = load(str(folder))
    assert_table_as_in_model(table, tiny)
    assert any("square" in note for note in table.notes)


# --- formats and precisions ---


def save_bin(tiny: Tiny, folder: Path, **options: Any) -> str:
    folder.mkdir()
    tiny.model.config.save_pretrained(folder)
    torch.save(tiny.model.state_dict(), folder / "pytorch_model.bin", **options)
    return str(folder)


def save_bin_legacy(tiny: Tiny, folder: Path) -> str:
    return save_bin(tiny, folder, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("save", [save_pretrained, save_bin, save_bin_legacy])
def test_every_precision_is_kept_to_the_bit(
    dtype: str, save: Callable[[Tiny, Path], str], tmp_path: Path
) -> None:
    tiny = roberta(1, getattr(torch, dtype))()
    table = load(save(tiny, tmp_path / "model"))
    assert_table_as_in_model(table, tiny)
    assert table.source.dtype == dtype.upper().replace("FLOAT", "F")
    assert table.source.tensor == "embeddings.position_embeddings.weight"
    if dtype == "float32":
        stored = tiny.table.detach().numpy().tobytes()
        assert table.source.sha256 == sha256(stored).hexdigest()
