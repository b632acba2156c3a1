"""Formats of numbers, counts and lists in sentences, and templates that use them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any, TypeAlias

from posprobe.text import format_percent, format_period, format_value

#: At most this many runs of layers are named in a line.
MAX_LAYER_RUNS = 6
#: Pattern of a hyphen used as minus sign: before a number, and not within a name or an exponent.
_HYPHEN_PATTERN = re.compile(r"(?<![\w.])-(?=\d)")


def write_minus_signs(text: str) -> str:
    """Write negative numbers with a minus sign."""
    return _HYPHEN_PATTERN.sub("\N{MINUS SIGN}", text)


def format_hundredths(value: float) -> str:
    """Return a number with two decimals, without a minus before zero."""
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


def layer_numbers(layers: Sequence[int]) -> str:
    """Return layers by number, a run of more than two by its ends."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    texts = [
        f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run))
        for run in runs
    ]
    more = ", …" if len(texts) > MAX_LAYER_RUNS else ""
    noun = "layer" if len(layers) == 1 else "layers"
    return f"{noun} {', '.join(texts[:MAX_LAYER_RUNS])}{more}"


def format_whole_percent(share: float) -> str:
    """Return a share in whole per cent; only 0 is written as 0 %, and only 1 as 100 %."""
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
    """Return a count with its noun: ``1 row``, ``3 rows``, ``2 patches``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {plural or noun + ('es' if noun.endswith('ch') else 's')}"


def format_number(value: Any) -> str:
    """Return a number of a configuration: an integer where it is one, with commas."""
    if isinstance(value, list | tuple):
        return " × ".join(map(format_number, value))
    if not isinstance(value, int | float):
        return str(value)
    if abs(value - round(value)) < 1e-4 * max(abs(value), 1e-9) and abs(value) < 1e15:
        return f"{round(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def choose_plural(value: Any, forms: str) -> str:
    """Return the singular before the bar of ``forms`` for a count of one, else the plural."""
    singular, _, plural = forms.partition("|")
    count = len(value) if isinstance(value, Sequence) else value
    return singular if count == 1 else plural


def format_turns(turns: float) -> str:
    """Return a number of turns, near one turn to the hundredth."""
    # Near one turn, where the answer changes, a tenth is too coarse.
    if turns < 1:
        return f"{min(turns, 0.99):.2f} turns"
    return (
        f"{turns:.2f} turns"
        if turns < 1.5
        else f"{turns:.{1 if turns < 10 else 0}f} turns"
    )


def spell_number(count: int) -> str:
    """Return a small number as a word."""
    return _NUMBER_WORDS[count] if count < len(_NUMBER_WORDS) else f"{count:,}"


def capitalise(text: str) -> str:
    """Capitalise a sentence, unless it begins with a name before a colon."""
    first_word = text.partition(" ")[0]
    return text if first_word.endswith(":") else text[:1].upper() + text[1:]


def join_words(words: Sequence[str], max_words: int = 6) -> str:
    """Join words by commas and *and*; beyond ``max_words``, say how many are left out."""
    visible_words = list(words)
    if len(words) > max_words:
        visible_words = [*words[: max_words - 1], f"{len(words) - max_words + 1} more"]
    if len(visible_words) < 2:
        return "".join(visible_words)
    return " and ".join([", ".join(visible_words[:-1]), visible_words[-1]])


#: Fewest neighbouring positions that are named as a range.
_MIN_RANGE_POSITIONS = 3
#: Largest number of ranges or patches that are named in a list.
_MAX_NAMED_PLACES = 8


def name_positions(numbers: Sequence[int]) -> str:
    """Name positions in rising order: ``position 5``, ``positions 0–3 and 1023``."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    names: list[str] = []
    for positions in ranges:
        if len(positions) >= _MIN_RANGE_POSITIONS:
            names.append(f"{positions[0]}–{positions[-1]}")
        else:
            names += map(str, positions)
    return f"position{'' if len(numbers) == 1 else 's'} {join_words(names, _MAX_NAMED_PLACES)}"


def name_patches(numbers: Sequence[int], width: int) -> str:
    """Name patches of a grid by row and column: ``the patch in row 5 and column 3``."""
    indices = [divmod(number, width) for number in numbers]
    if len(indices) == 1:
        return f"the patch in row {indices[0][0]} and column {indices[0][1]}"
    names = join_words(
        [f"({row}, {column})" for row, column in indices], _MAX_NAMED_PLACES
    )
    return f"the patches {names} (row, column)"


#: Format string for the names of a `TemplateFormatter`, or function of the facts.
Template: TypeAlias = str | Callable[[Any], str]
#: Functions by the name after the colon of a template's field; words after a space are an argument.
TEMPLATE_FORMATS: Mapping[str, Callable[..., str]] = {
    "capital": capitalise,
    "either": choose_plural,
    "fine_percent": format_percent,
    "listed": join_words,
    "lower": str.lower,
    "number": format_number,
    "percent": format_whole_percent,
    "period_of": format_period,
    "rounded": format_rounded,
    "show": format_value,
    "similarity": format_similarity,
    "some": format_count,
    "spelled": spell_number,
    "turned": format_turns,
    "two_figures": format_two_figures,
}


class TemplateFormatter(Formatter):
    """Formatter of templates, whose fields are names or parts of the sentence.

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
        """Return the argument of an index, the value of a name, or the part of a sentence."""
        del kwargs
        if isinstance(key, int):
            return args[key]
        if key in self.names:
            return self.names[key]
        part = self.parts[key]
        return self.format(part) if isinstance(part, str) else part(self.names["f"])

    def format_field(self, value: Any, format_spec: str) -> str:
        """Format a value by `TEMPLATE_FORMATS`, as the part that it names, or as Python does."""
        name, _, words = format_spec.partition(" ")
        if name == "part":
            return str(self.get_value(value, (), {})) if value else ""
        if name in TEMPLATE_FORMATS:
            return (
                TEMPLATE_FORMATS[name](value, words)
                if words
                else TEMPLATE_FORMATS[name](value)
            )
        return format(value, format_spec)
