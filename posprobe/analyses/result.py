"""What all results share: they are frozen, can be drawn and describe themselves."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.drawable import Drawable


class Result(Drawable):
    """Base of every analysis's frozen result."""

    def summary(self) -> Mapping[str, Any]:
        """Return the numbers that stand in ``analysis.json``; None is an undefined number."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(key.replace('_', ' '))}</th>"
            f"<td>{escape(_show(value))}</td></tr>"
            for key, value in self.summary().items()
            if not isinstance(value, list | dict) or len(value) <= 8
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


def reasons(block: Mapping[str, object], why: str) -> dict[str, str]:
    """Return the same reason for every number of a block that is None."""
    return {name: why for name, value in block.items() if value is None}


def numbers(values: NDArray[np.float64]) -> list[float | None]:
    """Return an array as JSON has it; NaN is an undefined number."""
    return [None if np.isnan(value) else float(value) for value in values]


def _show(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
