"""What a terminal shows of a page: one screen, headline first."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from textwrap import fill

from rich.cells import cell_len, set_cell_size

from posprobe.page import NONE, Evidence, Line, Page, Table
from posprobe.report.narrator.lines import Part, budget_note, budget_parts
from posprobe.report.page import page_of
from posprobe.text import Block, plain

#: Marks of answers, and blocks of a bar, which neighbours do not share.
MARKS = {"yes": "yes", "no": "no", "cannot tell": "?"}
BLOCKS = "█▓▒░"
#: Lines that a screen has, without the one that says where the page is.
LINES = 19
#: Lines of a headline, and columns of a line where nothing says how wide the terminal is.
HEADLINE, WIDTH = 4, 80


def text(document: Block, width: int | None = None, *, verbose: bool = False) -> str:
    """Show a document as a page of text: headline, bar, answers; ``verbose``: all numbers."""
    page, wide = page_of(document), max(width or _columns_of_terminal(), 20)
    title = wrapped(f"{page.title}: {page.lead}", "", wide)
    parts = [
        [title, *(_headline(page.headline, wide) if page.headline else ())],
        [wrapped(note, "note: ", wide) for note in page.notes],
        _bar(budget_parts(document), budget_note(document), wide),
        _answers(page.single, wide),
        # What answers nothing is told in its sentences.
        [wrapped(_told(each), "* ", wide) for each in page.evidence if _answers_nothing(each)],
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


def _answers(found: Sequence[Line], width: int) -> list[str]:
    if not found:
        return []
    what = "question" if any(each.answer for each in found) else "what"
    rows = [("", what, "measure", "value", "by chance"), *map(_row, found)]
    if all(each.chance == NONE for each in found):
        rows = [row[:-1] for row in rows]
    return _columns(rows, width, right={3})


def _answers_nothing(found: Evidence) -> bool:
    return bool(found.lines) and not any(each.answer for each in found.lines)


def _told(found: Evidence) -> str:
    return f"{found.lines[0].question}: {' '.join(found.sentences)}"


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
    return lines


def _numbers(table: Table, width: int) -> Iterator[str]:
    """Yield the lines of a table; columns that do not fit stand below the others."""
    rows = [[column.label for column in table.columns]]
    rows += [[each if isinstance(each, str) else each.text for each in row] for row in table.rows]
    names, *others = zip(*rows, strict=True)
    widest = [max(cell_len(plain(text)) for text in texts) for texts in others]
    room = width - min(max(cell_len(plain(name)) for name in names), width // 2)
    while others:
        count = 1
        while count < len(others) and sum(widest[: count + 1]) + 2 * (count + 1) <= room:
            count += 1
        block = list(zip(names, *others[:count], strict=True))
        yield from _columns(block, width, right=range(1, count + 1))
        others, widest = others[count:], widest[count:]
        if others:
            yield ""


def wrapped(line: str, begin: str, width: int) -> str:
    """Break a sentence into lines; names and paths stay whole."""
    return fill(
        plain(line.replace("`", "")), width, initial_indent=begin,
        subsequent_indent=" " * len(begin), break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


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


def _bar(parts: Sequence[Part], note: str, width: int) -> list[str]:
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
    if rest or note:
        more = f"and {', '.join(rest)}" if rest else ""
        more = "; ".join(filter(None, [note, more]))
        if len(lines[1]) + 1 + len(more) <= width:
            lines[1] += f" {more}"
        else:
            lines.append(_cut(f"  {more}", width))
    return [line for line in lines if line.strip()]
