"""HDF5 weights: Keras 3's ``.weights.h5`` and ``.keras``, Keras 2's ``.h5``, and ``tf_model.h5``.

Only what lies in the file itself is read: links to other files, datasets that are kept in other
files or made of others, and filters that would be loaded from elsewhere are refused.
"""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.checkpoints.checkpoint import (
    FLOATS,
    MAX_UNPACKED,
    Checkpoint,
    TensorInfo,
    bytes_of,
    check_chunks,
    check_unpacked,
    damaged,
    gathered,
)
from posprobe.checkpoints.files import Files, Stream, member_place
from posprobe.checkpoints.local import read_json, refuse_outside
from posprobe.errors import InvalidCheckpoint, explain_errors

if TYPE_CHECKING:
    import h5py


#: Levels of groups, and objects, that a file of weights has at most.
MAX_HDF5_DEPTH, MAX_HDF5_OBJECTS = 64, 200_000
#: The member of a ``.keras`` archive that holds the weights.
MEMBER = "model.weights.h5"
#: What the list of several files of weights is called.
INDEX = ".weights.json"
#: Filters that are undone here: gzip, shuffle, checksum, LZF; and how far gzip unpacks at most.
_DEFLATE, _LZF, _KNOWN_FILTERS, _RATIO = 1, 32000, {1, 2, 3, 32000}, 1032
#: Places and lengths of sign, exponent and mantissa of a bfloat16.
_BFLOAT16 = (15, 7, 8, 0, 7)
#: Groups of what training keeps beside the weights.
_TRAINING = {"optimizer", "optimizer_weights"}
_ADVICE = "Download it again, or save the model again."
#: Keras's layers that compute positions and store none.
_COMPUTED = re.compile(r"(sine_position_encoding)(?:_\d+)?$")


def read_hdf5(files: Files, name: str) -> Checkpoint:
    """Read an HDF5 file of weights, or the one in a ``.keras`` archive.

    Tensors are named by their path. What lies in one piece is mapped; of what is stored in chunks
    only those of the tensor are read. Attributes are not read: the HDF5 library looks for the texts
    of a damaged file without end.

    Raises
    ------
    InvalidCheckpoint
        If the file is damaged, holds no tensors, leads to other files, or unpacks to too much.
    """
    import h5py
    from h5py import h5d

    if name.endswith(INDEX):
        return _sharded(files, name)
    with explain_errors(InvalidCheckpoint, f"{name}: it cannot be read as HDF5", _ADVICE):
        begin, stop, unpacked = 0, files.size(name), b""
        if name.endswith(".keras"):
            begin, stop, unpacked = _member(files, name)

        def stream() -> Stream | BytesIO:
            return BytesIO(unpacked) if unpacked else Stream(files, name, begin, stop)

        with h5py.File(stream(), "r") as file:
            objects = dict(_walk(file))
            tensors = {
                place: _info(dataset, place, name, None if unpacked else (begin, stop))
                for place, dataset in objects.items()
                if isinstance(dataset, h5d.DatasetID)
            }
            layers = sorted(
                {dataset[1] for place in objects if (dataset := _COMPUTED.search(place))}
            )
    if not tensors:
        raise InvalidCheckpoint(f"{name}: contains no tensors. Pass the model's weights.")

    def fetch(info: TensorInfo) -> bytes | memoryview[int]:
        if info.stop:
            return files.exactly(name, info.start, info.stop)
        with (
            explain_errors(InvalidCheckpoint, f"{name}: it cannot be read as HDF5", _ADVICE),
            h5py.File(stream(), "r") as file,
        ):
            dataset = file[info.name]
            _refuse_bomb(dataset, info)
            return bytes_of(dataset[()], info.dtype)

    settings = {"keras_layers": layers} if layers else {}
    return Checkpoint(name, tensors, fetch, settings)


def _sharded(files: Files, name: str) -> Checkpoint:
    """Open the files that Keras's index of weights lists.

    The index says in which files the weights of each layer are, and not how many these are.
    """
    index = read_json(files, name).get("weight_map")
    shard_entries = index.values() if isinstance(index, dict) else ()
    shards = [
        shard
        for shard_entry in shard_entries
        for shard in (shard_entry if isinstance(shard_entry, list) else [shard_entry])
    ]
    refuse_outside(shards, name, (".weights.h5",))
    if not shards:
        raise InvalidCheckpoint(f"{name}: it has no weight_map. It is not an index of weights.")
    folder = PurePosixPath(name).parent
    opened = {
        str(folder / shard): read_hdf5(files, str(folder / shard)) for shard in sorted(shards)
    }
    shard_entry = [(tensor, file) for file, part in opened.items() for tensor in part.tensors]
    if len(dict(shard_entry)) < len(shard_entry):
        raise damaged(f"{name}: a tensor is in two of its files")
    return gathered(opened.__getitem__, [*opened], name, {}, dict(shard_entry))


def _member(files: Files, name: str) -> tuple[int, int, bytes]:
    """Return where the HDF5 file lies in an archive, and its content if that was compressed."""
    with zipfile.ZipFile(Stream(files, name)) as archive:
        members = [member for member in archive.infolist() if member.filename == MEMBER]
        if len(members) != 1:
            raise InvalidCheckpoint(
                f"{name}: contains {len(members)} files {MEMBER}, not one. Save it again."
            )
        (member,) = members
        if member.compress_type != zipfile.ZIP_STORED:
            check_unpacked(f"{name}: {MEMBER}", member.file_size)
            with archive.open(member) as stream:
                return 0, 0, stream.read(member.file_size + 1)
        archive.open(member).close()  # what stands before it says the same as the directory
    return *member_place(files, name, member), b""


