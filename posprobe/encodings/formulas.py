"""Formulas by name: what ``NAME:SIZES[,OPTION...]`` may say, and the tables that they build."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from posprobe.encodings.offsets import MOST_EXPONENT
from posprobe.encodings.tables import (
    binary,
    continuous_binary,
    counting,
    normalised_counting,
    sincos2d,
    sine_ladder,
    sinusoidal,
)
from posprobe.errors import NoPositionTable, UnknownReference, UsageError
from posprobe.layouts import Grid
from posprobe.tables import PositionTable


class Option(NamedTuple):
    """What a word after a comma sets.

    Parameters
    ----------
    parameter
        The keyword that it sets. Words that set the same one exclude each other.
    value
        What the bare word sets it to.
    number
        Instead, the type of the number that follows ``word=``; for ``scaling``, the factor of the
        rotary rule that the word names.
    above, most
        Between which the number lies.
    """

    parameter: str
    value: object = True
    number: type[int] | type[float] | None = None
    above: float = 0
    most: float = sys.float_info.max


class Formula(NamedTuple):
    """What builds a formula (None: no table), its sizes with an example, and its options."""

    build: Callable[..., PositionTable] | None
    sizes: tuple[str, ...]
    example: str
    options: Mapping[str, Option]


_BASE = {"base": Option("base", number=float, above=1)}
# Of contexts that are longer by more nothing is left of the angles' digits.
_SCALING = Option("scaling", number=float, above=1e-12, most=1e12)

#: Formulas by the name they have in a reference.
FORMULAS: Mapping[str, Formula] = {
    "sinusoidal": Formula(
        sinusoidal,
        ("positions", "width"),
        "512x768",
        {
            "halves": Option("order", "halves"),
            "endpoint": Option("endpoint"),
            "cosine-first": Option("cosine_first"),
            **_BASE,
        },
    ),
    "sincos2d": Formula(
        sincos2d,
        ("height", "width", "dimension"),
        "14x14x768",
        {"timm": Option("order", "timm"), **_BASE},
    ),
    "counting": Formula(counting, ("positions", "width"), "512x768", {}),
    "normalised-counting": Formula(normalised_counting, ("positions", "width"), "512x768", {}),
    "binary": Formula(binary, ("positions", "digits"), "512x9", {"signed": Option("signed")}),
    "continuous-binary": Formula(continuous_binary, ("positions", "width"), "512x768", {}),
    "sine-ladder": Formula(sine_ladder, ("positions", "width"), "512x768", _BASE),
    "rotary": Formula(
        None,
        ("length", "head-width"),
        "4096x128",
        {
            **_BASE,
            "partial": Option("partial", number=float),
            "interleaved": Option("interleaved"),
            "linear": _SCALING,
            "dynamic": _SCALING,
            "yarn": _SCALING,
        },
    ),
    "alibi": Formula(
        None,
        ("length", "heads"),
        "512x12",
        {"bias-max": Option("bias_max", number=float, most=MOST_EXPONENT)},
    ),
    "t5": Formula(
        None,
        ("length", "buckets"),
        "512x32",
        {
            "causal": Option("bidirectional", value=False),
            "max": Option("max_distance", number=int),
        },
    ),
}

#: Heads, buckets and widths beyond which nothing was ever built.
_LIMITS = {"rotary": 2**16, "alibi": 2**12, "t5": 2**12}

_NUMBER = re.compile(r"[0-9]{1,17}(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?")


def parse_formula(source: str) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    """Read a formula reference such as ``rotary:4096x128,base=500000,yarn=8``.

    Returns
    -------
    tuple
        The formula's name, its sizes as `FORMULAS` lists them, and what its options set, by
        keyword: here ``{"base": 500000.0, "scaling": {"rope_type": "yarn", "factor": 8.0}}``.

    Raises
    ------
    UnknownReference
        If there is no such formula.
    UsageError
        If sizes are missing or cannot be, or an option is unknown, repeated or no number.
    """
    name, colon, rest = source.partition(":")
    if name in FORMULAS and not colon:
        sizes = "x".join(size.upper() for size in FORMULAS[name].sizes)
        raise UsageError(f"{source}: its sizes are missing. Write {name}:{sizes}.")
    if name not in FORMULAS:
        known = ", ".join(f"{key}:{'x'.join(item.sizes).upper()}" for key, item in FORMULAS.items())
        raise UnknownReference(f"{source}: unknown formula {name!r}. Choose from {known}.")
    formula = FORMULAS[name]
    sizes, *words = rest.split(",")
    numbers = sizes.split("x")
    if len(numbers) != len(formula.sizes) or not all(map(_is_whole, numbers)):
        raise UsageError(
            f"{source}: {name} takes {len(formula.sizes)} sizes, {' x '.join(formula.sizes)}: "
            f"write {name}:{formula.example}, for example."
        )
    limit = _LIMITS.get(name)
    if limit is not None and int(numbers[1]) > limit:
        raise UsageError(f"{source}: {formula.sizes[1]} go up to {limit}.")
    if 0 in map(int, numbers):
        raise UsageError(
            f"{source}: sizes must be positive: write {name}:{formula.example}, for example."
        )
    options: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        option = formula.options.get(key)
        if option is None or bool(equals) != bool(option.number):
            raise UsageError(f"{source}: there is no option {word!r}. {_allowed(name)}")
        if option.parameter in options:
            raise UsageError(
                f"{source}: {word!r} sets again what an option before it has set. Keep one of them."
            )
        options[option.parameter] = (
            option.value if option.number is None else _number(source, name, key, value)
        )
    return name, tuple(map(int, numbers)), options


def from_reference(source: str) -> PositionTable:
    """Build the table that a formula reference such as ``sinusoidal:512x768,halves`` names.

    Raises
    ------
    UnknownReference
        If there is no such formula.
    UsageError
        If its sizes or options cannot be.
    NoPositionTable
        If the formula is not a table of positions, as for ``rotary``.
    """
    name, sizes, options = parse_formula(source)
    return _builder(name)(*sizes, **options)


def of_shape(name: str, table: PositionTable) -> PositionTable | None:
    """Build a formula in the shape of a table; None if the name is not a bare formula.

    Parameters
    ----------
    name
        A formula without sizes, with or without options: ``sinusoidal`` or ``sinusoidal,halves``.
    table
        Gives the layout and the width.

    Raises
    ------
    UsageError
        If the formula has no table of that shape, or an option cannot be.
    NoPositionTable
        If the formula is not a table of positions.
    """
    formula, comma, options = name.partition(",")
    if formula not in FORMULAS:
        return None
    _builder(formula)
    layout = table.layout
    sizes = (layout.height, layout.width) if isinstance(layout, Grid) else (layout.length,)
    if len(sizes) + 1 != len(FORMULAS[formula].sizes):
        raise UsageError(f"{formula}: it has no table in the shape of {table.name}, a {layout}.")
    shape = "x".join(map(str, (*sizes, table.dim)))
    return from_reference(f"{formula}:{shape}{comma}{options}")


def _builder(name: str) -> Callable[..., PositionTable]:
    build = FORMULAS[name].build
    if build is None:
        tables = ", ".join(key for key, item in FORMULAS.items() if item.build)
        raise NoPositionTable(
            f"{name}: it acts within attention and has no table of positions. "
            f"Formulas with a table are {tables}."
        )
    return build


def _number(source: str, name: str, key: str, text: str) -> object:
    option = FORMULAS[name].options[key]
    number: float | None = None
    if option.number is int and _is_whole(text):
        number = int(text)
    elif option.number is float and _NUMBER.fullmatch(text):
        number = float(text)
    if number is None or not option.above < number <= option.most:
        kind = "a whole number" if option.number is int else "a number"
        raise UsageError(
            f"{source}: {key} is {text!r}; it must be {kind} above {option.above:g} and up to "
            f"{option.most:g}. {_allowed(name)}"
        )
    return {"rope_type": key, "factor": number} if option.parameter == "scaling" else number


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12


def _allowed(name: str) -> str:
    options = FORMULAS[name].options
    if not options:
        return f"{name} has no options."
    words = (f"{key}=NUMBER" if option.number else key for key, option in options.items())
    return f"Options of {name}: {', '.join(words)}."
