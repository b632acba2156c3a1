"""A PyTorch file with one other tensor, and a repository of the Hub on this disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from posprobe.errors import OutputError


def replace_in_pickle(
    old: Path, made: Path, name: str, shape: tuple[int, ...], content: bytes
) -> None:
    """Write a PyTorch file again with one other tensor; all others keep their bytes.

    It is read without running what is in it (``weights_only``), and tensors that share memory still
    do. What was read of it before was checked by `posprobe.checkpoints.torchfile`.

    Parameters
    ----------
    old, made
        The file, and the new one.
    name
        Of the tensor, as that module names it: without what the state dict is nested in.
    shape, content
        Of the new tensor, in the format of the old one.

    Raises
    ------
    OutputError
        If the file holds no tensor, or several, that could be meant.
    """
    import argparse

    import torch

    with torch.serialization.safe_globals([argparse.Namespace]):
        whole: Any = torch.load(old, map_location="cpu", weights_only=True)
    places = [
        (part, key)
        for path, part, key, tensor in _tensors(whole, torch.Tensor)
        if path == name or path.endswith(f".{name}")
    ]
    if len(places) != 1:
        raise OutputError(
            f"{old.name}: {len(places)} tensors in it could be {name}. Write the table alone with "
            "-o FILE."
        )
    (part, key) = places[0]
    dtype = part[key].dtype
    part[key] = torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape)
    torch.save(whole, made)


def _tensors(whole: Any, kind: type) -> list[tuple[str, MutableMapping[Any, Any], Any, Any]]:
    """List tensors in nested mappings: path, mapping, key, tensor; each mapping is met once."""
    found = []
    seen: set[int] = set()
    waiting = deque([("", whole)])
    while waiting:
        prefix, part = waiting.popleft()
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        for key, value in part.items():
            if isinstance(value, kind):
                found.append((f"{prefix}{key}", part, key, value))
            else:
                waiting.append((f"{prefix}{key}.", value))
    return found  # type: ignore[return-value]
