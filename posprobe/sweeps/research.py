"""The table of a paper: numbers of many tables, in the language of a manuscript.

Names and references come from strangers, and each format has letters that do something: whatever a
template (``templates/research.*``) puts out is escaped for its format.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from posprobe import questions
from posprobe.arrays import positions
from posprobe.errors import UsageError
from posprobe.families.read import load_any
from posprobe.measurements import TABLE, TableInputs
from posprobe.nulls import NULLS
from posprobe.report.files import expanded, there
from posprobe.studies import Analysis
from posprobe.studies.checkpoint import analyze_any
from posprobe.studies.kernels import run_document
from posprobe.studies.series import HEADLINE
from posprobe.studies.table import check_request
from posprobe.sweeps import many
from posprobe.sweeps.columns import OWN, columns, rows_of, run_row
from posprobe.tables import PositionTable
from posprobe.text import cell, plain
from posprobe.words import ASKS
from posprobe.words.captions import DIGITS

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

#: Columns where none are named.
NUMBERS = ("positions", "dim", *HEADLINE)
#: Tables of which the caption says where each comes from.
NAMED = 12
FORMATS = ("markdown", "latex")
#: Columns that no analysis is needed for.
_SAID = {name for name in columns() if "." not in name} - {"summary", "findings"}

Row: TypeAlias = Mapping[str, Any]
#: First position that was kept and one past the last, None for the ends; None for all.
_Kept: TypeAlias = tuple[int | None, int | None] | None
#: A name, and numbers with the range of a baseline in small type.
Line: TypeAlias = tuple[str, list[tuple[str, str]]]


def research_table(
    source: str | os.PathLike[str] | Iterable[str],
    *,
    numbers: Iterable[str] | None = None,
    format: str = "markdown",  # noqa: A002 - as the option is called
    band: str | None = "walk",
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
        ``markdown`` or ``latex`` (with the package booktabs).
    band
        Baseline whose 5 to 95 % range is shown with each number of a reference; None for none.
        A sweep keeps no baselines.
    rows, nulls, seed, offline
        Of references, as for `posprobe.sweep`; a sweep has its own.

    Raises
    ------
    UsageError
        If a number, format or null model is unknown, or the sweep does not have it.
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
    asked = None if numbers is None else tuple(dict.fromkeys(numbers))
    if band and band not in NULLS:
        raise UsageError(f"unknown baseline {band!r}. Choose from {', '.join(NULLS)}.")
    if asked == ():
        raise UsageError("no number is chosen. `posprobe list numbers` lists them.")
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    folder = _sweep_in(sources)
    kept: _Kept = None if rows is None else (rows.start, rows.stop)
    if folder is not None:
        found, kept = _read(folder)
        keys = _among(found, asked, str(folder))
    else:
        keys = NUMBERS if asked is None else asked
        _known(keys, columns())
        draws = nulls if band else 0
        check_request(None, draws, "cpu")
        found = [
            row
            for reference in sources
            for row in _analyzed(str(reference), keys, rows, draws, seed, offline=offline)
        ]
    lines = [
        (_name(row), [(_number(key, row.get(key)), _ends(row, key, band)) for key in keys])
        for row in found
    ]
    drawn = f"{nulls} draws (seed {seed}) of the null model {band}, {NULLS[band]}" if band else ""
    caption = _caption(found, lines, drawn, kept)
    return _template(format).render(labels=_labels(keys), lines=lines, caption=caption)


def _sweep_in(sources: Sequence[str | os.PathLike[str]]) -> Path | None:
    """Return the folder of the sweep that is meant, if one is."""
    if not sources:
        raise UsageError(
            "there is nothing to make a table of. Name references, or a sweep's folder."
        )
    folders = [path for each in sources if there((path := expanded(Path(each))) / many.ABOUT)]
    if folders and len(sources) > 1:
        raise UsageError(f"{folders[0]}: a sweep stands alone. Name one sweep, or references.")
    return folders[0] if folders else None


def _read(folder: Path) -> tuple[list[Row], _Kept]:
    """Read the rows of a sweep, and which positions it kept."""
    found = many.read_sweep(folder).to_pylist()
    if not found:
        raise UsageError(f"{folder}: the sweep has no rows. Its failures.csv says why.")
    # Where it does not say with which rows, the numbers are there all the same.
    match many.read_about(folder).get("options"):
        case {"rows": [int() | None as first, int() | None as stop]}:
            return found, (first, stop)
    return found, None


def _among(found: Sequence[Row], asked: tuple[str, ...] | None, place: str) -> tuple[str, ...]:
    """Return the columns asked for, or those of `NUMBERS` that the sweep measured."""
    there = {key for row in found for key, value in row.items() if value is not None}
    if asked is None:
        return tuple(key for key in NUMBERS if key in there)
    _known(asked, there, f"{place}: ")
    return asked


def _known(keys: Iterable[str], there: Iterable[str], place: str = "") -> None:
    # What the sinusoid has stands beside a number, and is none of its own.
    known = {key for key in there if not key.endswith(".sinusoid")}
    for key in keys:
        if key not in known:
            ordered = [each for each in columns() if each in known]
            ordered += sorted(known - set(ordered))
            raise UsageError(f"{place}unknown number {key!r}. Choose from {', '.join(ordered)}.")


def _analyzed(
    reference: str, keys: Sequence[str], rows: slice | None, nulls: int, seed: int, *, offline: bool
) -> list[Row]:
    """Measure what the numbers need, and no more."""
    if (saved := run_document(reference)) is not None:
        return [run_row(saved) | {"reference": reference}]
    loaded = load_any(reference, rows=rows, offline=offline)
    only = None if isinstance(loaded, tuple) else _needed(keys, loaded, seed)
    # Those of queries and keys take long to read.
    weights: dict[int, Any] | None = None if any(key.startswith("weights.") for key in keys) else {}
    analysis = analyze_any(
        loaded, only=only, nulls=nulls, rows=rows, device="cpu", seed=seed, offline=offline,
        weights=weights,
    )  # fmt: skip
    found: list[Any] = rows_of(analysis, reference)
    if isinstance(analysis, Analysis):
        for key, entry in analysis.to_dict()["nulls"]["numbers"].items():
            for model in NULLS.keys() & entry.keys():
                found[0][f"{key}.{model}"] = entry[model]
    return found


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
    } | {f"answers.{name}": ASKS[name] for name in questions.TABLE}
    return [known.get(key, key.removeprefix(OWN).replace("_", " ")) for key in keys]


def _number(key: str, value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    # Users' own numbers stay as they are; ours have all of their three figures, as those below.
    ours = isinstance(value, float) and not key.startswith(OWN) and 5e-4 <= abs(value) < 99.95
    return cell(value, "#.3g") if ours else cell(value)


def _ends(row: Row, key: str, band: str | None) -> str:
    ends = row.get(f"{key}.{band}")
    return f"{_number(key, ends['p5'])} to {_number(key, ends['p95'])}" if ends else ""


def _name(row: Row) -> str:
    return str(row.get("name") or row["reference"])


def _caption(found: Sequence[Row], lines: Sequence[Line], drawn: str, kept: _Kept) -> str:
    """Say what the numbers are and where they come from."""
    sentences = [f"Position {'table' if len(found) == 1 else 'tables'} and encodings in numbers."]
    if any(ends for _, cells in lines for _, ends in cells):
        sentences.append(f"In small type: 5 to 95 % of {drawn}.")
    if any(text == "–" for _, cells in lines for text, _ in cells):
        sentences.append("– not measured.")
    if kept:
        first, stop = kept
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


# --- formats -------------------------------------------------------------------------------------

_MARKDOWN = re.compile(r"([\\`*_\[\]|~#$])")
_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}",
    "–": "--", "×": r"$\times$", "²": r"\textsuperscript{2}", "…": r"\dots{}",
    "[": "{[}", "]": "{]}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}  # fmt: skip


@cache
def _template(form: str) -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    suffix, shown = ("md", _markdown) if form == "markdown" else ("tex", _latex)
    environment = Environment(
        loader=PackageLoader("posprobe.sweeps"),
        autoescape=False,  # noqa: S701 - `finalize` escapes
        undefined=StrictUndefined,
        # What a filter made is shown as it is.
        finalize=lambda value: shown(value) if type(value) is str else value,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["number"] = _latex_numbers
    return environment.get_template(f"research.{suffix}")


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", plain(text)).replace("&", "&amp;").replace("<", "&lt;")


def _latex(text: str) -> str:
    escaped = [_LATEX.get(letter, letter) for letter in plain(text)]
    # Two hyphens would join to a dash.
    pairs = zip(escaped, [*escaped[1:], ""], strict=False)
    return "".join("-{}" if (one, other) == ("-", "-") else one for one, other in pairs)


def _latex_numbers(text: str) -> Markup:
    """Write numbers as mathematics, in which a hyphen is a minus; anything else is text."""
    from markupsafe import Markup

    def written(part: str) -> str:
        found = re.fullmatch(r"(-?[\d.]+)(?:e([+-]\d+))?", part)
        if not found:
            return _latex(part)
        power = rf"\times 10^{{{int(found[2])}}}" if found[2] else ""
        return f"${found[1]}{power}$"

    return Markup(" to ".join(map(written, text.split(" to "))))  # noqa: S704 - escaped
