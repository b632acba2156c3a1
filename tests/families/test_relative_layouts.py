"""Ways of storing relative positions that the larger libraries use less: against their own code.

Where a distance has a vector and no number, the library's own vector for every pair of positions is
compared with the vector of distance 0.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from made_checkpoints import model_folder

from posprobe import load_schemes
from posprobe.errors import InvalidCheckpoint
from posprobe.families.relative import RelativeRule, load_relative_rules
from posprobe.layouts import Sequence
from posprobe.schemes import RelativeBias, describe_scheme
from posprobe.studies import analyze_schemes


def read(folder: Path, tensors: dict[str, Any], **config: Any) -> RelativeBias:
    (record,) = load_schemes(model_folder(folder, tensors, **config))
    assert isinstance(record, RelativeBias)
    return record


def random(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def cosines(vectors: Any, middle: Any) -> Any:
    """Cosine of each vector ``[..., d]`` with one; 0 where a vector is 0."""
    length = np.linalg.norm(vectors, axis=-1) * np.linalg.norm(middle)
    product = vectors @ middle
    return np.divide(product, length, out=np.zeros_like(product), where=length > 0)


def test_wavlm(tmp_path: Path) -> None:
    from transformers.models.wavlm import modeling_wavlm

    make: Any = modeling_wavlm.WavLMAttention
    attention = make(
        16, 4, num_buckets=32, max_distance=80, has_relative_position_bias=True
    )
    table = random(32, 4)
    attention.rel_attn_embed.weight.data = torch.tensor(table)
    name = "encoder.layers.0.attention.rel_attn_embed.weight"
    record = read(tmp_path, {name: table}, num_buckets=32, max_bucket_distance=80)
    expected = attention.compute_bias(100, 100).detach().numpy()
    np.testing.assert_array_equal(record.kernel(100), expected)


def layoutlmv3_encoder() -> Any:
    from transformers.models.layoutlmv3 import modeling_layoutlmv3

    config = transformers.LayoutLMv3Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=4, intermediate_size=8,
        visual_embed=False, vocab_size=9,
    )  # fmt: skip
    make: Any = modeling_layoutlmv3.LayoutLMv3Encoder
    return make(config)


def test_layoutlmv3(tmp_path: Path) -> None:
    encoder = layoutlmv3_encoder()
    weight = random(4, 32)
    encoder.rel_pos_bias.weight.data = torch.tensor(weight)
    record = read(
        tmp_path, {"encoder.rel_pos_bias.weight": weight}, num_attention_heads=4
    )
    expected = encoder._cal_1d_pos_emb(torch.arange(50)[None])[0].detach().numpy()
    np.testing.assert_array_equal(record.kernel(50), expected)


@pytest.mark.parametrize("axis", ["x", "y"])
def test_layoutlmv3_counts_thousandths_of_the_page(tmp_path: Path, axis: str) -> None:
    encoder = layoutlmv3_encoder()
    weight = random(4, 64)
    for name in "xy":
        bias = getattr(encoder, f"rel_pos_{name}_bias")
        bias.weight.data = torch.tensor(weight if name == axis else np.zeros_like(weight))
    record = read(
        tmp_path, {f"encoder.rel_pos_{axis}_bias.weight": weight}, num_attention_heads=4
    )  # fmt: skip
    boxes = torch.zeros(1, 1001, 4, dtype=torch.long)
    boxes[0, :, 0 if axis == "x" else 3] = torch.arange(1001)
    np.testing.assert_array_equal(
        record.kernel(1001), encoder._cal_2d_pos_emb(boxes)[0].detach().numpy()
    )
    assert record.layout == Sequence(1001)
    assert (
        record.unit == f"thousandths of the page's {'width' if axis == 'x' else 'height'}"
    )


def test_udop_has_biases_of_places_on_the_page(tmp_path: Path) -> None:
    """As the library computes them of boxes that lie at every hundredth of the page."""
    config = transformers.UdopConfig(
        d_model=16,
        d_kv=4,
        d_ff=16,
        num_layers=1,
        num_decoder_layers=1,
        num_heads=4,
        vocab_size=30,
    )
    model: Any = transformers.UdopForConditionalGeneration(config)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(tmp_path)
    records = [r for r in load_schemes(str(tmp_path)) if isinstance(r, RelativeBias)]
    page = [r for r in records if "page" in r.unit]
    assert len(records) == 4  # of the decoder's, the one that it uses
    assert [r.unit.split()[-1] for r in page] == ["width", "height"]
    assert [r.unit for r in records if r not in page] == ["positions"] * 2
    biases = model.encoder.relative_bias.biases[1:]
    page_positions = torch.arange(101) / 100
    offsets = torch.arange(101)[None] - torch.arange(101)[:, None]
    for record, bias, corners in zip(page, biases, ([0, 2], [1, 3]), strict=True):
        boxes = torch.full((1, 101, 4), 0.5)
        boxes[0, :, corners] = page_positions[:, None]
        expected = bias(torch.ones(1, 101), boxes)[0].detach().numpy()
        # Single precision makes 4.9999 hundredths of some five, which the library cuts off to four.
        is_same_offset = (
            bias.get_relative_position(page_positions[None])[0] == offsets
        ).numpy()
        assert is_same_offset.mean() > 0.7
        assert set(offsets[is_same_offset].tolist()) == set(range(-100, 101))
        np.testing.assert_array_equal(
            record.kernel(101)[:, is_same_offset], expected[:, is_same_offset]
        )
        assert any("not tokens" in note for note in record.notes)
    document = analyze_schemes(*records).to_dict()
    limit = next(
        a for a in document["verdict"]["answers"] if a["question"] == "bias_limit"
    )
    assert {scheme_facts["unit"] for scheme_facts in limit["facts"]["encodings"]} == {
        "positions", "hundredths of the page's width", "hundredths of the page's height",
    }  # fmt: skip


def test_udop_names_the_bias_that_is_unknown(tmp_path: Path) -> None:
    name = "encoder.relative_bias.biases.1.relative_attention_bias.weight"
    for config_value in ([{"type": "1d"}], ["1d", "vertical"], 7):
        with pytest.raises(InvalidCheckpoint, match="relative_bias_args"):
            read(
                tmp_path,
                {name: random(32, 4)},
                model_type="udop",
                relative_bias_args=config_value,
            )


def test_speecht5(tmp_path: Path) -> None:
    from transformers.models.speecht5 import modeling_speecht5

    make: Any = modeling_speecht5.SpeechT5RelativePositionalEncoding
    table = random(32, 8)
    encoding = make(8, 16)
    encoding.pe_k.weight.data = torch.tensor(table)
    record = read(tmp_path, {"encoder.embed_positions.pe_k.weight": table})
    vectors = encoding(torch.zeros(1, 40, 8)).detach().numpy()
    np.testing.assert_allclose(
        record.kernel(40)[0], cosines(vectors, table[16]), atol=1e-6
    )
    ends = [  # of earlier and of later keys, the last distance at which the vector changes
        np.flatnonzero((np.diff(side, axis=0) != 0).any(axis=1)).max() + 1
        for side in (vectors[-1, ::-1], vectors[0])
    ]
    assert describe_scheme(record)["reach"] == max(ends) == 16


def test_a_table_that_ends_with_the_models_positions_clips_nothing(
    tmp_path: Path,
) -> None:
    name = "encoder.layer.0.attention.self.distance_embedding.weight"
    record = read(
        tmp_path, {name: random(2 * 12 - 1, 4)}, model_type="bert", max_position_embeddings=12,
        position_embedding_type="relative_key",
    )  # fmt: skip
    assert record.layout == Sequence(12)
    assert describe_scheme(record)["reach"] is None


def test_wav2vec2_bert(tmp_path: Path) -> None:
    table = random(11, 4)
    record = read(
        tmp_path, {"encoder.layers.0.self_attn.distance_embedding.weight": table},
        model_type="wav2vec2-bert", left_max_position_embeddings=8, right_max_position_embeddings=2,
    )  # fmt: skip
    position = np.arange(30)
    index = (
        np.clip(position - position[:, None], -8, 2) + 8
    )  # as its forward pass computes it
    np.testing.assert_allclose(
        record.kernel(30)[0], cosines(table[index], table[8]), atol=1e-6
    )


def test_granite_speech(tmp_path: Path) -> None:
    config = transformers.GraniteSpeechEncoderConfig(
        num_layers=1,
        hidden_dim=16,
        num_heads=2,
        dim_head=8,
        context_size=12,
        max_pos_emb=16,
    )
    from transformers.models.granite_speech import modeling_granite_speech

    make: Any = modeling_granite_speech.GraniteSpeechCTCEncoder
    table, index = random(33, 8), make(config).attention_dists.numpy()
    record = read(tmp_path, {"encoder.layers.0.attn.rel_pos_emb.weight": table})
    np.testing.assert_allclose(
        record.kernel(12)[0], cosines(table[index], table[16]), atol=1e-6
    )


def test_vits_has_no_vector_beyond_its_window(tmp_path: Path) -> None:
    from transformers.models.vits import modeling_vits

    config = transformers.VitsConfig(hidden_size=16, num_attention_heads=2, window_size=4)
    make: Any = modeling_vits.VitsAttention
    attention, n = make(config), 20
    table = random(1, 9, 8)
    padded = attention._get_relative_embeddings(torch.tensor(table), n)[0]  # [2 n - 1, d]
    by_pair = attention._relative_position_to_absolute_position(
        padded.T[:, None].expand(-1, n, -1)
    )
    vectors = by_pair.permute(1, 2, 0).numpy()
    names = [f"text_encoder.encoder.layers.0.attention.emb_rel_{kind}" for kind in "kv"]
    record = read(tmp_path, dict.fromkeys(names, table), model_type="vits")
    np.testing.assert_allclose(
        record.kernel(n)[0], cosines(vectors, table[0, 4]), atol=1e-6
    )
    assert record.kernel(n)[0, 0, 5] == 0.0


@pytest.mark.parametrize("symmetric", [False, True])
def test_phi4_audio(tmp_path: Path, symmetric: bool) -> None:
    from transformers.models.phi4_multimodal import modeling_phi4_multimodal

    config = transformers.Phi4MultimodalAudioConfig(
        num_attention_heads=3, bias_max_distance=8, bias_symmetric=symmetric
    )
    make: Any = modeling_phi4_multimodal.Phi4MultimodalAudioRelativeAttentionBias
    bias = make(config)
    table, n = random(8 if symmetric else 16, 3), 7 if symmetric else 20
    bias.bias_values.weight.data = torch.tensor(table)
    name = "encoder.relative_attention_bias_layer.bias_values.weight"
    record = read(tmp_path, {name: table}, bias_symmetric=symmetric)
    expected = bias(torch.zeros(1, n, 4))[0].detach().numpy()
    np.testing.assert_array_equal(record.kernel(n), expected)


def test_botnet_of_timm(tmp_path: Path) -> None:
    from timm.layers.bottleneck_attn import PosEmbedRel

    make: Any = PosEmbedRel
    height, width, dim = 3, 5, 4
    embedding = make((height, width), dim, scale=1.0)
    rows, columns = random(2 * height - 1, dim), random(2 * width - 1, dim) + 1
    record = read(
        tmp_path, {"attn.pos_embed.height_rel": rows, "attn.pos_embed.width_rel": columns}
    )
    n = height * width
    kernel = record.kernel(n)[0]
    # A query that is one table's vector of distance 0, the other table being 0, meets that alone.
    for name, table, other_axis in (
        ("height_rel", rows, columns),
        ("width_rel", columns, rows),
    ):
        middle = table[len(table) // 2]
        setattr(embedding, name, torch.nn.Parameter(torch.tensor(table)))
        zero = "width_rel" if name == "height_rel" else "height_rel"
        setattr(embedding, zero, torch.nn.Parameter(torch.zeros(other_axis.shape)))
        query = torch.tensor(middle).expand(1, n, dim)
        logits = embedding(query)[0].detach().numpy()
        norms = np.linalg.norm(table, axis=1)
        kernel = kernel - _cosine(logits, norms, middle, name, height, width) / 2
    np.testing.assert_allclose(kernel, 0, atol=1e-6)


def _cosine(
    logits: Any, norms: Any, middle: Any, name: str, height: int, width: int
) -> Any:
    """Divide the logits of every pair by the norms of query and vector."""
    row, column = np.divmod(np.arange(height * width), width)
    place, size = (row, height) if name == "height_rel" else (column, width)
    return logits / norms[place - place[:, None] + size - 1] / np.linalg.norm(middle)


def test_the_heads_of_the_configuration_are_those_of_the_tensor(tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match="8 heads"):
        read(
            tmp_path,
            {"encoder.relative_attention_bias.weight": random(32, 4)},
            num_heads=8,
        )


READ_RULES = [rule for rule in load_relative_rules() if rule.kind != "projected"]


@pytest.mark.parametrize("shape", [(6,), (1, 2, 3, 4), (0, 8)], ids=str)
@pytest.mark.parametrize("rule", READ_RULES, ids=lambda rule: rule.tensors[0])
def test_a_relative_table_of_another_number_of_axes_is_named_with_its_shape(
    rule: RelativeRule, shape: tuple[int, ...], tmp_path: Path
) -> None:
    names = [f"layer.0.{ending}" for ending in rule.tensors]
    tensors = {name: np.zeros((3, 2)) for name in names} | {names[0]: np.zeros(shape)}
    with pytest.raises(
        InvalidCheckpoint, match=re.escape(f"{names[0]}, shape {list(shape)}: ")
    ):
        load_schemes(model_folder(tmp_path, tensors))


def test_vectors_of_another_width_than_their_norm_are_named_with_their_shape(
    tmp_path: Path,
) -> None:
    tensors = {
        "encoder.rel_embeddings.weight": random(16, 8),
        "encoder.LayerNorm.weight": random(4),
        "encoder.LayerNorm.bias": random(4),
    }
    folder = model_folder(tmp_path, tensors, norm_rel_ebd="layer_norm")
    with pytest.raises(
        InvalidCheckpoint, match=r"rel_embeddings.weight, shape \[16, 8\]"
    ):
        load_schemes(folder)
