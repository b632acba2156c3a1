"""A PyTorch file with one other tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posprobe.checkpoints.torchfile import nested_tensors
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
        for path, part, key, _ in nested_tensors(whole)
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
