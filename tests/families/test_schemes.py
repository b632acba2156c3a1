"""Encodings without a table, read back from checkpoints: equal to what the libraries compute."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import transformers
from made_checkpoints import model_folder
from safetensors.numpy import load_file, save_file
from timm.models import save_for_hf

from posprobe import load, load_schemes, product
from posprobe.encodings import alibi_slopes, t5_buckets
from posprobe.errors import (
    InvalidCheckpoint,
    InvalidTable,
    NoPositionTable,
    UnknownReference,
    UsageError,
)
from posprobe.families import inspect
from posprobe.layouts import Grid, Sequence
from posprobe.schemes import (
    MAX_KERNEL_ROWS,
    LinearBias,
    RelativeBias,
    Rotary,
    describe_scheme,
)
from posprobe.sources import Source

SOURCE = Source(reference="made", resolved="made")


def randomised(model: Any) -> Any:
    """Give every parameter a value of its own: initial biases are often zero."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return model


def saved(model: Any, folder: Path) -> str:
    if isinstance(randomised(model), transformers.PreTrainedModel):
        model.save_pretrained(folder)
    else:
        save_for_hf(model, str(folder), safe_serialization=True)
    return str(folder)


def relative(reference: str) -> list[RelativeBias]:
    records = load_schemes(reference)
    assert all(isinstance(record, RelativeBias) for record in records)
    return [record for record in records if isinstance(record, RelativeBias)]


def numbers(tensor: torch.Tensor) -> Any:
    return tensor.detach().numpy().astype(np.float64)


# What the libraries compute


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (16, 40), (8, 20)])
def test_t5(tmp_path: Path, buckets: int, farthest: int) -> None:
    """Biases are the library's, and their reach is where its last bucket begins."""
    config = transformers.T5Config(
        d_model=16, d_kv=4, d_ff=16, num_layers=2, num_heads=4, vocab_size=30,
        relative_attention_num_buckets=buckets, relative_attention_max_distance=farthest,
    )  # fmt: skip
    model: Any = transformers.T5Model(config)
    folder, file = saved(model, tmp_path), tmp_path / "model.safetensors"
    # As T5 1.0 is published: with a bias between decoder and encoder that nothing uses.
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    save_file(load_file(file) | {unused: np.ones((buckets, 4), np.float32)}, file)
    biases = relative(folder)
    records = {record.name: record for record in biases}
    assert sorted(record.name for record in biases) == ["decoder", "encoder"]
    assert all(
        str(bias.source.tensor).startswith(f"{bias.name}.block.0.layer.0.")
        for bias in biases
    )
    for name, record in records.items():
        assert record.causal == (name == "decoder")
        attention = getattr(model, name).block[0].layer[0].SelfAttention
        expected = numbers(attention.compute_bias(300, 300)[0])
        np.testing.assert_array_equal(record.kernel(300), expected)
        library_buckets = attention._relative_position_bucket(
            -torch.arange(500), bidirectional=not record.causal, num_buckets=buckets,
            max_distance=farthest,
        ).tolist()  # fmt: skip
        assert (
            describe_scheme(record)["reach"]
            == library_buckets.index(library_buckets[-1])
            < farthest
        )


@pytest.mark.parametrize("norm", ["none", "layer_norm"])
def test_deberta(tmp_path: Path, norm: str) -> None:
    """As of version 3 vectors are normalised before they are used."""
    make: Any = transformers.DebertaV2Config
    config = make(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        vocab_size=30, max_position_embeddings=64, relative_attention=True, position_buckets=8,
        norm_rel_ebd=norm, position_biased_input=False, pos_att_type=["c2p", "p2c"],
    )  # fmt: skip
    model: Any = transformers.DebertaV2Model(config)
    (record,) = relative(saved(model, tmp_path))
    vectors = numbers(model.encoder.get_rel_embedding())
    index = numbers(model.encoder.get_rel_pos(torch.zeros(1, 40, 16)).float())[0].astype(
        int
    )
    middle = vectors[8]
    cosines = vectors @ middle / np.linalg.norm(vectors, axis=1) / np.linalg.norm(middle)
    expected = cosines[np.clip(index + 8, 0, 15)]
    np.testing.assert_allclose(record.kernel(40)[0], expected, atol=1e-5)


