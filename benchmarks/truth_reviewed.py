"""The entries of coverage_reviewed.toml: what was decided by reading the library's code."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

REVIEWED = Path(__file__).with_name("coverage_reviewed.toml")


def whole(pattern: str) -> re.Pattern[str]:
    """Compile a pattern that must match a whole name."""
    return re.compile(f"(?:{pattern})\\Z")


@cache
def reviewed() -> list[dict[str, Any]]:
    """Read the entries decided by hand."""
    entries: list[dict[str, Any]] = tomllib.loads(REVIEWED.read_text())["entry"]
    for entry in entries:
        entry["class"] = whole(entry.get("class", ".*"))
        entry["attribute"] = whole(entry.get("attribute", ".*"))
        entry["model"] = whole(entry.get("model", ".*"))
    return entries


@cache
def entry_for(
    model: str, owner: str, attribute: str, dims: int | None = None
) -> Mapping[str, Any] | None:
    """Find the first reviewed entry about an attribute of a class, a tensor of so many dims."""
    for entry in reviewed():
        if (
            entry.get("dims", dims) == dims
            and entry["class"].match(owner)
            and entry["attribute"].match(attribute)
            and entry["model"].match(model)
        ):
            return entry
    return None
