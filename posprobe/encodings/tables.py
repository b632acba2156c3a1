"""Tables that follow a formula, and formulas by name: ``NAME:SIZES[,OPTION...]``.

The formulas follow Kernes (2021, Master Positional Encoding, I): `counting` is unbounded,
`normalised_counting` depends on the length, `binary` is bounded but jagged and repeats,
`continuous_binary` is smooth but repeats, `sine_ladder` does not repeat but has no linear shift.
The `sinusoidal` table has none of these defects.
"""

from __future__ import annotations

import math
import re
import reprlib
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from operator import index
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import NoPositionTable, UnknownReference, UsageError
from posprobe.layouts import Grid, Layout, Sequence, layout_sides
from posprobe.sources import Source
from posprobe.tables import PositionTable

#: Largest table that a formula builds, in numbers: 4 GiB of float64.
MAX_FORMULA_NUMBERS = 2**29
#: Largest exponent of ALiBi's slopes: beyond 1,074 they are 0.
MAX_ALIBI_EXPONENT = 1000


def format_reference(name: str, *sizes: int, **options: float | bool | None) -> str:
    """Return the reference that builds a table again, such as ``binary:256x16,signed``.

    An option that is False or None is a default and is omitted; one that is True is written without
    a value. Underscores become dashes.
    """
    words = [f"{name}:{'x'.join(map(str, sizes))}"]
    for key, value in options.items():
        if value is not None and value is not False:
            number_text = "" if value is True else f"={float(value)!r}".removesuffix(".0")
            words.append(key.replace("_", "-") + number_text)
    return ",".join(words)


def check_integer(subject: str, value: Any) -> int:
    """Return an integer argument, NumPy integers included; booleans are rejected.

    Raises
    ------
    UsageError
        If the argument is not an integer.
    """
    if not isinstance(value, bool | np.bool_):
        with suppress(TypeError):
            return index(value)
    raise UsageError(
        f"{subject}: {reprlib.repr(value)} is not a whole number. Pass an int."
    )


def check_sizes(
    reference: str, rows: int, dim: int, *, multiple: int = 1, base: float = 10_000.0
) -> None:
    """Refuse sizes that no table can have, and a base that is not above 1.

    Raises
    ------
    UsageError
        If a size is not positive, the width is not a multiple of ``multiple``, the table would hold
        more than `MAX_FORMULA_NUMBERS` numbers, or the base is not a finite number above 1.
    """
    for size in (rows, dim):
        check_integer(f"{reference}: size", size)
    if rows < 1 or dim < 1 or dim % multiple:
        raise UsageError(
            f"{reference}: sizes must be positive, and the width a multiple of {multiple}."
        )
    if rows * dim > MAX_FORMULA_NUMBERS:
        raise UsageError(
            f"{reference}: {rows * dim} numbers are more than the "
            f"{MAX_FORMULA_NUMBERS} that fit comfortably into memory. "
            "Choose fewer positions."
        )
    if not (math.isfinite(base) and base > 1):
        raise UsageError(
            f"{reference}: the base is {base}; it must be a finite number above 1, such as 10000."
        )


def formula_table(
    reference: str, values: NDArray[np.floating[Any]], layout: Layout
) -> PositionTable:
    """Build the fixed table of a formula from its values and full reference."""
    source = Source(
        reference=reference, resolved=reference, shape=values.shape, dtype="F64"
    )
    return PositionTable(
        values, layout, name=reference, source=source, kind="fixed", family="formula"
    )


Order: TypeAlias = Literal["interleaved", "halves"]
GridOrder: TypeAlias = Literal["mae", "timm"]

#: Orders of a table's columns.
COLUMN_ORDERS: tuple[Order, ...] = ("interleaved", "halves")
#: Number of rows that are computed at a time.
_SINUSOID_BLOCK_ROWS = 8192


