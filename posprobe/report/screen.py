"""What a terminal shows of a page: one screen, headline first."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

from posprobe.foreign import plain
from posprobe.number_format import Block
from posprobe.page import NONE, Line, Page
from posprobe.report.narrator.lines import Part, budget_parts
from posprobe.report.page import page_of
from posprobe.report.terminal import WIDTH, laid_out, wrapped

#: Marks of answers, and blocks of a bar, which neighbours do not share.
MARKS = {"yes": "yes", "no": "no", "cannot tell": "?"}
BLOCKS = "█▓▒░"
#: Lines that a screen has, without the one that says where the page is.
LINES = 19
#: Lines of a headline.
HEADLINE = 4


def text(document: Block, width: int | None = None, *, verbose: bool = False) -> str:
    """Show a document as a page of text: headline, bar, answers; ``verbose``: all numbers."""
    page, wide = page_of(document), max(width or _columns_of_terminal(), 20)
    lines = [wrapped(f"{page.title}: {page.lead}", "", wide)]
    if page.headline:
        lines += [*_headline(page.headline, wide), ""]
    if page.notes:
        lines += [*(wrapped(note, "note: ", wide) for note in page.notes), ""]
    if bar := _bar(budget_parts(document), wide):
        lines += [*bar, ""]
    if page.single:
        what = "question" if any(each.answer for each in page.single) else "what"
        rows = [("", what, "measure", "value", "by chance"), *map(_row, page.single)]
        if all(each.chance == NONE for each in page.single):
            rows = [row[:-1] for row in rows]
        lines += [*_columns(rows, wide, right={3}), ""]
    if page.shared:
        lines += _side_by_side(page, wide)
    if page.key and (page.single or page.shared):
        lines[-1] = wrapped(f"{page.key}{_open(page)}", "", wide)
    if verbose or not page.evidence:
        lines += ["", *laid_out(page.numbers, wide, verbose=True)]
        return "\n".join(lines)
    shown = "\n".join(lines).rstrip().split("\n")
    while len(shown) > LINES and "" in shown:
        shown.remove("")
    return "\n".join(shown)


def _open(page: Page) -> str:
    answers = (each.answer for found in page.evidence for each in found.lines)
    return " ?: cannot tell." if "cannot tell" in answers else ""


def _columns_of_terminal() -> int:
    return shutil.get_terminal_size((WIDTH, 24)).columns


def _side_by_side(page: Page, width: int) -> list[str]:
    """Show what is answered of several subjects: where they differ, and what is the same."""
    differ = [row for row in page.shared if len({each.answer for each in row}) > 1]
    same = [row[0] for row in page.shared if row not in differ]
    rows: list[Sequence[str]] = [("", *page.subjects)]
    rows += [tuple(map(str, page.numbers.rows[k])) for k in page.numbers.unasked]
    rows += [(row[0].question, *(MARKS.get(each.answer, "–") for each in row)) for row in differ]
    lines = _columns(rows, width)
    if same:
        agree = " ".join(f"{each.question} {each.answer}." for each in same)
        lines.append(wrapped(f"Answers that agree: {agree}", "", width))
    return [*lines, ""]


def _headline(text: str, width: int) -> list[str]:
    """Return the lines of a headline; of a long one the first sentences, the page has all."""
    while len(found := wrapped(text, "", width).split("\n")) > HEADLINE and ". " in text:
        text = f"{text.rpartition('. ')[0]}."
    return found


def _row(line: Line) -> Sequence[str]:
    return MARKS.get(line.answer, ""), line.question, line.measure, line.value, line.chance


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
