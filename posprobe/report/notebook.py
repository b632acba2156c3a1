"""A page as a fragment of HTML for a notebook: sentences first, tables on request."""

from __future__ import annotations

from html import escape

from posprobe.foreign import plain
from posprobe.page import Cell, Page, Row, Table

#: Rows of a table that a notebook shows; the page has all.
ROWS = 40


def fragment(page: Page) -> str:
    """Render a page's sentences and tables; every text is escaped."""
    parts = [f"<h3>{_text(page.title)}</h3>"]
    parts += [f"<p>{_text(note)}</p>" for note in page.notes]
    lists = [section for section in page.sections if section.bullets]
    for section in lists:
        if len(lists) > 1:
            parts.append(f"<h4>{_text(section.title)}</h4>")
        parts.append("<ul>" + "".join(f"<li>{_text(b)}</li>" for b in section.bullets) + "</ul>")
    brief = [table for section in page.sections for table in section.tables if table.brief]
    parts += map(_table, brief)
    for section in page.sections:
        more = [table for table in section.tables if not table.brief]
        if more:
            tables = "".join(map(_table, more))
            parts.append(f"<details><summary>{_text(section.title)}</summary>{tables}</details>")
    return "".join(parts)


def _text(text: str) -> str:
    return escape(plain(text))


def _table(table: Table) -> str:
    head = "".join(f"<th>{_text(column.label)}</th>" for column in table.columns)
    rows = "".join(map(_row, (*table.rows[:ROWS], *table.foot)))
    more = len(table.rows) - ROWS
    rest = f"<p>… and {more} more rows on the page</p>" if more > 0 else ""
    caption = f"<caption>{_text(table.caption)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}"


def _row(row: Row) -> str:
    return "<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>"


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return _text(cell)
    return _text(cell.text) + (f"<br><small>{_text(cell.note)}</small>" if cell.note else "")
