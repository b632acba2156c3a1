"""Configurations made to mislead or to exhaust: each test is named after a fault that once held."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.numpy

import posprobe as pp
from posprobe import settings
from posprobe.errors import InvalidCheckpoint, PosprobeError, UnknownReference, UsageError
from posprobe.families.read import inspect, load_schemes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOISE = np.random.default_rng(0)
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
    "max_position_embeddings": 2048, "rope_theta": 1e4,
}  # fmt: skip


def tensor(*shape: int) -> np.ndarray[Any, Any]:
    return NOISE.standard_normal(shape).astype(np.float32)


def save(folder: Path, config: object, **tensors: np.ndarray[Any, Any]) -> str:
    folder.mkdir(exist_ok=True)
    stored = {name.replace("__", "."): values for name, values in tensors.items()}
    safetensors.numpy.save_file(
        stored or {"x": tensor(2, 2)}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def rotary(folder: Path, **scaling: Any) -> Any:
    (scheme,) = load_schemes(save(folder, LLAMA | {"rope_scaling": scaling}))
    return scheme


@pytest.mark.parametrize("length", [-5, True, 10**400, 0, 2.5, "4096", [1]])
def test_a_training_length_that_is_none_is_refused(
    length: object, tmp_path: Path
) -> None:
    with pytest.raises(InvalidCheckpoint, match="original_max_position_embeddings"):
        rotary(
            tmp_path,
            rope_type="yarn",
            factor=2.0,
            original_max_position_embeddings=length,
        )
    sound = rotary(
        tmp_path, rope_type="yarn", factor=2.0, original_max_position_embeddings=1024
    )
    assert sound.training_length == 1024


def test_an_empty_rule_does_not_drop_the_factor(tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match="rope_type"):
        rotary(tmp_path, rope_type="", factor=2.0)
    unnamed = rotary(tmp_path, factor=2.0)
    assert any("factor has no effect" in note for note in unnamed.notes)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": float("nan")},
        {"rope_type": "linear", "factor": 2.0, "unused": float("inf")},
        {"rope_type": "linear", "factor": 5e-324},
        {"type": "mrope", "mrope_section": 5},
        {"type": "mrope", "mrope_section": ["a"]},
        {"type": "mrope", "mrope_section": [10**400]},
        {"rope_type": "default", "rope_theta": 1e299},
        {"rope_type": ["yarn"]},
    ],
)
def test_numbers_of_a_rotation_that_are_none_are_refused(
    scaling: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InvalidCheckpoint):
        rotary(tmp_path, **scaling)


def test_a_billion_detection_tokens_take_no_memory(tmp_path: Path) -> None:
    config = {
        "model_type": "strange", "image_size": 16, "patch_size": 4,
        "num_detection_tokens": 1_000_000_000,
    }  # fmt: skip
    path = save(tmp_path, config, position_embeddings=tensor(1, 20, 8))
    tracemalloc.start()
    with pytest.raises(PosprobeError):
        pp.load(path)
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()
    table = pp.load(save(tmp_path, config | {"num_detection_tokens": 3},
                         position_embeddings=tensor(1, 20, 8)))  # fmt: skip
    assert len(table) == 16


def test_registers_without_width_do_not_count_by_the_billion(tmp_path: Path) -> None:
    path = save(
        tmp_path, {"model_type": "vit", "image_size": 16, "patch_size": 4},
        pos_embed=tensor(1, 16, 8), reg_token=np.zeros((1, 10**9, 0), np.float32),
    )  # fmt: skip
    tracemalloc.start()
    inspect(path)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


def test_a_bucket_for_every_distance_up_to_a_billion_is_refused() -> None:
    with pytest.raises(UsageError, match="max goes up to"):
        load_schemes("t5:64x32,max=999999999999")
    assert load_schemes("t5:64x32,max=256")


def test_three_tables_in_one_array_are_no_grid(tmp_path: Path) -> None:
    np.save(tmp_path / "three.npy", tensor(3, 24, 8))
    with pytest.raises(
        InvalidCheckpoint, match=r"one row per position, \[n, d\].*`grid=\(3, 24\)`"
    ):
        pp.load(str(tmp_path / "three.npy"))
    assert len(pp.load(str(tmp_path / "three.npy"), grid=(3, 24))) == 72
    with pytest.raises(InvalidCheckpoint, match="contains 72 rows"):
        pp.load(str(tmp_path / "three.npy"), grid=(3, 23))
    with pytest.raises(UnknownReference, match="no table called 't'"):
        pp.load(f"{tmp_path / 'three.npy'}#t")
    folder = save(tmp_path / "gpt2", {"model_type": "gpt2"}, wpe__weight=tensor(3, 24, 8))
    with pytest.raises(InvalidCheckpoint, match=r"one row per position, \[n, d\]"):
        pp.load(folder)
    np.save(tmp_path / "square.npy", tensor(5, 5, 8))
    assert len(pp.load(str(tmp_path / "square.npy"))) == 25


def test_a_name_that_makes_a_search_quadratic_is_passed_over(tmp_path: Path) -> None:
    names = {"emb_pos" * 4000: tensor(4, 4), "_pos_emb" * 4000: tensor(4, 4)}
    path = save(tmp_path, {}, wpe__weight=tensor(9, 8), **names)
    (encoding,) = inspect(path)  # each of the others alone took 13 seconds
    assert encoding["tensor"] == "wpe.weight"


def test_a_number_of_5000_digits_in_a_name_is_no_traceback(tmp_path: Path) -> None:
    digits = "9" * 5000
    name = f"layers.{digits}.relative_position_bias_table"
    path = save(
        tmp_path, {"model_type": "swin", "window_size": 3}, **{name: tensor(25, 2)}
    )
    assert len(load_schemes(path)) == 1
    config = {"architecture": f"vit_patch{digits}_window{digits}", "pretrained_cfg": {}}
    inspect(save(tmp_path, config, pos_embed=tensor(1, 17, 8)))


#: Each reader with a value that it takes, as it returns it, and values that it refuses.
READERS: dict[str, tuple[Callable[..., Any], Any, list[Any]]] = {
    "whole": (
        lambda c: settings.read_integer(c, "k", maximum=10), 10,
        [0, 11, -1, 1.0, True, "1", [1], 10**400]
    ),
    "number": (
        lambda c: settings.read_number(c, "k"), 2.5,
        [0, -1, float("nan"), float("inf"), 10**400, True, "1", 1e-300],
    ),
    "truth": (lambda c: settings.read_bool(c, "k"), False, [0, 1, "true", []]),
    "text": (lambda c: settings.read_text(c, "k"), "x", ["", 1, ["x"], {}, True]),
    "wholes": (
        lambda c: settings.read_integers(c, "k", maximum=9, max_length=2), [1, 2],
        [[1, 2, 3], [10], [True], 1, "12", [[1]], {}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
def test_values_of_other_types_and_sizes_are_refused(reader: str) -> None:
    read, sound, refused = READERS[reader]
    assert read({"k": sound}) == sound
    assert read({}) is None
    assert read({"k": None}) is None
    for value in refused:
        with pytest.raises(
            InvalidCheckpoint, match="the configuration gives k as"
        ) as caught:
            read({"k": value})
        assert len(str(caught.value)) < 300


def test_sizes_of_two_numbers_are_read_in_every_way_of_writing_them() -> None:
    for sound in (4, [4, 4], {"height": 4, "width": 4}):
        assert settings.read_size({"k": sound}, "k", maximum=10) == (4, 4)
    for size in (True, 0, -1, 11, [4], [4, True], {"height": 4}, "4", None, [10**400, 1]):
        assert settings.read_size({"k": size}, "k", maximum=10) is None
