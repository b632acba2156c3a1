"""``atlas.html``: the tables of a sweep on one page, to sort, filter, map and group.

Each table is drawn as a thumbnail: 300 letters that a sweep keeps of its cosine matrix, which is
averaged to 24 x 24 cells and rounded to 15 levels from -1 to 1. It is symmetric, so the lower
triangle says all. Letters survive JSON as they are, and nothing in them can do harm.

The page has the skeleton, style and script of every page (`posprobe.report.html`); what its script
draws, maps and scatters, comes from the numbers that the page carries.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from posprobe.report.narrator import ASKS
from posprobe.report.narrator.comparisons import similarity_map
from posprobe.report.series import HEADLINE, Series
from posprobe.report.svg import inline
from posprobe.sweeps.columns import OWN, Kind
from posprobe.text import cell, plain

#: Rows that a page shows, which keeps it under 3 MB for 1,000; ``sweep.parquet`` has all.
MOST = 2000
#: Letters of a text that the page shows.
LETTERS = 120
#: Columns of numbers, and of the user's own, that the table shows; plots have all.
NUMBERS, OWNS = 8, 6
#: Training runs that are drawn.
RUNS = 4
#: Values that a column may have to be one of groups.
GROUPS = 60
#: Cells along a side, and letters of the lower triangle.
SIDE = 24
LENGTH = SIDE * (SIDE + 1) // 2
#: Levels on either side of 0, whose letter is the eighth; the last letter is undefined.
LEVELS = 7
_LETTERS = "abcdefghijklmnop"
_WHOLE = re.compile(f"[{_LETTERS}]{{{LENGTH}}}")
#: Blue below 0, white at 0, red above; undefined is grey.
_ENDS = ((33, 102, 172), (247, 247, 247), (178, 24, 43))
_GREY = (150, 150, 150)
#: The lower triangle.
_LOWER = np.tril_indices(SIDE)
_SIZES = {"positions": "positions", "dim": "dimensions"}
_SAID_OF_GROUPS = (
    "Rows with the same value in a column: how many, their similarity matrices, and medians."
)
_KINDS = {"family": "family", "scheme": "kind", "layout": "layout"}


class Atlas:
    """The page of a sweep, filled row by row.

    Parameters
    ----------
    own
        The user's columns and their kinds.
    """

    def __init__(self, own: Mapping[str, Kind]) -> None:
        self.own = own
        self.kept = [*_kept(), *(f"{OWN}{name}" for name in own)]
        self.rows: list[dict[str, Any]] = []
        self.total = 0

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the rows of a reference."""
        for row in rows:
            self.total += 1
            if len(self.rows) < MOST:
                kept = {name: row[name] for name in self.kept if row.get(name) is not None}
                self.rows.append(kept)

    def page(
        self, about: Mapping[str, Any], counts: Mapping[str, int], runs: Sequence[Series] = ()
    ) -> Iterator[str]:
        """Give the pieces of the page: HTML that refers to nothing but the bundles beside it."""
        for rows in self._lineages():
            for at in rows:
                self.rows[at]["group"] = _name(self.rows[rows[0]])
        numbers, groups = self._numbers(), self._groups()
        x, y, share = _map([row.get("thumbnail") for row in self.rows])
        data = {
            "names": [_short(_name(row)) for row in self.rows],
            "numbers": [
                {"label": label, "values": [_number(row.get(key)) for row in self.rows]}
                for key, label in numbers.items()
            ],
            "groups": [
                {"label": label, "values": [_word(row.get(key)) for row in self.rows]}
                for key, label in groups.items()
            ],
            "map": {"x": x, "y": y},
        }
        references = counts["references"]
        drawings = {
            name: inline(run.drawing(name), name, plain(_curves(run)))
            for k, run in enumerate(runs[:RUNS])
            for name in (f"series-{k}",)
        }
        shown = Listing(
            title="Atlas",
            subject=f"{counts['rows']} rows",
            lead=f"{counts['rows']:,} position tables and encodings of {references:,} references.",
            notes=tuple(self._notes(counts)),
            sections=(
                Section("tables", "Tables", tables=(self._table(numbers),)),
                Section("map", "Map", paragraphs=(similarity_map(share),)),
                Section(
                    "scatter", "Any two numbers",
                    paragraphs=("Each row of the table by two of its numbers.",),
                ),
                Section(
                    "groups", "Groups",
                    paragraphs=(_SAID_OF_GROUPS,),
                ),
                *(_run_section(f"series-{k}", run) for k, run in enumerate(runs[:RUNS])),
            ),
            provenance=tuple(_made(about, counts)),
        )  # fmt: skip
        return listing(shown, version("posprobe"), drawings, self._thumbnail, {"atlas": data})

    def _thumbnail(self, name: str) -> str:
        text = str(self.rows[int(name)].get("thumbnail"))
        return image(text) if is_thumbnail(text) else ""

    def _notes(self, counts: Mapping[str, int]) -> Iterable[str]:
        if self.total > len(self.rows):
            yield (
                f"The first {len(self.rows):,} of {self.total:,} rows are shown; `sweep.parquet` "
                "has all."
            )
        if counts["failures"]:
            yield f"{counts['failures']:,} failed: see `failures.csv`."

    def _there(self, keys: Mapping[str, str]) -> dict[str, str]:
        return {
            key: label
            for key, label in keys.items()
            if any(row.get(key) is not None for row in self.rows)
        }

    def _numbers(self) -> dict[str, str]:
        """Name what can be plotted, by key: sizes, headline numbers, and numbers of the user's."""
        known = compared_numbers()
        ordered = dict.fromkeys([*HEADLINE, *known])
        found = dict(_SIZES) | {key: known[key].label for key in ordered}
        for name, kind in self.own.items():
            if kind in ("int64", "double"):
                found[f"{OWN}{name}"] = _short(name)
        return self._there(found)

    def _groups(self) -> dict[str, str]:
        """Name what rows can be grouped by: words of which there are not too many."""
        own = {f"{OWN}{name}": _short(name) for name in self.own}
        asked = {f"answers.{name}": ASKS[name] for name in questions.ANALYSIS}
        found = self._there(own | _KINDS | asked | {"group": "lineage"})
        return {
            key: label
            for key, label in found.items()
            if len({_word(row.get(key)) for row in self.rows}) <= GROUPS
        }

    def _lineages(self) -> list[list[int]]:
        """Return the rows of each lineage: those with more than one table."""
        found: dict[str, list[int]] = {}
        for at, row in enumerate(self.rows):
            found.setdefault(str(row.get("lineage") or _reference(row)), []).append(at)
        return [rows for rows in found.values() if len(rows) > 1]

    def _table(self, numbers: Mapping[str, str]) -> Table:
        own = [f"{OWN}{name}" for name in self.own][:OWNS]
        kinds = [key for key in ("family", "scheme") if key in self._there(_KINDS)]
        mine = [key for key in numbers if key not in _SIZES and not key.startswith(OWN)][:NUMBERS]
        sizes = [key for key in numbers if key in _SIZES]
        drawn = "similarity" if any("thumbnail" in row for row in self.rows) else ""
        headings = (
            Column("name"),
            *([Column(drawn)] if drawn else []),
            *(Column(_KINDS[key]) for key in kinds),
            *(Column(_short(key.removeprefix(OWN)), key in numbers) for key in own),
            *(Column(numbers[key], numeric=True) for key in (*sizes, *mine)),
        )
        rows: tuple[Row, ...] = tuple(
            (
                Cell(
                    _short(_name(row)),
                    note=_short(whole) if (whole := _reference(row)) != _name(row) else "",
                    href=f"{quote(str(row['bundle']))}/report.html" if "bundle" in row else "",
                ),
                *([Cell("", thumbnail=str(at))] if drawn else []),
                *(_short(_shown(row.get(key))) for key in (*kinds, *own, *sizes, *mine)),
            )
            for at, row in enumerate(self.rows)
        )
        caption = "– not measured."
        if drawn:
            caption += " Similarity: cosine of every pair of positions, centred; red is 1, blue -1."
        return Table(caption, headings, rows)


