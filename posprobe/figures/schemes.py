"""Schemes, encodings without a table: their figures, rotations, slopes, smoothness of biases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.models.head_biases import Heads, Smoothness
from posprobe.analyses.models.rotary import EQUAL_WAVELENGTH_TOLERANCE, Rotation
from posprobe.analyses.models.rotary_weights import WeightUse
from posprobe.arrays import Floats
from posprobe.encodings import wavelengths
from posprobe.figures import rotary_use
from posprobe.figures.common import (
    REPORT,
    Builder,
    FigureExtras,
    FigureFormat,
    annotate_point,
    label_decades,
    write_undefined,
)
from posprobe.figures.relative import choose_drawing, heads_figure
from posprobe.figures.styles import (
    BLUE,
    INK,
    MUTED,
    ONE_SIDED_COLORMAP,
    PALE,
    RED,
    make_labels_printable,
)
from posprobe.layouts import Grid
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses import Result

_ResultType = TypeVar("_ResultType")


def plot_rotation(ax: Axes, result: Rotation | Rotary) -> None:
    """Draw each pair's wavelength beside the context lengths."""
    if isinstance(result, Rotary):
        lengths = map(result.seen, (result.training_length, result.max_positions))
        frequencies, unscaled = (
            result.frequencies(result.max_positions),
            result.unscaled(),
        )
        _plot_wavelengths(ax, wavelengths(frequencies), wavelengths(unscaled), *lengths)
    else:
        _plot_wavelengths(
            ax, result.wavelength, result.unscaled, result.training, result.target
        )


def _plot_wavelengths(
    ax: Axes,
    wavelength: Floats,
    unscaled: Floats,
    training: int | None,
    target: int | None,
) -> None:
    """Draw each pair's wavelength beside the context lengths; arguments as in `Rotation`."""
    pair = np.arange(len(wavelength))
    if not np.allclose(wavelength, unscaled, rtol=EQUAL_WAVELENGTH_TOLERANCE):
        unscaled = np.where(np.isfinite(unscaled), unscaled, np.nan)
        dots = (0, (1, 1.2))
        ax.plot(pair, unscaled, color=MUTED, linestyle=dots, label="before scaling")
    finite = np.where(np.isfinite(wavelength), wavelength, np.nan)
    ax.plot(pair, finite, color=BLUE, marker=".", markersize=3, label="wavelength")
    _mark_lengths(ax, training, target)
    if target and (never_turns := wavelength > target).any():
        _shade_pairs_without_turn(ax, never_turns)
    ax.locator_params(axis="x", integer=True)
    ax.set(yscale="log", xlabel="pair, fastest first")
    ax.set_ylabel("wavelength (positions per turn)")
    ax.set_xlim(-0.5, len(pair) - 0.5)
    label_decades(ax.yaxis)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.2)


def _mark_lengths(ax: Axes, training: int | None, target: int | None) -> None:
    """Draw a line at each context length, both labelled where they differ."""
    if target:
        label = f"length {target}" if training == target else f"target length, {target}"
        ax.axhline(target, color=RED, linewidth=0.8)
        annotate_point(ax, label, (0, target), (2, 2), va="bottom")
    if training and training != target:
        ax.axhline(training, color=RED, linewidth=0.8, linestyle=(0, (4, 1.5)))
        label = f"training length, {training}"
        annotate_point(ax, label, (0, training), (2, -2), va="top")


