"""Tables, or encodings of any scheme, side by side: analyses and distances, kernels, the pages."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, count
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses import PCA, Similarity, Spectrum, similarity
from posprobe.analyses.models.head_biases import Heads, heads
from posprobe.analyses.models.rotary_use import match_heads
from posprobe.analyses.result import as_block, plain
from posprobe.analyses.tables.closeness import Closeness, cka, closeness, cloud
from posprobe.analyses.tables.processes import fit_process
from posprobe.arrays import Array, Device
from posprobe.data import read_data
from posprobe.documents import PairBlock
from posprobe.encodings.tables import whole
from posprobe.errors import InvalidTable, UsageError
from posprobe.layouts import Grid, Layout, Sequence as Positions, describe_layout
from posprobe.measurements import compared_numbers
from posprobe.nulls import DRAWS, NULLS, band, null_models, surrogate
from posprobe.page import Evidence, Fact, Line, Page, Picture, Row, Table, columns
from posprobe.progress import stage
from posprobe.questions.schemes import KERNELS as QUESTIONS
from posprobe.report.analysis import Analysis, Saved, analyze, environment, results_of
from posprobe.report.document import shared_block
from posprobe.report.narrator import ASKS, claim, comparisons, pictures, schemes as narrator
from posprobe.report.narrator.lines import lines
from posprobe.report.narrator.schemes import summary_of_kernels
from posprobe.report.published import published_for
from posprobe.report.runs import MeasuredHeads
from posprobe.report.schemes import check_record
from posprobe.report.stored import COMPARISON, KERNELS
from posprobe.report.table_page import versions
from posprobe.schemes import (
    MAX_KERNEL,
    POSITIONS,
    LinearBias,
    RelativeBias,
    Rotary,
    Scheme,
    stated_length,
)
from posprobe.sources import describe_source
from posprobe.tables import PositionTable, table as as_table
from posprobe.text import Block, cell, show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.documents import BandBlock, EnvironmentBlock


Record: TypeAlias = PositionTable | Scheme
_Record = TypeVar("_Record", bound=Record)

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

        found = dict(zip(self.labels, (each.results for each in self.analyses), strict=True))
        alike = results_of(found, "similarity", Similarity)
        spectra = results_of(found, "spectrum", Spectrum)
        # Curves over offset and over frequency are of positions on a line.
        lines = {
            name: result
            for name, result in alike.items()
            if name in spectra and not isinstance(result.layout, Grid)
        }
        references = {
            "spectra": printable({name: spectra[name] for name in lines}),
            "distances": {name: self.matrix(name) for name in DISTANCES},
        }
        figures = report_figures(alike, ("similarity",)) if alike else {}
        if components := results_of(found, "pca", PCA):
            figures |= report_figures(components, ("variance",), references)
        labels = dict.fromkeys(self.labels)
        figures["distances"] = partial(distances_figure, REPORT, printable(labels), references)
        if lines:
            figures["curves"] = partial(curves_figure, REPORT, printable(lines), references)
        return figures

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
        evidence=(
            *_pairs(
                document,
                comparisons.pair_line,
                comparisons.pair_sentences,
                pictures("tables", ("curves", "distances")),
            ),
            *_answers(document),
            *_published(tables),
        ),
        key=comparisons.KEY,
        numbers=_numbers(tables),
        provenance=(
            *(fact for table in tables for fact in _source(table)),
            *versions(document["environment"]),
        ),
    )


def _pairs(
    document: Block,
    line: Callable[[Block, str], Line],
    sentences: Callable[[Block], Iterable[str]],
    drawn: tuple[Picture, ...],
) -> Iterator[Evidence]:
    """Yield how similar each pair is; the drawings of all stand beside the first."""
    for place, pair in enumerate(document["pairs"]):
        yield Evidence(
            (line(pair, f"pair-{place}"),), sentences=tuple(sentences(pair)),
            pictures=() if place else drawn,
        )  # fmt: skip


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


#: Positions compared where no record states a length, and the most that are unless asked for.
LENGTH, LONGEST = 512, 1024
#: Pairs of random walks that the band is made of.
WALKS = 999
#: Why a correlation is undefined.
FLAT = "an encoding has the same value at every distance"
#: Distances shown as matrices.
ALIKE = ("correlation", "alignment")


@dataclass(frozen=True, eq=False, repr=False)
class KernelComparison(Saved):
    """Encodings of any scheme at one length.

    Parameters
    ----------
    labels
        A name for each record, all different.
    records
        The encodings.
    layout
        The positions at which all of them are compared.
    curves
        Of each, the mean over heads: ``[2 n - 1]`` by offset, key minus query, or
        ``[2 h - 1, 2 w - 1]`` by displacement. Where later keys are hidden, they mirror the
        earlier ones.
    kernels
        Of each, ``[n, n]``: for a table its cosines, else the mean over heads of the bias or
        rotation between positions.
    invariance
        Of each, the share of the kernel's variance off the diagonal that the offset explains.
    correlation, alignment
        ``[m, m]``, NaN on the diagonal and where undefined: Pearson's correlation of the curves
        over all distances but 0, and the centred kernel alignment (Cortes et al. 2012).
    walk
        95 % quantiles of the magnitudes of both for two independent random walks over distance;
        None on a grid.
    environment
        Versions, seed, command and time.
    """

    labels: tuple[str, ...]
    records: tuple[Record, ...]
    layout: Layout
    curves: tuple[NDArray[np.float64], ...]
    kernels: tuple[NDArray[np.float64], ...]
    invariance: tuple[float | None, ...]
    correlation: NDArray[np.float64]
    alignment: NDArray[np.float64]
    walk: dict[str, Any] | None
    environment: EnvironmentBlock

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``analysis.json`` (schema `posprobe.kernels/2`)."""
        size = len(self.labels)
        records = [self._record(i) for i in range(size)]
        pairs = [self._pair(i, j) for i in range(size) for j in range(i + 1, size)]
        return {
            "schema": KERNELS,
            "length": self.layout.size,
            "layout": describe_layout(self.layout),
            "records": records,
            "pairs": pairs,
            "walk": self.walk,
            "verdict": self._verdict(records, pairs),
            "environment": self.environment,
        }

    def _record(self, i: int) -> dict[str, Any]:
        record = self.records[i]
        measured = _mean_head(record, self.curves[i])
        numbers = {
            name: _number(getattr(measured, name)[0])
            for name in ("half_width", "monotone_fraction", "asymmetry")
        } | {"translation_invariance": self.invariance[i]}
        undefined = {"translation_invariance": FLAT, **as_block(measured)["undefined"]}
        return {
            "label": self.labels[i],
            "name": record.name,
            "family": record.family,
            "scheme": record.scheme,
            "quantity": _quantity(record),
            "head_count": 1 if isinstance(record, PositionTable) else record.heads,
            "causal": _causal(record),
            "positions": _positions(record),
            **numbers,
            "undefined": {key: undefined[key] for key, number in numbers.items() if number is None},
            "notes": list(record.notes),
            **({"run": record.run} if isinstance(record, MeasuredHeads) else {}),
            "source": describe_source(record.source),
        }

    def _verdict(
        self, records: Sequence[dict[str, Any]], pairs: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        told = shared_block(
            {
                label: [question.ask(record) for question in QUESTIONS]
                for label, record in zip(self.labels, records, strict=True)
            }
        )
        said = summary_of_kernels(records, pairs, self.walk)
        summary = f"{said} {told['summary']}".lstrip()
        return {"summary": summary, "answers": told["answers"]}

    def _pair(self, i: int, j: int) -> dict[str, Any]:
        numbers = {name: _number(getattr(self, name)[i, j]) for name in ALIKE}
        undefined = {name: FLAT for name, number in numbers.items() if number is None}
        return {
            "records": [self.labels[i], self.labels[j]],
            **numbers,
            **self._heads(self.records[i], self.records[j]),
            "undefined": undefined,
        }

    def _heads(self, first: Record, second: Record) -> dict[str, Any]:
        if not (isinstance(first, MeasuredHeads) and isinstance(second, MeasuredHeads)):
            return {}
        curves = _curves_of_both(first, second, self.layout.size)
        return {"heads": plain(match_heads(curves, (first.places, second.places)))}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: each record's arrays under its number."""
        arrays: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in ALIKE}
        for number, (curve, kernel) in enumerate(zip(self.curves, self.kernels, strict=True)):
            arrays |= {f"{number}_curve": curve, f"{number}_kernel": kernel}
        return arrays

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure of the bundle."""
        from posprobe.figures.common import REPORT
        from posprobe.figures.comparison import KERNEL_FIGURES
        from posprobe.figures.styles import printable

        curves = [
            standardised(curve, curve.size // 2)
            if isinstance(self.layout, Grid)
            else standardised(_by_distance(curve), 0)[1:]
            for curve in self.curves
        ]
        kernels = [standardised(k, slice(None, None, len(k) + 1)) for k in self.kernels]
        references = {
            "kernels": printable(dict(zip(self.labels, kernels, strict=True))),
            "distances": {name: getattr(self, name) for name in ALIKE},
        }
        results = printable(dict(zip(self.labels, curves, strict=True)))
        found: dict[str, Callable[[], Figure]] = {
            name: partial(build, REPORT, results, references)
            for name, build in KERNEL_FIGURES.items()
        }
        match self.records:
            case (MeasuredHeads() as first, MeasuredHeads() as second):
                found["heads"] = self._drawn_heads(first, second)
        return found

    def _drawn_heads(self, first: MeasuredHeads, second: MeasuredHeads) -> Callable[[], Figure]:
        """Return how to draw the heads of two runs that match best."""
        from posprobe.figures.common import REPORT
        from posprobe.figures.rotary_use import matched_heads_figure
        from posprobe.figures.styles import printable

        n, places = self.layout.size, (first.places, second.places)
        curves = _curves_of_both(first, second, n)
        by_distance = [
            dict(zip(heads, found[:, ::-1], strict=True))
            for heads, found in zip(places, curves, strict=True)
        ]
        results = printable(dict(zip(self.labels, by_distance, strict=True)))
        distances = np.arange(n - curves[0].shape[1], n)
        beside = {"matched": match_heads(curves, places).matched, "distances": distances}
        return partial(matched_heads_figure, REPORT, results, beside)

    def _of(self) -> str:
        return " and ".join(map(repr, self.labels))


def _curves_of_both(
    first: MeasuredHeads, second: MeasuredHeads, n: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the heads' curves of two runs, at the earlier keys where either sees no others."""
    seen = n if first.causal or second.causal else None
    return first.curves(n)[:, :seen], second.curves(n)[:, :seen]


