"""How positions enter attention: explicit loops, the libraries that release each scheme, laws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.layers import bottleneck_attn, halo_attn
from timm.models import swin_transformer as timm_swin
from timm.models import swin_transformer_v2 as timm_swinv2
from transformers import (
    GPTNeoXConfig,
    LlamaConfig,
    MPNetConfig,
    Swinv2Config,
    T5Config,
)
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention
from transformers.models.t5.modeling_t5 import T5Attention

from posprobe.attention import (
    attend,
    continuous_bias,
    look_up,
    relative_logits,
    relative_logits_2d,
    rotate,
    shift_relative,
)
from posprobe.encodings.alibi import alibi_slopes
from posprobe.encodings.buckets import (
    log_spaced_offsets,
    t5_buckets,
    window_index,
)
from posprobe.encodings.rotary import rotation_angles
from posprobe.encodings.sinusoidal import frequencies, sinusoidal
from posprobe.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

quick = settings(max_examples=40, deadline=None, derandomize=True, database=None)


def noise(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def tensor(*shape: int, seed: int = 0) -> Any:
    return torch.from_numpy(noise(*shape, seed=seed)).float()


def randomised(kind: Any, *arguments: Any, **options: Any) -> Any:
    """A module of a library in evaluation mode, no parameter of which is zero or one."""
    module = kind(*arguments, **options)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(generator=generator)
    module.eval()
    return module


def same(found: Any, expected: Any, atol: float = 1e-5) -> None:
    assert tuple(found.shape) == tuple(expected.shape)
    np.testing.assert_allclose(
        torch.as_tensor(found).detach(), torch.as_tensor(expected).detach(), rtol=1e-5, atol=atol
    )


# --- one vector per position, one vector per offset ---


@quick
@given(st.integers(1, 9), st.lists(st.integers(1, 3), max_size=2))
def test_the_shift_is_a_gather(n: int, batch: list[int]) -> None:
    logits = noise(*batch, n, 2 * n - 1)
    found = shift_relative(logits)
    assert found.shape == (*batch, n, n)
    for i, j in np.ndindex(n, n):
        np.testing.assert_array_equal(found[..., i, j], logits[..., i, j - i + n - 1])


def test_of_four_tokens_column_0_is_distance_minus_3_and_column_6_is_plus_3() -> None:
    distances = np.tile(np.arange(-3, 4), (4, 1))
    i, j = np.indices((4, 4))
    np.testing.assert_array_equal(shift_relative(distances), j - i)


@quick
@given(st.integers(1, 6), st.integers(1, 5), st.booleans())
def test_relative_logits_are_products_of_queries_and_the_row_of_the_offset(
    n: int, d: int, per_head: bool
) -> None:
    shape = (3, 2 * n - 1, d) if per_head else (2 * n - 1, d)
    q, table = noise(2, 3, n, d), noise(*shape, seed=1)
    found = relative_logits(q, table)
    assert found.shape == (2, 3, n, n)
    for b, h, i, j in np.ndindex(found.shape):
        row = (table[h] if per_head else table)[j - i + n - 1]
        assert found[b, h, i, j] == pytest.approx(q[b, h, i] @ row)


def test_the_lower_triangle_is_the_causal_skew_of_music_transformer() -> None:
    n, d = 6, 4
    q, table = noise(2, n, d), noise(2 * n - 1, d, seed=1)
    product = q @ table[:n].T  # offsets -(n - 1) to 0
    padded = np.concatenate([np.zeros((2, n, 1)), product], axis=-1)
    skewed = padded.reshape(2, n + 1, n)[:, 1:]
    np.testing.assert_allclose(np.tril(relative_logits(q, table)), np.tril(skewed), atol=1e-12)


def test_relative_logits_of_equal_queries_depend_on_the_offset_alone() -> None:
    logits = relative_logits(np.tile(noise(1, 5), (7, 1)), noise(13, 5, seed=1))
    for offset in range(-6, 7):
        diagonal = np.diagonal(logits, offset)
        np.testing.assert_allclose(diagonal, diagonal[0])


# --- grids ---


@quick
@given(st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_logits_on_a_grid_add_a_row_and_a_column(height: int, width: int, per_head: bool) -> None:
    d, n = 3, height * width
    heads = (2,) if per_head else ()
    q = noise(2, n, d)
    rows = noise(*heads, 2 * height - 1, d, seed=1)
    columns = noise(*heads, 2 * width - 1, d, seed=2)
    found = relative_logits_2d(q, rows, columns, height, width)
    assert found.shape == (2, n, n)
    for h, i, j in np.ndindex(found.shape):
        down, right = j // width - i // width, j % width - i % width
        row = (rows[h] if per_head else rows)[down + height - 1]
        column = (columns[h] if per_head else columns)[right + width - 1]
        assert found[h, i, j] == pytest.approx(q[h, i] @ row + q[h, i] @ column)


@pytest.mark.parametrize(("height", "width"), [(4, 4), (3, 5), (5, 2), (1, 4), (1, 1)])
def test_logits_on_a_grid_are_those_of_timm(height: int, width: int) -> None:
    module = randomised(bottleneck_attn.PosEmbedRel, (height, width), dim_head=6, scale=1.0)
    q = tensor(3, height * width, 6)
    found = relative_logits_2d(q, module.height_rel, module.width_rel, height, width)
    same(found, module(q))


@pytest.mark.parametrize("scaled", [False, True])
def test_timms_bottleneck_attention_scales_its_positions_only_when_asked(scaled: bool) -> None:
    height, width, heads, d = 3, 5, 2, 8
    module = randomised(
        bottleneck_attn.BottleneckAttn,
        16,
        feat_size=(height, width),
        num_heads=heads,
        scale_pos_embed=scaled,
    )
    x = tensor(1, 16, height, width)
    split = module.qkv(x).reshape(3, heads, d, height * width)
    q, k, v = split.mT
    tables = module.pos_embed.height_rel, module.pos_embed.width_rel
    bias = relative_logits_2d(q, *tables, height, width)
    out = attend(q, k, v, bias / math.sqrt(d) if scaled else bias)
    same(out.mT.reshape(1, 16, height, width), module(x))


@pytest.mark.parametrize(("block", "halo"), [(3, 0), (2, 1), (3, 2)])
def test_halo_attention_counts_queries_from_the_corner_of_the_window(block: int, halo: int) -> None:
    window = block + 2 * halo
    module = randomised(
        halo_attn.PosEmbedRel, block_size=block, win_size=window, dim_head=4, scale=1.0
    )
    q = tensor(2, 5, block * block, 4)
    filled = torch.zeros(2, 5, window, window, 4)
    filled[:, :, :block, :block] = q.reshape(2, 5, block, block, 4)
    logits = relative_logits_2d(
        filled.reshape(2, 5, -1, 4), module.height_rel, module.width_rel, window, window
    )
    own = logits.reshape(2, 5, window, window, -1)[:, :, :block, :block]
    same(own.reshape(2, 5, block * block, -1), module(q))


# --- rotations ---


def angles(n: int, pairs: int, start: int = 0) -> Floats:
    return rotation_angles(frequencies(2 * pairs), np.arange(start, start + n))


@quick
@given(
    st.integers(1, 5), st.integers(0, 3), st.booleans(), st.integers(0, 5000), st.integers(0, 5000)
)
def test_the_product_after_rotation_depends_on_the_offset_alone(
    pairs: int, rest: int, interleaved: bool, first: int, second: int
) -> None:
    q, k = (np.tile(noise(1, 2 * pairs + rest, seed=s), (4, 1)) for s in (0, 1))
    products = [
        rotate(q, angles(4, pairs, start), interleaved=interleaved)
        @ rotate(k, angles(4, pairs, start), interleaved=interleaved).T
        for start in (first, second)
    ]
    np.testing.assert_allclose(products[0], products[1], atol=1e-9)
    for offset in range(-3, 4):
        diagonal = np.diagonal(products[0], offset)
        np.testing.assert_allclose(diagonal, diagonal[0], atol=1e-9)


@quick
@given(st.integers(1, 5), st.integers(0, 3), st.booleans())
def test_a_rotation_keeps_norms_and_what_lies_beyond_its_pairs(
    pairs: int, rest: int, interleaved: bool
) -> None:
    x = noise(2, 6, 2 * pairs + rest)
    turned = rotate(x, angles(6, pairs), interleaved=interleaved)
    np.testing.assert_array_equal(turned[..., 2 * pairs :], x[..., 2 * pairs :])
    np.testing.assert_array_equal(turned[:, 0], x[:, 0])  # position 0
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1))
    back = rotate(turned, -angles(6, pairs), interleaved=interleaved)
    np.testing.assert_allclose(back, x, atol=1e-12)


def test_a_pair_is_two_neighbours_or_two_halves() -> None:
    quarter = np.array([[math.pi / 2, 0.0]])
    x = np.array([[1.0, 2.0, 3.0, 4.0, 5.0]])
    np.testing.assert_allclose(rotate(x, quarter, interleaved=True), [[-2, 1, 3, 4, 5]])
    np.testing.assert_allclose(rotate(x, quarter), [[-3, 2, 1, 4, 5]])


def test_halves_are_rotated_as_llama_does() -> None:
    config = LlamaConfig(hidden_size=32, num_attention_heads=2, head_dim=16)
    q, k = tensor(1, 2, 9, 16), tensor(1, 2, 9, 16, seed=1)
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, torch.arange(9)[None])
    for x, expected in zip((q, k), llama.apply_rotary_pos_emb(q, k, cos, sin), strict=True):
        same(rotate(x, angles(9, 8)), expected)


def test_a_part_is_rotated_as_gpt_neox_does() -> None:
    config = GPTNeoXConfig(
        hidden_size=32,
        num_attention_heads=2,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 0.25,
        },
    )
    q, k = tensor(1, 2, 9, 16), tensor(1, 2, 9, 16, seed=1)
    cos, sin = neox.GPTNeoXRotaryEmbedding(config)(q, torch.arange(9)[None])
    assert cos.shape[-1] == 4
    apply: Any = neox.apply_rotary_pos_emb
    for x, expected in zip((q, k), apply(q, k, cos, sin), strict=True):
        same(rotate(x, angles(9, 2)), expected)


def test_neighbours_are_rotated_as_gpt_j_does() -> None:
    q = tensor(1, 2, 9, 8)
    sin, cos = gptj.create_sinusoidal_positions(9, 8).chunk(2, dim=-1)
    expected = gptj.apply_rotary_pos_emb(q.transpose(1, 2), sin[None], cos[None]).transpose(1, 2)
    same(rotate(q, angles(9, 4), interleaved=True), expected)


def test_the_rotated_product_of_equal_vectors_falls_as_the_mean_cosine_does() -> None:
    turned = rotate(np.ones((1001, 128)), angles(1001, 64))
    kernel = turned[0] @ turned.T / 128
    at = [0, 1, 10, 50, 100, 250, 500, 1000]
    expected = [1, 0.9702, 0.6691, 0.5462, 0.4772, 0.3071, 0.2985, 0.1590]
    np.testing.assert_allclose(kernel[at], expected, atol=5e-5)


# --- biases out of a table ---


@pytest.mark.parametrize("decoder", [False, True])
def test_biases_of_t5(decoder: bool) -> None:
    config = T5Config(
        d_model=8, d_kv=4, num_heads=3, is_decoder=decoder, relative_attention_num_buckets=16,
        relative_attention_max_distance=40,
    )  # fmt: skip
    module = randomised(T5Attention, config, has_relative_attention_bias=True, layer_idx=0)
    offsets = np.arange(70) - np.arange(50)[:, None]
    index = t5_buckets(offsets, buckets=16, max_distance=40, bidirectional=not decoder)
    found = look_up(module.relative_attention_bias.weight, index)
    assert torch.equal(found[None], module.compute_bias(50, 70))


def test_biases_of_mpnet() -> None:
    config = MPNetConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1)
    module = randomised(MPNetEncoder, config)
    index = t5_buckets(np.arange(160) - np.arange(160)[:, None], buckets=32, max_distance=128)
    found = look_up(module.relative_attention_bias.weight, index)
    assert torch.equal(found[None], module.compute_position_bias(torch.empty(1, 160)))


@pytest.mark.parametrize(("height", "width"), [(4, 4), (3, 5), (1, 4), (1, 1)])
def test_biases_of_swin(height: int, width: int) -> None:
    index = window_index(height, width)
    module = randomised(SwinRelativePositionBias, 3, (height, width))
    assert torch.equal(look_up(module.relative_position_bias_table, index)[None], module())
    window = randomised(timm_swin.WindowAttention, 12, 3, window_size=(height, width))
    found = look_up(window.relative_position_bias_table, index)
    assert torch.equal(found[None], window._get_rel_pos_bias())


def bias_that_attends(module: Any, tokens: int, dim: int) -> Any:
    """The bias of Swin v2's attention: the logarithm of its weights for queries of zero."""
    with torch.no_grad():
        module.query.weight.zero_()
        if module.query.bias is not None:
            module.query.bias.zero_()
        _, weights = module(torch.ones(1, tokens, dim), output_attentions=True)
    return torch.log(weights[0])


