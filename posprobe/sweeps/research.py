"""Tables for a paper: numbers of many position tables, in Markdown or LaTeX.

Names and references may contain letters that are markup, so everything that a template
(``templates/research.*``) prints is escaped for its format.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from posprobe import questions
from posprobe.analyses.facts import Number
from posprobe.arrays import positions
from posprobe.drawable import Card, Displayable
from posprobe.errors import UsageError
from posprobe.families.read import load_any
from posprobe.measurements import TABLE_MEASUREMENTS, TableInputs
from posprobe.measurements.table import explain_unmet_need
from posprobe.nulls import NULL_MODELS
from posprobe.report.files import expand_user, path_exists
from posprobe.studies import Analysis
from posprobe.studies.checkpoint import analyze_any
from posprobe.studies.saved_runs import run_document
from posprobe.studies.series import HEADLINE_NUMBERS
from posprobe.studies.table import check_table_request
from posprobe.sweeps import many
from posprobe.sweeps.atlas import row_name
from posprobe.sweeps.columns import (
    USER_PREFIX,
    analysis_rows,
    columns,
    row_source,
    run_row,
)
from posprobe.tables import PositionTable
from posprobe.text import escape_invisible, format_cell
from posprobe.words import QUESTION_TEXTS
from posprobe.words.captions import describe_numbers

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

#: Columns of the table if the user names none.
DEFAULT_NUMBERS = ("positions", "dim", *HEADLINE_NUMBERS)
#: Number of rows whose source the caption names.
MAX_SOURCED_ROWS = 12
TABLE_FORMATS = ("markdown", "latex")
#: At most this many near names are suggested for an unknown number.
MAX_SUGGESTED_NUMBERS = 6
#: Names are near from this similarity of `difflib` on, at which `participation` is near to
#: `participation_ratio` (0.81) and not to `permutations` (0.64).
MIN_NAME_SIMILARITY = 0.7
#: Columns that need no analysis.
_UNMEASURED_COLUMNS = {name for name in columns() if "." not in name} - {
    "summary",
    "findings",
}

Row: TypeAlias = Mapping[str, Any]
#: First position that was kept and one past the last, None for no bound; None for all positions.
_PositionRange: TypeAlias = tuple[int | None, int | None] | None
#: Name of a row, and its numbers, each with the range of a baseline.
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
) -> ResearchTable:
    """Return a table for a paper: a row for each position table or encoding, a column per number.

    Parameters
    ----------
    source
        Folder of a sweep, or references, of which only the requested numbers are measured.
    numbers
        Key paths in ``analysis.json``, such as ``pca.participation_ratio``, or any other column of
        a sweep: ``positions``, ``family``, ``answers.order``, ``user.NAME``.
    format
        ``markdown`` or ``latex`` (with the package booktabs).
    band
        Baseline whose 5 to 95 % range is shown with each number of a reference; None for none.
        A sweep keeps no baselines.
    rows, nulls, seed, offline
        Options for references, as for `posprobe.sweep`; a finished sweep has its own.

    Raises
    ------
    UsageError
        If a number, format or null model is unknown, or the sweep does not have it.
    PosprobeError
        Any error of `posprobe.read_sweep`, `posprobe.load` and `posprobe.analyze`.

    Examples
    --------
    >>> import posprobe as pp
    >>> table = pp.research_table("sinusoidal:64x16", numbers=["dim", "pca.stable_rank"], nulls=0)
    >>> table.splitlines()[2]
    '| sinusoidal:64x16 | 16 | 4.53 |'
    """
    if format not in TABLE_FORMATS:
        raise UsageError(f"unknown format {format!r}: choose {', '.join(TABLE_FORMATS)}.")
    requested = None if numbers is None else tuple(dict.fromkeys(numbers))
    if band and band not in NULL_MODELS:
        raise UsageError(
            f"unknown baseline {band!r}. Choose from {', '.join(NULL_MODELS)}."
        )
    if requested == ():
        raise UsageError("no number is chosen. `posprobe list numbers` lists them.")
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    folder = _find_sweep(sources)
    position_range: _PositionRange = None if rows is None else (rows.start, rows.stop)
    if folder is not None:
        table_rows, position_range = _read_rows(folder)
        keys = _select_keys(table_rows, requested, str(folder))
    else:
        keys = DEFAULT_NUMBERS if requested is None else requested
        _check_keys(keys, columns())
        draws = nulls if band else 0
        check_table_request(None, draws, "cpu")
        table_rows = [
            row
            for reference in sources
            for row in _analyze_reference(
                str(reference), keys, rows, draws, seed, offline=offline
            )
        ]
    named_cells = [(row_name(row), _format_row(row, keys, band)) for row in table_rows]
    ranges = _range_sentences(table_rows, named_cells, band, nulls, seed) if band else []
    labels = _labels(keys)
    caption = _caption(keys, named_cells, ranges, position_range)
    text = _template(format).render(
        labels=labels, lines=named_cells, caption=caption, sources=_sources(table_rows)
    )
    return ResearchTable(text, _cells_by_label(labels, named_cells), caption)


def _cells_by_label(
    labels: Sequence[str], named_cells: Iterable[Line]
) -> tuple[dict[str, str], ...]:
    """Return the cells of each line by the label of their column, numbers with their bands."""
    return tuple(
        {"table": name}
        | {
            label: f"{number} ({ends})" if ends else number
            for label, (number, ends) in zip(labels, cells, strict=True)
        }
        for name, cells in named_cells
    )


class ResearchTable(Displayable, str):
    """The text of a table for a paper, which a notebook shows as a table.

    Parameters
    ----------
    text
        Markdown or LaTeX.
    lines
        Cells of each line by heading.
    caption
        Caption of the table.
    """

    lines: tuple[Mapping[str, str], ...]
    caption: str

    def __new__(
        cls, text: str, lines: tuple[Mapping[str, str], ...] = (), caption: str = ""
    ) -> Self:
        """Make the text, with its cells beside it; copies get these afterwards."""
        table = super().__new__(cls, text)
        table.lines, table.caption = lines, caption
        return table

    def _card(self) -> Card:
        return Card("Table", {}, self.caption, self.lines)


def _find_sweep(sources: Sequence[str | os.PathLike[str]]) -> Path | None:
    """Return the folder of the sweep among the sources; None if they are references."""
    if not sources:
        raise UsageError(
            "there is nothing to make a table of. Name references, or a sweep's folder."
        )
    folders = [
        path
        for source in sources
        if path_exists((path := expand_user(Path(source))) / many.DESCRIPTION_FILE)
    ]
    if folders and len(sources) > 1:
        raise UsageError(
            f"{folders[0]}: a sweep stands alone. Name one sweep, or references."
        )
    return folders[0] if folders else None


def _read_rows(folder: Path) -> tuple[list[Row], _PositionRange]:
    """Read the rows of a sweep, and the range of positions that it kept."""
    table_rows = many.read_sweep(folder).to_pylist()
    if not table_rows:
        raise UsageError(f"{folder}: the sweep has no rows. Its failures.csv says why.")
    # The numbers are usable even if the description of the sweep lacks the range.
    match many.read_description(folder).get("options"):
        case {"rows": [int() | None as start, int() | None as stop]}:
            return table_rows, (start, stop)
    return table_rows, None


def _select_keys(
    table_rows: Sequence[Row], requested: tuple[str, ...] | None, subject: str
) -> tuple[str, ...]:
    """Return the requested columns, or those of `DEFAULT_NUMBERS` that the sweep measured."""
    available = {
        key for row in table_rows for key, value in row.items() if value is not None
    }
    if requested is None:
        return tuple(key for key in DEFAULT_NUMBERS if key in available)
    _check_keys(requested, available, f"{subject}: ")
    return requested


def _check_keys(keys: Iterable[str], available: Iterable[str], subject: str = "") -> None:
    # A sinusoid's number is a baseline of another number, not a column to choose.
    selectable = {key for key in available if not key.endswith(".sinusoid")}
    for key in keys:
        if key not in selectable:
            raise UsageError(
                f"{subject}unknown number {key!r}. {_suggest_numbers(key, selectable)}"
            )


def _suggest_numbers(key: str, selectable: Collection[str]) -> str:
    """Return the names near to one that is unknown, else those of its block, else all."""
    ordered = [name for name in columns() if name in selectable]
    ordered += sorted(set(selectable) - set(ordered))
    block, dot, word = key.rpartition(".")
    words = dict.fromkeys(name.rpartition(".")[2] for name in ordered)
    near_words = get_close_matches(word, words, cutoff=MIN_NAME_SIMILARITY)
    near = [name for name in ordered if name.rpartition(".")[2] in near_words]
    near = near[:MAX_SUGGESTED_NUMBERS]
    if near:
        others = f"one of {', '.join(near[:-1])} or " if near[:-1] else ""
        return f"Did you mean {others}{near[-1]}? `posprobe list numbers` lists all."
    in_block = [name for name in ordered if dot and name.startswith(f"{block}.")]
    return f"Choose from {', '.join(in_block or ordered)}."


def _analyze_reference(
    reference: str,
    keys: Sequence[str],
    rows: slice | None,
    nulls: int,
    seed: int,
    *,
    offline: bool,
) -> list[Row]:
    """Measure what the requested numbers need, and no more."""
    if (run := run_document(reference)) is not None:
        return [run_row(run) | {"reference": reference}]
    loaded = load_any(reference, rows=rows, offline=offline)
    requested = (
        None if isinstance(loaded, tuple) else _required_measurements(keys, loaded, seed)
    )
    # Query and key weights take long to read, so they are only read for their numbers.
    weights: dict[int, Any] | None = (
        None if any(key.startswith("weights.") for key in keys) else {}
    )
    analysis = analyze_any(
        loaded,
        only=requested,
        nulls=nulls,
        rows=rows,
        device="cpu",
        seed=seed,
        offline=offline,
        weights=weights,
    )
    table_rows: list[Any] = analysis_rows(analysis, reference)
    if isinstance(analysis, Analysis):
        for key, baselines in analysis.to_dict()["nulls"]["numbers"].items():
            for model in NULL_MODELS.keys() & baselines.keys():
                table_rows[0][f"{key}.{model}"] = baselines[model]
    return table_rows


def _required_measurements(
    keys: Sequence[str], table: PositionTable, seed: int
) -> tuple[str, ...] | None:
    names = dict.fromkeys(
        key.partition(".")[0] for key in keys if key not in _UNMEASURED_COLUMNS
    )
    if not set(names) <= set(TABLE_MEASUREMENTS):
        # Answers and sentences depend on all measurements.
        return (
            None
            if all(
                TABLE_MEASUREMENTS[name].is_default
                for name in names
                if name in TABLE_MEASUREMENTS
            )
            else ("all",)
        )
    inputs = TableInputs(table, positions(table, "cpu"), seed, None, {})
    # Measurements that do not apply are dropped; token embeddings for `scale` are found later.
    applicable = tuple(
        name for name in names if name == "scale" or not explain_unmet_need(name, inputs)
    )
    return applicable or ("norms",)


# --- what is printed -----------------------------------------------------------------------------


def _numbers() -> dict[str, Number]:
    """Return the numbers of all measurements of tables, by their key path."""
    return {
        f"{name}.{key}": number
        for name, measurement in TABLE_MEASUREMENTS.items()
        for key, number in measurement.numbers.items()
    }


def _labels(keys: Sequence[str]) -> list[str]:
    labels = {key: number.label for key, number in _numbers().items()} | {
        f"answers.{name}": QUESTION_TEXTS[name] for name in questions.TABLE_QUESTIONS
    }
    return [
        labels.get(key, key.removeprefix(USER_PREFIX).replace("_", " ")) for key in keys
    ]


def _format_number(key: str, value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    # Numbers of the user's columns stay as they are; ours get three significant figures.
    is_measured = (
        isinstance(value, float)
        and not key.startswith(USER_PREFIX)
        and 5e-4 <= abs(value) < 99.95
    )
    return format_cell(value, "#.3g") if is_measured else format_cell(value)


def _format_band(row: Row, key: str, band: str | None) -> str:
    ends = row.get(f"{key}.{band}")
    return (
        f"{_format_number(key, ends['p5'])} to {_format_number(key, ends['p95'])}"
        if ends
        else ""
    )


def _format_row(row: Row, keys: Sequence[str], band: str | None) -> list[tuple[str, str]]:
    """Return each number of a row with its band, as texts."""
    return [
        (_format_number(key, row.get(key)), _format_band(row, key, band)) for key in keys
    ]


def _caption(
    keys: Sequence[str],
    lines: Sequence[Line],
    range_sentences: Sequence[str],
    position_range: _PositionRange,
) -> str:
    """Write the caption: the positions, what each number is, and the baseline."""
    noun = "positional encoding" if len(lines) == 1 else "positional encodings"
    described = describe_numbers(
        number for key, number in _numbers().items() if key in keys
    )
    subject = f"Numbers of {len(lines):,} {noun}, {_name_range(position_range)}"
    sentences = [
        f"{subject}: {described}." if described else f"{subject}.",
        *range_sentences,
    ]
    if any(text == "–" for _, cells in lines for text, _ in cells):
        sentences.append("– not measured.")
    return " ".join(sentences)


def _range_sentences(
    table_rows: Sequence[Row], lines: Sequence[Line], band: str, nulls: int, seed: int
) -> list[str]:
    """Say what the ranges are, and which tables have none."""
    if not nulls:
        return []
    have_ranges = [any(ends for _, ends in cells) for _, cells in lines]
    sentences = []
    if any(have_ranges):
        sentences.append(
            f"In small type, by chance: 5 to 95 % of {nulls} draws (seed {seed}) of the null "
            f"model {band}, {NULL_MODELS[band]}."
        )
    grids = [row_name(row) for row in table_rows if row.get("layout") == "grid"]
    if band == "walk" and grids:
        sentences.append(
            f"No walk is drawn of patches on a grid ({', '.join(grids)}): the null model "
            "stationary gives their ranges."
        )
    elif not any(have_ranges):
        sentences.append("No number here has a range by a null model.")
    return sentences


def _name_range(position_range: _PositionRange) -> str:
    start, stop = position_range or (None, None)
    if not start and stop is None:
        return "all positions of each"
    last = (
        "the end"
        if stop is None
        else f"{stop - 1}"
        if stop > 0
        else f"{stop} from the end"
    )
    return f"positions {start or 0} to {last}"


def _sources(table_rows: Sequence[Row]) -> str:
    """Return where the rows were read, and the versions of posprobe that measured them."""
    sentences = [
        f"{row_name(row)}: {row_source(row)}." for row in table_rows[:MAX_SOURCED_ROWS]
    ]
    if len(table_rows) > MAX_SOURCED_ROWS:
        sentences.append(
            f"And {len(table_rows) - MAX_SOURCED_ROWS} more, which the sweep names."
        )
    versions = sorted(
        {str(row.get("posprobe") or version("posprobe")) for row in table_rows}
    )
    return " ".join([*sentences, f"Made with posprobe {' and '.join(versions)}."])


# --- formats -------------------------------------------------------------------------------------

_MARKDOWN = re.compile(r"([\\`*_\[\]|~#$])")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "–": "--",
    "×": r"$\times$",
    "²": r"\textsuperscript{2}",
    "…": r"\dots{}",
    "[": "{[}",
    "]": "{]}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


@cache
def _template(table_format: str) -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    suffix, escape = (
        ("md", _escape_markdown) if table_format == "markdown" else ("tex", _escape_latex)
    )
    environment = Environment(
        loader=PackageLoader("posprobe.sweeps"),
        autoescape=False,  # noqa: S701 - `finalize` escapes
        undefined=StrictUndefined,
        # The result of a filter is escaped already, and is no plain `str`.
        finalize=lambda value: escape(value) if type(value) is str else value,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["number"] = _latex_numbers
    return environment.get_template(f"research.{suffix}")


def _escape_markdown(text: str) -> str:
    return (
        _MARKDOWN.sub(r"\\\1", escape_invisible(text))
        .replace("&", "&amp;")
        .replace("<", "&lt;")
    )


def _escape_latex(text: str) -> str:
    escaped = [_LATEX.get(letter, letter) for letter in escape_invisible(text)]
    # LaTeX would join two hyphens to a dash.
    pairs = zip(escaped, [*escaped[1:], ""], strict=False)
    return "".join(
        "-{}" if (letter, next_letter) == ("-", "-") else letter
        for letter, next_letter in pairs
    )


def _latex_numbers(text: str) -> Markup:
    """Write numbers in math mode, where a hyphen is a minus sign; other words stay text."""
    from markupsafe import Markup

    def format_word(word: str) -> str:
        matched = re.fullmatch(r"(-?[\d.]+)(?:e([+-]\d+))?", word)
        if not matched:
            return _escape_latex(word)
        power = rf"\times 10^{{{int(matched[2])}}}" if matched[2] else ""
        return f"${matched[1]}{power}$"

    return Markup(" to ".join(map(format_word, text.split(" to "))))  # noqa: S704 - escaped