def frequencies(
    dim: int, *, base: float = 10_000.0, endpoint: bool = False
) -> NDArray[np.float64]:
    """Angular frequencies of the ladder, fastest first.

    Parameters
    ----------
    dim
        Width ``d`` of the table; even.
    base
        Base of the ladder; the slowest frequency is about ``1 / base``.
    endpoint
        Whether to divide exponents by ``d/2 - 1``, so that the slowest frequency is exactly ``1 /
        base`` (tensor2tensor, fairseq, Whisper), or by ``d/2`` (Vaswani et al. 2017, sec. 3.5).

    Returns
    -------
    NDArray
        ``[d/2]``, in radians per position.
    """
    pairs = dim // 2
    steps = max(pairs - 1, 1) if endpoint else pairs
    return np.asarray(base ** (-np.arange(pairs) / steps))


def sinusoidal(
    length: int,
    dim: int,
    *,
    base: float = 10_000.0,
    order: Order = "interleaved",
    endpoint: bool = False,
    cosine_first: bool = False,
) -> PositionTable:
    """Build the sinusoidal table of Vaswani et al. 2017 (section 3.5) in one of its variants.

    The paper interleaves and divides exponents by ``d/2``, as do DistilBERT, XLM and T2T-ViT;
    Marian, Pegasus and RoFormer keep its ladder in halves; tensor2tensor, fairseq and Whisper have
    halves with the endpoint; MusicGen has those with the cosines first.

    Parameters
    ----------
    length, dim
        Number of positions ``n`` and width ``d``; the width is even.
    base, endpoint
        Ladder of frequencies, see `frequencies`.
    order
        Order of columns: ``"interleaved"`` puts the sine and the cosine of a frequency side by
        side, ``"halves"`` all sines before all cosines.
    cosine_first
        Whether the cosine is on even columns, or in the first half, as in Kernes (2021).

    Returns
    -------
    PositionTable
        ``[n, d]`` float64, fixed.

    Raises
    ------
    UsageError
        If a size is not positive, the width is odd, the base is not above 1, or the table would be
        too large.

    Examples
    --------
    Position 0 has sine 0 and cosine 1 at every frequency:

    >>> import posprobe as pp
    >>> pp.sinusoidal(64, 8).values[0].tolist()
    [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]
    >>> pp.sinusoidal(64, 8, order="halves").values[0].tolist()
    [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    """
    reference = format_reference(
        "sinusoidal",
        length,
        dim,
        halves=order == "halves",
        endpoint=endpoint,
        cosine_first=cosine_first,
        base=None if base == 10_000 else base,
    )
    check_sizes(reference, length, dim, multiple=2, base=base)
    omega = frequencies(dim, base=base, endpoint=endpoint)
    sine, cosine = pair_columns(dim, order, cosine_first=cosine_first)
    values = np.empty((length, dim))
    for first_row in range(0, length, _SINUSOID_BLOCK_ROWS):
        block = values[first_row : first_row + _SINUSOID_BLOCK_ROWS]
        angles = np.arange(first_row, first_row + len(block))[:, None] * omega
        block[:, sine], block[:, cosine] = np.sin(angles), np.cos(angles)
    return formula_table(reference, values, Sequence(length))


def translation_matrix(
    dim: int,
    shift: float,
    *,
    base: float = 10_000.0,
    order: Order = "interleaved",
    endpoint: bool = False,
    cosine_first: bool = False,
) -> NDArray[np.float64]:
    """Matrix that moves every row of a sinusoid by ``shift`` positions.

    With positions as rows, ``PE(x + shift) = PE(x) @ T`` for every ``x``, real or whole: ``T``
    rotates each frequency's plane by ``omega * shift`` (Vaswani et al. 2017, sec. 3.5; Kernes 2021,
    part I). ``T`` is orthogonal and ``T(a) @ T(b) = T(a + b)``.

    Parameters
    ----------
    dim
        Width ``d``; even.
    shift
        Distance in positions; negative moves back.
    base, order, endpoint, cosine_first
        Variant, as for `sinusoidal`.

    Returns
    -------
    NDArray
        ``[d, d]`` float64.

    Raises
    ------
    UsageError
        If the width is not a positive even number or the base is not above 1.

    Examples
    --------
    >>> import posprobe as pp
    >>> import numpy as np
    >>> rows = pp.sinusoidal(64, 8).values
    >>> step = pp.encodings.translation_matrix(8, 1)
    >>> bool(np.allclose(rows[:-1] @ step, rows[1:]))
    True
    """
    reference = f"translation_matrix({dim}, {shift})"
    check_sizes(reference, dim, dim, multiple=2, base=base)
    angles = frequencies(dim, base=base, endpoint=endpoint) * shift
    sine, cosine = pair_columns(dim, order, cosine_first=cosine_first)
    matrix = np.zeros((dim, dim))
    matrix[sine, sine] = matrix[cosine, cosine] = np.cos(angles)
    matrix[cosine, sine] = np.sin(angles)
    matrix[sine, cosine] = -np.sin(angles)
    return matrix


