"""``atlas.html``: the tables of a sweep on one page, to sort and filter.

Each table has a thumbnail of its cosine matrix, an image of a few hundred bytes that the sweep
keeps. The page has the skeleton and style of all pages (`posprobe.report.html`).
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from io import BytesIO
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from posprobe import questions
from posprobe.data import read_data
from posprobe.measurements import compared_numbers
from posprobe.page import Cell, Column, Fact, Listing, Picture, Row, Section, Table
from posprobe.report.html import render_listing
from posprobe.report.svg import embed_svg
from posprobe.studies.series import HEADLINE_NUMBERS, Series
from posprobe.sweeps.columns import USER_PREFIX, ColumnType
from posprobe.text import escape_invisible, format_cell
from posprobe.words import QUESTION_TEXTS, comparisons, define_line, define_number

#: Number of rows on the page, which has under 3 MB per 1,000 rows; ``sweep.parquet`` has all.
MAX_ATLAS_ROWS = 2000
#: Length limit of a text on the page, in letters.
MAX_CELL_LETTERS = 120
#: Number of columns of numbers on the page.
MAX_NUMBER_COLUMNS = 8
#: Number of the user's columns on the page.
MAX_USER_COLUMNS = 6
#: Number of training runs that are drawn.
MAX_DRAWN_RUNS = 4
#: Number of cells along a side of a thumbnail.
THUMBNAIL_CELLS = 24
#: Number of levels of a cosine on either side of 0.
COSINE_LEVELS = 7
#: Colours of the cosines -1, 0 and 1 (blue, white, red), as RGB.
_SCALE_COLOURS = ((33, 102, 172), (247, 247, 247), (178, 24, 43))
#: Grey, for an undefined cosine.
_UNDEFINED_COLOUR = (150, 150, 150)
#: Base64 of a PNG image of at most 1.5 kB.
_THUMBNAIL = re.compile(r"iVBORw0KGgo[A-Za-z0-9+/]{4,2000}={0,2}")
_SIZE_COLUMN_LABELS = {"positions": "positions", "dim": "dimensions"}
#: Columns of encodings without a table.
_SCHEME_NUMBERS = (
    "base",
    "rotation.pairs",
    "rotation.never_turn_target",
    "rotation.first_negative",
    "reach",
    "smoothness.structured",
)
_TEXT_LABELS = {
    "family": "family",
    "scheme": "kind",
    "layout": "layout",
    "lineage": "lineage",
}


def atlas(
    rows: Sequence[Mapping[str, Any]],
    user_types: Mapping[str, ColumnType],
    description: Mapping[str, Any],
    counts: Mapping[str, int],
    runs: Sequence[Series] = (),
) -> Iterator[str]:
    """Yield the HTML of the page, which refers only to the bundles in the same folder.

    Parameters
    ----------
    rows
        Rows of the sweep, each a mapping from columns to values.
    user_types
        Types of the user's columns.
    description, counts
        Content and counts of ``sweep.json``.
    runs
        Training runs among the rows.
    """
    notes = []
    if len(rows) > MAX_ATLAS_ROWS:
        total = f"{len(rows):,}"
        notes.append(
            f"The first {MAX_ATLAS_ROWS:,} of {total} rows are shown; `sweep.parquet` has all."
        )
    if counts["failures"]:
        notes.append(f"{counts['failures']:,} failed: see `failures.csv`.")
    drawn_runs = {f"series-{k}": run for k, run in enumerate(runs[:MAX_DRAWN_RUNS])}
    table = _table(_with_lineages(rows[:MAX_ATLAS_ROWS]), user_types)
    page = Listing(
        title="Atlas",
        subject=f"{counts['rows']:,} rows of {counts['references']:,} references",
        lead=comparisons.sweep_headline(rows)
        or (
            f"{counts['rows']:,} position tables and encodings of "
            f"{counts['references']:,} references."
        ),
        notes=tuple(notes),
        sections=(
            Section("tables", "Tables", tables=(table,)),
            *(_run_section(key, run) for key, run in drawn_runs.items()),
        ),
        provenance=tuple(_provenance(description, counts)),
    )
    svgs = {
        key: embed_svg(run.drawing(key), escape_invisible(_curves_description(run)))
        for key, run in drawn_runs.items()
    }

    def thumbnail_of(index_text: str) -> str:
        text = rows[int(index_text)].get("thumbnail")
        if not is_thumbnail(text):
            return ""
        return f'<img src="data:image/png;base64,{text}" alt="" width="48" height="48">'

    return render_listing(page, version("posprobe"), svgs, thumbnail_of)


def _table(
    rows: Sequence[Mapping[str, Any]], user_types: Mapping[str, ColumnType]
) -> Table:
    columns = _columns(rows, user_types)
    pictures = any("thumbnail" in row for row in rows)
    headings = (
        Column("name"),
        *([Column("similarity")] if pictures else []),
        *columns.values(),
    )
    cells: tuple[Row, ...] = tuple(
        (
            _name_cell(row),
            *([Cell("", thumbnail=str(index))] if pictures else []),
            *(_format_cell(row.get(key)) for key in columns),
        )
        for index, row in enumerate(rows)
    )
    caption = "– not measured."
    if pictures:
        caption += (
            " Similarity: cosine of every pair of positions, centred; red is 1, blue -1."
        )
    return Table(caption, headings, cells)


def _columns(
    rows: Sequence[Mapping[str, Any]], user_types: Mapping[str, ColumnType]
) -> dict[str, Column]:
    """Return the columns by key: answers, sizes, numbers, and last what was read."""
    answer_labels = {
        f"answers.{name}": QUESTION_TEXTS[name] for name in questions.ANALYSIS_QUESTIONS
    }
    comparable = compared_numbers()
    numbers = {
        key: comparable[key].label
        for key in dict.fromkeys([*HEADLINE_NUMBERS, *comparable])
    }
    scheme_texts = read_data("report/numbers.toml")["encodings"]
    number_labels = {
        **_present_labels(rows, _SIZE_COLUMN_LABELS),
        **dict([*_present_labels(rows, numbers).items()][:MAX_NUMBER_COLUMNS]),
        **_present_labels(
            rows, {key: scheme_texts[key]["label"] for key in _SCHEME_NUMBERS}
        ),
    }
    user_keys = [*user_types][:MAX_USER_COLUMNS]
    answers = {
        key: Column(label, is_answer=True, definition=_definition(key))
        for key, label in _present_labels(rows, answer_labels).items()
    }
    return {
        **answers,
        **{
            key: Column(label, is_numeric=True, definition=_definition(key))
            for key, label in number_labels.items()
        },
        **{
            key: Column(label)
            for key, label in _present_labels(rows, _TEXT_LABELS).items()
        },
        **{
            key: Column(
                _shorten(key.removeprefix(USER_PREFIX)),
                user_types[key] in ("int64", "double"),
            )
            for key in user_keys
        },
    }


def _definition(key: str) -> str:
    """Return the sentence that defines a column; empty for none."""
    if number := compared_numbers().get(key):
        return define_number(number.label, number.meaning)
    return define_line(key.removeprefix("answers."))


def _name_cell(row: Mapping[str, Any]) -> Cell:
    """Return the cell that names a row, with its reference below and a link to its report."""
    name, reference = row_name(row), str(row["reference"])
    return Cell(
        _shorten(name),
        note="" if reference == name else _shorten(reference),
        href=f"{quote(str(row['bundle']))}/report.html" if "bundle" in row else "",
    )


def _with_lineages(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Name each lineage after its first table; a single table has no lineage."""
    heads = [row.get("lineage") for row in rows]
    members = Counter(heads)
    names = {row["reference"]: row_name(row) for row in rows}
    return [
        {**row, "lineage": names.get(head) if members[head] > 1 else None}
        for row, head in zip(rows, heads, strict=True)
    ]


