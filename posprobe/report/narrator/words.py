"""Numbers, counts and lists in the words of a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: A hyphen in the place of a minus sign: before a number, and not within a name or an exponent.
_HYPHEN = re.compile(r"(?<![\w.])-(?=\d)")


def signed(text: str) -> str:
    """Write negative numbers with a minus sign."""
    return _HYPHEN.sub("\N{MINUS SIGN}", text)


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
