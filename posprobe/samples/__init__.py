"""Small real tables and a model that ship with the package, and their provenance."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from posprobe.errors import UnknownReference

__all__ = ["Sample", "sample_path", "samples", "tables"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One shipped checkpoint folder with its origin and the checksums that verify it.

    ``registry`` to ``member_sha256`` name the released package that the tensor was taken from. They
    are ``None`` for a sample that was trained for this project, which has ``training`` instead.
    ``member`` is the file inside the ``archive``, ``member_tensor`` the tensor's name in there and
    ``tensor`` its name in the shipped file. ``tensor_sha256`` covers the tensor's bytes alone
    (little-endian, row by row), so it is the same in any container. A model without a table of
    positions has none of these, and ``shape`` is empty.
    """

    name: str
    title: str
    description: str
    citation: str
    licence: str
    tensor: str | None
    shape: tuple[int, ...]
    dtype: str
    tensor_sha256: str | None
    registry: str | None
    package: str | None
    version: str | None
    archive: str | None
    archive_sha256: str | None
    member: str | None
    member_tensor: str | None
    member_sha256: str | None
    training: Mapping[str, Any] | None


def _folder() -> Path:
    # Tables are memory-mapped, so the samples have to be files on disk, as in every normal install.
    return Path(str(files("posprobe.samples")))


@cache
def samples() -> tuple[Sample, ...]:
    """Return every sample that ships with the package, in catalogue order."""
    entries = json.loads((_folder() / "samples.json").read_text(encoding="utf-8"))
    return tuple(Sample(**{**entry, "shape": tuple(entry["shape"])}) for entry in entries)


def tables() -> tuple[Sample, ...]:
    """Return those samples that have a table of positions."""
    return tuple(sample for sample in samples() if sample.tensor)


def sample_path(name: str) -> Path:
    """Return the checkpoint folder of the sample called `name`.

    Raises
    ------
    UnknownReference
        If no sample has that name; the message lists those that exist.
    """
    names = [sample.name for sample in samples()]
    if name in names:
        return _folder() / name
    close = get_close_matches(name.lower(), names, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UnknownReference(
        f"sample:{name}: no such sample.{hint} Choose from {', '.join(names)}."
    )
