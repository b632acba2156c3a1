"""Encodings without a table, numbered as in the document, and how answers name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from posprobe.text import Block, show

#: Encodings of one kind with their places in the document.
Numbered: TypeAlias = Sequence[tuple[int, Block]]
#: Encodings that a sentence names.
NAMED = 4


def keys_of(found: Numbered, *paths: str) -> tuple[str, ...]:
    """Return the keys of some blocks of each encoding."""
    return tuple(f"schemes.{number}.{path}" for number, _ in found for path in paths)


def whose(found: Numbered, scheme: Block) -> str:
    """Name an encoding where there are several."""
    return f"{scheme['name']}: " if len(found) > 1 else ""


def few(parts: Sequence[str]) -> str:
    """Join what is said of each encoding, of many that of the first."""
    shown = list(parts[:NAMED])
    if len(parts) > NAMED:
        shown.append(f"and {len(parts) - NAMED} more encodings")
    return "; ".join(shown)


def show_distance(value: float) -> str:
    """Write a number of positions."""
    return f"{value:,.0f}" if value >= 100 else show(value)
