"""Anything at all in a file ends in one clear error."""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given, strategies as st
from made_files import VALUES, header_of, quick, save_legacy, save_zip, write

from posprobe.checkpoints import Checkpoint, open_local
from posprobe.errors import InvalidCheckpoint, PosprobeError
from posprobe.families import find_encodings, load, read_table
from posprobe.reference import Reference


def sound_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state = {"wpe.weight": torch.from_numpy(VALUES), "ids": torch.arange(3)}
        safetensors.torch.save_file(state, folder / "a.safetensors")
        save_zip(state, folder / "a.pt")
        save_legacy(state, folder / "legacy.pt")
        arrays: dict[str, Any] = {"wpe.weight": VALUES, "ids": np.arange(3)}
        np.savez(folder / "a.npz", **arrays)
        np.savez_compressed(folder / "compressed.npz", **arrays)
        np.save(folder / "wpe.weight.npy", VALUES)
        return {path.name: path.read_bytes() for path in folder.iterdir()}


SOUND = sound_files()


@pytest.mark.parametrize("suffix", ["npy", "npz", "bin", "pt", "safetensors"])
@pytest.mark.parametrize("name", SOUND)
def test_a_file_of_another_format_is_one_clear_error(
    suffix: str, name: str, tmp_path: Path
) -> None:
    path = write(tmp_path / f"model.{suffix}", SOUND[name])
    kind = name.rpartition(".")[2]
    if {kind, suffix} in ({suffix}, {"pt", "bin"}):
        assert open_local(path).tensors
        return
    with pytest.raises(InvalidCheckpoint, match=path.name) as caught:
        open_local(path)
    assert caught.value.exit_code == 4


def read_everything(path: Path) -> None:
    """Open and read; anything but a success or an explained failure passes through."""
    with contextlib.suppress(PosprobeError):
        checkpoint: Checkpoint = open_local(path)
        for name in checkpoint.tensors:
            with contextlib.suppress(PosprobeError):
                checkpoint.read(name)
        load(str(path))


@quick
@given(st.sampled_from(["safetensors", "pt", "npz", "npy"]), st.binary(max_size=200))
def test_random_bytes_never_end_in_a_traceback(tmp_path: Path, suffix: str, content: bytes) -> None:
    read_everything(write(tmp_path / f"model.{suffix}", content))


@quick
@given(st.binary(max_size=120))
def test_random_headers_never_end_in_a_traceback(tmp_path: Path, content: bytes) -> None:
    length = len(content).to_bytes(8, "little")
    read_everything(write(tmp_path / "model.safetensors", length + content))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    | st.sampled_from(["F32", "BF16", "I64", "U8"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["dtype", "shape", "data_offsets", "wpe.weight", "__metadata__"]), inner
    ),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.slow
@quick
@given(st.dictionaries(st.sampled_from(["wpe.weight", "x"]), json_values), st.binary(max_size=16))
def test_random_json_headers_never_end_in_a_traceback(
    tmp_path: Path, header: dict[str, Any], data: bytes
) -> None:
    read_everything(write(tmp_path / "model.safetensors", header_of(header) + data))


@pytest.mark.slow
@pytest.mark.parametrize("family", [None, "vit", "roberta", "whisper", "clip"])
@quick
@given(json_values, json_values, json_values)
def test_random_configurations_never_end_in_a_traceback(
    family: str | None, tmp_path: Path, one: Any, two: Any, three: Any
) -> None:
    shapes = {
        "vit.embeddings.position_embeddings": (1, 5, 4),
        "bert.embeddings.position_embeddings.weight": (6, 4),
        "pos_embed": (1, 4, 4),
        "decoder.embed_positions.weight": (6, 4),
        "vision_model.embeddings.position_embedding.weight": (5, 4),
        "sentence_encoder.embed_positions.weight": (6, 4),
    }
    path = tmp_path / "model.safetensors"
    if not path.exists():
        safetensors.numpy.save_file({name: np.ones(shapes[name]) for name in shapes}, path)
    config = {
        "model_type": family or one, "image_size": two, "patch_size": three, "pad_token_id": two,
        "padding_idx": one, "pretrained_cfg": three, "model_args": two, "vision_config": one,
        "text_config": two, "attn_config": three, "architecture": one, "max_positions": three,
    }  # fmt: skip
    for more in ({}, {"position_embedding_type": one}, {"pretrained_cfg": {"input_size": one}}):
        (tmp_path / "config.json").write_text(json.dumps(config | more))
        read_everything(tmp_path)
        checkpoint = open_local(tmp_path)
        for encoding in find_encodings(checkpoint):
            with contextlib.suppress(PosprobeError):
                read_table(checkpoint, encoding, Reference("it", "it"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_a_file_with_some_bytes_changed_never_ends_in_a_traceback(
    name: str, tmp_path: Path
) -> None:
    chance = random.Random(name)  # noqa: S311 - a fixed sequence of damages
    path = write(tmp_path / name, SOUND[name])
    assert "wpe.weight" in open_local(path).tensors
    for _ in range(250):
        content = bytearray(SOUND[name])
        match chance.randrange(4):
            case 0:
                for _ in range(chance.randint(1, 4)):
                    content[chance.randrange(len(content))] = chance.randrange(256)
            case 1:
                at = chance.randrange(len(content))
                content[at] ^= 1 << chance.randrange(8)
            case 2:
                del content[chance.randrange(len(content)) :]
            case 3:
                at = chance.randrange(len(content))
                content[at : at + chance.randrange(20)] = chance.randbytes(chance.randrange(20))
        read_everything(write(path, bytes(content)))


def test_a_file_that_cannot_be_mapped_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    safetensors.numpy.save_file({"a": VALUES}, tmp_path / "model.safetensors")
    monkeypatch.setattr(mmap, "mmap", fail)
    with pytest.raises(InvalidCheckpoint, match=os.strerror(errno.EIO)):
        open_local(tmp_path)
