"""What a page says, as data: one model for the HTML page, the terminal and the notebook.

A page is sections; a section is sentences, pictures and tables. What a section holds is decided
where the numbers are known (`posprobe.measurements` and the builders in `posprobe.report`); how it
looks is decided by the three renderers alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    label
        Heading.
    numeric
        Whether it holds numbers.
    """

    label: str
    numeric: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell that is more than a text.

    Parameters
    ----------
    text
        What it says.
    note
        What stands below in small type.
    thumbnail
        Name of the small picture that stands in its place on a page; empty for none.
    href
        Where it leads; empty for nowhere.
    """

    text: str
    note: str = ""
    thumbnail: str = ""
    href: str = ""


#: Columns of a table beside which something else fits.
WIDE = 4
#: Cells of a row; the first names the row.
Row: TypeAlias = tuple[str | Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table with a caption.

    Parameters
    ----------
    caption
        What the numbers are.
    columns
        Headings.
    rows, foot
        Cells; those of the foot stand apart, such as reference values.
    folded
        Whether it is shown on request only.
    stacked
        Whether a narrow screen shows each row as a block of its own.
    brief
        Whether the terminal prints it unasked; else on request.
    brief_rows
        Which rows it prints unasked; None stands for all.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    foot: tuple[Row, ...] = ()
    folded: bool = False
    stacked: bool = False
    brief: bool = False
    brief_rows: tuple[int, ...] | None = None

    @property
    def wide(self) -> bool:
        """Whether nothing fits beside it."""
        return len(self.columns) > WIDE and not self.folded


@dataclass(frozen=True)
class Picture:
    """A drawing of the bundle by name, and the text that stands for it."""

    name: str
    alt: str


@dataclass(frozen=True)
class Reading:
    """How to read a section, what it does not show, and whose analysis it is."""

    reading: str
    limits: str
    source: str


@dataclass(frozen=True)
class Section:
    """A part of a page under its own heading.

    Parameters
    ----------
    key
        Its anchor.
    title
        Heading.
    paragraphs, bullets
        Sentences.
    notes
        Reasons why numbers are undefined.
    pictures, tables
        In this order.
    reading
        None where there is nothing to explain.
    terms
        Words that the section uses, explained.
    folded
        Whether its content is shown on request only.
    """

    key: str
    title: str
    paragraphs: tuple[str, ...] = ()
    bullets: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    reading: Reading | None = None
    terms: Mapping[str, str] | None = None
    folded: bool = False


@dataclass(frozen=True)
class Fact:
    """A row of the provenance; ``code`` is text to copy, such as a name or a command."""

    label: str
    text: str
    code: bool = False


@dataclass(frozen=True)
class Page:
    """Everything that a page shows. Words between backticks are code.

    Parameters
    ----------
    title
        Heading of the page.
    subject
        What the title of the window adds to it.
    lead
        One sentence on what was analysed.
    notes
        What a reader must know before anything else.
    sections
        In order.
    provenance
        Where the values come from.
    """

    title: str
    subject: str
    lead: str
    notes: tuple[str, ...]
    sections: tuple[Section, ...]
    provenance: tuple[Fact, ...]


def columns(*labels: str) -> tuple[Column, ...]:
    """Make headings; a label that begins with ``=`` is of a column of numbers."""
    return tuple(Column(label.removeprefix("="), label.startswith("=")) for label in labels)
