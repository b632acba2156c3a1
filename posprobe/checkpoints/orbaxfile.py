"""Orbax folders, as JAX's libraries save them: arrays in zarr, one by one or in one OCDBT store.

``_METADATA`` lists the parameters; TensorStore reads the one that is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from posprobe.checkpoints.base import (
    FLOATS,
    MAX_UNPACKED,
    MOST_CHUNKS,
    Checkpoint,
    ShardedTensors,
    TensorInfo,
    count_chunks,
)
from posprobe.checkpoints.bridge import served
from posprobe.checkpoints.files import Files
from posprobe.checkpoints.flaxfile import DTYPES, TRAINING
from posprobe.checkpoints.local import MAX_JSON, parse_json
from posprobe.errors import InvalidCheckpoint, PosprobeError

#: Longest name of a parameter, in characters.
LONGEST = 1000
#: What is asked for and refused is asked for once more, and no further.
_CONTEXT = {"http_request_retries": {"max_retries": 1}}


def read_orbax(files: Files, name: str) -> Checkpoint:
    """Read the list of an Orbax checkpoint, whose names are joined by slashes.

    TensorStore gets its bytes from ``files``.

    Raises
    ------
    InvalidCheckpoint
        If the list of parameters is none, or one of them is damaged or outside the folder.
    """
    folder = name.removesuffix(PurePosixPath(name).name)
    tree = parse_json(bytes(files.read(name, 0, MAX_JSON)), name)

    together = files.has(f"{folder}manifest.ocdbt")
    driver = "zarr3" if tree.get("use_zarr3") else "zarr"
    places = _places(tree, name)

    @contextmanager
    def opened(parameter: str) -> Iterator[Any]:
        import tensorstore

        with served(files, folder) as (url, path):
            stored = {"driver": "http", "base_url": url, "path": path}
            place = f"{places[parameter]}/"
            if together:
                store = {"driver": "ocdbt", "base": stored, "path": place}
            else:
                store = {**stored, "path": path + place}
            spec = {"driver": driver, "kvstore": store, "context": _CONTEXT}
            try:
                yield tensorstore.open(spec, read=True).result()
            except PosprobeError:
                raise
            except Exception as error:
                raise _damaged(name, parameter, error) from error

    def header(parameter: str) -> dict[str, TensorInfo]:
        with opened(parameter) as array:
            dtype = str(array.dtype.name)
            shape = tuple(array.shape)
            return {parameter: TensorInfo(parameter, shape, DTYPES.get(dtype, dtype), name)}

    def fetch(info: TensorInfo) -> memoryview[int]:
        with opened(info.name) as array:
            return _values(array, info)

    return Checkpoint(name, ShardedTensors({each: each for each in places}, header), fetch)


def _places(tree: dict[str, Any], file: str) -> dict[str, str]:
    """List the arrays that are weights: name to folder.

    Raises
    ------
    InvalidCheckpoint
        If the list is none, or a name in it leads elsewhere.
    """
    try:
        places = {
            "/".join(keys): ".".join(keys)
            for entry in tree["tree_metadata"].values()
            if _is_array(entry) and (keys := [str(each["key"]) for each in entry["key_metadata"]])
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidCheckpoint(
            f"{file}: not a list of Orbax's parameters ({error}). Name the folder of one "
            "checkpoint, such as STEP/default."
        ) from error
    for name, place in places.items():
        if "/" in place or "\\" in place or len(place) > LONGEST or not place.isprintable():
            raise InvalidCheckpoint(f"{file}: the parameter {name[:LONGEST]!r} has no name.")
    places = {name: place for name, place in places.items() if not TRAINING.match(name)}
    if not places:
        raise InvalidCheckpoint(f"{file}: it lists no arrays. Name the folder of one model.")

    return places


def _values(array: Any, info: TensorInfo) -> memoryview[int]:
    dtype = np.dtype(FLOATS[info.dtype])
    chunk = array.chunk_layout.read_chunk.shape or info.shape
    size = dtype.itemsize * max(math.prod(info.shape), math.prod(chunk))
    if size > MAX_UNPACKED:
        raise InvalidCheckpoint(
            f"{info.file}: {info.name} unpacks to {size} bytes; up to {MAX_UNPACKED} are unpacked."
        )
    pieces = count_chunks(info.shape, chunk)
    if pieces > MOST_CHUNKS:
        raise InvalidCheckpoint(
            f"{info.file}: {info.name} is cut into {pieces} chunks; up to {MOST_CHUNKS} are read."
        )
    values = np.ascontiguousarray(array.read().result())
    values = values.view(np.uint16) if info.dtype == "BF16" else values.astype(dtype)
    return memoryview(values.reshape(-1).view(np.uint8).data)


def _is_array(entry: dict[str, Any]) -> bool:
    known = entry["value_metadata"]
    return not known.get("skip_deserialize") and "rray" in str(known["value_type"])


def _damaged(file: str, name: str, error: Exception) -> InvalidCheckpoint:
    reason = str(error).partition("[tensorstore_spec")[0].strip()
    return InvalidCheckpoint(
        f"{file}: the parameter {name} cannot be read ({reason[:300]}). Copy the whole folder "
        "again."
    )
