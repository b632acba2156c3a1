"""``atlas.html``: the tables of a sweep on one page, to sort and filter.

Each table is drawn as a thumbnail, a picture of a few hundred bytes that a sweep keeps of its
cosine matrix. The page has the skeleton and style of every page (`posprobe.report.html`).
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
from posprobe.measurements import compared_numbers
from posprobe.page import Cell, Column, Fact, Listing, Picture, Row, Section, Table
from posprobe.report.html import listing
from posprobe.report.svg import embedded
from posprobe.studies.series import HEADLINE, Series
from posprobe.sweeps.columns import OWN, Kind
from posprobe.text import cell, plain
from posprobe.words import ASKS

#: Rows that a page shows, which keeps it under 3 MB for 1,000; ``sweep.parquet`` has all.
MOST = 2000
#: Letters of a text that the page shows.
LETTERS = 120
#: Columns of numbers, and of the user's own, that the page shows.
NUMBERS, OWNS = 8, 6
#: Training runs that are drawn.
RUNS = 4
#: Cells along a side of a thumbnail, and the levels of a cosine on either side of 0.
SIDE, LEVELS = 24, 7
#: Blue below 0, white at 0, red above; undefined is grey.
_ENDS = ((33, 102, 172), (247, 247, 247), (178, 24, 43))
_GREY = (150, 150, 150)
#: Base64 of a PNG that is small however it is compressed.
_THUMBNAIL = re.compile(r"iVBORw0KGgo[A-Za-z0-9+/]{4,2000}={0,2}")
_SIZES = {"positions": "positions", "dim": "dimensions"}
_KINDS = {"family": "family", "scheme": "kind", "layout": "layout", "lineage": "lineage"}


def atlas(
    rows: Sequence[Mapping[str, Any]],
    own: Mapping[str, Kind],
    about: Mapping[str, Any],
    counts: Mapping[str, int],
    runs: Sequence[Series] = (),
) -> Iterator[str]:
    """Give the pieces of the page: HTML that refers to nothing but the bundles beside it.

    Parameters
    ----------
    rows
        Of the sweep, each by column.
    own
        The user's columns and their kinds.
    about, counts
        As in ``sweep.json``.
    runs
        Training runs among the rows.
    """
    notes = []
    if len(rows) > MOST:
        notes.append(
            f"The first {MOST:,} of {len(rows):,} rows are shown; `sweep.parquet` has all."
        )
    if counts["failures"]:
        notes.append(f"{counts['failures']:,} failed: see `failures.csv`.")
    drawn = {f"series-{k}": run for k, run in enumerate(runs[:RUNS])}
    shown = Listing(
        title="Atlas",
        subject=f"{counts['rows']} rows",
        lead=(
            f"{counts['rows']:,} position tables and encodings of {counts['references']:,} "
            "references."
        ),
        notes=tuple(notes),
        sections=(
            Section("tables", "Tables", tables=(_table(_with_lineages(rows[:MOST]), own),)),
            *(_run_section(key, run) for key, run in drawn.items()),
        ),
        provenance=tuple(_made(about, counts)),
    )
    drawings = {key: embedded(run.drawing(key), plain(_curves(run))) for key, run in drawn.items()}

    def thumbnail_of(name: str) -> str:
        text = rows[int(name)].get("thumbnail")
        if not is_thumbnail(text):
            return ""
        return f'<img src="data:image/png;base64,{text}" alt="" width="48" height="48">'

    return listing(shown, version("posprobe"), drawings, thumbnail_of)


def _table(rows: Sequence[Mapping[str, Any]], own: Mapping[str, Kind]) -> Table:
    known = compared_numbers()
    numbers = {key: known[key].label for key in dict.fromkeys([*HEADLINE, *known])}
    numbers = dict([*_there(rows, numbers).items()][:NUMBERS])
    mine = {key: _short(key.removeprefix(OWN)) for key in [*own][:OWNS]}
    asked = {f"answers.{name}": ASKS[name] for name in questions.ANALYSIS}
    texts = {**_there(rows, _KINDS), **mine}
    shown = {**texts, **_there(rows, _SIZES), **numbers, **_there(rows, asked)}
    numeric = {*_SIZES, *numbers, *(key for key in mine if own[key] in ("int64", "double"))}
    pictures = any("thumbnail" in row for row in rows)
    headings = (
        Column("name"),
        *([Column("similarity")] if pictures else []),
        *(Column(label, key in numeric) for key, label in shown.items()),
    )
    cells: tuple[Row, ...] = tuple(
        (
            Cell(
                _short(_name(row)),
                note=_short(whole) if (whole := str(row["reference"])) != _name(row) else "",
                href=f"{quote(str(row['bundle']))}/report.html" if "bundle" in row else "",
            ),
            *([Cell("", thumbnail=str(at))] if pictures else []),
            *(_shown(row.get(key)) for key in shown),
        )
        for at, row in enumerate(rows)
    )
    caption = "– not measured."
    if pictures:
        caption += " Similarity: cosine of every pair of positions, centred; red is 1, blue -1."
    return Table(caption, headings, cells)


def _with_lineages(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Call each lineage after its first table; one with a single table is none."""
    heads = [row.get("lineage") for row in rows]
    members = Counter(heads)
    names = {row["reference"]: _name(row) for row in rows}
    return [
        {**row, "lineage": names.get(head) if members[head] > 1 else None}
        for row, head in zip(rows, heads, strict=True)
    ]


