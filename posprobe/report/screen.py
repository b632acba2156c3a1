"""What a terminal shows of a table, and of tables side by side: one screen, headline first."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

from posprobe.foreign import plain
from posprobe.number_format import Block, cell, lookup
from posprobe.report.narrator.compare import differing, pair_sentence, rows_compared
from posprobe.report.narrator.lines import Line, Part, budget_note, budget_parts, key, size
from posprobe.report.table_page import answers, numbers_table
from posprobe.report.terminal import WIDTH, laid_out, wrapped

#: Marks of answers, and blocks of a bar, which neighbours do not share.
MARKS = {"yes": "yes", "no": "no", "cannot tell": "?"}
BLOCKS = "█▓▒░"
#: Lines that a screen has, without the one that says where the page is.
LINES = 19
#: Lines of a headline.
HEADLINE = 4
#: Numbers that are compared unasked, by key path.
COMPARED = {
    "similarity.centered.neighbour_mean": "neighbour cosine",
    "pca.participation_ratio": "participation ratio",
    "pca.top3": "variance of PC 1 to 3",
    "similarity.centered.translation_invariance": "translation invariance",
}
#: Pairs whose distance is told.
PAIRS = 6


def table_text(document: Block, width: int | None = None, *, verbose: bool = False) -> str:
    """Show a table: headline, variance budget, a line for each answer; ``verbose``: all numbers."""
    wide = _width(width)
    table, told, found = document["table"], document.get("verdict"), answers(document)
    lines = [wrapped(f"{table['name']}: {size(table, file=False)}", "", wide)]
    if told:
        lines += [*_headline(told["summary"], wide), ""]
    lines += [wrapped(f"{note}.", "note: ", wide) for note in table["notes"]]
    if bar := _bar(budget_parts(document), wide):
        note = budget_note(document)
        lines += [*bar, *([wrapped(note, "", wide)] if note else []), ""]
    if found:
        heads = ("", "question", "measure", "value", "by chance")
        lines += _columns([heads, *map(_row, found)], wide, right={3})
        lines.append(wrapped(key(document), "", wide))
    if verbose or not told:
        lines += ["", *laid_out(numbers_table(document), wide, verbose=True)]
        return "\n".join(lines)
    shown = "\n".join(lines).split("\n")
    while len(shown) > LINES and "" in shown:
        shown.remove("")
    return "\n".join(shown)


def comparison_text(document: Block, width: int | None = None, *, verbose: bool = False) -> str:
    """Show tables side by side: how similar, where they differ; ``verbose``: all numbers."""
    wide = _width(width)
    tables = document["tables"]
    lines = [wrapped(pair_sentence(pair), "", wide) for pair in document["pairs"][:PAIRS]]
    lines += [wrapped(note, "note: ", wide) for note in rows_compared(document)]
    rows = [("", *(table["label"] for table in tables))]
    rows.append(("size", *(size(table["table"]).split(" · ")[0] for table in tables)))
    differ, agree = differing(document)
    for path, name in COMPARED.items():
        values = [lookup(table, path) for table in tables]
        if any(value is not None for value in values):
            rows.append((name, *(cell(value) for value in values)))
    lines += ["", *_columns([*rows, *differ], wide)]
    if agree:
        lines.append(wrapped(agree, "", wide))
    if verbose:
        from posprobe.report.comparison_page import comparison_page

        for section in comparison_page(document).sections:
            for table in section.tables:
                lines += ["", *laid_out(table, wide, verbose=True)]
    return "\n".join(lines)


def _headline(text: str, width: int) -> list[str]:
    """Return the lines of a headline; of a long one the first sentences, the page has all."""
    while len(found := wrapped(text, "", width).split("\n")) > HEADLINE and ". " in text:
        text = f"{text.rpartition('. ')[0]}."
    return found


def _width(width: int | None) -> int:
    return max(width or shutil.get_terminal_size((WIDTH, 24)).columns, 20)


def _row(line: Line) -> tuple[str, ...]:
    return MARKS[line.answer], line.question, line.measure, line.value, line.chance


def _cut(text: str, width: int) -> str:
    text = plain(text)
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"


def _columns(rows: Sequence[Sequence[str]], width: int, right: Iterable[int] = ()) -> list[str]:
    """Lay rows out in columns; what is wider than the line is cut."""
    widths = [max(cell_len(plain(each)) for each in column) for column in zip(*rows, strict=True)]
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= width else 1
    while sum(widths) + gap * (len(widths) - 1) > width and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    lines = []
    for row in rows:
        cells = []
        for place, (each, wide) in enumerate(zip(row, widths, strict=True)):
            text = _cut(each, wide)
            room = " " * (wide - cell_len(text))
            cells.append(room + text if place in set(right) else text + room)
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def _bar(parts: Sequence[Part], width: int) -> list[str]:
    """Draw a bar of blocks, the names of its parts below where they fit, and the others after."""
    if not parts:
        return []
    bar, names, rest = "  ", "  ", []
    for k, part in enumerate(parts):
        end = 2 + round((width - 4) * sum(each.share for each in parts[: k + 1]))
        count = end - len(bar)
        name = f"{part.short}: {part.value}"
        if len(names) <= len(bar) and count > 0 and len(bar) + len(name) <= width:
            fits = [each for each in (f"{part.label}: {part.value}", name) if len(each) < count]
            if fits or len(name) <= count + 2:
                names = names.ljust(len(bar)) + (fits or [name])[0] + " "
            else:
                rest.append(f"{part.label} {part.value}")
        else:
            rest.append(f"{part.label} {part.value}")
        bar += BLOCKS[k % len(BLOCKS)] * count
    lines = [bar, names.rstrip()]
    if rest:
        more = f"and {', '.join(rest)}"
        if len(lines[1]) + 1 + len(more) <= width:
            lines[1] += f" {more}"
        else:
            lines.append(_cut(f"  {more}", width))
    return [line for line in lines if line.strip()]
