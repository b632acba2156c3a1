"""Encodings of any scheme side by side, by the kernel that each induces, and their page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses import similarity
from posprobe.analyses.models.head_biases import Heads, heads
from posprobe.analyses.models.rotary_match import match_heads
from posprobe.analyses.result import as_block, plain
from posprobe.data import read_data
from posprobe.encodings.tables import whole
from posprobe.errors import InvalidTable, UsageError
from posprobe.layouts import Grid, Layout, Sequence as Line, describe_layout
from posprobe.page import Evidence, Fact, Page, Row, Table, columns
from posprobe.progress import stage
from posprobe.questions.schemes import KERNELS as QUESTIONS
from posprobe.report.analysis import Saved, environment
from posprobe.report.comparison import distinct, relabelled
from posprobe.report.document import shared_block
from posprobe.report.narrator import pictures, schemes as narrator
from posprobe.report.narrator.schemes import summary_of_kernels
from posprobe.report.runs import MeasuredHeads
from posprobe.report.schemes import check_record
from posprobe.report.stored import KERNELS
from posprobe.report.table_page import versions
from posprobe.schemes import MAX_KERNEL, POSITIONS, LinearBias, RelativeBias, Rotary, Scheme
from posprobe.sources import describe_source
from posprobe.tables import PositionTable
from posprobe.text import Block, cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.documents import EnvironmentBlock


Record: TypeAlias = PositionTable | Scheme

#: Positions compared where no record states a length, and the most that are unless asked for.
LENGTH, LONGEST = 512, 1024
#: Pairs of random walks that the band is made of.
DRAWS = 999
#: Why a correlation is undefined.
FLAT = "an encoding has the same value at every distance"
#: Distances shown as matrices.
DISTANCES = ("correlation", "alignment")


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
        numbers = {name: _number(getattr(self, name)[i, j]) for name in DISTANCES}
        undefined = {name: FLAT for name, number in numbers.items() if number is None}
        return {
            "records": [self.labels[i], self.labels[j]],
            **numbers,
            **self._heads(self.records[i], self.records[j]),
            "undefined": undefined,
        }

    def _heads(self, first: Record, second: Record) -> dict[str, Any]:
        """Match the heads of two runs, at the earlier keys where either sees no others."""
        if not (isinstance(first, MeasuredHeads) and isinstance(second, MeasuredHeads)):
            return {}
        n = self.layout.size
        seen = n if first.causal or second.causal else None
        curves = first.curves(n)[:, :seen], second.curves(n)[:, :seen]
        return {"heads": plain(match_heads(curves, (first.places, second.places)))}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: each record's arrays under its number."""
        arrays: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in DISTANCES}
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
            "distances": {name: getattr(self, name) for name in DISTANCES},
        }
        results = printable(dict(zip(self.labels, curves, strict=True)))
        return {
            name: partial(build, REPORT, results, references)
            for name, build in KERNEL_FIGURES.items()
        }

    def _of(self) -> str:
        return " and ".join(map(repr, self.labels))


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
        correlation=_pairs([_varying(curve) for curve in curves]),
        alignment=_pairs([_centred(kernel) for kernel in kernels]),
        walk=None if isinstance(layout, Grid) else walks(layout.size, seed),
        environment=environment("cpu", seed, command),
    )


def walks(n: int, seed: int) -> dict[str, Any]:
    """Return how alike two independent random walks over ``n`` distances are, 95 % quantiles.

    Both measures compare smooth curves, and smooth curves correlate by chance (Yule 1926).
    """
    rng = np.random.default_rng(seed)
    x, y = np.cumsum(rng.standard_normal((2, DRAWS, n)), axis=2)
    a, b = (walk[:, 1:] - walk[:, 1:].mean(axis=1, keepdims=True) for walk in (x, y))
    correlation = (a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1))
    alignment = toeplitz(x, y) / np.sqrt(toeplitz(x, x) * toeplitz(y, y))
    return {
        "draws": DRAWS,
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
    return Line(n)


def _positions(record: Record) -> int | None:
    match record:
        case PositionTable():
            return len(record)
        case RelativeBias():
            return record.layout.size
        case Rotary():
            return record.seen(record.max_positions)
        case LinearBias():
            return record.max_positions


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


def _pairs(values: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
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
    records = document["records"]
    labels = tuple(record["label"] for record in records)
    return Page(
        title=" · ".join(labels),
        subject="kernels side by side",
        lead=narrator.kernels_lead(document),
        headline=narrator.kernels_headline(document["pairs"], document["walk"]),
        notes=(
            *(told for record in records for told in narrator.measured(record)),
            *narrator.positions_compared(document),
            *(f"{record['label']}: {note}." for record in records for note in record["notes"]),
        ),
        pictures=pictures("kernels", ("curves", "kernels")),
        subjects=labels,
        evidence=(*_kernel_pairs(document), *_answers(document)),
        key=narrator.KERNEL_KEY,
        numbers=_numbers(records),
        provenance=(
            *(Fact(record["label"], _whence(record["source"])) for record in records),
            *versions(document["environment"]),
        ),
    )


def _kernel_pairs(document: Block) -> Iterator[Evidence]:
    for place, pair in enumerate(document["pairs"]):
        line = narrator.pair_line(pair, document["walk"], f"pair-{place}")
        said = tuple(narrator.pair_sentences(pair, document["walk"]))
        drawn = () if place else pictures("kernels", ("distances",))
        yield Evidence((line,), sentences=said, pictures=drawn)


def _answers(document: Block) -> Iterator[Evidence]:
    """Yield the questions with the answer of each encoding; bundles of 0.1.0 answer none."""
    for told in document.get("verdict", {}).get("answers", ()):
        yield Evidence(
            tuple(
                narrator.kernel_line(told["question"], told["answers"].get(each["label"], ""), each)
                for each in document["records"]
            )
        )


def _numbers(records: list[Block]) -> Table:
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
