"""Arrays of either library come back in their dtype; what does not fit is one clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from made_attention import noise, same

from posprobe.attention import continuous_bias, look_up
from posprobe.encodings import log_spaced_offsets
from posprobe.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


# --- NumPy and torch, dtypes ---

INDEX = np.random.default_rng(0).integers(0, 7, (6, 6))
CALLS: dict[str, tuple[Callable[..., Any], tuple[Floats, ...], tuple[Any, ...]]] = {
    "look up": (look_up, (noise(7, 3),), (INDEX,)),
    "continuous": (
        lambda w1, b1, w2, index: continuous_bias(log_spaced_offsets(2, 3), w1, b1, w2, index),
        (noise(8, 2), noise(8), noise(3, 8)),
        (INDEX,),
    ),
}
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


def test_gradients_flow_through_tables() -> None:
    table = torch.from_numpy(noise(7, 3)).requires_grad_()
    look_up(table, INDEX).sum().backward()
    assert table.grad is not None
    assert (table.grad != 0).all()


# --- one token, and arguments that do not fit ---


def test_one_token_has_one_bias() -> None:
    assert look_up(noise(1, 2), np.zeros((1, 1), dtype=int)).shape == (2, 1, 1)


Z = np.zeros
WRONG: list[tuple[str, Callable[[], Any], tuple[str, ...]]] = [
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
    ("no heads", lambda: look_up(Z((7, 0)), INDEX), ("[7, 0]",)),
    ("a list", lambda: look_up([[1.0]], INDEX), ("NumPy arrays or torch tensors",)),
    (
        "two libraries",
        lambda: continuous_bias(Z((9, 2)), Z((8, 2)), torch.zeros(8), Z((3, 8)), INDEX),
        ("w1 is numpy float64", "b1 is torch torch.float32"),
    ),
    (
        "two dtypes",
        lambda: continuous_bias(Z((9, 2)), Z((8, 2)), Z(8, np.float32), Z((3, 8)), INDEX),
        ("float32",),
    ),
    (
        "integers",
        lambda: continuous_bias(Z((9, 2)), Z((8, 2), int), Z(8, int), Z((3, 8), int), INDEX),
        ("int64",),
    ),
    (
        "a dtype that NumPy lacks",
        lambda: continuous_bias(
            torch.zeros(9, 2, dtype=torch.bfloat16), Z((8, 2)), Z(8), Z((3, 8)), INDEX
        ),
        ("bfloat16", "offsets"),
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