def _walk(file: h5py.File) -> Iterator[tuple[str, Any]]:
    """Yield every object's path and itself, each object once, however it is linked."""
    from h5py import h5g, h5l, h5o

    visited = set()
    waiting = deque([("", file.id, 0)])
    while waiting:
        parent_path, group, level = waiting.popleft()
        for name in group:
            link = group.links.get_info(name)
            place = f"{parent_path}/{name.decode()}" if parent_path else name.decode()
            if link.type == h5l.TYPE_EXTERNAL:
                raise ValueError(f"{place!r} leads to another file, which is not followed")
            if link.type != h5l.TYPE_HARD or (not parent_path and place in _TRAINING):
                continue
            child = h5o.open(group, name)
            address = h5o.get_info(child).addr
            if address in visited:
                continue
            visited.add(address)
            if len(visited) > MAX_HDF5_OBJECTS or level == MAX_HDF5_DEPTH:
                raise ValueError(
                    f"more than {MAX_HDF5_DEPTH} levels of groups or {MAX_HDF5_OBJECTS} objects"
                )
            if isinstance(child, h5g.GroupID):
                waiting.append((place, child, level + 1))
            yield place, child


def _info(dataset: Any, name: str, file: str, place: tuple[int, int] | None) -> TensorInfo:
    """Describe a dataset, with its bytes where they lie in one piece and as they are in memory.

    ``place`` is where the HDF5 file begins and ends in the file; None where it was unpacked.
    """
    from h5py import h5d, h5t

    plist = dataset.get_create_plist()
    if plist.get_layout() == h5d.VIRTUAL or plist.get_external_count():
        raise ValueError(f"{name!r} is kept in other files, which are not read")
    kind = dataset.get_type()
    info = TensorInfo(name, tuple(dataset.shape or ()), _dtype_name(kind), file)
    little = isinstance(kind, h5t.TypeOpaqueID) or kind.get_order() == h5t.ORDER_LE
    offset = dataset.get_offset() if plist.get_layout() == h5d.CONTIGUOUS else None
    if place is None or info.dtype not in FLOATS or not little or not offset or 0 in info.shape:
        return info
    start = place[0] + offset
    stop = start + kind.get_size() * math.prod(info.shape)
    if stop > place[1]:
        raise ValueError(f"{name!r} ends behind the file, at byte {stop} of {place[1]}")
    return replace(info, start=start, stop=stop)


def _dtype_name(kind: Any) -> str:
    """Name a type as safetensors does, where it has a name for it."""
    from h5py import h5t

    size = kind.get_size()
    match kind:
        case h5t.TypeFloatID() if size == 2 and kind.get_fields() == _BFLOAT16:
            return "BF16"
        case h5t.TypeOpaqueID() if size == 2:  # as Keras stores bfloat16
            return "BF16"
        case h5t.TypeFloatID() if kind.dtype.itemsize == size:
            return f"F{8 * size}"
        case h5t.TypeIntegerID():
            return f"{'U' if kind.get_sign() == h5t.SGN_NONE else 'I'}{8 * size}"
    return type(kind).__name__.removeprefix("Type").removesuffix("ID").lower()


def _refuse_bomb(dataset: h5py.Dataset, info: TensorInfo) -> None:
    """Refuse a few stored bytes that unpack to more than fit."""
    size = np.dtype(FLOATS[info.dtype]).itemsize * math.prod(info.shape)
    plist = dataset.id.get_create_plist()
    filters = [plist.get_filter(number)[0] for number in range(plist.get_nfilters())]
    if not set(filters) <= _KNOWN_FILTERS or len(set(filters)) < len(filters):
        raise ValueError(f"filters {filters}: known are {sorted(_KNOWN_FILTERS)}, each once")
    chunk = math.prod(dataset.chunks or ()) * dataset.dtype.itemsize
    stored = dataset.id.get_storage_size()
    if max(size, chunk) > max(MAX_UNPACKED, 0 if filters else stored):
        raise ValueError(f"{stored} bytes stand for {max(size, chunk)}; up to {MAX_UNPACKED} may")
    check_chunks(f"{info.file}: {info.name}", info.shape, dataset.chunks or ())
    if not set(filters) & {_DEFLATE, _LZF} or stored * _RATIO <= MAX_UNPACKED:
        return
    # What is unpacked grows with what a chunk says of itself, whatever the dataset promises.
    large: list[Any] = []

    def look(piece: Any) -> None:
        if piece.size * _RATIO > MAX_UNPACKED:
            large.append(piece)

    dataset.id.chunk_iter(look)  # asked for one by one, each is searched from the first
    for piece in large:
        raw = dataset.id.read_direct_chunk(piece.chunk_offset)[1]
        if filters[-1] != _DEFLATE or len(zlib.decompressobj().decompress(raw, chunk + 1)) > chunk:
            raise ValueError(f"a chunk of {piece.size} bytes unpacks to more than {chunk}")
