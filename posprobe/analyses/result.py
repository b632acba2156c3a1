"""What all results share: they are frozen, can be drawn and describe themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.drawable import Drawable

#: Longest list that is shown among single values.
SHORT = 8
#: How many values stand on one line, and the letters of the widest of them.
ON_A_LINE, WIDEST = 4, 40


class Result(Drawable):
    """Base of every analysis's frozen result."""

    def summary(self) -> Mapping[str, Any]:
        """Return the numbers that stand in ``analysis.json``; None is an undefined number."""
        raise NotImplementedError

    def __repr__(self) -> str:
        found = _single(self.summary()).items()
        said = [f"{key}={_show(value)}" for key, value in found if not isinstance(value, str)]
        shown = [text for text in said if len(text) <= WIDEST]
        more = ", ..." if len(shown) > ON_A_LINE else ""
        return f"{type(self).__name__}({', '.join(shown[:ON_A_LINE])}{more})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(key.replace('_', ' '))}</th>"
            f"<td>{escape(_show(value))}</td></tr>"
            for key, value in _single(self.summary()).items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


def _single(block: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Keep single values and short lists of them; those of blocks inside under ``block.key``."""
    kept: dict[str, Any] = {}
    for key, value in block.items():
        if isinstance(value, Mapping):
            kept |= _single(value, f"{prefix}{key}.")
        elif not isinstance(value, list) or (
            len(value) <= SHORT
            and not any(isinstance(each, Mapping) or is_dataclass(each) for each in value)
        ):
            kept[prefix + key] = value
    return kept


def reasons(block: Mapping[str, object], why: str) -> dict[str, str]:
    """Return the same reason for every number of a block that is None."""
    return {name: why for name, value in block.items() if value is None}


def numbers(values: NDArray[np.float64]) -> list[float | None]:
    """Return an array as JSON has it; NaN is an undefined number."""
    return [None if np.isnan(value) else float(value) for value in values]


def _show(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_show, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
