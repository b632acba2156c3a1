"""Tables that follow a formula: the sinusoid in its published variants, and what leads to it.

The ladder of guesses (Kernes 2021, Master Positional Encoding, I): `counting` is unbounded,
`normalised_counting` means something else at every length, `binary` is bounded but jagged and comes
round again, `continuous_binary` is smooth and comes round again, `sine_ladder` comes round no more
but has no linear shift. The `sinusoidal` table has all of it.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.encodings.build import canonical, check_base, check_sizes, formula_table
from posprobe.errors import UsageError
from posprobe.layouts import Grid, Sequence
from posprobe.tables import PositionTable

Order: TypeAlias = Literal["interleaved", "halves"]
GridOrder: TypeAlias = Literal["mae", "timm"]

#: How a table's columns may be ordered.
ORDERS: tuple[Order, ...] = ("interleaved", "halves")
#: Rows that are computed at a time.
_BLOCK = 8192


def frequencies(dim: int, *, base: float = 10_000.0, endpoint: bool = False) -> NDArray[np.float64]:
    """Angular frequencies of the ladder, fastest first.

    Parameters
    ----------
    dim
        Width ``d`` of the table; even.
    base
        The slowest frequency is about ``1 / base``.
    endpoint
        Divide exponents by ``d/2 - 1``, so that the slowest frequency is exactly ``1 / base``
        (tensor2tensor, fairseq, Whisper), rather than by ``d/2`` (Vaswani et al. 2017, sec. 3.5).

    Returns
    -------
    NDArray
        ``[d/2]``, in radians per position.
    """
    pairs = dim // 2
    steps = max(pairs - 1, 1) if endpoint else pairs
    return np.asarray(base ** (-np.arange(pairs) / steps))


def sinusoidal(
    length: int,
    dim: int,
    *,
    base: float = 10_000.0,
    order: Order = "interleaved",
    endpoint: bool = False,
    cosine_first: bool = False,
) -> PositionTable:
    """Build the sinusoidal table of Vaswani et al. 2017 (section 3.5) in one of its variants.

    The paper interleaves and divides exponents by ``d/2``, as do DistilBERT, XLM and T2T-ViT;
    Marian, Pegasus and RoFormer keep its ladder in halves; tensor2tensor, fairseq and Whisper have
    halves with the endpoint; MusicGen has those with the cosines first.

    Parameters
    ----------
    length, dim
        Number of positions ``n`` and width ``d``; the width is even.
    base, endpoint
        The ladder of frequencies, see `frequencies`.
    order
        ``"interleaved"`` puts the sine and the cosine of a frequency side by side, ``"halves"`` all
        sines before all cosines.
    cosine_first
        Cosine on even columns, or in the first half, as Kernes (2021) writes it.

    Returns
    -------
    PositionTable
        ``[n, d]`` float64, fixed.

    Raises
    ------
    UsageError
        If a size is not positive, the width is odd, the base is not above 1, or the table would be
        too large.

    Examples
    --------
    Position 0 has sine 0 and cosine 1 at every frequency:

    >>> import posprobe as pp
    >>> pp.sinusoidal(64, 8).values[0].tolist()
    [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]
    >>> pp.sinusoidal(64, 8, order="halves").values[0].tolist()
    [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    """
    reference = canonical(
        "sinusoidal",
        length,
        dim,
        halves=order == "halves",
        endpoint=endpoint,
        cosine_first=cosine_first,
        base=None if base == 10_000 else base,
    )
    check_sizes(reference, length, dim, multiple=2)
    check_base(reference, base)
    omega = frequencies(dim, base=base, endpoint=endpoint)
    sine, cosine = columns(dim, order, cosine_first=cosine_first)
    values = np.empty((length, dim))
    for first in range(0, length, _BLOCK):
        part = values[first : first + _BLOCK]
        angles = np.arange(first, first + len(part))[:, None] * omega
        part[:, sine], part[:, cosine] = np.sin(angles), np.cos(angles)
    return formula_table(reference, values, Sequence(length))


def translation_matrix(
    dim: int,
    shift: float,
    *,
    base: float = 10_000.0,
    order: Order = "interleaved",
    endpoint: bool = False,
    cosine_first: bool = False,
) -> NDArray[np.float64]:
    """Matrix that moves every row of a sinusoid by ``shift`` positions.

    With positions as rows, ``PE(x + shift) = PE(x) @ T`` for every ``x``, real or whole: ``T``
    rotates each frequency's plane by ``omega * shift`` (Vaswani et al. 2017, sec. 3.5; Kernes 2021,
    part I). ``T`` is orthogonal and ``T(a) @ T(b) = T(a + b)``.

    Parameters
    ----------
    dim
        Width ``d``; even.
    shift
        Distance in positions; negative moves back.
    base, order, endpoint, cosine_first
        The variant, as for `sinusoidal`.

    Returns
    -------
    NDArray
        ``[d, d]`` float64.

    Raises
    ------
    UsageError
        If the width is not a positive even number or the base is not above 1.

    Examples
    --------
    >>> import posprobe as pp
    >>> import numpy as np
    >>> rows = pp.sinusoidal(64, 8).values
    >>> step = pp.encodings.translation_matrix(8, 1)
    >>> bool(np.allclose(rows[:-1] @ step, rows[1:]))
    True
    """
    reference = f"translation_matrix({dim}, {shift})"
    check_sizes(reference, dim, dim, multiple=2)
    check_base(reference, base)
    angles = frequencies(dim, base=base, endpoint=endpoint) * shift
    sine, cosine = columns(dim, order, cosine_first=cosine_first)
    matrix = np.zeros((dim, dim))
    matrix[sine, sine] = matrix[cosine, cosine] = np.cos(angles)
    matrix[cosine, sine] = np.sin(angles)
    matrix[sine, cosine] = -np.sin(angles)
    return matrix


def sincos2d(
    height: int, width: int, dim: int, *, base: float = 10_000.0, order: GridOrder = "mae"
) -> PositionTable:
    """Build a two-dimensional sin-cos table in the layout of a released code.

    Each axis has ``d/4`` frequencies with exponents over ``d/4``. With ``x`` the column of a cell
    and ``y`` its row, the four quarters of a row of the table are

    - ``"mae"``: ``sin x, cos x, sin y, cos y`` (MAE's released code, He et al. 2022; also DiT);
    - ``"timm"``: ``sin y, sin x, cos y, cos x`` (timm, ``build_sincos2d_pos_embed`` at its
      defaults).

    Returns
    -------
    PositionTable
        ``[height * width, d]`` float64 on a grid, fixed.

    Raises
    ------
    UsageError
        If a size is not positive, ``d`` is not a multiple of 4, the base is not above 1, the order
        is unknown, or the table would be too large.

    Examples
    --------
    >>> import posprobe as pp
    >>> table = pp.sincos2d(14, 14, 192)
    >>> print(table.layout)
    grid of 14 x 14
    >>> table.values.shape
    (196, 192)
    """
    reference = canonical(
        "sincos2d",
        height,
        width,
        dim,
        timm=order == "timm",
        base=None if base == 10_000 else base,
    )
    check_sizes(reference, height, width)
    check_sizes(reference, height * width, dim, multiple=4)
    check_base(reference, base)
    omega = frequencies(dim // 2, base=base)
    y, x = (axis[:, None] * omega for axis in np.divmod(np.arange(height * width), width))
    if order == "mae":
        quarters = [np.sin(x), np.cos(x), np.sin(y), np.cos(y)]
    elif order == "timm":
        quarters = [np.sin(y), np.sin(x), np.cos(y), np.cos(x)]
    else:
        raise UsageError(f"{reference}: order is {order!r}. Choose 'mae' or 'timm'.")
    return formula_table(reference, np.concatenate(quarters, axis=1), Grid(height, width))


def columns(
    dim: int, order: Order, *, cosine_first: bool
) -> tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]]:
    """Columns of the sines and of the cosines, each in the order of the frequencies.

    Raises
    ------
    UsageError
        If the order is unknown.
    """
    if order not in ORDERS:
        raise UsageError(f"order {order!r}: there is none. Choose {' or '.join(ORDERS)}.")
    pairs = np.arange(dim).reshape(*((-1, 2) if order == "interleaved" else (2, -1)))
    first, second = pairs.T if order == "interleaved" else pairs
    return (second, first) if cosine_first else (first, second)
