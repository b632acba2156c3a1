"""What a page carries for its script: the document, and every cosine in a few hundred kilobytes."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.figures.common import pooled
from posprobe.figures.grid import MAX_TILE
from posprobe.foreign import plain_json

#: Cosines are rounded to this many levels on either side of 0: to less than 0.004.
LEVELS = 127
#: The level of a cosine that is undefined.
UNDEFINED = -128
#: Cells per side beyond which nothing is tried: a browser unpacks so many in a tenth of a second.
MAX_SIDE = 4096


def json_text(document: Mapping[str, Any]) -> str:
    """Serialise a document for a ``<script>``: no ``<`` that could end it or open a comment."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return plain_json(text).replace("<", "\\u003c")


def cosines(arrays: Mapping[str, NDArray[Any]], room: int) -> dict[str, Any] | None:
    """Pack the cosine matrices of ``arrays.npz`` so that a script can look any pair up.

    Each matrix becomes the rows of its lower triangle, in levels of ``1 / LEVELS``, each level less
    the one above it to the left (modulo 256, as signed bytes), deflated, in base64: along diagonals
    a cosine that depends on the offset does not change. Where that does not fit, cells are means
    of ``block x block`` pairs, the side halved until it does.

    Parameters
    ----------
    arrays
        ``similarity`` and ``similarity_centered``, both ``[n, n]``, or pooled already.
    room
        Characters that both may take.

    Returns
    -------
    dict or None
        ``block`` (in cells of the matrices), ``levels``, ``undefined``, ``raw``, ``centred``, and
        the largest side of a mosaic's ``tile`` in cells; None without both matrices.
    """
    found = [arrays[name] for name in ("similarity", "similarity_centered") if name in arrays]
    if len(found) < 2:
        return None
    n = len(found[0])
    side = n
    means = found
    while True:
        if side <= MAX_SIDE:
            # Means of whole blocks are those of means of their halves, which are far fewer.
            whole = n % len(means[0]) == 0 and len(means[0]) % side == 0
            finer = means if whole else found
            means = [pooled(matrix, side)[0] for matrix in finer]
            packed = [_packed(matrix) for matrix in means]
            if sum(map(len, packed)) <= room:
                break
        if side == 1:
            return None
        side = -(-side // 2)
    raw, centered = packed
    return {
        "block": -(-n // side),
        "levels": LEVELS,
        "undefined": UNDEFINED,
        "raw": raw,
        "centred": centered,
        "tile": MAX_TILE,
    }


def _packed(matrix: NDArray[np.float64]) -> str:
    levels = np.rint(matrix * LEVELS)
    levels[np.isnan(levels)] = UNDEFINED
    steps = levels.astype(np.int8)
    steps[1:, 1:] -= steps[:-1, :-1].copy()
    # The fastest level: slower ones save a third of a smooth table's bytes and none of a rough one.
    rows = steps[np.tri(len(steps), dtype=bool)].tobytes()
    return base64.b64encode(zlib.compress(rows, 1)).decode()


@cache
def script() -> tuple[str, str]:
    """Return the page's script and its hash, by which the page's policy lets it alone run."""
    text = (files("posprobe.report") / "templates" / "page.js").read_text(encoding="utf-8")
    digest = hashlib.sha256(text.encode()).digest()
    return text, f"sha256-{base64.b64encode(digest).decode()}"
