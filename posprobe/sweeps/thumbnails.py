"""A cosine matrix in 300 letters: what a sweep keeps of how a table looks.

The matrix is averaged to 24 x 24 cells and rounded to 15 levels from -1 to 1. It is symmetric, so
the lower triangle says all. Letters survive JSON as they are, and nothing in them can do harm.
"""

from __future__ import annotations

import base64
import re
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

#: Cells along a side, and letters of the lower triangle.
SIDE = 24
LENGTH = SIDE * (SIDE + 1) // 2
#: Levels on either side of 0, whose letter is the eighth; the last letter is undefined.
LEVELS = 7
_LETTERS = "abcdefghijklmnop"
_WHOLE = re.compile(f"[{_LETTERS}]{{{LENGTH}}}")
#: Blue below 0, white at 0, red above; undefined is grey.
_ENDS = ((33, 102, 172), (247, 247, 247), (178, 24, 43))
_GREY = (150, 150, 150)
#: The lower triangle.
_LOWER = np.tril_indices(SIDE)


def thumbnail(matrix: NDArray[np.float64]) -> str:
    """Reduce a symmetric matrix of cosines ``[n, n]`` to letters; NaN counts for nothing."""
    n = len(matrix)
    first = np.arange(SIDE) * n // SIDE
    stop = np.maximum((np.arange(SIDE) + 1) * n // SIDE, first + 1)
    at = np.arange(n)
    member = ((at >= first[:, None]) & (at < stop[:, None])).astype(np.float64)
    defined = ~np.isnan(matrix)
    sums = member @ np.where(defined, matrix, 0.0) @ member.T
    counts = member @ defined.astype(np.float64) @ member.T
    with np.errstate(invalid="ignore"):
        levels = np.rint(np.clip(sums / counts, -1, 1) * LEVELS)[_LOWER] + LEVELS
    return "".join(_LETTERS[-1 if np.isnan(level) else int(level)] for level in levels)


def is_thumbnail(text: object) -> bool:
    """Tell whether something read from a file is one."""
    return isinstance(text, str) and _WHOLE.fullmatch(text) is not None


def levels_of(text: str) -> NDArray[np.float64]:
    """Return the lower triangle ``[300]`` as numbers from -1 to 1, NaN where undefined."""
    codes = _codes(text).astype(np.float64)
    codes[codes == len(_LETTERS) - 1] = np.nan
    return (codes - LEVELS) / LEVELS


def image(text: str) -> str:
    """Draw it as an element of a page: a PNG of a few hundred bytes."""
    from PIL import Image

    cells = np.zeros((SIDE, SIDE), dtype=np.uint8)
    cells[_LOWER] = _codes(text)
    drawn = Image.fromarray(np.maximum(cells, cells.T))
    drawn.putpalette(_palette())
    buffer = BytesIO()
    drawn.save(buffer, "PNG", bits=4, optimize=True)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="" width="48" height="48">'


def _codes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode("ascii"), dtype=np.uint8) - np.uint8(ord(_LETTERS[0]))


def _palette() -> bytes:
    shares = np.abs(np.arange(-LEVELS, LEVELS + 1))[:, None] / LEVELS
    low, middle, high = (np.array(end, dtype=np.float64) for end in _ENDS)
    ends = np.where(np.arange(-LEVELS, LEVELS + 1)[:, None] < 0, low, high)
    colours = np.rint(middle + shares * (ends - middle)).astype(np.uint8)
    return colours.tobytes() + bytes(_GREY)
