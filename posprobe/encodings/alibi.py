"""ALiBi: a penalty linear in distance, with one slope per head (Press et al. 2022)."""

from __future__ import annotations

from numbers import Real

import numpy as np
from numpy.typing import NDArray

from posprobe.encodings.build import whole
from posprobe.errors import UsageError

#: Most heads that slopes are computed for, and the greatest exponent: beyond 1,074 slopes are 0.
MOST_HEADS, MOST_EXPONENT = 2**16, 1000


def alibi_slopes(heads: int, *, bias_max: float = 8.0) -> NDArray[np.float64]:
    """Slope of each head, by the algorithm of the release.

    For a power of two the slopes are ``2 ** (-bias_max * h / heads)``, ``h`` from 1. Otherwise the
    slopes for the next lower power of two come first, and then every other one of those for the
    next higher power, from its steepest (released code, ``get_slopes``). BLOOM and Falcon compute
    the same; so does MPT, which selects them from the next higher power alone.

    Parameters
    ----------
    heads
        Number of heads.
    bias_max
        The gentlest slope of a power of two is ``2 ** -bias_max``: MPT's ``alibi_bias_max``. The
        paper has 8.

    Returns
    -------
    NDArray
        ``[heads]``, positive; the bias is minus the slope times the distance.

    Raises
    ------
    UsageError
        If the number of heads is none from 1 to 65,536, or ``bias_max`` is not above 0 and up to
        1,000.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.encodings.alibi_slopes(8).tolist()
    [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]
    """
    heads = whole("alibi: the number of heads", heads)
    exponent: object = bias_max
    is_number = isinstance(exponent, Real) and not isinstance(exponent, bool)
    if not is_number or heads < 1 or not 0 < bias_max <= MOST_EXPONENT:
        raise UsageError(
            f"alibi: {heads} heads, greatest exponent {bias_max!r}: both must be positive "
            f"numbers, the exponent up to {MOST_EXPONENT}. The paper's is 8."
        )
    if heads > MOST_HEADS:
        raise UsageError(f"alibi: {heads} heads are more than {MOST_HEADS}. Choose fewer.")
    lower = 1 << (heads.bit_length() - 1)
    exact = np.arange(1, lower + 1) / lower
    between = np.arange(1, 2 * lower, 2) / (2 * lower)
    return np.asarray(2.0 ** (-bias_max * np.concatenate([exact, between])[:heads]))