@pytest.mark.parametrize("pretrained", [0, 6])
def test_biases_of_swin_v2(pretrained: int) -> None:
    config = Swinv2Config(embed_dim=12)
    module = randomised(
        Swinv2SelfAttention, config, 12, 3, 4, pretrained_window_size=[pretrained, pretrained]
    )
    trained = (pretrained, pretrained) if pretrained else None
    offsets, index = log_spaced_offsets(4, 4, pretrained=trained), window_index(4, 4)
    first, _, second = module.continuous_position_bias_mlp
    with torch.no_grad():
        second.weight /= 20  # a sigmoid that is not saturated
    found = continuous_bias(offsets, first.weight, first.bias, second.weight, index)
    assert found.shape == (3, 16, 16)
    assert 0 < found.min() < 4
    assert 8 < found.max() < 16
    same(torch.log_softmax(found, dim=-1), bias_that_attends(module, 16, 12), atol=1e-4)


def test_biases_of_swin_v2_in_timm_for_a_window_that_is_not_square() -> None:
    height, width, heads = 3, 5, 2
    module = randomised(timm_swinv2.WindowAttention, 4, (height, width), heads)
    first, _, second = module.cpb_mlp
    with torch.no_grad():
        second.weight /= 20
        module.qkv.weight[:4] = 0  # queries of zero: the bias alone decides
        module.q_bias.zero_()
    offsets, index = log_spaced_offsets(height, width), window_index(height, width)
    bias = continuous_bias(offsets, first.weight, first.bias, second.weight, index)
    x = tensor(1, height * width, 4)
    v = (x @ module.qkv.weight[8:].T + module.v_bias).reshape(-1, heads, 2).transpose(0, 1)
    zero = torch.zeros_like(v)
    seen = attend(zero, zero, v, bias).transpose(0, 1)
    same(module.proj(seen.reshape(1, -1, 4)), module(x), atol=1e-4)


