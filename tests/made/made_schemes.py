"""Schemes with known answers: T5-like buckets, windows, rotary and linear encodings."""

from __future__ import annotations

from typing import Any

import numpy as np

from posprobe.encodings import alibi_slopes, t5_buckets
from posprobe.layouts import Grid, Sequence
from posprobe.schemes import LinearBias, RelativeBias, Rotary
from posprobe.sources import Source


def source(tensor: str | None = None) -> Source:
    return Source(reference="made", resolved="made", tensor=tensor)


def buckets(
    heads: int = 4, n: int = 200, name: str = "encoder", seed: int = 0, **fields: Any
) -> RelativeBias:
    """Return T5's buckets with biases that fall with log distance, faster in later heads."""
    offsets = np.arange(-128, 129)
    causal = fields.get("causal", False)
    bucket = t5_buckets(offsets, bidirectional=not causal)
    rank = bucket if causal else bucket % 16
    noise = 0.1 * np.random.default_rng(seed).standard_normal((heads, 32))
    values = noise[:, bucket] - 0.2 * (1 + np.arange(heads))[:, None] * rank
    return RelativeBias(values, Sequence(n), name, source(f"{name}.weight"), **fields)


def window(
    height: int = 5,
    width: int = 5,
    heads: int = 3,
    name: str = "block",
    seed: int = 0,
    **fields: Any,
) -> RelativeBias:
    """Return window biases that prefer keys near the query, plus noise."""
    y, x = np.mgrid[1 - height : height, 1 - width : width]
    noise = 0.2 * np.random.default_rng(seed).standard_normal((heads, *y.shape))
    values = np.exp(-(x**2 + y**2) / 4) + noise
    if fields.get("quantity") == "cosine":
        values = values / np.abs(values).max()
    return RelativeBias(
        values, Grid(height, width), name, source(f"{name}.table"), **fields
    )


def rotary(name: str = "rotary", **fields: Any) -> Rotary:
    options = {"max_positions": 4096, "training_length": 2048, **fields}
    return Rotary(32, name, source(), **options)


def linear(heads: int = 8, name: str = "alibi", **fields: Any) -> LinearBias:
    options = {"max_positions": 300, **fields}
    return LinearBias(alibi_slopes(heads), name, source(), **options)
