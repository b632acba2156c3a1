"""References that become models, and the contexts that they are run on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
import transformers
from made_models import (
    LENGTH,
    VOCABULARY,
    WIDTH,
    bert,
    gpt2,
    in_batches,
    pixels,
    timm_vit,
    tokens,
    vit,
)
from PIL import Image

from posprobe.errors import InvalidCheckpoint, MissingExtra, UnknownReference, UsageError
from posprobe.forward import (
    decompose,
    image_files,
    load_model,
    load_preparation,
    permutation_effect,
    random_images,
    random_tokens,
)
from posprobe.forward.models import check_lost_weights
from posprobe.forward.running import compute_final_states
from posprobe.layouts import Grid, Sequence
from posprobe.report.screen import render_text
from posprobe.studies.model import analyze_model


def test_a_saved_model_is_built_again(tmp_path: Path) -> None:
    model = gpt2()
    model.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), device="cpu", dtype="float64", offline=True)
    assert not loaded.training
    a, b = (decompose(m.double(), [tokens(4)]) for m in (model, loaded))
    np.testing.assert_allclose(a.layers[2].pos, b.layers[2].pos, atol=1e-12)


def test_missing_weights_are_never_drawn_at_random() -> None:
    with pytest.raises(InvalidCheckpoint, match="lacks"):
        load_model("sample:all-minilm-l6-v2", device="cpu")


def timm_saved(folder: Path, *, drop: str = "", renamed_key: str = "") -> str:
    """Save a model of timm whose configuration asks for no strictness, and change its weights."""
    arguments = {"embed_dim": WIDTH, "depth": 2, "num_heads": 3, "img_size": (14, 21),
                 "patch_size": 7, "num_classes": 0, "pretrained_strict": False}  # fmt: skip
    timm.models.save_for_hf(
        timm_vit(), str(folder), model_args=arguments, safe_serialization=True
    )
    state = safetensors.torch.load_file(folder / "model.safetensors")
    tensors = {name: value for name, value in state.items() if name != drop}
    tensors |= {renamed_key: torch.zeros(3)} if renamed_key else {}
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    return str(folder)


def test_a_model_of_timm_is_built_again(tmp_path: Path) -> None:
    loaded = load_model(timm_saved(tmp_path), device="cpu")
    a, b = (decompose(m, [pixels(3)]) for m in (timm_vit(), loaded))
    np.testing.assert_allclose(a.layers[2].pos, b.layers[2].pos, atol=1e-6)


def test_a_timm_configuration_cannot_ask_for_weights_at_random(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # With the option of timm the table would be what it was initialised to.
    folder = timm_saved(tmp_path, drop="pos_embed", renamed_key="blocks.2.norm1.weight")
    with pytest.raises(
        InvalidCheckpoint,
        match=r"lacks pos_embed; .*not take blocks\.2.*`allow_missing=True`",
    ):
        load_model(folder, device="cpu")
    load_model(folder, device="cpu", allow_missing=True)
    assert "pos_embed" in caplog.text
    assert "blocks.2.norm1.weight" in caplog.text


def test_random_weights_are_named_in_document_and_page(tmp_path: Path) -> None:
    renamed_key = "blocks.2.norm1.weight"
    model_folder = timm_saved(
        tmp_path / "model", drop="pos_embed", renamed_key=renamed_key
    )
    analysis = analyze_model(
        model_folder, only=("blank",), device="cpu", allow_missing=True
    )
    saved = analysis.save(tmp_path / "out")
    document = json.loads((saved / "analysis.json").read_text())
    assert document["model"]["missing_weights"] == ["pos_embed"]
    assert document["model"]["unused_weights"] == [renamed_key]
    for page_text in ((saved / "report.html").read_text(), render_text(document, 1000)):
        assert "lacks are random, and show nothing: pos_embed" in page_text
        assert f"were left out: {renamed_key}" in page_text
    complete_document = analyze_model(
        "sample:digits-vit", only=("blank",), device="cpu"
    ).to_dict()["model"]
    assert (
        complete_document["missing_weights"] == complete_document["unused_weights"] == []
    )


def test_a_missing_pooler_is_accepted_but_no_missing_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = bert()
    model.save_pretrained(tmp_path)
    state = safetensors.torch.load_file(tmp_path / "model.safetensors")
    name = next(name for name in state if "position_embeddings" in name)
    tensors = {key: value for key, value in state.items() if "pooler" not in key}
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    load_model(str(tmp_path), device="cpu")
    del tensors[name]
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(InvalidCheckpoint, match=f"lacks {name}"):
        load_model(str(tmp_path), device="cpu")
    load_model(str(tmp_path), device="cpu", allow_missing=True)
    assert name in caplog.text


def test_a_position_table_of_a_pooler_may_not_be_missing() -> None:
    report = {
        "mismatched_keys": [],
        "unexpected_keys": [],
        "missing_keys": ["pooler.pos_embed"],
    }
    with pytest.raises(InvalidCheckpoint, match=r"lacks pooler\.pos_embed\."):
        check_lost_weights(bert(), report, "model", allow_missing=False)


HOMEMADE = """
from transformers import BertConfig, BertModel

