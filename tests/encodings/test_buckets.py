"""From offset to bucket, table row or bias: anchors, laws, and the index of the libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from timm.models.swin_transformer_v2 import WindowAttention as TimmSwinv2Attention
from transformers import Swinv2Config
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position
from transformers.models.layoutlmv2.modeling_layoutlmv2 import relative_position_bucket
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.sew_d.modeling_sew_d import (
    make_log_bucket_position as sew_d_position,
)
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention
from transformers.models.t5.modeling_t5 import T5Attention

from posprobe.encodings import (
    alibi_slopes,
    deberta_buckets,
    log_spaced_offsets,
    t5_buckets,
)
from posprobe.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


def made(untyped: Any, *arguments: Any, **options: Any) -> Any:
    return untyped(*arguments, **options)


# --- T5 ---


OFFSETS = np.arange(-3000, 3001)
#: As published (T5, LayoutLM's axes, WavLM), and sizes with edges that float32 does not hit.
SIZES = [
    (32, 128), (64, 256), (320, 800), (512, 2048), (32, 100), (8, 16), (4, 3), (6, 40),
    (33, 77), (48, 1000), (10, 9), (128, 4096), (32, 20),
]  # fmt: skip

#: Each has code of its own; in other models it is a copy of T5's.
T5_LIKE: dict[str, Any] = {
    "T5": T5Attention._relative_position_bucket,
    "LayoutLMv2": relative_position_bucket,
}


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("library", T5_LIKE)
def test_every_offset_has_the_bucket_of_the_library(
    library: str, size: tuple[int, int], bidirectional: bool
) -> None:
    buckets, max_distance = size
    buckets_found = t5_buckets(
        OFFSETS, buckets=buckets, max_distance=max_distance, bidirectional=bidirectional
    )
    expected = T5_LIKE[library](
        torch.from_numpy(OFFSETS),
        bidirectional=bidirectional,
        num_buckets=buckets,
        max_distance=max_distance,
    )
    np.testing.assert_array_equal(buckets_found, expected)


@pytest.mark.parametrize(
    "options",
    [
        {"buckets": 2}, {"buckets": 0}, {"buckets": -8}, {"max_distance": 8}, {"max_distance": 0},
        {"buckets": 1, "bidirectional": False}, {"max_distance": 16, "bidirectional": False},
        {"offsets": [0.5]}, {"offsets": [True]}, {"offsets": ["1"]},
    ],
    ids=str,
)  # fmt: skip
def test_buckets_that_cannot_be_are_wrong_usage(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        t5_buckets(**{"offsets": [1]} | options)


def test_impossible_bucket_counts_are_wrong_usage() -> None:
    assert (log_spaced_offsets(1, 4)[..., 0] == 0).all()
    for buckets, max_distance in ((1, 50), (100, 51)):
        with pytest.raises(UsageError):
            deberta_buckets([1], buckets=buckets, max_distance=max_distance)
    for window, trained in (((0, 2), None), ((3, -1), None), ((2, 2), (1, 8))):
        with pytest.raises(UsageError, match="window of"):
            log_spaced_offsets(*window, pretrained=trained)


# --- DeBERTa ---


@pytest.mark.parametrize("library", [make_log_bucket_position, sew_d_position])
@pytest.mark.parametrize(
    "size",
    [(256, 512), (32, 128), (8, 20), (16, 512), (2, 50), (64, 1000), (255, 600)],
    ids=str,
)
def test_every_offset_has_the_bucket_of_deberta(
    library: Any, size: tuple[int, int]
) -> None:
    buckets, max_distance = size
    expected = library(torch.from_numpy(OFFSETS), buckets, max_distance).long()
    buckets_found = deberta_buckets(OFFSETS, buckets=buckets, max_distance=max_distance)
    np.testing.assert_array_equal(buckets_found, expected)


# --- windows ---


@pytest.mark.parametrize("trained", [None, (12, 12), (6, 3)])
@pytest.mark.parametrize("window", [(8, 8), (4, 6), (2, 2)], ids=str)
def test_log_spaced_offsets_are_those_of_swin_v2(
    window: tuple[int, int], trained: tuple[int, int] | None
) -> None:
    h, w = window
    config = Swinv2Config(image_size=32, window_size=4)
    module = made(
        Swinv2SelfAttention, config, 16, 2, list(window), list(trained or (0, 0))
    )
    offsets = log_spaced_offsets(h, w, pretrained=trained)
    assert offsets.shape == (2 * h - 1, 2 * w - 1, 2)
    table, _ = module.create_coords_table_and_index()
    np.testing.assert_allclose(offsets, table[0], rtol=1e-6)
    attention: Any = TimmSwinv2Attention(
        16, window_size=window, num_heads=2, pretrained_window_size=trained or (0, 0)
    )
    np.testing.assert_allclose(offsets, attention.relative_coords_table[0], rtol=1e-6)


# --- ALiBi ---


@pytest.mark.parametrize("max_bias", [8, 16, 4])
@pytest.mark.parametrize("heads", [1, 2, 3, 5, 6, 7, 8, 9, 12, 20, 31, 33, 71, 112])
def test_mpts_bias_is_that_of_the_last_query(heads: int, max_bias: int) -> None:
    expected = made(build_mpt_alibi_tensor, heads, 30, alibi_bias_max=max_bias)[:, 0]
    slopes = alibi_slopes(heads, bias_max=max_bias)
    np.testing.assert_allclose(slopes[:, None] * np.arange(-29, 1), expected, rtol=1e-5)
