"""Numbers and reasons as text, the same on the page, in the terminal and in captions."""

from __future__ import annotations

import math
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
    return f"{float(f'{value:.3g}'):,.9g}" if value < 1e9 else f"{value:.3g}"


def similarity(value: float) -> str:
    """Return a CKA with two decimals, or with four where two would say that it is 1."""
    if 0.995 <= value < 1 - 1e-6:
        return f"{int(1e4 * value) / 1e4:.4f}"
    return hundredths(value)


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


def fine_percent(share: float) -> str:
    """Return a share in per cent with two figures, more where it is nearly all: ``3.9 %``.

    0.9996 is ``99.96 %``, and what is less than 0.01 % away from nothing, or from all, says so.
    """
    if share < 0:
        return f"-{fine_percent(-share)}"
    if 0 < share < 1e-4:
        return "less than 0.01 %"
    if 0 < 1 - share < 1e-4:
        return "more than 99.99 %"
    away = 100 * abs(1 - share)
    return _per_cent(share, max(_decimals(100 * share, 2), _decimals(away, 1) if away < 1 else 0))


def _per_cent(share: float, decimals: int) -> str:
    return f"{100 * share:z.{decimals}f} %"


def _decimals(value: float, figures: int) -> int:
    """Return the decimals with which a number has so many figures; 0 of 0."""
    if not value:
        return 0
    return max(0, figures - 1 - math.floor(math.log10(float(f"{value:.{figures - 1}e}"))))


def with_error(value: float | None, error: float | None) -> str:
    """Write a number with its standard error, where it has one, and as many decimals as that."""
    if value is None:
        return "–"
    if error is None:
        return show(value)
    # Of a smaller one the last decimals would not be exact in single precision.
    if not 1e-6 <= error < 100 or (abs(value) < 5e-4 and error < 5e-4):
        return f"{show(value)} ± {show(error, '.2g')}"
    decimals = _decimals(error, 2)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def percent_with_error(value: float | None, error: float | None) -> str:
    """Write a share with its standard error: both with as many decimals as the error has."""
    if value is None:
        return "–"
    if error is None or error < 5e-6:  # what would be written as 0
        return fine_percent(value)
    digits = sum(error < least for least in (0.0095, 0.00095, 0.000095))
    return f"{100 * value:z.{digits}f} ± {_per_cent(error, digits)}"


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


#: Shortest run of positions that is named by its ends, and the most names in a row.
_RUN, _NAMED = 3, 8


def positions(numbers: Sequence[int]) -> str:
    """Name positions, which rise: ``position 5``, ``positions 0–3 and 1023``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    names: list[str] = []
    for run in runs:
        names += [f"{run[0]}–{run[-1]}"] if len(run) >= _RUN else map(str, run)
    return f"position{'' if len(numbers) == 1 else 's'} {listed(names, _NAMED)}"


def patches(numbers: Sequence[int], width: int) -> str:
    """Name patches of a grid by row and column: ``the patch in row 5 and column 3``."""
    places = [divmod(number, width) for number in numbers]
    if len(places) == 1:
        return f"the patch in row {places[0][0]} and column {places[0][1]}"
    return f"the patches {listed([f'({y}, {x})' for y, x in places], _NAMED)} (row, column)"
