"""Orbax folders, as JAX's libraries save them: arrays in zarr, one by one or in one OCDBT store.

``_METADATA`` lists the parameters; TensorStore reads the one that is asked for. Its own clients
know neither the user's token nor what was read before, and follow any link. So it asks a server of
this process alone, which answers with the bytes that `Files` gives while something is read.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import numpy as np

from posprobe.checkpoints.base import (
    DTYPES,
    FLOATS,
    MAX_UNPACKED,
    MOST_CHUNKS,
    Checkpoint,
    ShardedTensors,
    TensorInfo,
    count_chunks,
    parsing,
)
from posprobe.checkpoints.files import Files
from posprobe.checkpoints.flaxfile import LONGEST, TRAINING
from posprobe.checkpoints.local import MAX_JSON, parse_json
from posprobe.checkpoints.shared import bytes_read, count_bytes
from posprobe.errors import InvalidCheckpoint, PosprobeError

#: Files that say how others are to be read.
_SMALL = {"manifest.ocdbt", ".zarray", ".zgroup", ".zattrs", "zarr.json"}
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
            what = f"{name}: the parameter {parameter} cannot be read"
            with parsing(what, "Copy the whole folder again."):
                try:
                    yield tensorstore.open(spec, read=True).result()
                except ValueError as error:  # what was asked for follows what it says
                    raise ValueError(str(error).partition("[tensorstore_spec")[0]) from error

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


@contextmanager
def served(files: Files, folder: str) -> Iterator[tuple[str, str]]:
    """Serve the files of a folder until the block is left; yield the URL and the path below it.

    Parameters
    ----------
    files
        Of the checkpoint.
    folder
        Its name ends in a slash, or is empty.

    Raises
    ------
    PosprobeError
        What went wrong as a file was read, in place of what the library makes of it.
    """
    secret = f"/{secrets.token_urlsafe(16)}/"  # other programs of this machine know no path
    context = copy_context()
    failures: list[PosprobeError] = []
    counts: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        timeout = 60
        wbufsize = -1  # head and body of an answer are sent together

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            """Say nothing."""

        def do_GET(self) -> None:
            context.copy().run(self._answer)

        def _answer(self) -> None:
            bytes_read.set(0)
            file = folder + unquote(self.path.removeprefix(secret))
            if not self.path.startswith(secret) or not files.has(file):
                self.send_error(404)
                return
            try:
                size = files.size(file)
                start, stop = _range(self.headers.get("Range", ""), size)
                _refuse_long(file, stop - start)
                content = files.read(file, start, stop)
            except PosprobeError as error:
                failures.append(error)
                self.send_error(400)  # which is not tried again
                return
            finally:
                counts.append(bytes_read.get())
            self.send_response(206 if (start, stop) != (0, size) else 200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
            self.end_headers()
            self.wfile.write(content)

    class Server(HTTPServer):
        # TensorStore asks for many chunks at once, and waits a second where one is not let in.
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as server, _unproxied():
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", secret
        except Exception as error:
            if failures:
                raise failures[0] from error
            raise
        finally:
            server.shutdown()
            thread.join()
            count_bytes(sum(counts))


def _refuse_long(file: str, size: int) -> None:
    """Refuse what TensorStore would take into memory at once, whatever its size."""
    most = MAX_JSON if PurePosixPath(file).name in _SMALL else MAX_UNPACKED
    if size > most:
        raise InvalidCheckpoint(
            f"{file}: {size} bytes are needed of it at once; up to {most} are read. It is no part "
            "of a table: copy the whole folder again."
        )


def _range(asked: str, size: int) -> tuple[int, int]:
    """Read a header ``Range``; the whole file where there is none."""
    found = re.fullmatch(r"bytes=(\d{1,18})-(\d{0,18})", asked)
    if found is None:
        last = re.fullmatch(r"bytes=-(\d{1,18})", asked)
        return (max(0, size - int(last[1])), size) if last else (0, size)
    return min(int(found[1]), size), min(int(found[2]) + 1 if found[2] else size, size)


@contextmanager
def _unproxied() -> Iterator[None]:
    """Keep libraries from asking a proxy of the environment for what is on this machine."""
    before = os.environ.get("no_proxy")
    os.environ["no_proxy"] = ",".join(filter(None, (before, "127.0.0.1")))
    try:
        yield
    finally:
        if before is None:
            del os.environ["no_proxy"]
        else:
            os.environ["no_proxy"] = before
