"""Orbax folders, as JAX's libraries save them: arrays in zarr, one by one or in one OCDBT store.

``_METADATA`` lists the parameters; TensorStore reads the one that is asked for.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path, PurePosixPath
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
from posprobe.checkpoints.local import MAX_JSON, parse_json, read_small
from posprobe.errors import InvalidCheckpoint, PosprobeError

#: Longest name of a parameter, in characters.
LONGEST = 1000
#: What is asked for and refused is asked for once more, and no further.
_CONTEXT = {"http_request_retries": {"max_retries": 1}}


def open_orbax(path: Path) -> Checkpoint:
    """Open the folder of an Orbax checkpoint by its ``_METADATA``; names are joined by slashes.

    Raises
    ------
    InvalidCheckpoint
        If the list of parameters is none, or one of them is damaged or outside the folder.
    """
    folder, tree = path.parent, parse_json(read_small(path), path.name)
    together = (folder / "manifest.ocdbt").is_file()

    def base(place: str) -> AbstractContextManager[dict[str, Any]]:
        _refuse_odd_files(folder if together else folder / place, together=together)
        return nullcontext({"driver": "file", "path": f"{folder.resolve()}/"})

    return _listed(tree, path.name, base, together=together)


def _refuse_odd_files(folder: Path, *, together: bool) -> None:
    """Refuse what TensorStore would wait for without end, or read into memory whatever its size.

    Of arrays stored together it reads parts of the files, but all of a manifest.

    Raises
    ------
    InvalidCheckpoint
        If the folder contains anything but regular files, a link to a folder, or a file too long to
        be read whole.
    """
    for above, folders, files in os.walk(folder):
        linked = [name for name in folders if Path(above, name).is_symlink()]
        for path in (Path(above, name) for name in (*linked, *files)):
            manifest = path.name.startswith("manifest")
            most = MAX_JSON if manifest else MAX_UNPACKED
            whole = manifest or not together
            if not path.is_file() or (whole and path.stat().st_size > most):
                raise InvalidCheckpoint(
                    f"{path}: not a regular file, or longer than {most} bytes, and no part of "
                    "a table. Copy the whole folder again."
                )


def read_orbax(files: Files, name: str) -> Checkpoint:
    """Read the list of an Orbax checkpoint; TensorStore gets its bytes from ``files``.

    Raises
    ------
    InvalidCheckpoint
        As `open_orbax`.
    """
    folder = name.removesuffix(PurePosixPath(name).name)
    tree = parse_json(bytes(files.read(name, 0, MAX_JSON)), name)

    @contextmanager
    def base(_: str) -> Iterator[dict[str, Any]]:
        with served(files, folder) as (url, path):
            yield {"driver": "http", "base_url": url, "path": path}

    return _listed(tree, name, base, together=files.has(f"{folder}manifest.ocdbt"))


def _listed(
    tree: dict[str, Any],
    file: str,
    base: Callable[[str], AbstractContextManager[dict[str, Any]]],
    *,
    together: bool,
) -> Checkpoint:
    """Describe the parameters of a list; ``base`` says where the folder of one is."""
    driver = "zarr3" if tree.get("use_zarr3") else "zarr"
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

    @contextmanager
    def opened(name: str) -> Iterator[Any]:
        import tensorstore

        with base(places[name]) as stored:
            place = f"{places[name]}/"
            if together:
                store = {"driver": "ocdbt", "base": stored, "path": place}
            else:
                store = {**stored, "path": stored["path"] + place}
            spec = {"driver": driver, "kvstore": store, "context": _CONTEXT}
            try:
                yield tensorstore.open(spec, read=True).result()
            except PosprobeError:
                raise
            except Exception as error:
                raise _damaged(file, name, error) from error

    def header(name: str) -> dict[str, TensorInfo]:
        with opened(name) as array:
            dtype = str(array.dtype.name)
            return {name: TensorInfo(name, tuple(array.shape), DTYPES.get(dtype, dtype), file)}

    def fetch(info: TensorInfo) -> memoryview[int]:
        with opened(info.name) as array:
            dtype = np.dtype(FLOATS[info.dtype])
            chunk = array.chunk_layout.read_chunk.shape or info.shape
            size = dtype.itemsize * max(math.prod(info.shape), math.prod(chunk))
            if size > MAX_UNPACKED:
                raise InvalidCheckpoint(
                    f"{info.file}: {info.name} unpacks to {size} bytes; up to {MAX_UNPACKED} are "
                    "unpacked."
                )
            pieces = count_chunks(info.shape, chunk)
            if pieces > MOST_CHUNKS:
                raise InvalidCheckpoint(
                    f"{info.file}: {info.name} is cut into {pieces} chunks; up to {MOST_CHUNKS} "
                    "are read."
                )
            values = np.ascontiguousarray(array.read().result())
        values = values.view(np.uint16) if info.dtype == "BF16" else values.astype(dtype)
        return memoryview(values.reshape(-1).view(np.uint8).data)

    return Checkpoint(file, ShardedTensors({name: name for name in places}, header), fetch)


def _is_array(entry: dict[str, Any]) -> bool:
    known = entry["value_metadata"]
    return not known.get("skip_deserialize") and "rray" in str(known["value_type"])


def _damaged(file: str, name: str, error: Exception) -> InvalidCheckpoint:
    reason = str(error).partition("[tensorstore_spec")[0].strip()
    return InvalidCheckpoint(
        f"{file}: the parameter {name} cannot be read ({reason[:300]}). Copy the whole folder "
        "again."
    )
