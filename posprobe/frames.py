"""Numbers as a data frame, of whichever library is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from posprobe.errors import MissingExtra


def to_frame(columns: Mapping[str, Any]) -> Any:
    """Make a data frame of pandas, or of polars where that alone is installed.

    Parameters
    ----------
    columns
        Arrays or lists of equal length by name.

    Raises
    ------
    MissingExtra
        If neither is installed.
    """
    for name in ("pandas", "polars"):
        if find_spec(name):
            return import_module(name).DataFrame(dict(columns))
    raise MissingExtra("a data frame needs pandas or polars: pip install pandas.")