def sincos2d(
    height: int, width: int, dim: int, *, base: float = 10_000.0, order: GridOrder = "mae"
) -> PositionTable:
    """Build a two-dimensional sin-cos table in the layout of a released code.

    Each axis has ``d/4`` frequencies with exponents over ``d/4``. With ``x`` the column of a patch
    and ``y`` its row, the four quarters of a row of the table are

    - ``"mae"``: ``sin x, cos x, sin y, cos y`` (MAE's released code, He et al. 2022; also DiT);
    - ``"timm"``: ``sin y, sin x, cos y, cos x`` (timm, ``build_sincos2d_pos_embed`` at its
      defaults).

    Returns
    -------
    PositionTable
        ``[height * width, d]`` float64 on a grid, fixed.

    Raises
    ------
    UsageError
        If a size is not positive, ``d`` is not a multiple of 4, the base is not above 1, the order
        is unknown, or the table would be too large.

    Examples
    --------
    >>> import posprobe as pp
    >>> table = pp.sincos2d(14, 14, 192)
    >>> print(table.layout)
    grid of 14 x 14
    >>> table.values.shape
    (196, 192)
    """
    reference = format_reference(
        "sincos2d",
        height,
        width,
        dim,
        timm=order == "timm",
        base=None if base == 10_000 else base,
    )
    check_sizes(reference, height, width)
    check_sizes(reference, height * width, dim, multiple=4, base=base)
    omega = frequencies(dim // 2, base=base)
    y, x = (axis[:, None] * omega for axis in np.divmod(np.arange(height * width), width))
    if order == "mae":
        quarters = [np.sin(x), np.cos(x), np.sin(y), np.cos(y)]
    elif order == "timm":
        quarters = [np.sin(y), np.sin(x), np.cos(y), np.cos(x)]
    else:
        raise UsageError(f"{reference}: order is {order!r}. Choose 'mae' or 'timm'.")
    return formula_table(reference, np.concatenate(quarters, axis=1), Grid(height, width))


def pair_columns(
    dim: int, order: Order, *, cosine_first: bool
) -> tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]]:
    """Return the columns of the sines and of the cosines, in the order of the frequencies.

    Raises
    ------
    UsageError
        If the order is unknown.
    """
    if order not in COLUMN_ORDERS:
        raise UsageError(
            f"order {order!r}: there is none. Choose {' or '.join(COLUMN_ORDERS)}."
        )
    columns = np.arange(dim).reshape(*((-1, 2) if order == "interleaved" else (2, -1)))
    first, second = columns.T if order == "interleaved" else columns
    return (second, first) if cosine_first else (first, second)


def counting(length: int, dim: int) -> PositionTable:
    """Count: every column of row ``i`` holds ``i``.

    Returns
    -------
    PositionTable
        ``[n, d]`` float64, fixed; of rank 1.

    Raises
    ------
    UsageError
        If a size is not positive or the table would be too large.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.encodings.counting(4, 1).values.tolist()
    [[0.0], [1.0], [2.0], [3.0]]
    """
    reference = format_reference("counting", length, dim)
    check_sizes(reference, length, dim)
    values = np.repeat(np.arange(float(length))[:, None], dim, axis=1)
    return formula_table(reference, values, Sequence(length))


def normalised_counting(length: int, dim: int) -> PositionTable:
    """Count from 0 to 1: every column of row ``i`` holds ``i / (n - 1)``.

    Returns
    -------
    PositionTable
        ``[n, d]`` float64, fixed; a single position is 0.

    Raises
    ------
    UsageError
        If a size is not positive or the table would be too large.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.encodings.normalised_counting(5, 1).values.tolist()
    [[0.0], [0.25], [0.5], [0.75], [1.0]]
    """
    reference = format_reference("normalised-counting", length, dim)
    check_sizes(reference, length, dim)
    values = np.repeat(np.linspace(0, 1, length)[:, None], dim, axis=1)
    return formula_table(reference, values, Sequence(length))


