"""Encodings without a table: which figures they get, rotations, slopes, smoothness of biases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from posprobe.analyses.models.head_biases import Heads, Smoothness
from posprobe.analyses.models.rotary import SAME, Rotation
from posprobe.analyses.models.rotary_weights import WeightUse
from posprobe.arrays import Floats
from posprobe.encodings import wavelengths
from posprobe.figures import builder
from posprobe.figures.common import REPORT, Beside, Sheet, ends_of, maps, note, nothing, plain
from posprobe.figures.relative import CENTRED, HEAD_FIGURES, in_range, suited
from posprobe.figures.styles import BLUE, GRID, INK, MUTED, ONE_SIDED, RED, printable
from posprobe.layouts import Grid
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme, stated_length

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses import Result
    from posprobe.figures.common import Builder
    from posprobe.schemes import LinearBias


def plot_rotation(ax: Axes, result: Rotation | Rotary) -> None:
    """Draw each pair's wavelength beside the context lengths."""
    if isinstance(result, Rotary):
        lengths = map(result.seen, (result.training_length, result.max_positions))
        used, before = result.frequencies(result.max_positions), result.unscaled()
        _ladder(ax, wavelengths(used), wavelengths(before), *lengths)
    else:
        _ladder(ax, result.wavelength, result.unscaled, result.training, result.target)


def _ladder(
    ax: Axes,
    wavelength: Floats,
    unscaled: Floats,
    training: int | None,
    target: int | None,
) -> None:
    """Draw each pair's wavelength beside the context lengths; arguments as in `Rotation`."""
    pair = np.arange(len(wavelength))
    if not np.allclose(wavelength, unscaled, rtol=SAME):
        before = np.where(np.isfinite(unscaled), unscaled, np.nan)
        ax.plot(pair, before, color=MUTED, linestyle=(0, (1, 1.2)), label="before scaling")
    ax.plot(pair, np.where(np.isfinite(wavelength), wavelength, np.nan), color=BLUE, marker=".",
            markersize=3, label="wavelength")  # fmt: skip
    lengths = {"target": (target, "-"), "training": (training, (0, (4, 1.5)))}
    if training == target:
        del lengths["training"]
    for name, (length, dash) in lengths.items():
        if length:
            ax.axhline(length, color=RED, linewidth=0.8, linestyle=dash)
            what = f"{name} length, {length}" if len(lengths) > 1 else f"length {length}"
            below = name == "training" and "target" in lengths
            away = (2, -2 if below else 2)
            note(ax, what, (0, length), away, va="top" if below else "bottom")
    if target and (never := wavelength > target).any():
        for start in pair[never & ~np.concatenate([[False], never[:-1]])]:
            run = np.argmin(never[start:]) if not never[start:].all() else never[start:].size
            ax.axvspan(start - 0.5, start + run - 0.5, color=MUTED, alpha=0.15, linewidth=0)
        ax.annotate(
            f"{never.sum()} of {never.size} pairs\nnever complete a turn",
            (0.98, 0.03), xycoords="axes fraction", ha="right", va="bottom",
        )  # fmt: skip
    ax.locator_params(axis="x", integer=True)
    ax.set(yscale="log", xlabel="pair, fastest first", ylabel="wavelength (positions per turn)")
    ax.set_xlim(-0.5, len(pair) - 0.5)
    plain(ax.yaxis)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.2)


def decay(ax: Axes, result: Rotation) -> None:
    """Draw the mean rotation by distance and where it is first negative, with the bound's shape.

    The bound is RoFormer's, on logits in units of the content's differences: relative to its value
    at distance 0, it bounds nothing that is drawn here.
    """
    later = result.distance > 0
    distance = result.distance[later]
    bound = result.bound[later] / result.bound[0]
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.plot(distance, bound, color=MUTED, linestyle=(0, (4, 1.5)), label="shape of the bound")
    ax.plot(distance, result.kernel[later], color=BLUE, label="mean rotation")
    if result.first_negative is not None and result.first_negative <= distance[-1]:
        ax.plot([result.first_negative], [0], "o", color=RED, markersize=3.5)
        said, at = f"first negative: {result.first_negative}", (result.first_negative, 0)
        note(ax, said, at, (-3, -4), ha="right", va="top")
    along = "" if result.axes == 1 else " along one axis"
    ax.set(
        xscale="log",
        xlabel=f"distance{along} (positions)",
        ylabel="share of the value at distance 0",
    )
    ax.set_xlim(1, distance[-1])
    ax.set_ylim(min(-0.3, float(result.kernel.min()) - 0.05), 1.03)
    plain(ax.xaxis)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.2)


