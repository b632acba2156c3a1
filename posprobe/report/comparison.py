"""Two or more tables side by side: each analysed on its own rows, their distances, the page."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, count
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses import PCA, Result, Similarity, Spectrum
from posprobe.analyses.result import as_block
from posprobe.analyses.tables.closeness import Closeness, cka, closeness, cloud
from posprobe.analyses.tables.processes import fit_process
from posprobe.arrays import Array, Device
from posprobe.documents import PairBlock
from posprobe.errors import InvalidTable, UsageError
from posprobe.layouts import Grid
from posprobe.measurements import compared_numbers
from posprobe.nulls import DRAWS, NULLS, band, null_models, surrogate
from posprobe.page import Evidence, Fact, Line, Page, Row, Table, columns
from posprobe.progress import stage
from posprobe.report.analysis import Analysis, Saved, analyze, environment
from posprobe.report.document import shared_block
from posprobe.report.narrator import ASKS, claim, comparisons, pictures
from posprobe.report.narrator.lines import lines
from posprobe.report.published import published_for
from posprobe.report.stored import COMPARISON
from posprobe.report.table_page import versions
from posprobe.tables import PositionTable, table as as_table
from posprobe.text import Block, cell, show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.documents import BandBlock, EnvironmentBlock
    from posprobe.schemes import Scheme


_R = TypeVar("_R", bound=Result)
_Record = TypeVar("_Record", bound="PositionTable | Scheme")

#: By null model, 5, 50 and 95 % of a number.
PairBand: TypeAlias = "dict[str, BandBlock | None]"

#: Distances shown as matrices.
DISTANCES = ("cka", "procrustes", "subspace_overlap")


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Saved):
    """Tables with their analyses and distances.

    Parameters
    ----------
    labels
        A name for each table, all different.
    analyses
        One for each table, of all its positions.
    length
        Positions of the shortest table: over the first so many, distances are taken.
    distances
        ``[m][m]``; None on the diagonal.
    bands
        ``[m][m]``: by null model, the debiased CKA of a surrogate of the one with a surrogate of
        the other, None where undefined; None on the diagonal.
    environment
        Versions, device, seed, command and time.

    Examples
    --------
    >>> import posprobe as pp
    >>> comparison = pp.compare(pp.sinusoidal(32, 8), pp.encodings.counting(32, 8), nulls=0)
    >>> len(comparison.analyses), comparison.distances[0][0]
    (2, None)
    """

    labels: tuple[str, ...]
    analyses: tuple[Analysis, ...]
    length: int
    distances: tuple[tuple[Closeness | None, ...], ...]
    bands: tuple[tuple[PairBand | None, ...], ...]
    environment: EnvironmentBlock

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``analysis.json`` (schema `posprobe.comparison/2`)."""
        tables = []
        for label, analysis in zip(self.labels, self.analyses, strict=True):
            own = analysis.to_dict()
            del own["schema"]
            published = [value.compared(own) for value in published_for(analysis.table)]
            tables.append({"label": label, "published": published, **own})
        pairs = [
            PairBlock(
                **vars(distance),
                tables=[self.labels[i], self.labels[j]],
                nulls=self.bands[i][j],
            )
            for i, row in enumerate(self.distances)
            for j, distance in enumerate(row)
            if i < j and distance is not None
        ]
        document = {
            "schema": COMPARISON,
            "length": self.length,
            "tables": tables,
            "pairs": [as_block(pair) for pair in pairs],
            "environment": self.environment,
        }
        answers = {label: a.answers for label, a in zip(self.labels, self.analyses, strict=True)}
        if all(answers.values()):
            document["verdict"] = shared_block(answers)
        return document

    def matrix(self, name: str) -> NDArray[np.float64]:
        """Return one kind of distance as ``[m, m]``, NaN on the diagonal and where undefined."""
        return np.array(
            [
                [np.nan if d is None or getattr(d, name) is None else getattr(d, name) for d in row]
                for row in self.distances
            ],
            dtype=np.float64,
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: every table's arrays under its number."""
        arrays = {name: self.matrix(name) for name in DISTANCES}
        for index, analysis in enumerate(self.analyses):
            arrays |= {f"{index}_{name}": array for name, array in analysis.arrays().items()}
        return arrays

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure of the bundle."""
        from posprobe.figures import report_figures
        from posprobe.figures.common import REPORT
        from posprobe.figures.comparison import curves_figure, distances_figure
        from posprobe.figures.styles import printable

        alike, spectra = (
            self._results("similarity", Similarity),
            self._results("spectrum", Spectrum),
        )
        # Curves over offset and over frequency are of positions on a line.
        lines = {
            name: found
            for name, found in alike.items()
            if name in spectra and not isinstance(found.layout, Grid)
        }
        references = {
            "spectra": printable({name: spectra[name] for name in lines}),
            "distances": {name: self.matrix(name) for name in DISTANCES},
        }
        figures = report_figures(alike, ("similarity",)) if alike else {}
        if found := self._results("pca", PCA):
            figures |= report_figures(found, ("variance",), references)
        labels = dict.fromkeys(self.labels)
        figures["distances"] = partial(distances_figure, REPORT, printable(labels), references)
        if lines:
            figures["curves"] = partial(curves_figure, REPORT, printable(lines), references)
        return figures

    def _results(self, name: str, kind: type[_R]) -> dict[str, _R]:
        results = zip(self.labels, (a.results.get(name) for a in self.analyses), strict=True)
        return {label: result for label, result in results if isinstance(result, kind)}

    def _of(self) -> str:
        return " and ".join(
            f"{label!r} ({one.table.layout}, dim={one.table.dim})"
            for label, one in zip(self.labels, self.analyses, strict=True)
        )


def compare(
    *tables: PositionTable | Array,
    labels: Sequence[str] | None = None,
    only: Iterable[str] | None = None,
    nulls: int = 0,
    device: Device = "auto",
    seed: int = 0,
    command: str | None = None,
) -> Comparison:
    """Compare tables: the numbers of each, and the distances between them.

    Numbers and answers are given for each table as a whole. Distances are taken over the positions
    that sequences share, or between equal grids. A grid has no distance from a sequence.

    Parameters
    ----------
    tables
        Two or more tables, arrays or torch parameters, as `posprobe.table` takes them.
    labels
        One name for each; None keeps their own.
    only
        As for `analyze`.
    nulls
        Random tables drawn per baseline; of each pair at least so many as a band needs are drawn.
    device, seed, command
        As for `analyze`.

    Raises
    ------
    UsageError
        If there are fewer than two tables, or not as many labels.

    Examples
    --------
    >>> import posprobe as pp
    >>> comparison = pp.compare(pp.sinusoidal(32, 8), pp.encodings.counting(32, 8), nulls=0)
    >>> comparison.labels
    ('sinusoidal:32x8', 'counting:32x8')
    >>> print(f"{comparison.distances[0][1].cka:.2f}")
    0.56
    """
    if len(tables) < 2:
        raise UsageError(
            "a comparison needs at least two tables. Name another, such as sinusoidal."
        )
    tables = relabelled(tuple(map(as_table, tables)), labels)
    analyses = tuple(
        analyze(table, only=only, nulls=nulls, device=device, seed=seed, command=command)
        for table in tables
    )
    length = min(len(table) for table in tables)
    line = min((len(t) for t in tables if not isinstance(t.layout, Grid)), default=0)
    cut = [t if isinstance(t.layout, Grid) or len(t) == line else t[:line] for t in tables]
    clouds = [cloud(np.asarray(table.values, dtype=np.float64)) for table in cut]
    pairs: dict[tuple[int, int], tuple[Closeness, PairBand | None]] = {}
    size = range(len(cut))
    with stage("Distances", len(cut) * (len(cut) - 1) // 2) as done:
        for i, j in combinations(size, 2):
            if cut[i].layout == cut[j].layout:
                bands = _pair_band(cut[i], cut[j], max(nulls, DRAWS), seed)
                pairs[i, j] = closeness(clouds[i], clouds[j]), bands
            else:
                pairs[i, j] = _apart(cut[i], cut[j]), None
            pairs[j, i] = pairs[i, j]
            done(1)
    return Comparison(
        labels=distinct([table.name for table in tables]),
        analyses=analyses,
        length=length,
        distances=tuple(tuple(pairs[i, j][0] if i != j else None for j in size) for i in size),
        bands=tuple(tuple(pairs[i, j][1] if i != j else None for j in size) for i in size),
        environment=environment(analyses[0].environment["device"], seed, command),
    )


def _apart(x: PositionTable, y: PositionTable) -> Closeness:
    """Say why tables whose positions do not correspond have no distance."""
    why = f"a {x.layout} and a {y.layout}: no positions in common"
    numbers = ("cka", "cka_biased", "procrustes", "subspace_overlap")
    return Closeness(None, None, None, None, 0, dict.fromkeys(numbers, why))


def relabelled(records: Sequence[_Record], labels: Sequence[str] | None) -> tuple[_Record, ...]:
    """Call records by labels, one for each; without labels they keep their names.

    Raises
    ------
    UsageError
        If there are more or fewer labels than records, or one of them is empty or no text.
    """
    if labels is None:
        return tuple(records)
    sound = not isinstance(labels, str) and all(isinstance(each, str) and each for each in labels)
    if not sound or len(labels) != len(records):
        raise UsageError(
            f"{len(records)} encodings need a list of as many labels, texts that are not empty."
        )
    return tuple(replace(r, name=label) for r, label in zip(records, labels, strict=True))


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Make names all different: equal ones are numbered."""
    labels: list[str] = []
    for name in names:
        numbered = (f"{name} ({k})" for k in count(1))
        free = (label for label in numbered if label not in labels and label not in names)
        labels.append(name if names.count(name) == 1 else next(free))
    return tuple(labels)


def _pair_band(x: PositionTable, y: PositionTable, draws: int, seed: int) -> PairBand:
    """Compute the CKA of surrogates of both tables, the same for either order of the pair."""
    scaled = [
        np.asarray(t.values, dtype=np.float64) / (float(np.abs(t.values).max()) or 1.0)
        for t in sorted((x, y), key=_fingerprint)
    ]
    found: PairBand = {}
    models = null_models(x.layout)
    fitted = [fit_process(v, x.layout) for v in scaled]
    for index, name in enumerate(NULLS):
        values = []
        for draw in range(draws if name in models else 0):
            both = [
                surrogate(
                    v,
                    name,
                    np.random.default_rng([seed, index, draw, side]),
                    x.layout,
                    fitted[side],
                )
                for side, v in enumerate(scaled)
            ]
            values.append(_cka(both[0], both[1]))
        found[name] = band(values)
    return found


def _cka(x: NDArray[np.float32], y: NDArray[np.float32]) -> float | None:
    try:
        return cka(x.astype(np.float64), y.astype(np.float64))
    except InvalidTable:  # a surrogate of equal rows, or of fewer than four
        return None


def _fingerprint(table: PositionTable) -> tuple[int, int]:
    return zlib.crc32(np.ascontiguousarray(table.values).tobytes()), table.dim


#: Numbers that a terminal prints unasked.
UNASKED = (
    "similarity.centered.neighbour_mean", "pca.participation_ratio", "pca.top3",
    "similarity.centered.translation_invariance",
)  # fmt: skip


def comparison_page(document: Block) -> Page:
    """Lay out the page of a comparison of tables."""
    tables = document["tables"]
    notes = [f"{table['label']}: {note}." for table in tables for note in table["table"]["notes"]]
    return Page(
        title=" · ".join(table["label"] for table in tables),
        subject="compared by position",
        lead=comparisons.lead(tables),
        headline=comparisons.headline(document["pairs"]),
        notes=(*comparisons.rows_compared(document), *notes),
        pictures=pictures("tables", ("similarity", "variance")),
        subjects=tuple(table["label"] for table in tables),
        evidence=(*_pairs(document), *_answers(document), *_published(tables)),
        key=comparisons.KEY,
        numbers=_numbers(tables),
        provenance=(
            *(fact for table in tables for fact in _source(table)),
            *versions(document["environment"]),
        ),
    )


def _pairs(document: Block) -> Iterator[Evidence]:
    for place, pair in enumerate(document["pairs"]):
        line = comparisons.pair_line(pair, f"pair-{place}")
        drawn = () if place else pictures("tables", ("curves", "distances"))
        yield Evidence((line,), sentences=tuple(comparisons.pair_sentences(pair)), pictures=drawn)


def _answers(document: Block) -> Iterator[Evidence]:
    """Yield every question that several tables answer, with the answer of each."""
    tables = document["tables"]
    blocks = [table.get("verdict") for table in tables]
    if not all(blocks):
        return
    grids = [table["table"]["layout"]["type"] == "grid" for table in tables]
    own = [
        {line.name: line for line in lines(block, grid=grid)}
        for block, grid in zip(blocks, grids, strict=True)
    ]
    said = [{each["question"]: claim(each) for each in block["answers"]} for block in blocks]
    for name, question in ASKS.items():
        if not any(name in found for found in own):
            continue
        none = Line(name, "", question)
        yield Evidence(
            tuple(replace(found.get(name, none), question=question) for found in own),
            sentences=tuple(
                f"{table['label']}: {texts[name]}"
                for table, found, texts in zip(tables, own, said, strict=True)
                if name in found
            ),
        )


def _numbers(tables: list[Block]) -> Table:
    rows: list[Row] = []
    unasked = []
    for key, number in compared_numbers().items():
        found = [table["nulls"]["numbers"].get(key) for table in tables]
        if any(entry and entry["value"] is not None for entry in found):
            unasked += [len(rows)] if key in UNASKED else []
            rows.append((number.label, *map(_beside_walk, found)))
    beside = ""
    if any(table["nulls"]["draws"] for table in tables):
        beside = " In brackets: median of random walks with the same steps, for sequences."
    headings = columns("number", *(f"={table['label']}" for table in tables))
    return Table(f"Numbers of each table.{beside}", headings, tuple(rows), unasked=tuple(unasked))


def _beside_walk(entry: Block | None) -> str:
    if not entry or entry["value"] is None:
        return "–"
    walk = entry.get("walk")
    return show(entry["value"]) + (f" ({show(walk['p50'])})" if walk else "")


def _published(tables: list[Block]) -> Iterator[Evidence]:
    said = tuple(
        f"{table['label']}: {value['quantity']} {show(value['value'])}, here "
        f"{cell(value['ours'])}. {comparisons.citation(value)}"
        for table in tables
        for value in table["published"]
    )
    if said:
        yield Evidence(title="Published values", sentences=said)


def _source(table: Block) -> Iterator[Fact]:
    label, source = table["label"], table["table"]["source"]
    yield Fact(label, source["reference"])
    for key in ("tensor", "sha256"):
        if source[key]:
            yield Fact(f"{label}: {key}", source[key])