def binary(length: int, dim: int, *, signed: bool = False) -> PositionTable:
    """Write the positions in binary: column ``j`` of row ``i`` holds digit ``j`` of ``i``.

    The digit of ones comes first, so that columns run from fast to slow as in the sinusoid. Column
    ``j`` has period ``2 ** (j + 1)``; rows repeat after ``2 ** d``.

    Parameters
    ----------
    length, dim
        Number of positions ``n`` and of digits ``d``.
    signed
        Whether to write -1 for the digit 0, which centres the digits.

    Returns
    -------
    PositionTable
        ``[n, d]`` float64, fixed.

    Raises
    ------
    UsageError
        If a size is not positive or the table would be too large.

    Examples
    --------
    The numbers 0 to 3, the digit of ones first:

    >>> import posprobe as pp
    >>> pp.encodings.binary(4, 2).values.tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    reference = format_reference("binary", length, dim, signed=signed)
    check_sizes(reference, length, dim)
    # No position has a digit beyond the 62nd, and a shift by more than 63 is undefined.
    digits = np.arange(length)[:, None] >> np.minimum(np.arange(dim), 62) & 1
    values = (2 * digits - 1 if signed else digits).astype(np.float64)
    table = formula_table(reference, values, Sequence(length))
    if dim >= 63 or length <= 2**dim:
        return table
    note = f"{dim} digits tell {2**dim} positions apart: from there on rows repeat"
    return replace(table, notes=(note,))


def continuous_binary(length: int, dim: int) -> PositionTable:
    """Turn each binary digit into a dial: column ``j`` is a sine of period ``2 ** (j + 1)``.

    Column ``j`` of row ``i`` is ``-sin(2 pi (i + 1/2) / 2 ** (j + 1))``. The half step and the sign
    are chosen so that every number has the sign of ``binary(..., signed=True)``: a sine of period 2
    that begins at 0 would be sampled at its zeros alone. The curve through the rows is smooth, and
    it closes: rows repeat after ``2 ** d``.

    Returns
    -------
    PositionTable
        ``[n, d]`` float64, fixed.

    Raises
    ------
    UsageError
        If a size is not positive or the table would be too large.

    Examples
    --------
    >>> import posprobe as pp
    >>> import numpy as np
    >>> table = pp.encodings.continuous_binary(8, 2).values
    >>> bool(np.allclose(table[4:], table[:4]))
    True
    """
    reference = format_reference("continuous-binary", length, dim)
    check_sizes(reference, length, dim)
    # Halving is exact, so the dials close exactly; the slowest ones do not move within any length.
    turns = np.ldexp(
        np.arange(length)[:, None] + 0.5, -np.minimum(np.arange(1, dim + 1), 1000)
    )
    values = -np.sin(2 * np.pi * (turns % 1))
    return formula_table(reference, values, Sequence(length))


def sine_ladder(length: int, dim: int, *, base: float = 10_000.0) -> PositionTable:
    """Lower the frequencies to a geometric ladder, sines only.

    Column ``j`` of row ``i`` is ``sin(i * base ** (-j / d))``: one frequency per column, from 1 to
    about ``1 / base``. For the usual base no period is a whole number of steps, so rows do not
    repeat; without the cosines, a shift is not a linear map.

    Parameters
    ----------
    length, dim
        Number of positions ``n`` and width ``d``.
    base
        Base of the ladder; the slowest frequency is about ``1 / base``.

    Returns
    -------
    PositionTable
        ``[n, d]`` float64, fixed.

    Raises
    ------
    UsageError
        If a size is not positive, the base is not above 1, or the table would be too large.

    Examples
    --------
    >>> import posprobe as pp
    >>> import numpy as np
    >>> table = pp.encodings.sine_ladder(64, 8)
    >>> bool(np.allclose(table.values[:, 0], np.sin(np.arange(64))))
    True
    """
    reference = format_reference(
        "sine-ladder", length, dim, base=None if base == 10_000 else base
    )
    check_sizes(reference, length, dim, base=base)
    values = np.sin(np.arange(length)[:, None] * frequencies(2 * dim, base=base))
    return formula_table(reference, values, Sequence(length))


class Option(NamedTuple):
    """An option of a formula, which a word after a comma sets.

    Parameters
    ----------
    parameter
        Keyword that the word sets. Words that set the same one exclude each other.
    value
        Value that the bare word sets.
    number
        Type of the number that follows ``word=``, if any; for ``scaling`` it is the factor of the
        rotary rule that the word names.
    exclusive_minimum, maximum
        Bounds of the number.
    """

    parameter: str
    value: object = True
    number: type[int] | type[float] | None = None
    exclusive_minimum: float = 0
    maximum: float = sys.float_info.max


class Formula(NamedTuple):
    """A formula: its function (None for one without a table), names of its sizes, and options."""

    build: Callable[..., PositionTable] | None
    sizes: tuple[str, ...]
    options: Mapping[str, Option] = MappingProxyType({})


_LINE_SIZES = ("positions", "width")
_BASE_OPTION = Option("base", number=float, exclusive_minimum=1)
# Contexts that are longer by a larger factor leave no digit of the angles.
_SCALING_OPTION = Option("scaling", number=float, exclusive_minimum=1e-12, maximum=1e12)

#: Formulas by the name they have in a reference.
FORMULAS: Mapping[str, Formula] = {
    "sinusoidal": Formula(
        sinusoidal,
        _LINE_SIZES,
        {
            "halves": Option("order", "halves"),
            "endpoint": Option("endpoint"),
            "cosine-first": Option("cosine_first"),
            "base": _BASE_OPTION,
        },
    ),
    "sincos2d": Formula(
        sincos2d,
        ("height", "width", "dimension"),
        {"timm": Option("order", "timm"), "base": _BASE_OPTION},
    ),
    "counting": Formula(counting, _LINE_SIZES),
    "normalised-counting": Formula(normalised_counting, _LINE_SIZES),
    "binary": Formula(binary, ("positions", "digits"), {"signed": Option("signed")}),
    "continuous-binary": Formula(continuous_binary, _LINE_SIZES),
    "sine-ladder": Formula(sine_ladder, _LINE_SIZES, {"base": _BASE_OPTION}),
    "rotary": Formula(
        None,
        ("length", "head-width"),
        {
            "base": _BASE_OPTION,
            "partial": Option("partial", number=float),
            "interleaved": Option("interleaved"),
            "linear": _SCALING_OPTION,
            "dynamic": _SCALING_OPTION,
            "yarn": _SCALING_OPTION,
        },
    ),
    "alibi": Formula(
        None,
        ("length", "heads"),
        {"bias-max": Option("bias_max", number=float, maximum=MAX_ALIBI_EXPONENT)},
    ),
    "t5": Formula(
        None,
        ("length", "buckets"),
        {
            "causal": Option("bidirectional", value=False),
            "max": Option("max_distance", number=int),
        },
    ),
}

#: Largest number of heads or buckets, or width of a head; no model has as many.
_MAX_FORMULA_SIZES = {"rotary": 2**16, "alibi": 2**12, "t5": 2**12}

_NUMBER_PATTERNS = {
    int: re.compile(r"[0-9]{1,12}"),
    float: re.compile(r"[0-9]{1,17}(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?"),
}


def parse_formula(source: str) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    """Read a formula reference such as ``rotary:4096x128,base=500000,yarn=8``.

    Returns
    -------
    tuple
        Name of the formula, its sizes in the order of `FORMULAS`, and its options by keyword: here
        ``{"base": 500000.0, "scaling": {"rope_type": "yarn", "factor": 8.0}}``.

    Raises
    ------
    UnknownReference
        If there is no such formula.
    UsageError
        If sizes are missing or invalid, or an option is unknown, repeated or not a number.
    """
    name, _, arguments = source.partition(":")
    if name not in FORMULAS:
        known_formulas = ", ".join(
            f"{key}:{_size_usage(known_formula)}"
            for key, known_formula in FORMULAS.items()
        )
        raise UnknownReference(
            f"{source}: unknown formula {name!r}. Choose from {known_formulas}."
        )
    formula = FORMULAS[name]
    size_text, *words = arguments.split(",")
    size_texts = size_text.split("x")
    sizes = tuple(
        int(text) for text in size_texts if _NUMBER_PATTERNS[int].fullmatch(text)
    )
    if not len(sizes) == len(size_texts) == len(formula.sizes) or 0 in sizes:
        usage = f"write {name}:{_size_usage(formula)}, with positive whole numbers"
        raise UsageError(f"{source}: its sizes are missing or cannot be: {usage}.")
    limit = _MAX_FORMULA_SIZES.get(name)
    if limit is not None and sizes[1] > limit:
        raise UsageError(f"{source}: {formula.sizes[1]} go up to {limit}.")
    options: dict[str, Any] = {}
    for word in words:
        key, equals, option_text = word.partition("=")
        option = formula.options.get(key)
        if option is None or bool(equals) != bool(option.number):
            raise UsageError(
                f"{source}: there is no option {word!r}. {_options_sentence(name)}"
            )
        if option.parameter in options:
            raise UsageError(
                f"{source}: {word!r} sets again what an option before it has set. Keep one of them."
            )
        options[option.parameter] = _parse_option(source, key, option, option_text)
    return name, sizes, options


def build_formula(source: str) -> PositionTable:
    """Build the table that a formula reference such as ``sinusoidal:512x768,halves`` names.

    Raises
    ------
    UnknownReference
        If there is no such formula.
    UsageError
        If its sizes or options are invalid.
    NoPositionTable
        If the formula is not a table of positions, as for ``rotary``.
    """
    name, sizes, options = parse_formula(source)
    return _find_builder(name)(*sizes, **options)


def build_formula_in_shape(name: str, table: PositionTable) -> PositionTable | None:
    """Build a formula in the shape of a table; None if the name is not a bare formula.

    Parameters
    ----------
    name
        Formula without sizes, with or without options: ``sinusoidal`` or ``sinusoidal,halves``.
    table
        Table whose layout and width are used.

    Raises
    ------
    UsageError
        If the formula has no table of that shape, or an option is invalid.
    NoPositionTable
        If the formula is not a table of positions.
    """
    formula, comma, options = name.partition(",")
    if formula not in FORMULAS:
        return None
    _find_builder(formula)
    layout = table.layout
    sizes = layout_sides(layout)
    if len(sizes) + 1 != len(FORMULAS[formula].sizes):
        raise UsageError(
            f"{formula}: it has no table in the shape of {table.name}, a {layout}."
        )
    shape = "x".join(map(str, (*sizes, table.dim)))
    return build_formula(f"{formula}:{shape}{comma}{options}")


def _find_builder(name: str) -> Callable[..., PositionTable]:
    build = FORMULAS[name].build
    if build is None:
        tables = ", ".join(
            key for key, known_formula in FORMULAS.items() if known_formula.build
        )
        raise NoPositionTable(
            f"{name}: it acts within attention and has no table of "
            f"positions. Formulas with a table are {tables}."
        )
    return build


def _parse_option(source: str, key: str, option: Option, option_text: str) -> object:
    if option.number is None:
        return option.value
    number = (
        option.number(option_text)
        if _NUMBER_PATTERNS[option.number].fullmatch(option_text)
        else None
    )
    if number is None or not option.exclusive_minimum < number <= option.maximum:
        noun = "a whole number" if option.number is int else "a number"
        raise UsageError(
            f"{source}: {key} is {option_text!r}; it must be {noun} above "
            f"{option.exclusive_minimum:g} and up to {option.maximum:g}."
        )
    return (
        {"rope_type": key, "factor": number} if option.parameter == "scaling" else number
    )


def _size_usage(formula: Formula) -> str:
    return "x".join(formula.sizes).upper()


def _options_sentence(name: str) -> str:
    options = FORMULAS[name].options
    words = [f"{key}=NUMBER" if option.number else key for key, option in options.items()]
    return f"Options of {name}: {', '.join(words) or 'none'}."
