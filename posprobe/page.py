"""Content of a page as data: one model for the HTML page, the terminal and the notebook.

Every analysis has a page of the same four sections: overview, evidence, all numbers, provenance.
The builders in `posprobe.report.pages` fill them, and the renderers decide on their appearance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    label
        Heading.
    is_numeric
        Whether it holds numbers.
    is_answer
        Whether it holds answers: yes, no or cannot tell.
    definition
        Sentence that defines what it holds; empty for none.
    """

    label: str
    is_numeric: bool = False
    is_answer: bool = False
    definition: str = ""


@dataclass(frozen=True)
class Cell:
    """A cell that is more than a text.

    Parameters
    ----------
    text
        Text of the cell.
    note
        Note below the text in small type.
    thumbnail
        Name of the small picture that stands in its place on a page; empty for none.
    href
        Target of the link; empty for none.
    definition
        Sentence that defines what the row is about; empty for none.
    """

    text: str
    note: str = ""
    thumbnail: str = ""
    href: str = ""
    definition: str = ""

    def __str__(self) -> str:
        return self.text


#: Cells of a row; the first names the row.
Row: TypeAlias = tuple[str | Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table with a caption.

    Parameters
    ----------
    caption
        Description of the numbers.
    columns
        Headings.
    rows
        Cells.
    preview_rows
        Indices of the rows that a terminal prints even where it does not print all numbers.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    preview_rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A drawing by name, and its alternative text; empty where the drawing has its own."""

    name: str
    alt: str = ""


#: Text of a value that does not exist.
NO_VALUE = "–"


@dataclass(frozen=True)
class AnswerLine:
    """An answer in one line: the question with its value.

    Parameters
    ----------
    name, answer
        Name of the question, and its answer: yes, no or cannot tell, and empty where nothing is
        answered.
    question, measure
        Question and measure in at most five words.
    value, chance, p
        Numbers as texts; a dash stands for a missing one.
    tested
        The number that was tested.
    interval
        Range of values that are no evidence.
    facts
        Description of the null in words; empty where nothing was tested.
    """

    name: str
    answer: str
    question: str
    measure: str = ""
    value: str = NO_VALUE
    chance: str = NO_VALUE
    p: str = NO_VALUE
    tested: float | None = None
    interval: tuple[float, float] | None = None
    facts: str = ""


@dataclass(frozen=True)
class Evidence:
    """Sentences and pictures behind an answer, or behind several subjects' answers.

    Parameters
    ----------
    lines
        The answer, or one for each subject of the page; none where it answers no question.
    title
        Its heading where that is not the question.
    sentences
        Sentences of the evidence.
    pictures
        Pictures that show it.
    """

    lines: tuple[AnswerLine, ...] = ()
    title: str = ""
    sentences: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Section:
    """A section of a listing under its own heading.

    Parameters
    ----------
    key
        Its anchor.
    title
        Heading.
    paragraphs, bullets
        Sentences.
    pictures, tables
        Pictures and tables, in this order.
    """

    key: str
    title: str
    paragraphs: tuple[str, ...] = ()
    bullets: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Fact:
    """A row of the provenance."""

    label: str
    text: str


@dataclass(frozen=True)
class Page:
    """Everything that a page shows. Words between backticks are code.

    Parameters
    ----------
    title, subject
        Name of what was analysed, and what the title of the window adds to it.
    lead
        Description of the subject in a line.
    headline
        Summary of the answers.
    notes
        Remarks that come before anything else.
    pictures
        Drawings of the first screen.
    subjects
        Names of what has an answer of its own to each question, where there are several.
    baselines
        How each subject was made that is a baseline, such as ``drawn``, and empty texts for the
        others; none where no subject is one.
    evidence
        The answers, and what shows them.
    key
        Explanation of the answers and of their intervals.
    numbers
        All numbers, a column for each subject.
    provenance
        Sources of the values.
    """

    title: str
    subject: str
    lead: str
    headline: str = ""
    notes: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    subjects: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    key: str = ""
    numbers: Table = Table("", (), ())
    provenance: tuple[Fact, ...] = ()

    @property
    def single_answers(self) -> tuple[AnswerLine, ...]:
        """The answers to questions that have a single answer."""
        return tuple(
            evidence.lines[0] for evidence in self.evidence if len(evidence.lines) == 1
        )

    @property
    def shared_answers(self) -> tuple[tuple[AnswerLine, ...], ...]:
        """The answers to questions that have an answer for each subject."""
        return tuple(
            evidence.lines for evidence in self.evidence if len(evidence.lines) > 1
        )

    @property
    def all_pictures(self) -> tuple[Picture, ...]:
        """All drawings, those of the first screen before those of the evidence."""
        return (
            *self.pictures,
            *(picture for evidence in self.evidence for picture in evidence.pictures),
        )


@dataclass(frozen=True)
class Listing:
    """A page that lists many bundles, or the rows of a sweep.

    Parameters
    ----------
    title, subject, notes, provenance
        See `Page`.
    lead
        Its headline.
    sections
        The list itself, and what is made of it.
    """

    title: str
    subject: str
    lead: str
    notes: tuple[str, ...]
    sections: tuple[Section, ...]
    provenance: tuple[Fact, ...] = ()


def make_columns(*labels: str) -> tuple[Column, ...]:
    """Make columns; a label that begins with ``=`` heads a column of numbers."""
    return tuple(
        Column(label.removeprefix("="), label.startswith("=")) for label in labels
    )
