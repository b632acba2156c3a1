"""Closed forms: position tables that follow a formula, usable wherever a checkpoint is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from posprobe.encodings.sinusoidal import fixed_formula, sincos2d, sinusoidal
from posprobe.errors import UnknownReference, UsageError
from posprobe.table import Grid, PositionTable

Formula: TypeAlias = Callable[..., PositionTable]

#: Formulas by the name they have in a reference, with what their sizes mean.
FORMULAS: Mapping[str, tuple[Formula, tuple[str, ...]]] = {
    "sinusoidal": (sinusoidal, ("positions", "width")),
    "sincos2d": (sincos2d, ("height", "width", "dimension")),
}


def from_reference(source: str) -> PositionTable:
    """Build the table that a formula reference such as ``sinusoidal:512x768`` names.

    Raises
    ------
    UnknownReference
        If there is no such formula.
    UsageError
        If the sizes are missing or cannot be.
    """
    name, _, sizes = source.partition(":")
    if name not in FORMULAS:
        known = ", ".join(f"{key}:{'x'.join(parts)}" for key, (_, parts) in FORMULAS.items())
        raise UnknownReference(f"{source}: no formula is called {name!r}. Known are {known}.")
    formula, parts = FORMULAS[name]
    numbers = sizes.split("x")
    if len(numbers) != len(parts) or not all(n.isascii() and n.isdigit() for n in numbers):
        raise UsageError(
            f"{source}: {name} takes {len(parts)} sizes, {' x '.join(parts)}: write "
            f"{name}:{'x'.join('512' for _ in parts)}, for example."
        )
    return formula(*map(int, numbers))


def of_shape(name: str, table: PositionTable) -> PositionTable | None:
    """Build the formula called ``name`` in the shape of a table; None if it is no bare name.

    Raises
    ------
    UsageError
        If the formula has no table of that shape.
    """
    if name not in FORMULAS:
        return None
    layout = table.layout
    if (name == "sincos2d") != isinstance(layout, Grid):
        raise UsageError(f"{name}: it has no table in the shape of {table.name}, a {layout}.")
    sizes = (layout.height, layout.width) if isinstance(layout, Grid) else (layout.length,)
    return FORMULAS[name][0](*sizes, table.dim)


__all__ = ["FORMULAS", "fixed_formula", "from_reference", "of_shape", "sincos2d", "sinusoidal"]
