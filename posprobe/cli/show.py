"""Output of commands: the encodings that were found, the results, and where the files are."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from posprobe.cli.process import print_note
from posprobe.text import escape_invisible, json_escape

if TYPE_CHECKING:
    from posprobe.schemes import Scheme
    from posprobe.sources import Source
    from posprobe.tables import DroppedRow, PositionTable, PrefixRow

#: Number of encodings of one checkpoint that are printed; the page has all.
MAX_PRINTED_ENCODINGS = 12


def describe_loaded(loaded: PositionTable | tuple[Scheme, ...]) -> str:
    """Describe the loaded table or schemes in lines of text."""
    if not isinstance(loaded, tuple):
        return _describe_table(loaded)
    from posprobe.schemes import LinearBias, RelativeBias, Rotary
    from posprobe.studies.kernels import MeasuredHeads

    lines = []
    for scheme in loaded[:MAX_PRINTED_ENCODINGS]:
        heads = "1 head" if scheme.heads == 1 else f"{scheme.heads} heads"
        match scheme:
            case Rotary():
                description = f"rotary, base {scheme.base:g}, rule {scheme.rule}"
            case LinearBias():
                description = f"linear biases (ALiBi), {heads}"
            case MeasuredHeads():
                description = f"run of a model, {scheme.layout}, {heads}"
            case RelativeBias():
                description = f"relative {scheme.quantity}, {scheme.layout}, {heads}"
        lines.append(f"{scheme.name}: {description}")
        if scheme.source.tensor:
            lines.append(f"  {scheme.source.tensor} ({scheme.source.dtype})")
    if (n_hidden := len(loaded) - MAX_PRINTED_ENCODINGS) > 0:
        lines.append(f"... and {n_hidden} more encodings")
    notes = dict.fromkeys(note for scheme in loaded for note in scheme.notes)
    return _join_plain([*lines, *(f"  note: {note}" for note in notes)])


def _describe_table(table: PositionTable) -> str:
    source = table.source
    lines = [f"{table.name}: {table.kind} table, {table.layout}, width {table.dim}"]
    if source.tensor:
        lines.append(
            f"  {source.tensor} ({source.dtype}) in {source.file}{_quantisation_note(source)}"
        )
    if table.dropped:
        lines.append(
            f"  left out: {_format_rows(table.dropped)}: {table.dropped[0].reason}"
        )
    if table.prefix_rows:
        tokens = ", ".join(row.token for row in table.prefix_rows)
        lines.append(f"  kept apart: {_format_rows(table.prefix_rows)}: {tokens}")
    return _join_plain([*lines, *(f"  note: {note}" for note in table.notes)])


def _quantisation_note(source: Source) -> str:
    quantised = source.quantisation
    if quantised is None:
        return ""
    step = f", in steps of {quantised.step:.3g}" if quantised.step else ""
    return f", dequantised from {quantised.name}{step}"


def _join_plain(lines: Iterable[str]) -> str:
    return "\n".join(map(escape_invisible, lines))


def _format_rows(rows: Sequence[DroppedRow | PrefixRow]) -> str:
    first, last = rows[0].row, rows[-1].row
    return f"row {first}" if first == last else f"rows {first} to {last}"


def print_path(path: Path) -> None:
    """Print a path; bytes of a name that are not text are written unchanged."""
    typer.echo(os.fsencode(escape_invisible(str(path))))


def print_json(document: Mapping[str, Any]) -> None:
    """Print a document as JSON, with letters escaped that the encoding of stdout lacks."""
    from posprobe.report import to_json

    text = to_json(document)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = re.sub(r"[^\x00-\x7f]", lambda letter: json_escape(letter[0]), text)
    typer.echo(text, nl=False)


def print_analysis(
    document: Mapping[str, Any],
    folder: Path | None,
    *,
    as_json: bool,
    verbose: bool = True,
) -> None:
    """Print a document as JSON or text, and the path of its page."""
    from posprobe.report.screen import render_text

    if as_json:
        print_json(document)
    else:
        typer.echo(render_text(document, verbose=verbose))
    if folder is not None:
        print_report_path(folder)


def print_report_path(folder: Path) -> None:
    """Print the path of a bundle's page."""
    print_note(escape_invisible(f"Report: {folder / 'report.html'}"))
