"""Texts beside figures: how to read one, of what it is and how it was made, why it is lacking."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from posprobe.analyses import (
    PCA,
    Norms,
    Patches,
    Shift,
    Similarity,
    SinusoidFit,
    Spectrogram,
    Spectrum,
)
from posprobe.analyses.attention_by_offset import AttentionByOffset
from posprobe.analyses.axis_codes import AxisCodes
from posprobe.analyses.bridging import Bridging
from posprobe.analyses.budget import Budget
from posprobe.analyses.clock import Clock
from posprobe.analyses.head_logits import HeadsByLayer
from posprobe.analyses.mean_decomposition import MeanDecomposition
from posprobe.analyses.substitution import SubstitutionEffect
from posprobe.analyses.unit_rows import WINDOW
from posprobe.analyses.winding import Winding
from posprobe.layouts import Grid
from posprobe.number_format import show
from posprobe.report.narrator.words import listed, percent, some

#: Components that a figure draws against position.
COMPONENTS = 6
#: Periods that a caption lists.
PERIODS = 12


def baselines_caption(draws: int) -> str:
    """Say what numbers stand beside: the sinusoid's, and null models' where any were drawn."""
    caption = "Each number, and the same number of the sinusoid of this shape"
    if draws:
        caption += f" and of null models (5 to 95 % of {some(draws, 'draw')})"
    return caption


def _axis_codes_caption(results: Mapping[str, AxisCodes]) -> str:
    (result,) = results.values()
    rows, columns_ = (result.axes[name].share for name in ("rows", "columns"))
    return (
        "Leading principal components of the row code and the column code, the marginal means of "
        f"the position embeddings of patches. They hold {rows:.1%} and {columns_:.1%} of the "
        f"variance; {result.interaction_share:.1%} is interaction of row and column. Pairs of "
        "components that go round are drawn in their plane, coloured from the first row or column "
        "(open circle) to the last (black square), with their turns and their share of the code's "
        "variance."
    )


def _bridging_caption(results: Mapping[str, Bridging]) -> str:
    (result,) = results.values()
    last = result.start + result.stop - 1
    whose = f"held-out rows of positions {result.start + result.first} to {last}"
    if result.axes:
        whose = "held-out entries of the row code and of the column code"
    return (
        f"Share of the variance of {whose} that is predicted from the rest, by the width of "
        "the gap: by a straight line across it, by the smooth part of the additive model, by the "
        "whole model with its periodic components, and by one linear step. Smooth curves are "
        "bridged to about their length scale, periodic components far beyond it."
    )


def _mosaic_caption(results: Mapping[str, Patches]) -> str:
    from posprobe.figures.grid import MAX_TILES, tile_block

    (result,) = results.values()
    block = tile_block(result.layout)
    every = -(-max(result.layout.height, result.layout.width) // MAX_TILES)
    nth = {2: "second", 3: "third"}.get(every, f"{every}th")
    tiles = "each patch" if every == 1 else f"every {nth} patch of a row and column"
    pooled = f" Cells are means of {block} × {block} patches." if block > 1 else ""
    return (
        f"Similarity of position embeddings of patches. One tile for {tiles}, arranged as in the "
        "image; in a tile, the cosine of its patch with every patch of the image, its own cell "
        "being 1. Mean centred cosine: "
        f"{show(result.neighbour_right)} with the right neighbour, "
        f"{show(result.neighbour_below)} with the one below, {show(result.elsewhere)} with "
        f"patches of other rows and columns. The tiles show rows as stored, not centred.{pooled}"
    )


def _norms_caption(results: Mapping[str, Norms]) -> str:
    (result,) = results.values()
    count = len(result.outlier_rows)
    return (
        f"Euclidean norm of each position embedding: mean {result.norms.mean():.3g}, from "
        f"{result.norms.min():.3g} to {result.norms.max():.3g}; {count or 'no'} "
        f"row{'' if count == 1 else 's'} stand{'s' if count == 1 else ''} out."
    )


def _needed(result: PCA, share: float) -> str:
    count = result.components_for(share)
    beyond = "undefined" if result.undefined else f"more than {len(result.singular_values)}"
    return beyond if count is None else str(count)


def _variance_caption(results: Mapping[str, PCA]) -> str:
    text = (
        "Share of the variance by principal component and its running sum"
        if len(results) == 1
        else "Running sum of the share of variance over principal components"
    )
    numbers = "; ".join(
        f"{name} stable rank {show(result.stable_rank)}, {_needed(result, 0.90)} "
        f"components for 90 % and {_needed(result, 0.99)} for 99 %"
        for name, result in results.items()
    )
    return f"{text}, columns centred: {numbers}."


def _components_caption(results: Mapping[str, PCA]) -> str:
    (result,) = results.values()
    where = "maps of the grid" if isinstance(result.layout, Grid) else "functions of position"
    drawn = min(COMPONENTS, result.count)
    top = float(result.explained_variance_ratio[:drawn].sum())
    return (
        f"The first {drawn} principal components of the position embeddings (columns centred; "
        f"together {top:.1%} of the variance) as {where}; titles give each one's share. The "
        "components of a random walk are sinusoids, too."
    )


def _trajectory_caption(results: Mapping[str, PCA]) -> str:
    (result,) = results.values()
    drawn = min(3, result.count)
    top = float(result.explained_variance_ratio[:drawn].sum())
    text = f"Path of the positions through their first {drawn} principal components"
    if isinstance(result.layout, Grid):
        text = f"The patches in their first {drawn} principal components, one path per row"
    return (
        f"{text} (columns centred; {top:.1%} of the variance). White and black dots mark the "
        "first and the last. The plane is drawn to scale, the three axes are not."
    )


def _no_path(result: PCA) -> str:
    short = result.count < 2
    return result.undefined or ("a path needs two components, and there is one" if short else "")


def _shift_caption(results: Mapping[str, Shift]) -> str:
    (result,) = results.values()
    turning = [f"{period:.3g}" for period in result.periods[result.rotations].tolist()]
    rule = "no mode is a rotation by our rule"
    if turning:
        more = f" and {len(turning) - PERIODS} more" if len(turning) > PERIODS else ""
        periods = ", ".join(turning[:PERIODS])
        rule = f"filled ones are rotations by our rule, with periods {periods}{more}"
    return (
        "Eigenvalues of the linear map from each position to the next, fitted to the first "
        f"{result.rank} principal components; on the unit circle a mode keeps its amplitude, and "
        f"labels are its period in positions; {rule}. Skill on held-out rows: "
        f"{show(result.skill)} (1 is exact, 0 no better than no change or the mean row)."
    )


def _similarity_caption(results: Mapping[str, Similarity], centred: bool | None = None) -> str:
    from posprobe.figures.common import MAX_CELLS

    sides = {
        name: -(-len(result.raw.matrix) // MAX_CELLS) * result.raw.pooled
        for name, result in results.items()
    }
    pooled = " and ".join(
        f"those of {name} means of {side} × {side}" for name, side in sides.items() if side > 1
    )
    text = "Cosine similarity of every pair of position embeddings, on one range from -1 to 1"
    if centred:
        text += "; the mean row subtracted"
    elif len(results) == 1 and centred is None:
        text += ": rows as stored, and after subtracting the mean row"
    else:
        text += "; rows as stored, not centred"
    numbers = "; ".join(
        f"{name} {show(result.raw.neighbour_mean)} raw and "
        f"{show(result.centered.neighbour_mean)} centred"
        for name, result in results.items()
    )
    cells = f" Cells are pairs of positions, {pooled}." if pooled else ""
    return f"{text}. Mean cosine of neighbouring positions: {numbers}.{cells}"


def _profile_caption(results: Mapping[str, Similarity], centred: bool | None = None) -> str:
    first = next(iter(results.values()))
    treated = "as stored" if centred is False else "after subtracting the mean row"
    if isinstance(first.layout, Grid):
        return (
            "Mean cosine of position embeddings by the rows and columns between them, "
            f"{treated}; no displacement is in the middle."
        )
    shaded = "shaded: one standard deviation over pairs"
    which = treated
    if len(results) == 1:
        both = f"as stored (raw) and after subtracting the mean row (centred; {shaded})"
        which = both if centred is None else f"{treated} ({shaded})"
    falls = "; ".join(
        f"{name} {'undefined' if (share := r.raw.monotone_fraction) is None else f'{share:.1%}'}"
        for name, r in results.items()
    )
    return (
        f"Mean cosine of position embeddings by the offset between them, {which}. Share of steps "
        f"away from a position, up to offset {WINDOW}, at which the raw cosine falls: {falls}."
    )


def _comparison_caption(results: Mapping[str, Similarity], centred: bool | None = None) -> str:
    on_grid = isinstance(next(iter(results.values())).layout, Grid)
    by = "by columns apart in a row" if on_grid else "by offset"
    treated = "less the mean" if on_grid else "each dimension less its line, Hann window"
    return (
        f"{_similarity_caption(results, centred)} Below: mean cosine {by} after subtracting the "
        f"mean row, and the share of power by frequency ({treated})."
    )


def _spectrogram_caption(results: Mapping[str, Spectrogram]) -> str:
    (result,) = results.values()
    lines = "Circles: the fastest line above red noise."
    if np.isnan(result.fastest).all():
        lines = "No segment has a line above red noise."
    return (
        "Power of the position embeddings by position and frequency, summed over dimensions, in "
        f"segments of {result.length} positions, {result.step} apart (each less its line, Hann "
        f"window). {lines}"
    )


def _spectrum_caption(results: Mapping[str, Spectrum]) -> str:
    first = next(iter(results.values()))
    treated = (
        "two-dimensional transform of each dimension less its mean, over rings of equal frequency"
        if isinstance(first.layout, Grid)
        else f"each dimension less its {'line' if first.detrend == 'linear' else 'mean'}, "
        f"{first.window.title()} window"
    )
    entropy = "; ".join(f"{name} {show(result.entropy)}" for name, result in results.items())
    what = "Power spectrum" if len(results) == 1 else "Share of power by frequency"
    text = (
        f"{what} of the position embeddings along positions, summed over dimensions ({treated}). "
        f"Spectral entropy: {entropy}."
    )
    if len(results) > 1 or first.threshold is None:
        return text
    lines = ", ".join(f"{line.period:.3g}" for line in first.lines[:6])
    above = (
        f"Periods of the strongest lines above it: {lines} positions."
        if lines
        else "No line rises above it."
    )
    return (
        f"{text} Dashed: red noise fitted to it; dotted: its 1 % level over all frequencies. "
        f"{above} The other panel has each dimension's dominant frequency, fastest first, beside "
        "the frequencies of the sinusoid of base 10,000."
    )


def _winding_caption(results: Mapping[str, Winding]) -> str:
    (result,) = results.values()
    pair = result.pairs[0]
    first, second = (number + 1 for number in pair.components)
    last = result.start + len(result.scores) - 1
    return (
        f"Principal components {first} and {second} of positions {result.start} to {last} "
        f"({pair.share:.1%} of their variance) go round their centre {pair.turns:.2f} times; "
        "coloured by position, from the open circle to the black square. The period is that of "
        "each tenth of them. Components of a random walk make 0.75 turns, so turns alone prove "
        "nothing below one."
    )


def _budget_caption(results: Mapping[str, Budget]) -> str:
    mean = [f"{name}: {percent(each.mean or 0.0)}" for name, each in results.items()]
    which = mean[0].partition(": ")[2] if len(mean) == 1 else listed(mean)
    return (
        "What the variance around the mean row is made of, by the additive model: the shares add "
        f"up to 100 %. The mean row holds {which} of the sum of squares."
    )


def _clock_caption(results: Mapping[str, Clock]) -> str:
    (result,) = results.values()
    last = result.first + result.paths.shape[1] - 1
    text = (
        f"The rotations of positions {result.first} to {last}: the rows along the plane of each, "
        "coloured by position."
    )
    if result.shared:
        text += (
            f" Circles that read one clock explain {percent(result.one or 0.0)} of what lies in "
            f"these planes, circles of fixed periods {percent(result.fixed or 0.0)}. Below, the "
            "speed of that clock."
        )
    return text


def _no_wave(result: SinusoidFit) -> str:
    return "" if result.sinusoids is not None else "no wave was fitted"


def _no_pair(result: Winding) -> str:
    return result.undefined or ("" if result.pairs else "no pair of components goes round")


def _none_receives(result: AttentionByOffset) -> str:
    from posprobe.figures.model_attention import receivers

    return "" if receivers(result) else "there is no first position and no special token"


def _no_peaks(result: HeadsByLayer) -> str:
    found = any(layer.has_peak.any() for layer in result.layers.values())
    return "" if found else "no head prefers an offset"


def _still(result: MeanDecomposition) -> str:
    moves = any(layer.stable_rank is not None for layer in result.layers.values())
    return "" if moves else "positions add nothing at any layer"


def _no_plane(result: MeanDecomposition) -> str:
    width = next(iter(result.layers.values())).pos.shape[1]
    few = result.layout.size < 3 or width < 2
    return _still(result) or ("a path needs three positions and two dimensions" if few else "")


def _no_positions(found: SubstitutionEffect) -> str:
    return "" if found.by_position is not None else "the outputs have no positions"


#: From results by label, how to read a figure in a paper; of a comparison, all its panels.
CAPTIONS: Mapping[str, Callable[..., str]] = {
    "axis_codes": _axis_codes_caption,
    "bridging": _bridging_caption,
    "budget": _budget_caption,
    "clock": _clock_caption,
    "comparison": _comparison_caption,
    "components": _components_caption,
    "mosaic": _mosaic_caption,
    "norms": _norms_caption,
    "profile": _profile_caption,
    "shift": _shift_caption,
    "similarity": _similarity_caption,
    "spectrogram": _spectrogram_caption,
    "spectrum": _spectrum_caption,
    "trajectory": _trajectory_caption,
    "variance": _variance_caption,
    "winding": _winding_caption,
}
#: From a result, why a figure cannot be drawn; empty where it can.
LACKS: Mapping[str, Callable[[Any], str]] = {
    "cosines": _still,
    "first": _none_receives,
    "paths": _no_plane,
    "peaks": _no_peaks,
    "sinusoid": _no_wave,
    "substitution_positions": _no_positions,
    "trajectory": _no_path,
    "winding": _no_pair,
}
