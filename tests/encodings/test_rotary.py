"""Rotary frequencies under every rule of transformers, and the published numbers of the ladder."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from transformers import GPTNeoXConfig, LlamaConfig, Qwen2VLTextConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding
from transformers.models.hunyuan_v1_dense.configuration_hunyuan_v1_dense import (
    HunYuanDenseV1Config,
)
from transformers.models.hunyuan_v1_dense.modeling_hunyuan_v1_dense import (
    HunYuanDenseV1RotaryEmbedding,
)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding

from posprobe.encodings import (
    first_negative,
    rotary_bound,
    rotary_frequencies,
    rotary_kernel,
    yarn_correction_range,
)
from posprobe.encodings.rotary import SCALING_RULES
from posprobe.errors import InvalidCheckpoint, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


HEAD = 32
MAX_POSITIONS = 512


def listed(first: float, last: float, count: int = HEAD // 2) -> list[float]:
    return [float(x) for x in np.linspace(first, last, count)]


#: Configurations of every rule as checkpoints write them, missing and null keys included.
SCALINGS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 3.0},
    "yarn": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64},
    "yarn without the original length": {"type": "yarn", "factor": 8.0},
    "yarn, factor null": {
        "rope_type": "yarn", "factor": None, "original_max_position_embeddings": 128,
    },
    "yarn, other turns, not rounded": {
        "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 256,
        "beta_fast": 20, "beta_slow": 0.5, "truncate": False,
    },
    "yarn as DeepSeek has it": {
        "rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 256,
        "beta_fast": 32, "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 1.5,
    },
    "yarn with its attention factor": {
        "rope_type": "yarn", "factor": 4.0, "attention_factor": 1.25, "beta_fast": 0,
    },
    "yarn of a length below one turn": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4,
    },
    "longrope": {
        "rope_type": "longrope", "original_max_position_embeddings": 128,
        "short_factor": listed(1, 2), "long_factor": listed(1.5, 40),
    },
    "longrope with factor and attention factor": {
        "rope_type": "longrope", "original_max_position_embeddings": 128, "factor": 2.0,
        "attention_factor": 1.4, "short_factor": listed(1, 1), "long_factor": listed(1, 9),
    },
    "llama3, all three ranges": {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 2, "high_freq_factor": 50,
        "original_max_position_embeddings": 500, "rope_theta": 500_000.0,
    },
    "proportional with a factor": {
        "rope_type": "proportional", "partial_rotary_factor": 0.6, "factor": 8.0,
    },
    "a base within": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6},
    "a share within": {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5},
}  # fmt: skip


def llama(scaling: dict[str, Any]) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=2 * HEAD, num_attention_heads=2, max_position_embeddings=MAX_POSITIONS,
        rope_parameters=dict(scaling),
    )  # fmt: skip


def assert_turns_like(module: Any, length: int, inv_freq: Floats, factor: float) -> None:
    positions = np.arange(length)
    cos, sin = module(torch.zeros(1), torch.from_numpy(positions)[None])
    pairs = cos.shape[-1] // 2
    angles = np.outer(positions, inv_freq)
    assert angles.shape == (length, pairs)
    # float32 angles of up to `length` carry an error of about length * 2**-24.
    tolerance = 2e-6 + length * 2.0**-22
    for ours, expected in ((np.cos(angles), cos), (np.sin(angles), sin)):
        np.testing.assert_allclose(factor * ours, expected[0, :, :pairs], atol=tolerance)
        np.testing.assert_array_equal(expected[..., :pairs], expected[..., pairs:])


# --- the library ---


@pytest.mark.parametrize("length", [None, 20, 200, 900])
@pytest.mark.parametrize("name", SCALINGS)
def test_cosines_and_sines_are_those_of_llama(name: str, length: int | None) -> None:
    module = LlamaRotaryEmbedding(llama(SCALINGS[name]))
    inv_freq, factor = rotary_frequencies(
        HEAD, scaling=SCALINGS[name], max_positions=MAX_POSITIONS, length=length
    )
    assert inv_freq.dtype == np.float64
    if length is None:  # as of a new model
        np.testing.assert_allclose(inv_freq, module.inv_freq, rtol=3e-6)
        assert factor == pytest.approx(module.attention_scaling, rel=1e-12)
    else:
        assert_turns_like(module, length, inv_freq, factor)


def test_every_rule_of_the_library_is_known_and_tested() -> None:
    assert set(SCALING_RULES) == {"default", *ROPE_INIT_FUNCTIONS}
    tested = {
        scaling.get("rope_type", scaling.get("type")) for scaling in SCALINGS.values()
    }
    assert tested == set(SCALING_RULES)


MROPE = {"type": "mrope", "mrope_section": [4, 6, 6]}
ALPHA = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}
#: Models with rules of their own: what is stated, and what that means here.
MODELS_WITH_OWN_RULES: dict[str, tuple[Any, Any, dict[str, Any], dict[str, Any]]] = {
    **{
        f"a share of {share}": (
            GPTNeoXConfig, GPTNeoXRotaryEmbedding, {"rotary_pct": share}, {"partial": share},
        )
        for share in (0.25, 0.5, 0.4)
    },
    "sections of axes": (
        Qwen2VLTextConfig, Qwen2VLRotaryEmbedding,
        {"num_key_value_heads": 2, "rope_scaling": MROPE, "rope_theta": 5e5},
        {"scaling": MROPE, "base": 5e5},
    ),
    **{
        f"alpha, which no length changes: {length}": (
            HunYuanDenseV1Config, HunYuanDenseV1RotaryEmbedding,
            {"head_dim": HEAD, "rope_scaling": ALPHA},
            {"scaling": ALPHA, "max_positions": MAX_POSITIONS, "length": length},
        )
        for length in (None, 10_000)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS_WITH_OWN_RULES)
def test_models_with_rules_of_their_own(name: str) -> None:
    config, embedding, parameters, options = MODELS_WITH_OWN_RULES[name]
    sizes = {
        "hidden_size": 2 * HEAD,
        "num_attention_heads": 2,
        "max_position_embeddings": MAX_POSITIONS,
    }
    module = embedding(config(**sizes, **parameters))
    inv_freq, factor = rotary_frequencies(HEAD, **options)
    np.testing.assert_allclose(inv_freq, module.inv_freq, rtol=3e-6)
    assert factor == 1


def test_longrope_and_default_have_older_names() -> None:
    factors = {"short_factor": listed(1, 3), "long_factor": listed(2, 60)}
    for older, name in (("su", "longrope"), ("mrope", "default")):
        frequencies, expected = (
            rotary_frequencies(
                HEAD, scaling={"type": rule_name, **factors}, max_positions=MAX_POSITIONS
            )
            for rule_name in (older, name)
        )
        np.testing.assert_array_equal(frequencies[0], expected[0])


# --- what cannot be ---

#: What is stated of a rule beside its name, and what is said of it.
BAD_SCALINGS: list[tuple[str, dict[str, Any], str]] = [
    ("ntk", {}, "default, linear, dynamic, yarn, longrope, llama3"),
    ("linear", {}, "needs factor"),
    ("yarn", {"original_max_position_embeddings": 64}, "needs factor"),
    *(("linear", {"factor": factor}, "factor as .*a positive number")
      for factor in (0, "8", True, math.nan, 10**400)),
    ("yarn", {"factor": 2.0, "beta_fast": 1, "beta_slow": 32}, "beta_fast"),
    ("yarn", {"factor": 2.0, "attention_factor": -1.0}, "attention_factor"),
    ("llama3", {"factor": 8.0, "high_freq_factor": 1.0, "low_freq_factor": 4.0},
     "high_freq_factor"),
    *(("longrope", {"long_factor": factors, "short_factor": listed(1, 1)}, "long_factor")
      for factors in ([1.0] * 3, listed(0, 1), ["a"] * 16, [None] * 16, 2.0)),
    ("longrope", {"long_factor": listed(1, 1), "short_factor": listed(1, 1),
                  "original_max_position_embeddings": 1}, "original_max_position_embeddings"),
    ("default", {"rope_theta": "10000"}, "rope_theta"),
    ("default", {"partial_rotary_factor": -0.5}, "partial_rotary_factor"),
    ("default", {"sliding_attention": {}, "full_attention": {}}, "sliding_attention, full_att"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "parameters", "message"), BAD_SCALINGS)
def test_a_scaling_that_cannot_be_is_one_clear_error(
    rule: str, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidCheckpoint, match=message) as caught:
        rotary_frequencies(
            HEAD, scaling={"rope_type": rule, **parameters}, max_positions=MAX_POSITIONS
        )
    assert "rope_parameters" in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"head_dim": 0}, {"head_dim": -2}, {"head_dim": 7}, {"base": 1.0}, {"base": math.nan},
        {"partial": 0.0}, {"partial": 1.5}, {"partial": 0.01}, {"length": 0}, {"max_positions": -1},
        {"scaling": {"type": "dynamic", "factor": 2.0}},
        {"head_dim": 2, "scaling": {"type": "dynamic", "factor": 2.0}, "max_positions": 9},
    ],
    ids=str,
)  # fmt: skip
def test_arguments_that_cannot_be_are_wrong_usage(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        rotary_frequencies(**{"head_dim": HEAD} | arguments)


# --- what follows from the ladder ---


def test_kernel_and_bound_keep_the_shape_of_distances() -> None:
    inv_freq, _ = rotary_frequencies(256)
    distances = np.arange(-20_000, 20_000).reshape(
        2, -1
    )  # more than one block of 2**22 numbers
    kernel = rotary_kernel(inv_freq, distances)
    assert kernel.shape == distances.shape
    np.testing.assert_allclose(kernel, rotary_kernel(inv_freq, -distances), atol=1e-12)
    direct = [np.cos(m * inv_freq).mean() for m in distances[:, ::997].ravel()]
    np.testing.assert_allclose(kernel[:, ::997].ravel(), direct, atol=1e-12)
    assert rotary_bound(inv_freq, np.zeros((3, 0))).shape == (3, 0)


@given(st.integers(0, 2**31), st.sampled_from([4, 16, 64]), st.integers(0, 3000))
def test_no_logit_exceeds_roformers_bound(seed: int, head: int, distance: int) -> None:
    inv_freq, _ = rotary_frequencies(head)
    parts = np.random.default_rng(seed).standard_normal((2, head // 2, 2)) @ [1, 1j]
    products = parts[0] * parts[1].conj()
    logit = (products * np.exp(1j * distance * inv_freq)).sum().real
    # Abel summation: the largest step between neighbours times the sum of |S_j|, section 3.4.3.
    largest = np.abs(np.diff(products, append=0)).max()
    bound = rotary_bound(inv_freq, distance) * len(inv_freq)
    assert abs(logit) <= largest * bound * (1 + 1e-9)


@pytest.mark.parametrize(
    ("base", "expected_distance"), [(1e4, 1707), (5e5, 18_438), (1e6, 27_115)]
)
def test_first_negative_distance_at_width_128(
    base: float, expected_distance: int
) -> None:
    inv_freq, _ = rotary_frequencies(128, base=base)
    assert first_negative(inv_freq, 30_000) == expected_distance
    assert first_negative(inv_freq, expected_distance) == expected_distance
    assert first_negative(inv_freq, expected_distance - 1) is None


def test_the_kernel_of_a_single_pair_is_negative_from_a_quarter_turn_on() -> None:
    assert first_negative([0.01], 1000) == math.floor(math.pi / 2 / 0.01) + 1
    assert first_negative([0.0], 5000) is None
    assert first_negative([1.0], 0) is None


@pytest.mark.parametrize(
    ("length", "pairs"), [(2048, (16, 41)), (4096, (20, 46)), (8192, (25, 50))]
)
def test_yarns_correction_range_at_width_128(length: int, pairs: tuple[int, int]) -> None:
    assert list(yarn_correction_range(128, 1e4, length)) == list(pairs)
    low, high = yarn_correction_range(128, 1e4, length, truncate=False)
    assert (math.floor(low), math.ceil(high)) == pairs
    ladder = 1e4 ** (
        -2 * np.array([low, high]) / 128
    )  # the pairs that turn 32 times and once
    np.testing.assert_allclose(length * ladder / (2 * math.pi), [32, 1])


def test_roformers_bound_at_width_128() -> None:
    bound = rotary_bound(rotary_frequencies(128)[0], [0, 1, 10, 50, 100, 250, 500, 1000])
    expected = [32.5, 31.538, 17.954, 12.629, 10.227, 6.548, 6.190, 4.471]
    np.testing.assert_allclose(bound, expected, atol=6e-4)
