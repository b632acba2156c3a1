"""Biases and norms of queries and keys go where their rows went, or the copies differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_projections import (
    CONFIG,
    HEAD_DIM,
    HEADS,
    KEY_HEADS,
    LAYERS,
    Tensors,
    model,
    put_as_neighbours,
    save,
    tensor_name,
)

import posprobe as pp
from posprobe.checks.sides import open_side
from posprobe.encodings.rotary import round_to_type

#: Heads whose rows a converter permutes, by the ending of a tensor's name.
WEIGHTS = {"q_proj.weight": HEADS, "k_proj.weight": KEY_HEADS}
BIASES = {"q_proj.bias": HEADS, "k_proj.bias": KEY_HEADS}
NORMS = {"q_norm.weight": 1, "k_norm.weight": 1}


def model_with_vectors(seed: int = 0) -> Tensors:
    draw = np.random.default_rng(seed)
    tensors = model()
    for layer in range(LAYERS):
        for letter, heads in (("q", HEADS), ("k", KEY_HEADS)):
            name = tensor_name(layer, letter)
            bias, norm = draw.normal(size=heads * HEAD_DIM), draw.normal(size=HEAD_DIM)
            tensors[name.replace("weight", "bias")] = bias.astype("f4")
            # Gains stay near 1, so that any order of them is near any other.
            tensors[name.replace("proj", "norm")] = (1 + 0.1 * norm).astype("f4")
    return tensors


def permuted(tensors: Tensors, *endings: dict[str, int]) -> Tensors:
    """Put rows as neighbours, as the converters for engines of neighbours do."""
    heads_by_ending = {k: heads for group in endings for k, heads in group.items()}
    copy = {}
    for name, values in tensors.items():
        ending = name.split("self_attn.")[1]
        if ending in heads_by_ending:
            rows = values.reshape(len(values), -1)
            values = put_as_neighbours(rows, heads_by_ending[ending]).reshape(
                values.shape
            )
        copy[name] = values
    return copy


def causes(result: pp.Check) -> list[tuple[str, str]]:
    return [(finding.what, finding.cause) for finding in result.causes]


def copies(tmp_path: Path, a: Tensors, b: Tensors) -> tuple[str, str]:
    return save(tmp_path / "a", a), save(tmp_path / "b", b)


@pytest.mark.parametrize(
    ("endings", "faults"),
    [
        ((BIASES,), ["biases"]),
        ((NORMS,), ["norms"]),
        ((WEIGHTS,), ["biases", "norms"]),
        ((WEIGHTS, BIASES), ["norms"]),
        ((WEIGHTS, BIASES, NORMS), []),
    ],
)
def test_vectors_in_another_order_than_their_rows_differ(
    endings: Sequence[dict[str, int]], faults: list[str], tmp_path: Path
) -> None:
    tensors = model_with_vectors()
    result = pp.check(*copies(tmp_path, tensors, permuted(tensors, *endings)))
    pairs = [("pairs", "pairs_mixed_up")] if WEIGHTS in endings else []
    assert causes(result) == [*pairs, *((name, "vector_order") for name in faults)]
    for finding in result.causes[len(pairs) :]:
        assert finding.more["layers"] == [*range(LAYERS)]
        assert finding.more["projection"] == "queries and keys"
    compared = {finding.what: finding.cause for finding in result.compared}
    for name in {"biases", "norms"} - {*faults}:
        assert compared[name] == "identical"


def test_one_vector_of_one_layer_is_named_with_its_side(tmp_path: Path) -> None:
    tensors = model_with_vectors()
    name = tensor_name(3, "k").replace("weight", "bias")
    copy = {**tensors, name: np.random.default_rng(9).normal(size=32).astype("f4")}
    (finding,) = pp.check(*copies(tmp_path, tensors, copy)).causes
    assert (finding.what, finding.cause) == ("biases", "vector_unlike")
    assert (finding.more["layers"], finding.more["projection"]) == ([3], "keys")


def test_exchanged_gains_are_named_by_side(tmp_path: Path) -> None:
    tensors = model_with_vectors()
    sides = {"q_norm": "k_norm", "k_norm": "q_norm"}

    def take_partner(name: str, side: str) -> NDArray[Any]:
        return tensors[name.replace(side, sides[side])]

    swapped = {
        name: next((take_partner(name, side) for side in sides if side in name), values)
        for name, values in tensors.items()
    }
    result = pp.check(*copies(tmp_path, tensors, swapped))
    assert causes(result) == [("norms", "vector_swapped")]
    assert result.causes[0].more["layers"] == [*range(LAYERS)]
    name = tensor_name(2, "k").replace("proj", "norm")
    one_side = {**tensors, name: take_partner(name, "k_norm")}
    (finding,) = pp.check(tmp_path / "a", save(tmp_path / "one", one_side)).causes
    assert (finding.cause, finding.more["layers"]) == ("vector_swapped", [2])
    assert finding.more["projection"] == "keys"


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_gains_moved_beside_equal_weights_differ(tmp_path: Path, dtype: str) -> None:
    tensors = model_with_vectors()
    copy = {name: values.astype(dtype) for name, values in tensors.items()}
    assert pp.check(*copies(tmp_path, tensors, copy)).alike
    name = tensor_name(1, "q").replace("proj", "norm")
    copy[name] = (1.05 * tensors[name]).astype(dtype)
    (finding,) = pp.check(tmp_path / "a", save(tmp_path / "moved", copy)).causes
    assert (finding.cause, finding.more["layers"]) == ("vector_unlike", [1])
    assert finding.value == pytest.approx(0.05, abs=1e-3)


def test_rounding_of_gains_that_add_one_is_alike(tmp_path: Path) -> None:
    tensors = model_with_vectors()
    copy = {name: round_to_type(values, "bfloat16") for name, values in tensors.items()}
    config = json.dumps({**CONFIG, "model_type": "gemma3_text"})
    folders = [Path(folder) for folder in copies(tmp_path, tensors, copy)]
    for folder in folders:
        (folder / "config.json").write_text(config)
    assert pp.check(*folders).alike


def test_lost_biases_differ_unless_they_are_zero(tmp_path: Path) -> None:
    tensors = model_with_vectors()
    lost = {name: values for name, values in tensors.items() if "bias" not in name}
    result = pp.check(*copies(tmp_path, tensors, lost))
    assert causes(result) == [("biases", "vector_missing")]
    assert "in A only" in str(result)
    zeros: Tensors = {
        name: np.zeros_like(values) if "bias" in name else values
        for name, values in tensors.items()
    }
    assert pp.check(save(tmp_path / "zeros", zeros), tmp_path / "b").alike


def test_trained_vectors_are_alike_and_far_ones_are_not_compared(tmp_path: Path) -> None:
    tensors = model_with_vectors()
    draw = np.random.default_rng(1)

    def moved(values: NDArray[Any], share: float) -> NDArray[Any]:
        noise = draw.normal(size=values.shape) * np.sqrt((values**2).mean())
        return np.asarray(values + share * noise, dtype="f4")

    trained = {name: moved(values, 0.03) for name, values in tensors.items()}
    result = pp.check(*copies(tmp_path, tensors, trained))
    assert result.alike, str(result)
    assert not result.not_compared
    far = {
        name: moved(values, 2) if "bias" in name else trained[name]
        for name, values in tensors.items()
    }
    result = pp.check(tmp_path / "a", save(tmp_path / "far", far))
    assert result.exit_code == 0
    assert {(x.what, x.reason) for x in result.not_compared} == {
        ("biases", "vector_moved")
    }
    assert "not compared" in str(result)


def test_a_gain_that_adds_one_is_read_as_it_multiplies(tmp_path: Path) -> None:
    tensors = model_with_vectors()
    folder = Path(save(tmp_path / "a", tensors))
    config = {**CONFIG, "model_type": "gemma3_text"}
    (folder / "config.json").write_text(json.dumps(config))
    weights = open_side(folder, offline=True).weights
    assert weights is not None
    queries, _ = weights.read_vectors(0)
    stored = tensors[tensor_name(0, "q").replace("proj", "norm")]
    np.testing.assert_allclose(queries["norms"], 1 + stored, rtol=1e-6)


def test_a_permuted_projection_is_identical_up_to_the_order_of_rows(
    tmp_path: Path,
) -> None:
    tensors = model()
    copy = permuted(tensors, {"k_proj.weight": KEY_HEADS})
    copy = {name: copy[name] if ".3." in name else tensors[name] for name in tensors}
    result = pp.check(*copies(tmp_path, tensors, copy))
    lines = [line.split() for line in str(result).splitlines() if "identical" in line]
    assert [" ".join(line) for line in lines] == [
        "weights layers 0–2, 4: identical alike",
        "weights layer 3, queries: identical alike",
        "weights layer 3, keys: identical up to the order of rows reordered",
    ]
