"""A result becomes marks on matplotlib Axes. Nothing here computes what a reader would cite."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.grid import TILES
from posprobe.figures.styles import BLUE, DIVERGING, GRID, INK, MUTED, ONE_SIDED, RED
from posprobe.table import Grid, PositionTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.cm import ScalarMappable
    from matplotlib.image import AxesImage

    from posprobe.analyses import PCA, Cosine, Norms, Patches, Similarity, Spectrum
    from posprobe.table import Layout

#: Cells per side beyond which a heat map is averaged in blocks: more are finer than any page.
MAX_CELLS = 512
#: Tiles per side of a mosaic; on larger grids every second, third … patch has one.
MAX_TILES = TILES
#: Positions from which on the numbers of an axis need room.
WIDE_NUMBERS = 10_000
#: Cells per side of a tile, beyond which it is averaged in blocks to half as many at most.
MAX_TILE = 64
#: Points of a curve, and of an area's edge: more are finer than any page, and each takes its place.
MAX_POINTS = 2048


def heat_map(ax: Axes, cosine: Cosine, start: int = 0) -> AxesImage:
    """Draw the cosine matrix on fixed limits from -1 to 1, its axes in positions."""
    matrix, block = pooled(cosine.matrix)
    n, block = cosine.positions, block * cosine.pooled
    image = ax.imshow(
        matrix,
        cmap=DIVERGING,
        vmin=-1,
        vmax=1,
        extent=(start - 0.5, start + n - 0.5, start + n - 0.5, start - 0.5),
    )
    ax.set_xlabel("position")
    ax.set_ylabel("position")
    if block > 1:
        ax.set_xlabel(f"position (means of {block} x {block} pairs)")
    if start + n > WIDE_NUMBERS:
        ax.locator_params(nbins=4)
    ax.spines[:].set_visible(False)
    return image


def pooled(matrix: NDArray[np.float64], cells: int = MAX_CELLS) -> tuple[NDArray[np.float64], int]:
    """Average a square matrix in blocks so that it has at most ``cells`` cells per side."""
    n = len(matrix)
    block = math.ceil(n / cells)
    if block == 1:
        return matrix, 1
    edges = np.arange(0, n, block)
    sums = np.add.reduceat(np.add.reduceat(matrix, edges, axis=0), edges, axis=1)
    size = np.diff(np.append(edges, n))
    return sums / np.outer(size, size), block


def profile(ax: Axes, similarity: Similarity) -> None:
    """Draw mean cosine against offset, or against displacement on a grid."""
    if isinstance(similarity.layout, Grid):
        _displacement_map(ax, similarity.centered, similarity.layout)
        return
    drawn = (
        (similarity.raw, "raw", RED, (0, (4, 1.5))),
        (similarity.centered, "centred", BLUE, "-"),
    )
    for cosine, label, color, dash in drawn:
        offset = np.arange(len(cosine.offset_mean))
        curve = extremes(offset, cosine.offset_mean)
        ax.plot(*curve, color=color, linestyle=dash, label=label)
        if label == "centred":
            low, high = (cosine.offset_mean + sign * cosine.offset_std for sign in (-1, 1))
            area(ax, (offset, low, high), color=color, alpha=0.15, label="± 1 sd")
    ax.axhline(0, color=MUTED, linewidth=0.5)
    ax.set(
        xlabel="offset (positions)", ylabel="cosine", xlim=(0, len(offset) - 1), ylim=(-1.02, 1.02)
    )
    ax.legend(loc="upper right", ncols=3)


def area(ax: Axes, edges: tuple[NDArray[Any], ...], *, log: bool = False, **look: Any) -> None:
    """Fill between two curves, of many points with the extremes of neighbouring ones.

    Parameters
    ----------
    ax
        To draw into.
    edges
        Places, lower and upper values, each ``[k]``.
    log
        Whether the places, positive and rising, are drawn on a logarithmic axis.
    look
        Of the area.
    """
    at, low, high = edges
    if len(at) > MAX_POINTS:
        spaced = (np.geomspace if log else np.linspace)(at[0], at[-1], MAX_POINTS)
        first = np.unique(np.searchsorted(at, spaced))
        at = at[first]
        low, high = np.minimum.reduceat(low, first), np.maximum.reduceat(high, first)
    ax.fill_between(at, low, high, linewidth=0, **look)


def extremes(
    at: NDArray[Any], values: NDArray[np.floating[Any]]
) -> tuple[NDArray[Any], NDArray[np.floating[Any]]]:
    """Thin a curve of more than `MAX_POINTS` points: each block keeps its lowest and its highest.

    Parameters
    ----------
    at, values
        Places and values ``[k]``.
    """
    if len(values) <= MAX_POINTS:
        return at, values
    block = -(-2 * len(values) // MAX_POINTS)
    first = np.arange(0, len(values) // block * block, block)
    blocks = values[: len(first) * block].reshape(-1, block)
    lowest = np.argmin(np.where(np.isnan(blocks), np.inf, blocks), axis=1)
    highest = np.argmax(np.where(np.isnan(blocks), -np.inf, blocks), axis=1)
    rest = np.arange(blocks.size, len(values))
    kept = np.unique(np.concatenate([first + lowest, first + highest, rest]))
    return at[kept], values[kept]


def _displacement_map(ax: Axes, cosine: Cosine, layout: Grid) -> None:
    right, down = layout.width - 1, layout.height - 1
    ax.imshow(
        cosine.offset_mean,
        cmap=DIVERGING,
        vmin=-1,
        vmax=1,
        extent=(-right - 0.5, right + 0.5, down + 0.5, -down - 0.5),
    )
    ax.set(xlabel="columns apart", ylabel="rows apart")


def norms(ax: Axes, result: Norms, layout: Layout | None = None, start: int = 0) -> None:
    """Draw row norms against position, or as a map of the grid."""
    if isinstance(layout, Grid):
        image = ax.imshow(result.norms.reshape(layout.height, layout.width), cmap=ONE_SIDED)
        ax.set(xlabel="column", ylabel="row")
        ax.figure.colorbar(image, ax=ax, label="norm", shrink=0.85)
        return
    position = start + np.arange(len(result.norms))
    ax.plot(*extremes(position, result.norms), color=BLUE)
    if result.outliers:
        rows = list(result.outliers)
        ax.plot(
            position[rows], result.norms[rows], "o", color=RED, markersize=2.5,
            label=f"stands out ({len(rows)})",
        )  # fmt: skip
        ax.legend(loc="upper right")
    ax.set(xlabel="position", ylabel="row norm", ylim=(0, None))
    ax.set_xlim(position[0] - 0.01 * len(position), position[-1] + 0.01 * len(position))


def variance(ax: Axes, result: PCA) -> None:
    """Draw the explained variance of each component and its running sum."""
    ratio = result.explained_variance_ratio
    if result.undefined:
        nothing(ax, result.undefined)
        return
    count = np.arange(1, len(ratio) + 1)
    ax.plot(count, np.cumsum(ratio), color=BLUE, label="running sum")
    ax.plot(count, ratio, color=RED, linestyle=(0, (4, 1.5)), label="each component")
    for share in (0.90, 0.99):
        needed = result.components_for(share)
        if needed is not None:
            ax.plot([needed], [np.cumsum(ratio)[needed - 1]], "o", color=INK, markersize=3)
            ax.annotate(
                f"{share:.0%}: {needed}", (needed, share), (5, -9), textcoords="offset points",
            )  # fmt: skip
    ax.set(xscale="log", xlabel="component", ylabel="share of variance", ylim=(-0.02, 1.04))
    ax.set_xlim(0.9, len(ratio))
    plain(ax.xaxis)
    ax.legend(loc="center right")


def score(ax: Axes, result: PCA, component: int) -> None:
    """Draw one component's score against position, or as a map of the grid."""
    values = result.scores[:, component]
    share = result.explained_variance_ratio[component]
    ax.set_title(f"component {component + 1}: {share:.1%}")
    if isinstance(result.layout, Grid):
        limit = np.abs(values).max() or 1.0
        ax.imshow(
            values.reshape(result.layout.height, result.layout.width), cmap="PuOr_r",
            vmin=-limit, vmax=limit,
        )  # fmt: skip
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        return
    ax.axhline(0, color=GRID, linewidth=0.6)
    position = result.start + np.arange(len(values))
    ax.plot(*extremes(position, values), color=BLUE, linewidth=0.9)
    ax.margins(x=0.01)


