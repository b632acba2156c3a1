"""Presentation of the objects that users hold: drawings, `repr`, HTML cards, data frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import partial
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from posprobe.errors import MissingExtra, PosprobeError
from posprobe.text import escape_invisible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Longer texts of a `repr` are cut, in characters.
MAX_REPR_LETTERS = 500
#: Longer values of a card are cut, in characters: a line of a notebook holds some 120.
MAX_CARD_VALUE_LETTERS = 200
#: A card shows at most this many lines of a table, about a screen.
MAX_CARD_LINES = 20
#: Marks before the answers, as on the page.
ANSWER_DOTS = {"yes": "●", "no": "○", "cannot tell": "◐"}

#: Function that draws a picture of a card.
DrawPicture: TypeAlias = "Callable[[], Figure]"


@dataclass(frozen=True)
class Card:
    """The content of what a notebook shows of an object.

    Parameters
    ----------
    title
        Name of the object.
    facts
        Values by name.
    text
        Sentence under the title, or empty.
    lines
        Lines of a table, each with the same columns.
    pictures
        Functions that draw the pictures. Where the numbers of a picture are undefined, it is left
        out.
    """

    title: str
    facts: Mapping[str, object]
    text: str = ""
    lines: Sequence[Mapping[str, object]] = ()
    pictures: tuple[DrawPicture, ...] = ()


class Displayable:
    """An object that a notebook shows as a card, and that says where a mistyped attribute is."""

    def _card(self) -> Card:
        """Return what a notebook shows: by default the fields of the record."""
        record: Any = self
        values = {member.name: getattr(self, member.name) for member in fields(record)}
        return Card(type(self).__name__, {k: _describe(v) for k, v in values.items()})

    def _repr_html_(self) -> str:
        return html_card(self._card())

    def _locations(self) -> Mapping[str, str]:
        """Return expressions after the object that lead to what it holds, by name."""
        return {name: f".{name}" for name in dir(self) if not name.startswith("_")}

    if not TYPE_CHECKING:  # a type checker must know the attributes that exist

        def __getattribute__(self, name: str) -> Any:
            try:
                return object.__getattribute__(self, name)
            except AttributeError:
                # A property of that name failed; or a library asks for a private name.
                if hasattr(type(self), name) or name.startswith("_"):
                    raise
            message = f"{type(self).__name__} has no attribute {name!r}"
            locations = self._locations()
            near = [name] if name in locations else get_close_matches(name, locations, 2)
            hint = " or ".join(locations[word] for word in near)
            raise AttributeError(f"{message}. Use {hint}." if hint else f"{message}.")


class Drawable(Displayable):
    """A result or positional encoding that `posprobe.figures` can draw."""

    #: Module and function of `posprobe.figures` that draw this class; empty for none.
    figures: ClassVar[str] = ""

    def plot(self, ax: Axes | None = None, **properties: Any) -> Axes:
        """Draw into ``ax``, or into a new figure, and return the Axes.

        The drawing is looked up only here, so that reading and computing need no matplotlib.

        Parameters
        ----------
        ax
            Axes to draw into.
        properties
            Properties of the Axes, such as ``title`` or ``xlim``, as matplotlib's ``Axes.set``
            takes them.

        Raises
        ------
        TypeError
            If results of this class have no drawing.
        AttributeError
            If Axes have no such property.
        """
        axes: Axes = load_figures().draw(self, ax, properties)
        return axes

    def _pictures(self) -> tuple[DrawPicture, ...]:
        """Return the drawing of this class, if it has one, as the picture of its card."""
        if not self.figures:
            return ()
        return (partial(load_figures().draw_alone, self),)


def load_figures() -> Any:
    """Import what draws, only when something is drawn: computing needs no matplotlib."""
    return import_module("posprobe.figures")


def format_repr(record: object, *facts: str) -> str:
    """Format the `repr` ``Class(fact, fact)`` of a record, cut to `MAX_REPR_LETTERS`."""
    text = f"{type(record).__name__}({escape_invisible(', '.join(facts))})"
    return (
        text if len(text) <= MAX_REPR_LETTERS else f"{text[: MAX_REPR_LETTERS - 5]} ...)"
    )


def html_card(card: Card) -> str:
    """Return a card as HTML that refers to nothing outside; texts from files are escaped."""
    cells = "".join(
        f"<tr>{_cell(key.replace('_', ' '), 'th')}{_cell(value)}</tr>"
        for key, value in card.facts.items()
    )
    title = f"<p><strong>{_escape(card.title)}</strong> {_escape(card.text)}</p>"
    table = f"<table>{cells}</table>" if cells else ""
    return f"<div>{title}{table}{_lines_table(card.lines)}{_images(card)}</div>"


def _lines_table(lines: Sequence[Mapping[str, object]]) -> str:
    if not lines:
        return ""
    header = "".join(_cell(key.replace("_", " "), "th") for key in lines[0])
    rows = "".join(
        f"<tr>{''.join(map(_cell, line.values()))}</tr>"
        for line in lines[:MAX_CARD_LINES]
    )
    n_omitted = len(lines) - MAX_CARD_LINES
    more = f"<p>… and {n_omitted} more</p>" if n_omitted > 0 else ""
    return f"<table><tr>{header}</tr>{rows}</table>{more}"


def _images(card: Card) -> str:
    images = []
    for draw in card.pictures:
        try:
            address = load_figures().picture_address(draw)
        except PosprobeError:  # its numbers are undefined
            continue
        images.append(f'<img alt="{_escape(card.title)}" src="{address}">')
    return "".join(images)


def _cell(value: object, tag: str = "td") -> str:
    mark = ANSWER_DOTS.get(value, "") if isinstance(value, str) else ""
    dot = f'<span aria-hidden="true">{mark}</span> ' if mark else ""
    return f"<{tag} style='text-align:left'>{dot}{_escape(str(value))}</{tag}>"


def _escape(text: str) -> str:
    return escape(escape_invisible(text))


def _describe(value: object) -> str:
    """Describe the value of a field in one line."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"{' x '.join(map(str, shape))} numbers"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return (
        text
        if len(text) <= MAX_CARD_VALUE_LETTERS
        else f"{text[:MAX_CARD_VALUE_LETTERS]} …"
    )


def to_frame(columns: Mapping[str, Any]) -> Any:
    """Make a data frame of pandas, or of polars where that alone is installed.

    Parameters
    ----------
    columns
        Arrays or lists of equal length by name.

    Raises
    ------
    MissingExtra
        If neither is installed.
    """
    for name in ("pandas", "polars"):
        if find_spec(name):
            return import_module(name).DataFrame(dict(columns))
    raise MissingExtra("a data frame needs pandas or polars: pip install pandas.")


def to_pandas(columns: Mapping[str, Any]) -> Any:
    """Make a data frame of pandas.

    Parameters
    ----------
    columns
        Arrays or lists of equal length by name.

    Raises
    ------
    MissingExtra
        If pandas is not installed.
    """
    check_pandas()
    return import_module("pandas").DataFrame(dict(columns))


def check_pandas() -> None:
    """Refuse to continue without pandas.

    Raises
    ------
    MissingExtra
        If it is not installed.
    """
    if find_spec("pandas") is None:
        raise MissingExtra("a data frame of pandas needs it: pip install pandas.")
