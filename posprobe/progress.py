"""Stages of long work that a terminal shows, its time limit, and the signals that stop it."""

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

from posprobe.text import escape_invisible

if TYPE_CHECKING:
    from rich.progress import Progress, Task

#: Time in seconds of `time.monotonic` after which no stage of this context begins.
deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)
#: Several threads begin stages.
_lock = threading.RLock()
_is_visible = False
#: The display of stages, while any runs, and the number of stages that run.
_display: Progress | None = None
_n_stages = 0


class TimeLimit(Exception):
    """The work exceeded its time limit."""


@contextmanager
def show_stages(is_visible: bool = True) -> Iterator[None]:
    """Show the stages that run inside the context on stderr, if that is a terminal.

    Parameters
    ----------
    is_visible
        Whether to show them; if False, they stay as visible as they were.
    """
    global _is_visible
    was_visible, _is_visible = _is_visible, _is_visible or is_visible
    try:
        yield
    finally:
        _is_visible = was_visible
        if not was_visible:
            # A pending traceback may keep stages alive that would clear the display at their end.
            _clear()


@contextmanager
def stage(name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Name a stage of the work; it is displayed only inside `show_stages`.

    Parameters
    ----------
    name
        Name of one to a few words, beginning with a capital letter.
    total
        Number of steps of the stage; None if it is unknown.

    Yields
    ------
    Callable
        Function to call with the number of steps that were finished since the last call.

    Raises
    ------
    TimeLimit
        If the `deadline` has passed. It is raised only between stages, when nothing is half done.
    """
    if time.monotonic() > deadline.get():
        raise TimeLimit
    display = _begin()
    if display is None:
        yield lambda _: None
        return
    try:
        task = display.add_task(escape_invisible(name), total=total)
        try:
            yield lambda n_done: display.advance(task, n_done)
        finally:
            display.remove_task(task)
    finally:
        _end(display)


@contextmanager
def import_stage(package: str) -> Iterator[None]:
    """Show the import of a slow package as a stage, unless it is imported already."""
    if package in sys.modules:
        yield
        return
    with stage(f"Importing {package}"):
        yield


@contextmanager
def hide_stages() -> Iterator[bool]:
    """Clear the display while another library shows its own progress.

    Yields
    ------
    bool
        Whether stages were displayed.
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
    """Count a stage that begins and return its display, or None if stages are not displayed."""
    global _display, _n_stages
    with _lock:
        if not _is_visible or (_display is None and not sys.stderr.isatty()):
            return None
        if _display is None:
            _display = _create_display()
            _display.start()
        _n_stages += 1
        return _display


def _end(display: Progress) -> None:
    """Clear the display when the last stage ends."""
    global _n_stages
    with _lock:
        if display is _display:
            _n_stages -= 1
            if _n_stages == 0:
                _clear()


def _clear() -> None:
    global _display, _n_stages
    with _lock:
        if _display is not None:
            _display.stop()
        _display, _n_stages = None, 0


def _create_display() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        TextColumn,
    )
    from rich.text import Text

    class Numbers(ProgressColumn):
        def render(self, task: Task) -> Text:
            labels = [f"{task.completed:.0f} of {task.total:.0f}"] if task.total else []
            labels += (
                [str(timedelta(seconds=round(task.elapsed)))] if task.elapsed else []
            )
            if task.time_remaining:
                labels.append(f"{timedelta(seconds=round(task.time_remaining))} left")
            return Text(", ".join(labels))

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        Numbers(),
        console=Console(stderr=True, highlight=False),
        transient=True,
        # Results on stdout may be redirected; messages are printed above the display.
        redirect_stdout=False,
    )


# --- signals ----------------------------------------------------------------------------------


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call a function at SIGINT and SIGTERM."""
    previous_handlers = {}
    try:
        if (
            threading.current_thread() is threading.main_thread()
        ):  # other threads get no signals
            for signal_number in (signal.SIGTERM, signal.SIGINT):
                previous_handler = signal.getsignal(signal_number)
                # The parent may have it ignored, as `nohup` does; None is a handler not of Python.
                if previous_handler not in (signal.SIG_IGN, None):
                    previous_handlers[signal_number] = previous_handler
                    signal.signal(signal_number, handler)
        yield
    finally:
        for signal_number, previous_handler in previous_handlers.items():
            signal.signal(signal_number, previous_handler)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Delay SIGINT and SIGTERM during a step that must not stop halfway."""
    arrived: dict[int, None] = {}
    try:
        with handle_signals(lambda signal_number, _: arrived.setdefault(signal_number)):
            yield
    finally:
        for signal_number in arrived:
            signal.raise_signal(signal_number)