def rotation_figure(sheet: Sheet, results: Mapping[str, Rotation], _: Beside) -> Figure:
    """Draw each ladder of wavelengths, and beside it how the mean rotation falls."""
    count = len(results)
    shape = (2 * count, 1) if sheet.narrow else (count, 2)
    figure = sheet.figure((2.2 if sheet.narrow else 2.7) * shape[0])
    axes = figure.subplots(*shape, squeeze=False).reshape(count, 2)
    for (left, right), (name, result) in zip(axes, results.items(), strict=True):
        plot_rotation(left, result)
        decay(right, result)
        if sheet.width <= 6:
            for ax in (left, right):
                ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2)
        if count > 1:
            left.set_ylabel(f"{name}\n{left.get_ylabel()}")
        elif not sheet.exact:
            figure.suptitle(name)
    return figure


#: Positions that are drawn where the record states none.
POSITIONS = 512


def plot_slopes(ax: Axes, record: LinearBias) -> None:
    """Draw the penalty of each head by distance on logarithmic axes, where it is a line."""
    from matplotlib import colormaps

    values = record.slopes
    distance = np.array([1, max((record.max_positions or POSITIONS) - 1, 2)])
    # The lightest end of the map is lost on white.
    colors = colormaps[ONE_SIDED](np.linspace(0, 0.85, len(values)))
    every = math.ceil(len(values) / 8)
    # Labels stand in the order of the slopes, whatever the order of the heads.
    labelled = np.argsort(-values, kind="stable")[::every]
    for head, slope in enumerate(values):
        ax.plot(distance, slope * distance, color=colors[head], linewidth=0.9)
    for head in labelled:
        end = (distance[-1], values[head] * distance[-1])
        note(ax, f"head {head}", end, (3, 0), va="center")
    ax.axhline(1, color=RED, linewidth=0.8, linestyle=(0, (4, 1.5)))
    ax.set(xscale="log", yscale="log", xlabel="distance (positions)")
    ax.set_ylabel("penalty (logits; dashed: 1)")
    ax.set_xlim(1, distance[-1])
    plain(ax.xaxis, ax.yaxis)


def slopes_figure(sheet: Sheet, results: Mapping[str, LinearBias], _: Beside) -> Figure:
    """Draw the penalty of every head by distance."""
    ((name, record),) = results.items()
    figure = sheet.figure(2.4 if sheet.narrow else 2.8, width=4.4)
    ax = figure.subplots()
    plot_slopes(ax, record)
    if not sheet.exact:
        ax.set_title(name)
    return figure


#: Most encodings that are named on an axis.
NAMED = 24


def plot_smoothness(ax: Axes, result: Smoothness) -> None:
    """Draw the correlation of neighbouring distances per head over the permutations' 95 %."""
    head = np.arange(len(result.correlation))
    if not np.isfinite(result.correlation).any():
        nothing(ax, "every head has the same value at every distance")
        return
    ax.bar(head, result.p95, width=0.8, color=GRID, label="95 % of permutations lie below")
    ax.plot(head, result.correlation, "o", color=BLUE, markersize=3.5, label="head")
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.set(xlabel="head", ylabel="correlation of neighbouring distances")
    low = float(np.nanmin(np.append(result.correlation, 0)))
    ax.set_ylim(min(low, 0) - 0.05, 1.02)
    ax.locator_params(axis="x", integer=True)
    ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)