def compare_kernels(
    *records: Record,
    labels: Sequence[str] | None = None,
    length: int | None = None,
    seed: int = 0,
    command: str | None = None,
) -> KernelComparison:
    """Compare encodings of any kind by how similarity depends on distance.

    A table's kernel is its cosines, that of a relative or linear bias the bias and that of a rotary
    encoding the mean rotation, averaged over heads. Their units differ, so curves and kernels are
    compared by correlation: after subtracting the mean and dividing by the standard deviation,
    distance 0 left out, where a cosine is 1 whatever was learned.

    Parameters
    ----------
    records
        Two or more: tables and encodings without one, on a line, or all on the same grid.
    labels
        One name for each; None keeps their own.
    length
        Positions; where None, those of the shortest, up to 1,024. A grid has its own.
    seed
        Random seed of the random walks that correlations are compared with.
    command
        Command line to record.

    Raises
    ------
    UsageError
        If there are fewer than two records, one is there twice or is not an encoding, there are not
        as many labels, they share no length, or the length is not a whole number, below three or
        longer than a table.
    InvalidTable
        If a table has a zero row, whose cosines are undefined.

    Examples
    --------
    >>> import posprobe as pp
    >>> (alibi,) = pp.load_schemes("alibi:32x4")
    >>> comparison = pp.compare_kernels(pp.sinusoidal(32, 8), alibi)
    >>> comparison.labels
    ('sinusoidal:32x8', 'alibi:32x4')
    >>> comparison.kernels[0].shape
    (32, 32)
    """
    if len(records) < 2:
        raise UsageError("a comparison needs at least two encodings.")
    for k, record in enumerate(records):
        check_record(record)
        if any(record is other for other in records[:k]):
            raise UsageError(f"{record.name}: given twice. Pass each encoding once.")
    length = None if length is None else whole("the length", length)
    records = relabelled(records, labels)
    layout = _common(records, length)
    with stage("Measuring encodings", len(records)) as done:
        found = []
        for record in records:
            found.append(_measure(record, layout))
            done(1)
    curves, kernels, invariance = zip(*found, strict=True)
    return KernelComparison(
        labels=distinct([record.name for record in records]),
        records=records,
        layout=layout,
        curves=curves,
        kernels=kernels,
        invariance=invariance,
        correlation=_alike([_varying(curve) for curve in curves]),
        alignment=_alike([_centred(kernel) for kernel in kernels]),
        walk=None if isinstance(layout, Grid) else walks(layout.size, seed),
        environment=environment("cpu", seed, command),
    )


