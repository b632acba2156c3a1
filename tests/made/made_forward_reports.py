"""Reports of runs of a model, made without running any."""

from __future__ import annotations

from typing import Any

import numpy as np
from made_forward import (
    WIDTH,
    forward_analysis,
)

from posprobe.analyses.models.attention import AttentionByOffset, LayerAttention
from posprobe.analyses.models.head_logits import HeadLogits, HeadsByLayer
from posprobe.analyses.models.states import LayerMeans, MeanDecomposition
from posprobe.layouts import Grid, Sequence
from posprobe.report import ForwardAnalysis

LAYOUTS = [Sequence(24), Sequence(5), Grid(3, 4), Grid(18, 2)]


def large(layers: int = 32, heads: int = 32, n: int = 512) -> ForwardAnalysis:
    """A run of a model as large as Llama 2 7B but for its width."""
    rng = np.random.default_rng(0)
    layout = Sequence(n)

    def curves() -> Any:
        found = rng.random((heads, 2 * n - 1)) / n
        found[:, n:] = 0
        return found

    def peaks() -> Any:
        return -rng.integers(0, 30, (heads, 1))

    def share() -> Any:
        return rng.random(heads)

    def means() -> LayerMeans:
        pos = np.cumsum(rng.normal(size=(n, WIDTH)), axis=0)
        shares = {"position": 0.3, "context": 0.1, "rest": 0.6}
        return LayerMeans(pos[0], pos - pos.mean(axis=0), pos / 9, 2.0, 7, 0.01, 0.4, shares)

    attention = {
        number: LayerAttention(
            curves(), peaks(), np.full(heads, fill_value=True), share(), np.zeros(heads), share(),
            share(), 0.5,
        )
        for number in range(layers)
    }  # fmt: skip
    logits = {
        number: HeadLogits(
            curves(), share(), share(), peaks(), np.full(heads, fill_value=True), share(), share(),
            layout, causal=True,
        )
        for number in range(layers)
    }  # fmt: skip
    results = {
        "states": MeanDecomposition(
            {k: means() for k in range(layers + 1)}, 64, layout, 0, "large"
        ),
        "heads": HeadsByLayer(logits),
        "attention": AttentionByOffset(attention, 64, layout, "large"),
        "words": AttentionByOffset(attention, 64, layout, "large"),
    }
    return forward_analysis(layout, results=results)
