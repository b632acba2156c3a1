"""What commands say: which encodings were found, what was measured, where the files are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posprobe.schemes import Scheme
    from posprobe.table import DroppedRow, PositionTable, PrefixRow

#: Encodings of one checkpoint, and findings, that are printed in full; the page has all.
SHOWN = 12
#: Columns of what positions add that fit into a terminal, and their widths.
_WIDTHS = {1: 10, 2: 10, 4: 15, 5: 6, 6: 14, 8: 12}


def found(loaded: PositionTable | tuple[Scheme, ...]) -> str:
    """Describe what was read, with everything a user must know of it."""
    if not isinstance(loaded, tuple):
        return _table(loaded)
    from posprobe.schemes import LinearBias, RelativeBias, Rotary

    lines = []
    for record in loaded[:SHOWN]:
        heads = "1 head" if record.heads == 1 else f"{record.heads} heads"
        match record:
            case Rotary():
                what = f"rotary, base {record.base:g}, rule {record.rule}"
            case LinearBias():
                what = f"linear biases (ALiBi), {heads}"
            case RelativeBias():
                what = f"relative {record.quantity}, {record.layout}, {heads}"
        lines.append(f"{record.name}: {what}")
        if record.source.tensor:
            lines.append(f"  {record.source.tensor} ({record.source.dtype})")
    lines += _more(len(loaded), "encodings")
    notes = dict.fromkeys(note for record in loaded for note in record.notes)
    return "\n".join([*lines, *(f"  note: {note}" for note in notes)])


def _more(count: int, what: str) -> list[str]:
    more = count - SHOWN
    return [f"... and {more} more {what if more > 1 else what[:-1]}"] if more > 0 else []


def _table(table: PositionTable) -> str:
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
    if "schemes" in document:
        return _schemes(document)
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


def _schemes(document: Mapping[str, Any]) -> str:
    from posprobe.report.scheme_page import ROTARY
    from posprobe.report.sections import lookup, show

    texts = [finding["text"] for finding in document["findings"]]
    lines = [f"* {text}" for text in texts[:SHOWN]] + _more(len(texts), "findings")
    learned = [scheme for scheme in document["schemes"] if scheme["scheme"] != "rotary"]
    if learned:
        lines += ["", f"{'':40}{'heads':>6}{'window':>18}{'half width':>14}{'structured':>12}"]
    for scheme in learned:
        above = lookup(scheme, "smoothness.structured")
        lines.append(
            f"{scheme['name'][-39:]:<40}{scheme['head_count']:>6}"
            f"{_range(scheme['heads']['window']):>18}{_range(scheme['heads']['half_width']):>14}"
            f"{'-' if above is None else above:>12}"
        )
    turning = [scheme for scheme in document["schemes"] if scheme["scheme"] == "rotary"]
    if turning:
        lines += ["", f"{'':32}" + "".join(f"{scheme['name'][-21:]:>22}" for scheme in turning)]
    for number in ROTARY if turning else ():
        values = [lookup(scheme, number.key) for scheme in turning]
        if any(value is not None for value in values):
            shown = "".join(f"{show(value, number.form):>22}" for value in values)
            lines.append(f"{number.label:<32}{shown}")
    return "\n".join(lines)


def _range(values: Sequence[float | None]) -> str:
    from posprobe.report.sections import show

    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = show(min(known)), show(max(known))
    return low if low == high else f"{low} to {high}"


def comparison(document: Mapping[str, Any]) -> str:
    """Print a comparison: findings, one table of numbers, distances, published values."""
    if "records" in document:
        return _kernels(document)
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


def _kernels(document: Mapping[str, Any]) -> str:
    from posprobe.report.scheme_page import KERNEL_NUMBERS, KERNEL_OF
    from posprobe.report.sections import show

    records = document["records"]
    lines = [f"kernels between {document['length']} positions, mean over heads", ""]
    lines.append(f"{'':24}" + "".join(f"{record['label'][-21:]:>22}" for record in records))
    of = [KERNEL_OF[record["quantity"]] for record in records]
    lines.append(f"{'kernel':<24}" + "".join(f"{text:>22}" for text in of))
    for number in KERNEL_NUMBERS:
        values = "".join(f"{show(record[number.key], number.form):>22}" for record in records)
        lines.append(f"{number.label:<24}{values}")
    lines += ["", f"{'':44}{'correlation':>12}{'alignment':>12}"]
    for pair in document["pairs"]:
        cells = f"{show(pair['correlation']):>12}{show(pair['alignment']):>12}"
        lines.append(f"{' and '.join(pair['records'])[:43]:<44}{cells}")
    if walk := document["walk"]:
        cells = f"{show(walk['correlation']):>12}{show(walk['alignment']):>12}"
        lines.append(f"{'two random walks, 95 % of draws below':<44}{cells}")
    return "\n".join(lines)


def forward_summary(document: Mapping[str, Any]) -> str:
    """Print a run of a model: the findings, what positions add by layer, what heads prefer."""
    from posprobe.report.forward_page import run_notes

    contexts = document["contexts"]
    run = f", {contexts['used']} contexts, {contexts['kind']}" if contexts["used"] else ""
    what = f"{document['model']['class']}{run}"
    lines = [_wrapped(f"{document['name']}: {what}")]
    lines += [_wrapped(f"note: {note}", 6) for note in run_notes(document)]
    texts = [finding["text"] for finding in document["findings"]]
    lines += [_wrapped(f"* {text}", 2) for text in texts[:SHOWN]]
    lines += _more(len(texts), "findings")
    if document["states"]:
        lines += ["", *_layers(document)]
    for name, title in (("heads", "by weights"), ("attention", "in measured attention")):
        if document[name]:
            lines += ["", *_preferred(document[name]["layers"], title)]
    if document["missing"]:
        lines += ["", "not measured"]
        lines += [_wrapped(f"  {name}: {why}", 4) for name, why in document["missing"].items()]
    return "\n".join(lines)


def _layers(document: Mapping[str, Any]) -> list[str]:
    """Tabulate what positions add, at some of many layers."""
    from posprobe.figures.common import spread
    from posprobe.report.forward_page import layers_table

    table = layers_table(document)
    rows = spread(table["rows"], SHOWN)
    labels = [column["label"] for column in table["columns"]]
    lines = [
        f"{row[0]:<13}" + "".join(f"{row[k]:>{width}}" for k, width in _WIDTHS.items())
        for row in (labels, *rows, *table["foot"])
    ]
    return [f"what positions add{_of(rows, table['rows'])}", *lines]


def _preferred(layers: Sequence[Mapping[str, Any]], title: str) -> list[str]:
    """Count the heads of each layer, of many layers at some, by the offset that they prefer."""
    from posprobe.figures.common import spread

    shown = spread(layers, SHOWN)
    lines = [f"what most heads prefer, {title}{_of(shown, layers)}"]
    for layer in shown:
        common = Counter(layer["peak_name"]).most_common(3)
        text = "; ".join(f"{name} ({count})" for name, count in common)
        lines.append(_wrapped(f"layer {layer['layer']:<4}{text}", 10))
    return lines


def _wrapped(text: str, indent: int = 0) -> str:
    """Break a text into lines of a terminal; names and paths stay whole."""
    return fill(
        text, 80, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def _of(shown: Sequence[Any], every: Sequence[Any]) -> str:
    return f" ({len(shown)} of {len(every)} layers)" if len(shown) < len(every) else ""


def written(folder: Path) -> str:
    """Say where a bundle's files are."""
    return (
        f"Data    {folder / 'analysis.json'}, {folder / 'arrays.npz'}\n"
        f"Figures {folder / 'figures'}\n"
        f"Report  {folder / 'report.html'}"
    )