def test_the_reach_of_clipped_vectors_is_their_number_unless_equal_earlier() -> None:
    values = np.random.default_rng(0).standard_normal((2, 41))
    for length, reach in ((22, 20), (500, 20), (21, None), (10, None)):
        record = RelativeBias(values, Sequence(length), "r", SOURCE)
        assert (
            describe_scheme(record)["reach"] == reach
        )  # of 21 positions none is farther apart than 20
    equal = values.copy()
    equal[:, :8], equal[:, 33:] = (
        equal[:, :1],
        equal[:, -1:],
    )  # offsets from -20 to -13, 13 to 20
    assert describe_scheme(RelativeBias(equal, Sequence(500), "r", SOURCE))["reach"] == 13
    hidden = values.copy()
    hidden[:, :8] = hidden[:, :1]
    for causal, reach in ((True, 13), (False, 20)):
        record = RelativeBias(hidden, Sequence(500), "r", SOURCE, causal=causal)
        assert describe_scheme(record)["reach"] == reach


@pytest.mark.parametrize("n", ["5", 5.5, None, True, np.arange(2)])
@pytest.mark.parametrize("reference", ["alibi:32x4", "t5:64x32", "rotary:64x8"])
def test_a_number_of_positions_that_is_no_whole_number_is_refused(
    reference: str, n: Any
) -> None:
    (record,) = load_schemes(reference)
    for method in (record.curves, record.kernel):
        with pytest.raises(UsageError, match=f"{reference}.*not a whole number"):
            method(n)
    numpy_count: Any = np.int64(5)
    np.testing.assert_array_equal(record.kernel(numpy_count), record.kernel(5))


@pytest.mark.parametrize(
    ("heads", "bias_max"),
    [*((heads, 8.0) for heads in (0, -1, 2.5, 4.0, "4", None, True, 10**12)),
     *((8, max_bias) for max_bias in (0, -1.0, "8", None, float("inf"), True))],
)  # fmt: skip
def test_slopes_of_no_number_of_heads_or_exponent_are_refused(
    heads: Any, bias_max: Any
) -> None:
    with pytest.raises(UsageError, match=r"alibi: .*(from 1 to|whole number)"):
        alibi_slopes(heads, bias_max=bias_max)


def test_mpnet_has_a_table_and_a_bias(tmp_path: Path) -> None:
    config = transformers.MPNetConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=4, intermediate_size=8,
        vocab_size=30, max_position_embeddings=42,
    )  # fmt: skip
    model: Any = transformers.MPNetModel(config)
    reference = saved(model, tmp_path)
    assert [item["scheme"] for item in inspect(reference)] == ["learned", "relative"]
    assert len(load(reference)) == 40
    (record,) = relative(reference)
    expected = model.encoder.compute_position_bias(torch.zeros(1, 40, 16))[0]
    np.testing.assert_array_equal(record.kernel(40), numbers(expected))
    assert record.layout == Sequence(40)


def by_index(table: Any, index: Any) -> Any:
    """Biases ``[heads, queries, keys]`` whose entries ``index`` picks."""
    side = math.isqrt(index.numel())
    return numbers(table[index.reshape(-1)]).reshape(side, side, -1).transpose(2, 0, 1)


def swin(window: int) -> Any:
    return transformers.SwinModel(
        transformers.SwinConfig(
            image_size=32, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 4],
            window_size=window,
        )
    )  # fmt: skip


def swin_v2() -> Any:
    """The second stage's map of features is 4 x 4, so its window is no larger."""
    return transformers.Swinv2Model(
        transformers.Swinv2Config(
            image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 4],
            window_size=8, pretrained_window_sizes=[0, 2],
        )
    )  # fmt: skip


def of_timm(name: str) -> Any:
    return timm.create_model(
        name, embed_dim=8, depths=(1, 1), num_heads=(2, 4), num_classes=0
    )


