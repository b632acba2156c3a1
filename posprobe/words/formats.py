"""Numbers, counts and lists in the words of a sentence, and templates that use them as formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any, TypeAlias

from posprobe.text import format_percent, format_period, format_value

#: A hyphen in the place of a minus sign: before a number, and not within a name or an exponent.
_HYPHEN_PATTERN = re.compile(r"(?<![\w.])-(?=\d)")


def write_minus_signs(text: str) -> str:
    """Write negative numbers with a minus sign."""
    return _HYPHEN_PATTERN.sub("\N{MINUS SIGN}", text)


def format_hundredths(value: float) -> str:
    """Return a number with two decimals, and no minus before zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def format_rounded(value: float) -> str:
    """Return a number with three figures, and commas between thousands: 12300 as ``12,300``."""
    return f"{float(f'{value:.3g}'):,.9g}" if value < 1e9 else f"{value:.3g}"


def format_similarity(value: float) -> str:
    """Return a CKA with two decimals, or with four where two would say that it is 1."""
    if 0.995 <= value < 1 - 1e-6:
        return f"{int(1e4 * value) / 1e4:.4f}"
    return format_hundredths(value)


def format_two_figures(value: float) -> str:
    """Return a number with two figures and no power of ten: 1024 as ``1,000``, 2.94 as ``2.9``."""
    return f"{float(f'{value:.2g}'):,.15g}"


def format_whole_percent(share: float) -> str:
    """Return a share in whole per cent: what is not all is not 100 %, and what is there not 0 %."""
    if 0 < share < 0.005:
        return "less than 1 %"
    if 0.995 <= share < 1 - 1e-9:
        return "more than 99 %"
    return f"{100 * share:.0f} %"


_NUMBER_WORDS = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
)


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Count things: ``1 row``, ``3 rows``, ``2 patches``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {plural or noun + ('es' if noun.endswith('ch') else 's')}"


def format_number(value: Any) -> str:
    """Write a number as a configuration would: whole where it is, with commas."""
    if isinstance(value, list | tuple):
        return " × ".join(map(format_number, value))
    if not isinstance(value, int | float):
        return str(value)
    if abs(value - round(value)) < 1e-4 * max(abs(value), 1e-9) and abs(value) < 1e15:
        return f"{round(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def choose_plural(value: Any, forms: str) -> str:
    """Choose between the words on both sides of a bar: those before it where there is one."""
    singular, _, plural = forms.partition("|")
    return singular if (len(value) if isinstance(value, Sequence) else value) == 1 else plural


def format_turns(turns: float) -> str:
    """Count turns, near one to the hundredth."""
    # Near one turn, which is where the answer changes, a tenth is too coarse.
    if turns < 1:
        return f"{min(turns, 0.99):.2f} turns"
    return f"{turns:.2f} turns" if turns < 1.5 else f"{turns:.{1 if turns < 10 else 0}f} turns"


def spell_number(count: int) -> str:
    """Return a small number as a word."""
    return _NUMBER_WORDS[count] if count < len(_NUMBER_WORDS) else f"{count:,}"


def capitalise(text: str) -> str:
    """Begin a sentence with a capital, but leave a name before a colon as it is."""
    first_word = text.partition(" ")[0]
    return text if first_word.endswith(":") else text[:1].upper() + text[1:]


def join_words(words: Sequence[str], max_words: int = 6) -> str:
    """Join words by commas and *and*; beyond ``max_words``, say how many are left out."""
    visible_words = list(words)
    if len(words) > max_words:
        visible_words = [*words[: max_words - 1], f"{len(words) - max_words + 1} more"]
    return (
        " and ".join([", ".join(visible_words[:-1]), visible_words[-1]])
        if len(visible_words) > 1
        else "".join(visible_words)
    )


#: Shortest run of positions that is named by its ends, and the most names in a row.
_MIN_RANGE_POSITIONS = 3
_MAX_NAMED_PLACES = 8


def name_positions(numbers: Sequence[int]) -> str:
    """Name positions, which rise: ``position 5``, ``positions 0–3 and 1023``."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    names: list[str] = []
    for positions in ranges:
        names += (
            [f"{positions[0]}–{positions[-1]}"]
            if len(positions) >= _MIN_RANGE_POSITIONS
            else map(str, positions)
        )
    return f"position{'' if len(numbers) == 1 else 's'} {join_words(names, _MAX_NAMED_PLACES)}"


def name_patches(numbers: Sequence[int], width: int) -> str:
    """Name patches of a grid by row and column: ``the patch in row 5 and column 3``."""
    indices = [divmod(number, width) for number in numbers]
    if len(indices) == 1:
        return f"the patch in row {indices[0][0]} and column {indices[0][1]}"
    return f"the patches {join_words([f'({y}, {x})' for y, x in indices], _MAX_NAMED_PLACES)} (row, column)"


#: A format string for the names that it is given, or a function of the facts.
Template: TypeAlias = str | Callable[[Any], str]
#: What may stand after the colon of a template's field, with words of its own after a space.
TEMPLATE_FORMATS: Mapping[str, Callable[..., str]] = {
    "capital": capitalise, "either": choose_plural, "fine_percent": format_percent, "lower": str.lower,
    "number": format_number, "percent": format_whole_percent, "period_of": format_period, "rounded": format_rounded, "show": format_value,
    "similarity": format_similarity, "some": format_count, "spelled": spell_number, "turned": format_turns,
    "two_figures": format_two_figures,
}  # fmt: skip


class TemplateFormatter(Formatter):
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
        """Write a value by one of `TEMPLATE_FORMATS`, as a part that it names, or as Python does."""
        name, _, words = format_spec.partition(" ")
        if name == "part":
            return str(self.get_value(value, (), {})) if value else ""
        if name in TEMPLATE_FORMATS:
            return TEMPLATE_FORMATS[name](value, words) if words else TEMPLATE_FORMATS[name](value)
        return format(value, format_spec)
