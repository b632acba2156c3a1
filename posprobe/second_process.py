"""A second process for half of what takes one core and leaves files: drawing, above all.

Threads would not help, since Python runs one at a time. The second process is a copy of this one,
so that nothing is sent to it. A copy has none of this process's other threads, which is safe only
where they are known: a command says so, while notebooks and other programs do without.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar

_Task = TypeVar("_Task")

#: Whether this process may be copied.
allowed: ContextVar[bool] = ContextVar("second process", default=False)


def share(
    work: Callable[[_Task], None], tasks: Sequence[_Task], done: Callable[[int], None]
) -> None:
    """Do tasks that leave nothing but files, half of them in a second process where there may be.

    Parameters
    ----------
    work
        Does one. What fails in the second process is done again in this one, which then raises.
    tasks
        In any order.
    done
        Is told how many more are done.
    """
    mine, others = tasks[::2], tasks[1::2]
    process = _copied() if others and allowed.get() else None
    if process == 0:
        _end_with(work, others)
    finished = False
    try:
        for task in mine:
            work(task)
            done(1)
        finished = True
    finally:
        there = process is not None and _ended(process, at_once=not finished)
    for task in others:
        if not there:
            work(task)
        done(1)


def _copied() -> int | None:
    """Copy this process; 0 in the copy, None where there is none."""
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        return None
    with warnings.catch_warnings(), suppress(OSError):
        # Later releases of Python warn of other threads, none of which the copy needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
    return None


def _ended(process: int, *, at_once: bool) -> bool:
    """Wait for the copy's end, or bring it about; tell whether all that it had to do is done."""
    if at_once:
        os.kill(process, signal.SIGKILL)
    try:
        return os.waitpid(process, 0)[1] == 0
    except ChildProcessError:
        return False  # whoever started us may have it that nobody hears how children end


def _end_with(work: Callable[[_Task], None], tasks: Sequence[_Task]) -> None:
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
        code = 0
    finally:
        os._exit(code)
