"""Queries and keys on a grid, with a table for its rows and one for its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from posprobe.arrays import Array
from posprobe.attention.checks import beside, covers, floating, joined, product, unfit
from posprobe.attention.sequence import shift_relative
from posprobe.errors import UsageError

if TYPE_CHECKING:
    from types import ModuleType

Size: TypeAlias = tuple[int, int]


def relative_logits_2d(q: Array, rows: Array, columns: Array, height: int, width: int) -> Array:
    """Add the relative logits of rows and of columns on a grid.

    Bottleneck Transformers (Srinivas et al. 2021, figure 4). Ramachandran et al. 2019 (section 2.2)
    give half of the width to rows and half to columns: each table is zero in the other half.

    timm 1.0's ``PosEmbedRel`` is this function with ``rows=height_rel, columns=width_rel``. Its
    ``BottleneckAttn`` adds it to logits that are already divided by ``sqrt(d_h)``, and divides it
    as well only with ``scale_pos_embed=True``. Its ``HaloAttn`` numbers the queries of a block from
    the corner of the window, halo included: pad the block with queries to the size of the
    window, and keep the rows of its own.

    Parameters
    ----------
    q
        ``[..., height * width, d_h]``, token ``r * width + c`` at row ``r`` and column ``c``.
    rows, columns
        ``[2 * height - 1, d_h]`` and ``[2 * width - 1, d_h]``, or either with an axis of heads
        in front; the middle vector belongs to the offset 0.
    height, width
        Of the grid, in tokens.

    Returns
    -------
    Array
        ``[..., height * width, height * width]``: entry ``(i, j)`` is
        ``q_i · rows[r_j - r_i + height - 1] + q_i · columns[c_j - c_i + width - 1]``.

    Raises
    ------
    UsageError
        If the shapes do not fit.
    """
    where = "relative_logits_2d"
    xp = joined(where, q=q, rows=rows, columns=columns)
    down = product(where, q=q, rows=rows)
    across = product(where, q=q, columns=columns)
    _fills(where, q, height, width)
    covers(where, "rows of tokens", height, q=q, rows=rows)
    covers(where, "columns of tokens", width, q=q, columns=columns)
    batch = q.shape[:-2]
    down = _swapped(xp.reshape(down, (*batch, height, width, 2 * height - 1)), xp)
    down = _swapped(shift_relative(down), xp)
    across = shift_relative(xp.reshape(across, (*batch, height, width, 2 * width - 1)))
    return xp.reshape(down[..., :, None] + across[..., None, :], (*batch, height * width, -1))


def decomposed_bias(
    q: Array, rows: Array, columns: Array, query_size: Size, key_size: Size
) -> Array:
    """Add the decomposed relative positions of MViTv2, ViTDet and SAM.

    Li et al. 2022 (MViTv2, section 4.1), as the three release it: added to logits that are already
    divided by ``sqrt(d_h)``. Its tables run **backwards**, from key to query (``i - j``). Where the
    grids of queries and keys differ, the coarser is stretched over the finer and places between
    two offsets are rounded down. A table made for another size is interpolated linearly.

    Parameters
    ----------
    q
        ``[..., query height * query width, d_h]``.
    rows, columns
        ``[2s - 1, d_h]`` each, ``s`` being the larger of query and key size for which the table
        was trained; the middle vector belongs to the offset 0.
    query_size, key_size
        Height and width of the grids of queries and of keys.

    Returns
    -------
    Array
        ``[..., query height * query width, key height * key width]``.

    Raises
    ------
    UsageError
        If the shapes do not fit, or a table has an even number of rows.
    """
    where = "decomposed_bias"
    xp = joined(where, q=q, rows=rows, columns=columns)
    floating(where, q, xp)
    if min(*query_size, *key_size) < 1:
        raise UsageError(f"{where}: sizes {query_size} and {key_size} must be positive.")
    for name, table in (("rows", rows), ("columns", columns)):
        if (
            q.ndim < 2
            or table.ndim != 2
            or table.shape[0] % 2 == 0
            or q.shape[-1] != table.shape[-1]
        ):
            raise unfit(where, "a table of [2s - 1, d_h] is expected.", **{"q": q, name: table})
    height, width = query_size
    _fills(where, q, height, width)
    batch = q.shape[:-2]
    grid = xp.reshape(q, (*batch, height, width, q.shape[-1]))
    down = xp.matmul(grid, _by_pair(rows, height, key_size[0], xp).mT)
    across = xp.matmul(_swapped(grid, xp), _by_pair(columns, width, key_size[1], xp).mT)
    both = down[..., :, None] + _swapped(across, xp)[..., None, :]
    return xp.reshape(both, (*batch, height * width, key_size[0] * key_size[1]))


def _by_pair(table: Array, queries: int, keys: int, xp: ModuleType) -> Array:
    """Return the vector between each query and key of one axis: ``[queries, keys, d_h]``."""
    offsets = 2 * max(queries, keys) - 1
    if len(table) != offsets:
        table = _resampled(table, offsets, xp)
    # float32, as the releases compute it: where sizes do not divide each other, rounding decides
    # between neighbouring vectors.
    stretch_q, stretch_k = max(keys / queries, 1.0), max(queries / keys, 1.0)
    query = np.arange(queries, dtype=np.float32)[:, None] * np.float32(stretch_q)
    key = np.arange(keys, dtype=np.float32)[None, :] * np.float32(stretch_k)
    place = ((query - key) + np.float32((keys - 1) * stretch_k)).astype(np.int64)
    flat = xp.asarray(place.reshape(-1), device=table.device)
    return xp.reshape(xp.take(table, flat, axis=0), (queries, keys, table.shape[1]))


def _resampled(table: Array, size: int, xp: ModuleType) -> Array:
    """Interpolate linearly to another number of rows, with the ends of the axis held in place."""
    rows = len(table)
    place = np.maximum((np.arange(size) + 0.5) * (rows / size) - 0.5, 0)
    lower = np.minimum(place.astype(np.int64), rows - 1)
    upper = np.minimum(lower + 1, rows - 1)
    share = beside((place - lower)[:, None], table, xp)
    below, above = (
        xp.take(table, xp.asarray(each, device=table.device), axis=0) for each in (lower, upper)
    )
    return below * (1 - share) + above * share


def _fills(where: str, q: Array, height: int, width: int) -> None:
    if height < 1 or width < 1 or q.shape[-2] != height * width:
        raise unfit(where, f"its tokens do not fill a grid of {height} x {width}.", q=q)


def _swapped(array: Array, xp: ModuleType) -> Array:
    """Exchange the second and third axes from the right."""
    return xp.moveaxis(array, -3, -2)
