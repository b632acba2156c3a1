"""Files of JAX's libraries: Flax's ``.msgpack``, and the folders of Orbax.

MessagePack is a dozen kinds of values, each with its length before it. They are walked here, since
readers of the format unpack a whole file: of an array only shape and format are looked at, and the
numbers are mapped. Nothing of it can name code.

Orbax keeps arrays in zarr, one by one or in one OCDBT store. ``_METADATA`` lists the parameters;
TensorStore reads the one that is asked for. Its own clients know neither the user's token nor what
was read before, and follow any link. So it asks a server of this process alone, which answers with
the bytes that `Files` gives while something is read.
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
    Checkpoint,
    ShardedTensors,
    TensorInfo,
    bytes_of,
    check_chunks,
    check_unpacked,
)
from posprobe.checkpoints.files import Files, Stream
from posprobe.checkpoints.hub_local import bytes_read, count_bytes
from posprobe.checkpoints.local import MAX_JSON, read_json
from posprobe.errors import InvalidCheckpoint, PosprobeError, explained

#: Levels of names, values, and characters of a name that a file of weights has at most.
DEPTH, MOST, LONGEST = 64, 2_000_000, 1000
#: Flax's number for an array among MessagePack's extensions.
_ARRAY = 1
#: What training keeps beside the weights.
TRAINING = re.compile(r"^(?:opt_state|optimizer/state|state/param_states)/")


def read_flax(files: Files, file: str) -> Checkpoint:
    """Read the names in what ``flax.serialization`` wrote, joined by slashes.

    Raises
    ------
    InvalidCheckpoint
        If the file is damaged or holds no arrays.
    """
    what = f"{file}: not a valid Flax file"
    with explained(InvalidCheckpoint, what, "Download it again.", ValueError, OverflowError):
        walk = _Walk(files, file)
        walk.value("")
        if walk.tell() != walk.size:
            raise ValueError(f"{walk.size - walk.tell()} bytes follow its end")
    tensors = {name: info for name, info in walk.found.items() if not TRAINING.match(name)}
    if not tensors:
        raise InvalidCheckpoint(f"{file}: contains no arrays. Pass the model's weights.")
    return Checkpoint(file, tensors, lambda info: files.exactly(file, info.start, info.stop))


#: The kind that a first byte stands for, and how many bytes of a number or length follow; of what
#: is passed over and of some extensions how many bytes they have.
_HEADS = {
    0xC0: ("passed over", 0), 0xC2: ("passed over", 0), 0xC3: ("passed over", 0),
    0xC4: ("text", 1), 0xC5: ("text", 2), 0xC6: ("text", 4),
    0xC7: ("extension", 1), 0xC8: ("extension", 2), 0xC9: ("extension", 4),
    0xCA: ("passed over", 4), 0xCB: ("passed over", 8),
    0xCC: ("int", 1), 0xCD: ("int", 2), 0xCE: ("int", 4), 0xCF: ("int", 8),
    0xD0: ("signed", 1), 0xD1: ("signed", 2), 0xD2: ("signed", 4), 0xD3: ("signed", 8),
    0xD4: ("extension of", 1), 0xD5: ("extension of", 2), 0xD6: ("extension of", 4),
    0xD7: ("extension of", 8), 0xD8: ("extension of", 16),
    0xD9: ("text", 1), 0xDA: ("text", 2), 0xDB: ("text", 4),
    0xDC: ("list", 2), 0xDD: ("list", 4), 0xDE: ("map", 2), 0xDF: ("map", 4),
}  # fmt: skip


class _Walk(Stream):
    """A file, and every array before the place that is read next, by the path of its names."""

    def __init__(self, files: Files, file: str) -> None:
        super().__init__(files, file)
        self.file, self.seen = file, 0
        self.found: dict[str, TensorInfo] = {}

    def value(self, place: str, depth: int = 0) -> None:
        """Read a value and those within it.

        Raises
        ------
        ValueError
            If something is not what its length says, or there is more of it than in weights.
        """
        self.seen += 1
        if depth > DEPTH or self.seen > MOST:
            raise ValueError(f"more than {DEPTH} levels or {MOST} values")
        if len(place) > LONGEST:
            raise ValueError(f"a name of more than {LONGEST} characters")
        kind, size = self.head()
        if kind in ("map", "list"):
            if size > self.size - self.tell():
                raise ValueError(f"{size} values in {self.size - self.tell()} bytes")
            for number in range(size):
                name = self.name() if kind == "map" else str(number)
                self.value(f"{place}/{name}" if place else name, depth + 1)
        elif kind == f"extension {_ARRAY}":
            name = place or PurePosixPath(self.file).stem
            self.found[name] = self.array(name, size)
        elif kind != "int":
            self.skip(size)

    def name(self) -> str:
        kind, size = self.head()
        if kind == "int":
            return str(size)
        if kind != "text" or size > LONGEST:
            raise ValueError(f"a name of {size} bytes" if kind == "text" else "a name is none")
        return self.take(size).decode()

    def array(self, name: str, size: int) -> TensorInfo:
        """Read an array: a list of its shape, the name of its format, and its bytes."""
        stop = self.tell() + size
        kind, count = self.head()
        kinds, rank = self.head()
        if (kind, count, kinds) != ("list", 3, "list") or rank > 64:
            raise ValueError("an array has no shape")
        sizes = [self.head() for _ in range(rank)]
        if any(kind != "int" or extent < 0 for kind, extent in sizes):
            raise ValueError("an array has no shape")
        shape = tuple(extent for _, extent in sizes)
        kind, length = self.head()
        if kind != "text" or length > 40:
            raise ValueError("an array has no format")
        dtype = self.take(length).decode("ascii")
        kind, length = self.head()
        start = self.skip(length)
        if kind != "text" or self.tell() != stop:
            raise ValueError(f"an array of shape {list(shape)} has no bytes")
        known = DTYPES.get(dtype, dtype)
        if known in FLOATS and length != math.prod(shape) * int(FLOATS[known][-1]):
            raise ValueError(f"{length} bytes for an array of shape {list(shape)}, {dtype}")
        return TensorInfo(name, shape, known, self.file, start, stop)

    def head(self) -> tuple[str, int]:
        """Read a value's kind, and its number or its length."""
        code = self.take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return "int", code if code < 0x80 else code - 256
        if code < 0xC0:
            if code < 0x90:
                return "map", code & 15
            return ("list", code & 15) if code < 0xA0 else ("text", code & 31)
        if code not in _HEADS:
            raise ValueError(f"byte {code} begins no value")
        kind, width = _HEADS[code]
        if kind in ("passed over", "extension of"):
            number = width
        else:
            number = int.from_bytes(self.take(width), "big", signed=kind == "signed")
        if kind.startswith("extension"):
            return f"extension {self.take(1)[0]}", number
        return ("int" if kind == "signed" else kind), number


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
    tree = read_json(files, name)
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
            with explained(InvalidCheckpoint, what, "Copy the whole folder again."):
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
    what = f"{file}: not a list of Orbax's parameters"
    advice = "Name the folder of one checkpoint, such as STEP/default."
    with explained(InvalidCheckpoint, what, advice, KeyError, TypeError, AttributeError):
        places = {
            "/".join(keys): ".".join(keys)
            for entry in tree["tree_metadata"].values()
            if _is_array(entry) and (keys := [str(each["key"]) for each in entry["key_metadata"]])
        }
    for name, place in places.items():
        if "/" in place or "\\" in place or len(place) > LONGEST or not place.isprintable():
            raise InvalidCheckpoint(f"{file}: the parameter {name[:LONGEST]!r} has no name.")
    places = {name: place for name, place in places.items() if not TRAINING.match(name)}
    if not places:
        raise InvalidCheckpoint(f"{file}: it lists no arrays. Name the folder of one model.")

    return places


def _values(array: Any, info: TensorInfo) -> memoryview[int]:
    chunk = array.chunk_layout.read_chunk.shape or info.shape
    size = max(math.prod(info.shape), math.prod(chunk))
    what = f"{info.file}: {info.name}"
    check_unpacked(what, np.dtype(FLOATS[info.dtype]).itemsize * size)
    check_chunks(what, info.shape, chunk)
    return bytes_of(array.read().result(), info.dtype)


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
    context, before = copy_context(), bytes_read.get()
    failures: list[PosprobeError] = []

    class Handler(BaseHTTPRequestHandler):
        timeout = 60
        wbufsize = -1  # head and body of an answer are sent together

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            """Say nothing."""

        def do_GET(self) -> None:
            context.run(self._answer)

        def _answer(self) -> None:
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
            count_bytes(context[bytes_read] - before if bytes_read in context else 0)


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