def _by_encoding(
    ax: Axes,
    values: Mapping[str, Floats],
    label: str,
    chance: Mapping[str, Floats] | None = None,
) -> None:
    """Draw one number of every head against its encoding, and the median of each encoding.

    Parameters
    ----------
    ax
        To draw into.
    values
        ``[heads]`` by encoding.
    label
        What the numbers are.
    chance
        Of each head, what 95 % of permutations stay below; the highest is drawn.
    """
    at = np.arange(len(values))
    for x, heads in zip(at, values.values(), strict=True):
        spread = 0.25 * np.linspace(-1, 1, len(heads)) if len(heads) > 1 else np.zeros(1)
        ax.plot(x + spread, heads, ".", color=BLUE, markersize=3, label="head" if x == 0 else None)
    if chance:
        highest = [heads[np.isfinite(heads)].max(initial=0) for heads in chance.values()]
        ax.bar(at, highest, width=0.8, color=GRID, label="95 % of permutations lie below")
    defined = [heads[np.isfinite(heads)] for heads in values.values()]
    median = [float(np.median(heads)) if heads.size else np.nan for heads in defined]
    ax.plot(at, median, color=INK, linewidth=0.8, marker="_", markersize=9, label="median")
    step = math.ceil(len(values) / NAMED)
    ax.set_xticks(
        at[::step], list(values)[::step], rotation=90 if sum(map(len, values)) > 80 else 0
    )
    ax.set_ylabel(label)
    ax.margins(x=0.02)


def depth_figure(sheet: Sheet, results: Mapping[str, Smoothness], beside: Beside) -> Figure:
    """Draw the smoothness by encoding, below the windows of the ``heads`` of what is beside."""
    layers = beside.get("heads", {})
    figure = sheet.figure(4.2 if layers else 2.4)
    axes = figure.subplots(
        2 if layers else 1, 1, sharex=set(layers) == set(results), squeeze=False
    )[:, 0]  # fmt: skip
    if layers:
        windows = {name: heads.window for name, heads in layers.items()}
        _by_encoding(axes[0], windows, "window (positions)")
        axes[0].set_ylim(bottom=0)
    found = {name: result.correlation for name, result in results.items()}
    chance = {name: result.p95 for name, result in results.items()}
    _by_encoding(axes[-1], found, "correlation of\nneighbouring distances", chance)
    axes[-1].axhline(0, color=MUTED, linewidth=0.5)
    axes[-1].set_xlabel("encoding")
    for ax in axes:
        ax.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3)
    return figure


Make: TypeAlias = "Callable[[], Figure]"

#: Most figures of a bundle, whatever the checkpoint holds.
MAX_FIGURES = 12
#: Most encodings of one kind that get figures of their own.
ALONE = 2
#: Rows and columns of a kernel that is drawn: a band is as well seen in a few.
KERNEL = 256


def scheme_figures(
    records: Sequence[Scheme], results: Sequence[Mapping[str, Result]]
) -> dict[str, Make]:
    """Name the figures of a bundle of encodings without a table, and how to make each.

    Many encodings of one kind share a figure, and equal rotations are drawn once.

    Parameters
    ----------
    records
        The encodings of one checkpoint.
    results
        Of each, by name.
    """
    names = list(printable(dict.fromkeys(short_names([record.name for record in records]))))
    biases: dict[tuple[bool, str], dict[str, Heads]] = {}
    rotations: dict[str, Rotation] = {}
    weights: dict[str, WeightUse] = {}
    linear: dict[str, LinearBias] = {}
    smooth: dict[str, Smoothness] = {}
    for name, record, found in zip(names, records, results, strict=True):
        match record:
            case RelativeBias():
                if isinstance(heads := found["heads"], Heads):
                    kind = isinstance(record.layout, Grid), record.quantity
                    biases.setdefault(kind, {})[name] = heads
                if isinstance(result := found.get("smoothness"), Smoothness):
                    smooth[name] = result
            case Rotary():
                rotation = found["rotation"]
                if isinstance(rotation, Rotation):
                    rotations[name] = rotation
                used = found.get("weights")
                if isinstance(used, WeightUse) and used.layers and not used.normed:
                    weights[name] = used
            case LinearBias():
                linear[name] = record

    def every() -> Iterator[tuple[str, Make]]:
        for (_, quantity), layers in biases.items():
            ending = "" if quantity == "bias" else "_cosine"
            for name, shown in _shared(layers):
                kind = suited(shown, REPORT)
                yield name + ending, partial(HEAD_FIGURES[kind], REPORT, shown, {})
        if len(smooth) > ALONE:
            windows = biases.get((True, "bias")) or biases.get((False, "bias")) or {}
            yield "depth", partial(depth_figure, REPORT, smooth, {"heads": windows})
        single: dict[str, tuple[Builder, Mapping[str, Any]]] = {
            "rotation": (rotation_figure, unlike(rotations)), "slopes": (slopes_figure, linear),
        }  # fmt: skip
        for kind, (build, alone) in single.items():
            for k, (name, one) in enumerate(islice(alone.items(), ALONE)):
                yield _numbered(kind, k), partial(build, REPORT, {name: one}, {})
        for k, (name, one) in enumerate(islice(weights.items(), ALONE)):
            for kind in ("weights_usage", "weights_curves"):
                yield _numbered(kind, k), partial(builder(one, kind), REPORT, {name: one}, {})
        if len(records) <= ALONE:
            yield "kernels", partial(_kernels, REPORT, dict(zip(names, records, strict=True)))

    return dict(islice(every(), MAX_FIGURES))


