"""How far arithmetic carries angles: numbers rounded to a type, and the first angle that is off."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Angle in radians by which a pair may be off: 0.1 moves its cosine by 0.1 at most.
OFF = 0.1
#: Positions beyond which no first wrong angle is looked for, and how many are looked at together.
FARTHEST, BLOCK = 2**23, 2**16
#: Largest share by which rounding position, frequency and product moves an angle: 3 halves of the
#: step between numbers next to 1, and a little.
_SHARE = {"bfloat16": 1.52 * 2**-7, "float16": 1.52 * 2**-10, "float32": 1.52 * 2**-23}


def to_type(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Round to the nearest number of a type, a tie to the even one.

    Parameters
    ----------
    values
        Of any shape.
    name
        ``float32``, ``float16`` or ``bfloat16``.
    """
    single = np.asarray(values, dtype=np.float32)
    if name == "float32":
        return single.astype(np.float64)
    if name == "float16":
        with np.errstate(over="ignore"):
            return np.asarray(values).astype(np.float16).astype(np.float64)
    bits = single.view(np.uint32).astype(np.uint64)
    kept = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32)
    return kept.view(np.float32).astype(np.float64)


def precision_horizon(inv_freq: ArrayLike, name: str, off: float = OFF) -> int | None:
    """First position at which the angle of some pair is off, all arithmetic being of one type.

    Positions, frequencies and their products are rounded, as where a model is cast as a whole.
    Engines that keep angles in float32 and round cosines alone have no such position.

    Parameters
    ----------
    inv_freq
        ``[pairs]``, radians per position.
    name
        As for `to_type`.
    off
        By how many radians.

    Returns
    -------
    int
        None where there is none within 8 million positions.

    Examples
    --------
    >>> import posprobe as pp
    >>> frequencies, _ = pp.encodings.rotary_frequencies(128)
    >>> [precision_horizon(frequencies, name) for name in ("bfloat16", "float16")]
    [40, 182]
    """
    omega = np.asarray(inv_freq, dtype=np.float64)
    least = off / _SHARE[name]  # no smaller angle can be off by as much
    omega = omega[omega * FARTHEST > least]
    if not omega.size:
        return None
    for first in range(int(least / omega.max()), FARTHEST, BLOCK):
        place = np.arange(first, first + BLOCK)
        # Only pairs that turn far enough within the block.
        turned = omega[omega * place[-1] > least]
        exact = np.outer(place, turned)
        angle = to_type(np.outer(to_type(place, name), to_type(turned, name)), name)
        wrong = (np.abs(angle - exact) > off).any(axis=1)
        if wrong.any():
            return first + int(wrong.argmax())
    return None