def continuous(mlp: Any, module: Any) -> Any:
    table = mlp(module.relative_coords_table)
    index = module.relative_position_index
    return by_index(16 * torch.sigmoid(table.reshape(-1, table.shape[-1])), index)


#: Models with windows: the parameter that marks a module of them, what its biases are by the
#: library, the sides of the windows, and how much its single precision may differ.
WINDOWS: dict[str, tuple[Callable[[], Any], str, Callable[[Any], Any], list[int], float]] = {
    **{
        f"swin, windows of {side}": (
            partial(swin, side), "relative_position_bias_table",
            lambda m: by_index(m.relative_position_bias_table, m.relative_position_index),
            [side, side], 0,
        )
        for side in (2, 4)
    },
    "swin of timm": (
        lambda: of_timm("swin_tiny_patch4_window7_224"), "relative_position_bias_table",
        lambda m: numbers(m._get_rel_pos_bias()[0]), [7, 7], 0,
    ),
    "swin v2": (
        swin_v2, "continuous_position_bias_mlp",
        lambda m: continuous(m.continuous_position_bias_mlp, m), [8, 4], 1e-4,
    ),
    "swin v2 of timm": (
        lambda: of_timm("swinv2_tiny_window8_256"), "cpb_mlp",
        lambda m: continuous(m.cpb_mlp, m), [8, 8], 1e-4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
def test_biases_of_windows(tmp_path: Path, name: str) -> None:
    build, mark, expected, sides, atol = WINDOWS[name]
    torch.manual_seed(0)
    model = build()
    records = relative(saved(model, tmp_path))
    modules = [module for module in model.modules() if hasattr(module, mark)]
    assert [record.layout for record in records] == [Grid(side, side) for side in sides]
    assert [record.name for record in records] == ["layers.0", "layers.1"]
    for record, module in zip(records, modules, strict=True):
        kernel = record.kernel(record.layout.size)
        np.testing.assert_allclose(kernel, expected(module), rtol=0, atol=atol)


def test_beit_keeps_the_biases_of_cls_apart(tmp_path: Path) -> None:
    config = transformers.BeitConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=4, intermediate_size=8,
        image_size=16, patch_size=4, use_relative_position_bias=True,
    )  # fmt: skip
    model: Any = transformers.BeitModel(config)
    (record,) = relative(saved(model, tmp_path))
    expected = numbers(model.layers[0].relative_position_bias((4, 4))[0])
    np.testing.assert_array_equal(record.kernel(16), expected[:, 1:, 1:])
    np.testing.assert_array_equal(record.special["CLS to token"], expected[:, 0, 5])
    np.testing.assert_array_equal(record.special["token to CLS"], expected[:, 5, 0])
    np.testing.assert_array_equal(record.special["CLS to CLS"], expected[:, 0, 0])


def test_levit(tmp_path: Path) -> None:
    model: Any = transformers.LevitModel(
        transformers.LevitConfig(
            image_size=64, hidden_sizes=[16, 24, 32], num_attention_heads=[2, 3, 4],
            depths=[1, 1, 1], key_dim=[4, 4, 4],
        )
    )  # fmt: skip
    records = {
        record.source.tensor: record for record in relative(saved(model, tmp_path))
    }
    checked = 0
    module: Any
    for name, module in model.named_modules():
        tensor = f"{name}.attention_biases"
        if tensor in records and "Subsample" not in type(module).__name__:
            record = records[tensor]
            expected = numbers(module.attention_biases[:, module.attention_bias_idxs])
            np.testing.assert_array_equal(record.kernel(record.layout.size), expected)
            checked += 1
    assert checked == 3


def test_sam_gives_cosines_of_the_vectors_of_a_distance(tmp_path: Path) -> None:
    config = transformers.SamVisionConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=4,
        window_size=3, global_attn_indexes=[], output_channels=8,
    )  # fmt: skip
    model: Any = transformers.SamVisionModel(config)
    (record,) = relative(saved(model, tmp_path))
    attention = model.vision_encoder.layers[0].attn
    rows, columns = numbers(attention.rel_pos_h), numbers(attention.rel_pos_w)
    assert (record.layout, record.quantity) == (Grid(3, 3), "cosine")

    def cosine(table: Any, query: int, key: int) -> float:
        # SAM counts query minus key.
        vector, middle = table[query - key + 2], table[2]
        return float(vector @ middle / np.linalg.norm(vector) / np.linalg.norm(middle))

    kernel = record.kernel(9)[0]
    for query in range(9):
        for key in range(9):
            down = cosine(rows, query // 3, key // 3)
            column_cosines = cosine(columns, query % 3, key % 3)
            assert kernel[query, key] == pytest.approx(
                (down + column_cosines) / 2, abs=1e-6
            )


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (  # as transformers wrote it before
            {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
            (16, 16, 500.0, "linear"),
        ),
        (
            {
                "rope_parameters": {
                    "rope_type": "linear",
                    "factor": 2.0,
                    "rope_theta": 500.0,
                }
            },
            (16, 16, 500.0, "linear"),
        ),
        (
            {"model_type": "gpt_neox", "rotary_pct": 0.25, "rotary_emb_base": 100},
            (4, 16, 100.0, "default"),
        ),
        (  # no rule is named, so that the factor has no effect
            {"rope_theta": 1e4, "rope_scaling": {"rope_type": None, "factor": 8.0}},
            (16, 16, 1e4, "default"),
        ),
    ],
)
def test_keys_of_all_years_are_read(
    config: dict[str, Any], expected: tuple[Any, ...], tmp_path: Path
) -> None:
    record = from_config(tmp_path, hidden_size=64, num_attention_heads=4, **config)
    assert (record.rotated, record.head_dim, record.base, record.rule) == expected


