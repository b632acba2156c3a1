"""A second process for part of what takes one core and leaves files: drawing, above all.

Threads would not help, since Python runs one at a time. The second process is a copy of this one,
so that nothing is sent to it. A copy has none of this process's other threads, which is safe only
where there are none: a command says so, while notebooks and other programs do without.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

_Task = TypeVar("_Task")

_allowed: ContextVar[bool] = ContextVar("second process", default=False)


@contextmanager
def allowed() -> Iterator[None]:
    """Let this process be copied meanwhile."""
    token = _allowed.set(True)
    try:
        yield
    finally:
        _allowed.reset(token)


def share(
    work: Callable[[_Task], None], tasks: Sequence[_Task], done: Callable[[int], None]
) -> None:
    """Do tasks that leave nothing but files, some of them in a second process where there may be.

    Parameters
    ----------
    work
        Does one. What fails in the second process is done again in this one, which then raises.
    tasks
        Fewer than 2^15. After the first, each process takes the next one when it is free.
    done
        Is told how many more are done.
    """
    for task in tasks[:1]:  # what the first loads is then there for both
        work(task)
        done(1)
    rest = tasks[1:]
    queue, end = os.pipe()
    for number in range(len(rest)):
        os.write(end, number.to_bytes(2, "big"))
    os.close(end)
    process = _copied() if len(rest) > 1 else None
    if process == 0:
        _end_with(work, (rest[number] for number in _taken(queue)))
    others = set(range(len(rest)))
    finished = False
    try:
        for number in _taken(queue):
            work(rest[number])
            others.remove(number)
            done(1)
        finished = True
    finally:
        os.close(queue)
        gc.unfreeze()
        there = process is not None and _ended(process, at_once=not finished)
    for number in sorted(others):
        if not there:
            work(rest[number])
        done(1)


def _taken(queue: int) -> Iterator[int]:
    """Take numbers out of a pipe that nobody writes to any more; no other process gets them."""
    while found := os.read(queue, 2):
        yield int.from_bytes(found, "big")


def _copied() -> int | None:
    """Copy this process; 0 in the copy, None where there is none."""
    if not _allowed.get() or sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        return None
    # PyTorch has threads of its own, which Python does not count.
    if threading.active_count() > 1 or "torch" in sys.modules:
        return None
    import ctypes

    # A copy shares its memory until either writes to it, as looking for garbage does.
    gc.freeze()
    with suppress(OSError, AttributeError):  # not every C library has it
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    with warnings.catch_warnings(), suppress(OSError):
        # Later releases of Python warn of any other thread; those of BLAS are idle.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
    return None


def _ended(process: int, *, at_once: bool) -> bool:
    """Wait for the copy's end, or bring it about; tell whether all that it took is done."""
    if at_once:
        os.kill(process, signal.SIGKILL)
    try:
        return os.waitpid(process, 0)[1] == 0
    except ChildProcessError:
        return False  # whoever started us may have it that nobody hears how children end


def _end_with(work: Callable[[_Task], None], tasks: Iterator[_Task]) -> None:
    """Do tasks and end this process at once: all that is to be cleared up is its parent's."""
    code = 1
    try:
        parent = os.getppid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for task in tasks:
            if os.getppid() != parent:
                break  # it was killed, and nobody waits for the rest
            work(task)
        else:
            code = 0
    finally:
        os._exit(code)
