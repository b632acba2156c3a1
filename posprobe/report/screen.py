"""Page of a document in a terminal: one screen, headline first."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from io import StringIO
from itertools import cycle
from textwrap import fill

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from posprobe.figures.common import shorten_label
from posprobe.page import NO_VALUE, AnswerLine, Page, Table
from posprobe.report.render import build_page
from posprobe.text import Block, escape_invisible
from posprobe.words import SHORT_QUESTION_TEXTS
from posprobe.words.lines import (
    BudgetTerm,
    budget_note,
    budget_terms,
    compared_budgets,
)

#: Mark of each answer.
ANSWER_MARKS = {"yes": "yes", "no": "no", "cannot tell": "?"}
#: Blocks of a bar; neighbouring terms have different ones.
BAR_BLOCKS = "█▓▒░"
#: Blank lines are removed from longer output; the screen also holds the line of the page's path.
MAX_SCREEN_LINES = 19
#: Longer headlines lose their last sentences.
MAX_HEADLINE_LINES = 4
#: Columns of a line where the width of the terminal is unknown.
DEFAULT_WIDTH = 80
#: Narrower bars show nothing.
MIN_BAR_WIDTH = 8
#: Space at which lines are not broken.
NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"


def render_text(
    document: Block, width: int | None = None, *, verbose: bool = False
) -> str:
    """Render a document as text: headline, bar and answers; if ``verbose``, all numbers too."""
    page = build_page(document)
    n_columns = max(width or shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns, 20)
    title = wrap_text(f"{page.title}: {page.lead}", "", n_columns)
    sections = [
        [title, *(_headline_lines(page.headline, n_columns) if page.headline else ())],
        [wrap_text(note, "note: ", n_columns) for note in page.notes],
        _budget_lines(budget_terms(document), budget_note(document), n_columns),
        _compared_budget_lines(compared_budgets(document), n_columns),
        _answer_lines(page.single_answers, n_columns),
        # Evidence without an answer is represented by its sentences, unless its line has its
        # number and the answers of several subjects follow.
        [
            wrap_text(
                f"{evidence.lines[0].question}: {' '.join(evidence.sentences)}",
                "* ",
                n_columns,
            )
            for evidence in page.evidence
            if evidence.lines
            and not any(line.answer for line in evidence.lines)
            and not (page.shared_answers and evidence.lines[0].value != NO_VALUE)
        ],
        _subject_lines(page, n_columns)
        if page.shared_answers or (page.subjects and page.numbers.preview_rows)
        else [],
    ]
    if page.key and page.evidence:
        sections = [section for section in sections if section]
        sections[-1].append(
            wrap_text(f"{page.key}{_cannot_tell_key(page)}", "", n_columns)
        )
    if verbose or not page.evidence:
        caption = wrap_text(page.numbers.caption, "", n_columns)
        sections.append([caption, *_number_lines(page.numbers, n_columns)])
    lines = "\n\n".join("\n".join(section) for section in sections if section).split("\n")
    while not verbose and len(lines) > MAX_SCREEN_LINES and "" in lines:
        lines.remove("")
    return "\n".join(lines)


def _answer_lines(lines: Sequence[AnswerLine], width: int) -> list[str]:
    if not lines:
        return []
    heading = "question" if any(shown_line.answer for shown_line in lines) else "what"
    rows: list[Sequence[str]] = [("", heading, "measure", "value", "by chance")]
    for line in lines:
        mark = ANSWER_MARKS.get(line.answer, "")
        question = SHORT_QUESTION_TEXTS.get(line.question, line.question)
        rows.append((mark, question, line.measure, line.value, line.chance))
    if all(shown_line.chance == NO_VALUE for shown_line in lines):
        rows = [row[:-1] for row in rows]
    return _align_columns(rows, width, right_aligned={3})


def _cannot_tell_key(page: Page) -> str:
    answers = (line.answer for evidence in page.evidence for line in evidence.lines)
    return " ?: cannot tell." if "cannot tell" in answers else ""


def _subject_lines(page: Page, width: int) -> list[str]:
    """Return a table of the answers in which subjects differ, and a line of the others."""
    differing = [
        row for row in page.shared_answers if len({line.answer for line in row}) > 1
    ]
    agreeing = [row[0] for row in page.shared_answers if row not in differing]
    rows: list[Sequence[str]] = [("", *page.subjects)]
    rows += [("baseline", *page.baselines)] if page.baselines else []
    rows += [tuple(map(str, page.numbers.rows[k])) for k in page.numbers.preview_rows]
    rows += [
        (row[0].question, *(ANSWER_MARKS.get(line.answer, "–") for line in row))
        for row in differing
    ]
    lines = _align_columns(rows, width)
    if agreeing:
        answers = " ".join(f"{line.question} {line.answer}." for line in agreeing)
        lines.append(wrap_text(f"Answers that agree: {answers}", "", width))
    return lines


def _number_lines(table: Table, width: int) -> Iterator[str]:
    """Yield the lines of a table; columns that do not fit follow below the others."""
    rows = [[column.label for column in table.columns]]
    rows += [list(map(str, row)) for row in table.rows]
    widest = max(cell_len(escape_invisible(text)) for row in rows for text in row[1:])
    count = max(width // 2 // (widest + 2), 1)
    for first_column in range(1, len(rows[0]), count):
        if first_column > 1:
            yield ""
        block = [(row[0], *row[first_column : first_column + count]) for row in rows]
        yield from _align_columns(block, width, right_aligned=range(1, count + 1))


def wrap_text(line: str, prefix: str, width: int) -> str:
    """Wrap a sentence to a width; names and paths are not broken."""
    return fill(
        escape_invisible(line.replace("`", "")),
        width,
        initial_indent=prefix,
        subsequent_indent=" " * len(prefix),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _headline_lines(text: str, width: int) -> list[str]:
    """Return the lines of a headline, without its last sentences where it is long."""
    while (
        len(headline := wrap_text(text, "", width).split("\n")) > MAX_HEADLINE_LINES
        and ". " in text
    ):
        text = f"{text.rpartition('. ')[0]}."
    return headline


def _align_columns(
    rows: Sequence[Sequence[str]], width: int, right_aligned: Collection[int] = ()
) -> list[str]:
    """Align rows in columns; text that is wider than the line is cut."""
    console = Console(file=StringIO(), width=width, color_system=None)
    grid = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for column in range(len(rows[0])):
        grid.add_column(justify="right" if column in right_aligned else "left")
    for row in rows:
        grid.add_row(
            *(
                Text(escape_invisible(cell_text), no_wrap=True, overflow="ellipsis")
                for cell_text in row
            )
        )
    if (
        console.measure(grid, options=console.options.update(max_width=2 * width)).maximum
        > width
    ):
        grid.padding = (0, 1, 0, 0)
    with console.capture() as captured:
        console.print(grid)
    return [line.rstrip() for line in captured.get().rstrip("\n").split("\n")]


def _block_bar(terms: Sequence[BudgetTerm], width: int) -> str:
    """Return a bar of blocks whose lengths are shares of a width."""
    bar, share = "", 0.0
    for block, term in zip(cycle(BAR_BLOCKS), terms, strict=False):
        share += term.share
        bar += block * (round(width * share) - len(bar))
    return bar


def _compared_budget_lines(
    budgets: Sequence[tuple[str, Sequence[BudgetTerm]]], width: int
) -> list[str]:
    """Return a bar and the shares of each budget under each other, below a legend."""
    if not budgets:
        return []
    terms = budgets[0][1]
    legend = [
        f"{block} {term.kind}"
        for block, term in zip(cycle(BAR_BLOCKS), terms, strict=False)
    ]
    max_name = max(width // 4, 8)
    names = [shorten_label(name, max_name) for name, _ in budgets]
    value_columns = zip(
        legend,
        *([term.value for term in terms] for _, terms in budgets),
        strict=True,
    )
    columns = [names, *value_columns]
    text_width = sum(max(map(cell_len, column)) + 2 for column in columns)
    bar_width = max(width - text_width - 2, MIN_BAR_WIDTH)
    rows: list[Sequence[str]] = [("", "", *legend)]
    rows += [
        (name, _block_bar(terms, bar_width), *(term.value for term in terms))
        for name, (_, terms) in zip(names, budgets, strict=True)
    ]
    return _align_columns(rows, width, right_aligned=range(2, 2 + len(legend)))


def _budget_lines(terms: Sequence[BudgetTerm], note: str, width: int) -> list[str]:
    """Return a bar of blocks for the terms of the budget, and a legend below it."""
    bar = _block_bar(terms, width - 4)
    # A line break must not separate a block from its name.
    names = [
        f"{block}{NO_BREAK_SPACE}{term.short_label}: {term.value}"
        for block, term in zip(cycle(BAR_BLOCKS), terms, strict=False)
    ]
    legend = f"{', '.join(names)}{'; ' if note else ''}{note}"
    return (
        [f"  {bar}", wrap_text(legend, "  ", width).replace(NO_BREAK_SPACE, " ")]
        if terms
        else []
    )
