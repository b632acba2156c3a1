"""What a caption says of a figure for a paper: how to read it, of what it is, how it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from posprobe.analyses.unit_rows import WINDOW
from posprobe.figures.grid import tile_block
from posprobe.nulls import NULLS
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme
from posprobe.table import Grid, PositionTable, Source

if TYPE_CHECKING:
    from posprobe.analyses import PCA, Heads, Patches, Rotation, Shift, Similarity, Spectrum
    from posprobe.analyses.timefreq import Spectrogram

#: Periods that are listed.
LISTED = 12
#: Letters of a checksum or commit that identify it.
DIGITS = 12


def caption(*sentences: str) -> str:
    """Join sentences into one paragraph, ended by what made the figure."""
    made = f"Made with posprobe {version('posprobe')}."
    return " ".join(" ".join([*filter(None, sentences), made]).split()) + "\n"


def provenance(names: Sequence[str], records: Sequence[PositionTable | Scheme]) -> str:
    """Say of each record what it is, which rows were kept, and where it was read."""
    return " ".join(
        f"{name}: {_what(record)}; {_whence(record.source)}."
        for name, record in zip(names, records, strict=True)
    )


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


def walk_band(name: str, draws: int, seed: int) -> str:
    """Say what a grey band is; empty without one."""
    if not draws:
        return ""
    return f"Grey: 5 to 95 % of {draws} random walks with steps as long as {name}'s (seed {seed})."


def similarity(results: Mapping[str, Similarity], blocks: Mapping[str, int]) -> str:
    """Say how to read cosine matrices, drawn in so many of their cells to one."""
    sides = {name: block * results[name].raw.pooled for name, block in blocks.items()}
    pooled = " and ".join(
        f"those of {name} means of {side} × {side}" for name, side in sides.items() if side > 1
    )
    text = "Cosine similarity of every pair of position embeddings, on one range from -1 to 1"
    if len(results) == 1:
        text += ": rows as stored, and after subtracting the mean row"
    else:
        text += "; rows as stored, not centred"
    numbers = "; ".join(
        f"{name} {_number(result.raw.neighbour_mean)} raw and "
        f"{_number(result.centered.neighbour_mean)} centred"
        for name, result in results.items()
    )
    return (
        f"{text}. Mean cosine of neighbouring positions: {numbers}."
        + (f" Cells are pairs of positions, {pooled}." if pooled else "")
    )  # fmt: skip


def mosaic(result: Patches, every: int) -> str:
    """Say how to read a mosaic."""
    block = tile_block(result.layout)
    tiles = "each patch" if every == 1 else f"every {_ordinal(every)} patch of a row and column"
    return (
        f"Similarity of position embeddings of patches. One tile for {tiles}, arranged as in the "
        "image; in a tile, the cosine of its patch with every patch of the image, its own cell "
        "being 1. Mean centred cosine: "
        f"{_number(result.neighbour_right)} with the right neighbour, "
        f"{_number(result.neighbour_below)} with the one below, {_number(result.elsewhere)} with "
        "patches of other rows and columns. The tiles show rows "
        "as stored, not centred."
        + (f" Cells are means of {block} × {block} patches." if block > 1 else "")
    )


def profile(results: Mapping[str, Similarity]) -> str:
    """Say how to read cosines by offset."""
    first = next(iter(results.values()))
    if isinstance(first.layout, Grid):
        return (
            "Mean cosine of position embeddings by the rows and columns between them, after "
            "subtracting the mean row; no displacement is in the middle."
        )
    which = (
        "as stored (raw) and after subtracting the mean row (centred; shaded: one standard "
        "deviation over pairs)"
        if len(results) == 1
        else "after subtracting the mean row"
    )
    falls = "; ".join(f"{n} {_share(r.raw.monotone_fraction)}" for n, r in results.items())
    return (
        f"Mean cosine of position embeddings by the offset between them, {which}. Falling steps "
        f"of the raw profile up to offset {WINDOW}: {falls}."
    )


def variance(results: Mapping[str, PCA]) -> str:
    """Say how to read explained variances."""
    text = (
        "Share of the variance by principal component and its running sum"
        if len(results) == 1
        else "Running sum of the share of variance over principal components"
    )
    numbers = "; ".join(
        f"{name} stable rank {_number(result.stable_rank)}, {_needed(result, 0.90)} "
        f"components for 90 % and {_needed(result, 0.99)} for 99 %"
        for name, result in results.items()
    )
    return f"{text}, columns centred: {numbers}."


def _needed(result: PCA, share: float) -> str:
    count = result.components_for(share)
    beyond = "undefined" if result.undefined else f"more than {len(result.singular_values)}"
    return beyond if count is None else str(count)


def scores(result: PCA, drawn: int) -> str:
    """Say how to read scores against position."""
    where = "maps of the grid" if isinstance(result.layout, Grid) else "functions of position"
    top = float(result.explained_variance_ratio[:drawn].sum())
    return (
        f"The first {drawn} principal components of the position embeddings (columns centred; "
        f"together {top:.1%} of the variance) as {where}; titles give each one's share. The "
        "components of a random walk are sinusoids, too."
    )


def trajectory(result: PCA) -> str:
    """Say how to read the path."""
    drawn = min(3, result.scores.shape[1])
    top = float(result.explained_variance_ratio[:drawn].sum())
    text = f"Path of the positions through their first {drawn} principal components"
    if isinstance(result.layout, Grid):
        text = f"The patches in their first {drawn} principal components, one path per row"
    return (
        f"{text} (columns centred; {top:.1%} of the variance). White and black dots mark the "
        "first and the last. The plane is drawn to scale, the three axes are not."
    )


def spectrum(results: Mapping[str, Spectrum]) -> str:
    """Say how to read spectra."""
    first = next(iter(results.values()))
    treated = (
        "two-dimensional transform of each dimension less its mean, over rings of equal frequency"
        if isinstance(first.layout, Grid)
        else f"each dimension less its {'line' if first.detrend == 'linear' else 'mean'}, "
        f"{first.window.title()} window"
    )
    entropy = "; ".join(f"{n} {_number(r.entropy)}" for n, r in results.items())
    what = "Power spectrum" if len(results) == 1 else "Share of power by frequency"
    text = f"{what} of the position embeddings along positions, summed over dimensions ({treated})."
    text += f" Spectral entropy: {entropy}."
    if len(results) == 1 and first.threshold is not None:
        lines = ", ".join(f"{line.period:.3g}" for line in first.lines[:6])
        text += " Dashed: red noise fitted to it; dotted: its 1 % level over all frequencies. " + (
            f"Periods of the strongest lines above it: {lines} positions."
            if lines
            else "No line rises above it."
        )
        text += (
            " The other panel has each dimension's dominant frequency, fastest first, beside the "
            "frequencies of the sinusoid of base 10,000."
        )
    return text


def spectrogram(result: Spectrogram) -> str:
    """Say how to read a spectrogram."""
    return (
        "Power of the position embeddings by position and frequency, summed over dimensions, in "
        f"segments of {result.length} positions, {result.step} apart (each less its line, Hann "
        "window). Circles: the fastest line above red noise."
    )


def norms(mean: float, low: float, high: float, outliers: int) -> str:
    """Say how to read row norms."""
    return (
        f"Euclidean norm of each position embedding: mean {mean:.3g}, from {low:.3g} to "
        f"{high:.3g}; {outliers or 'no'} row{'' if outliers == 1 else 's'} stand"
        f"{'s' if outliers == 1 else ''} out."
    )


def table(table: PositionTable, limit: float, cells: int) -> str:
    """Say how to read the table itself; ``cells`` are drawn along an axis at most."""
    steps = {"position": -(-len(table) // cells), "dimension": -(-table.dim // cells)}
    left = " and ".join(f"one {what} in {step}" for what, step in steps.items() if step > 1)
    return (
        f"The position embeddings of {table.name} themselves, colours ending at ±{limit:.3g}, the "
        "99th percentile of their size." + (f" Of each axis, {left} is drawn." if left else "")
    )


def nulls(draws: int, seed: int, beyond: Sequence[str]) -> str:
    """Say how to read numbers beside their bands."""
    models = "; ".join(f"{name}: {meaning}" for name, meaning in NULLS.items())
    outside = "; ".join(beyond) if beyond else "none"
    return (
        "Numbers of the table (solid line) beside those of the sinusoid of its shape (dashed) and "
        f"of null models (bar: 5 to 95 % of {draws} draws, seed {seed}; marker: median). {models}. "
        f"Outside the bars of all null models: {outside}."
    )


def shift(result: Shift) -> str:
    """Say how to read eigenvalues."""
    turning = [f"{period:.3g}" for period in result.periods[result.rotations].tolist()]
    rule = "no mode is a rotation by our rule"
    if turning:
        more = f" and {len(turning) - LISTED} more" if len(turning) > LISTED else ""
        periods = ", ".join(turning[:LISTED])
        rule = f"filled ones are rotations by our rule, with periods {periods}{more}"
    return (
        "Eigenvalues of the linear map from each position to the next, fitted to the first "
        f"{result.rank} principal components; on the unit circle a mode keeps its amplitude, and "
        "labels are its period in positions; "
        f"{rule}. Skill on held-out rows: {_number(result.skill)} (1 is exact, 0 no "
        "better than no change or the mean row)."
    )


def heads(found: Mapping[str, Heads]) -> str:
    """Say how to read curves by distance."""
    first = next(iter(found.values()))
    what = (
        "What each head adds to the attention logits by the distance of key and query"
        if first.quantity == "bias"
        else "Cosine of each distance's vector with that of distance 0, by head"
    )
    less = ", less the head's mean in maps and stripes" if first.quantity == "bias" else ""
    windows = [w for result in found.values() for w in result.window.tolist() if w == w]
    text = f"{what}{less}."
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
    return (
        "Wavelength of each rotated pair beside the context lengths, and the mean rotation by "
        "distance (dashed: the shape of RoFormer's bound). " + (f"{lengths}." if lengths else "")
    )


def slopes(record: LinearBias) -> str:
    """Say how to read linear biases."""
    return (
        "What each head subtracts from the attention logits by distance, on logarithmic axes; "
        f"slopes from {record.slopes.max():.3g} to {record.slopes.min():.3g} per position. Dashed: "
        "1 logit."
    )


def comparison(results: Mapping[str, Similarity], blocks: Mapping[str, int]) -> str:
    """Say how to read the composite."""
    on_grid = isinstance(next(iter(results.values())).layout, Grid)
    by = "by columns apart in a row" if on_grid else "by offset"
    return (
        similarity(results, blocks)
        + f" Below: mean cosine {by} after subtracting the mean row, and the share of power by "
        "frequency ("
        + ("less the mean" if on_grid else "each dimension less its line, Hann window")
        + ")."
    )


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


def _number(value: Any) -> str:
    return "undefined" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.1%}"