def test_the_continuous_bias_lies_between_0_and_16_however_large_the_network() -> None:
    w1, w2 = 1e3 * noise(8, 2), 1e3 * noise(3, 8, seed=1)
    found = continuous_bias(log_spaced_offsets(3, 3), w1, noise(8), w2, window_index(3, 3))
    assert found.min() >= 0
    assert found.max() <= 16
    # The offset of a token to itself is 0: only the hidden layer's bias is left.
    np.testing.assert_array_equal(np.ptp(np.diagonal(found, axis1=1, axis2=2), axis=1), 0)


# --- attention itself: what it knows of order ---


@pytest.mark.parametrize("biased", [False, True])
def test_attention_is_torchs(biased: bool) -> None:
    q, k, v = tensor(2, 3, 5, 4), tensor(2, 3, 7, 4, seed=1), tensor(2, 3, 7, 6, seed=2)
    bias = tensor(3, 5, 7, seed=3) if biased else None
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    same(attend(q, k, v, bias), expected)


def test_large_logits_do_not_overflow_and_hidden_keys_have_no_weight() -> None:
    v = np.array([[1.0], [2.0], [4.0]])
    bias = np.array([[1e4, 1e4, -np.inf], [-np.inf, -np.inf, -1e4]])
    np.testing.assert_array_equal(attend(np.zeros((2, 1)), np.zeros((3, 1)), v, bias), [[1.5], [4]])


