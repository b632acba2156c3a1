"""Biases that are looked up or computed, as the libraries that release each scheme have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from made_attention import noise, randomised, same, tensor
from timm.layers.pos_embed_rel import gen_relative_position_index
from timm.models import swin_transformer as timm_swin, swin_transformer_v2 as timm_swinv2
from transformers import MPNetConfig, Swinv2Config, T5Config
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention
from transformers.models.t5.modeling_t5 import T5Attention

from posprobe.encodings import continuous_bias, log_spaced_offsets, t5_buckets

if TYPE_CHECKING:
    from numpy.typing import NDArray


def look_up(table: Any, index: NDArray[np.int64]) -> Any:
    """The bias ``[heads, queries, keys]`` whose entries ``index`` picks."""
    return table[torch.from_numpy(index)].permute(2, 0, 1)


def continuous(
    offsets: NDArray[np.float64], first: Any, second: Any, index: NDArray[np.int64]
) -> Any:
    weights = (each.detach().double().numpy() for each in (first.weight, first.bias, second.weight))
    by_offset = continuous_bias(offsets, *weights)
    return torch.from_numpy(by_offset.reshape(len(by_offset), -1)[:, index]).float()


def window_index(height: int, width: int) -> NDArray[np.int64]:
    return np.asarray(gen_relative_position_index((height, width)))


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
    found = continuous(offsets, first, second, index)
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
    bias = continuous(offsets, first, second, index)
    x = tensor(1, height * width, 4)
    v = (x @ module.qkv.weight[8:].T + module.v_bias).reshape(-1, heads, 2).transpose(0, 1)
    zero = torch.zeros_like(v)
    attend = torch.nn.functional.scaled_dot_product_attention
    seen = attend(zero, zero, v, attn_mask=bias).transpose(0, 1)
    same(module.proj(seen.reshape(1, -1, 4)), module(x), atol=1e-4)


def test_the_continuous_bias_lies_between_0_and_16_however_large_the_network() -> None:
    w1, w2 = 1e3 * noise(8, 2), 1e3 * noise(3, 8, seed=1)
    found = continuous_bias(log_spaced_offsets(3, 3), w1, noise(8), w2)
    assert found.min() >= 0
    assert found.max() <= 16
    # The offset of a token to itself is 0: only the hidden layer's bias is left.
    own = 8 * (1 + np.tanh(w2 @ np.maximum(noise(8), 0) / 2))
    np.testing.assert_allclose(found[:, 2, 2], own, rtol=1e-12)