def _kept() -> list[str]:
    answers = [f"answers.{name}" for name in questions.ANALYSIS]
    said = ["name", "reference", "lineage", "bundle", "thumbnail"]
    return [*said, *_SIZES, *_KINDS, *answers, *compared_numbers()]


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


def _reference(row: Mapping[str, Any]) -> str:
    return str(row.get("reference", ""))


def _name(row: Mapping[str, Any]) -> str:
    return str(row.get("name") or _reference(row))


def _short(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"


def _shown(value: Any) -> str:
    return cell(_number(value)) if isinstance(value, int | float) else str(value or "–")


def _number(value: Any) -> float | int | None:
    """Return a number with the digits that a plot can show."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.4g}")


def _word(value: Any) -> str:
    return "" if value is None else _short(_shown(value))


def _map(
    thumbnails: Sequence[Any],
) -> tuple[list[float | None], list[float | None], float | None]:
    """Place tables on a plane by the distances between their small matrices.

    The first two principal components, which is classical scaling of the Euclidean distances; cells
    that are undefined count as 0, and those off the diagonal twice, as in the whole matrix.

    Returns
    -------
    tuple
        Coordinates, None without a matrix, and the share of the variance that they show; None
        where there are fewer than three tables, or all look alike.
    """
    at = [k for k, text in enumerate(thumbnails) if is_thumbnail(text)]
    nowhere: list[float | None] = [None] * len(thumbnails)
    if len(at) < 3:
        return nowhere, nowhere, None
    cells = np.nan_to_num([levels_of(thumbnails[k]) for k in at])
    cells *= np.where(_LOWER[0] == _LOWER[1], 1.0, 2**0.5)
    cells -= cells.mean(axis=0)
    spread, directions = np.linalg.eigh(cells.T @ cells)
    if spread.sum() <= 1e-9:
        return nowhere, nowhere, None
    first_two = directions[:, [-1, -2]]
    # Directions have no sign of their own.
    largest = first_two[np.abs(first_two).argmax(axis=0), [0, 1]]
    placed = cells @ (first_two * np.sign(largest))
    x, y = list(nowhere), list(nowhere)
    for k, (across, up) in zip(at, placed.tolist(), strict=True):
        x[k], y[k] = _number(across), _number(up)
    return x, y, float(spread[-2:].sum() / spread.sum())


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
    """Reduce a symmetric matrix of cosines ``[n, n]`` to letters; NaN counts for nothing."""
    n = len(matrix)
    first = np.arange(SIDE) * n // SIDE
    stop = np.maximum((np.arange(SIDE) + 1) * n // SIDE, first + 1)
    at = np.arange(n)
    member = ((at >= first[:, None]) & (at < stop[:, None])).astype(np.float64)
    defined = ~np.isnan(matrix)
    sums = member @ np.where(defined, matrix, 0.0) @ member.T
    counts = member @ defined.astype(np.float64) @ member.T
    with np.errstate(invalid="ignore"):
        levels = np.rint(np.clip(sums / counts, -1, 1) * LEVELS)[_LOWER] + LEVELS
    return "".join(_LETTERS[-1 if np.isnan(level) else int(level)] for level in levels)


def is_thumbnail(text: object) -> bool:
    """Tell whether something read from a file is one."""
    return isinstance(text, str) and _WHOLE.fullmatch(text) is not None


def levels_of(text: str) -> NDArray[np.float64]:
    """Return the lower triangle ``[300]`` as numbers from -1 to 1, NaN where undefined."""
    codes = _codes(text).astype(np.float64)
    codes[codes == len(_LETTERS) - 1] = np.nan
    return (codes - LEVELS) / LEVELS


def image(text: str) -> str:
    """Draw it as an element of a page: a PNG of a few hundred bytes."""
    from PIL import Image

    cells = np.zeros((SIDE, SIDE), dtype=np.uint8)
    cells[_LOWER] = _codes(text)
    drawn = Image.fromarray(np.maximum(cells, cells.T))
    drawn.putpalette(_palette())
    buffer = BytesIO()
    drawn.save(buffer, "PNG", bits=4, optimize=True)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="" width="48" height="48">'


def _codes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode("ascii"), dtype=np.uint8) - np.uint8(ord(_LETTERS[0]))


def _palette() -> bytes:
    shares = np.abs(np.arange(-LEVELS, LEVELS + 1))[:, None] / LEVELS
    low, middle, high = (np.array(end, dtype=np.float64) for end in _ENDS)
    ends = np.where(np.arange(-LEVELS, LEVELS + 1)[:, None] < 0, low, high)
    colours = np.rint(middle + shares * (ends - middle)).astype(np.uint8)
    return colours.tobytes() + bytes(_GREY)
