"""Results become figures: one drawing per kind of result, and the figures of a bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses import (
    PCA,
    AttentionByOffset,
    GramDCT,
    HeadLogits,
    MeanDecomposition,
    Norms,
    Patches,
    Probes,
    Scale,
    Seams,
    Shift,
    Similarity,
    SinusoidFit,
    Spectrogram,
    Spectrum,
)
from posprobe.analyses.effective import EffectiveTable
from posprobe.analyses.experiments import BlankImages, PermutationEffect, PhaseShift
from posprobe.analyses.head_logits import HeadsByLayer
from posprobe.analyses.heads import Heads, heads
from posprobe.analyses.probes import AbsoluteProbe
from posprobe.analyses.rotation import Rotation
from posprobe.analyses.smoothness import Smoothness
from posprobe.analyses.subspaces import SubspaceOverlap
from posprobe.encodings import wavelengths
from posprobe.figures import draw as drawing
from posprobe.figures import (
    draw_compare,
    draw_experiments,
    draw_forward,
    draw_probes,
    draw_rotary,
    draw_scale,
    draw_schemes,
    draw_shift,
    draw_sinusoid,
    draw_subspaces,
    draw_timefreq,
)
from posprobe.figures.forward import NUMBERS, forward_figures
from posprobe.figures.schemes import kernel_figures, scheme_figures
from posprobe.figures.styles import new_figure, printable, style
from posprobe.schemes import MAX_KERNEL, LinearBias, RelativeBias, Rotary
from posprobe.table import Grid, PositionTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posprobe.analyses import Result
    from posprobe.drawable import Drawable

_R = TypeVar("_R")


def draw(result: Drawable, ax: Axes | None = None) -> Axes:
    """Draw a result or an encoding into ``ax``, or into a new pyplot figure, and return the Axes.

    Raises
    ------
    TypeError
        If there is no drawing for this kind of result.
    """
    with style():
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(layout="constrained")
        match result:
            case Similarity():
                image = drawing.heat_map(ax, result.raw, result.start)
                ax.figure.colorbar(image, ax=ax, label="cosine")
            case PCA():
                drawing.variance(ax, result)
            case Spectrum():
                drawing.power(ax, result)
            case Norms():
                drawing.norms(ax, result)
            case Patches():
                image = drawing.mosaic(ax, result)
                ax.figure.colorbar(image, ax=ax, label="cosine")
            case Spectrogram():
                draw_timefreq.spectrogram(ax, result)
            case GramDCT():
                draw_timefreq.gram_dct(ax, result)
            case Shift():
                draw_shift.shift_plane(ax, result)
            case Seams():
                draw_shift.seam_profile(ax, result)
            case SinusoidFit():
                draw_sinusoid.sinusoids(ax, result)
            case Probes():
                draw_probes.probes(ax, result)
            case AbsoluteProbe():
                draw_probes.predictions(ax, result)
            case Scale():
                draw_scale.scale(ax, result)
            case Heads():
                _heads(ax, result)
            case Rotation(training=training, target=target):
                draw_rotary.ladder(ax, result.wavelength, result.unscaled, training, target)
            case Smoothness():
                draw_schemes.smoothness(ax, result)
            case HeadLogits():
                image = draw_forward.head_profiles(ax, {0: result})
                ax.figure.colorbar(image, ax=ax, label="share of the largest")
            case HeadsByLayer():
                image = draw_forward.head_profiles(ax, result.layers)
                ax.figure.colorbar(image, ax=ax, label="share of the largest")
            case SubspaceOverlap():
                draw_subspaces.overlap_curve(ax, result)
            case AttentionByOffset():
                image = draw_forward.attention_profiles(ax, result)
                ax.figure.colorbar(image, ax=ax, label="attention")
            case MeanDecomposition():
                draw_forward.through_layers(ax, result)
            case EffectiveTable():
                draw_forward.effective_numbers(ax, result, NUMBERS)
            case PermutationEffect():
                draw_experiments.changes(ax, result)
            case PhaseShift():
                draw_experiments.shift_change(ax, result)
            case BlankImages():
                draw_experiments.blank_alignment(ax, result)
                ax.legend(loc="best")
            case PositionTable():
                ax.figure.colorbar(drawing.matrix(ax, result), ax=ax, label="value")
            case RelativeBias(quantity=quantity, causal=causal):
                curves = result.curves(min(result.layout.size, MAX_KERNEL))
                _heads(ax, heads(curves, quantity=quantity, causal=causal))
            case Rotary(max_positions=target, training_length=training):
                before = replace(result, scaling={}).frequencies()
                turns = wavelengths(result.frequencies(target))
                draw_rotary.ladder(ax, turns, wavelengths(before), training, target)
            case LinearBias():
                draw_rotary.slopes(ax, result.slopes, result.max_positions or 512)
            case _:
                raise TypeError(f"there is no drawing for a {type(result).__name__}")
    return ax


def _heads(ax: Axes, result: Heads) -> None:
    if isinstance(result.layout, Grid):
        draw_schemes.head_maps(ax, result)
    else:
        draw_schemes.offset_curves(ax, result)


def bundle_figures(
    table: PositionTable, results: Mapping[str, Result]
) -> dict[str, Callable[[], Figure]]:
    """Name the figures that a bundle holds and how to make each.

    Parameters
    ----------
    table
        The table itself.
    results
        The analyses by name (``norms``, ``similarity``, ``pca``, ``spectrum``, ``grid``), any of
        which may be missing.
    """
    figures: dict[str, Callable[[], Figure]] = {}
    patches = results.get("grid")
    if isinstance(patches, Patches):
        figures["mosaic"] = lambda: _mosaic(patches)
    similarity = results.get("similarity")
    if isinstance(similarity, Similarity):
        figures["similarity"] = lambda: _similarity(similarity)
        figures["profile"] = lambda: _profile(similarity)
    pca = results.get("pca")
    if isinstance(pca, PCA):
        figures["variance"] = lambda: _variance(pca)
        if not pca.undefined:
            figures["components"] = lambda: _components(pca)
    spectrum = results.get("spectrum")
    if isinstance(spectrum, Spectrum) and not spectrum.undefined:
        figures["spectrum"] = lambda: _spectrum(spectrum)
    for name, result in results.items():
        match result:
            case Spectrogram() if result.length:
                figures[name] = partial(_spectrogram, result)
            case Shift() if not result.undefined:
                figures[name] = partial(_shift, result)
            case Seams() if not result.undefined:
                figures[name] = partial(_seams, result)
            case SinusoidFit() if result.sinusoids is not None:
                figures[name] = partial(_sinusoid, result)
            case Probes() if not result.undefined:
                figures[name] = partial(_probes, result)
    if isinstance(patches, Patches):
        figures["plane_spectrum"] = lambda: _plane_spectrum(patches)
    norms = results.get("norms")
    if isinstance(norms, Norms):
        figures["norms"] = lambda: _norms(norms, table)
    figures["table"] = lambda: _table(table)
    return figures


def comparison_figures(
    similarities: Mapping[str, Similarity],
    spectra: Mapping[str, Spectrum],
    components: Mapping[str, PCA],
    bands: Mapping[str, draw_compare.Band],
    distances: Mapping[str, NDArray[np.float64]],
) -> dict[str, Callable[[], Figure]]:
    """Name the figures of a comparison and how to make each.

    Parameters
    ----------
    similarities, spectra, components
        Results by label, in one order.
    bands
        Null bands of the curves ``profile``, ``spectrum`` and ``variance``.
    distances
        ``[m, m]`` by name of the distance.
    """
    similarities, spectra = printable(similarities), printable(spectra)
    components = printable(components)

    def panels() -> Figure:
        rows = -(-len(similarities) // 3)
        figure = new_figure(6.3, 2.3 * rows + 0.2)
        draw_compare.similarity_panels(figure, similarities)
        return figure

    def curves() -> Figure:
        figure = new_figure(6.3, 5.2)
        upper, lower = figure.subplots(2, 1)
        draw_compare.profiles(upper, similarities, bands.get("profile"))
        draw_compare.spectra(lower, spectra, bands.get("spectrum"))
        return figure

    def variance() -> Figure:
        figure = new_figure(4.6, 2.8)
        draw_compare.variances(figure.subplots(), components, bands.get("variance"))
        return figure

    def pairs() -> Figure:
        size = 1.0 + 0.38 * len(similarities)
        figure = new_figure(1.2 + 1.15 * size * len(distances), 0.9 + size)
        axes = figure.subplots(1, len(distances), squeeze=False)[0]
        for ax, (name, matrix) in zip(axes, distances.items(), strict=True):
            draw_compare.distances(ax, matrix, list(similarities), name.replace("_", " "))
            if ax is not axes[0]:
                ax.set_yticklabels([])
        return figure

    on_line = not any(isinstance(result.layout, Grid) for result in similarities.values())
    figures = {"similarity": panels, "variance": variance, "distances": pairs}
    return figures | ({"curves": curves} if on_line else {})


def _similarity(result: Similarity) -> Figure:
    figure = new_figure(6.3, 3.0)
    left, right = figure.subplots(1, 2, sharey=True)
    drawing.heat_map(left, result.raw, result.start)
    image = drawing.heat_map(right, result.centered, result.start)
    left.set_title("rows as stored")
    right.set_title("mean row subtracted")
    right.set_ylabel("")
    figure.colorbar(image, ax=(left, right), label="cosine", shrink=0.9, aspect=30)
    return figure


def _profile(result: Similarity) -> Figure:
    on_grid = isinstance(result.layout, Grid)
    figure = new_figure(4.0, 3.2) if on_grid else new_figure(6.3, 2.4)
    ax = figure.subplots()
    drawing.profile(ax, result)
    if on_grid:
        figure.colorbar(ax.images[0], ax=ax, label="mean centred cosine", shrink=0.9)
    return figure


def _variance(result: PCA) -> Figure:
    figure = new_figure(4.6, 2.6)
    drawing.variance(figure.subplots(), result)
    return figure


def _components(result: PCA) -> Figure:
    count = min(6, result.scores.shape[1])
    columns = min(3, count)
    rows = -(-count // columns)
    on_grid = isinstance(result.layout, Grid)
    figure = new_figure(6.3, (2.0 if on_grid else 1.45) * rows)
    axes = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for component, ax in enumerate(axes.flat):
        if component < count:
            drawing.score(ax, result, component)
            if not on_grid:
                ax.locator_params(nbins=4)
        else:
            ax.set_axis_off()
    if not on_grid:
        figure.supxlabel("position")
        figure.supylabel("score")
    return figure


def _spectrum(result: Spectrum) -> Figure:
    if isinstance(result.layout, Grid):
        figure = new_figure(4.2, 2.6)
        drawing.power(figure.subplots(), result)
        return figure
    figure = new_figure(6.3, 2.8)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    drawing.power(left, result)
    drawing.ladder(right, result)
    return figure


def _sinusoid(result: SinusoidFit) -> Figure:
    figure = new_figure(6.3, 2.5)
    left, right = figure.subplots(1, 2)
    draw_sinusoid.sinusoids(left, result)
    draw_sinusoid.base(right, result)
    return figure


def _spectrogram(result: Spectrogram) -> Figure:
    figure = new_figure(6.3, 2.5)
    draw_timefreq.spectrogram(figure.subplots(), result)
    return figure


def _shift(result: Shift) -> Figure:
    figure = new_figure(3.6, 3.4)
    draw_shift.shift_plane(figure.subplots(), result)
    return figure


def _seams(result: Seams) -> Figure:
    figure = new_figure(6.3, 2.1)
    draw_shift.seam_profile(figure.subplots(), result)
    return figure


def _probes(result: Probes) -> Figure:
    figure = new_figure(4.6, 2.6)
    draw_probes.probes(figure.subplots(), result)
    return figure


def _mosaic(result: Patches) -> Figure:
    figure = new_figure(5.2, 4.6)
    ax = figure.subplots()
    image = drawing.mosaic(ax, result)
    figure.colorbar(image, ax=ax, label="cosine", shrink=0.9, aspect=30)
    return figure


def _plane_spectrum(result: Patches) -> Figure:
    figure = new_figure(4.0, 3.0)
    drawing.plane_power(figure.subplots(), result)
    return figure


def _norms(result: Norms, table: PositionTable) -> Figure:
    on_grid = isinstance(table.layout, Grid)
    figure = new_figure(3.8, 3.0) if on_grid else new_figure(6.3, 2.1)
    drawing.norms(figure.subplots(), result, table.layout, table.start)
    return figure


def _table(table: PositionTable) -> Figure:
    figure = new_figure(6.3, 2.8)
    ax = figure.subplots()
    figure.colorbar(drawing.matrix(ax, table), ax=ax, label="value", aspect=30)
    return figure


__all__ = [
    "bundle_figures",
    "comparison_figures",
    "draw",
    "forward_figures",
    "kernel_figures",
    "scheme_figures",
    "style",
]
