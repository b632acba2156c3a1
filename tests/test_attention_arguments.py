"""Arrays of either library come back in their dtype; what does not fit is one clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from made_attention import angles, noise, same

from posprobe.attention import (
    attend,
    continuous_bias,
    look_up,
    relative_logits,
    relative_logits_2d,
    rotate,
    shift_relative,
)
from posprobe.encodings.buckets import log_spaced_offsets, window_index
from posprobe.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


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