def power(ax: Axes, result: Spectrum) -> None:
    """Draw the aggregate spectrum with its red-noise background and significant lines."""
    if result.undefined:
        nothing(ax, result.undefined)
        return
    shown = slice(1, None)
    frequency = result.frequency[shown]
    ax.plot(frequency, result.power[shown], color=BLUE, label="table")
    if result.background is not None and result.threshold is not None:
        ax.plot(
            frequency, result.background[shown], color=MUTED, linestyle=(0, (4, 1.5)),
            label="red noise",
        )  # fmt: skip
        ax.plot(
            frequency,
            result.threshold[shown],
            color=MUTED,
            linestyle=(0, (1, 1.2)),
            label="1 % level",
        )
    for line in result.lines[:6]:
        height = result.power[np.argmin(np.abs(result.frequency - line.frequency))]
        ax.plot([line.frequency], [height], "o", color=RED, markersize=3)
        ax.annotate(
            f"{line.period:.1f}", (line.frequency, height), (0, 3), textcoords="offset points",
            ha="center",
        )  # fmt: skip
    floor = result.power[shown][result.power[shown] > 0]
    on_grid = isinstance(result.layout, Grid)
    # A grid has too few rings for decades.
    ax.set(xscale="linear" if on_grid else "log", yscale="log")
    ax.set_ylabel("power (sum over dimensions)")
    if floor.size:
        ax.set_ylim(max(floor.min() / 2, floor.max() * 1e-9), floor.max() * 4)
    ax.set_xlabel(f"frequency (cycles per {'patch, radial' if on_grid else 'position'})")
    ax.set_xlim(frequency[0] * 0.9, frequency[-1] * 1.05)
    if on_grid:
        plain(ax.yaxis)
        return
    plain(ax.xaxis, ax.yaxis, _period_axis(ax))
    ax.legend(loc="lower left")