@pytest.mark.parametrize("heads", [4, 12])
def test_bloom_and_mpt(tmp_path: Path, heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    n, width = 20, 4 * heads
    bloom = transformers.BloomConfig(
        hidden_size=width, n_head=heads, n_layer=1, vocab_size=9
    )
    mpt = transformers.MptConfig(
        d_model=width, n_heads=heads, n_layers=1, vocab_size=9, max_seq_len=n
    )
    mask = torch.ones(1, n)
    bias: Any = build_mpt_alibi_tensor
    for model, expected in (
        (transformers.BloomModel(bloom), build_alibi_tensor(mask, heads, torch.float32)),
        (transformers.MptModel(mpt), bias(heads, n)),
    ):
        (record,) = load_schemes(saved(model, tmp_path / model.config.model_type))
        assert isinstance(record, LinearBias)
        # Biases are given per key: what softmax sees of a row is the same up to a constant.
        last_query, library_bias = record.kernel(n)[:, -1], numbers(expected)[:, 0]
        np.testing.assert_allclose(
            last_query - last_query[:, :1], library_bias - library_bias[:, :1], atol=1e-5
        )
        length = record.max_positions
    assert length == n  # of MPT, which calls it max_seq_len


# The records themselves


def made(values: Any, layout: Any = None, **options: Any) -> RelativeBias:
    values = np.asarray(values, dtype=float)
    return RelativeBias(values, layout or Sequence(8), "made", SOURCE, **options)


def test_a_kernel_depends_on_the_offset_alone_and_is_clamped() -> None:
    record = made([[3.0, 2.0, 1.0, 0.0, -1.0]])
    kernel = record.kernel(6)[0]
    for query in range(6):
        for key in range(6):
            assert kernel[query, key] == 1.0 - np.clip(key - query, -2, 2)


def test_impossible_records_are_refused() -> None:
    window = made(np.zeros((2, 3, 5)), Grid(2, 3))
    assert window.kernel(6).shape == (2, 6, 6)
    with pytest.raises(UsageError, match="n is 6, not 7"):
        window.kernel(7)
    for values in (np.zeros((0, 5)), np.zeros((2, 4)), np.full((1, 3), np.nan)):
        with pytest.raises(InvalidTable):
            made(values)


def test_a_kernel_that_no_memory_holds_is_refused() -> None:
    record = LinearBias(alibi_slopes(8), "made", SOURCE)
    with pytest.raises(UsageError, match=r"curves\(n\)"):
        record.kernel(MAX_KERNEL_ROWS + 1)
    assert record.curves(MAX_KERNEL_ROWS + 1).shape == (8, 2 * MAX_KERNEL_ROWS + 1)


def test_a_table_has_the_kernel_of_its_cosines() -> None:
    table = load("sinusoidal:16x8")
    kernel = table.kernel(16)
    assert kernel.shape == (1, 16, 16)
    np.testing.assert_allclose(table.curves(16)[0, 15:], kernel[0, 0], atol=1e-12)
    with pytest.raises(UsageError):
        table.kernel(17)


# Formulas


def test_formulas_become_records() -> None:
    (rotary,) = load_schemes("rotary:2048x64,base=500,yarn=4")
    assert isinstance(rotary, Rotary)
    assert (rotary.rule, rotary.training_length, rotary.base) == ("yarn", 2048, 500.0)
    (alibi,) = load_schemes("alibi:128x12")
    assert isinstance(alibi, LinearBias)
    np.testing.assert_array_equal(alibi.slopes, alibi_slopes(12))
    (buckets,) = load_schemes("t5:256x32")
    steps = buckets.curves(256)[0, 255:]
    expected = t5_buckets(np.arange(256)) % 16
    np.testing.assert_array_equal(-steps, expected)
    with pytest.raises(NoPositionTable):
        load_schemes("sinusoidal:8x4")
    with pytest.raises(NoPositionTable, match="a position table and no other encoding"):
        load_schemes("sample:digits-vit")
    with pytest.raises(NoPositionTable):
        load("rotary:64x8")


# Bad input


def from_config(folder: Path, **config: Any) -> Any:
    (record,) = load_schemes(model_folder(folder, {}, **config))
    return record


#: A rule whose factor is missing.
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "original_max_position_embeddings": 128}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"rope_theta": 1e4}, "width of a head"),
        (
            {"rope_theta": 1e4, "hidden_size": 64, "num_attention_heads": 0},
            "num_attention_heads",
        ),
        (
            {"rope_theta": 1e4, "hidden_size": 2, "num_attention_heads": 4},
            "width of a head",
        ),
        ({"rope_theta": -1, "head_dim": 8}, "rope_theta as -1"),
        ({"rope_theta": "large", "head_dim": 8}, "rope_theta"),
        ({"rope_theta": 1e4, "head_dim": "128"}, "'128'"),
        ({"rope_theta": 1e4, "head_dim": 10**9}, "head_dim"),
        ({"rope_theta": 1e4, "head_dim": 8, "max_position_embeddings": "512"}, "'512'"),
        ({"rope_parameters": [1], "head_dim": 8}, "mapping"),
        (
            {"rope_parameters": YARN, "head_dim": 8, "max_position_embeddings": 512},
            "factor",
        ),
        ({"model_type": "bloom"}, "how many heads"),
        ({"model_type": "bloom", "n_head": 0}, "n_head"),
        ({"model_type": "falcon", "alibi": "false"}, "true or false"),
        ({"architecture": "vit_small_patch16_rope_224", "head_dim": 64}, "timm's code"),
    ],
)
def test_a_configuration_that_cannot_be_is_one_clear_error(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidCheckpoint, match=message):
        from_config(tmp_path, **config)


