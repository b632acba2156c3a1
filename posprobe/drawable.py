"""Presentation of the objects that users hold: drawings, `repr`, HTML cards, data frames."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from posprobe.errors import MissingExtra
from posprobe.text import escape_invisible

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Longer texts of a `repr` are cut, in characters.
MAX_REPR_LETTERS = 500


class Drawable:
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
        axes: Axes = import_module("posprobe.figures").draw(self, ax, properties)
        return axes

    def _card(self) -> tuple[str, Mapping[str, object]]:
        """Return a title and the facts that a notebook shows."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return html_card(*self._card())


def format_repr(record: object, *facts: str) -> str:
    """Format the `repr` ``Class(fact, fact)`` of a record, cut to `MAX_REPR_LETTERS`."""
    text = f"{type(record).__name__}({escape_invisible(', '.join(facts))})"
    return (
        text if len(text) <= MAX_REPR_LETTERS else f"{text[: MAX_REPR_LETTERS - 5]} ...)"
    )


def html_card(title: str, facts: Mapping[str, object]) -> str:
    """Return a table of facts for a notebook; texts from files are escaped."""
    cells = "".join(
        "<tr><th "
        f"style='text-align:left'>{escape(key.replace('_', ' '))}</th><td "
        f"style='text-align:left'>{escape(escape_invisible(str(value)))}</td></tr>"
        for key, value in facts.items()
    )
    return f"<table><caption>{escape(escape_invisible(title))}</caption>{cells}</table>"


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
