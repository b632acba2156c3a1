"""Tables that are compared, and what the document of a comparison is held to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from made_tables import as_table, gaussian, walk, waves

if TYPE_CHECKING:
    from posprobe.tables import PositionTable

Document = dict[str, Any]


def learned() -> PositionTable:
    return as_table(waves(90, [6.0, 18.0, 40.0], noise=0.1), name="learned")


def smooth() -> PositionTable:
    return as_table(walk(90, 10), name="smooth")


def noise() -> PositionTable:
    return as_table(gaussian(90, 7), name="noise")