@pytest.mark.parametrize(
    ("name", "shape", "config", "message"),
    [
        ("b.relative_position_bias_table", (14, 3), {}, "displacements"),
        ("b.attention_biases", (4, 10), {}, "square window"),
        (
            "encoder.relative_attention_bias.weight", (30, 4),
            {"relative_attention_num_buckets": 32}, "relative_attention_num_buckets = 32",
        ),
        ("encoder.rel_embeddings.weight", (16, 4), {"position_buckets": 9}, "position_buckets"),
        (
            "encoder.relative_attention_bias.weight", (32, 4),
            {"relative_attention_max_distance": 1}, "32 buckets up to distance 1",
        ),
    ],
)  # fmt: skip
def test_a_bias_table_of_a_wrong_size_is_one_clear_error(
    tmp_path: Path,
    name: str,
    shape: tuple[int, ...],
    config: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(InvalidCheckpoint, match=message):
        load_schemes(model_folder(tmp_path, {name: np.ones(shape)}, **config))


def test_a_configuration_that_contradicts_the_tensors_is_refused(tmp_path: Path) -> None:
    queries = {"model.layers.0.self_attn.q_proj.weight": np.ones((64, 8))}
    with pytest.raises(InvalidCheckpoint, match="24 wide, which does not divide 64"):
        load_schemes(
            model_folder(tmp_path / "a", queries, model_type="llama", head_dim=24)
        )
    for rows in (300, 514):  # BERT reserves no rows
        table = {"embeddings.position_embeddings.weight": np.ones((rows, 8))}
        config = {"model_type": "bert", "max_position_embeddings": 512}
        with pytest.raises(InvalidCheckpoint, match="max_position_embeddings = 512"):
            load(model_folder(tmp_path / "b", table, **config))


def test_a_name_that_is_not_there_lists_those_that_are(tmp_path: Path) -> None:
    tensors = {
        f"{part}.relative_attention_bias.weight": np.ones((32, 2), np.float32)
        for part in ("encoder", "decoder")
    }
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(UnknownReference, match=r"nosuch.*posprobe inspect"):
        load_schemes(f"{tmp_path}/model.safetensors#nosuch")


# Factored tables


def test_reformer_is_the_product_of_its_axes(tmp_path: Path) -> None:
    from transformers.models.reformer.modeling_reformer import AxialPositionEmbeddings

    config = transformers.ReformerConfig(
        hidden_size=12, axial_pos_embds_dim=[4, 8], axial_pos_shape=[3, 5],
        attn_layers=["local"], num_attention_heads=1, feed_forward_size=8, vocab_size=9,
        max_position_embeddings=15, local_attn_chunk_length=5, attention_head_size=4,
    )  # fmt: skip
    reference = saved(transformers.ReformerModel(config), tmp_path)
    names = [item["name"] for item in inspect(reference)]
    assert len(names) == 2
    rows, columns = (load(f"{reference}#{name}") for name in names)
    table = product(rows, columns, how="concatenate")
    assert table.layout == Grid(3, 5)
    build: Any = AxialPositionEmbeddings
    embedding = build(config).eval()
    with torch.no_grad():
        for weight, part in zip(embedding.weights, (rows, columns), strict=True):
            weight.copy_(torch.tensor(np.array(part.values)).reshape(weight.shape))
        expected = numbers(embedding(torch.arange(15)[None])[0])
    np.testing.assert_array_equal(table.values, expected)


def test_products_of_tables() -> None:
    rows, columns = load("counting:3x2"), load("counting:4x2")
    sum_table = product(rows, columns, how="add")
    expected = np.add.outer(np.arange(3), np.arange(4)).ravel()
    np.testing.assert_array_equal(sum_table.values[:, 0], expected)
    bad_operand: Any
    by_reference = product(rows, "counting:4x2", how="add")
    np.testing.assert_array_equal(by_reference.values, sum_table.values)
    for bad_operand in (rows.values, load_schemes("alibi:32x4")[0]):
        with pytest.raises(UsageError, match=r"not a table\. .*posprobe\.table"):
            product(rows, bad_operand, how="add")
    bad_operand = "sum"
    with pytest.raises(UsageError, match='"add" or "concatenate"'):
        product(rows, rows, how=bad_operand)
    with pytest.raises(UsageError, match="cannot be added"):
        product(rows, load("counting:4x3"), how="add")
    with pytest.raises(UsageError, match="is a grid"):
        product(rows, load("sincos2d:2x2x4"), how="add")
    with pytest.raises(UsageError, match="Cut the tables"):
        product(load("counting:1000x1"), load("counting:1000x1"), how="add")
