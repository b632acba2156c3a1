"""Orbax folders, as JAX's libraries save them: arrays in zarr, one by one or in one OCDBT store.

``_METADATA`` lists the parameters; TensorStore reads the one that is asked for.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from posprobe.checkpoints.base import FLOATS, MAX_UNPACKED, Checkpoint, ShardedTensors, TensorInfo
from posprobe.checkpoints.flaxfile import DTYPES, TRAINING
from posprobe.checkpoints.local import parse_json, read_small
from posprobe.errors import InvalidCheckpoint

#: Longest name of a parameter, in characters.
LONGEST = 1000


def open_orbax(path: Path) -> Checkpoint:
    """Open the folder of an Orbax checkpoint by its ``_METADATA``; names are joined by slashes.

    Raises
    ------
    InvalidCheckpoint
        If the list of parameters is none, or one of them is damaged or outside the folder.
    """
    folder, tree = path.parent, parse_json(read_small(path), path.name)
    together = (folder / "manifest.ocdbt").is_file()
    driver = "zarr3" if tree.get("use_zarr3") else "zarr"
    try:
        places = {
            "/".join(keys): ".".join(keys)
            for entry in tree["tree_metadata"].values()
            if _is_array(entry) and (keys := [str(each["key"]) for each in entry["key_metadata"]])
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidCheckpoint(
            f"{path.name}: it is no list of Orbax's parameters ({error}). Name the folder of one "
            "checkpoint, such as STEP/default."
        ) from error
    for name, place in places.items():
        if "/" in place or "\\" in place or len(place) > LONGEST or not place.isprintable():
            raise InvalidCheckpoint(f"{path.name}: the parameter {name[:LONGEST]!r} has no name.")
    places = {name: place for name, place in places.items() if not TRAINING.match(name)}
    if not places:
        raise InvalidCheckpoint(f"{path.name}: it lists no arrays. Name the folder of one model.")

    def opened(name: str) -> Any:
        import tensorstore

        stored: dict[str, Any] = {"driver": "file", "path": f"{folder.resolve()}/"}
        place = f"{places[name]}/"
        if together:
            stored = {"driver": "ocdbt", "base": stored, "path": place}
        else:
            stored["path"] += place
        try:
            return tensorstore.open({"driver": driver, "kvstore": stored}, read=True).result()
        except Exception as error:
            raise _damaged(name, error) from error

    def header(name: str) -> dict[str, TensorInfo]:
        array = opened(name)
        dtype = str(array.dtype.name)
        return {name: TensorInfo(name, tuple(array.shape), DTYPES.get(dtype, dtype), path.name)}

    def fetch(info: TensorInfo) -> memoryview[int]:
        array = opened(info.name)
        dtype = np.dtype(FLOATS[info.dtype])
        chunk = array.chunk_layout.read_chunk.shape or info.shape
        size = dtype.itemsize * max(math.prod(info.shape), math.prod(chunk))
        if size > MAX_UNPACKED:
            raise InvalidCheckpoint(
                f"{info.file}: {info.name} unpacks to {size} bytes; up to {MAX_UNPACKED} are "
                "unpacked."
            )
        try:
            values = np.ascontiguousarray(array.read().result())
        except Exception as error:
            raise _damaged(info.name, error) from error
        values = values.view(np.uint16) if info.dtype == "BF16" else values.astype(dtype)
        return memoryview(values.reshape(-1).view(np.uint8).data)

    return Checkpoint(str(path), ShardedTensors({name: name for name in places}, header), fetch)


def _is_array(entry: dict[str, Any]) -> bool:
    known = entry["value_metadata"]
    return not known.get("skip_deserialize") and "rray" in str(known["value_type"])


def _damaged(name: str, error: Exception) -> InvalidCheckpoint:
    reason = str(error).partition("[tensorstore_spec")[0].strip()
    return InvalidCheckpoint(
        f"_METADATA: the parameter {name} cannot be read ({reason[:300]}). Copy the whole folder "
        "again."
    )
