"""Rotations along the rows and columns of an image, as transformers computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import timm
import torch
import transformers
from made_schemes import source
from timm.models import save_for_hf

import posprobe as pp
from posprobe.encodings.rotary import axis_frequencies, first_negative, rotary_kernel
from posprobe.errors import UsageError
from posprobe.schemes import Rotary
from posprobe.studies.schemes import analyze_schemes

if TYPE_CHECKING:
    from pathlib import Path

library: Any = transformers
SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4,
}  # fmt: skip


def record_of(model: Any, folder: Path, name: str = "") -> Rotary:
    model.save_pretrained(folder)
    (record,) = pp.load_schemes(f"{folder}{name}")
    assert isinstance(record, Rotary)
    return record


def assert_steps(turns: Any, omega: Any, axis: int) -> None:
    """Compare the rotation from each patch to the next, ``[rows, columns, pairs]``, on an axis."""
    steps = np.diff(np.unwrap(np.angle(turns), axis=axis), axis=axis)
    np.testing.assert_allclose(steps, np.broadcast_to(omega, steps.shape), atol=2e-5)


@pytest.mark.parametrize(("image", "patch"), [(64, 8), ([48, 96], 8), (36, 4)])
def test_dinov3_rotates_by_relative_patch_position(
    tmp_path: Path, image: Any, patch: int
) -> None:
    config = library.DINOv3ViTConfig(**SIZES, image_size=image, patch_size=patch)
    model = library.DINOv3ViTModel(config).eval()  # training shakes the coordinates
    record = record_of(model, tmp_path)
    height, width = (image, image) if isinstance(image, int) else image
    cos, sin = model.rope_embeddings(torch.zeros(1, 3, height, width))
    turns = (cos + 1j * sin).numpy().reshape(height // patch, width // patch, 16)[..., :8]
    omega = record.frequencies()
    assert record.axes == 2
    assert_steps(turns[..., :4], omega, axis=0)
    assert_steps(turns[..., 4:], omega * height / width, axis=1)
    # The fastest pair turns once from the middle of the image to its edge.
    rotation = analyze_schemes(record).to_dict()["schemes"][0]["rotation"]
    assert rotation["shortest_wavelength"] == pytest.approx(height / patch / 2)


def test_eomt_rotates_like_dinov3(tmp_path: Path) -> None:
    config = library.EomtDinov3Config(
        **SIZES, image_size=64, patch_size=8, num_blocks=1, num_upscale_blocks=1, num_queries=2,
    )  # fmt: skip
    model = library.EomtDinov3ForUniversalSegmentation(config).eval()
    record = record_of(model, tmp_path)
    cos, sin = model.rope_embeddings(torch.zeros(1, 3, 64, 64))
    turns = (cos + 1j * sin).numpy().reshape(8, 8, 16)
    assert_steps(turns[..., :4], record.frequencies(), axis=0)


def test_images_of_llama4_turn_along_two_axes(tmp_path: Path) -> None:
    config = library.Llama4VisionConfig(
        **SIZES, image_size=56, patch_size=14, vision_output_dim=64, projector_input_dim=64,
        projector_output_dim=64,
    )  # fmt: skip
    model = library.Llama4VisionModel(config)
    record = record_of(model, tmp_path, "#rotary")
    assert (record.axes, record.interleaved, record.rotated) == (2, True, 16)
    turns = model.rotary_embedding.freqs_ci.numpy()[:-1].reshape(4, 4, 8)
    assert_steps(turns[..., :4], record.frequencies(), axis=1)
    assert_steps(turns[..., 4:], record.frequencies(), axis=0)


def test_pixtral_takes_its_pairs_in_turn_for_rows_and_columns(tmp_path: Path) -> None:
    config = library.PixtralVisionConfig(**SIZES, image_size=64, patch_size=8)
    model = library.PixtralVisionModel(config)
    record = record_of(model, tmp_path)
    rows, columns = np.mgrid[:8, :8]
    positions = torch.from_numpy(np.stack([rows.ravel(), columns.ravel()], axis=-1))
    cos, sin = model.patch_positional_embedding(torch.zeros(1), positions)
    turns = (cos + 1j * sin).numpy().reshape(8, 8, 16)
    assert_steps(turns[..., :4], record.frequencies(), axis=0)
    slower = 1e4 ** (2 / 16)
    assert_steps(turns[..., 4:8], record.frequencies() / slower, axis=1)


# The mean rotation along one of several axes


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_answers_and_numbers_have_one_mean_rotation(axes: int) -> None:
    record = Rotary(24, "made", source(), base=50.0, axes=axes, max_positions=128)
    omega = record.frequencies()
    # Equal queries and keys of unit pairs, apart along one axis: the other pairs count as 1.
    expected = [
        (np.cos(distance * omega).sum() + (axes - 1) * len(omega)) / (axes * len(omega))
        for distance in range(128)
    ]
    np.testing.assert_allclose(record.curves(128)[0, 127:], expected, atol=1e-12)
    analysis = analyze_schemes(record)
    rotation: Any = analysis.results[0]["rotation"]
    is_near = rotation.distance < 128
    expected_values = np.array(expected)[rotation.distance[is_near]]
    np.testing.assert_allclose(rotation.kernel[is_near], expected_values, atol=1e-12)
    first_negative = next((k for k, value in enumerate(expected) if value < 0), None)
    assert rotation.first_negative == first_negative
    assert (first_negative is None) == (axes > 1)
    verdict = analysis.to_dict()["verdict"]
    answers = {answer["question"]: answer for answer in verdict["answers"]}
    assert answers["rotary_positive"]["answer"] == ("yes" if axes > 1 else "no")
    (sign,) = answers["rotary_positive"]["facts"]["encodings"]
    assert (sign["first"], sign["axes"]) == (first_negative, axes)
    (ladder,) = answers["rotary_turns"]["facts"]["encodings"]
    assert ladder["pairs"] * ladder["axes"] == record.rotated / 2 == 12


def test_answers_for_every_length_need_no_length() -> None:
    verdict = analyze_schemes(Rotary(24, "made", source(), base=50.0, axes=2)).to_dict()[
        "verdict"
    ]
    answers = {answer["question"]: answer["answer"] for answer in verdict["answers"]}
    assert answers["rotary_positive"] == "yes"
    assert answers["rotary_turns"] == "cannot tell"


def test_half_of_the_pairs_at_rest_keep_the_mean_from_falling_below_zero() -> None:
    omega = [np.pi]  # its mean is as low as it can be at every other position
    assert first_negative(omega, 10) == 1
    assert rotary_kernel(axis_frequencies(omega, 2), [1]) == pytest.approx(0)
    assert first_negative(axis_frequencies(omega, 2), 10) is None


# What cannot be measured, or read


def qwen2_vl() -> Any:
    from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
    from transformers.models.qwen2_vl.modeling_qwen2_vl import (
        Qwen2VisionTransformerPretrainedModel,
    )

    model_class: Any = Qwen2VisionTransformerPretrainedModel
    config: Any = Qwen2VLVisionConfig(
        depth=1, embed_dim=32, hidden_size=32, num_heads=4, patch_size=4, mlp_ratio=2
    )
    return model_class(config)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: timm.create_model("eva02_tiny_patch14_224", depth=1, num_classes=0),
         "Along rows and columns of images they are not measured."),
        (lambda: library.DINOv3ViTModel(library.DINOv3ViTConfig(**SIZES, image_size=64)),
         "Along rows and columns of images they are not measured."),
        (qwen2_vl, "rotations are measured on text, not on images."),
    ],
    ids=["EVA-02", "DINOv3", "Qwen2-VL"],
)  # fmt: skip
def test_heads_that_turn_along_rows_and_columns_are_said_not_to_be_measured(
    make: Any, text: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = make().eval()
    with pytest.raises(UsageError, match=text):
        pp.rotary_use(model, [np.zeros((1, 3, 64, 64), np.float32)])
    if isinstance(model, library.PreTrainedModel):
        model.save_pretrained(tmp_path)
    else:
        save_for_hf(model, str(tmp_path), safe_serialization=True)
    if text.startswith("Along"):  # of what takes pixels by itself, a run says the same
        contexts = pp.Contexts(count=2)
        requested = ("rotary_use", "states")
        missing = pp.analyze_model(
            str(tmp_path), contexts, only=requested, nulls=0, device="cpu"
        ).missing
        assert missing["rotary_use"].endswith(text)


def test_a_table_beside_rotations_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = timm.create_model("eva02_tiny_patch14_224", depth=1, num_classes=0)
    save_for_hf(model, str(tmp_path), safe_serialization=True)
    assert model.rope is not None
    notes = pp.load(str(tmp_path)).notes
    assert any("rotary positions too, which could not be read" in note for note in notes)
