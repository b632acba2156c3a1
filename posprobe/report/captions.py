"""What a caption says of a figure for a paper: how to read it, of what it is, how it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from posprobe.layouts import Grid
from posprobe.report.narrator.captions import say
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme
from posprobe.sources import Source
from posprobe.tables import PositionTable
from posprobe.text import plain

if TYPE_CHECKING:
    from posprobe.analyses import Heads, Rotation

#: Letters of a checksum or commit that identify it.
DIGITS = 12


def caption(*sentences: str) -> str:
    """Join sentences into one paragraph, ended by what made the figure.

    A byte of a file's name that is not text is written as an escape.
    """
    made = f"Made with posprobe {version('posprobe')}."
    text = plain(" ".join(" ".join([*filter(None, sentences), made]).split()))
    return text.encode(errors="backslashreplace").decode() + "\n"


def provenance(names: Sequence[str], records: Sequence[PositionTable | Scheme]) -> str:
    """Say of each record what it is, which rows were kept, and where it was read."""
    told = []
    for name, record in zip(names, records, strict=True):
        whence = _whence(record.source)
        told.append(f"{name}: {_what(record)}{f'; {whence}' if whence != name else ''}.")
    return " ".join(told)


def _what(record: PositionTable | Scheme) -> str:
    if isinstance(record, PositionTable):
        begin, end = record.rows
        size = f"n = {len(record)}"
        if isinstance(record.layout, Grid):
            size += f" patches, {record.layout.height} × {record.layout.width}"
        else:
            size += f", positions {begin} to {end - 1}"
        text = f"{record.kind} table, {size}, d = {record.dim}"
        if record.dropped:
            text += f", {_rows([row.row for row in record.dropped])} as stored left out"
        if record.prefix_rows:
            text += ", without " + " and ".join(row.token for row in record.prefix_rows)
        return text
    heads = "1 head" if record.heads == 1 else f"{record.heads} heads"
    match record:
        case Rotary():
            text = f"rotary embedding, head width {record.head_dim}, base {record.base:g}"
            return text + ("" if record.rule == "default" else f", rule {record.rule}")
        case LinearBias():
            return f"linear biases (ALiBi), {heads}"
        case RelativeBias():
            return f"relative {record.quantity}, {record.layout}, {heads}"


def _rows(rows: Sequence[int]) -> str:
    return f"row {rows[0]}" if len(rows) == 1 else f"rows {rows[0]} to {rows[-1]}"


def _whence(source: Source) -> str:
    text = source.reference
    if source.tensor:
        stored = f" ({source.dtype})" if source.dtype else ""
        text = f"{source.tensor}{stored} of {text}"
    if source.revision:
        text += f", revision {source.revision[:DIGITS]}"
    elif source.sha256:
        text += f", SHA-256 {source.sha256[:DIGITS]}"
    return text


def table(table: PositionTable, limit: float, cells: int) -> str:
    """Say how to read the table itself; ``cells`` are drawn along an axis at most."""
    steps = {"position": -(-len(table) // cells), "dimension": -(-table.dim // cells)}
    left = " and ".join(f"one {what} in {step}" for what, step in steps.items() if step > 1)
    text = say("table", r=table, limit=limit)
    return f"{text} Of each axis, {left} is drawn." if left else text


def heads(found: Mapping[str, Heads]) -> str:
    """Say how to read curves by distance."""
    first = next(iter(found.values()))
    text = say(first.quantity)
    windows = [w for result in found.values() for w in result.window.tolist() if w == w]
    if windows:
        text += f" Effective windows: {min(windows):.3g} to {max(windows):.3g} positions."
    return text


def rotation(found: Mapping[str, Rotation]) -> str:
    """Say how to read ladders of wavelengths."""
    lengths = "; ".join(
        f"{name}: {int((result.wavelength > result.target).sum())} of {len(result.wavelength)} "
        f"pairs never complete a turn in {result.target} positions"
        for name, result in found.items()
        if result.target
    )
    return say("rotation") + (f" {lengths}." if lengths else "")


def slopes(record: LinearBias) -> str:
    """Say how to read linear biases."""
    return say("slopes", most=record.slopes.max(), least=record.slopes.min())