def _shade_pairs_without_turn(ax: Axes, never_turns: NDArray[np.bool_]) -> None:
    """Shade the pairs that complete no turn within the target length, and count them."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], never_turns, [False]])))
    for start, stop in edges.reshape(-1, 2):
        ax.axvspan(start - 0.5, stop - 0.5, color=MUTED, alpha=0.15, linewidth=0)
    ax.annotate(
        f"{never_turns.sum()} of {never_turns.size} pairs\nnever complete a turn",
        (0.98, 0.03),
        xycoords="axes fraction",
        ha="right",
        va="bottom",
    )


def plot_decay(ax: Axes, result: Rotation) -> None:
    """Draw the mean rotation by distance and where it is first negative."""
    is_positive = result.distance > 0
    distance = result.distance[is_positive]
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.plot(distance, result.kernel[is_positive], color=BLUE, label="mean rotation")
    if result.first_negative is not None and result.first_negative <= distance[-1]:
        ax.plot([result.first_negative], [0], "o", color=RED, markersize=3.5)
        note_text, note_position = (
            f"first negative: {result.first_negative}",
            (result.first_negative, 0),
        )
        annotate_point(ax, note_text, note_position, (-3, -4), ha="right", va="top")
    axis_text = "" if result.axes == 1 else " along one axis"
    ax.set(
        xscale="log",
        xlabel=f"distance{axis_text} (positions)",
        ylabel="mean rotation",
    )
    ax.set_xlim(1, distance[-1])
    ax.set_ylim(min(-0.3, float(result.kernel.min()) - 0.05), 1.03)
    label_decades(ax.xaxis)


def rotation_figure(
    figure_format: FigureFormat, results: Mapping[str, Rotation], _: FigureExtras
) -> Figure:
    """Draw each ladder of wavelengths, and beside it the mean rotation by distance."""
    count = len(results)
    shape = (2 * count, 1) if figure_format.is_narrow else (count, 2)
    figure = figure_format.make_figure(
        (2.2 if figure_format.is_narrow else 2.7) * shape[0]
    )
    axes = figure.subplots(*shape, squeeze=False).reshape(count, 2)
    for (left, right), (name, result) in zip(axes, results.items(), strict=True):
        plot_rotation(left, result)
        plot_decay(right, result)
        if count > 1:
            left.set_ylabel(f"{name}\n{left.get_ylabel()}")
        elif not figure_format.is_exact:
            figure.suptitle(name)
    return figure


#: Length of the axis where the record states no number of positions.
DEFAULT_SLOPE_POSITIONS = 512


def plot_slopes(ax: Axes, record: LinearBias) -> None:
    """Draw the penalty of each head by distance, a straight line on logarithmic axes."""
    from matplotlib import colormaps

    values = record.slopes
    distance = np.array(
        [1, max((record.max_positions or DEFAULT_SLOPE_POSITIONS) - 1, 2)]
    )
    # The lightest colours of the map are invisible on white.
    colors = colormaps[ONE_SIDED_COLORMAP](np.linspace(0, 0.85, len(values)))
    stride = math.ceil(len(values) / 8)
    # Heads are labelled by rank of their slopes, so that labels are spread evenly.
    labelled = np.argsort(-values, kind="stable")[::stride]
    for head, slope in enumerate(values):
        ax.plot(distance, slope * distance, color=colors[head], linewidth=0.9)
    for head in labelled:
        end = (distance[-1], values[head] * distance[-1])
        annotate_point(ax, f"head {head}", end, (3, 0), va="center")
    ax.axhline(1, color=RED, linewidth=0.8, linestyle=(0, (4, 1.5)))
    ax.set(xscale="log", yscale="log", xlabel="distance (positions)")
    ax.set_ylabel("penalty (logits; dashed: 1)")
    ax.set_xlim(1, distance[-1])
    label_decades(ax.xaxis, ax.yaxis)


def slopes_figure(
    figure_format: FigureFormat, results: Mapping[str, LinearBias], _: FigureExtras
) -> Figure:
    """Draw the penalty of every head by distance."""
    ((name, record),) = results.items()
    figure = figure_format.make_figure(2.4 if figure_format.is_narrow else 2.8, width=4.4)
    ax = figure.subplots()
    plot_slopes(ax, record)
    if not figure_format.is_exact:
        ax.set_title(name)
    return figure


#: At most this many encodings are labelled on an axis.
MAX_NAMED_LAYERS = 24


def plot_smoothness(ax: Axes, result: Smoothness) -> None:
    """Draw the correlation of neighbouring distances per head over the permutations' 95 %."""
    head = np.arange(len(result.correlation))
    if not np.isfinite(result.correlation).any():
        write_undefined(ax, "every head has the same value at every distance")
        return
    ax.bar(
        head, result.p95, width=0.8, color=PALE, label="95 % of permutations lie below"
    )
    ax.plot(head, result.correlation, "o", color=BLUE, markersize=3.5, label="head")
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.set(xlabel="head", ylabel="correlation of neighbouring distances")
    low = float(np.nanmin(np.append(result.correlation, 0)))
    ax.set_ylim(min(low, 0) - 0.05, 1.02)
    ax.locator_params(axis="x", integer=True)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)


def depth_figure(
    figure_format: FigureFormat, results: Mapping[str, Smoothness], _: FigureExtras
) -> Figure:
    """Draw the smoothness of every head against its encoding, and the median of each encoding."""
    figure = figure_format.make_figure(2.4)
    ax = figure.subplots()
    positions = np.arange(len(results))
    for x, result in zip(positions, results.values(), strict=True):
        heads = result.correlation
        head_offsets = (
            0.25 * np.linspace(-1, 1, len(heads)) if len(heads) > 1 else np.zeros(1)
        )
        ax.plot(
            x + head_offsets,
            heads,
            ".",
            color=BLUE,
            markersize=3,
            label="head" if x == 0 else None,
        )
    highest = [_keep_finite(result.p95).max(initial=0) for result in results.values()]
    ax.bar(
        positions, highest, width=0.8, color=PALE, label="95 % of permutations lie below"
    )
    finite_correlations = [
        _keep_finite(result.correlation) for result in results.values()
    ]
    median = [
        float(np.median(heads)) if heads.size else np.nan for heads in finite_correlations
    ]
    ax.plot(
        positions,
        median,
        color=INK,
        linewidth=0.8,
        marker="_",
        markersize=9,
        label="median",
    )
    ax.axhline(0, color=MUTED, linewidth=0.5)
    step = math.ceil(len(results) / MAX_NAMED_LAYERS)
    label_angle = 90 if sum(map(len, results)) > 80 else 0
    ax.set_xticks(positions[::step], list(results)[::step], rotation=label_angle)
    ax.set(xlabel="encoding", ylabel="correlation of\nneighbouring distances")
    ax.margins(x=0.02)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3)
    return figure


