"""Archives made to mislead: each test is named after a fault that once held.

What the safetensors, NumPy and PyTorch packages make of the same bytes is the oracle.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

import posprobe as pp
from posprobe.checkpoints import open_local
from posprobe.checkpoints.local import MAX_JSON
from posprobe.errors import InvalidCheckpoint

if TYPE_CHECKING:
    from pathlib import Path

VALUES = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


def deflated(source: Path, target: Path) -> None:
    """Pack an archive again, compressed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.namelist():
            new.writestr(member, old.read(member))


def test_deflated_members_of_a_torch_archive_are_unpacked_and_not_mapped(tmp_path: Path) -> None:
    stored, packed = tmp_path / "stored.pt", tmp_path / "packed.pt"
    values = np.tile(VALUES, (200, 1))
    torch.save({"wpe.weight": torch.from_numpy(values)}, stored)
    deflated(stored, packed)
    assert packed.stat().st_size < stored.stat().st_size
    np.testing.assert_array_equal(torch.load(packed)["wpe.weight"].numpy(), values)
    np.testing.assert_array_equal(open_local(packed).read("wpe.weight").values, values)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_with_a_member_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"wpe.weight": torch.from_numpy(VALUES)}, path)
    with zipfile.ZipFile(path, "a") as archive:
        name = next(n for n in archive.namelist() if n.endswith("data/0"))
        archive.writestr(name, bytes(VALUES.nbytes))
    with pytest.raises(InvalidCheckpoint, match=r"model\.pt.*twice"):
        open_local(path)
    arrays = tmp_path / "arrays.npz"
    np.savez(arrays, t=VALUES)
    with zipfile.ZipFile(arrays, "a") as archive:
        archive.writestr("t.npy", archive.read("t.npy"))
    with pytest.raises(InvalidCheckpoint, match=r"arrays\.npz.*twice"):
        open_local(arrays)


def test_a_tensor_in_two_shards_is_taken_from_the_one_that_the_index_names(tmp_path: Path) -> None:
    for suffix, save in (
        ("safetensors", lambda t, path: safetensors.torch.save_file(t, path)),
        ("bin", torch.save),
    ):
        for named in ("a", "b"):
            folder = tmp_path / f"{suffix}-{named}"
            folder.mkdir()
            for shard, factor in (("a", 1.0), ("b", 2.0)):
                tensors = {"wpe.weight": torch.from_numpy(VALUES * np.float32(factor))}
                save(tensors, folder / f"{shard}.{suffix}")
            other = next(shard for shard in "ab" if shard != named)
            weight_map = {"wpe.weight": f"{named}.{suffix}", "gone": f"{other}.{suffix}"}
            stem = "model.safetensors" if suffix == "safetensors" else "pytorch_model.bin"
            (folder / f"{stem}.index.json").write_text(json.dumps({"weight_map": weight_map}))
            checkpoint = open_local(folder)
            expected = VALUES * np.float32(1.0 if named == "a" else 2.0)
            np.testing.assert_array_equal(checkpoint.read("wpe.weight").values, expected)
            with pytest.raises(InvalidCheckpoint, match="'gone' is in it, and it is not"):
                checkpoint.read("gone")


def test_a_member_without_suffix_does_not_stand_for_the_array_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    np.savez(path, t=VALUES)
    other = tmp_path / "other.npy"
    np.save(other, VALUES[::-1])
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("t", other.read_bytes())
    np.testing.assert_array_equal(open_local(path).read("t").values, VALUES)


def test_a_shard_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"t": "a.safetensors"}}))
    with pytest.raises(InvalidCheckpoint, match=r"a\.safetensors.*not a regular file"):
        open_local(tmp_path)
    index.unlink()
    os.mkfifo(index)
    with pytest.raises(InvalidCheckpoint, match="not a regular file"):
        open_local(index)


