"""Comparison of encodings of any scheme, and of runs, by how similarity depends on distance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses import similarity
from posprobe.analyses.descriptive.kernels import draw_walk_correlations, standardise
from posprobe.analyses.models.attention_budget import AttentionBudget
from posprobe.analyses.models.head_biases import heads
from posprobe.analyses.models.rotary_use import HeadIndex, match_heads
from posprobe.analyses.result import as_block, to_json
from posprobe.arrays import Floats
from posprobe.blocks import describe_environment
from posprobe.encodings.tables import check_integer
from posprobe.errors import InvalidTable, UsageError
from posprobe.layouts import (
    Grid,
    Layout,
    Sequence as Line,
    check_no_video,
    describe_layout,
)
from posprobe.progress import stage
from posprobe.questions.schemes import answer_kernel
from posprobe.report.document import shared_block
from posprobe.report.files import KERNELS_SCHEMA
from posprobe.schemes import (
    MAX_KERNEL_ROWS,
    POSITION_UNIT,
    Encoding,
    LinearBias,
    RelativeBias,
    Rotary,
    declared_length,
)
from posprobe.sources import Source, describe_source
from posprobe.studies.comparison import (
    PairwiseComparison,
    apply_labels,
    check_at_least_two,
    load_references,
    make_names_unique,
    symmetric_matrix,
)
from posprobe.studies.saved_runs import SavedRun, read_run
from posprobe.studies.schemes import check_record
from posprobe.tables import PositionTable
from posprobe.words.schemes import kernels_headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: Number of positions that are compared if no record states a length.
DEFAULT_KERNEL_LENGTH = 512
#: Largest number of positions that are compared unless the user states a length.
MAX_DEFAULT_KERNEL_LENGTH = 1024
#: Reason for an undefined correlation.
FLAT_CURVE_REASON = "an encoding has the same value at every distance"
#: Reason for an undefined share of the offset in a run's kernel.
MEAN_CURVE_REASON = "the curves of a run are means over the places of queries"
#: Numbers of pairs that are shown as matrices.
PAIR_NUMBERS = ("correlation", "alignment")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class KernelComparison(PairwiseComparison):
    """Encodings of any scheme at one length.

    Parameters
    ----------
    labels
        Names of the records, all different.
    records
        Encodings that are compared.
    layout
        Positions at which all of them are compared.
    curves
        Mean curve over heads of each encoding: ``[2 n - 1]`` by offset, key minus query, or ``[2 h
        - 1, 2 w - 1]`` by displacement. Where later keys are hidden, they mirror the earlier ones.
    kernels
        Kernel of each encoding, ``[n, n]``: for a table its cosines, else the mean over heads of
        the bias or rotation between positions.
    invariance
        Share of each kernel's variance off the diagonal that the offset explains.
    correlation, alignment
        ``[m, m]``, NaN on the diagonal and where undefined: Pearson's correlation of the curves
        over all distances but 0, and the centred kernel alignment (Cortes et al. 2012).
    walk
        95 % quantiles of the magnitudes of both for two independent random walks over distance;
        None on a grid.
    environment
        Versions, seed, command and time.
    """

    pair_numbers = PAIR_NUMBERS

    records: tuple[Encoding, ...]
    layout: Layout
    curves: tuple[Floats, ...]
    kernels: tuple[Floats, ...]
    invariance: tuple[float | None, ...]
    correlation: Floats
    alignment: Floats
    walk: dict[str, Any] | None

    def _document(
        self, encodings: list[dict[str, Any]], pairs: list[dict[str, Any]]
    ) -> dict[str, Any]:
        answers = map(answer_kernel, encodings)
        verdict = shared_block(dict(zip(self.labels, answers, strict=True)))
        headline = kernels_headline(pairs, self.walk, encodings)
        return {
            "schema": KERNELS_SCHEMA,
            "length": self.layout.size,
            "layout": describe_layout(self.layout),
            "records": encodings,
            "pairs": pairs,
            "walk": self.walk,
            "verdict": verdict | {"summary": f"{headline} {verdict['summary']}".lstrip()},
            "environment": self.environment,
        }

    def matrix(self, name: str) -> Floats:
        """Return ``correlation`` or ``alignment``, ``[m, m]``."""
        return np.asarray(getattr(self, name))

    def _encoding_block(self, index: int) -> dict[str, Any]:
        record = self.records[index]
        # The mean over heads has one head.
        measured = heads(
            self.curves[index][None], quantity="cosine", causal=_is_causal(record)
        )
        numbers = {
            name: _nan_to_none(getattr(measured, name)[0])
            for name in ("half_width", "monotone_fraction", "asymmetry")
        } | {"translation_invariance": self.invariance[index]}
        undefined = {
            "translation_invariance": MEAN_CURVE_REASON
            if isinstance(record, MeasuredHeads)
            else FLAT_CURVE_REASON,
            **as_block(measured)["undefined"],
        }
        return {
            "label": self.labels[index],
            "name": record.name,
            "family": record.family,
            "scheme": record.scheme,
            "quantity": _quantity(record),
            "head_count": 1 if isinstance(record, PositionTable) else record.heads,
            "causal": _is_causal(record),
            "positions": _record_length(record),
            **numbers,
            "undefined": {
                key: undefined[key] for key, number in numbers.items() if number is None
            },
            "notes": list(record.notes),
            **({"run": record.run} if isinstance(record, MeasuredHeads) else {}),
            "source": describe_source(record.source),
        }

    def _pair_block(self, i: int, j: int) -> dict[str, Any]:
        numbers = {name: _nan_to_none(getattr(self, name)[i, j]) for name in PAIR_NUMBERS}
        pair = {
            "records": [self.labels[i], self.labels[j]],
            **numbers,
            "undefined": {
                name: FLAT_CURVE_REASON
                for name, number in numbers.items()
                if number is None
            },
        }
        match self.records[i], self.records[j]:
            case MeasuredHeads() as first, MeasuredHeads() as second:
                curves = _visible_curves(first, second, self.layout.size)
                pair["heads"] = to_json(
                    match_heads(curves, (first.places, second.places))
                )
        return pair

    def _encoding_arrays(self, index: int) -> dict[str, NDArray[Any]]:
        return {"curve": self.curves[index], "kernel": self.kernels[index]}

    def _figures(self, extras: dict[str, Any]) -> dict[str, Callable[[], Figure]]:
        from posprobe.figures.common import REPORT
        from posprobe.figures.comparison import KERNEL_FIGURES
        from posprobe.figures.styles import make_labels_printable

        curves = [
            standardise(curve, curve.size // 2)
            if isinstance(self.layout, Grid)
            else standardise(_fold_offsets(curve), 0)[1:]
            for curve in self.curves
        ]
        results = make_labels_printable(dict(zip(self.labels, curves, strict=True)))
        figures: dict[str, Callable[[], Figure]] = {
            name: partial(build, REPORT, results, extras)
            for name, build in KERNEL_FIGURES.items()
        }
        match self.records:
            case (MeasuredHeads() as first, MeasuredHeads() as second):
                figures["heads"] = self._heads_figure(first, second)
        return figures

    def _heads_figure(
        self, first: MeasuredHeads, second: MeasuredHeads
    ) -> Callable[[], Figure]:
        """Return the builder of the figure of the best matching heads of two runs."""
        from posprobe.figures.common import REPORT
        from posprobe.figures.rotary_use import matched_heads_figure
        from posprobe.figures.styles import make_labels_printable

        n, places = self.layout.size, (first.places, second.places)
        curves = _visible_curves(first, second, n)
        by_distance = [
            dict(zip(head_indices, head_curves[:, ::-1], strict=True))
            for head_indices, head_curves in zip(places, curves, strict=True)
        ]
        results = make_labels_printable(dict(zip(self.labels, by_distance, strict=True)))
        distances = np.arange(n - curves[0].shape[1], n)
        extras = {"matched": match_heads(curves, places).matched, "distances": distances}
        return partial(matched_heads_figure, REPORT, results, extras)


def _visible_curves(
    first: MeasuredHeads, second: MeasuredHeads, n: int
) -> tuple[Floats, Floats]:
    """Return the curves of two runs' heads, only at earlier keys if either run is causal."""
    visible = n if first.causal or second.causal else None
    return first.curves(n)[:, :visible], second.curves(n)[:, :visible]


