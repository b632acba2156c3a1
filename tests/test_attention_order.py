"""Attention is torch's, tells no order by itself, and tells it by every scheme."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from made_attention import angles, noise, same, tensor

from posprobe.attention import attend, look_up, relative_logits, relative_logits_2d, rotate
from posprobe.encodings.alibi import alibi_slopes
from posprobe.encodings.sinusoidal import sinusoidal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


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
