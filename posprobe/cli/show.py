"""What commands say: which encodings were found, what was measured, where the files are."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from posprobe.cli.process import tell
from posprobe.text import escaped, plain

if TYPE_CHECKING:
    from posprobe.schemes import Scheme
    from posprobe.sources import Source
    from posprobe.tables import DroppedRow, PositionTable, PrefixRow

#: Encodings of one checkpoint that are printed in full; the page has all.
SHOWN = 12


def found(loaded: PositionTable | tuple[Scheme, ...]) -> str:
    """Describe what was read, with everything a user must know of it."""
    if not isinstance(loaded, tuple):
        return _table(loaded)
    from posprobe.schemes import LinearBias, RelativeBias, Rotary
    from posprobe.studies.kernels import MeasuredHeads

    lines = []
    for record in loaded[:SHOWN]:
        heads = "1 head" if record.heads == 1 else f"{record.heads} heads"
        match record:
            case Rotary():
                what = f"rotary, base {record.base:g}, rule {record.rule}"
            case LinearBias():
                what = f"linear biases (ALiBi), {heads}"
            case MeasuredHeads():
                what = f"run of a rotary model, {record.layout}, {heads}"
            case RelativeBias():
                what = f"relative {record.quantity}, {record.layout}, {heads}"
        lines.append(f"{record.name}: {what}")
        if record.source.tensor:
            lines.append(f"  {record.source.tensor} ({record.source.dtype})")
    if (more := len(loaded) - SHOWN) > 0:
        lines.append(f"... and {more} more encodings")
    notes = dict.fromkeys(note for record in loaded for note in record.notes)
    return _told([*lines, *(f"  note: {note}" for note in notes)])


def _table(table: PositionTable) -> str:
    source = table.source
    lines = [f"{table.name}: {table.kind} table, {table.layout}, width {table.dim}"]
    if source.tensor:
        lines.append(f"  {source.tensor} ({source.dtype}) in {source.file}{_rounded(source)}")
    if table.dropped:
        lines.append(f"  left out: {_rows(table.dropped)}: {table.dropped[0].reason}")
    if table.prefix_rows:
        tokens = ", ".join(row.token for row in table.prefix_rows)
        lines.append(f"  kept apart: {_rows(table.prefix_rows)}: {tokens}")
    return _told([*lines, *(f"  note: {note}" for note in table.notes)])


def _rounded(source: Source) -> str:
    quantised = source.quantisation
    if quantised is None:
        return ""
    step = f", in steps of {quantised.step:.3g}" if quantised.step else ""
    return f", dequantised from {quantised.name}{step}"


def _told(lines: Iterable[str]) -> str:
    return "\n".join(map(plain, lines))


def _rows(rows: Sequence[DroppedRow | PrefixRow]) -> str:
    first, last = rows[0].row, rows[-1].row
    return f"row {first}" if first == last else f"rows {first} to {last}"


def print_path(path: Path) -> None:
    """Print a path: bytes of a name that are not text stay as they are."""
    typer.echo(os.fsencode(plain(str(path))))


def print_json(document: Mapping[str, Any]) -> None:
    """Print a document as JSON that the encoding of stdout has all letters of."""
    from posprobe.report import to_json

    text = to_json(document)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = re.sub(r"[^\x00-\x7f]", lambda found: escaped(found[0]), text)
    typer.echo(text, nl=False)


def print_analysis(
    document: Mapping[str, Any], saved: Path | None, *, as_json: bool, verbose: bool = True
) -> None:
    """Print what was found, as JSON or to be read, and say where its page is."""
    from posprobe.report.screen import text

    if as_json:
        print_json(document)
    else:
        typer.echo(text(document, verbose=verbose))
    if saved is not None:
        tell_saved(saved)


def tell_saved(folder: Path) -> None:
    """Say where the page of a bundle is."""
    tell(plain(f"Report: {folder / 'report.html'}"))