def _shared(layers: Mapping[str, Heads]) -> Iterator[tuple[str, dict[str, Heads]]]:
    """Pick the encodings that share a figure, and its name: few that are large have their own."""
    alone = [suited({name: heads}, REPORT) for name, heads in layers.items()]
    together = suited(layers, REPORT)
    if len(layers) > ALONE or together == "maps" or "stripes" in alone:
        yield together, dict(layers)
        return
    for k, ((name, heads), kind) in enumerate(zip(layers.items(), alone, strict=True)):
        yield _numbered(kind, k), {name: heads}


def short_names(names: Sequence[str]) -> list[str]:
    """Leave out the words that all names begin and end with; number names that are not unique."""
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
    short = [".".join(word[head : len(word) - tail]) or ".".join(word) for word in words]
    return short if len(set(short)) == len(short) else list(names)


def unlike(rotations: Mapping[str, Rotation]) -> dict[str, Rotation]:
    """Keep the first of rotations that are equal, and have equal lengths."""
    first: dict[tuple[Any, ...], str] = {}
    for name, each in rotations.items():
        first.setdefault((each.wavelength.tobytes(), each.training, each.target), name)
    return {name: rotations[name] for name in first.values()}


def _numbered(name: str, k: int) -> str:
    return name if k == 0 else f"{name}_{k + 1}"


def _kernels(sheet: Sheet, records: Mapping[str, Scheme]) -> Figure:
    """Draw the kernel of each encoding, the mean over its heads; unseen keys are left empty."""
    figure = sheet.figure(2.9, width=0.3 + 3.0 * len(records))
    parts = figure.subfigures(1, len(records), squeeze=False)[0]
    for part, (name, record) in zip(parts, records.items(), strict=True):
        kernel = record.kernel(_positions(record)).mean(axis=0)
        quantity, label = "cosine", "mean rotation"
        if not isinstance(record, Rotary):
            quantity = record.quantity if isinstance(record, RelativeBias) else "bias"
            label = CENTRED[quantity].replace("the head's", "its")
            if record.causal:
                kernel[np.triu_indices(len(kernel), 1)] = np.nan
        if quantity == "bias":
            kernel = kernel - np.nanmean(kernel)
        look, extend = in_range([kernel[np.isfinite(kernel)]], quantity)
        # Of at most `KERNEL` positions: as many cells as a page shows.
        shown = {name: (kernel, ends_of(0, len(kernel)))}
        maps(part, shown, 1, label, ("key", "query"), extend=extend, **look)
    return figure


def _positions(record: Scheme) -> int:
    stated = stated_length(record) or KERNEL
    on_grid = isinstance(record, RelativeBias) and isinstance(record.layout, Grid)
    return stated if on_grid else min(stated, KERNEL)
