"""HDF5 weights: Keras 3's ``.weights.h5`` and ``.keras``, Keras 2's ``.h5``, and ``tf_model.h5``.

Only the file itself is read: links to other files, external and virtual datasets, and filters that
would be loaded as plugins are refused.
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
    FLOAT_DTYPES,
    MAX_UNPACKED_BYTES,
    Checkpoint,
    TensorInfo,
    check_chunks,
    check_unpacked,
    damaged_error,
    join_shards,
    view_stored_bytes,
)
from posprobe.checkpoints.files import Files, Stream, member_range
from posprobe.checkpoints.kerasconfig import describe_constants
from posprobe.checkpoints.local import check_shard_names, read_json
from posprobe.errors import InvalidCheckpoint, explain_errors

if TYPE_CHECKING:
    import h5py


#: Largest number of nested groups in a file of weights.
MAX_HDF5_DEPTH = 64
#: Largest number of groups and datasets in a file of weights.
MAX_HDF5_OBJECTS = 200_000
#: Member of a ``.keras`` archive that holds the weights.
KERAS_WEIGHTS_MEMBER = "model.weights.h5"
#: Suffix of the index that lists several files of weights.
KERAS_INDEX_SUFFIX = ".weights.json"
#: HDF5's numbers of the filters that compress.
_GZIP_FILTER = 1
_LZF_FILTER = 32000
#: Filters that h5py can undo: gzip, shuffle, checksum, LZF.
_KNOWN_FILTERS = {_GZIP_FILTER, 2, 3, _LZF_FILTER}
#: Largest ratio of unpacked to stored bytes with gzip.
_MAX_GZIP_RATIO = 1032
#: First bit and length of sign, exponent and mantissa of a bfloat16.
_BFLOAT16_FIELDS = (15, 7, 8, 0, 7)
#: Groups of the state that training stores beside the weights.
_TRAINING_GROUPS = {"optimizer", "optimizer_weights"}
_SAVE_MODEL_ADVICE = "Download it again, or save the model again."
#: Keras's layers that compute positions and store none.
_COMPUTED_LAYER = re.compile(r"(sine_position_encoding)(?:_\d+)?$")


def read_hdf5(files: Files, name: str) -> Checkpoint:
    """Read an HDF5 file of weights, or the one in a ``.keras`` archive.

    Tensors are named by their path. A contiguous dataset is mapped; for a chunked one, only its own
    chunks are read. Attributes are not read: in a damaged file the HDF5 library searches for their
    texts forever.

    Raises
    ------
    InvalidCheckpoint
        If the file is damaged, holds no tensors, leads to other files, or unpacks to too much.
    """
    import h5py
    from h5py import h5d

    if name.endswith(KERAS_INDEX_SUFFIX):
        return _open_shards(files, name)
    with explain_errors(
        InvalidCheckpoint, f"{name}: it cannot be read as HDF5", _SAVE_MODEL_ADVICE
    ):
        start, stop, unpacked = 0, files.size(name), b""
        if name.endswith(".keras"):
            start, stop, unpacked = _locate_member(files, name)

        def stream() -> Stream | BytesIO:
            return BytesIO(unpacked) if unpacked else Stream(files, name, start, stop)

        with h5py.File(stream(), "r") as file:
            objects = dict(_iter_objects(file))
            tensors = {
                path: _describe_dataset(
                    dataset, path, name, None if unpacked else (start, stop)
                )
                for path, dataset in objects.items()
                if isinstance(dataset, h5d.DatasetID)
            }
            layers = sorted(
                {
                    dataset[1]
                    for path in objects
                    if (dataset := _COMPUTED_LAYER.search(path))
                }
            )
    if not tensors:
        raise InvalidCheckpoint(f"{name}: contains no tensors. Pass the model's weights.")

    def fetch(info: TensorInfo) -> bytes | memoryview[int]:
        if info.stop:
            return files.exactly(name, info.start, info.stop)
        with (
            explain_errors(
                InvalidCheckpoint,
                f"{name}: it cannot be read as HDF5",
                _SAVE_MODEL_ADVICE,
            ),
            h5py.File(stream(), "r") as file,
        ):
            dataset = file[info.name]
            _check_unpacked_size(dataset, info)
            return view_stored_bytes(dataset[()], info.dtype)

    settings = {"keras_layers": layers} if layers else {}
    notes = describe_constants(files, name) if name.endswith(".keras") else ()
    return Checkpoint(name, tensors, fetch, settings, notes=notes)


def _open_shards(files: Files, name: str) -> Checkpoint:
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
    check_shard_names(shards, name, (".weights.h5",))
    if not shards:
        raise InvalidCheckpoint(
            f"{name}: it has no weight_map. It is not an index of weights."
        )
    folder = PurePosixPath(name).parent
    shard_checkpoints = {
        str(folder / shard): read_hdf5(files, str(folder / shard))
        for shard in sorted(shards)
    }
    shard_entry = [
        (tensor, file)
        for file, shard_checkpoint in shard_checkpoints.items()
        for tensor in shard_checkpoint.tensors
    ]
    if len(dict(shard_entry)) < len(shard_entry):
        raise damaged_error(f"{name}: a tensor is in two of its files")
    return join_shards(
        shard_checkpoints.__getitem__, [*shard_checkpoints], name, {}, dict(shard_entry)
    )


def _locate_member(files: Files, name: str) -> tuple[int, int, bytes]:
    """Return the byte range of the HDF5 file in an archive, or its content if compressed."""
    with zipfile.ZipFile(Stream(files, name)) as archive:
        members = [
            member
            for member in archive.infolist()
            if member.filename == KERAS_WEIGHTS_MEMBER
        ]
        if len(members) != 1:
            raise InvalidCheckpoint(
                f"{name}: contains {len(members)} files "
                f"{KERAS_WEIGHTS_MEMBER}, not one. Save it again."
            )
        (member,) = members
        if member.compress_type != zipfile.ZIP_STORED:
            check_unpacked(f"{name}: {KERAS_WEIGHTS_MEMBER}", member.file_size)
            with archive.open(member) as stream:
                return 0, 0, stream.read(member.file_size + 1)
        archive.open(
            member
        ).close()  # checks the local header against the archive's directory
    return *member_range(files, name, member), b""


def _iter_objects(file: h5py.File) -> Iterator[tuple[str, Any]]:
    """Yield the path and object of every group and dataset, once even if linked repeatedly."""
    from h5py import h5g, h5l, h5o

    visited = set()
    queue = deque([("", file.id, 0)])
    while queue:
        parent_path, group, level = queue.popleft()
        for name in group:
            link = group.links.get_info(name)
            path = f"{parent_path}/{name.decode()}" if parent_path else name.decode()
            if link.type == h5l.TYPE_EXTERNAL:
                raise ValueError(f"{path!r} leads to another file, which is not followed")
            if link.type != h5l.TYPE_HARD or (
                not parent_path and path in _TRAINING_GROUPS
            ):
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
                queue.append((path, child, level + 1))
            yield path, child


def _describe_dataset(
    dataset: Any, name: str, file: str, file_range: tuple[int, int] | None
) -> TensorInfo:
    """Describe a dataset, with its byte range if it is contiguous and stored as in memory.

    ``file_range`` is the byte range of the HDF5 file in the file; None if it was unpacked.
    """
    from h5py import h5d, h5t

    plist = dataset.get_create_plist()
    if plist.get_layout() == h5d.VIRTUAL or plist.get_external_count():
        raise ValueError(f"{name!r} is kept in other files, which are not read")
    data_type = dataset.get_type()
    info = TensorInfo(name, tuple(dataset.shape or ()), _dtype_name(data_type), file)
    is_little_endian = (
        isinstance(data_type, h5t.TypeOpaqueID) or data_type.get_order() == h5t.ORDER_LE
    )
    offset = dataset.get_offset() if plist.get_layout() == h5d.CONTIGUOUS else None
    if (
        file_range is None
        or info.dtype not in FLOAT_DTYPES
        or not is_little_endian
        or not offset
        or 0 in info.shape
    ):
        return info
    start = file_range[0] + offset
    stop = start + data_type.get_size() * math.prod(info.shape)
    if stop > file_range[1]:
        raise ValueError(
            f"{name!r} ends behind the file, at byte {stop} of {file_range[1]}"
        )
    return replace(info, start=start, stop=stop)


def _dtype_name(data_type: Any) -> str:
    """Return the safetensors name of a type, or HDF5's name for other types."""
    from h5py import h5t

    size = data_type.get_size()
    match data_type:
        case h5t.TypeFloatID() if (
            size == 2 and data_type.get_fields() == _BFLOAT16_FIELDS
        ):
            return "BF16"
        case h5t.TypeOpaqueID() if size == 2:  # as Keras stores bfloat16
            return "BF16"
        case h5t.TypeFloatID() if data_type.dtype.itemsize == size:
            return f"F{8 * size}"
        case h5t.TypeIntegerID():
            return f"{'U' if data_type.get_sign() == h5t.SGN_NONE else 'I'}{8 * size}"
    return type(data_type).__name__.removeprefix("Type").removesuffix("ID").lower()


