"""The figures of encodings without a table, and of kernels side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.heads import Heads
from posprobe.analyses.rotation import Rotation
from posprobe.analyses.smoothness import Smoothness
from posprobe.figures import draw_rotary, draw_schemes
from posprobe.figures.styles import MUTED, new_figure, printable
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme
from posprobe.table import Grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.analyses import Result

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
    relative: dict[tuple[bool, str], dict[str, Heads]] = {}
    rotations: dict[str, Rotation] = {}
    linear: dict[str, LinearBias] = {}
    smooth: dict[str, Smoothness] = {}
    for name, record, found in zip(names, records, results, strict=True):
        match record:
            case RelativeBias():
                heads = found["heads"]
                if isinstance(heads, Heads):
                    kind = isinstance(record.layout, Grid), record.quantity
                    relative.setdefault(kind, {})[name] = heads
                if isinstance(smoothness := found.get("smoothness"), Smoothness):
                    smooth[name] = smoothness
            case Rotary():
                rotation = found["rotation"]
                if isinstance(rotation, Rotation) and not _drawn(rotation, rotations):
                    rotations[name] = rotation
            case LinearBias():
                linear[name] = record

    def every() -> Iterator[tuple[str, Make]]:
        for (_, quantity), layers in relative.items():
            yield from _relative(layers, quantity)
        if len(smooth) > ALONE:
            windows = relative.get((True, "bias")) or relative.get((False, "bias")) or {}
            yield "depth", partial(_depth, windows, smooth)
        for k, (name, rotation) in enumerate(islice(rotations.items(), ALONE)):
            yield _numbered("rotation", k), partial(_rotation, name, rotation)
        for k, (name, record) in enumerate(islice(linear.items(), ALONE)):
            yield _numbered("slopes", k), partial(_slopes, name, record)
        if len(records) <= ALONE:
            yield "kernels", partial(_kernels, dict(zip(names, records, strict=True)))

    return dict(islice(every(), MAX_FIGURES))


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


def _drawn(rotation: Rotation, others: Mapping[str, Rotation]) -> bool:
    return any(
        np.array_equal(rotation.wavelength, other.wavelength)
        and (rotation.training, rotation.target) == (other.training, other.target)
        for other in others.values()
    )


def _relative(layers: Mapping[str, Heads], quantity: str) -> Iterator[tuple[str, Make]]:
    on_grid = any(isinstance(heads.layout, Grid) for heads in layers.values())
    ending = "" if quantity == "bias" else "_cosine"
    largest = max(len(heads.curves) for heads in layers.values())
    if on_grid and largest == 1 and len(layers) > 1:
        maps = {name: heads.curves[0] for name, heads in layers.items()}
        yield f"maps{ending}", partial(_maps, maps, quantity)
    elif on_grid and len(layers) <= ALONE:
        for k, (name, heads) in enumerate(layers.items()):
            shown = draw_schemes.centred(heads)[: draw_schemes.MAX_HEADS]
            maps = {f"head {head}": values for head, values in enumerate(shown)}
            yield _numbered("maps", k) + ending, partial(_maps, maps, quantity, name)
    elif on_grid:
        yield f"mosaic{ending}", partial(_mosaic, layers)
    elif len(layers) <= ALONE and largest <= draw_schemes.MAX_HEADS:
        for k, (name, heads) in enumerate(layers.items()):
            yield _numbered("curves", k) + ending, partial(_curves, name, heads)
    else:
        yield f"stripes{ending}", partial(_stripes, layers)


def _numbered(name: str, k: int) -> str:
    return name if k == 0 else f"{name}_{k + 1}"


def _maps(maps: Mapping[str, NDArray[np.float64]], quantity: str, title: str = "") -> Figure:
    shown = dict(islice(maps.items(), draw_schemes.MAX_LAYERS))
    rows, columns = draw_schemes.balanced(len(shown), 6)
    side = min(5.2 / columns, 2.4)
    figure = new_figure(min(6.3, side * columns + 1.1), (side + 0.22) * rows + 0.35)
    draw_schemes.map_panels(figure, shown, draw_schemes.CENTRED[quantity], quantity)
    figure.suptitle(title)
    return figure


def _mosaic(layers: Mapping[str, Heads]) -> Figure:
    rows = min(len(layers), draw_schemes.MAX_LAYERS)
    columns = min(max(len(heads.curves) for heads in layers.values()), draw_schemes.MAX_HEADS)
    side = min(4.3 / columns, 0.45)
    figure = new_figure(6.3 if side * columns > 3 else 4.6, side * rows + 0.7)
    draw_schemes.mosaic(figure, layers)
    return figure


def _curves(name: str, heads: Heads) -> Figure:
    count = min(len(heads.curves), draw_schemes.MAX_HEADS)
    rows, columns = draw_schemes.balanced(count, 4)
    figure = new_figure(6.3 if columns > 2 else 2.1 * columns + 1, 1.25 * rows + 0.45 + (rows == 1))
    draw_schemes.head_panels(figure, heads)
    also = " (dashed: mean over heads)" if len(heads.curves) > 1 else ""
    figure.suptitle(f"{name}{also}")
    return figure


def _stripes(layers: Mapping[str, Heads]) -> Figure:
    total = sum(len(heads.curves) for heads in layers.values())
    figure = new_figure(6.3, min(max(0.07 * total, 0.2 * len(layers)) + 0.8, 7.5))
    draw_schemes.stripes(figure.subplots(), layers)
    return figure


def _depth(layers: Mapping[str, Heads], smooth: Mapping[str, Smoothness]) -> Figure:
    figure = new_figure(6.3, 4.2 if layers else 2.4)
    axes = figure.subplots(2 if layers else 1, 1, sharex=set(layers) == set(smooth), squeeze=False)
    if layers:
        windows = {name: heads.window for name, heads in layers.items()}
        draw_schemes.depth(axes[0, 0], windows, "window (positions)")
        axes[0, 0].set_ylim(bottom=0)
        axes[0, 0].legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2)
    found = {name: result.correlation for name, result in smooth.items()}
    chance = {name: result.p95 for name, result in smooth.items()}
    draw_schemes.depth(axes[-1, 0], found, "correlation of\nneighbouring distances", chance)
    axes[-1, 0].axhline(0, color=MUTED, linewidth=0.5)
    axes[-1, 0].legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3)
    axes[-1, 0].set_xlabel("encoding")
    return figure


def _rotation(name: str, result: Rotation) -> Figure:
    figure = new_figure(6.3, 2.7)
    left, right = figure.subplots(1, 2)
    draw_rotary.ladder(left, result.wavelength, result.unscaled, result.training, result.target)
    draw_rotary.decay(right, result)
    figure.suptitle(name)
    return figure


def _slopes(name: str, record: LinearBias) -> Figure:
    figure = new_figure(4.4, 2.8)
    ax = figure.subplots()
    draw_rotary.slopes(ax, record.slopes, record.max_positions or 512)
    ax.set_title(name)
    return figure


def _kernels(records: Mapping[str, Scheme]) -> Figure:
    figure = new_figure(0.3 + 3.0 * len(records), 2.9)
    axes = figure.subplots(1, len(records), squeeze=False)[0]
    for ax, (name, record) in zip(axes, records.items(), strict=True):
        kernel = record.kernel(_positions(record)).mean(axis=0)
        quantity = record.quantity if isinstance(record, RelativeBias) else "bias"
        label = draw_schemes.CENTRED[quantity].replace("the head's", "its")
        if isinstance(record, Rotary):
            quantity, label = "cosine", "mean rotation"
        causal = not isinstance(record, Rotary) and record.causal
        if quantity == "bias":
            known = np.tril(np.ones_like(kernel, dtype=bool)) if causal else kernel == kernel
            kernel = kernel - kernel[known].mean()
            limit, extend = draw_schemes.shared_range([kernel[known]], quantity)
        else:
            limit, extend = 1.0, "neither"
        image = draw_schemes.kernel_map(ax, kernel, limit, quantity, causal=causal)
        ax.set_title(name)
        figure.colorbar(image, ax=ax, label=label, extend=extend, shrink=0.9, aspect=30)
    return figure


def _positions(record: Scheme) -> int:
    if isinstance(record, RelativeBias):
        if isinstance(record.layout, Grid):
            return record.layout.size
        return min(record.layout.length, KERNEL)
    return min(record.max_positions or KERNEL, KERNEL)


def kernel_figures(
    curves: Mapping[str, NDArray[np.float64]],
    kernels: Mapping[str, NDArray[np.float64]],
    distances: Mapping[str, NDArray[np.float64]],
) -> dict[str, Make]:
    """Name the figures of kernels side by side, and how to make each.

    Parameters
    ----------
    curves
        Standardised, by label: ``[n - 1]`` by distance from 1, or ``[2h - 1, 2w - 1]`` by
        displacement on a grid.
    kernels
        ``[n, n]``, standardised, by label.
    distances
        ``[m, m]`` by name of the distance.
    """
    from posprobe.figures import draw_compare

    curves, kernels = printable(curves), printable(kernels)

    def overlay() -> Figure:
        if next(iter(curves.values())).ndim == 2:
            rows, columns = draw_schemes.balanced(len(curves), 4)
            side = 5.2 / max(columns, 2)
            figure = new_figure(side * columns + 1.1, (side + 0.25) * rows + 0.3)
            draw_schemes.map_panels(figure, curves, "standard deviations", "bias")
            return figure
        figure = new_figure(6.3, 2.8)
        draw_schemes.standard_curves(figure.subplots(), curves)
        return figure

    def maps() -> Figure:
        rows, columns = draw_schemes.balanced(len(kernels), 3)
        figure = new_figure(6.3, (5.4 / max(columns, 2) + 0.2) * rows + 0.1)
        axes = figure.subplots(rows, columns, squeeze=False)
        for ax in axes.flat[len(kernels) :]:
            ax.set_axis_off()
        for ax, (label, kernel) in zip(axes.flat, kernels.items(), strict=False):
            image = draw_schemes.kernel_map(ax, kernel, 3, "bias")
            ax.set_title(label)
        figure.colorbar(image, ax=axes, label="standard deviations", extend="both", aspect=30)
        return figure

    def pairs() -> Figure:
        size = 1.0 + 0.38 * len(kernels)
        figure = new_figure(1.2 + 1.15 * size * len(distances), 0.9 + size)
        axes = figure.subplots(1, len(distances), squeeze=False)[0]
        for ax, (name, matrix) in zip(axes, distances.items(), strict=True):
            draw_compare.distances(ax, matrix, list(kernels), name, signed=True)
            if ax is not axes[0]:
                ax.set_yticklabels([])
        return figure

    return {"curves": overlay, "kernels": maps, "distances": pairs}
