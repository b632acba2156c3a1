"""How messages of the library reach the terminal."""

from __future__ import annotations

import logging

from posprobe.cli.process import say
from posprobe.foreign import plain


class Told(logging.Handler):
    """Messages go where everything is said: above what shows how far the work is."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say a message."""
        say(self.format(record))


class Plain(logging.Formatter):
    """Messages quote names and answers of others."""

    def format(self, record: logging.LogRecord) -> str:
        """Escape what a terminal would act on."""
        return plain(super().format(record))