def _check_unpacked_size(dataset: h5py.Dataset, info: TensorInfo) -> None:
    """Refuse a dataset of few stored bytes that unpacks to too many."""
    n_bytes = np.dtype(FLOAT_DTYPES[info.dtype]).itemsize * math.prod(info.shape)
    plist = dataset.id.get_create_plist()
    filters = [plist.get_filter(index)[0] for index in range(plist.get_nfilters())]
    if not set(filters) <= _KNOWN_FILTERS or len(set(filters)) < len(filters):
        raise ValueError(
            f"filters {filters}: known are {sorted(_KNOWN_FILTERS)}, each once"
        )
    chunk_bytes = math.prod(dataset.chunks or ()) * dataset.dtype.itemsize
    stored_bytes = dataset.id.get_storage_size()
    if max(n_bytes, chunk_bytes) > max(
        MAX_UNPACKED_BYTES, 0 if filters else stored_bytes
    ):
        raise ValueError(
            f"{stored_bytes} bytes stand for {max(n_bytes, chunk_bytes)}; "
            f"up to {MAX_UNPACKED_BYTES} may"
        )
    check_chunks(f"{info.file}: {info.name}", info.shape, dataset.chunks or ())
    if (
        not set(filters) & {_GZIP_FILTER, _LZF_FILTER}
        or stored_bytes * _MAX_GZIP_RATIO <= MAX_UNPACKED_BYTES
    ):
        return
    # A chunk may unpack to more than the dataset promises, so long chunks are unpacked one by one.
    large_chunks: list[Any] = []

    def collect_large(chunk: Any) -> None:
        if chunk.size * _MAX_GZIP_RATIO > MAX_UNPACKED_BYTES:
            large_chunks.append(chunk)

    dataset.id.chunk_iter(
        collect_large
    )  # asked for one by one, each is searched from the first
    for chunk in large_chunks:
        raw = dataset.id.read_direct_chunk(chunk.chunk_offset)[1]
        if (
            filters[-1] != _GZIP_FILTER
            or len(zlib.decompressobj().decompress(raw, chunk_bytes + 1)) > chunk_bytes
        ):
            raise ValueError(
                f"a chunk of {chunk.size} bytes unpacks to more than {chunk_bytes}"
            )
