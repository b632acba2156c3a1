"""SIGINT and SIGTERM: who is called at them, and steps that they must not stop halfway."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


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