def walks(n: int, seed: int) -> dict[str, Any]:
    """Return how alike two independent random walks over ``n`` distances are, 95 % quantiles.

    Both measures compare smooth curves, and smooth curves correlate by chance (Yule 1926).
    """
    rng = np.random.default_rng(seed)
    x, y = np.cumsum(rng.standard_normal((2, WALKS, n)), axis=2)
    a, b = (walk[:, 1:] - walk[:, 1:].mean(axis=1, keepdims=True) for walk in (x, y))
    correlation = (a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1))
    alignment = toeplitz(x, y) / np.sqrt(toeplitz(x, x) * toeplitz(y, y))
    return {
        "draws": WALKS,
        "seed": seed,
        "correlation": float(np.quantile(np.abs(correlation), 0.95)),
        "alignment": float(np.quantile(np.abs(alignment), 0.95)),
    }


def toeplitz(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inner products of centred symmetric kernels, from their curves alone.

    Parameters
    ----------
    x, y
        ``[draws, n]`` by distance from 0.

    Returns
    -------
    NDArray
        ``[draws]``: the sums of the products of the kernels' entries, rows and columns centred.
    """
    n = x.shape[1]
    pairs = np.append(n, 2 * np.arange(n - 1, 0, -1))
    rows = [(np.cumsum(c, 1) + np.cumsum(c, 1)[:, ::-1] - c[:, :1]) / n for c in (x, y)]
    products = (pairs * x * y).sum(axis=1) - 2 * n * (rows[0] * rows[1]).sum(axis=1)
    return np.asarray(products + n**2 * rows[0].mean(axis=1) * rows[1].mean(axis=1))


def standardised(values: NDArray[np.float64], without: int | slice) -> NDArray[np.float64]:
    """Subtract the mean and divide by the standard deviation, both without the flat index given."""
    rest = np.delete(values, without)
    spread = rest.std()
    flat = spread <= 1e-12 * float(np.abs(rest).max(initial=0.0))
    return np.asarray((values - rest.mean()) / (1.0 if flat else spread))


def _common(records: Sequence[Record], length: int | None) -> Layout:
    units = {getattr(record, "unit", POSITIONS): record.name for record in records}
    if len(units) > 1:
        named = "; ".join(f"those of {name} count {unit}" for unit, name in units.items())
        raise UsageError(f"distances have different units: {named}. Compare those with one unit.")
    layouts = [getattr(record, "layout", None) for record in records]
    grids = [layout for layout in layouts if isinstance(layout, Grid)]
    if grids:
        if any(layout != grids[0] for layout in layouts):
            shapes = ", ".join(
                f"{record.name} is a {layout or 'sequence of any length'}"
                for record, layout in zip(records, layouts, strict=True)
            )
            raise UsageError(
                f"{shapes}: positions on a grid compare only with the same grid. Nothing is "
                "resampled."
            )
        if length not in (None, grids[0].size):
            raise UsageError(f"a {grids[0]} has {grids[0].size} positions, not {length}.")
        if grids[0].size < 3:
            raise UsageError(f"a {grids[0]} has too few positions to compare.")
        return grids[0]
    stated = [n for n in map(_positions, records) if n is not None]
    n = min([*stated, LONGEST] if stated else [LENGTH]) if length is None else length
    tables = [record for record in records if isinstance(record, PositionTable)]
    for table in tables:
        if n > len(table):
            raise UsageError(
                f"{table.name}: it has {len(table)} positions, not {n}. Choose at most that many."
            )
    if not 3 <= n <= MAX_KERNEL:
        raise UsageError(f"{n} positions: from 3 to {MAX_KERNEL} can be compared.")
    return Positions(n)


def _positions(record: Record) -> int | None:
    return len(record) if isinstance(record, PositionTable) else stated_length(record)


def _quantity(record: Record) -> Literal["cosine", "bias", "rotation"]:
    match record:
        case RelativeBias():
            return record.quantity
        case LinearBias():
            return "bias"
        case Rotary():
            return "rotation"
        case PositionTable():
            return "cosine"


def _causal(record: Record) -> bool:
    return not isinstance(record, PositionTable | Rotary) and record.causal


def _measure(
    record: Record, layout: Layout
) -> tuple[NDArray[np.float64], NDArray[np.float64], float | None]:
    """Return the curve and the kernel of the mean head, and the translation invariance."""
    n = layout.size
    if isinstance(record, PositionTable):
        table = record if len(record) == n else record[:n]
        if not np.any(table.values, axis=1).all():
            raise InvalidTable(
                f"{record.name}: a zero row has no direction, so its cosines are undefined. Leave "
                "it out with --rows A:B."
            )
        cosine = similarity(table).raw
        mean = cosine.offset_mean
        curve = mean if mean.ndim == 2 else np.concatenate([mean[:0:-1], mean])
        return curve, cosine.matrix, cosine.translation_invariance
    curve = np.asarray(record.curves(n).mean(axis=0))
    if _causal(record) and curve.ndim == 1:
        curve = np.concatenate([curve[:n], curve[n - 2 :: -1]])
    # The mean over heads has one head: there is no need for the kernel of every one.
    kernel = RelativeBias(curve[None], layout, record.name, record.source).kernel(n)[0]
    return curve, kernel, 1.0 if _varying(curve).any() else None


def _mean_head(record: Record, curve: NDArray[np.float64]) -> Heads:
    return heads(curve[None], quantity="cosine", causal=_causal(record))


def _by_distance(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    n = len(curve) // 2
    return np.asarray((curve[n:] + curve[n::-1]) / 2)


def _varying(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a curve by distance without distance 0, less its mean; zeros where it is flat."""
    values = np.delete(curve, curve.size // 2) if curve.ndim > 1 else _by_distance(curve)[1:]
    return _unless_flat(values, values - values.mean())


def _centred(kernel: NDArray[np.float64]) -> NDArray[np.float64]:
    rows = kernel - kernel.mean(axis=1, keepdims=True)
    return _unless_flat(kernel, rows - rows.mean(axis=0))


def _unless_flat(values: NDArray[np.float64], centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace what centring leaves of equal numbers, which is rounding, by zeros."""
    flat = np.abs(centred).max() <= 1e-12 * np.abs(values).max()
    return np.zeros_like(centred) if flat else centred


def _alike(values: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Cosines between arrays, ``[m, m]``; NaN on the diagonal and with an array of zeros."""
    found = np.full((len(values), len(values)), np.nan)
    for i, x in enumerate(values):
        for j in range(i):
            y = values[j]
            size = float(np.linalg.norm(x) * np.linalg.norm(y))
            if size:
                found[i, j] = found[j, i] = float(np.vdot(x, y)) / size
    return found


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def kernel_page(document: Block) -> Page:
    """Lay out the page of a comparison of kernels."""
    records, walk = document["records"], document["walk"]
    labels = tuple(record["label"] for record in records)
    return Page(
        title=" · ".join(labels),
        subject="kernels side by side",
        lead=narrator.kernels_lead(document),
        headline=narrator.kernels_headline(document["pairs"], walk),
        notes=(
            *(told for record in records for told in narrator.measured(record)),
            *narrator.positions_compared(document),
            *(f"{record['label']}: {note}." for record in records for note in record["notes"]),
        ),
        pictures=pictures("kernels", ("curves", "kernels")),
        subjects=labels,
        evidence=(
            *_pairs(
                document,
                partial(narrator.pair_line, walk=walk),
                partial(narrator.pair_sentences, walk=walk),
                pictures("kernels", ("heads", "distances")),
            ),
            *_kernel_answers(document),
        ),
        key=narrator.KERNEL_KEY,
        numbers=_kernel_numbers(records),
        provenance=(
            *(Fact(record["label"], _whence(record["source"])) for record in records),
            *versions(document["environment"]),
        ),
    )


def _kernel_answers(document: Block) -> Iterator[Evidence]:
    """Yield the questions with the answer of each encoding; bundles of 0.1.0 answer none."""
    for told in document.get("verdict", {}).get("answers", ()):
        yield Evidence(
            tuple(
                narrator.kernel_line(told["question"], told["answers"].get(each["label"], ""), each)
                for each in document["records"]
            )
        )


def _kernel_numbers(records: list[Block]) -> Table:
    known = read_data("report/numbers.toml")["kernels"]
    rows: list[Row] = [
        ("kernel", *(narrator.KERNEL_OF[record["quantity"]] for record in records)),
        ("heads that the mean is of", *(str(record["head_count"]) for record in records)),
        *((label, *(cell(r[key]) for r in records)) for key, label in known.items()),
    ]
    headings = columns("number", *(f"={record['label']}" for record in records))
    caption = "Kernels, the mean over heads; distances in positions."
    return Table(caption, headings, tuple(rows), unasked=tuple(range(len(rows))))


def _whence(source: Block) -> str:
    return ", ".join(source[key] for key in ("reference", "tensor") if source[key])
