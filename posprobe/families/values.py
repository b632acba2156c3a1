"""The values of a table: all of them, or of a long one only the rows that are asked for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.families.rows import Rows
from posprobe.sources import Source

#: Numbers of a table up to which it is read whole where only some rows are asked for, which tells
#: its digest and whether it was written from a transposed array: 16 MB in F32.
WHOLE = 2**22
#: Numbers of a table up to which it is read column by column as well.
BY_COLUMNS = 2**26
#: Fewest rows whose neighbours tell in which order a file was written.
FEW = 16
#: Rows whose neighbours are looked at at a time, to hold no second table in double precision.
_BLOCK = 4096


def source_of(
    checkpoint: Checkpoint, reference: str, info: TensorInfo, sha256: str | None
) -> Source:
    """Say where the values of a tensor were read."""
    return Source(
        reference, checkpoint.location, checkpoint.revision, info.file, info.name, info.shape,
        info.dtype, sha256, checkpoint.format or None, info.quantisation,
    )  # fmt: skip


def is_long(info: TensorInfo, rows: Rows) -> bool:
    """Tell whether a table has more than `WHOLE` numbers and each of its rows lies in one piece."""
    in_rows = rows.axis is None and not rows.channels_first
    return in_rows and math.prod(info.shape) > WHOLE


def read_some(
    checkpoint: Checkpoint, info: TensorInfo, rows: Rows, begin: int, end: int
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    """Read the positions ``begin`` to ``end`` of a table and its rows of special tokens, no others.

    Returns
    -------
    tuple
        ``[end - begin, d]`` and ``[p, d]``.
    """
    flat = replace(info, shape=(math.prod(info.shape[:-1]), info.shape[-1]))
    part = replace(checkpoint, tensors={info.name: flat})
    first, last = begin, end - 1
    for row in rows.special:  # in order, so that each moves what comes after it
        first, last = first + (row <= first), last + (row <= last)
    chosen = np.setdiff1d(np.arange(first, last + 1), rows.special)
    prefix = sorted(row.row for row in rows.prefix)
    return part.read_rows(info.name, chosen), part.read_rows(info.name, prefix)


def rows_of(values: NDArray[np.floating[Any]], rows: Rows) -> NDArray[np.floating[Any]]:
    """Lay a stored tensor out as ``[rows, d]``."""
    if rows.axis is not None:
        values = values[rows.axis]
    if rows.channels_first:
        values = np.moveaxis(values, 1, -1)
    return values.reshape(-1, values.shape[-1])


def order_note(values: NDArray[np.floating[Any]], skip: int) -> tuple[str, ...]:
    """Say so where the bytes look like positions only when read column by column.

    Writing the buffer of a transposed array is a known way to spoil a checkpoint: shape and size
    are right, every number is there, and all rows are mixtures.
    """
    rows, dim = values.shape
    if rows - skip < FEW or values.size > BY_COLUMNS or not np.isfinite(values).all():
        return ()
    as_stored = _neighbour_cosine(values[skip:])
    by_columns = _neighbour_cosine(values.reshape(dim, rows).T[skip:])
    # Rows that alternate are ordered, too; not where numbers are too large to tell.
    if not by_columns >= abs(as_stored) + 0.5:
        return ()
    note = (
        "the file looks as if it was written from a transposed array: read row by row, as its "
        f"format says, neighbouring rows have centred cosine {as_stored:.2f}; read column by "
        f"column they have {by_columns:.2f}. These results follow the format; check the file"
    )
    return (note,)


def _neighbour_cosine(rows: NDArray[np.floating[Any]]) -> float:
    mean, total = rows.mean(axis=0, dtype=np.float64), 0.0
    for first in range(0, len(rows) - 1, _BLOCK):
        centered = rows[first : first + _BLOCK + 1] - mean
        length = np.linalg.norm(centered, axis=1)
        scale = length[1:] * length[:-1]
        product = np.einsum("ij,ij->i", centered[1:], centered[:-1])
        total += np.divide(product, scale, out=np.zeros_like(scale), where=scale > 0).sum()
    return float(total / (len(rows) - 1))
