"""Texts beside figures: how to read one, of what it is and how it was made, why it is lacking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

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
from posprobe.analyses.grids.grid import AxisCodes
from posprobe.analyses.models.attention import AttentionByOffset
from posprobe.analyses.models.experiments import SubstitutionEffect
from posprobe.analyses.models.head_logits import HeadsByLayer
from posprobe.analyses.models.states import MeanDecomposition
from posprobe.analyses.sequences.budget import Budget, Clock
from posprobe.analyses.sequences.winding import Winding
from posprobe.analyses.tables.bridging import Bridging
from posprobe.analyses.tables.similarity import WINDOW
from posprobe.data import read_data
from posprobe.layouts import Grid
from posprobe.report.narrator.models import no_heads
from posprobe.report.narrator.words import Words, capital, either, listed, percent, some
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme
from posprobe.sources import Source
from posprobe.tables import PositionTable
from posprobe.text import plain, show

if TYPE_CHECKING:
    from posprobe.analyses import Heads, Rotation


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


@cache
def _texts() -> Mapping[str, str]:
    return read_data("report/narrator/captions.toml")


def say(figure: str, **names: Any) -> str:
    """Fill the text of a figure."""
    return Words({}, **names).format(_texts()[figure])


def _axis_codes_caption(result: AxisCodes) -> str:
    return say("axis_codes", r=result)


def _bridging_caption(result: Bridging) -> str:
    last = result.start + result.stop - 1
    whose = f"held-out rows of positions {result.start + result.first} to {last}"
    if result.axes:
        whose = "held-out entries of the row code and of the column code"
    return say("bridging", whose=whose)


def _mosaic_caption(result: Patches) -> str:
    from posprobe.figures.grid import every, tile_block

    block, step = tile_block(result.layout), every(result.layout)
    nth = {2: "second", 3: "third"}.get(step, f"{step}th")
    tiles = "each patch" if step == 1 else f"every {nth} patch of a row and column"
    pooled = f" Cells are means of {block} × {block} patches." if block > 1 else ""
    return say("mosaic", r=result, tiles=tiles, pooled=pooled)


def _norms_caption(result: Norms) -> str:
    norms, count = result.norms, len(result.outlier_rows)
    outliers = f"{count or 'no'} {either(count, 'row stands|rows stand')} out"
    return say("norms", mean=norms.mean(), low=norms.min(), high=norms.max(), outliers=outliers)


def _needed(result: PCA, share: float) -> str:
    count = result.components_for(share)
    beyond = "undefined" if result.undefined else f"more than {len(result.singular_values)}"
    return beyond if count is None else str(count)


def _variance_caption(results: Mapping[str, PCA]) -> str:
    what = "Share of the variance by principal component and its running sum"
    if len(results) > 1:
        what = "Running sum of the share of variance over principal components"
    numbers = "; ".join(
        f"{name} stable rank {show(result.stable_rank)}, {_needed(result, 0.90)} "
        f"components for 90 % and {_needed(result, 0.99)} for 99 %"
        for name, result in results.items()
    )
    return say("variance", what=what, numbers=numbers)


def _top(result: PCA, drawn: int) -> float:
    return float(result.explained_variance_ratio[:drawn].sum())


def _components_caption(result: PCA) -> str:
    where = "maps of the grid" if isinstance(result.layout, Grid) else "functions of position"
    drawn = min(COMPONENTS, result.count)
    return say("components", drawn=drawn, top=_top(result, drawn), where=where)


def _trajectory_caption(result: PCA) -> str:
    drawn = min(3, result.count)
    what = f"Path of the positions through their first {drawn} principal components"
    if isinstance(result.layout, Grid):
        what = f"The patches in their first {drawn} principal components, one path per row"
    return say("trajectory", what=what, top=_top(result, drawn))


def _no_path(result: PCA) -> str:
    short = result.count < 2
    return result.undefined or ("a path needs two components, and there is one" if short else "")


def _shift_caption(result: Shift) -> str:
    turning = [f"{period:.3g}" for period in result.periods[result.rotations].tolist()]
    rule = "no mode is a rotation by our rule"
    if turning:
        more = f" and {len(turning) - PERIODS} more" if len(turning) > PERIODS else ""
        periods = ", ".join(turning[:PERIODS])
        rule = f"filled ones are rotations by our rule, with periods {periods}{more}"
    return say("shift", r=result, rule=rule)


def _similarity_caption(results: Mapping[str, Similarity], centred: bool | None = None) -> str:
    from posprobe.figures.common import MAX_CELLS

    sides = {
        name: -(-len(result.raw.matrix) // MAX_CELLS) * result.raw.pooled
        for name, result in results.items()
    }
    pooled = " and ".join(
        f"those of {name} means of {side} × {side}" for name, side in sides.items() if side > 1
    )
    rows = "; rows as stored, not centred"
    if centred:
        rows = "; the mean row subtracted"
    elif len(results) == 1 and centred is None:
        rows = ": rows as stored, and after subtracting the mean row"
    numbers = "; ".join(
        f"{name} {show(result.raw.neighbour_mean)} raw and "
        f"{show(result.centered.neighbour_mean)} centred"
        for name, result in results.items()
    )
    cells = f" Cells are pairs of positions, {pooled}." if pooled else ""
    return say("similarity", rows=rows, numbers=numbers, cells=cells)


def _profile_caption(results: Mapping[str, Similarity], centred: bool | None = None) -> str:
    first = next(iter(results.values()))
    treated = "as stored" if centred is False else "after subtracting the mean row"
    if isinstance(first.layout, Grid):
        return say("profile_grid", treated=treated)
    shaded = "shaded: one standard deviation over pairs"
    which = treated
    if len(results) == 1:
        both = f"as stored (raw) and after subtracting the mean row (centred; {shaded})"
        which = both if centred is None else f"{treated} ({shaded})"
    falls = "; ".join(
        f"{name} {'undefined' if (share := r.raw.monotone_fraction) is None else f'{share:.1%}'}"
        for name, r in results.items()
    )
    return say("profile", which=which, window=WINDOW, falls=falls)


def _comparison_caption(results: Mapping[str, Similarity], centred: bool | None = None) -> str:
    on_grid = isinstance(next(iter(results.values())).layout, Grid)
    return say(
        "comparison",
        similarity=_similarity_caption(results, centred),
        by="by columns apart in a row" if on_grid else "by offset",
        treated="less the mean" if on_grid else "each dimension less its line, Hann window",
    )


def _spectrogram_caption(result: Spectrogram) -> str:
    lines = "Circles: the fastest line above red noise."
    if np.isnan(result.fastest).all():
        lines = "No segment has a line above red noise."
    return say("spectrogram", r=result, lines=lines)


def _spectrum_caption(results: Mapping[str, Spectrum]) -> str:
    first = next(iter(results.values()))
    treated = say("spectrum_grid")
    if not isinstance(first.layout, Grid):
        less = "line" if first.detrend == "linear" else "mean"
        treated = f"each dimension less its {less}, {first.window.title()} window"
    entropy = "; ".join(f"{name} {show(result.entropy)}" for name, result in results.items())
    what = "Power spectrum" if len(results) == 1 else "Share of power by frequency"
    text = say("spectrum", what=what, treated=treated, entropy=entropy)
    if len(results) > 1 or first.threshold is None:
        return text
    above = "No line rises above it."
    if lines := ", ".join(f"{line.period:.3g}" for line in first.lines[:6]):
        above = f"Periods of the strongest lines above it: {lines} positions."
    return f"{text} {say('spectrum_lines', above=above)}"


def _winding_caption(result: Winding) -> str:
    pair = result.pairs[0]
    first, second = (number + 1 for number in pair.components)
    last = result.start + len(result.scores) - 1
    return say("winding", r=result, pair=pair, first=first, second=second, last=last)


def _budget_caption(results: Mapping[str, Budget]) -> str:
    mean = [f"{name}: {percent(each.mean or 0.0)}" for name, each in results.items()]
    which = mean[0].partition(": ")[2] if len(mean) == 1 else listed(mean)
    return say("budget", which=which)


def _clock_caption(result: Clock) -> str:
    text = say("clock", r=result, last=result.first + result.paths.shape[1] - 1)
    if not result.shared:
        return text
    return text + say("one_clock", one=result.one or 0.0, fixed=result.fixed or 0.0)


def _table_caption(table: PositionTable) -> str:
    from posprobe.figures.common import MAX_CELLS

    limit = float(np.percentile(np.abs(table.values), 99))
    steps = {"position": -(-len(table) // MAX_CELLS), "dimension": -(-table.dim // MAX_CELLS)}
    left = " and ".join(f"one {what} in {step}" for what, step in steps.items() if step > 1)
    text = say("table", r=table, limit=limit)
    return f"{text} Of each axis, {left} is drawn." if left else text


def _no_wave(result: SinusoidFit) -> str:
    return "" if result.sinusoids is not None else "no wave was fitted"


def _no_pair(result: Winding) -> str:
    return result.undefined or ("" if result.pairs else "no pair of components goes round")


def _none_receives(result: AttentionByOffset) -> str:
    from posprobe.figures.heads import receivers

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


#: From a result, or from results by label where a figure shows several, how to read it in a paper.
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
    "table": _table_caption,
    "trajectory": _trajectory_caption,
    "variance": _variance_caption,
    "winding": _winding_caption,
}
#: From a result, why a figure cannot be drawn; empty where it can. Of others, why all of the result
#: is undefined, if it is.
LACKS: Mapping[str, Callable[[Any], str]] = {
    "bridging": lambda result: "" if result.axes else result.undefined,
    "rotary_curves": no_heads,
    "rotary_usage": no_heads,
    "substitution_attention": lambda result: result.undefined.get("attention", ""),
    "cosines": _still,
    "first": _none_receives,
    "paths": _no_plane,
    "peaks": _no_peaks,
    # A figure of a running model has this name, too.
    "shift": lambda result: result.undefined if isinstance(result, Shift) else "",
    "sinusoid": _no_wave,
    "substitution_positions": _no_positions,
    "trajectory": _no_path,
    "winding": _no_pair,
}


def reading(kind: str, draws: str, results: Any, **asked: Any) -> str:
    """Say how to read a figure in a paper; where nothing is written of it, what it ``draws``."""
    return CAPTIONS[kind](results, **asked) if kind in CAPTIONS else f"{capital(draws)}."


#: Letters of a checksum or commit that identify it.
DIGITS = 12


def caption(*sentences: str) -> str:
    """Join sentences into one paragraph, ended by what made the figure.

    A byte of a file's name that is not text is written as an escape.
    """
    made = f"Made with posprobe {version('posprobe')}."
    text = plain(" ".join(" ".join([*filter(None, sentences), made]).split()))
    return text.encode(errors="backslashreplace").decode() + "\n"


def provenance(names: Sequence[str], records: Sequence[PositionTable | Scheme]) -> str:
    """Say of each record what it is, which rows were kept, and where it was read."""
    told = []
    for name, record in zip(names, records, strict=True):
        whence = _whence(record.source)
        told.append(f"{name}: {_what(record)}{f'; {whence}' if whence != name else ''}.")
    return " ".join(told)


def _what(record: PositionTable | Scheme) -> str:
    if isinstance(record, PositionTable):
        begin, end = record.rows
        size = f"n = {len(record)}"
        if isinstance(record.layout, Grid):
            size += f" patches, {record.layout.height} × {record.layout.width}"
        else:
            size += f", positions {begin} to {end - 1}"
        text = f"{record.kind} table, {size}, d = {record.dim}"
        if record.dropped:
            text += f", {_rows([row.row for row in record.dropped])} as stored left out"
        if record.prefix_rows:
            text += ", without " + " and ".join(row.token for row in record.prefix_rows)
        return text
    heads = "1 head" if record.heads == 1 else f"{record.heads} heads"
    match record:
        case Rotary():
            text = f"rotary embedding, head width {record.head_dim}, base {record.base:g}"
            return text + ("" if record.rule == "default" else f", rule {record.rule}")
        case LinearBias():
            return f"linear biases (ALiBi), {heads}"
        case RelativeBias():
            return f"relative {record.quantity}, {record.layout}, {heads}"


def _rows(rows: Sequence[int]) -> str:
    return f"row {rows[0]}" if len(rows) == 1 else f"rows {rows[0]} to {rows[-1]}"


def _whence(source: Source) -> str:
    text = source.reference
    if source.tensor:
        stored = f" ({source.dtype})" if source.dtype else ""
        text = f"{source.tensor}{stored} of {text}"
    if source.revision:
        text += f", revision {source.revision[:DIGITS]}"
    elif source.sha256:
        text += f", SHA-256 {source.sha256[:DIGITS]}"
    return text


def heads(found: Mapping[str, Heads]) -> str:
    """Say how to read curves by distance."""
    first = next(iter(found.values()))
    text = say(first.quantity)
    windows = [w for result in found.values() for w in result.window.tolist() if w == w]
    if windows:
        text += f" Effective windows: {min(windows):.3g} to {max(windows):.3g} positions."
    return text


def rotation(found: Mapping[str, Rotation]) -> str:
    """Say how to read ladders of wavelengths."""
    lengths = "; ".join(
        f"{name}: {int((result.wavelength > result.target).sum())} of {len(result.wavelength)} "
        f"pairs never complete a turn in {result.target} positions"
        for name, result in found.items()
        if result.target
    )
    return say("rotation") + (f" {lengths}." if lengths else "")


def slopes(record: LinearBias) -> str:
    """Say how to read linear biases."""
    return say("slopes", most=record.slopes.max(), least=record.slopes.min())