def compare_kernels(
    *records: Encoding | str | PathLike[str],
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
        Two or more tables, schemes or references, all on a line or all on the same grid. A formula
        without sizes, such as ``sinusoidal``, takes the shape of the first table.
    labels
        Names of the records, one for each; None keeps their own.
    length
        Number of positions; None for those of the shortest record, up to 1,024. A grid has its own.
    seed
        Random seed of the random walks that correlations are compared with.
    command
        Command line to record.

    Raises
    ------
    UsageError
        If there are fewer than two records, one is not an encoding, there are not as many labels,
        they share no length, or the length is not a whole number, below three or longer than a
        table.
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
    check_at_least_two(records, "encodings.")
    encodings: tuple[Encoding, ...] = load_references(records, seed)
    for record in encodings:
        check_record(record)
    length = None if length is None else check_integer("the length", length)
    encodings = apply_labels(encodings, labels)
    layout = _common_layout(encodings, length)
    with stage("Measuring encodings", len(encodings)) as advance:
        measured = []
        for record in encodings:
            measured.append(_measure(record, layout))
            advance(1)
    curves, kernels, invariance = zip(*measured, strict=True)
    return KernelComparison(
        labels=make_names_unique([record.name for record in encodings]),
        records=encodings,
        layout=layout,
        curves=curves,
        kernels=kernels,
        invariance=invariance,
        correlation=_pairwise_cosines([_centre_curve(curve) for curve in curves]),
        alignment=_pairwise_cosines([_centre_kernel(kernel) for kernel in kernels]),
        walk=None
        if isinstance(layout, Grid)
        else draw_walk_correlations(layout.size, seed),
        environment=describe_environment("cpu", seed, command),
    )


def _common_layout(records: Sequence[Encoding], length: int | None) -> Layout:
    units = {getattr(record, "unit", POSITION_UNIT): record.name for record in records}
    if len(units) > 1:
        units_text = "; ".join(
            f"those of {name} count {unit}" for unit, name in units.items()
        )
        raise UsageError(
            f"distances have different units: {units_text}. Compare those with one unit."
        )
    for record in records:
        if isinstance(record, PositionTable):
            check_no_video(record.layout, record.name)
    layouts = [getattr(record, "layout", None) for record in records]
    grids = [layout for layout in layouts if isinstance(layout, Grid)]
    if grids:
        if any(layout != grids[0] for layout in layouts):
            units_text = ", ".join(record.name for record in records)
            raise UsageError(
                f"{units_text}: positions of a {grids[0]} compare only with those of the same grid."
            )
        if length not in (None, grids[0].size) or grids[0].size < 3:
            raise UsageError(
                f"a {grids[0]} has {grids[0].size} positions: all are compared, from three on."
            )
        return grids[0]
    stated_lengths = [n for n in map(_record_length, records) if n is not None]
    default_length = min([*stated_lengths, MAX_DEFAULT_KERNEL_LENGTH])
    if not stated_lengths:
        default_length = DEFAULT_KERNEL_LENGTH
    n = default_length if length is None else length
    table_lengths = [
        len(record) for record in records if isinstance(record, PositionTable)
    ]
    max_length = min([*table_lengths, MAX_KERNEL_ROWS])
    if not 3 <= n <= max_length:
        raise UsageError(f"{n} positions: from 3 to {max_length} can be compared.")
    return Line(n)


def _record_length(record: Encoding) -> int | None:
    return len(record) if isinstance(record, PositionTable) else declared_length(record)


def _quantity(record: Encoding) -> Literal["cosine", "bias", "rotation", "logit"]:
    match record:
        case MeasuredHeads():
            return "logit"
        case RelativeBias():
            return record.quantity
        case LinearBias():
            return "bias"
        case Rotary():
            return "rotation"
        case PositionTable():
            return "cosine"


def _is_causal(record: Encoding) -> bool:
    return not isinstance(record, PositionTable | Rotary) and record.causal


def _measure(record: Encoding, layout: Layout) -> tuple[Floats, Floats, float | None]:
    """Return the curve and the kernel of the mean head, and the translation invariance."""
    n = layout.size
    if isinstance(record, PositionTable):
        table = record if len(record) == n else record[:n]
        if not np.any(table.values, axis=1).all():
            raise InvalidTable(
                f"{record.name}: a zero row has no direction, so its "
                "cosines are undefined. Leave it out with `table[A:B]`."
            )
        cosine = similarity(table).raw
        mean = cosine.offset_mean
        curve = mean if mean.ndim == 2 else np.concatenate([mean[:0:-1], mean])
        return curve, cosine.matrix, cosine.translation_invariance
    curve = np.asarray(record.curves(n).mean(axis=0))
    if _is_causal(record) and curve.ndim == 1:
        curve = np.concatenate([curve[:n], curve[n - 2 :: -1]])
    # The mean curve counts as one head, so the kernels of single heads are not needed.
    kernel = RelativeBias(curve[None], layout, record.name, record.source).kernel(n)[0]
    is_by_offset = not isinstance(record, MeasuredHeads) and _centre_curve(curve).any()
    return curve, kernel, 1.0 if is_by_offset else None


def _fold_offsets(curve: Floats) -> Floats:
    n = len(curve) // 2
    return np.asarray((curve[n:] + curve[n::-1]) / 2)


def _centre_curve(curve: Floats) -> Floats:
    """Return a curve by distance, centred and without distance 0; zeros if it is flat."""
    values = (
        np.delete(curve, curve.size // 2) if curve.ndim > 1 else _fold_offsets(curve)[1:]
    )
    return _zero_if_flat(values, values - values.mean())


def _centre_kernel(kernel: Floats) -> Floats:
    rows = kernel - kernel.mean(axis=1, keepdims=True)
    return _zero_if_flat(kernel, rows - rows.mean(axis=0))


def _zero_if_flat(values: Floats, centred: Floats) -> Floats:
    """Return zeros if the values are equal and only rounding is left after centring."""
    is_flat = np.abs(centred).max() <= 1e-12 * np.abs(values).max()
    return np.zeros_like(centred) if is_flat else centred


def _pairwise_cosines(arrays: Sequence[Floats]) -> Floats:
    """Return cosines between arrays, ``[m, m]``; NaN on the diagonal and with an array of zeros."""
    norms = [float(np.linalg.norm(array)) for array in arrays]
    cosines = {
        (i, j): float(np.vdot(arrays[i], arrays[j])) / (norms[i] * norms[j])
        for i, j in combinations(range(len(arrays)), 2)
        if norms[i] * norms[j]
    }
    return symmetric_matrix(len(arrays), cosines)


def _nan_to_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


@dataclass(frozen=True, eq=False, repr=False)
class MeasuredHeads(RelativeBias):
    """Mean logits of the heads of a model by offset, measured in a run.

    Parameters
    ----------
    places
        Layer and number of each head.
    run
        Contexts of the run, and what decides where its heads look: the block ``run`` of its
        encoding.
    """

    scheme: ClassVar[Any] = "measured"

    places: tuple[HeadIndex, ...] = ()
    run: dict[str, Any] | None = None


def measured_heads(reference: str) -> MeasuredHeads | None:
    """Read the curves of a run's heads from its bundle; None if the folder holds no run.

    Only distances that all layers were measured at are kept, fewer if a layer has a window.

    Raises
    ------
    UsageError
        If the run did not measure the attention budget, or its contexts are images.
    InvalidCheckpoint
        If the bundle is damaged.
    """
    run = read_run(reference)
    if run is None:
        return None
    budget = run.budget
    if isinstance(budget.layout, Grid):
        raise UsageError(
            f"{reference}: a run on images, whose heads have no distances between tokens. "
            "The figure attention-budget compares it with others."
        )
    return MeasuredHeads(
        values=_offset_curves(budget),
        layout=Line(min(layer.window for layer in budget.layers if layer.window)),
        name=budget.name,
        source=Source(reference, str(Path(reference).resolve())),
        causal=not budget.both_sides,
        places=tuple((head.layer, head.head) for head in budget.heads),
        run=describe_budget(run),
    )


def describe_budget(run: SavedRun) -> dict[str, Any]:
    """Return what decides where the heads of a run look, and on which contexts, for JSON."""
    budget = run.budget
    names = ("distance", "key", "other", "content", "moved", "most", "contexts", "tokens")
    return {
        **{name: getattr(budget, name) for name in names},
        "heads": len(budget.heads),
        "kind": run.contexts_kind,
    }


def _offset_curves(budget: AttentionBudget) -> Floats:
    """Turn curves by distance, query minus key, into curves of heads by offset, its opposite.

    If a head does not see later keys, they mirror the earlier ones.
    """
    window = min(layer.window for layer in budget.layers if layer.window)
    zero = int(np.flatnonzero(budget.displacements[:, 0] == 0)[0])
    head_curves = []
    for curve in budget.curves:
        earlier_keys = curve[zero : zero + window]
        later_keys = curve[max(zero - window + 1, 0) : zero + 1][::-1]
        if len(later_keys) < window or np.isnan(later_keys).any():
            later_keys = earlier_keys
        head_curves.append(np.concatenate([earlier_keys[:0:-1], later_keys]))
    return np.stack(head_curves)
