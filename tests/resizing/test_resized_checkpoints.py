"""Copies of checkpoints with a resized table: other bytes are kept, and libraries run them."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import timm
import torch
import transformers as library
from made_cli import Cli, cli
from safetensors import safe_open
from safetensors.numpy import save_file
from timm.models import save_for_hf

import posprobe as pp
from posprobe.checkpoints.checkpoint import encode_values, widen_bfloat16
from posprobe.errors import InvalidCheckpoint, OutputError, UsageError
from posprobe.resizing.checkpoint import check_copy_folder, write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: A fixture that pytest finds by name.
__all__ = ["cli"]

LAYERS: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
}  # fmt: skip
TEXT: dict[str, Any] = {**LAYERS, "vocab_size": 50, "max_position_embeddings": 32}
IMAGE: dict[str, Any] = {**LAYERS, "image_size": 16, "patch_size": 4}
SPECIAL: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0}


def model(name: str) -> Any:
    """Build a tiny model with a table of 32 positions, or of 4 x 4 patches."""
    torch.manual_seed(0)
    match name:
        case "bert":
            return library.BertModel(library.BertConfig(**TEXT))
        case "roberta":
            sizes = TEXT | {"max_position_embeddings": 34}
            return library.RobertaModel(library.RobertaConfig(**sizes, pad_token_id=1))
        case "gpt2":
            config = library.GPT2Config(
                n_embd=16, n_layer=1, n_head=2, n_positions=32, vocab_size=50, **SPECIAL
            )
            return library.GPT2LMHeadModel(config)
        case "opt":
            sizes = {"ffn_dim": 16, "word_embed_proj_dim": 16}
            return library.OPTForCausalLM(library.OPTConfig(**TEXT | sizes))
        case "vit":
            return library.ViTModel(library.ViTConfig(**IMAGE))
        case _:
            text = TEXT | SPECIAL
            return library.CLIPModel(
                library.CLIPConfig(text_config=text, vision_config=IMAGE)
            )


def tensors(folder: Path) -> dict[str, tuple[str, str]]:
    """Return the file and the digest of every tensor, read by the safetensors package."""
    arrays = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                values = file.get_tensor(name).reshape(-1).contiguous().view(torch.uint8)
                arrays[name] = (path.name, sha256(values.numpy().tobytes()).hexdigest())
    return arrays


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file()
    }


@pytest.mark.parametrize(
    ("name", "table", "size", "way", "changed_keys"),
    [
        ("roberta", "", 48, "cubic", {"max_position_embeddings": 50}),
        ("gpt2", "", 20, "sinusoids", {"n_positions": 20}),
        ("opt", "", 48, "tile", {"max_position_embeddings": 48}),
        ("vit", "", (3, 6), "transformers", {"image_size": [12, 24]}),
        ("clip", "#vision", (6, 6), "bilinear", {"vision_config": {"image_size": 24}}),
        ("clip", "#text", 40, "linear", {"text_config": {"max_position_embeddings": 40}}),
    ],
)
def test_a_copy_differs_in_its_table_and_its_configuration(
    name: str,
    table: str,
    size: int | tuple[int, int],
    way: str,
    changed_keys: Mapping[str, Any],
    tmp_path: Path,
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    original_model = model(name)
    original_model.save_pretrained(
        source, max_shard_size="3KB" if name in ("gpt2", "vit") else "1GB"
    )
    (source / "sub").mkdir()
    (source / "sub" / "words.txt").write_text("words")
    source_files, stored = files(source), tensors(source)

    old = pp.load(f"{source}{table}")
    resized = pp.resize(old, to=size, how=way)
    write_checkpoint(f"{source}{table}", resized, copy)

    assert files(source) == source_files
    assert set(files(copy)) == set(source_files)
    copied = tensors(copy)
    assert list(copied) == list(stored)
    assert [key for key in stored if copied[key] != stored[key]] == [old.source.tensor]
    config, old_config = (
        json.loads((folder / "config.json").read_bytes()) for folder in (copy, source)
    )
    for key, value in changed_keys.items():
        old_config[key] = old_config[key] | value if isinstance(value, dict) else value
    assert config == old_config

    back = pp.load(f"{copy}{table}")
    assert np.array_equal(back.values, resized.values)
    assert back.layout == resized.layout
    assert back.prefix is None or np.array_equal(back.prefix, np.asarray(old.prefix))
    reloaded = type(original_model).from_pretrained(copy)
    with torch.no_grad():
        if isinstance(size, tuple) and name == "vit":
            reloaded(torch.zeros(1, 3, 4 * size[0], 4 * size[1]))
        elif isinstance(size, int) and name != "clip":
            reloaded(torch.full((1, size), 3))


def test_an_index_states_the_new_size(tmp_path: Path) -> None:
    model("gpt2").save_pretrained(tmp_path / "source", max_shard_size="3KB")
    resized = pp.resize(pp.load(str(tmp_path / "source")), to=64, how="tile")
    write_checkpoint(str(tmp_path / "source"), resized, tmp_path / "copy")
    old_tensors, new_tensors = (
        json.loads((tmp_path / name / "model.safetensors.index.json").read_bytes())
        for name in ("source", "copy")
    )
    assert old_tensors["weight_map"] == new_tensors["weight_map"]
    assert (
        new_tensors["metadata"]["total_size"] - old_tensors["metadata"]["total_size"]
        == 32 * 16 * 4
    )


def test_timm_builds_the_copy_at_its_new_size(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "img_size": 32,
        "patch_size": 8,
        "embed_dim": 16,
        "depth": 1,
        "num_heads": 2,
    }
    original_model = timm.create_model("vit_tiny_patch16_224", num_classes=3, **sizes)
    source = tmp_path / "source"
    options: dict[str, Any] = {"model_config": {"num_classes": 3}, "model_args": sizes}
    save_for_hf(original_model, str(source), **options, safe_serialization=True)
    resized = pp.resize(pp.load(str(source)), to=(6, 6), how="bicubic")
    write_checkpoint(str(source), resized, tmp_path / "copy")
    rebuilt: Any = timm.create_model(f"local-dir:{tmp_path / 'copy'}", pretrained=True)
    assert np.array_equal(rebuilt.pos_embed[0, 1:].detach().numpy(), resized.values)
    rebuilt(torch.zeros(1, 3, 48, 48))


@pytest.mark.parametrize("shape", [(1, 4, 5, 3), (4, 5, 3), (1, 3, 6, 6), (20, 1, 3)])
def test_every_way_to_store_a_table_is_kept(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    values = np.random.default_rng(0).normal(size=shape).astype(np.float16)
    other_tensors: dict[str, Any] = {
        "a": np.arange(3, dtype=np.int8),
        "z": np.ones((2, 2), np.float32),
    }
    name = "wpe.weight" if shape[1] == 1 else "pos_embed"
    save_file({name: values, **other_tensors}, tmp_path / "one.safetensors")
    old = pp.load(str(tmp_path / "one.safetensors"))
    sequence = isinstance(old.layout, pp.layouts.Sequence)
    resized = pp.resize(old, to=30 if sequence else (7, 7), how="tile")
    copy = tmp_path / "copy"
    write_checkpoint(str(tmp_path / "one.safetensors"), resized, copy)
    back = pp.load(str(copy / "one.safetensors"))
    assert np.array_equal(back.values, resized.values)
    assert back.source.shape is not None
    assert (back.source.dtype, len(back.source.shape)) == ("F16", len(shape))
    old_tensors, new_tensors = tensors(tmp_path), tensors(copy)
    assert all(old_tensors[name] == new_tensors[name] for name in other_tensors)


def test_bfloat16_is_rounded_as_pytorch_does() -> None:
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    values[:2] = 1 + 2**-8, 1 + 3 * 2**-8  # ties, which go to the even number
    expected = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    ours = widen_bfloat16(np.frombuffer(encode_values(values, "BF16"), "<u2"))
    assert np.array_equal(ours, expected)


def test_weights_in_other_formats_are_left_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    model("bert").save_pretrained(source)
    (source / "pytorch_model.bin").write_bytes(b"old")
    resized = pp.resize(pp.load(str(source)), to=40, how="linear")
    copied = write_checkpoint(str(source), resized, tmp_path / "copy")
    assert not (tmp_path / "copy" / "pytorch_model.bin").exists()
    assert "pytorch_model.bin" in copied.omitted_files


# What is refused, and what it leaves.


def test_a_place_that_is_taken_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    model("bert").save_pretrained(source)
    for place, says in (
        (source, "it exists"),
        (tmp_path, "it exists"),
        (source / "copy", "inside the checkpoint"),
        (tmp_path / "no" / "copy", "no folder"),
    ):
        with pytest.raises(OutputError, match=says):
            check_copy_folder(str(source), place)
    with pytest.raises(UsageError, match="is not a checkpoint"):
        check_copy_folder("sinusoidal:8x4", tmp_path / "copy")


def test_only_safetensors_checkpoints_are_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.zeros((8, 4), np.float32))
    torch.save({"wpe.weight": torch.zeros(8, 4)}, tmp_path / "table.bin")
    for name in ("table.npy", "table.bin"):
        resized = pp.resize(pp.load(str(tmp_path / name)), to=16, how="tile")
        with pytest.raises(UsageError, match="only checkpoints in safetensors"):
            write_checkpoint(str(tmp_path / name), resized, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()


def test_a_copy_that_would_be_misread_is_not_left(tmp_path: Path) -> None:
    # The grid of a spectrogram follows from lengths and strides, which nothing here changes.
    config = {
        "model_type": "audio-spectrogram-transformer", "num_mel_bins": 8, "max_length": 12,
        "patch_size": 4, "frequency_stride": 2, "time_stride": 2,
    }  # fmt: skip
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text(json.dumps(config))
    table = np.random.default_rng(0).normal(size=(1, 2 + 3 * 5, 4)).astype(np.float32)
    save_file({"embeddings.position_embeddings": table}, source / "model.safetensors")
    resized = pp.resize(pp.load(str(source)), to=(6, 10), how="tile")
    with pytest.raises(OutputError, match="states the size in a way that is not known"):
        write_checkpoint(str(source), resized, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_tables_that_share_a_key_of_the_configuration_are_refused(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "vocab_size": 50,
        "max_position_embeddings": 32,
    }  # fmt: skip
    library.BartModel(library.BartConfig(**sizes)).save_pretrained(tmp_path / "source")
    ref = f"{tmp_path / 'source'}#decoder"
    resized = pp.resize(pp.load(ref), to=48, how="tile")
    with pytest.raises(OutputError, match=r"one size for decoder.* and for encoder"):
        write_checkpoint(ref, resized, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


# The command.


def test_written_tables_are_read_back_equal(cli: Cli) -> None:
    ref = "sample:digits-vit"
    completed = cli(
        "resize", ref, "--to", "6x10", "--how", "fourier", "-o", "new.csv", "--quiet"
    )
    assert (completed.code, completed.out.strip()) == (0, "new.csv")
    resized = pp.resize(pp.load(ref), to=(6, 10), how="fourier")
    back = pp.load("new.csv", grid=(6, 10))
    assert np.array_equal(back.values.astype(np.float32), resized.values)


def test_without_a_file_the_command_compares(tmp_path: Path, cli: Cli) -> None:
    completed = cli(
        "resize", "rotary:64x8", "--to", "256", "--json", "--quiet", "--out", "bundle"
    )
    document = json.loads(completed.out)
    assert [rule["rule"] for rule in document["rules"]][:2] == ["none", "linear"]
    assert json.loads((tmp_path / "bundle" / "analysis.json").read_bytes()) == document
    assert "from 64 positions to 256" in (tmp_path / "bundle" / "report.html").read_text()


TILE = ("--to", "9", "--how", "tile")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["sample:digits-vit", "--to", "6x6", "-o", "new.npy"], 2, "--how is missing"),
        (
            ["old.npy", "--to", "six", "--how", "tile", "-o", "new.npy"],
            2,
            "expected N for a",
        ),
        (["old.npy", *TILE, "-o", "n.txt"], 2, "the suffix"),
        (["rotary:64x8", "--to", "128", "--how", "tile", "-o", "new.npy"], 5, "no table"),
        (["old.npy", *TILE, "-o", "old.npy"], 2, "read from this file"),
        (["old.npy", *TILE, "-o", "n.npy", "--text", "t"], 2, "comparison"),
        (["old.npy", *TILE, "-o", "n.npy", "--json"], 2, "the comparison"),
        (["old.npy", "--to", "9", "--text", "no.txt"], 3, "no such file"),
        (["old.npy", "--to", "9", "--text", "old.npy"], 3, "no model can be built"),
        (
            ["rotary:64x8", "--to", "128", "--text", "old.npy"],
            2,
            "not a model that can be run",
        ),
        (["alibi:64x4", "--to", "128"], 5, "the biases of ALiBi"),
        (
            ["old.npy", *TILE, "--into", "new", "--rows", "0:3"],
            2,
            "resizes the whole table",
        ),
    ],
)
def test_wrong_usage_is_one_clear_error(
    arguments: list[str], code: int, says: str, tmp_path: Path, cli: Cli
) -> None:
    np.save("old.npy", np.random.default_rng(0).normal(size=(8, 4)))
    files_before = files(tmp_path)
    completed = cli("resize", *arguments)
    assert (completed.code, completed.out) == (code, "")
    assert says in completed.err
    assert files(tmp_path) == files_before


@pytest.mark.parametrize(
    "name", ["notes.txt", "config.json", "model.safetensors", "sub/vocab.txt"]
)
def test_a_link_out_of_a_checkpoint_is_not_copied(name: str, tmp_path: Path) -> None:
    source, elsewhere = tmp_path / "source", tmp_path / "elsewhere"
    model("bert").save_pretrained(source)
    resized = pp.resize(pp.load(str(source)), to=48, how="linear")
    (source / "sub").mkdir()
    elsewhere.write_text("secret")
    place = source / name
    if place.exists():
        place.rename(elsewhere)
    place.symlink_to(elsewhere)
    with pytest.raises(InvalidCheckpoint, match=rf"{name}: .* link that leads out"):
        write_checkpoint(str(source), resized, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    # What lies in the checkpoint itself may be linked.
    (tmp_path / "elsewhere").rename(source / "inside.bak")
    place.unlink()
    place.symlink_to(source / "inside.bak")
    write_checkpoint(str(source), resized, tmp_path / "copy")
    assert len(pp.load(str(tmp_path / "copy"))) == 48
    assert not (tmp_path / "copy" / name).is_symlink()
