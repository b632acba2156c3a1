"""Data files of the package: TOML files next to the modules that read them."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any


def read_data(name: str) -> dict[str, Any]:
    """Read a data file such as ``families/architectures.toml``; arrays become tuples."""
    text = files("posprobe").joinpath(name).read_text(encoding="utf-8")
    return {key: _freeze(value) for key, value in tomllib.loads(text).items()}


def _freeze(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _freeze(item) for key, item in value.items()}
    return tuple(map(_freeze, value)) if isinstance(value, list) else value
