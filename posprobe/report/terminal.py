"""A page as text for a terminal: its sentences and the tables that are marked as brief."""

from __future__ import annotations

import shutil
from io import StringIO
from textwrap import fill

from posprobe.figures.common import spread
from posprobe.page import Cell, Page, Row, Table

#: Sentences of a list, and rows of a table, that are printed; the page has all.
SENTENCES, ROWS = 12, 20
#: Columns of a line where nothing says how wide the terminal is.
WIDTH = 100


def text(page: Page, width: int | None = None) -> str:
    """Render a page's sentences and brief tables within the width of the terminal.

    Parameters
    ----------
    page
        What was found.
    width
        Columns of a line; None asks the terminal.
    """
    wide = max(width or shutil.get_terminal_size((WIDTH, 24)).columns, 20)
    lists = [section for section in page.sections if section.bullets]
    lines = [_wrapped(page.lead, "", wide), *(_wrapped(n, "note: ", wide) for n in page.notes)]
    for section in lists:
        if len(lists) > 1:
            lines.append(_wrapped(section.title, "", wide))
        lines += [_wrapped(bullet, "* ", wide) for bullet in section.bullets[:SENTENCES]]
        if (more := len(section.bullets) - SENTENCES) > 0:
            lines.append(f"... and {more} more on the page")
    for section in page.sections:
        for table in section.tables:
            if table.brief:
                lines += ["", *_laid_out(table, wide)]
    return "\n".join(lines)


def _wrapped(line: str, begin: str, width: int) -> str:
    """Break a sentence into lines; names and paths stay whole."""
    return fill(
        line.replace("`", ""), width, initial_indent=begin, subsequent_indent=" " * len(begin),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _laid_out(table: Table, width: int) -> list[str]:
    from rich.console import Console
    from rich.table import Table as Grid

    # Drawings need a page.
    drawn = {
        place
        for row in (*table.rows, *table.foot)
        for place, cell in enumerate(row)
        if isinstance(cell, Cell) and cell.marks
    }
    kept = [place for place in range(len(table.columns)) if place not in drawn]
    grid = Grid(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for place in kept:
        column = table.columns[place]
        justify = "right" if column.numeric else "left"
        grid.add_column(column.label, justify=justify, overflow="fold")  # type: ignore[arg-type]
    rows = spread(table.rows, ROWS)
    for row in (*rows, *table.foot):
        grid.add_row(*(_text(row, place) for place in kept))
    out = StringIO()
    # Neither colours nor markup: names come from strangers.
    console = Console(
        file=out, width=width, color_system=None, markup=False, highlight=False, emoji=False
    )
    console.print(grid)
    some = f" ({len(rows)} of {len(table.rows)} rows)" if len(rows) < len(table.rows) else ""
    caption = _wrapped(f"{table.caption.rstrip('.')}{some}", "", width)
    return [caption, *(line.rstrip() for line in out.getvalue().splitlines())]


def _text(row: Row, place: int) -> str:
    if place >= len(row):
        return ""
    cell = row[place]
    return cell.text if isinstance(cell, Cell) else cell