def _present_labels(
    rows: Sequence[Mapping[str, Any]], keys: Mapping[str, str]
) -> dict[str, str]:
    return {
        key: label
        for key, label in keys.items()
        if any(row.get(key) is not None for row in rows)
    }


def _run_section(key: str, run: Series) -> Section:
    """Build the section of a training run: when each answer changes, and its curves."""
    steps = f"{len(run.steps)} steps, {run.steps[0]:,} to {run.steps[-1]:,}"
    no_changes = "No answer changes." if run.answers else "No question was asked."
    bullets = run.changes or (no_changes,)
    return Section(
        key,
        f"Training run: {_shorten(run.name)}",
        paragraphs=(f"{steps}.",),
        bullets=bullets,
        pictures=(Picture(key, _curves_description(run)),),
    )


def _curves_description(run: Series) -> str:
    return (
        f"{_shorten(run.name)}: numbers of the table and of the sinusoid, "
        "the distances of the table, and the answers at every step"
    )


def row_name(row: Mapping[str, Any]) -> str:
    """Return the name of a row, or its reference if it has none."""
    return str(row.get("name") or row["reference"])


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_CELL_LETTERS else f"{text[: MAX_CELL_LETTERS - 1]}…"


def _format_cell(value: Any) -> str:
    return _shorten(
        format_cell(value) if isinstance(value, int | float) else str(value or "–")
    )


def _provenance(
    description: Mapping[str, Any], counts: Mapping[str, int]
) -> Iterator[Fact]:
    options, environment = description["options"], description["environment"]
    facts = {
        "command": environment.get("command") or "",
        "analyses": ", ".join(options["only"] or ()) or "all that apply",
        "rows": ":".join(
            "" if bound is None else str(bound) for bound in options["rows"] or ()
        )
        or "all",
        "baselines": f"{options['nulls']} draws of each" if options["nulls"] else "",
        "posprobe": str(environment["posprobe"]),
        "made": str(environment["created"]),
        "failed": str(counts["failures"]),
    }
    yield from (Fact(name, text) for name, text in facts.items() if text)


# --- thumbnails -------------------------------------------------------------------------------


def thumbnail(matrix: NDArray[np.float64]) -> str:
    """Draw the block means of a cosine matrix ``[n, n]`` as a PNG of 15 colours, in base64."""
    from PIL import Image

    cells = Image.fromarray(matrix.astype(np.float32)).resize(
        (THUMBNAIL_CELLS, THUMBNAIL_CELLS), Image.Resampling.BOX
    )
    levels = np.rint(np.clip(np.asarray(cells), -1, 1) * COSINE_LEVELS) + COSINE_LEVELS
    image = Image.fromarray(
        np.nan_to_num(levels, nan=2 * COSINE_LEVELS + 1).astype(np.uint8)
    )
    image.putpalette(_palette())
    buffer = BytesIO()
    image.save(buffer, "PNG", bits=4, optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def is_thumbnail(text: object) -> bool:
    """Tell whether a value that was read from a file is a thumbnail."""
    return isinstance(text, str) and _THUMBNAIL.fullmatch(text) is not None


def _palette() -> bytes:
    shares = np.abs(np.arange(-COSINE_LEVELS, COSINE_LEVELS + 1))[:, None] / COSINE_LEVELS
    low, middle, high = (np.array(end, dtype=np.float64) for end in _SCALE_COLOURS)
    ends = np.where(np.arange(-COSINE_LEVELS, COSINE_LEVELS + 1)[:, None] < 0, low, high)
    colours = np.rint(middle + shares * (ends - middle)).astype(np.uint8)
    return colours.tobytes() + bytes(_UNDEFINED_COLOUR)
