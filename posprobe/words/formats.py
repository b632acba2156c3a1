"""Numbers, counts and lists in the words of a sentence, and templates that use them as formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any, TypeAlias

from posprobe.text import format_percent, format_period, format_value

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


def number(value: Any) -> str:
    """Write a number as a configuration would: whole where it is, with commas."""
    if isinstance(value, list | tuple):
        return " × ".join(map(number, value))
    if not isinstance(value, int | float):
        return str(value)
    if abs(value - round(value)) < 1e-4 * max(abs(value), 1e-9) and abs(value) < 1e15:
        return f"{round(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def either(value: Any, words: str) -> str:
    """Choose between the words on both sides of a bar: those before it where there is one."""
    singular, _, plural = words.partition("|")
    return singular if (len(value) if isinstance(value, Sequence) else value) == 1 else plural


def turned(turns: float) -> str:
    """Count turns, near one to the hundredth."""
    # Near one turn, which is where the answer changes, a tenth is too coarse.
    if turns < 1:
        return f"{min(turns, 0.99):.2f} turns"
    return f"{turns:.2f} turns" if turns < 1.5 else f"{turns:.{1 if turns < 10 else 0}f} turns"


def spelled(count: int) -> str:
    """Return a small number as a word."""
    return _NUMBERS[count] if count < len(_NUMBERS) else f"{count:,}"


def capital(text: str) -> str:
    """Begin a sentence with a capital, but leave a name before a colon as it is."""
    first_word = text.partition(" ")[0]
    return text if first_word.endswith(":") else text[:1].upper() + text[1:]


def listed(parts: Sequence[str], max_parts: int = 6) -> str:
    """Join words by commas and *and*; beyond ``max_parts``, say how many are left out."""
    visible_parts = list(parts)
    if len(parts) > max_parts:
        visible_parts = [*parts[: max_parts - 1], f"{len(parts) - max_parts + 1} more"]
    return (
        " and ".join([", ".join(visible_parts[:-1]), visible_parts[-1]])
        if len(visible_parts) > 1
        else "".join(visible_parts)
    )


#: Shortest run of positions that is named by its ends, and the most names in a row.
_RUN = 3
_NAMED = 8


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


#: A format string for the names that it is given, or a function of the facts.
Template: TypeAlias = str | Callable[[Any], str]
#: What may stand after the colon of a template's field, with words of its own after a space.
FORMS: Mapping[str, Callable[..., str]] = {
    "capital": capital, "either": either, "fine_percent": format_percent, "lower": str.lower,
    "number": number, "percent": percent, "period_of": format_period, "rounded": rounded, "show": format_value,
    "similarity": similarity, "some": some, "spelled": spelled, "turned": turned,
    "two_figures": two_figures,
}  # fmt: skip


class Words(Formatter):
    """Fills templates: a field is one of the names, or a part of the sentence.

    Parameters
    ----------
    parts
        Templates of parts by name, or functions of the facts ``f``. The format ``part`` stands for
        the part that the value names, and for nothing where it names none.
    names
        Values that fields may name.
    """

    def __init__(self, parts: Mapping[str, Template], **names: Any) -> None:
        self.parts, self.names = parts, names

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Any) -> Any:
        """Return the argument of a number, what a name names, or the part of a sentence."""
        del kwargs
        if isinstance(key, int):
            return args[key]
        if key in self.names:
            return self.names[key]
        part = self.parts[key]
        return self.format(part) if isinstance(part, str) else part(self.names["f"])

    def format_field(self, value: Any, format_spec: str) -> str:
        """Write a value by one of `FORMS`, as a part that it names, or as Python does."""
        name, _, words = format_spec.partition(" ")
        if name == "part":
            return str(self.get_value(value, (), {})) if value else ""
        if name in FORMS:
            return FORMS[name](value, words) if words else FORMS[name](value)
        return format(value, format_spec)