class Mine(BertConfig):
    model_type = "homemade"

class Model(BertModel):
    config_class = Mine
"""


def test_code_of_a_checkpoint_runs_only_when_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "m")
    )
    monkeypatch.syspath_prepend(str(tmp_path / "m"))
    folder = tmp_path / "homemade"
    bert().save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    custom_config = {
        "model_type": "homemade",
        "auto_map": {"AutoConfig": "mine.Mine", "AutoModel": "mine.Model"},
    }
    (folder / "config.json").write_text(json.dumps(config | custom_config))
    trace = tmp_path / "ran"
    (folder / "mine.py").write_text(f"open({str(trace)!r}, 'w').close()\n{HOMEMADE}")
    with pytest.raises(UsageError, match="`trust_remote_code=True`"):
        load_model(str(folder), device="cpu", offline=True)
    assert not trace.exists()
    loaded = load_model(str(folder), device="cpu", offline=True, trust_remote_code=True)
    assert type(loaded).__name__ == "Model"
    a, b = (decompose(m, [tokens(4)]) for m in (bert(), loaded))
    np.testing.assert_allclose(a.layers[2].pos, b.layers[2].pos, atol=1e-6)


def test_a_model_that_outgrows_a_device_is_spread(tmp_path: Path) -> None:
    model = bert()
    model.save_pretrained(tmp_path / "model")
    expected = decompose(model, [tokens(6)])
    spread = load_model(str(tmp_path / "model"), device_map="auto")
    # Layers that are on disk until they are needed, as on a machine without room for them.
    on_one_device: Any = transformers.AutoModel.from_pretrained(
        tmp_path / "model",
        device_map={"embeddings": "disk", "encoder.layer.0": "cpu", "encoder.layer.1": "disk",
                    "pooler": "cpu"},
        offload_folder=tmp_path / "off",
    )  # fmt: skip
    assert next(on_one_device.parameters()).device.type == "meta"
    with pytest.raises(UsageError, match="kept on disk"):
        permutation_effect(on_one_device, [tokens(2)])
    for placed_model in (spread, on_one_device):
        decomposition = decompose(placed_model, in_batches(tokens(6), 4))
        for number, layer in expected.layers.items():
            np.testing.assert_allclose(
                decomposition.layers[number].pos, layer.pos, atol=1e-5
            )
    bad_maps: list[dict[str, Any]] = [
        {"device": "cpu", "device_map": "auto"},
        {"device_map": "nonsense"},
    ]
    for options in bad_maps:
        with pytest.raises((UsageError, InvalidCheckpoint), match="map"):
            load_model(str(tmp_path / "model"), **options)


def test_half_precision_leaves_the_angles_of_rotations_as_they_are(
    tmp_path: Path,
) -> None:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=3,
        num_key_value_heads=3, intermediate_size=16, max_position_embeddings=LENGTH,
    )  # fmt: skip
    transformers.LlamaModel(config).save_pretrained(tmp_path)
    loaded: Any = load_model(str(tmp_path), device="cpu", dtype="bfloat16")
    assert loaded.embed_tokens.weight.dtype == torch.bfloat16
    assert loaded.rotary_emb.inv_freq.dtype == torch.float32
    # Distances alone count, so that contexts may be longer than those of the training.
    assert decompose(loaded, [tokens(2, 3 * LENGTH)]).layout == Sequence(3 * LENGTH)


def test_tokens_behind_the_patches_are_not_taken_for_patches() -> None:
    config = transformers.YolosConfig(
        hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=3, intermediate_size=16,
        image_size=[14, 21], patch_size=7, num_detection_tokens=4,
    )  # fmt: skip
    model: Any = transformers.YolosModel(config).train(mode=False)
    with pytest.raises(UsageError, match="detections"):
        decompose(model, [pixels(2)])


def test_a_part_of_a_model_is_run_by_its_name(tmp_path: Path) -> None:
    config = transformers.T5Config(
        vocab_size=40, d_model=8, d_kv=4, d_ff=8, num_layers=2, num_heads=2
    )
    transformers.T5Model(config).save_pretrained(tmp_path / "t5")
    with pytest.raises(UsageError, match="#encoder"):
        decompose(load_model(str(tmp_path / "t5")), [tokens(2)])
    decomposition = decompose(load_model(f"{tmp_path / 't5'}#encoder"), [tokens(2)])
    assert list(decomposition.layers) == [0, 1, 2]
    with pytest.raises(UsageError, match="It has #encoder, #decoder"):
        load_model(f"{tmp_path / 't5'}#text")
    sizes = {
        "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 3,
        "intermediate_size": 16,
    }  # fmt: skip
    clip = transformers.CLIPConfig(
        text_config=sizes | {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH},
        vision_config=sizes | {"image_size": 14, "patch_size": 7},
    )
    transformers.CLIPModel(clip).save_pretrained(tmp_path / "clip")
    vision = load_model(f"{tmp_path / 'clip'}#vision")
    assert decompose(vision, random_images((3, 14, 14), 2)).layout == Grid(2, 2)
    text = load_model(f"{tmp_path / 'clip'}#text")
    assert decompose(text, [tokens(2)]).layout == Sequence(LENGTH)


@pytest.mark.parametrize("name", ["T5", "LongT5"])
def test_an_encoder_that_was_saved_alone_is_run(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(
        vocab_size=VOCABULARY, d_model=8, d_kv=4, d_ff=8, num_layers=2, num_heads=2,
        local_radius=20,
    )  # fmt: skip
    encoder = getattr(transformers, f"{name}EncoderModel")(config).train(mode=False)
    encoder.save_pretrained(tmp_path)
    ids = tokens(3)
    with torch.no_grad():
        expected = encoder(torch.from_numpy(ids)).last_hidden_state
        for reference in (str(tmp_path), f"{tmp_path}#encoder"):
            for head in (False, True):
                model = load_model(reference, device="cpu", head=head)
                assert torch.equal(
                    compute_final_states(model, torch.from_numpy(ids)), expected
                )
    assert list(decompose(load_model(str(tmp_path), device="cpu"), [ids]).layers) == [
        0,
        1,
        2,
    ]


@pytest.mark.parametrize(
    ("reference", "failure", "message"),
    [
        ("sinusoidal:16x8", UsageError, "formula"),
        ("sample:digits-vit#text", UsageError, "no such part"),
        ("./nowhere", UnknownReference, "Check the path"),
        (str(Path(__file__).parent), UnknownReference, "no config.json"),
        (__file__, UnknownReference, "it is no folder"),
        ("posprobe-tests/no-such-model", UnknownReference, "cannot be built"),
        ("timm/no-such-model", UnknownReference, "cannot be built"),
    ],
)
def test_references_that_are_no_model_are_one_clear_error(
    reference: str, failure: type[Exception], message: str
) -> None:
    with pytest.raises(failure, match=message):
        load_model(reference, device="cpu", offline=True)


def test_a_damaged_checkpoint_is_one_clear_error(tmp_path: Path) -> None:
    bert().save_pretrained(tmp_path)
    content = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[:-100])
    with pytest.raises(InvalidCheckpoint, match="cannot be built"):
        load_model(str(tmp_path), device="cpu")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InvalidCheckpoint, match="cannot be built"):
        load_model(str(tmp_path), device="cpu")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InvalidCheckpoint, match="JSON"):
        load_model(str(tmp_path), device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is here")
def test_a_gpu_that_is_not_there_is_one_clear_error() -> None:
    with pytest.raises(UsageError, match="`device='cpu'`"):
        load_model("sample:digits-vit", device="cuda")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posprobe.errors.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"uv sync --extra models"):
        load_model("sample:digits-vit")


def test_random_contexts_are_independent_of_batches() -> None:
    config = transformers.RobertaConfig(vocab_size=20)
    a = np.concatenate(list(random_tokens(config, 50, 9, seed=3, batch_size=4)))
    b = np.concatenate(list(random_tokens(config, 50, 9, seed=3, batch_size=9)))
    np.testing.assert_array_equal(a, b)
    assert a.shape == (9, 50)
    assert set(a.ravel().tolist()) == set(range(20)) - {0, 1, 2}
    images = np.concatenate(list(random_images((3, 4, 5), 7, batch_size=2)))
    assert images.shape == (7, 3, 4, 5)
    np.testing.assert_array_equal(images, next(random_images((3, 4, 5), 7, batch_size=7)))


@pytest.mark.parametrize("size", [2, 3])
def test_vocabularies_too_small_to_draw_from_are_one_clear_error(size: int) -> None:
    config = transformers.GPT2Config(vocab_size=size, bos_token_id=0, eos_token_id=1)
    with pytest.raises(UsageError, match=f"{size - 2} of the {size} tokens"):
        next(random_tokens(config, 5, 4))


def test_a_folder_of_pictures_is_prepared_as_the_model_s_library_does(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    folder = tmp_path / "pictures"
    folder.mkdir()
    pictures = [
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)) for _ in range(3)
    ]
    for number, picture in enumerate(pictures):
        picture.save(folder / f"{number}.png")
    (folder / "notes.txt").write_text("no picture")
    processor = transformers.ViTImageProcessor(size={"height": 14, "width": 21})
    processor.save_pretrained(tmp_path)
    vit().save_pretrained(tmp_path)
    prepare = load_preparation(str(tmp_path), vit())
    prepared = np.concatenate(list(image_files(folder, prepare, batch_size=2)))
    expected = processor(pictures, return_tensors="np")["pixel_values"]
    np.testing.assert_allclose(prepared, expected, atol=1e-6)
    preparation = load_preparation("", timm_vit())
    assert next(image_files(folder, preparation, count=1)).shape == (1, 3, 14, 21)
    for empty in (tmp_path / "nowhere", Path(__file__).parent):
        with pytest.raises(UnknownReference):
            next(image_files(empty, preparation))
