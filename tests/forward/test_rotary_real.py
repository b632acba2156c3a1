"""Rotary use of a whole trained model, against values computed apart from this package."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posprobe as pp
from posprobe.analyses.models.rotary_use import HeadUse

pytestmark = pytest.mark.real
REAL = Path(os.environ.get("POSPROBE_REAL", "")) / "stories260K"
CONTEXTS = 16
LENGTH = 256
#: Layer and head: distance share, spread, variance of a query's logits, range, distance of the
#: largest logit, correlation and R2 with the predicted curve, moved attention; by pair strength,
#: mean part and curve share, on random tokens.
RANDOM: dict[tuple[int, int], tuple[Any, ...]] = {
    (0, 0): (
        0.00285, 0.25835, 23.3852, 1.2362, 28, 0.93685, 0.87757, 0.58637,
        (0.60229, 2.92489, 5.07816, 19.62019), (0.26293, 0.08584, 0.09369, 0.01317),
        (0.14613, 0.46409, 0.26275, 0.01496),
    ),
    (1, 3): (
        0.60494, 27.98651, 1294.756, 125.932, 1, 0.99902, 0.99780, 0.96647,
        (13.0456, 35.6524, 37.6452, 206.801), (0.85631, 0.90159, 0.90560, 0.92655),
        (0.08573, 0.55824, 0.21245, 0.12607),
    ),
    (2, 6): (
        0.22479, 0.74050, 2.43939, 2.8174, 0, 0.99785, 0.99525, 0.37041,
        (0.25078, 0.98414, 4.6391, 6.7215), (0.25157, 0.84092, 0.84767, 0.74771),
        (0.00441, 0.54325, 0.28120, 0.14570),
    ),
    (3, 4): (
        0.85734, 28.96528, 978.592, 98.1943, 2, 0.99995, 0.99990, 0.99153,
        (1.56486, 40.3801, 12.4043, 109.398), (0.64944, 0.95926, 0.93055, 0.97021),
        (0.00074, 0.91826, 0.04264, 0.03642),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(REAL).eval()


def assert_alike(head: HeadUse, expected: tuple[Any, ...], rel: float) -> None:
    (
        share,
        spread,
        variance,
        span,
        peak,
        r,
        r2,
        moved_share,
        usage,
        mean_part,
        curve_share,
    ) = expected
    # The digits that are given end before the tolerance does.
    assert head.share == pytest.approx(share, rel=rel, abs=5e-6)
    assert head.spread == pytest.approx(spread, rel=rel)
    assert head.variance == pytest.approx(variance, rel=rel)
    assert head.range == pytest.approx(span, rel=rel)
    assert head.measured.argmax() == peak
    assert head.peak == (peak if head.answer == "yes" else None)
    assert (head.r, head.r2) == pytest.approx((r, r2), rel=rel)
    assert head.moved == pytest.approx(moved_share, rel=rel)
    strength = np.array(usage) / sum(usage)
    np.testing.assert_allclose(head.usage, strength, rtol=rel)
    np.testing.assert_allclose(head.mean_part, mean_part, rtol=rel, atol=1e-5)
    np.testing.assert_allclose(head.curve_share, curve_share, rtol=rel, atol=1e-5)
    scale = 8**-0.5
    np.testing.assert_allclose(scale * head.query_norm * head.key_norm, usage, rtol=rel)


def test_heads_on_random_tokens_equal_an_independent_computation(model: Any) -> None:
    contexts = np.random.default_rng(0).integers(3, 512, (CONTEXTS, LENGTH))
    contexts[:, 0] = 1
    assert contexts[0, :8].tolist() == [1, 327, 263, 140, 159, 23, 41, 11]
    run = pp.rotary_use(model, [contexts])
    heads = {(head.layer, head.head): head for head in run.heads}
    for place, expected in RANDOM.items():
        assert_alike(heads[place], expected, 1e-4)
    curve_values = [heads[1, 3].measured[distance] for distance in (0, 1, 2, 8, 64)]
    assert curve_values == pytest.approx(
        [-1.9652, 3.1387, -2.2710, -19.3401, -29.8949], abs=5e-4
    )


def test_heads_on_sampled_text_equal_an_independent_computation(model: Any) -> None:
    contexts = np.concatenate(list(pp.sampled_tokens(model, LENGTH, CONTEXTS, seed=0)))
    assert contexts[0, :8].tolist() == [1, 403, 407, 261, 378, 432, 383, 286]
    run = pp.rotary_use(model, [contexts], source="sampled")
    summary = run.summary
    assert (summary.yes, summary.no, summary.open) == (39, 0, 1)
    assert (summary.least, summary.share, summary.most) == pytest.approx(
        (0.069, 0.519, 0.697), abs=0.001
    )
    assert summary.never == pytest.approx(0.876, abs=0.001)
    assert summary.moved == pytest.approx(0.826, abs=0.001)
    usage = np.mean([head.usage for head in run.heads], axis=0)
    np.testing.assert_allclose(usage, [0.026, 0.098, 0.206, 0.670], atol=0.001)
    curve = np.mean([head.curve_share for head in run.heads], axis=0)
    np.testing.assert_allclose(curve, [0.022, 0.312, 0.490, 0.185], atol=0.001)
    offsets = [head.offset for head in run.heads if head.offset is not None]
    assert len(offsets) == 30
    assert {offset.pair for offset in offsets} == {3}
    angles = np.degrees([abs(offset.angle) for offset in offsets])
    assert 92.5 < angles.min() < angles.max() < 111.5
    assert all((layer.shift_check or 0) < 8e-7 for layer in run.layers)
