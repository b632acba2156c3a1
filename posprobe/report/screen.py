"""What a terminal shows of a page: one screen, headline first."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from io import StringIO
from textwrap import fill

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from posprobe.page import NO_VALUE, Line, Page, Table
from posprobe.report.render import page_of
from posprobe.text import Block, plain
from posprobe.words.lines import Part, budget_note, budget_parts

#: Marks of answers, and blocks of a bar, which neighbours do not share.
MARKS = {"yes": "yes", "no": "no", "cannot tell": "?"}
BLOCKS = "█▓▒░"
#: Lines that a screen has, without the one that says where the page is.
LINES = 19
#: Lines of a headline, and columns of a line where nothing says how wide the terminal is.
HEADLINE, WIDTH = 4, 80
#: A space at which no line is broken.
HARD = "\N{NO-BREAK SPACE}"


def text(document: Block, width: int | None = None, *, verbose: bool = False) -> str:
    """Show a document as a page of text: headline, bar, answers; ``verbose``: all numbers."""
    page = page_of(document)
    wide = max(width or shutil.get_terminal_size((WIDTH, 24)).columns, 20)
    title = wrapped(f"{page.title}: {page.lead}", "", wide)
    parts = [
        [title, *(_headline(page.headline, wide) if page.headline else ())],
        [wrapped(note, "note: ", wide) for note in page.notes],
        _bar(budget_parts(document), budget_note(document), wide),
        _answers(page.single, wide),
        # What answers nothing is told in its sentences.
        [
            wrapped(f"{evidence.lines[0].question}: {' '.join(evidence.sentences)}", "* ", wide)
            for evidence in page.evidence
            if evidence.lines and not any(line_shown.answer for line_shown in evidence.lines)
        ],
        _side_by_side(page, wide) if page.shared else [],
    ]
    if page.key and page.evidence:
        parts = [part for part in parts if part]
        parts[-1].append(wrapped(f"{page.key}{_open(page)}", "", wide))
    if verbose or not page.evidence:
        caption = wrapped(page.numbers.caption, "", wide)
        parts.append([caption, *_numbers(page.numbers, wide)])
    lines = "\n\n".join("\n".join(part) for part in parts if part).split("\n")
    while not verbose and len(lines) > LINES and "" in lines:
        lines.remove("")
    return "\n".join(lines)


def _answers(lines: Sequence[Line], width: int) -> list[str]:
    if not lines:
        return []
    heading = "question" if any(line_shown.answer for line_shown in lines) else "what"
    rows: list[Sequence[str]] = [("", heading, "measure", "value", "by chance")]
    for line in lines:
        mark = MARKS.get(line.answer, "")
        rows.append((mark, line.question, line.measure, line.value, line.chance))
    if all(line_shown.chance == NO_VALUE for line_shown in lines):
        rows = [row[:-1] for row in rows]
    return _columns(rows, width, right_aligned={3})


def _open(page: Page) -> str:
    answers = (line_shown.answer for evidence in page.evidence for line_shown in evidence.lines)
    return " ?: cannot tell." if "cannot tell" in answers else ""


def _side_by_side(page: Page, width: int) -> list[str]:
    """Show what is answered of several subjects: where they differ, and what is the same."""
    differ = [row for row in page.shared if len({line_shown.answer for line_shown in row}) > 1]
    shared_lines = [row[0] for row in page.shared if row not in differ]
    rows: list[Sequence[str]] = [("", *page.subjects)]
    rows += [tuple(map(str, page.numbers.rows[k])) for k in page.numbers.unasked]
    rows += [
        (row[0].question, *(MARKS.get(line_shown.answer, "–") for line_shown in row))
        for row in differ
    ]
    lines = _columns(rows, width)
    if shared_lines:
        agree = " ".join(
            f"{line_shown.question} {line_shown.answer}." for line_shown in shared_lines
        )
        lines.append(wrapped(f"Answers that agree: {agree}", "", width))
    return lines


def _numbers(table: Table, width: int) -> Iterator[str]:
    """Yield the lines of a table; columns that do not fit stand below the others."""
    rows = [[column.label for column in table.columns]]
    rows += [
        [line_shown if isinstance(line_shown, str) else line_shown.text for line_shown in row]
        for row in table.rows
    ]
    widest = max(cell_len(plain(text)) for row in rows for text in row[1:])
    count = max(width // 2 // (widest + 2), 1)
    for first_column in range(1, len(rows[0]), count):
        if first_column > 1:
            yield ""
        block = [(row[0], *row[first_column : first_column + count]) for row in rows]
        yield from _columns(block, width, right_aligned=range(1, count + 1))


def wrapped(line: str, begin: str, width: int) -> str:
    """Break a sentence into lines; names and paths stay whole."""
    return fill(
        plain(line.replace("`", "")),
        width,
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _headline(text: str, width: int) -> list[str]:
    """Return the lines of a headline; of a long one the first sentences, the page has all."""
    while len(headline := wrapped(text, "", width).split("\n")) > HEADLINE and ". " in text:
        text = f"{text.rpartition('. ')[0]}."
    return headline


def _columns(
    rows: Sequence[Sequence[str]], width: int, right_aligned: Collection[int] = ()
) -> list[str]:
    """Lay rows out in columns; what is wider than the line is cut."""
    console = Console(file=StringIO(), width=width, color_system=None)
    grid = Grid(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for place in range(len(rows[0])):
        grid.add_column(justify="right" if place in right_aligned else "left")
    for row in rows:
        grid.add_row(
            *(Text(plain(cell_text), no_wrap=True, overflow="ellipsis") for cell_text in row)
        )
    if console.measure(grid, options=console.options.update(max_width=2 * width)).maximum > width:
        grid.padding = (0, 1, 0, 0)
    with console.capture() as captured:
        console.print(grid)
    return [line.rstrip() for line in captured.get().rstrip("\n").split("\n")]


def _bar(parts: Sequence[Part], note: str, width: int) -> list[str]:
    """Draw a bar of blocks, and name its parts below."""
    bar, names, share = "", [], 0.0
    for k, part in enumerate(parts):
        share += part.share
        block = BLOCKS[k % len(BLOCKS)]
        bar += block * (round((width - 4) * share) - len(bar))
        # A block stays with its name.
        names.append(f"{block}{HARD}{part.short_label}: {part.value}")
    legend = f"{', '.join(names)}{'; ' if note else ''}{note}"
    return [f"  {bar}", wrapped(legend, "  ", width).replace(HARD, " ")] if parts else []