def test_a_small_archive_is_not_unpacked_into_more_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 2**20
    monkeypatch.setattr("posprobe.checkpoints.base.MAX_UNPACKED", limit)
    zeros = np.zeros(limit // 4 + 1, np.float32)
    np.savez_compressed(tmp_path / "bomb.npz", t=zeros, small=VALUES)
    torch.save({"t": torch.from_numpy(zeros)}, tmp_path / "stored.pt")
    deflated(tmp_path / "stored.pt", tmp_path / "bomb.pt")
    assert (tmp_path / "bomb.npz").stat().st_size < 10_000
    checkpoint = open_local(tmp_path / "bomb.npz")
    np.testing.assert_array_equal(checkpoint.read("small").values, VALUES)
    with pytest.raises(InvalidCheckpoint, match="up to 1048576 are unpacked"):
        checkpoint.read("t")
    with pytest.raises(InvalidCheckpoint, match="up to 1048576 are unpacked"):
        open_local(tmp_path / "bomb.pt")
    assert open_local(tmp_path / "stored.pt").read("t").values.shape == zeros.shape


@pytest.mark.parametrize("kind", ["expanded", "sparse"])
def test_a_few_numbers_do_not_stand_for_more_than_fits(kind: str, tmp_path: Path) -> None:
    shape = (2**20, 2**12)
    tensor = torch.ones(1, 1).expand(shape)
    if kind == "sparse":
        nowhere = torch.zeros(2, 0, dtype=torch.int64)
        tensor = torch.sparse_coo_tensor(nowhere, torch.zeros(0), shape, check_invariants=True)
    torch.save({"wpe.weight": tensor, "small": torch.ones(1, 4).expand(3, 4)}, tmp_path / "m.pt")
    checkpoint = open_local(tmp_path / "m.pt")
    with pytest.raises(InvalidCheckpoint, match="up to 1073741824 are unpacked"):
        checkpoint.read("wpe.weight")
    np.testing.assert_array_equal(checkpoint.read("small").values, np.ones((3, 4)))


def test_a_configuration_of_any_length_is_not_read_into_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", VALUES)
    with (tmp_path / "config.json").open("wb") as stream:
        stream.truncate(MAX_JSON + 1)
    with pytest.raises(InvalidCheckpoint, match="at most"):
        open_local(tmp_path)


def packed(header: bytes, data: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + data


def test_names_written_twice_are_refused_though_the_package_takes_one(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    entry = '"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
    path.write_bytes(packed(f"{{{entry},{entry}}}".encode(), bytes(8)))
    with pytest.raises(InvalidCheckpoint, match="'a' twice"):
        open_local(path)


def pages_held(path: Path) -> int:
    """Count the pages of a file that the system holds in memory."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        content = np.frombuffer(mapped, dtype=np.uint8)
        held = np.zeros(-(-len(content) // mmap.PAGESIZE), dtype=np.uint8)
        place, into = (ctypes.c_void_p(array.ctypes.data) for array in (content, held))
        assert ctypes.CDLL(None).mincore(place, ctypes.c_size_t(len(content)), into) == 0
        del content
    return int((held & 1).sum())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which pages were read")
@pytest.mark.parametrize("kind", ["npy", "safetensors", "pt"])
def test_of_a_mapped_file_no_more_is_read_than_the_rows(kind: str, tmp_path: Path) -> None:
    n, d = 2**15, 1024  # 128 MB
    path, angles = (
        tmp_path / f"table.{kind}",
        np.outer(np.arange(20_000, 20_100), 1e4 ** -(np.arange(0, d, 2) / d)),
    )
    rows = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(100, d).astype("<f4")
    if kind == "pt":
        table = torch.zeros(n, d)
        table[20_000:20_100] = torch.from_numpy(rows)
        torch.save({"table": table}, path)
    else:
        entry = {"dtype": "F32", "shape": [n, d], "data_offsets": [0, 4 * n * d]}
        with path.open("wb") as stream:
            if kind == "npy":
                head = {"descr": "<f4", "fortran_order": False, "shape": (n, d)}
                np.lib.format.write_array_header_1_0(stream, head)
            else:
                stream.write(packed(json.dumps({"table": entry}).encode(), b""))
            stream.truncate(stream.tell() + 4 * n * d)
            stream.seek(4 * 20_000 * d, os.SEEK_CUR)
            stream.write(rows.tobytes())
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if pages_held(path) > 100:
        pytest.skip("this file system keeps all of its files in memory")
    found = pp.load(str(path), tensor="table", rows=slice(20_000, 20_100))
    # The system reads some megabytes more, ahead and behind.
    assert pages_held(path) * mmap.PAGESIZE < 4 * n * d / 4
    np.testing.assert_array_equal(found.values, rows)
    assert found.kind == "fixed"
    assert "the values follow a formula: sinusoid, interleaved" in " ".join(found.notes)


@pytest.mark.parametrize("bounds", [(0, 3), (2, 9), (11, 12), (0, 12)])
def test_rows_of_a_long_table_are_those_of_the_whole(
    bounds: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(1).standard_normal((1, 15, 4)).astype(np.float32)
    safetensors.numpy.save_file(
        {"embeddings.position_embeddings": values, "embeddings.cls_token": values[:, :1]},
        tmp_path / "model.safetensors",
    )
    config = {"model_type": "yolos", "image_size": [3, 4], "patch_size": 1}
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_detection_tokens": 2}))
    whole = pp.load(str(tmp_path), rows=slice(*bounds))
    monkeypatch.setattr("posprobe.families.rows.WHOLE", 10)
    part = pp.load(str(tmp_path), rows=slice(*bounds))
    np.testing.assert_array_equal(part.values, whole.values)
    assert part.layout == whole.layout
    assert part.prefix_rows == whole.prefix_rows
    assert len(part.prefix_rows) == 3
    np.testing.assert_array_equal(part.prefix, whole.prefix)
    assert whole.source.sha256 is not None
    assert part.source.sha256 is None
    assert any("digest was not taken" in note for note in part.notes)
