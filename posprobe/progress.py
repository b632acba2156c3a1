"""Long work: its stages, which a terminal shows, its time limit, and the signals that stop it."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING

from posprobe.text import plain

if TYPE_CHECKING:
    from rich.progress import Progress, Task

#: When work of this context has to end, of `time.monotonic`: no stage begins after it.
deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)
#: Stages are begun by several threads.
_lock = threading.RLock()
_wanted = False
#: What shows stages while any is under way, and how many are.
_display: Progress | None = None
_under_way = 0


class TimeLimit(Exception):
    """Work took longer than it may."""


@contextmanager
def shown(wanted: bool = True) -> Iterator[None]:
    """Show on stderr, where that is a terminal, the stages of what is run within.

    Parameters
    ----------
    wanted
        Whether to; if not, they stay as visible as they were.
    """
    global _wanted
    before, _wanted = _wanted, _wanted or wanted
    try:
        yield
    finally:
        _wanted = before
        if not before:
            # An error may still hold what would end its stages.
            _clear()


@contextmanager
def stage(name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Name what is done within; without `shown` around it nobody is told.

    Parameters
    ----------
    name
        In a word or a few, beginning with a capital letter.
    total
        How many things are done within, where that is known.

    Yields
    ------
    Callable
        Takes how many more of them are done.

    Raises
    ------
    TimeLimit
        If the `deadline` has passed. Raised between stages alone, where nothing is half done.
    """
    if time.monotonic() > deadline.get():
        raise TimeLimit
    display = _begin()
    if display is None:
        yield lambda _: None
        return
    try:
        task = display.add_task(plain(name), total=total)
        try:
            yield lambda done: display.advance(task, done)
        finally:
            display.remove_task(task)
    finally:
        _end(display)


@contextmanager
def importing(package: str) -> Iterator[None]:
    """Name the import of a package that can last seconds, unless it is there already."""
    if package in sys.modules:
        yield
        return
    with stage(f"Importing {package}"):
        yield


@contextmanager
def aside() -> Iterator[bool]:
    """Clear what is shown while another library shows by itself how far it is.

    Yields
    ------
    bool
        Whether anything was shown.
    """
    with _lock:
        display = _display
    if display is None:
        yield False
        return
    display.stop()
    try:
        yield True
    finally:
        display.start()


def _begin() -> Progress | None:
    """Return what shows a stage that begins, or None where nothing does."""
    global _display, _under_way
    with _lock:
        if not _wanted or (_display is None and not sys.stderr.isatty()):
            return None
        if _display is None:
            _display = _made()
            _display.start()
        _under_way += 1
        return _display


def _end(display: Progress) -> None:
    """Clear the lines when the last stage is over."""
    global _under_way
    with _lock:
        if display is _display:
            _under_way -= 1
            if _under_way == 0:
                _clear()


def _clear() -> None:
    global _display, _under_way
    with _lock:
        if _display is not None:
            _display.stop()
        _display, _under_way = None, 0


def _made() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
    from rich.text import Text

    class Numbers(ProgressColumn):
        def render(self, task: Task) -> Text:
            parts = [f"{task.completed:.0f} of {task.total:.0f}"] if task.total else []
            parts += [str(timedelta(seconds=round(task.elapsed)))] if task.elapsed else []
            if task.time_remaining:
                parts.append(f"{timedelta(seconds=round(task.time_remaining))} left")
            return Text(", ".join(parts))

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        Numbers(),
        console=Console(stderr=True, highlight=False),
        transient=True,
        # Results on stdout may go elsewhere; messages are printed above the lines.
        redirect_stdout=False,
    )


# --- signals ----------------------------------------------------------------------------------


@contextmanager
def handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Have a function called at SIGINT and SIGTERM."""
    before = {}
    try:
        if threading.current_thread() is threading.main_thread():  # else they never arrive
            for number in (signal.SIGTERM, signal.SIGINT):
                now = signal.getsignal(number)
                # Whoever started us may have it ignored, as `nohup` does; None: another language.
                if now not in (signal.SIG_IGN, None):
                    before[number] = now
                    signal.signal(number, handler)
        yield
    finally:
        for number, now in before.items():
            signal.signal(number, now)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back while a step is taken that must not stop halfway."""
    arrived: dict[int, None] = {}
    try:
        with handled(lambda number, _: arrived.setdefault(number)):
            yield
    finally:
        for number in arrived:
            signal.raise_signal(number)