def _there(rows: Sequence[Mapping[str, Any]], keys: Mapping[str, str]) -> dict[str, str]:
    return {
        key: label for key, label in keys.items() if any(row.get(key) is not None for row in rows)
    }


def _run_section(key: str, run: Series) -> Section:
    """Show a training run: when each answer changes, and its curves."""
    steps = f"{len(run.steps)} steps, {run.steps[0]:,} to {run.steps[-1]:,}"
    none = "No answer changes." if run.answers else "No question was asked."
    said = run.changes or (none,)
    return Section(
        key, f"Training run: {_short(run.name)}", paragraphs=(f"{steps}.",), bullets=said,
        pictures=(Picture(key, _curves(run)),),
    )  # fmt: skip


def _curves(run: Series) -> str:
    return (
        f"{_short(run.name)}: numbers of the table and of the sinusoid, the way of the table, "
        "and the answers at every step"
    )


def _name(row: Mapping[str, Any]) -> str:
    return str(row.get("name") or row["reference"])


def _short(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"


def _shown(value: Any) -> str:
    return _short(cell(value) if isinstance(value, int | float) else str(value or "–"))


def _made(about: Mapping[str, Any], counts: Mapping[str, int]) -> Iterator[Fact]:
    options, environment = about["options"], about["environment"]
    facts = {
        "command": environment.get("command") or "",
        "analyses": ", ".join(options["only"] or ()) or "all that apply",
        "rows": ":".join("" if b is None else str(b) for b in options["rows"] or ()) or "all",
        "baselines": f"{options['nulls']} draws of each" if options["nulls"] else "",
        "posprobe": str(environment["posprobe"]),
        "made": str(environment["created"]),
        "failed": str(counts["failures"]),
    }
    yield from (Fact(name, text) for name, text in facts.items() if text)


# --- thumbnails -------------------------------------------------------------------------------


def thumbnail(matrix: NDArray[np.float64]) -> str:
    """Draw a matrix of cosines ``[n, n]`` as a PNG in base64: means of blocks, in 15 colours."""
    from PIL import Image

    cells = Image.fromarray(matrix.astype(np.float32)).resize((SIDE, SIDE), Image.Resampling.BOX)
    levels = np.rint(np.clip(np.asarray(cells), -1, 1) * LEVELS) + LEVELS
    drawn = Image.fromarray(np.nan_to_num(levels, nan=2 * LEVELS + 1).astype(np.uint8))
    drawn.putpalette(_palette())
    buffer = BytesIO()
    drawn.save(buffer, "PNG", bits=4, optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def is_thumbnail(text: object) -> bool:
    """Tell whether something read from a file can be one."""
    return isinstance(text, str) and _THUMBNAIL.fullmatch(text) is not None


def _palette() -> bytes:
    shares = np.abs(np.arange(-LEVELS, LEVELS + 1))[:, None] / LEVELS
    low, middle, high = (np.array(end, dtype=np.float64) for end in _ENDS)
    ends = np.where(np.arange(-LEVELS, LEVELS + 1)[:, None] < 0, low, high)
    colours = np.rint(middle + shares * (ends - middle)).astype(np.uint8)
    return colours.tobytes() + bytes(_GREY)
