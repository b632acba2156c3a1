"""The table of a paper: numbers of many tables, with null bands, in the language of a manuscript.

Names and references come from strangers, and each format has letters that do something: every text
that is not ours is escaped where it is put out.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

from posprobe import questions
from posprobe.arrays import positions
from posprobe.checkpoint_analysis import analyze_any, load_any, scheme_length
from posprobe.errors import UsageError
from posprobe.foreign import plain
from posprobe.measurements import TABLE, TableInputs
from posprobe.nulls import NULLS
from posprobe.number_format import cell
from posprobe.report import analyze_schemes
from posprobe.report.analysis import check_request
from posprobe.report.captions import DIGITS
from posprobe.report.files import expanded, there
from posprobe.report.index import HEADLINE
from posprobe.report.narrator import asks
from posprobe.sweeps import store
from posprobe.sweeps.columns import OWN, columns, scheme_row, table_row
from posprobe.tables import PositionTable

#: Columns where none are named.
NUMBERS = ("positions", "dim", *HEADLINE)
#: What can stand below each table in rows of its own.
BESIDE = ("sinusoid", *NULLS)
#: Tables of which the caption says where each comes from.
NAMED = 12
#: What stands beside a number, and is not a number of its own.
_BESIDE = re.compile(rf"\.(?:sinusoid|(?:{'|'.join(NULLS)})\.p\d+)$")
#: Columns that no analysis is needed for.
_SAID = {name for name in columns() if "." not in name} - {"summary", "findings"}

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class _Made:
    """How numbers were made: draws of each null model, seed, and the rows that were kept."""

    nulls: int | None = None
    seed: int | None = None
    rows: Sequence[int | None] | None = None
    left_out: int = 0


@dataclass(frozen=True)
class _Printed:
    """A line of the table: a name, and numbers with what stands below them in small type."""

    name: str
    numbers: tuple[tuple[str, str], ...]
    beside: bool = False


def research_table(
    source: str | os.PathLike[str] | Iterable[str],
    *,
    numbers: Iterable[str] | None = None,
    format: str = "markdown",  # noqa: A002 - as the option is called
    band: str | None = "walk",
    beside: Iterable[str] = (),
    unique: bool = False,
    rows: slice | None = None,
    nulls: int = 0,
    seed: int = 0,
    offline: bool = False,
) -> str:
    """Return a table for a paper: a row for each position table or encoding, a column per number.

    Parameters
    ----------
    source
        Folder of a sweep, or references, which are then analysed as far as the numbers need it.
    numbers
        Key paths in ``analysis.json``, such as ``pca.participation_ratio``, or any other column of
        a sweep: ``positions``, ``family``, ``answers.order``, ``user.NAME``.
    format
        ``markdown``, ``latex`` (with the package booktabs), ``csv`` or ``html``.
    band
        Baseline whose 5 to 95 % range is shown with each number; None for none.
    beside
        Baselines to add as extra rows, with their median: ``sinusoid`` and null models.
    unique
        Skip copies, fine-tunes and resized versions of earlier rows of a sweep; the caption says
        how many.
    rows, nulls, seed, offline
        Of references, as for `posprobe.sweep`; a sweep has its own.

    Raises
    ------
    UsageError
        If a number, format or null model is unknown, or the sweep did not measure it.
    PosprobeError
        Whatever `posprobe.read_sweep`, `posprobe.load` and `posprobe.analyze` raise.

    Examples
    --------
    >>> import posprobe as pp
    >>> table = pp.research_table("sinusoidal:64x16", numbers=["dim", "pca.stable_rank"], nulls=0)
    >>> table.splitlines()[2]
    '| sinusoidal:64x16 | 16 | 4.53 |'
    """
    if format not in FORMATS:
        raise UsageError(f"--format {format}: choose one of {', '.join(FORMATS)}.")
    below, asked = tuple(beside), None if numbers is None else tuple(dict.fromkeys(numbers))
    for name in (*below, *([band] if band else [])):
        known = BESIDE if name in below else tuple(NULLS)
        if name not in known:
            raise UsageError(f"unknown baseline {name!r}. Choose from {', '.join(known)}.")
    if asked == ():
        raise UsageError("no number is chosen. `posprobe list numbers` lists them.")
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    folder = _sweep_in(sources)
    if folder is not None:
        found, made = _read(folder)
        if unique:
            found, made = _first_of_each(found, made, str(folder))
        keys = _among(found, asked, str(folder))
    elif unique:
        raise UsageError("--unique applies to sweeps. For single tables use `posprobe nearest`.")
    else:
        keys = NUMBERS if asked is None else asked
        _known(keys, {name for name in columns() if not _BESIDE.search(name)})
        draws = nulls if band or set(below) & set(NULLS) else 0
        check_request(None, draws, "cpu")
        found = [
            row
            for reference in sources
            for row in _analyzed(str(reference), keys, rows, draws, seed, offline=offline)
        ]
        made = _Made(draws, seed, None if rows is None else (rows.start, rows.stop))
    return FORMATS[format](found, keys, band, below, made)


def _sweep_in(sources: Sequence[str | os.PathLike[str]]) -> Path | None:
    """Return the folder of the sweep that is meant, if one is."""
    if not sources:
        raise UsageError(
            "there is nothing to make a table of. Name references, or a sweep's folder."
        )
    folders = [path for each in sources if there((path := expanded(Path(each))) / store.ABOUT)]
    if folders and len(sources) > 1:
        raise UsageError(f"{folders[0]}: a sweep stands alone. Name one sweep, or references.")
    return folders[0] if folders else None


def _read(folder: Path) -> tuple[list[Row], _Made]:
    found = store.read_sweep(folder).to_pylist()
    if not found:
        raise UsageError(f"{folder}: the sweep has no rows. Its failures.csv says why.")
    try:
        about = json.loads((folder / store.ABOUT).read_text(encoding="utf-8"))
        options = about["options"]
        made = _Made(options["nulls"], about["environment"]["seed"], options["rows"])
    except (OSError, ValueError, LookupError, TypeError):
        made = _Made()  # the numbers are there; how they were made is not said
    return found, made


def _first_of_each(found: list[Row], made: _Made, place: str) -> tuple[list[Row], _Made]:
    """Keep the first table of each lineage."""
    if any("lineage" not in row for row in found):
        raise UsageError(f"{place}: no lineages are recorded. Run the sweep into a new --out.")
    first: dict[Any, Row] = {}
    for row in found:
        first.setdefault(row["lineage"], row)
    kept = list(first.values())
    return kept, replace(made, left_out=len(found) - len(kept))


def _among(found: Sequence[Row], asked: tuple[str, ...] | None, place: str) -> tuple[str, ...]:
    """Return the columns asked for, or those of `NUMBERS` that the sweep measured."""
    there = {key for row in found for key, value in row.items() if value is not None}
    if asked is None:
        return tuple(key for key in NUMBERS if key in there)
    _known(asked, {key for key in there if not _BESIDE.search(key)}, f"{place}: ")
    return asked


def _known(keys: Iterable[str], known: set[str], place: str = "") -> None:
    ordered = [key for key in columns() if key in known]
    ordered += sorted(known - set(ordered))
    for key in keys:
        if key not in known:
            raise UsageError(f"{place}unknown number {key!r}. Choose from {', '.join(ordered)}.")


def _analyzed(
    reference: str, keys: Sequence[str], rows: slice | None, nulls: int, seed: int, *, offline: bool
) -> list[Row]:
    """Measure what the numbers need, and no more."""
    loaded = load_any(reference, rows=rows, offline=offline)
    whose = {"reference": reference}
    if isinstance(loaded, tuple):
        length = scheme_length(rows)
        made = [analyze_schemes(scheme, length=length, seed=seed) for scheme in loaded]
        return [scheme_row(each.to_dict()) | whose for each in made]
    only = _needed(keys, loaded, seed)
    analysis = analyze_any(loaded, only=only, nulls=nulls, device="cpu", seed=seed, offline=offline)
    return [table_row(analysis.to_dict()) | whose]


def _needed(keys: Sequence[str], table: PositionTable, seed: int) -> tuple[str, ...] | None:
    names = dict.fromkeys(key.partition(".")[0] for key in keys if key not in _SAID)
    if not set(names) <= set(TABLE):
        # Answers and sentences rest on everything.
        return None if not any(TABLE[name].slow for name in names if name in TABLE) else ("all",)
    given = TableInputs(table, positions(table, "cpu"), seed, None, {})
    # A sequence has no numbers of patches; what positions are added to is looked for later.
    kept = tuple(name for name in names if name == "scale" or not TABLE[name].needs(given))
    return kept or ("norms",)


# --- what is printed -----------------------------------------------------------------------------


def _labels(keys: Sequence[str]) -> list[str]:
    known = {
        f"{name}.{key}": number.label
        for name, measurement in TABLE.items()
        for key, number in measurement.numbers.items()
    } | {f"answers.{name}": asks()[name] for name in questions.TABLE}
    return [known.get(key, key.removeprefix(OWN).replace("_", " ")) for key in keys]


def _lines(
    found: Sequence[Row], keys: Sequence[str], band: str | None, beside: Sequence[str]
) -> list[_Printed]:
    lines = []
    for row in found:
        numbers = tuple((_number(key, row.get(key)), _ends(row, key, band)) for key in keys)
        lines.append(_Printed(_name(row), numbers))
        for other in beside:
            part = "sinusoid" if other == "sinusoid" else f"{other}.p50"
            ends = None if other == "sinusoid" else other
            values = [(key, row.get(f"{key}.{part}"), _ends(row, key, ends)) for key in keys]
            if any(value is not None for _, value, _ in values):
                shown = tuple(
                    (_number(key, value) if value is not None else "", e)
                    for key, value, e in values
                )
                lines.append(_Printed(other, shown, beside=True))
    return lines


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else cell(value)


def _number(key: str, value: Any) -> str:
    # Users' own numbers stay as they are.
    return _figures(value) if isinstance(value, float) and not key.startswith(OWN) else _text(value)


def _figures(value: float) -> str:
    """Format a number with all of its three figures, as those below and above it have them."""
    return cell(value, "#.3g" if 5e-4 <= abs(value) < 99.95 else ".3g")


def _ends(row: Row, key: str, band: str | None) -> str:
    ends = [row.get(f"{key}.{band}.{part}") for part in ("p5", "p95")]
    return "" if None in ends else " to ".join(_number(key, end) for end in ends)


def _name(row: Row) -> str:
    return str(row.get("name") or row["reference"])


def _caption(
    found: Sequence[Row], band: str | None, beside: Sequence[str], made: _Made, *, gaps: bool
) -> str:
    """Say what the numbers are and where they come from."""
    one = len(found) == 1
    sentences = [f"Position {'table' if one else 'tables'} and encodings in numbers."]
    drawn = f"{made.nulls} draws" if made.nulls else "all draws"
    seeded = "" if made.seed is None else f" (seed {made.seed})"
    if any(
        _BESIDE.search(key) and f".{band}." in key and value is not None
        for row in found
        for key, value in row.items()
    ):
        meaning = f"the null model {band}, {NULLS[band or '']}"
        sentences.append(f"In small type: 5 to 95 % of {drawn}{seeded} of {meaning}.")
    models = [name for name in beside if name in NULLS]
    if "sinusoid" in beside:
        sentences.append("Sinusoid: the same number of the sinusoid of the same shape.")
    sentences += [f"{model}: median of {drawn}{seeded} of {NULLS[model]}." for model in models]
    if gaps:
        sentences.append("– not measured.")
    if made.left_out:
        sentences.append(
            f"One table of each lineage: {made.left_out} that come from one of these are left out."
        )
    if made.rows:
        first, stop = made.rows
        last = "the end" if stop is None else f"{stop - 1}" if stop > 0 else f"{stop} from the end"
        sentences.append(f"Positions {first or 0} to {last}.")
    sentences += [f"{_name(row)}: {_whence(row)}." for row in found[:NAMED]]
    if len(found) > NAMED:
        sentences.append(f"And {len(found) - NAMED} more, which the sweep names.")
    versions = sorted({str(row.get("posprobe") or version("posprobe")) for row in found})
    return " ".join([*sentences, f"Made with posprobe {' and '.join(versions)}."])


def _whence(row: Row) -> str:
    text = str(row["reference"])
    if row.get("tensor"):
        text = f"{row['tensor']} of {text}"
    if row.get("commit"):
        return f"{text}, commit {row['commit'][:DIGITS]}"
    return f"{text}, SHA-256 {row['sha256'][:DIGITS]}" if row.get("sha256") else text


def _gaps(lines: Sequence[_Printed]) -> bool:
    return any(text == "–" for line in lines for text, _ in line.numbers)


# --- formats -------------------------------------------------------------------------------------

_MARKDOWN = re.compile(r"([\\`*_\[\]|~#$])")
_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}",
    "–": "--", "×": r"$\times$", "²": r"\textsuperscript{2}", "…": r"\dots{}",
    "[": "{[}", "]": "{]}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}  # fmt: skip


def _markdown_text(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", plain(text)).replace("&", "&amp;").replace("<", "&lt;")


def _latex_text(text: str) -> str:
    escaped = [_LATEX.get(letter, letter) for letter in plain(text)]
    # Two hyphens would join to a dash.
    pairs = zip(escaped, [*escaped[1:], ""], strict=False)
    return "".join("-{}" if (one, other) == ("-", "-") else one for one, other in pairs)


def _latex_number(text: str) -> str:
    """Write a number as mathematics, in which a hyphen is a minus; anything else is text."""
    found = re.fullmatch(r"(-?[\d.]+)(?:e([+-]\d+))?", text)
    if not found:
        return _latex_text(text)
    power = rf"\times 10^{{{int(found[2])}}}" if found[2] else ""
    return f"${found[1]}{power}$"


def _markdown(
    found: Sequence[Row], keys: Sequence[str], band: str | None, beside: Sequence[str], made: _Made
) -> str:
    lines = _lines(found, keys, band, beside)

    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |\n"

    def shown(text: str, ends: str) -> str:
        return _markdown_text(text) + (f" <sub>{ends}</sub>" if ends else "")

    text = line(["table", *map(_markdown_text, _labels(keys))])
    text += line(["---", *("---:" for _ in keys)])
    for each in lines:
        name = f"*{each.name}*" if each.beside else _markdown_text(each.name)
        text += line([name, *(shown(*number) for number in each.numbers)])
    return f"{text}\n{_markdown_text(_caption(found, band, beside, made, gaps=_gaps(lines)))}\n"


def _latex(
    found: Sequence[Row], keys: Sequence[str], band: str | None, beside: Sequence[str], made: _Made
) -> str:
    lines = _lines(found, keys, band, beside)

    def shown(text: str, ends: str) -> str:
        small = " to ".join(map(_latex_number, ends.split(" to ")))
        return _latex_number(text) + (f" {{\\scriptsize {small}}}" if ends else "")

    heads = " & ".join(["table", *map(_latex_text, _labels(keys))])
    caption = _latex_text(_caption(found, band, beside, made, gaps=_gaps(lines)))
    rows: list[str] = []
    for each in lines:
        if rows and beside and not each.beside:
            rows.append(r"\addlinespace")
        name = rf"\quad {_latex_text(each.name)}" if each.beside else _latex_text(each.name)
        rows.append(" & ".join([name, *(shown(*number) for number in each.numbers)]) + r" \\")
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering",
            rf"\caption{{{caption}}}", r"\label{tab:positions}",
            rf"\begin{{tabular}}{{l{'r' * len(keys)}}}", r"\toprule", rf"{heads} \\", r"\midrule",
            *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}", "",
        ]
    )  # fmt: skip


def _html(
    found: Sequence[Row], keys: Sequence[str], band: str | None, beside: Sequence[str], made: _Made
) -> str:
    lines = _lines(found, keys, band, beside)

    def shown(text: str, ends: str) -> str:
        small = f"<br><small>{escape(ends)}</small>" if ends else ""
        return f"<td>{escape(plain(text))}{small}</td>"

    caption = escape(plain(_caption(found, band, beside, made, gaps=_gaps(lines))))
    heads = "".join(
        f'<th scope="col">{escape(plain(text))}</th>' for text in ["table", *_labels(keys)]
    )
    rows: list[str] = []
    for each in lines:
        name = f"<em>{escape(each.name)}</em>" if each.beside else escape(plain(each.name))
        numbers = "".join(shown(*number) for number in each.numbers)
        rows.append(f'<tr><th scope="row">{name}</th>{numbers}</tr>')
    body = "\n".join(rows)
    return (
        f"<table>\n<caption>{caption}</caption>\n<thead><tr>{heads}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>\n"
    )


def _csv(
    found: Sequence[Row], keys: Sequence[str], band: str | None, beside: Sequence[str], made: _Made
) -> str:
    """Write whole numbers with all their digits; what else stands beside them has columns."""
    parts = ["sinusoid"] if "sinusoid" in beside else []
    models = dict.fromkeys([*([band] if band else []), *(name for name in beside if name in NULLS)])
    parts += [f"{model}.{part}" for model in models for part in ("p5", "p50", "p95")]
    there = {key for row in found for key in row}
    names = ["name", "reference", "commit", "sha256"]
    for key in keys:
        names += [key, *(f"{key}.{part}" for part in parts if f"{key}.{part}" in there)]
    names = list(dict.fromkeys([*names, "posprobe"]))
    bounds = "" if made.rows is None else ":".join("" if b is None else str(b) for b in made.rows)
    said = [made.nulls, made.seed, bounds]
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*names, "nulls", "seed", "rows"])
    for row in found:
        writer.writerow([*(_csv_cell(row.get(name)) for name in names), *said])
    return buffer.getvalue()


def _csv_cell(value: Any) -> Any:
    """Return a cell that a spreadsheet does not take for a formula."""
    if not isinstance(value, str | list):
        return value
    text = plain(_text(value))
    return f"'{text}" if re.match(r"[=+@]|-(?![\d.])", text) else text


FORMATS: Mapping[
    str, Callable[[Sequence[Row], Sequence[str], str | None, Sequence[str], _Made], str]
] = {"markdown": _markdown, "latex": _latex, "csv": _csv, "html": _html}
