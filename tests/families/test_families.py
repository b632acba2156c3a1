"""Families: what is read back is what the model's own forward pass uses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from made_family_checks import assert_as_the_model, assert_same_bits
from tiny_models import (
    CASES,
    VIT,
    Case,
    Tiny,
    find,
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
from posprobe.families.registry import registry
from posprobe.layouts import Grid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


#: Families of other libraries than PyTorch; test_formats.py reads what those write.
ELSEWHERE = {"jax-vit", "keras-hub"}


def test_every_family_and_every_model_type_has_a_tiny_model() -> None:
    listed = {
        (family.name, model_type)
        for family in registry().families
        if family.name not in ELSEWHERE
        for model_type in family.model_types or (None,)
    }
    assert {(case.family, case.model_type) for case in CASES} == listed
    assert len({case.id for case in CASES}) == len(CASES)


def test_every_table_of_a_family_is_picked_by_some_tiny_model() -> None:
    ours = [family for family in registry().families if family.name not in ELSEWHERE]
    named = {(f.name, rule.name) for f in ours for rule in f.tables if rule.name}
    assert {(case.family, case.pick.removeprefix("#")) for case in CASES if case.pick} >= named


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_rows_are_those_that_the_forward_pass_uses(case: Case, tmp_path: Path) -> None:
    tiny = case.build()
    reference = case.save(tiny, tmp_path / "model")
    table = load(reference + case.pick)
    assert table.family == case.family
    assert table.kind == case.kind
    assert_as_the_model(table, tiny)


# --- several tables ---


def encoder_decoder() -> Tiny:
    return hf_whisper("WhisperModel", "decoder")


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (encoder_decoder, ("encoder", "decoder")),
        (lambda: hf_two_towers("CLIPModel", "text"), ("text", "vision")),
        (lambda: hf_two_towers("SiglipModel", "text"), ("text", "vision")),
    ],
)
def test_several_tables_and_no_choice_lists_them(
    build: Callable[[], Tiny], parts: tuple[str, ...], tmp_path: Path
) -> None:
    reference = save_pretrained(build(), tmp_path / "model")
    with pytest.raises(AmbiguousTable) as caught:
        load(reference)
    message = str(caught.value)
    for part in parts:
        tensor = load(f"{reference}#{part}").source
        assert f"{reference}#{part}" in message
        assert tensor.tensor is not None
        assert tensor.tensor in message
        assert tensor.shape is not None
        assert " x ".join(map(str, tensor.shape)) in message
    assert "--tensor" in message
    assert caught.value.exit_code == 2


def test_a_table_that_is_not_there_lists_those_that_are(tmp_path: Path) -> None:
    reference = save_pretrained(encoder_decoder(), tmp_path / "model")
    with pytest.raises(UnknownReference, match=r"'vision'[\s\S]*#decoder[\s\S]*#encoder"):
        load(f"{reference}#vision")


def test_a_table_is_picked_by_its_tensor_too(tmp_path: Path) -> None:
    tiny = encoder_decoder()
    reference = save_pretrained(tiny, tmp_path / "model")
    table = load(f"{reference}#decoder.embed_positions.weight")
    assert_as_the_model(table, tiny)


# --- naming a tensor, stating a grid ---


def test_a_named_tensor_is_taken_whole(tmp_path: Path) -> None:
    tiny = roberta(3)()
    reference = save_pretrained(tiny, tmp_path / "model")
    table = load(reference, tensor="embeddings.position_embeddings.weight")
    assert_same_bits(table.values, tiny.rows)
    assert table.dropped == ()
    assert any("--tensor" in note for note in table.notes)
    words = load(reference, tensor="embeddings.word_embeddings.weight")
    assert_same_bits(words.values, find(tiny.model, "word_embeddings.weight").data)


@pytest.mark.parametrize(
    ("tensor", "error", "message"),
    [
        ("embeddings.position_embedding.weight", UnknownReference, "position_embeddings.weight"),
        ("embeddings.LayerNorm.weight", InvalidTable, r"\[16\].*two dimensions"),
    ],
)
def test_a_named_tensor_that_is_no_table(
    tensor: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    reference = save_pretrained(roberta(1)(), tmp_path / "model")
    with pytest.raises(error, match=message):
        load(reference, tensor=tensor)


def test_a_tensor_and_a_table_name_contradict_each_other(tmp_path: Path) -> None:
    reference = save_pretrained(encoder_decoder(), tmp_path / "model")
    with pytest.raises(UsageError, match="Use one"):
        load(f"{reference}#decoder", tensor="decoder.embed_positions.weight")


def wide_vit(**options: Any) -> Tiny:
    """4 x 7 patches: with CLS, 29 rows, which no square explains."""
    return timm_vit("vit_tiny_patch16_224", img_size=(28, 49), patch_size=7, **options)


@pytest.mark.parametrize("options", [{}, {"reg_tokens": 2}, {"no_embed_class": True}])
def test_a_stated_grid_settles_what_the_checkpoint_does_not_say(
    options: dict[str, Any], tmp_path: Path
) -> None:
    tiny = wide_vit(**options)
    path = save_state_dict(tiny, tmp_path / "model")
    with pytest.raises(InvalidCheckpoint, match=r"--grid HEIGHTxWIDTH.*--tensor pos_embed"):
        load(path)
    assert_as_the_model(load(path, grid=(4, 7)), tiny)
    assert_as_the_model(load(path, tensor="pos_embed", grid=(4, 7)), tiny)


@pytest.mark.parametrize(("rows", "partly"), [((7, 21), False), ((0, 10), True)])
def test_parts_of_the_rows_of_a_grid_are_noted(
    rows: tuple[int, int], partly: bool, tmp_path: Path
) -> None:
    path = save_state_dict(wide_vit(), tmp_path / "model")
    whole = load(path, grid=(4, 7))
    for part in (load(path, grid=(4, 7), rows=slice(*rows)), whole[slice(*rows)]):
        assert isinstance(part.layout, Grid) is not partly
        said = [note for note in part.notes if "patches below each other are 7 positions" in note]
        assert bool(said) is partly


def test_a_stated_grid_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = save_state_dict(wide_vit(), tmp_path / "model")
    with pytest.raises(InvalidCheckpoint, match=r"29 rows do not fit .* 1 or 0 special tokens"):
        load(path, grid=(4, 6))


@pytest.mark.parametrize("grid", [(0, 28), (-4, -7), (-1, 29)])
def test_a_grid_has_positive_sides(grid: tuple[int, int], tmp_path: Path) -> None:
    path = save_state_dict(wide_vit(), tmp_path / "model")
    with pytest.raises(UsageError, match="grid"):
        load(path, grid=grid)


def test_a_configured_grid_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_pretrained(hf_vision("ViTModel", VIT), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"image_size": [28, 56]}))
    with pytest.raises(InvalidCheckpoint, match=r"shape \[1, 13, 16\].*grid of 4 x 4"):
        load(str(folder))


def test_timm_states_an_input_size_that_is_not_the_models(tmp_path: Path) -> None:
    tiny = timm_vit("vit_tiny_patch16_224")
    folder = tmp_path / "model"
    save_timm(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"]["input_size"] = [3, 224, 224]
    config.pop("model_args", None)
    (folder / "config.json").write_text(json.dumps(config))
    table = load(str(folder))
    assert_as_the_model(table, tiny)
    assert any("square" in note for note in table.notes)
