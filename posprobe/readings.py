"""What pages explain, in data files beside the code: one entry per measurement or encoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from posprobe.data import read_data
from posprobe.page import Reading


@dataclass(frozen=True)
class Explanation:
    """The texts of a section that are the same whatever was measured.

    Parameters
    ----------
    reading
        How to read it, what it does not show, and whose analysis it is.
    title
        Heading.
    shows
        What it measures, or what it is.
    drawings
        One line on its drawings, by name.
    """

    reading: Reading
    title: str = ""
    shows: str = ""
    drawings: Mapping[str, str] = field(default_factory=dict)

    def filled(self, **words: str) -> Reading:
        """Fill the braces of how to read it, and of what it does not show."""
        told = self.reading
        return Reading(told.reading.format(**words), told.limits.format(**words), told.source)


@cache
def readings(folder: str) -> dict[str, Explanation]:
    """Read the file ``readings.toml`` of a folder, by name; the lines of a text are joined."""
    return {name: _explanation(x) for name, x in read_data(f"{folder}/readings.toml").items()}


def _explanation(entry: Mapping[str, Any]) -> Explanation:
    drawings = _joined(entry.get("drawings", {}))
    texts = _joined({key: text for key, text in entry.items() if key != "drawings"})
    reading = Reading(*(texts.pop(key) for key in ("reading", "limits", "source")))
    return Explanation(reading, **texts, drawings=drawings)


def _joined(texts: Mapping[str, str]) -> dict[str, str]:
    return {key: text.replace("\n", " ") for key, text in texts.items()}
