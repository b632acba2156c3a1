"""What commands say: which table was found, what was measured, where the files are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posprobe.table import DroppedRow, PositionTable, PrefixRow


def found(table: PositionTable) -> str:
    """Describe a table that was read, with everything a user must know of it."""
    source = table.source
    lines = [f"{table.name}: {table.kind} table, {table.layout}, width {table.dim}"]
    if source.tensor:
        lines.append(f"  {source.tensor} ({source.dtype}) in {source.file}")
    if table.dropped:
        lines.append(f"  left out: {_rows(table.dropped)}: {table.dropped[0].reason}")
    if table.prefix_rows:
        tokens = ", ".join(row.token for row in table.prefix_rows)
        lines.append(f"  kept apart: {_rows(table.prefix_rows)}: {tokens}")
    return "\n".join([*lines, *(f"  note: {note}" for note in table.notes)])


def _rows(rows: Sequence[DroppedRow | PrefixRow]) -> str:
    first, last = rows[0].row, rows[-1].row
    return f"row {first}" if first == last else f"rows {first} to {last}"


def summary(document: Mapping[str, Any]) -> str:
    """Print an analysis: the findings, the numbers with their bands, the other numbers."""
    from posprobe.nulls import NULLS
    from posprobe.report.page import rows_of, verdict_rows
    from posprobe.report.sections import SECTIONS

    lines = [f"* {finding['text']}" for finding in document["findings"]]
    rows = verdict_rows(document["nulls"])
    if not rows:
        # Nothing that was measured has a band: print the numbers themselves.
        for section in SECTIONS:
            if section.key in document:
                lines += [section.title] + [
                    f"  {row['label']:<32}{row['value']:>10}   {row['meaning']}"
                    for row in rows_of(document[section.key], section.numbers)
                ]
        return "\n".join(lines)
    if not document["nulls"]["draws"]:
        lines.append("no null models were drawn, so nothing can be claimed: see --nulls")
    elif not lines:
        lines.append("no number lies outside the bands of all null models")
    lines.append("")
    lines.append(f"{'':32}{'table':>9}{'sinusoid':>10}" + "".join(f"{name:>10}" for name in NULLS))
    for row in rows:
        medians = "".join(f"{band['median']:>10}" for band in row["nulls"])
        lines.append(f"{row['label']:<32}{row['value']:>9}{row['sinusoid']:>10}{medians}")
    return "\n".join(lines)


def comparison(document: Mapping[str, Any]) -> str:
    """Print a comparison: findings, one table of numbers, distances, published values."""
    from posprobe.report.sections import VERDICT, show

    tables = document["tables"]
    lines = []
    for table in tables:
        cut = table["positions_before"] > document["length"]
        kept = f" (the first {document['length']} of {table['positions_before']} positions)"
        lines.append(table["label"] + (kept if cut else ""))
        lines += [f"  * {finding['text']}" for finding in table["findings"]]
        if not table["nulls"]["draws"]:
            lines.append("  no null models were drawn, so nothing can be claimed: see --nulls")
        elif not table["findings"]:
            lines.append("  no number lies outside the bands of all null models")
    lines += ["", f"{'':32}" + "".join(f"{table['label'][-21:]:>22}" for table in tables)]
    for number in VERDICT:
        values = [table["nulls"]["numbers"].get(number.key, {}).get("value") for table in tables]
        if any(value is not None for value in values):
            shown = "".join(f"{show(value, number.form):>22}" for value in values)
            lines.append(f"{number.label:<32}{shown}")
    lines += ["", f"{'':44}{'CKA':>8}{'Procrustes':>12}{'overlap':>9}"]
    for pair in document["pairs"]:
        cells = f"{show(pair['cka']):>8}{show(pair['procrustes']):>12}"
        cells += f"{show(pair['subspace_overlap']):>9}"
        lines.append(f"{' and '.join(pair['tables'])[:43]:<44}{cells}")
    for table in tables:
        for value in table["published"]:
            ours = "not measured" if value["ours"] is None else show(value["ours"])
            lines.append(
                f"{table['label']}: {value['quantity']}: published {show(value['value'])}, "
                f"here {ours} ({value['citation']})"
                + (f". {value['differs']}" if value["differs"] else "")
            )
    return "\n".join(lines)


def written(folder: Path) -> str:
    """Say where a bundle's files are."""
    return (
        f"Data    {folder / 'analysis.json'}, {folder / 'arrays.npz'}\n"
        f"Figures {folder / 'figures'}\n"
        f"Report  {folder / 'report.html'}"
    )
