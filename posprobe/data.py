"""Data files of the package: TOML beside the modules that read it."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any


def read_data(name: str) -> dict[str, Any]:
    """Read a data file such as ``families/families.toml``; arrays become tuples."""
    text = files("posprobe").joinpath(name).read_text(encoding="utf-8")
    return {key: _frozen(value) for key, value in tomllib.loads(text).items()}


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
