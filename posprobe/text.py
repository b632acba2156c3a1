"""Formatted numbers of tables and sentences, and escapes for text of foreign origin.

Names of tensors, values of configurations, file names, options and messages of a server are written
by others. In a terminal a control character clears the screen or types a command, and a mark of
direction makes one name read as another. `escape_invisible` makes both visible and harmless.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

#: A block of a document, or the document itself.
Block = Mapping[str, Any]


def format_period(positions: float) -> str:
    """Format a period, with two figures below 10 and in whole positions from there on."""
    return f"{positions:.2g}" if positions < 9.95 else f"{positions:,.0f}"


def use_minus_sign(text: str) -> str:
    """Write a number with a minus sign in place of its hyphen."""
    return text.replace("-", "\N{MINUS SIGN}")


def format_value(value: object, number_format: str = ".3g") -> str:
    """Format a value for reading; None is undefined, and a list is joined by ``number_format``."""
    if value is None:
        return "undefined"
    if isinstance(value, list):
        return number_format.join(map(format_value, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if number_format == "d" or isinstance(value, int):
        return f"{value:d}"
    if value and abs(value) < 5e-4:
        return f"{value:.1e}" if abs(value) > 1e-12 else "0"
    if number_format == ".3g" and 999.5 <= abs(value) < 1e6:
        return f"{float(f'{value:.3g}'):.0f}"
    return f"{value:{number_format}}"


def format_percent(share: float) -> str:
    """Format a share in per cent with two figures, and more where it is nearly 1: ``3.9 %``.

    0.9996 is ``99.96 %``, and what is less than 0.01 % away from nothing, or from all, says so.
    """
    if share < 0:
        return f"-{format_percent(-share)}"
    if 0 < share < 1e-4:
        return "less than 0.01 %"
    if 0 < 1 - share < 1e-4:
        return "more than 99.99 %"
    rest_percent = 100 * abs(1 - share)
    return _percent_text(
        share,
        max(
            _decimals(100 * share, 2),
            _decimals(rest_percent, 1) if rest_percent < 1 else 0,
        ),
    )


def _percent_text(share: float, decimals: int) -> str:
    return f"{100 * share:z.{decimals}f} %"


def _decimals(value: float, figures: int) -> int:
    """Return the number of decimals at which a value has ``figures`` figures; 0 for 0."""
    if not value:
        return 0
    return max(0, figures - 1 - math.floor(math.log10(float(f"{value:.{figures - 1}e}"))))


def format_with_error(value: float | None, error: float | None) -> str:
    """Format a number with its standard error, if any, and to as many decimals as the error."""
    if value is None:
        return "–"
    if error is None:
        return format_value(value)
    # The last decimals of a smaller error would not be exact in single precision.
    if not 1e-6 <= error < 100 or (abs(value) < 5e-4 and error < 5e-4):
        return f"{format_value(value)} ± {format_value(error, '.2g')}"
    decimals = _decimals(error, 2)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def format_percent_with_error(value: float | None, error: float | None) -> str:
    """Format a share with its standard error, both to as many decimals as the error has."""
    if value is None:
        return "–"
    # Smaller errors would be written as 0.
    if error is None or error < 5e-6:
        return format_percent(value)
    digits = sum(error < limit for limit in (0.0095, 0.00095, 0.000095))
    return f"{100 * value:z.{digits}f} ± {_percent_text(error, digits)}"


def format_cell(value: object, number_format: str = ".3g") -> str:
    """Format a value for a table, where a dash stands for None."""
    return "–" if value is None else format_value(value, number_format)


def lookup(block: Any, key: str) -> Any:
    """Return the value at a dotted path of keys; None where a key is missing."""
    for name in key.split("."):
        block = block.get(name) if isinstance(block, Mapping) else None
    return block


def format_range(values: Iterable[float | None]) -> str:
    """Format the range of the numbers that are defined."""
    defined = [value for value in values if value is not None]
    if not defined:
        return "undefined"
    low, high = format_value(min(defined)), format_value(max(defined))
    return low if low == high else f"{low} to {high}"


def escape_invisible(text: str) -> str:
    r"""Write every character of a text that is not visible as itself as an escape.

    Control characters, line breaks, marks of direction and other invisible ones become ``\x1b``,
    ``\n``, ``\u202e``; letters, signs and spaces of any script stay. So do the stand-ins of bytes
    that are not text (lone surrogates), which a stream writes as it can.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if _is_visible(letter) else letter.encode("unicode_escape").decode()
        for letter in text
    )


def shorten_message(text: str) -> str:
    """Leave out the middle of endless words of a message; few paths are that long."""
    return re.sub(
        r"\S{1000,}",
        lambda word: f"{word[0][:100]}...{word[0][-100:]}",
        escape_invisible(text),
    )


def escape_invisible_json(text: str) -> str:
    r"""Escape the invisible characters of indented JSON in its own syntax, without changing it."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        letter if letter == "\n" or _is_visible(letter) else json_escape(letter)
        for letter in text
    )


def json_escape(letter: str) -> str:
    """Return the JSON escape of a character: one or two units of UTF-16."""
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(
        f"\\u{units[index : index + 2].hex()}" for index in range(0, len(units), 2)
    )


def _is_visible(letter: str) -> bool:
    # The module takes a megabyte, which few names need.
    import unicodedata

    return letter.isprintable() or unicodedata.category(letter) in ("Zs", "Cs")


def shorten_reference(reference: str) -> str:
    """Shorten a reference that is a path to its last component."""
    is_path = reference.startswith((".", "/", "~"))
    return reference.rstrip("/").rpartition("/")[2] or reference if is_path else reference
