"""HDF5 weights: Keras 3's ``.weights.h5`` and ``.keras``, Keras 2's ``.h5``, and ``tf_model.h5``.

Only what lies in the file itself is read: links to other files, datasets that are kept in other
files or made of others, and filters that would be loaded from elsewhere are refused.

The configuration in a ``.keras`` archive tells which layer each weight belongs to: they lie under
the classes of layers or the attributes of a class of one's own, so that a name may tell nothing.
"""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections import Counter, deque
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.checkpoints.base import (
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
from posprobe.checkpoints.files import Content, Files, Stream, View, member_place
from posprobe.checkpoints.local import MAX_JSON, parse_json, refuse_outside
from posprobe.errors import InvalidCheckpoint, explained

if TYPE_CHECKING:
    import h5py


#: Where KerasHub's layers keep a table, by class.
_TABLES: Mapping[str, str] = {
    "PositionEmbedding": "vars/0", "TokenAndPositionEmbedding": "position_embedding/vars/0",
}  # fmt: skip
#: Arguments that state a number of positions.
_LENGTHS = (
    "sequence_length", "max_sequence_length", "seq_len", "max_seq_len", "max_length", "maxlen",
    "max_len", "context_length", "block_size", "num_positions", "max_positions", "num_patches",
    "max_position_embeddings",
)  # fmt: skip
#: Layers within layers, and layers in all, that are looked at.
_DEPTH, _MOST = 32, 10_000


@dataclass(frozen=True)
class _Layer:
    """A layer's place among the weights, its class, the name that the user gave it, arguments."""

    path: str
    kind: str
    name: str
    config: Mapping[str, Any]


def position_layers(config: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> dict[str, str]:
    """Find the weights that layers of positions have, by class, or else by shape.

    Parameters
    ----------
    config
        The archive's ``config.json``.
    tensors
        The weights by their path.

    Returns
    -------
    dict
        Name of the tensor to a few words that say why; the last is the layer's path.
    """
    found: dict[str, str] = {}
    layers = list(islice(_layers(config, ""), _MOST))
    for layer in layers:
        own = _TABLES.get(layer.kind, "")
        place = f"{layer.path}/{own}".lstrip("/")
        if own and place in tensors:
            found[place] = f"it is the table of a layer {layer.kind} called {_told(layer)}"
    known = set(found)
    below = _below({layer.path for layer in layers}, tensors)
    for layer in layers:
        for key in _LENGTHS:
            rows = layer.config.get(key)
            if layer.kind in _TABLES or type(rows) is not int or rows < 2:
                continue
            fits = below.get((layer.path, rows))
            if fits and fits not in known:
                why = f"its shape alone fits, with {rows} rows, {key} of a layer {layer.kind}"
                found.setdefault(fits, f"{why} called {_told(layer)}")
    return found


def _below(
    paths: Container[str], tensors: Mapping[str, TensorInfo]
) -> dict[tuple[str, int], str | None]:
    """Find the one table of so many rows below each path; None where there are several."""
    found: dict[tuple[str, int], str | None] = {}
    for name, info in tensors.items():
        rows = _rows(info.shape)
        parts = name.split("/")
        if rows is not None:
            for length in range(len(parts)):
                if (path := "/".join(parts[:length])) in paths:
                    found[path, rows] = None if (path, rows) in found else name
    return found


def _told(layer: _Layer) -> str:
    return " ".join(filter(None, (layer.name[:80], layer.path and f"at {layer.path}")))


def _rows(shape: tuple[int, ...]) -> int | None:
    """Count the rows of a table ``[n, d]`` or ``[1, n, d]``."""
    table = len(shape) == 2 or (len(shape) == 3 and shape[0] == 1)
    return shape[-2] if table and shape[-1] > 1 else None


def _layers(entry: Mapping[str, Any], path: str, depth: int = 0) -> Iterator[_Layer]:
    """Yield a layer, and the layers within it under the paths that Keras gives their weights."""
    config = entry.get("config")
    kind, name = entry.get("class_name"), ""
    if not isinstance(config, dict) or not isinstance(kind, str) or depth > _DEPTH:
        return
    if isinstance(config.get("name"), str):
        name = config["name"]
    yield _Layer(path, kind, name, config)
    seen: Counter[str] = Counter()
    listed = config.get("layers")
    for layer in listed[:_MOST] if isinstance(listed, list) else ():
        # Operations such as an addition stand in the list as well, and are not layers.
        if not isinstance(layer, dict) or ".ops." in str(layer.get("module")):
            continue
        word = _snake(str(layer.get("class_name"))[:200])
        number = seen[word]
        seen[word] += 1
        within = f"layers/{word}_{number}" if number else f"layers/{word}"
        yield from _layers(layer, f"{path}/{within}".lstrip("/"), depth + 1)
    for key, part in config.items():
        if isinstance(part, dict) and "class_name" in part:
            yield from _layers(part, f"{path}/{key}".lstrip("/"), depth + 1)


def _snake(name: str) -> str:
    """Write a class's name as Keras does in paths: ``PositionEmbedding`` is position_embedding."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


#: Levels of groups, and objects, that a file of weights has at most.
DEPTH, MOST = 64, 200_000
#: The member of a ``.keras`` archive that holds the weights.
MEMBER = "model.weights.h5"
#: The one that says of which layers the model is made.
CONFIG = "config.json"
#: What the list of several files of weights is called.
INDEX = ".weights.json"
#: Filters that are undone here: gzip, shuffle, checksum, LZF; and how far gzip unpacks at most.
_DEFLATE, _LZF, _KNOWN, _RATIO = 1, 32000, {1, 2, 3, 32000}, 1032
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
    with explained(InvalidCheckpoint, f"{name}: it cannot be read as HDF5", _ADVICE):
        packed = View.of(files, name)
        data = _content(packed, name)
        with h5py.File(Stream(data), "r") as file:
            objects = dict(_walk(file))
            tensors = {
                place: _info(found, place, name, len(data))
                for place, found in objects.items()
                if isinstance(found, h5d.DatasetID)
            }
            layers = sorted({found[1] for place in objects if (found := _COMPUTED.search(place))})
        uses = _positions(packed, tensors, name) if data is not packed else {}
    if not tensors:
        raise InvalidCheckpoint(f"{name}: contains no tensors. Pass the model's weights.")

    def fetch(info: TensorInfo) -> bytes | memoryview[int]:
        if info.stop:
            return data[info.start : info.stop]
        with (
            explained(InvalidCheckpoint, f"{name}: it cannot be read as HDF5", _ADVICE),
            h5py.File(Stream(data), "r") as file,
        ):
            return _values(file[info.name], info)

    settings = {"keras_layers": layers} if layers else {}
    return Checkpoint(name, tensors, fetch, settings, uses=uses)


def _sharded(files: Files, name: str) -> Checkpoint:
    """Open the files that Keras's index of weights lists.

    The index says in which files the weights of each layer are, and not how many these are.
    """
    index = parse_json(bytes(files.read(name, 0, MAX_JSON)), name).get("weight_map")
    listed = index.values() if isinstance(index, dict) else ()
    shards = [
        shard for found in listed for shard in (found if isinstance(found, list) else [found])
    ]
    refuse_outside(shards, name, (".weights.h5",))
    if not shards:
        raise InvalidCheckpoint(f"{name}: it has no weight_map. It is not an index of weights.")
    folder = PurePosixPath(name).parent
    opened = {
        str(folder / shard): read_hdf5(files, str(folder / shard)) for shard in sorted(shards)
    }
    found = [(tensor, file) for file, part in opened.items() for tensor in part.tensors]
    if len(dict(found)) < len(found):
        raise damaged(f"{name}: a tensor is in two of its files")
    layers = {layer for part in opened.values() for layer in part.config.get("keras_layers", ())}
    settings = {"keras_layers": sorted(layers)} if layers else {}
    return gathered(opened.__getitem__, [*opened], name, settings, dict(found))


def _positions(packed: Content, tensors: Mapping[str, TensorInfo], file: str) -> dict[str, str]:
    """Ask the configuration in an archive which weights are of layers of positions."""
    with zipfile.ZipFile(Stream(packed)) as archive:
        members = [each for each in archive.infolist() if each.filename == CONFIG]
        if len(members) != 1 or members[0].file_size > MAX_JSON:
            return {}
        with archive.open(members[0]) as stream:
            content = stream.read(MAX_JSON)
    return position_layers(parse_json(content, f"{file}/{CONFIG}"), tensors)


def _content(data: View, name: str) -> Content:
    """Take the HDF5 file, in an archive its member; one that is compressed is unpacked."""
    if not name.endswith(".keras"):
        return data
    with zipfile.ZipFile(Stream(data)) as archive:
        members = [member for member in archive.infolist() if member.filename == MEMBER]
        if len(members) != 1:
            raise InvalidCheckpoint(
                f"{name}: contains {len(members)} files {MEMBER}, not one. Save it again."
            )
        (member,) = members
        if member.compress_type != zipfile.ZIP_STORED:
            check_unpacked(f"{name}: {MEMBER}", member.file_size)
            with archive.open(member) as stream:
                return memoryview(stream.read(member.file_size + 1))
        archive.open(member).close()  # what stands before it says the same as the directory
    begin, end = member_place(data, member)
    return View(data.files, data.file, begin, end)


def _walk(file: h5py.File) -> Iterator[tuple[str, Any]]:
    """Yield every object's path and itself, each object once, however it is linked."""
    from h5py import h5g, h5l, h5o

    seen = set()
    waiting = deque([("", file.id, 0)])
    while waiting:
        above, group, level = waiting.popleft()
        for name in group:
            link = group.links.get_info(name)
            place = f"{above}/{name.decode()}" if above else name.decode()
            if link.type == h5l.TYPE_EXTERNAL:
                raise ValueError(f"{place!r} leads to another file, which is not followed")
            if link.type != h5l.TYPE_HARD or (not above and place in _TRAINING):
                continue
            found = h5o.open(group, name)
            address = h5o.get_info(found).addr
            if address in seen:
                continue
            seen.add(address)
            if len(seen) > MOST or level == DEPTH:
                raise ValueError(f"more than {DEPTH} levels of groups or {MOST} objects")
            if isinstance(found, h5g.GroupID):
                waiting.append((place, found, level + 1))
            yield place, found


def _info(dataset: Any, name: str, file: str, length: int) -> TensorInfo:
    """Describe a dataset, with its bytes where they lie in one piece and as they are in memory."""
    from h5py import h5d, h5t

    plist = dataset.get_create_plist()
    if plist.get_layout() == h5d.VIRTUAL or plist.get_external_count():
        raise ValueError(f"{name!r} is kept in other files, which are not read")
    kind = dataset.get_type()
    shape = tuple(dataset.shape or ())
    dtype = _dtype_name(kind)
    little = isinstance(kind, h5t.TypeOpaqueID) or kind.get_order() == h5t.ORDER_LE
    start = dataset.get_offset() if plist.get_layout() == h5d.CONTIGUOUS else None
    if dtype not in FLOATS or not little or not start or 0 in shape:
        return TensorInfo(name, shape, dtype, file)
    stop = start + kind.get_size() * math.prod(shape)
    if stop > length:
        raise ValueError(f"{name!r} ends at byte {stop} of a file of {length}")
    return TensorInfo(name, shape, dtype, file, start, stop)


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


def _values(dataset: h5py.Dataset, info: TensorInfo) -> memoryview[int]:
    """Read a dataset that lies in chunks, in the other order of bytes, or was never written."""
    _refuse_bomb(dataset, info)
    return bytes_of(dataset[()], info.dtype)


def _refuse_bomb(dataset: h5py.Dataset, info: TensorInfo) -> None:
    """Refuse a few stored bytes that unpack to more than fit."""
    size = np.dtype(FLOATS[info.dtype]).itemsize * math.prod(info.shape)
    plist = dataset.id.get_create_plist()
    filters = [plist.get_filter(number)[0] for number in range(plist.get_nfilters())]
    if not set(filters) <= _KNOWN or len(set(filters)) < len(filters):
        raise ValueError(f"filters {filters}: known are {sorted(_KNOWN)}, each once")
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
