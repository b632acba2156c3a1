"""Constants in the configuration of a Keras model, which its weights do not hold.

A table that a functional model adds as a constant stands in ``config.json`` of the ``.keras``
archive, as the values of ``__tensor__`` or ``__numpy__``.
"""

from __future__ import annotations

import zipfile
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from posprobe.checkpoints.files import Files, Stream
from posprobe.checkpoints.local import MAX_JSON_BYTES, parse_json
from posprobe.errors import InvalidCheckpoint

#: Member of a ``.keras`` archive with the configuration of the layers.
_CONFIG_MEMBER = "config.json"
#: Names under which Keras writes arrays.
_ARRAY_CLASSES = ("__tensor__", "__numpy__")
#: What the archive raises for a configuration that is missing, damaged or encrypted.
_UNREADABLE = (
    KeyError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
#: Largest number of objects of a configuration that are looked at.
_MAX_CONFIG_OBJECTS = 1_000_000
#: Largest number of constants that are named.
_MAX_NAMED_CONSTANTS = 4


def describe_constants(files: Files, name: str) -> tuple[str, ...]:
    """Return notes about constants in an archive that could be tables of positions."""
    try:
        with (
            zipfile.ZipFile(Stream(files, name)) as archive,
            archive.open(_CONFIG_MEMBER) as stream,
        ):
            content = stream.read(MAX_JSON_BYTES)
        config = parse_json(content, _CONFIG_MEMBER)
    except (InvalidCheckpoint, *_UNREADABLE):
        return ()  # the weights are read without it
    constants = dict.fromkeys(_iter_constants(config))
    return tuple(
        f"the configuration of the layer {layer} holds a constant of {rows} x {columns} "
        "numbers, which may be a table of positions: save it as .npy to analyse it"
        for layer, rows, columns in [*constants][:_MAX_NAMED_CONSTANTS]
    )


def _iter_constants(config: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Yield the layer, rows and columns of every constant with two or more of both."""
    queue: deque[tuple[str, Any]] = deque([("", config)])
    for _ in range(_MAX_CONFIG_OBJECTS):
        if not queue:
            return
        layer, value = queue.popleft()
        if isinstance(value, Mapping):
            inner = value.get("config")
            if value.get("class_name") in _ARRAY_CLASSES and isinstance(inner, Mapping):
                rows, columns = _count_numbers(inner.get("value"))
                if min(rows, columns) > 1:
                    yield layer, rows, columns
                continue
            name = value.get("name")
            layer = name[:80] if isinstance(name, str) else layer
            queue += [(layer, part) for part in value.values()]
        elif isinstance(value, list):
            queue += [(layer, part) for part in value]


def _count_numbers(value: Any) -> tuple[int, int]:
    """Return the rows and columns of nested lists, ``[n, d]`` or ``[1, n, d]``; 0 for others."""
    match value:
        case [[[*_], *_] as rows]:
            return _count_numbers(rows)
        case [[*first], *rest] if all(
            isinstance(row, list) and len(row) == len(first) for row in rest
        ):
            return 1 + len(rest), len(first)
    return 0, 0
