"""How messages of the library and of commands reach the terminal."""

from __future__ import annotations

import logging
import os

from posprobe.cli.process import say
from posprobe.foreign import plain

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
