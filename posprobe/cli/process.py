"""The process around a command: signals, streams, messages and freed memory."""

from __future__ import annotations

import io
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from types import FrameType
from typing import TextIO, cast

from posprobe.cli.parameters import name_options
from posprobe.progress import handle_signals
from posprobe.text import escape_invisible

#: Parameters of glibc's `mallopt` and their values: the thresholds of trimming and of mapping, in
#: bytes, above which freed memory returns to the system, and the number of heaps, as each thread
#: would keep freed memory in its own. The mapping threshold is the highest that glibc allows, since
#: every new mapping is filled with zeros: transforms of long tables request one thousands of times,
#: which took a seventh of their time.
_MALLOPT_SETTINGS = ((-1, 8 << 20), (-3, 32 << 20), (-8, 1))
#: Numbers of the signals that asked the command to stop; its exit code is 128 plus the first.
received_signals: list[int] = []


def trim_freed_memory() -> None:
    """Let the C library return freed memory to the system instead of keeping it.

    Null models of a table allocate and free arrays of a few megabytes: kept, these are a quarter of
    the command's memory. mallopt acts on the whole process, so only the CLI calls this.
    """
    import ctypes

    with suppress(
        OSError, AttributeError, TypeError
    ):  # other C libraries have no mallopt
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in _MALLOPT_SETTINGS:
            mallopt(parameter, value)


def _stop(signal_number: int, _frame: FrameType | None) -> None:
    received_signals.append(signal_number)
    if signal_number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + signal_number)


@contextmanager
def stop_on_signals(
    stop: Callable[[int, FrameType | None], None] = _stop,
) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into exceptions, so that a command can remove unfinished files."""
    received_signals.clear()
    with handle_signals(stop):
        yield


class _MessageStream(io.TextIOWrapper):
    """Stream of messages and progress, which drops them where they cannot be written."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except (OSError, ValueError):
            discard_output(self)
        return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except (OSError, ValueError):
            discard_output(self)


@contextmanager
def guard_streams() -> Iterator[None]:
    """Escape letters that the encoding of a stream lacks, and survive streams that fail."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the parent process closed it
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in (
            "strict",
            "surrogateescape",
        ):
            stream.reconfigure(errors="backslashreplace")
    buffer = getattr(sys.stderr, "buffer", None)
    if not isinstance(buffer, (io.BufferedWriter, io.FileIO)):
        yield
        return
    message_stream = _MessageStream(
        cast("io.BufferedWriter", buffer),
        sys.stderr.encoding,
        "backslashreplace",
        line_buffering=True,
        write_through=True,
    )
    try:
        with redirect_stderr(message_stream):
            yield
    finally:
        message_stream.flush()
        with suppress(ValueError):
            message_stream.detach()


def discard_output(stream: TextIO) -> None:
    """Discard what a stream could not write, as the interpreter would try again at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_message(text: str) -> None:
    """Print a message to stderr."""
    print(text, file=sys.stderr, flush=True)


def typed_command() -> str:
    """Return the command as it was typed."""
    return shlex.join(["posprobe", *sys.argv[1:]])


_log = logging.getLogger("posprobe")


def print_note(text: str) -> None:
    """Print a message to stderr, unless ``--quiet`` is given."""
    for line in text.split("\n"):
        _log.info("%s", line)


class StderrHandler(logging.Handler):
    """Handler that prints log messages to stderr, above the progress display."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message, with control characters of quoted names escaped."""
        print_message(escape_invisible(name_options(self.format(record))))


def set_up_logging(*, quiet: bool) -> None:
    """Send the library's messages to stderr, or nowhere."""
    _log.handlers[:] = [logging.NullHandler() if quiet else StderrHandler()]
    _log.setLevel(logging.INFO)
    _log.propagate = False
    if quiet:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
