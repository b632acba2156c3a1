"""Callables that rotate, held against what a file states."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posprobe as pp
from posprobe.encodings import rotary_frequencies
from posprobe.errors import UsageError
from posprobe.testing import assert_positions_alike

REFERENCE = "rotary:4096x64,base=500000"
WIDTH = 64
Rotation = Callable[[Any, Any], Any]


def make_rotation(
    base: float = 5e5,
    *,
    order: str = "halves",
    factor: float = 1.0,
    sign: int = 1,
    offset: int = 0,
    pairs: int = WIDTH // 2,
    limit: int | None = None,
    dtype: type = np.float32,
) -> Rotation:
    """Return what an engine would do."""
    frequencies = sign * rotary_frequencies(WIDTH, base=base)[0][:pairs]

    def rotate(x: Any, positions: Any) -> Any:
        if limit is not None and positions.max() >= limit:
            raise IndexError(f"position {positions.max()} of {limit}")
        index = np.arange(pairs)
        i, j = (index, index + pairs) if order == "halves" else (2 * index, 2 * index + 1)
        angles = np.outer(positions + offset, frequencies)[:, None]
        cos, sin = factor * np.cos(angles), factor * np.sin(angles)
        y = x.copy()
        y[..., i] = x[..., i] * cos - x[..., j] * sin
        y[..., j] = x[..., j] * cos + x[..., i] * sin
        return y.astype(dtype)

    return rotate


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_right_rotation_is_alike(dtype: type) -> None:
    assert pp.check(REFERENCE, make_rotation(dtype=dtype)).alike is True


@pytest.mark.parametrize(
    ("settings", "cause", "distance"),
    [
        ({"base": 1e4}, "base", 1),
        ({"order": "neighbours"}, "pairs_wrong", 1),
        ({"factor": 1.2}, "factor", 0),
        ({"sign": -1}, "backwards", 1),
        ({"offset": 1}, "rotation_offset", None),
        ({"pairs": 16}, "columns", 71),
    ],
)
def test_other_rotations_are_named(
    settings: dict[str, Any], cause: str, distance: int | None
) -> None:
    (finding, *_) = pp.check(REFERENCE, make_rotation(**settings)).causes
    assert finding.cause == cause
    if distance is not None:
        assert math.ceil(finding.first_distance or 0) == distance


@pytest.mark.parametrize(
    ("settings", "causes"),
    [
        ({"scale": 0.25}, []),
        ({}, ["positions_scaled"]),
        ({"scale": 0.0625}, ["scaled_twice"]),
        ({"scale": 4.0}, ["scaled_upwards"]),
        ({"scale": 0.25, "base": 1e4}, ["base"]),
        ({"scale": 0.25, "traditional": True}, ["pairs_wrong"]),
    ],
)
def test_arguments_of_engines_are_held_against_a_model(
    tmp_path: Path, settings: dict[str, Any], causes: list[str]
) -> None:
    """The arithmetic of ``mx.fast.rope`` and ``ggml_rope_custom`` by their arguments."""
    pytest.importorskip("transformers")
    import transformers

    config: Any = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
        vocab_size=99, max_position_embeddings=2048,
        rope_parameters={"rope_type": "linear", "rope_theta": 5e5, "factor": 4.0},
    )  # fmt: skip
    transformers.LlamaModel(config).save_pretrained(tmp_path)
    arguments = {"base": 5e5, "scale": 1.0, "traditional": False, **settings}

    def rotate(x: Any, positions: Any) -> Any:
        frequencies = arguments["base"] ** (-np.arange(0, 16, 2) / 16)
        angles = np.outer(arguments["scale"] * positions, frequencies)[:, None]
        columns = np.arange(16)
        i, j = (
            columns.reshape(-1, 2).T
            if arguments["traditional"]
            else columns.reshape(2, -1)
        )
        y = x.copy()
        y[..., i] = x[..., i] * np.cos(angles) - x[..., j] * np.sin(angles)
        y[..., j] = x[..., j] * np.cos(angles) + x[..., i] * np.sin(angles)
        return y

    result = pp.check(tmp_path, rotate)
    assert [cause.cause for cause in result.causes] == causes


def test_array_with_dlpack_or_gradient_is_read() -> None:
    torch = pytest.importorskip("torch")
    rotate = make_rotation()

    def rotate_tensor(x: Any, positions: Any) -> Any:
        return torch.tensor(rotate(x, positions), requires_grad=True)

    assert pp.check(REFERENCE, rotate_tensor).alike is True


def test_engine_with_fewer_positions_says_how_many_were_probed() -> None:
    result = pp.check("rotary:8192x64,base=500000", make_rotation(limit=4096))
    assert result.alike is True
    assert "4096" in str(result)


@pytest.mark.parametrize(
    ("rotate", "message"),
    [
        (lambda x, _: x[:1], "shape"),
        (lambda *_: "no", "no array"),
        (lambda x, _: x * np.nan, "NaN"),
        (lambda *_: 1 / 0, "fails"),
    ],
)
def test_broken_callable_is_refused(rotate: Rotation, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pp.check(REFERENCE, rotate)


def test_assertion_names_the_difference() -> None:
    with pytest.raises(AssertionError, match="another base"):
        assert_positions_alike(REFERENCE, make_rotation(1e4))
    assert_positions_alike(REFERENCE, make_rotation())


def test_assertion_tolerates_small_angles_within_its_positions() -> None:
    nearly = make_rotation(5e5 * (1 + 1e-4))
    with pytest.raises(AssertionError):
        assert_positions_alike(REFERENCE, nearly, tolerance=1e-5)
    assert_positions_alike(REFERENCE, nearly, positions=64, tolerance=0.1)


@pytest.mark.parametrize("share", [1e-6, 1e-5, 1e-4])
def test_tolerance_binds_in_both_directions(share: float) -> None:
    """The fastest pair turns by 1 rad per position, so that its angle shows the error."""
    frequencies = (1 + share) * rotary_frequencies(WIDTH, base=5e5)[0]

    def rotate(x: Any, positions: Any) -> Any:
        angles = np.outer(positions, frequencies)[:, None]
        first, second = x[..., :32].astype("f8"), x[..., 32:].astype("f8")
        turned = first * np.cos(angles) - second * np.sin(angles)
        return np.concatenate(
            [turned, second * np.cos(angles) + first * np.sin(angles)], axis=-1
        )

    error = 511 * share
    with pytest.raises(AssertionError, match="largest error of an angle"):
        assert_positions_alike(REFERENCE, rotate, positions=512, tolerance=0.9 * error)
    assert_positions_alike(REFERENCE, rotate, positions=512, tolerance=1.1 * error)


@pytest.mark.parametrize("tolerance", [0, -1, math.nan, math.inf, "x", True, None])
def test_tolerance_that_is_no_angle_is_refused(tolerance: Any) -> None:
    with pytest.raises(UsageError, match="positive number"):
        assert_positions_alike(REFERENCE, make_rotation(), tolerance=tolerance)


@pytest.mark.parametrize("positions", [0, 1, -4, 2.5, "x", None, True])
def test_positions_that_are_no_count_are_refused(positions: Any) -> None:
    with pytest.raises(UsageError, match="positions"):
        assert_positions_alike(REFERENCE, make_rotation(), positions=positions)


@pytest.mark.parametrize("rotate", [lambda x, _: x, lambda x, _: 0 * x])
def test_callable_that_does_not_rotate_is_told_so(rotate: Rotation) -> None:
    result = pp.check(REFERENCE, rotate)
    assert [cause.cause for cause in result.causes] == ["not_rotated"]
    assert "does not rotate" in str(result)
    assert "layer" not in str(result)