def _period_axis(ax: Axes) -> Axis:
    def invert(values: Any) -> Any:
        with np.errstate(divide="ignore"):
            return 1 / np.asarray(values, dtype=float)

    top = ax.secondary_xaxis("top", functions=(invert, invert))
    top.set_xlabel("period (positions)")
    top.spines["top"].set_visible(False)
    return top.xaxis


def ladder(ax: Axes, result: Spectrum) -> None:
    """Draw each dimension's dominant frequency, sorted, beside the sinusoid's ladder."""
    if result.undefined:
        nothing(ax, result.undefined)
        return
    order = np.argsort(-np.nan_to_num(result.dominant_frequency, nan=-1.0))
    frequency = result.dominant_frequency[order]
    rank = np.arange(1, len(order) + 1) / len(order)
    marked = result.dominant_significant[order]
    ax.plot(rank, frequency, ".", color=GRID, markersize=3, label="dimension")
    if marked.any():
        ax.plot(rank[marked], frequency[marked], ".", color=BLUE, markersize=3.5,
                label="above its red noise")  # fmt: skip
    lowest = result.frequency[1]
    sinusoid = 10_000.0 ** (-rank) / (2 * np.pi)
    ax.plot(rank, sinusoid, color=RED, linestyle=(0, (4, 1.5)), label="sinusoid's ladder")
    ax.axhline(lowest, color=MUTED, linewidth=0.5)
    ax.annotate("one cycle in the table", (1, lowest), (0, -7), textcoords="offset points",
                ha="right", color=MUTED)  # fmt: skip
    ax.set(yscale="log", xlabel="dimensions, fastest first (share)")
    ax.set_ylabel("dominant frequency\n(cycles per position)")
    ax.set_ylim(lowest / 2.5, 0.7)
    plain(ax.yaxis)
    ax.legend(loc="upper right")


