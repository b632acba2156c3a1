"""A page as text for a terminal: its sentences and tables, the brief ones or all."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from textwrap import fill

from rich.cells import cell_len

from posprobe.figures.common import spread
from posprobe.foreign import plain
from posprobe.page import Cell, Column, Row, Table

#: Sentences of a list, and rows of a table, that are printed; the page has all.
SENTENCES, ROWS = 12, 24
#: Columns of a line where nothing says how wide the terminal is.
WIDTH = 80
#: Between two columns of a table.
GAP = 2


def wrapped(line: str, begin: str, width: int) -> str:
    """Break a sentence into lines; names and paths stay whole."""
    return fill(
        plain(line.replace("`", "")), width, initial_indent=begin,
        subsequent_indent=" " * len(begin), break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def laid_out(table: Table, width: int, *, verbose: bool) -> list[str]:
    """Lay a table out in lines of a width, all of its rows or some."""
    rows: Sequence[Row] = table.rows
    if not verbose:
        some = table.rows
        if table.brief_rows is not None:
            some = tuple(table.rows[place] for place in table.brief_rows)
        rows = spread(some, ROWS)
    strips = [
        _Strip(
            column,
            [_text(row, place) for row in rows],
            [_text(row, place) for row in table.foot],
            width,
        )
        for place, column in enumerate(table.columns)
    ]
    which = f" ({len(rows)} of {len(table.rows)} rows)" if len(rows) < len(table.rows) else ""
    lines = [wrapped(f"{table.caption.rstrip('.')}{which}", "", width)]
    gap = 1 if _wide(strips, GAP) > width >= _wide(strips, 1) else GAP
    for block in _blocks(strips, gap, width):
        lines += [*([""] if len(lines) > 1 else []), *_grid(block, gap, width)]
    return lines


class _Strip:
    """A column with its cells, and how narrow and how wide it can be."""

    def __init__(self, column: Column, cells: list[str], foot: list[str], width: int) -> None:
        self.column, self.cells = column, [*cells, *foot]
        words = [word for text in (column.label, *self.cells) for word in text.split()]
        # Numbers stay whole and words too, unless one alone would fill half of the line.
        least = max(map(cell_len, [*words, *(cells if column.numeric else ())]), default=1)
        self.least = min(least, width // 2 - GAP)
        self.most = max(map(cell_len, (column.label, *self.cells)))
        self.letters = sum(map(cell_len, self.cells))


def _wide(strips: list[_Strip], gap: int) -> int:
    return sum(strip.least + gap for strip in strips) - gap


def _blocks(strips: list[_Strip], gap: int, width: int) -> list[list[_Strip]]:
    """Share columns out among blocks that fit the line; each begins with the column of names."""
    first, *others = strips
    blocks = [[first]]
    # Where one block is not enough, names need not be broken to make it fuller.
    room = 0
    if _wide(strips, gap) > width:
        room = max(min(first.most, width // 3) - first.least, 0)
    for strip in others:
        if len(blocks[-1]) > 1 and _wide([*blocks[-1], strip], gap) + room > width:
            blocks.append([first])
        blocks[-1].append(strip)
    return blocks


def _widths(block: list[_Strip], gap: int, width: int) -> list[int]:
    """Share the room that is left among the texts by their length, the rest among numbers."""
    widths = {id(strip): strip.least for strip in block}
    room = width - _wide(block, gap)
    texts = sorted((s for s in block if not s.column.numeric), key=lambda s: s.letters)
    for strip in [*texts, *(s for s in block if s.column.numeric)]:
        share = room
        if strip in texts:
            letters = sum(other.letters for other in texts[texts.index(strip) :])
            share = max(
                room * strip.letters // max(letters, 1), min(room, width // 4 - strip.least)
            )
        more = max(min(strip.most - strip.least, share), 0)
        widths[id(strip)] += more
        room -= more
    return list(widths.values())


def _grid(block: list[_Strip], gap: int, width: int) -> list[str]:
    from rich.console import Console
    from rich.table import Table as Grid

    grid = Grid(box=None, pad_edge=False, show_edge=False, padding=(0, gap, 0, 0))
    for strip, wide in zip(block, _widths(block, gap, width), strict=True):
        grid.add_column(
            plain(strip.column.label),
            justify="right" if strip.column.numeric else "left",
            width=wide,
            overflow="fold",
        )
    for cells in zip(*(strip.cells for strip in block), strict=True):
        grid.add_row(*cells)
    out = StringIO()
    # Neither colours nor markup: names come from strangers.
    console = Console(
        file=out, width=width, color_system=None, markup=False, highlight=False, emoji=False
    )
    console.print(grid)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def _text(row: Row, place: int) -> str:
    if place >= len(row):
        return ""
    cell = row[place]
    return plain(cell.text if isinstance(cell, Cell) else cell)
