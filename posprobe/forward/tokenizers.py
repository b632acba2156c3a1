"""What a tokenizer of others would cost, looked at before the library in Rust reads it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from posprobe.errors import InvalidCheckpoint

#: How many times as long normalisation may make a text, and letters that it may put before one.
_GROWTH, _BEFORE = 64, 1000
#: Bytes of the number that a table of replacements begins with.
_SIZE = 4


def refuse_costly(text: str, where: str) -> None:
    """Refuse a ``tokenizer.json`` that makes texts far longer, or has a table that is no table.

    A table of replacements that is announced longer than it is would be allocated as announced.
    ``where`` is what the error names.

    Raises
    ------
    InvalidCheckpoint
        If it does.
    """
    described: Any = None
    with suppress(ValueError, RecursionError):  # the library says what is wrong
        described = json.loads(text)
    growth = 1
    for part in _parts(described):
        match part:
            case {"type": "Replace", "content": str(content)}:
                growth *= max(len(content), 1)
            case {"type": "Prepend", "prepend": str(content)} if len(content) > _BEFORE:
                growth = _GROWTH + 1
            case {"type": "Precompiled", "precompiled_charsmap": str(table)}:
                with suppress(ValueError):
                    _check_table(base64.b64decode(table), where)
    if growth > _GROWTH:
        raise InvalidCheckpoint(
            f"{where}: its tokenizer makes a text more than {_GROWTH} times as long, which could "
            "take all memory. Leave out --text, or use a sound copy."
        )


def _parts(described: Any) -> Iterator[Any]:
    """Yield the steps of a tokenizer before its model, also those within others."""
    waiting = []
    if isinstance(described, dict):
        waiting = [described.get("normalizer"), described.get("pre_tokenizer")]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, dict):
            for key in ("normalizers", "pretokenizers"):
                waiting += part[key] if isinstance(part.get(key), list) else []


def _check_table(table: bytes, where: str) -> None:
    """Refuse a table of replacements whose first part is announced longer than the whole."""
    size = int.from_bytes(table[:_SIZE], "little")
    if table and (not _SIZE <= size <= len(table) - _SIZE or size % _SIZE):
        raise InvalidCheckpoint(
            f"{where}: its tokenizer has a table of {len(table)} bytes and says that {size} of "
            "them come first. Leave out --text, or use a sound copy."
        )
