"""The figures of encodings without a table: which of them share one, and what it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from posprobe.analyses.heads import Heads
from posprobe.analyses.rotary_weights import WeightUse
from posprobe.analyses.rotation import Rotation
from posprobe.analyses.smoothness import Smoothness
from posprobe.figures import builder
from posprobe.figures.alibi import slopes_figure
from posprobe.figures.kernels import kernel_map
from posprobe.figures.relative import CENTRED, HEAD_FIGURES, shared_range, suited
from posprobe.figures.rotary import rotation_figure
from posprobe.figures.sheet import REPORT, Sheet
from posprobe.figures.smoothness import depth_figure
from posprobe.figures.styles import printable
from posprobe.layouts import Grid
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.analyses import Result
    from posprobe.figures.common import Builder

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
                if isinstance(rotation, Rotation) and not _drawn(rotation, rotations):
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
            "rotation": (rotation_figure, rotations), "slopes": (slopes_figure, linear),
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


def _drawn(rotation: Rotation, others: Mapping[str, Rotation]) -> bool:
    return any(
        np.array_equal(rotation.wavelength, other.wavelength)
        and (rotation.training, rotation.target) == (other.training, other.target)
        for other in others.values()
    )


def _numbered(name: str, k: int) -> str:
    return name if k == 0 else f"{name}_{k + 1}"


def _kernels(sheet: Sheet, records: Mapping[str, Scheme]) -> Figure:
    """Draw the kernel of each encoding, the mean over its heads."""
    figure = sheet.figure(2.9, width=0.3 + 3.0 * len(records))
    axes = figure.subplots(1, len(records), squeeze=False)[0]
    for ax, (name, record) in zip(axes, records.items(), strict=True):
        kernel = record.kernel(_positions(record)).mean(axis=0)
        quantity = record.quantity if isinstance(record, RelativeBias) else "bias"
        label = CENTRED[quantity].replace("the head's", "its")
        if isinstance(record, Rotary):
            quantity, label = "cosine", "mean rotation"
        causal = not isinstance(record, Rotary) and record.causal
        if quantity == "bias":
            known = np.tril(np.ones_like(kernel, dtype=bool)) if causal else kernel == kernel
            kernel = kernel - kernel[known].mean()
            limit, extend = shared_range([kernel[known]], quantity)
        else:
            limit, extend = 1.0, "neither"
        image = kernel_map(ax, kernel, limit, quantity, causal=causal)
        ax.set_title(name)
        figure.colorbar(image, ax=ax, label=label, extend=extend, shrink=0.9, aspect=30)
    return figure


def _positions(record: Scheme) -> int:
    if isinstance(record, RelativeBias):
        if isinstance(record.layout, Grid):
            return record.layout.size
        return min(record.layout.length, KERNEL)
    longest = record.max_positions
    if isinstance(record, Rotary):
        longest = record.seen(longest)
    return min(longest or KERNEL, KERNEL)