def _keep_finite(values: Floats) -> Floats:
    return values[np.isfinite(values)]


#: A bundle has at most this many figures, however many encodings the checkpoint has.
MAX_FIGURES = 12
#: At most this many encodings of one kind get figures of their own.
MAX_SINGLE_FIGURES = 2


def scheme_figures(
    records: Sequence[Scheme], results: Sequence[Mapping[str, Result]]
) -> dict[str, Callable[[], Figure]]:
    """Return functions that make the figures of a bundle of schemes, by name.

    Biases of one kind share a figure, and equal rotations are drawn once.

    Parameters
    ----------
    records
        The encodings of one checkpoint.
    results
        Results of each record by name.
    """
    names = list(
        make_labels_printable(
            dict.fromkeys(shorten_names([record.name for record in records]))
        )
    )
    results_by_name = dict(zip(names, results, strict=True))
    figures: dict[str, Callable[[], Figure]] = {}

    def add(name: str, build: Builder, records_by_name: Mapping[str, Any]) -> None:
        if len(figures) < MAX_FIGURES:
            figures[name] = partial(build, REPORT, records_by_name, {})

    def add_each(name: str, build: Builder, records_by_name: Mapping[str, Any]) -> None:
        for k, (label, record) in enumerate(
            islice(records_by_name.items(), MAX_SINGLE_FIGURES)
        ):
            add(name if k == 0 else f"{name}_{k + 1}", build, {label: record})

    by_name = dict(zip(names, records, strict=True))
    learned = {
        name for name, record in by_name.items() if isinstance(record, RelativeBias)
    }
    all_heads = _select_results(
        {name: results_by_name[name] for name in names if name in learned}, "heads", Heads
    )
    for ending, learned_records in _group_learned_heads(all_heads):
        add(choose_drawing(learned_records) + ending, heads_figure, learned_records)
    smooth = _select_results(results_by_name, "smoothness", Smoothness)
    if len(smooth) > MAX_SINGLE_FIGURES:
        add("depth", depth_figure, smooth)
    add_each(
        "rotation",
        rotation_figure,
        drop_equal_rotations(_select_results(results_by_name, "rotation", Rotation)),
    )
    linear = {
        name: record for name, record in by_name.items() if isinstance(record, LinearBias)
    }
    add_each("slopes", slopes_figure, linear)
    weights_by_name = _select_results(results_by_name, "weights", WeightUse)
    drawable_weights = {
        name: record
        for name, record in weights_by_name.items()
        if record.layers and not record.normed
    }
    for name in ("weights_usage", "weights_curves"):
        add_each(name, getattr(rotary_use, f"{name}_figure"), drawable_weights)
    return figures


def _group_learned_heads(
    all_heads: Mapping[str, Heads],
) -> Iterator[tuple[str, dict[str, Heads]]]:
    """Yield heads of one quantity and kind of layout, with the ending of their figure's name."""
    for quantity, ending in (("bias", ""), ("cosine", "_cosine")):
        for on_grid in (False, True):
            group = {
                name: heads
                for name, heads in all_heads.items()
                if heads.quantity == quantity
                and isinstance(heads.layout, Grid) == on_grid
            }
            if group:
                yield ending, group


def _select_results(
    results_by_name: Mapping[str, Mapping[str, Result]],
    name: str,
    result_type: type[_ResultType],
) -> dict[str, _ResultType]:
    """Return the encodings' results of this name and class, by label."""
    labelled_results = (
        (label, results.get(name)) for label, results in results_by_name.items()
    )
    return {
        label: result
        for label, result in labelled_results
        if isinstance(result, result_type)
    }


def shorten_names(names: Sequence[str]) -> list[str]:
    """Drop the words that all names begin and end with; number names that are not unique."""
    words = [name.split(".") for name in names]
    if len(set(names)) < len(names):
        return [f"{number}: {name}" for number, name in enumerate(names)]
    if len(names) == 1:
        return list(names)
    head = tail = 0
    while len({tuple(word[: head + 1]) for word in words}) == 1:
        head += 1
    while len({tuple(word[len(word) - tail - 1 :]) for word in words}) == 1:
        tail += 1
    shortened_names = [
        ".".join(word[head : len(word) - tail]) or ".".join(word) for word in words
    ]
    return (
        shortened_names
        if len(set(shortened_names)) == len(shortened_names)
        else list(names)
    )


def drop_equal_rotations(rotations: Mapping[str, Rotation]) -> dict[str, Rotation]:
    """Keep the first of several rotations with equal frequencies and equal lengths."""
    first_names: dict[tuple[Any, ...], str] = {}
    for name, rotation in rotations.items():
        first_names.setdefault(
            (rotation.wavelength.tobytes(), rotation.training, rotation.target), name
        )
    return {name: rotations[name] for name in first_names.values()}
