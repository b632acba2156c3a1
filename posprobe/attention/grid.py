"""Queries and keys on a grid, with a table for its rows and one for its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posprobe.arrays import Array
from posprobe.attention.checks import covers, joined, product, unfit
from posprobe.attention.sequence import shift_relative

if TYPE_CHECKING:
    from types import ModuleType


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


def _fills(where: str, q: Array, height: int, width: int) -> None:
    if height < 1 or width < 1 or q.shape[-2] != height * width:
        raise unfit(where, f"its tokens do not fill a grid of {height} x {width}.", q=q)


def _swapped(array: Array, xp: ModuleType) -> Array:
    """Exchange the second and third axes from the right."""
    return xp.moveaxis(array, -3, -2)
