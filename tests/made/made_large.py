"""Sparse files of 500 MB in several formats that hold one small table."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import h5py
import msgpack
import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

SIZE = 500_000_000


def large_hdf5(path: Path, values: NDArray[np.float32]) -> None:
    from h5py import h5d, h5p, h5s, h5t

    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5d.FILL_TIME_NEVER)
    with h5py.File(path, "w") as file:
        file["layers/position_embedding/vars/0"] = values
        space = h5s.create_simple((SIZE // 4,))
        h5d.create(file.id, b"a_big_one", h5t.IEEE_F32LE, space, plist)
        file["layers/position_embedding_1/vars/0"] = values


def large_keras(path: Path, values: NDArray[np.float32]) -> None:
    """Pack the file of `large_hdf5` as Keras does, holes and all."""
    inner = path.with_suffix(".inner")
    large_hdf5(inner, values)
    info = zipfile.ZipInfo("model.weights.h5")
    info.file_size = info.compress_size = size = inner.stat().st_size
    info.CRC = info.header_offset = 0
    with path.open("wb") as file, inner.open("rb") as source:
        file.write(info.FileHeader())
        begin, place = file.tell(), 0
        while place < size:
            start = os.lseek(source.fileno(), place, os.SEEK_DATA)
            place = os.lseek(source.fileno(), start, os.SEEK_HOLE)
            source.seek(start)
            file.seek(begin + start)
            file.write(source.read(place - start))
        file.seek(begin + size)
        with zipfile.ZipFile(file, "w") as archive:
            archive.filelist.append(info)
            archive.comment = b"a member that was written before"


def large_flax(path: Path, values: NDArray[np.float32]) -> None:
    inner = b"\x93\x91" + msgpack.packb(SIZE // 4) + msgpack.packb("float32") + b"\xc6"
    inner += SIZE.to_bytes(4, "big")
    table = msgpack.packb({"embedding": array([12, 8], "float32", values.tobytes())})
    with path.open("wb") as file:
        file.write(b"\x82" + msgpack.packb("big"))
        file.write(b"\xc9" + (len(inner) + SIZE).to_bytes(4, "big") + b"\x01" + inner)
        file.seek(SIZE, 1)
        file.write(msgpack.packb("wpe") + table)


def large_npz(path: Path, values: NDArray[np.float32]) -> None:
    """Lay out what `numpy.savez` writes for ``big`` and the original ViT's table."""
    name = "Transformer/posembed_input/pos_embedding"
    table = io.BytesIO()
    np.save(table, values)
    head = io.BytesIO()
    npy.write_array_header_1_0(
        head, {"descr": "<f4", "fortran_order": False, "shape": (SIZE // 4,)}
    )
    members = []
    with path.open("wb") as file:
        for member, start, hole in (
            ("big", head.getvalue(), SIZE),
            (name, table.getvalue(), 0),
        ):
            info = zipfile.ZipInfo(f"{member}.npy")
            info.file_size = info.compress_size = len(start) + hole
            info.CRC, info.header_offset = zlib.crc32(start), file.tell()
            members.append(info)
            file.write(info.FileHeader() + start)
            file.seek(hole, 1)
        with zipfile.ZipFile(file, "w") as archive:
            archive.filelist.extend(members)
            archive.comment = b"members that were written before"


def array(shape: Any, dtype: str, data: bytes) -> msgpack.ExtType:
    return msgpack.ExtType(1, msgpack.packb((shape, dtype, data)))


LARGE = {
    "weights.h5": large_hdf5, "keras": large_keras, "msgpack": large_flax,
    "npz": large_npz,
}  # fmt: skip
