"""Files for libraries that read none of Python's: a server of this process alone.

TensorStore's own clients know neither the user's token nor what was read before, and follow any
link. So it asks a server on the loopback interface, which answers with the bytes that `Files`
gives, and which is there only while something is read.
"""

from __future__ import annotations

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

from posprobe.checkpoints.base import MAX_UNPACKED
from posprobe.checkpoints.files import Files
from posprobe.checkpoints.local import MAX_JSON
from posprobe.checkpoints.shared import bytes_read, count_bytes
from posprobe.errors import InvalidCheckpoint, PosprobeError

#: Files that say how others are to be read.
_SMALL = {"manifest.ocdbt", ".zarray", ".zgroup", ".zattrs", "zarr.json"}


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

    with HTTPServer(("127.0.0.1", 0), Handler) as server, _unproxied():
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