N, D = 8, 6
ORDER = np.array([3, 0, 7, 1, 6, 2, 5, 4])


def mixed(x: Floats, bias: Callable[[Floats], Floats] | None = None) -> Floats:
    """Self-attention of one head, with fixed weights."""
    q, k, v = (x @ noise(D, D, seed=s) for s in (10, 11, 12))
    return np.asarray(attend(q, k, v, None if bias is None else bias(q)))


def rotated(x: Floats) -> Floats:
    q, k, v = (x @ noise(D, D, seed=s) for s in (10, 11, 12))
    return np.asarray(attend(rotate(q, angles(N, D // 2)), rotate(k, angles(N, D // 2)), v))


SCHEMES: dict[str, Callable[[Floats], Floats]] = {
    "a table added to the input": lambda x: mixed(x + np.asarray(sinusoidal(N, D))),
    "relative logits": lambda x: mixed(x, lambda q: relative_logits(q, noise(15, D, seed=1))),
    "relative logits on a grid": lambda x: mixed(
        x, lambda q: relative_logits_2d(q, noise(3, D, seed=1), noise(7, D, seed=2), 2, 4)
    ),
    "a bias by bucket": lambda x: mixed(
        x,
        lambda _: look_up(noise(9, 1), np.clip(np.arange(N) - np.arange(N)[:, None], -4, 4) + 4)[0],
    ),
    "ALiBi": lambda x: mixed(
        x, lambda _: -alibi_slopes(1) * np.abs(np.arange(N)[:, None] - np.arange(N))
    ),
    "rotary": rotated,
    "a causal mask alone": lambda x: mixed(
        x, lambda _: np.where(np.tri(N, dtype=bool), 0, -np.inf)
    ),
}


def test_attention_without_positions_cannot_tell_order() -> None:
    x = noise(N, D)
    np.testing.assert_allclose(mixed(x[ORDER]), mixed(x)[ORDER], atol=1e-12)
    # What one token receives is the same whatever the order of the others.
    moved = np.array([0, 5, 3, 7, 1, 6, 2, 4])
    np.testing.assert_allclose(mixed(x[moved])[0], mixed(x)[0], atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_tells_order(scheme: str) -> None:
    x = noise(N, D)
    output = SCHEMES[scheme]
    assert np.abs(output(x[ORDER]) - output(x)[ORDER]).max() > 1e-2


def test_dot_products_of_the_sinusoid_fall_with_the_distance() -> None:
    table = np.asarray(sinusoidal(256, 128))
    row = (table @ table.T)[128]
    row /= row.max()
    assert row.argmax() == 128
    at = [0, 1, 8, 28, 64, 127]
    np.testing.assert_allclose(row[[128 + o for o in at]], row[[128 - o for o in at]])
    expected = [1, 0.9702, 0.7144, 0.5587, 0.4769]
    np.testing.assert_allclose(row[128:][at[:-1]], expected, atol=5e-5)
    assert row[0] == pytest.approx(0.3328, abs=5e-5)
    assert (np.diff(row[128:134]) < 0).all()
    means = row[128:].reshape(8, 16).mean(axis=1)  # locally it waves
    assert (np.diff(means) < 0).all()


# --- NumPy and torch, dtypes ---

INDEX = np.random.default_rng(0).integers(0, 7, (6, 6))
CALLS: dict[str, tuple[Callable[..., Any], tuple[Floats, ...], tuple[Any, ...]]] = {
    "attend": (attend, (noise(2, 6, 4), noise(2, 5, 4), noise(2, 5, 3)), ()),
    "attend with a bias": (
        attend, (noise(2, 6, 4), noise(2, 5, 4), noise(2, 5, 3), noise(6, 5)), (),
    ),
    "shift": (shift_relative, (noise(2, 6, 11),), ()),
    "relative": (relative_logits, (noise(2, 6, 4), noise(11, 4)), ()),
    "grid": (relative_logits_2d, (noise(2, 6, 4), noise(3, 4), noise(5, 4)), (2, 3)),
    "halves": (rotate, (noise(2, 6, 5),), (angles(6, 2),)),
    "neighbours": (
        lambda x, turn: rotate(x, turn, interleaved=True), (noise(2, 6, 5),), (angles(6, 2),),
    ),
    "look up": (look_up, (noise(7, 3),), (INDEX,)),
    "continuous": (
        lambda w1, b1, w2, index: continuous_bias(log_spaced_offsets(2, 3), w1, b1, w2, index),
        (noise(8, 2), noise(8), noise(3, 8)), (window_index(2, 3),),
    ),
}  # fmt: skip
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is there"),
    ),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CALLS)
def test_numpy_and_torch_give_the_same_numbers_in_the_dtype_that_came_in(
    name: str, device: str
) -> None:
    function, arrays, rest = CALLS[name]
    expected = function(*arrays, *rest)
    assert expected.dtype == np.float64
    for dtype, atol in ((np.float64, 1e-12), (np.float32, 1e-5)):
        cast = [array.astype(dtype) for array in arrays]
        found = function(*cast, *rest)
        assert isinstance(found, np.ndarray)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
        moved = function(*(torch.from_numpy(array).to(device) for array in cast), *rest)
        assert moved.device.type == device
        assert moved.dtype == torch.from_numpy(cast[0]).dtype
        np.testing.assert_allclose(moved.cpu(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("device", DEVICES)
def test_constants_may_come_as_tensors_too(device: str) -> None:
    index = torch.from_numpy(INDEX).to(device)
    for table in (noise(7, 3), torch.from_numpy(noise(7, 3)).to(device)):
        same(torch.as_tensor(look_up(table, index)).cpu(), look_up(noise(7, 3), INDEX), atol=0)
    x = torch.from_numpy(noise(6, 4)).to(device)
    turn = torch.from_numpy(angles(6, 2)).to(device)
    same(rotate(x, turn).cpu(), rotate(noise(6, 4), angles(6, 2)), atol=1e-12)


def test_gradients_flow_through_queries_and_tables() -> None:
    q, table = (torch.from_numpy(noise(n, 4)).requires_grad_() for n in (6, 11))
    relative_logits(q, table).sum().backward()
    assert q.grad is not None
    assert table.grad is not None
    assert (table.grad != 0).all()


def test_far_positions_are_rotated_in_the_precision_of_their_angles() -> None:
    turn = angles(2, 1, start=2**24 + 1)  # beyond the integers that float32 holds
    found = rotate(np.array([[1, 0], [1, 0]], dtype=np.float32), turn)
    np.testing.assert_allclose(found[:, 0], np.cos([2.0**24 + 1, 2.0**24 + 2]), atol=1e-6)


# --- one token, and arguments that do not fit ---


def test_one_token_has_one_logit() -> None:
    q, table = noise(2, 1, 4), noise(1, 4, seed=1)
    expected = q @ table.T
    np.testing.assert_array_equal(relative_logits(q, table), expected)
    np.testing.assert_allclose(relative_logits_2d(q, table, table, 1, 1), 2 * expected)
    np.testing.assert_array_equal(attend(q, q, noise(2, 1, 3)), noise(2, 1, 3))
    assert look_up(noise(1, 2), np.zeros((1, 1), dtype=int)).shape == (2, 1, 1)
    np.testing.assert_array_equal(rotate(q, np.zeros((1, 2))), q)


Z = np.zeros
WRONG: list[tuple[str, Callable[[], Any], tuple[str, ...]]] = [
    ("widths", lambda: relative_logits(Z((5, 4)), Z((5, 3))), ("[5, 4]", "[5, 3]")),
    ("heads", lambda: relative_logits(Z((2, 5, 4)), Z((3, 5, 4))), ("[2, 5, 4]", "[3, 5, 4]")),
    ("no heads", lambda: relative_logits(Z((0, 5, 4)), Z((5, 4))), ("[0, 5, 4]", "[5, 4]")),
    ("no axis of heads", lambda: relative_logits(Z((5, 4)), Z((3, 5, 4))), ("[5, 4]", "[3, 5, 4]")),
    ("one axis", lambda: relative_logits(Z(4), Z((3, 4))), ("[4]", "[3, 4]")),
    ("short table", lambda: relative_logits(Z((5, 4)), Z((8, 4))), ("[5, 4]", "[8, 4]", "9 rows")),
    ("clipped table", lambda: relative_logits(Z((5, 4)), Z((3, 4))), ("[5, 4]", "[3, 4]")),
    ("shift", lambda: shift_relative(Z((5, 10))), ("[5, 10]",)),
    ("shift of one axis", lambda: shift_relative(Z(1)), ("[1]",)),
    (
        "axes exchanged",
        lambda: relative_logits_2d(Z((6, 4)), Z((5, 4)), Z((3, 4)), 2, 3),
        ("[6, 4]", "[5, 4]", "3 rows"),
    ),
    (
        "another grid",
        lambda: relative_logits_2d(Z((7, 4)), Z((3, 4)), Z((5, 4)), 2, 3),
        ("[7, 4]", "2 x 3"),
    ),
    (
        "negative grid",
        lambda: relative_logits_2d(Z((6, 4)), Z((3, 4)), Z((5, 4)), -2, -3),
        ("[6, 4]", "-2 x -3"),
    ),
    ("too many pairs", lambda: rotate(Z((5, 4)), Z((5, 3))), ("[5, 4]", "[5, 3]")),
    ("another length", lambda: rotate(Z((5, 4)), Z((4, 2))), ("[5, 4]", "[4, 2]")),
    ("integers turned", lambda: rotate(Z((5, 4), dtype=int), Z((5, 2))), ("int64",)),
    ("index outside", lambda: look_up(Z((7, 2)), INDEX + 1), ("1 to 7", "7 entries")),
    ("negative index", lambda: look_up(Z((7, 2)), INDEX - 1), ("-1 to 5", "7 entries")),
    ("index of floats", lambda: look_up(Z((7, 2)), INDEX / 1), ("[6, 6]", "float64")),
    ("flat index", lambda: look_up(Z((7, 2)), INDEX[0]), ("[6]",)),
    ("flat table", lambda: look_up(Z(7), INDEX), ("[7]",)),
    (
        "transposed weights",
        lambda: continuous_bias(Z((9, 2)), Z((2, 8)), Z(8), Z((3, 8)), Z((2, 2), dtype=int)),
        ("[9, 2]", "[2, 8]", "[8]", "[3, 8]"),
    ),
    ("values", lambda: attend(Z((5, 4)), Z((6, 4)), Z((5, 4))), ("[5, 4]", "[6, 4]")),
    (
        "bias too large",
        lambda: attend(Z((5, 4)), Z((5, 4)), Z((5, 4)), Z((2, 5, 5))),
        ("[2, 5, 5]", "[5, 5]"),
    ),
    (
        "everything hidden",
        lambda: attend(Z((2, 4)), Z((2, 4)), Z((2, 4)), np.array([[0, 0], [-np.inf, -np.inf]])),
        ("mask",),
    ),
    (
        "a list",
        lambda: relative_logits([[1.0]], Z((1, 1))),
        ("NumPy arrays or torch tensors",),
    ),
    (
        "two libraries",
        lambda: relative_logits(Z((1, 1)), torch.zeros(1, 1)),
        ("q is numpy float64", "table is torch torch.float32"),
    ),
    ("two dtypes", lambda: relative_logits(Z((1, 1)), Z((1, 1), dtype=np.float32)), ("float32",)),
    (
        "bytes that overflow",
        lambda: relative_logits(*(Z((1, 1), dtype=np.int8),) * 2),
        ("int8", "int64"),
    ),
    (
        "a dtype that NumPy lacks",
        lambda: rotate(Z((1, 2)), torch.zeros(1, 1, dtype=torch.bfloat16)),
        ("bfloat16", "angles"),
    ),
]


@pytest.mark.parametrize(("call", "told"), [pytest.param(c, t, id=i) for i, c, t in WRONG])
def test_what_does_not_fit_is_one_error_that_names_the_shapes(
    call: Callable[[], Any], told: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    for part in told:
        assert part in str(caught.value)
