"""Faults of one projection or one layer are named with their layer and side, and never alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

import posprobe as pp
from posprobe.analyses.models.rotary_weights import pair_layout
from posprobe.analyses.models.rotating_layers import (
    LayerRotation,
    RotationTest,
    find_contradictions,
    rotation_test,
)
from posprobe.encodings.rotary import round_to_type
from posprobe.report.render import build_page
from posprobe.studies.checkpoint import analyze_any
from posprobe.studies.rotation import layer_rotations
from posprobe.words.weights import rotation_sentences

HEADS = 8
KEY_HEADS = 4
HEAD_DIM = 8
WIDTH = 64
LAYERS = 5
CONFIG = {
    "model_type": "llama", "hidden_size": WIDTH, "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS, "num_hidden_layers": LAYERS, "head_dim": HEAD_DIM,
    "max_position_embeddings": 512, "rope_theta": 10000.0,
}  # fmt: skip

Tensors = dict[str, NDArray[Any]]


def tensor_name(layer: int, letter: str) -> str:
    return f"model.layers.{layer}.self_attn.{letter}_proj.weight"


def model(seed: int = 0) -> Tensors:
    """Queries and keys whose rows have sizes of their own."""
    draw = np.random.default_rng(seed)
    tensors = {}
    for layer in range(LAYERS):
        for letter, heads in (("q", HEADS), ("k", KEY_HEADS)):
            rows = np.exp(0.5 * draw.normal(size=(heads * HEAD_DIM, 1)))
            values = rows * draw.normal(size=(heads * HEAD_DIM, WIDTH))
            tensors[tensor_name(layer, letter)] = values.astype("f4")
    return tensors


def save(folder: Path, tensors: Tensors) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    arrays = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    save_file(arrays, folder / "model.safetensors")
    return str(folder)


def put_as_neighbours(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    cells = weight.reshape(heads, 2, len(weight) // heads // 2, -1)
    return cells.swapaxes(1, 2).reshape(weight.shape)


def put_as_halves(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    cells = weight.reshape(heads, len(weight) // heads // 2, 2, -1)
    return cells.swapaxes(1, 2).reshape(weight.shape)


def changed(
    tensors: Tensors,
    letter: str,
    change: Callable[[NDArray[Any]], NDArray[Any]],
    layer: int | None = None,
) -> Tensors:
    part = f".{layer}.self_attn.{letter}_" if layer is not None else f".{letter}_proj"
    return {
        name: change(values) if part in name else values
        for name, values in tensors.items()
    }


@pytest.mark.parametrize("bits", [None, "bfloat16"])
@pytest.mark.parametrize(
    ("letter", "change", "layer", "order", "heads"),
    [
        ("k", lambda w: put_as_neighbours(w, KEY_HEADS), None, "to_neighbours", None),
        ("q", lambda w: put_as_neighbours(w, HEADS), None, "to_neighbours", None),
        ("k", lambda w: put_as_neighbours(w, HEADS), None, "other_heads", HEADS),
        (
            "k",
            lambda w: put_as_halves(put_as_neighbours(w, KEY_HEADS), 2),
            None,
            "other_heads",
            2,
        ),
        ("k", lambda w: put_as_neighbours(w, KEY_HEADS), 3, "to_neighbours", None),
        ("q", lambda w: np.roll(w, 2, axis=0), 1, "other", None),
    ],
)
def test_one_permuted_projection_is_named_with_layer_and_side(
    letter: str,
    change: Callable[[NDArray[Any]], NDArray[Any]],
    layer: int | None,
    order: str,
    heads: int | None,
    bits: str | None,
    tmp_path: Path,
) -> None:
    tensors = model()
    copy = changed(tensors, letter, change, layer)
    if bits:
        copy = {name: round_to_type(values, bits) for name, values in copy.items()}
    result = pp.check(save(tmp_path / "a", tensors), save(tmp_path / "b", copy))
    assert result.exit_code == 6
    (finding,) = result.causes
    side = {"q": "queries", "k": "keys"}[letter]
    layers = [*range(LAYERS)] if layer is None else [layer]
    assert (finding.cause, finding.more["projection"]) == ("half_permuted", side)
    assert (finding.more["layers"], finding.more["order"]) == (layers, order)
    assert finding.more["heads"] == heads
    assert finding.curve is not None
    assert side in str(result)
    assert f"layer {layer}" in str(result) or layer is None


def test_one_layer_whose_pairs_are_reordered_differs_from_the_rest(
    tmp_path: Path,
) -> None:
    tensors = model()
    copy = changed(tensors, "q", lambda w: put_as_neighbours(w, HEADS), 2)
    copy = changed(copy, "k", lambda w: put_as_neighbours(w, KEY_HEADS), 2)
    result = pp.check(save(tmp_path / "a", tensors), save(tmp_path / "b", copy))
    assert [(x.cause, x.more["layers"]) for x in result.causes] == [
        ("layers_reordered", [2])
    ]


def test_one_unrelated_projection_differs_from_the_rest(tmp_path: Path) -> None:
    tensors, others = model(), model(1)
    copy = {**tensors, tensor_name(4, "k"): others[tensor_name(4, "k")]}
    result = pp.check(save(tmp_path / "a", tensors), save(tmp_path / "b", copy))
    (finding,) = result.causes
    assert (finding.cause, finding.more["layers"]) == ("unlike_rest", [4])
    assert finding.more["projection"] == "keys"


def test_what_exists_and_was_not_compared_is_not_alike(tmp_path: Path) -> None:
    a = save(tmp_path / "a", model())
    others = {"model.layers.0.mlp.up_proj.weight": np.ones((8, 8), "f4")}
    packed = {name: np.zeros((64, 1), "u1") for name in model()}
    for name, tensors in (("none", others), ("packed", packed), ("unrelated", model(1))):
        result = pp.check(a, save(tmp_path / name, tensors))
        assert result.exit_code == 7, name
        assert result.causes == ()


@pytest.mark.parametrize(("share", "code"), [(0.05, 0), (0.3, 7)])
def test_weights_that_moved_far_are_alike_only_if_rotation_stays(
    share: float, code: int, tmp_path: Path
) -> None:
    tensors, others = model(), model(1)
    copy = {name: values + share * others[name] for name, values in tensors.items()}
    result = pp.check(save(tmp_path / "a", tensors), save(tmp_path / "b", copy))
    assert result.exit_code == code, str(result)


def test_factors_that_keep_the_rotation_may_move_weights_far(tmp_path: Path) -> None:
    tensors = model()
    draw = np.random.default_rng(5)
    copy = {
        # White noise that is as large in each row as the row keeps the shares of pairs.
        name: values
        + 0.15 * draw.normal(size=values.shape) * values.std(axis=1, keepdims=True)
        for name, values in tensors.items()
    }
    copy = {name: values.astype("f4") for name, values in copy.items()}
    result = pp.check(save(tmp_path / "a", tensors), save(tmp_path / "b", copy))
    assert result.alike, str(result)
    assert "moved by 0.1" in str(result)


def test_the_page_of_a_permuted_projection_shows_where_rows_went(tmp_path: Path) -> None:
    tensors = model()
    copy = changed(tensors, "k", lambda w: put_as_neighbours(w, KEY_HEADS), 3)
    result = pp.check(save(tmp_path / "a", tensors), save(tmp_path / "b", copy))
    assert [*result.figures()] == ["projections", "row_maps"]
    row_map = result.arrays()["row_map"]
    expected = put_as_neighbours(np.arange(KEY_HEADS * HEAD_DIM)[:, None], KEY_HEADS)[
        :, 0
    ]
    np.testing.assert_array_equal(row_map[1, : len(expected)], expected)
    np.testing.assert_array_equal(row_map[0], np.arange(HEADS * HEAD_DIM))
    states = {(state.layer, state.side): state.order for state in result.projections}
    assert len(states) == 2 * LAYERS
    assert states[3, "keys"] == "to_neighbours"


def test_other_and_same_weights_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="exclude"):
        pp.check("rotary:8x8", "rotary:8x8", same_weights=True, other_weights=True)


def test_sizes_that_vary_together_over_heads_name_no_wrong_layout() -> None:
    draw = np.random.default_rng(0)
    names = []
    for _ in range(20):
        profile = np.exp(0.5 * draw.normal(size=16))
        common = np.exp(0.3 * draw.normal(size=(40, 16)))
        noise = np.exp(0.1 * draw.normal(size=(40, 32)))
        layout = pair_layout(np.tile(profile * common, (1, 2)) * noise)
        assert layout is not None
        names.append(layout.answer)
    assert set(names) <= {None, "halves"}


def test_coupled_queries_and_keys_are_no_sign_of_rotation() -> None:
    # Each row of a query and of its key share a size, as training without rotation makes them.
    p_values = []
    for seed in range(200):
        draw = np.random.default_rng(seed)
        shared = np.exp(0.5 * draw.normal(size=(8, 16)))
        query, key = (shared * np.exp(0.1 * draw.normal(size=(8, 16))) for _ in "qk")
        test = rotation_test(query, key, seed=seed)
        assert test is not None
        p_values.append(test.p)
    assert 0.01 <= np.mean(np.array(p_values) <= 0.05) <= 0.1


@pytest.mark.parametrize("heads", [2, 8])
def test_shared_norms_are_no_sign_of_rotation(heads: int) -> None:
    # A learned norm that heads share gives each dimension a size of its own in all heads.
    p_values = []
    for seed in range(200):
        draw = np.random.default_rng(seed)
        norm = np.exp(0.5 * draw.normal(size=32))
        query, key = (norm * np.exp(0.1 * draw.normal(size=(heads, 32))) for _ in "qk")
        test = rotation_test(query, key, has_shared_norm=True, seed=seed)
        assert test is not None
        assert test.evidence == "pairs"
        p_values.append(test.p)
    assert 0.01 <= np.mean(np.array(p_values) <= 0.05) <= 0.1


@pytest.mark.parametrize("pair_order", ["halves", "neighbours"])
@pytest.mark.parametrize("heads", [1, 8])
def test_pairs_of_like_size_show_rotation_under_shared_norms(
    heads: int, pair_order: str
) -> None:
    draw = np.random.default_rng(0)
    ladder = np.linspace(0, 1, 16)
    profile = np.tile(ladder, 2) if pair_order == "halves" else np.repeat(ladder, 2)
    query, key = (np.exp(profile + 0.1 * draw.normal(size=(heads, 32))) for _ in range(2))
    test = rotation_test(query, key, has_shared_norm=True)
    assert test is not None
    assert test.rotates
    assert test.ratio < 1
    # Columns that do not rotate are left out, whatever their size.
    fixed = np.exp(3 * draw.normal(size=(heads, 16)))
    query, key = (np.concatenate([rows, fixed], axis=1) for rows in (query, key))
    same_test = rotation_test(query, key, rotated=32, has_shared_norm=True)
    assert same_test is not None
    assert same_test.ratio == pytest.approx(test.ratio)


def test_rows_of_zero_or_few_columns_have_no_test_of_rotation() -> None:
    assert rotation_test(np.zeros((8, 16)), np.ones((4, 16))) is None
    assert rotation_test(np.ones((8, 16)), np.ones((4, 16)), rotated=4) is None


def test_one_of_many_layers_that_should_not_rotate_is_no_contradiction_by_chance() -> (
    None
):
    tests = [RotationTest("heads", 1.5, p, 8) for p in (0.04, 0.5, 0.001, 0.9)]
    rotations = [LayerRotation(k, False, test) for k, test in enumerate(tests)]
    assert find_contradictions(rotations) == (2,)
    assert find_contradictions([LayerRotation(0, True, tests[2])]) == ()


def test_weights_contradict_an_inverted_list_of_rotating_layers(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    profile = np.tile(np.exp(np.linspace(0, 1, HEAD_DIM // 2)), 2)
    tensors = model()
    for name, values in tensors.items():
        sizes = profile if ".1." not in name else np.ones(HEAD_DIM)
        rows = np.tile(sizes, len(values) // HEAD_DIM)[:, None]
        noise = draw.normal(size=values.shape)
        tensors[name] = (rows * noise).astype("f4")
    config = {**CONFIG, "model_type": "smollm3", "no_rope_layers": [0, 1, 0, 0, 0]}
    folder = Path(save(tmp_path / "a", tensors))
    (folder / "config.json").write_text(json.dumps(config))
    document = analyze_any(pp.load_schemes(str(folder))).to_dict()
    use = document["schemes"][0]["weights"]
    assert use["contradictions"] == [0, 2, 3, 4]
    assert [rotation["declared"] for rotation in use["rotations"]] == [
        False, True, False, False, False,
    ]  # fmt: skip
    sentences = " ".join(rotation_sentences(use))
    assert "layers 0, 2–4 rotate" in sentences
    assert "0 of 1 layer" in sentences
    # What was measured comes before what the configuration says.
    page = build_page(document)
    assert [line.name for line in page.single_answers][:2] == [
        "weights",
        "rotating_layers",
    ]
    assert page.headline.startswith("By its weights, ")
    assert page.pictures[0].name == "weights_usage"
    assert sentences in " ".join(
        sentence
        for evidence in build_page(document).evidence
        for sentence in evidence.sentences
    )


def test_inverted_lists_of_rotating_layers_differ(tmp_path: Path) -> None:
    sides = []
    for name, rotating in (("a", [1, 1, 1, 0, 1]), ("b", [0, 0, 0, 1, 0])):
        folder = Path(save(tmp_path / name, model()))
        config = {**CONFIG, "model_type": "smollm3", "no_rope_layers": rotating}
        (folder / "config.json").write_text(json.dumps(config))
        sides.append(folder)
    (finding,) = pp.check(*sides).causes
    assert (finding.cause, finding.a, finding.b) == (
        "rotating_layers",
        [0, 1, 2, 4],
        [3],
    )
    assert pp.check(sides[0], sides[0]).alike
    declared = {entry.layer: entry.declared for entry in layer_rotations(str(sides[1]))}
    assert declared == {0: False, 1: False, 2: False, 3: True, 4: False}
