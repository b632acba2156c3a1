"""Windows and ladders that configurations state layer by layer are compared layer by layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from made_gguf import write
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

SLIDING, FULL = "sliding_attention", "full_attention"
ALL = [*range(LAYERS)]
KINDS = [SLIDING, SLIDING, FULL, SLIDING, FULL]


def write_copy(folder: Path, **settings: Any) -> Path:
    save(folder, model())
    (folder / "config.json").write_text(json.dumps({**CONFIG, **settings}))
    return folder


def list_causes(a: Path, b: Path) -> list[tuple[str, Any, Any, list[int]]]:
    result = pp.check(a, b)
    return [(f.cause, f.a, f.b, list(f.more.get("layers", ()))) for f in result.causes]


def test_window_that_one_copy_lacks_differs(tmp_path: Path) -> None:
    settings = {"model_type": "mistral"}
    with_window = write_copy(tmp_path / "a", **settings, sliding_window=16)
    without = write_copy(tmp_path / "b", **settings, sliding_window=None)
    assert list_causes(with_window, without) == [("window_lost", 16, None, ALL)]
    assert list_causes(without, with_window) == [("window_added", None, 16, ALL)]
    other = write_copy(tmp_path / "c", **settings, sliding_window=64)
    assert list_causes(with_window, other) == [("window", 16, 64, ALL)]
    # The context is 512 positions: a window that is no shorter hides nothing.
    long = write_copy(tmp_path / "d", **settings, sliding_window=512)
    assert pp.check(long, without).alike


def test_layer_that_lost_its_window_is_named(tmp_path: Path) -> None:
    settings = {"model_type": "qwen2", "sliding_window": 16}
    copy = write_copy(tmp_path / "a", **settings, layer_types=KINDS)
    kinds = [*KINDS[:3], FULL, FULL]
    changed = write_copy(tmp_path / "b", **settings, layer_types=kinds)
    assert list_causes(copy, changed) == [("window_lost", 16, None, [3])]


def test_layers_that_take_the_ladder_of_others_are_named(tmp_path: Path) -> None:
    settings = {
        "model_type": "gemma3_text", "sliding_window": 16,
        "rope_parameters": {
            SLIDING: {"rope_type": "default", "rope_theta": 1e4},
            FULL: {"rope_type": "default", "rope_theta": 1e6},
        },
    }  # fmt: skip
    inverted = [FULL if kind == SLIDING else SLIDING for kind in KINDS]
    a = write_copy(tmp_path / "a", **settings, layer_types=KINDS)
    b = write_copy(tmp_path / "b", **settings, layer_types=inverted)
    ladders = [cause for cause in list_causes(a, b) if cause[0] == "ladders_exchanged"]
    assert ladders == [
        ("ladders_exchanged", SLIDING, FULL, [0, 1, 3]),
        ("ladders_exchanged", FULL, SLIDING, [2, 4]),
    ]


@pytest.mark.parametrize("window", [None, 16])
def test_format_without_a_window_leaves_it_uncompared(
    tmp_path: Path, window: int | None
) -> None:
    copy = write_copy(tmp_path / "a", model_type="mistral", sliding_window=window)
    letters = {"q": HEADS, "k": KEY_HEADS}
    tensors = {
        f"blk.{layer}.attn_{letter}.weight": np.ascontiguousarray(
            put_as_neighbours(model()[tensor_name(layer, letter)], heads)
        )
        for layer in ALL
        for letter, heads in letters.items()
    }

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_context_length(512)
        writer.add_embedding_length(64)
        writer.add_block_count(LAYERS)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KEY_HEADS)
        writer.add_key_length(HEAD_DIM)
        writer.add_rope_dimension_count(HEAD_DIM)
        writer.add_rope_freq_base(1e4)

    write(tmp_path / "b.gguf", "llama", tensors, add)
    result = pp.check(copy, tmp_path / "b.gguf")
    reasons = [skipped.reason for skipped in result.not_compared]
    assert reasons == (["no_window"] if window else [])
    assert result.alike is (None if window else True), str(result)


@pytest.mark.parametrize(
    ("rule", "changed"),
    [
        ({"rope_type": "dynamic", "factor": 4.0}, {"factor": 2.0}),
        (
            {
                "rope_type": "longrope", "short_factor": [1.0] * 4,
                "long_factor": [1.0, 2.0, 4.0, 8.0],
                "original_max_position_embeddings": 128,
            },
            {"long_factor": [1.0] * 4},
        ),
    ],
    ids=["dynamic", "longrope"],
)  # fmt: skip
def test_ladders_that_differ_beyond_the_trained_length_alone_differ(
    tmp_path: Path, rule: dict[str, Any], changed: dict[str, Any]
) -> None:
    copies = [
        write_copy(tmp_path / name, rope_parameters={"rope_theta": 1e4, **settings})
        for name, settings in (("a", rule), ("b", {**rule, **changed}))
    ]
    (cause,) = pp.check(*copies).causes
    assert cause.cause == "far_ladder"
    assert (cause.first_distance or 0) >= rule.get(
        "original_max_position_embeddings", 512
    )


def test_logits_scaled_in_one_layer_alone_differ(tmp_path: Path) -> None:
    def scale(queries: float, keys: float) -> Tensors:
        factors = {tensor_name(2, "q"): queries, tensor_name(2, "k"): keys}
        return {k: (factors.get(k, 1) * v).astype("f4") for k, v in model().items()}

    copy = save(tmp_path / "a", model())
    (cause,) = pp.check(copy, save(tmp_path / "b", scale(1.5, 1.0))).causes
    assert (cause.cause, cause.more["layers"]) == ("scale_unlike", [2])
    assert pp.check(copy, save(tmp_path / "c", scale(2.0, 0.5))).alike


def test_sinks_that_are_lost_or_changed_differ(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    sinks = {
        f"model.layers.{layer}.self_attn.sinks": draw.normal(size=HEADS).astype("f4")
        for layer in ALL
    }
    copy = save(tmp_path / "a", {**model(), **sinks})
    assert pp.check(copy, save(tmp_path / "same", {**model(), **sinks})).alike
    (cause,) = pp.check(copy, save(tmp_path / "b", model())).causes
    assert (cause.cause, cause.more["layers"]) == ("sinks_missing", ALL)
    name = "model.layers.1.self_attn.sinks"
    other = {**model(), **sinks, name: sinks[name] + 1}
    (cause,) = pp.check(copy, save(tmp_path / "c", other)).causes
    assert (cause.cause, cause.more["layers"]) == ("sinks_changed", [1])


def test_sinks_that_each_copy_lacks_in_another_layer_are_told_apart(
    tmp_path: Path,
) -> None:
    sinks = np.ones(HEADS, "f4")
    copies = [
        save(tmp_path / name, {**model(), f"model.layers.{layer}.self_attn.sinks": sinks})
        for name, layer in (("a", 1), ("b", 2))
    ]
    causes = pp.check(*copies).causes
    lone_layers = [(cause.a, cause.b, cause.more["layers"]) for cause in causes]
    assert lone_layers == [("sinks", None, [1]), (None, "sinks", [2])]
