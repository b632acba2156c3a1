"""Numbers and reasons as text, the same on the page, in the terminal and in captions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: A block of a document, or the document itself.
Block = Mapping[str, Any]


def show(value: object, form: str = ".3g") -> str:
    """Format a number for reading; None is undefined, numbers of a list stand around ``form``."""
    if value is None:
        return "undefined"
    if isinstance(value, list):
        return form.join(map(show, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if form == "d" or isinstance(value, int):
        return f"{value:d}"
    if value and abs(value) < 5e-4:
        return f"{value:.1e}" if abs(value) > 1e-12 else "0"
    if form == ".3g" and 999.5 <= abs(value) < 1e6:
        return f"{float(f'{value:.3g}'):.0f}"
    return f"{value:{form}}"


def hundredths(value: float) -> str:
    """Return a number with two decimals, and no minus before zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def rounded(value: float) -> str:
    """Return a number with three figures, and commas between thousands: 12300 as ``12,300``."""
    return f"{float(f'{value:.3g}'):,g}" if value < 1e6 else f"{value:.3g}"


def two_figures(value: float) -> str:
    """Return a number with two figures and no power of ten: 1024 as ``1,000``, 2.94 as ``2.9``."""
    return f"{float(f'{value:.2g}'):,.15g}"


def percent(share: float) -> str:
    """Return a share in whole per cent: what is not all is not 100 %, and what is there not 0 %."""
    if 0 < share < 0.005:
        return "less than 1 %"
    if 0.995 <= share < 1 - 1e-9:
        return "more than 99 %"
    return f"{100 * share:.0f} %"


_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def some(count: int, noun: str, plural: str = "") -> str:
    """Count things: ``1 row``, ``3 rows``, ``2 patches``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {plural or noun + ('es' if noun.endswith('ch') else 's')}"


def spelled(count: int) -> str:
    """Return a small number as a word."""
    return _NUMBERS[count] if count < len(_NUMBERS) else f"{count:,}"


def capital(text: str) -> str:
    """Begin a sentence with a capital, but leave a name before a colon as it is."""
    first = text.partition(" ")[0]
    return text if first.endswith(":") else text[:1].upper() + text[1:]


def cell(value: object, form: str = ".3g") -> str:
    """Format a number for a table, where a dash says that there is none."""
    return "–" if value is None else show(value, form)


def lookup(block: Any, key: str) -> Any:
    """Follow a dotted key path; None where it leads nowhere."""
    for part in key.split("."):
        block = block.get(part) if isinstance(block, Mapping) else None
    return block


def between(values: Iterable[float | None]) -> str:
    """Return the smallest and the largest of the numbers that are defined."""
    known = [value for value in values if value is not None]
    if not known:
        return "undefined"
    low, high = show(min(known)), show(max(known))
    return low if low == high else f"{low} to {high}"


def listed(parts: Sequence[str], most: int = 6) -> str:
    """Join words by commas and a last *and*; of more than ``most``, say how many are left out."""
    shown = list(parts)
    if len(parts) > most:
        shown = [*parts[: most - 1], f"{len(parts) - most + 1} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def reasons(undefined: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Say why numbers are undefined: each reason once, with the numbers it concerns.

    Parameters
    ----------
    undefined
        Names of numbers and their reasons.
    """
    found: dict[str, dict[str, None]] = {}
    for name, reason in undefined:
        found.setdefault(reason, {})[name.replace("_", " ")] = None
    return tuple(f"{', '.join(names)}: {reason}" for reason, names in found.items())