def mosaic(ax: Axes, result: Patches) -> AxesImage:
    """Draw one tile per patch: its cosine with every patch (Dosovitskiy et al. 2021, figure 7)."""
    height, width = result.layout.height, result.layout.width
    every = math.ceil(max(height, width) / MAX_TILES)
    block = tile_block(result.layout)
    step = every // result.every
    tiles = result.mosaic[::step, ::step]
    if block > 1:
        edges = [np.arange(0, side, block) for side in (height, width)]
        sums = np.add.reduceat(np.add.reduceat(tiles, edges[0], axis=2), edges[1], axis=3)
        sizes = [
            np.diff(np.append(edge, side))
            for edge, side in zip(edges, (height, width), strict=True)
        ]
        tiles = sums / np.outer(*sizes)
    down, across, height, width = tiles.shape
    gap = 1
    canvas = np.full((down * (height + gap) - gap, across * (width + gap) - gap), np.nan)
    for r in range(down):
        for c in range(across):
            top, left = r * (height + gap), c * (width + gap)
            canvas[top : top + height, left : left + width] = tiles[r, c]
    image = ax.imshow(canvas, cmap=DIVERGING, vmin=-1, vmax=1)
    ax.set_xticks(
        [c * (width + gap) + (width - 1) / 2 for c in range(across)],
        [str(c * every) for c in range(across)],
    )
    ax.set_yticks(
        [r * (height + gap) + (height - 1) / 2 for r in range(down)],
        [str(r * every) for r in range(down)],
    )
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    cells = f" (cells: means of {block} x {block})" if block > 1 else ""
    ax.set(xlabel=f"column of the patch{cells}", ylabel="row of the patch")
    return image


def tile_block(layout: Grid) -> int:
    """Return the side in patches of the blocks that a mosaic's tiles are averaged in."""
    longer = max(layout.height, layout.width)
    return math.ceil(2 * longer / MAX_TILE) if longer > MAX_TILE else 1


def plane_power(ax: Axes, result: Patches) -> None:
    """Draw the two-dimensional spectrum, zero frequency in the middle, in decibels below peak."""
    height, width = result.layout.height, result.layout.width
    shown = result.power > 1e-6 * result.power.max()
    level = np.full_like(result.power, -60.0)
    level[shown] = 10 * np.log10(result.power[shown] / result.power.max())
    # The middle cell is frequency 0 whether or not there is a Nyquist frequency to its left.
    left, top = -(width // 2 + 0.5) / width, -(height // 2 + 0.5) / height
    image = ax.imshow(
        level,
        cmap=ONE_SIDED,
        vmin=-40,
        vmax=0,
        extent=(left, left + 1, top + 1, top),
    )
    ax.set(xlabel="cycles per patch, along rows", ylabel="cycles per patch, along columns")
    ax.figure.colorbar(image, ax=ax, label="power (dB below peak)", shrink=0.85)


def matrix(ax: Axes, table: PositionTable) -> ScalarMappable:
    """Draw the table itself, positions horizontal, clipped at the 99th percentile.

    Of more than `MAX_CELLS` rows or dimensions every second, third … is drawn, as the labels say.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    values = np.asarray(table.values, dtype=np.float32)
    limit = float(np.percentile(np.abs(values), 99, overwrite_input=True)) or 1.0
    colors = ScalarMappable(Normalize(-limit, limit), "PuOr_r")
    rows, columns = (math.ceil(size / MAX_CELLS) for size in values.shape)
    # Colouring here rather than in imshow, which would need twenty times the table's memory.
    shown = values[::rows, ::columns].T
    pixels = np.stack([colors.to_rgba(dimension, bytes=True) for dimension in shown])
    first, stop = table.rows
    ax.imshow(
        pixels,
        aspect="auto",
        extent=(first - 0.5, stop - 0.5, table.dim - 0.5, -0.5),
    )
    ax.set(xlabel=_every("position", rows), ylabel=_every("dimension", columns))
    ax.spines[:].set_visible(False)
    return colors


def _every(what: str, step: int) -> str:
    return what if step == 1 else f"{what} (one in {step} is drawn)"


def plain(*axes: Axis) -> None:
    """Label decades as plain numbers: superscripts cost a parser and read no better."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    for axis in axes:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())


def nothing(ax: Axes, why: str) -> None:
    """Say in an empty drawing why the result is undefined."""
    ax.text(0.5, 0.5, f"undefined:\n{why}", ha="center", va="center", transform=ax.transAxes)
    ax.set(xticks=[], yticks=[])
