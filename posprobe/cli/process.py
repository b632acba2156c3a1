"""What surrounds a command: signals, streams that fail, messages, memory given back."""

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

from posprobe.progress import handle_signals
from posprobe.text import plain

#: Of glibc's `mallopt`: the thresholds of trimming and of mapping, from which on what is freed goes
#: back to the system, and the number of heaps: each thread would keep what it frees in its own. The
#: second is as high as can be, since every mapping is filled with zeros anew: transforms of long
#: tables ask for one thousands of times, which was a seventh of their time.
_LIMITS = ((-1, 8 << 20), (-3, 32 << 20), (-8, 1))
#: What a command was asked to stop by; its exit code is 128 plus the first.
received: list[int] = []


def give_memory_back() -> None:
    """Let freed memory return to the system, where the C library would keep it for what may come.

    A table's null models take turns with arrays of a few megabytes: kept, they are a quarter of the
    command's memory. Of a whole process, so that only a command may ask for it.
    """
    import ctypes

    with suppress(OSError, AttributeError, TypeError):  # other systems have other limits, or none
        mallopt = ctypes.CDLL(None).mallopt
        for limit, value in _LIMITS:
            mallopt(limit, value)


def _stop(number: int, _frame: FrameType | None) -> None:
    received.append(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


@contextmanager
def signals(stop: Callable[[int, FrameType | None], None] = _stop) -> Iterator[None]:
    """Let SIGINT and SIGTERM stop a command in order, so that it can remove what it began."""
    received.clear()
    with handle_signals(stop):
        yield


class _Talk(io.TextIOWrapper):
    """Messages and progress: where they cannot be written the work goes on without them."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except (OSError, ValueError):
            drop(self)
        return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except (OSError, ValueError):
            drop(self)


@contextmanager
def streams() -> Iterator[None]:
    """Let every letter be written, as an escape where the stream's encoding lacks it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")
    buffer = getattr(sys.stderr, "buffer", None)
    if not isinstance(buffer, (io.BufferedWriter, io.FileIO)):
        yield
        return
    talk = _Talk(
        cast("io.BufferedWriter", buffer),
        sys.stderr.encoding, "backslashreplace", line_buffering=True, write_through=True,
    )  # fmt: skip
    try:
        with redirect_stderr(talk):
            yield
    finally:
        talk.flush()
        with suppress(ValueError):
            talk.detach()


def drop(stream: TextIO) -> None:
    """Drop what a stream could not write, lest the interpreter try again at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(text: str) -> None:
    """Tell the user something beside the results."""
    print(text, file=sys.stderr, flush=True)


def typed() -> str:
    """Return the command as it was typed."""
    return shlex.join(["posprobe", *sys.argv[1:]])


_log = logging.getLogger("posprobe")


def tell(text: str) -> None:
    """Say something beside the results, unless ``--quiet`` forbids it."""
    for line in text.split("\n"):
        _log.info("%s", line)


class Told(logging.Handler):
    """Messages go where everything is said: above what shows how far the work is."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say a message, in which names and answers of others may be quoted."""
        say(plain(self.format(record)))


def set_up_logging(*, quiet: bool) -> None:
    """Send the library's messages to stderr, or nowhere."""
    _log.handlers[:] = [logging.NullHandler() if quiet else Told()]
    _log.setLevel(logging.INFO)
    _log.propagate = False
    if quiet:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
