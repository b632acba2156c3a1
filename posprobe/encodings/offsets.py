"""Biases by offset: T5's and DeBERTa's buckets, Swin V2's network, ALiBi's slopes."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posprobe.encodings.tables import MAX_ALIBI_EXPONENT, check_integer, check_sizes
from posprobe.errors import UsageError


def t5_buckets(
    offsets: ArrayLike,
    *,
    buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> NDArray[np.int64]:
    """Bucket of each offset in T5's relative attention bias (Raffel et al. 2020, released code).

    In each direction, half of the buckets hold one offset each, the others grow logarithmically,
    and the last holds all offsets from ``max_distance`` on. mT5, UMT5, LongT5, Switch Transformers,
    Pop2Piano, UDOP, LayoutLMv2, LayoutLMv3, MPNet, WavLM and CPM-Ant compute the same buckets;
    Pix2Struct's decoder always uses causal ones. LayoutLM and UDOP also bucket page coordinates.

    Parameters
    ----------
    offsets
        Integers of any shape: **key minus query**, so an earlier key is negative.
    buckets, max_distance
        ``relative_attention_num_buckets`` and ``relative_attention_max_distance``.
    bidirectional
        Whether to split the buckets between earlier keys (first half) and later ones, as encoders
        do. Decoders give all to earlier keys and put later ones, which they mask, into bucket 0.

    Returns
    -------
    NDArray
        Buckets in the shape of ``offsets``, from 0 to ``buckets - 1``.

    Raises
    ------
    UsageError
        If an offset is not an integer, there are fewer than four buckets (two if causal), or
        ``max_distance`` is not beyond the offsets that have a bucket of their own.

    Examples
    --------
    Keys at the query, one, two, twenty and a thousand positions before it:

    >>> import posprobe as pp
    >>> pp.encodings.t5_buckets([0, -1, -2, -20, -1000]).tolist()
    [0, 1, 2, 10, 15]
    """
    offset_array = _to_integers(offsets)
    n_per_side = buckets // 2 if bidirectional else buckets
    n_exact = n_per_side // 2
    if n_exact < 1 or max_distance <= n_exact:
        raise UsageError(
            f"t5: {buckets} buckets up to distance {max_distance}: there "
            f"must be at least {4 if bidirectional else 2} buckets, and a "
            f"distance above {max(n_exact, 1)}."
        )
    distance = np.abs(offset_array) if bidirectional else np.maximum(-offset_array, 0)
    log_distances = _log_float32(np.maximum(distance, n_exact), n_exact)
    log_distances = (
        log_distances
        / np.float32(np.log(max_distance / n_exact))
        * np.float32(n_per_side - n_exact)
    )
    log_buckets = np.minimum(n_exact + log_distances.astype(np.int64), n_per_side - 1)
    side_offset = n_per_side * (offset_array > 0) if bidirectional else 0
    return np.asarray(
        side_offset + np.where(distance < n_exact, distance, log_buckets), dtype=np.int64
    )


def deberta_buckets(
    offsets: ArrayLike, *, buckets: int = 256, max_distance: int = 512
) -> NDArray[np.int64]:
    """Bucket of each offset in DeBERTa-v2 and v3 (He et al. 2021, released code); also SEW-D.

    The bucket of an offset up to ``buckets // 2`` is the offset itself. Buckets of larger offsets
    grow logarithmically and reach ``buckets - 1`` at ``max_distance - 1``; they go on growing
    beyond it, and the model clips them to its table. The model selects row ``bucket + buckets`` of
    its ``2 * buckets`` rows.

    Parameters
    ----------
    offsets
        Integers of any shape: **query minus key**, as DeBERTa counts, so an earlier key is
        positive. The bucket of ``-x`` is minus that of ``x``.
    buckets, max_distance
        ``position_buckets`` and ``max_relative_positions`` (where that is -1,
        ``max_position_embeddings``).

    Returns
    -------
    NDArray
        Signed buckets in the shape of ``offsets``.

    Raises
    ------
    UsageError
        If an offset is not an integer, there are fewer than two buckets, or ``max_distance`` is not
        beyond the offsets that have a bucket of their own.
    """
    offset_array = _to_integers(offsets)
    middle = buckets // 2
    if middle < 1 or max_distance - 1 <= middle:
        raise UsageError(
            f"deberta: {buckets} buckets up to distance {max_distance}: "
            "there must be at least 2 buckets, and a distance above "
            f"{max(middle, 1) + 1}."
        )
    distance = np.abs(offset_array)
    log_distances = _log_float32(np.maximum(distance, middle), middle) / _log_float32(
        max_distance - 1, middle
    )
    log_buckets = (
        np.ceil(log_distances * np.float32(middle - 1)).astype(np.int64) + middle
    )
    return np.asarray(
        np.where(distance <= middle, offset_array, np.sign(offset_array) * log_buckets),
        dtype=np.int64,
    )


def log_spaced_offsets(
    height: int, width: int, *, pretrained: tuple[int, int] | None = None
) -> NDArray[np.float64]:
    """Offsets that Swin V2's network turns into biases (Liu et al. 2022, section 3.3).

    An offset, divided by the largest of the window and times 8, becomes
    ``sign(x) * log2(1 + |x|) / log2(8)``, so the window's edge is at ``log2(9) / 3`` = 1.057.

    Parameters
    ----------
    height, width
        Sides of the window in patches.
    pretrained
        Height and width of the window in training, if it differs: offsets are divided by its
        largest offset instead.

    Returns
    -------
    NDArray
        ``[2h - 1, 2w - 1, 2]``, vertical and horizontal; 0 along an axis of one patch.

    Raises
    ------
    UsageError
        If a size is not positive, or that of ``pretrained`` is below 2.
    """
    check_sizes(f"window of {height} x {width}", height, width)
    if pretrained is not None and min(pretrained) < 2:
        raise UsageError(
            f"pretrained window of {pretrained[0]} x {pretrained[1]}: it "
            "has no offsets. Leave it out where the window was trained at "
            "its own size."
        )
    max_offsets = np.array(pretrained or (height, width)) - 1
    rows, columns = np.arange(1 - height, height), np.arange(1 - width, width)
    offsets = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1)
    scaled = 8 * offsets / np.maximum(max_offsets, 1)
    return np.asarray(np.sign(scaled) * np.log2(1 + np.abs(scaled)) / 3)


def continuous_bias(
    offsets: NDArray[np.floating[Any]],
    first: NDArray[np.floating[Any]],
    bias: NDArray[np.floating[Any]],
    second: NDArray[np.floating[Any]],
) -> NDArray[np.float64]:
    """Bias of Swin V2 for each log-spaced offset and head (Liu et al. 2022, section 3.3).

    A network with one hidden layer of rectified units. ``16 * sigmoid`` bounds its output, in the
    released code but not in the paper.

    Parameters
    ----------
    offsets
        ``[2 h - 1, 2 w - 1, 2]``, offsets from `log_spaced_offsets`.
    first, bias, second
        ``[hidden, 2]``, ``[hidden]`` and ``[heads, hidden]``, weights as linear layers store them.

    Returns
    -------
    NDArray
        ``[heads, 2 h - 1, 2 w - 1]``, between 0 and 16.
    """
    hidden = np.maximum(offsets @ first.T + bias, 0)
    # 16 * sigmoid(t), in a form that cannot overflow.
    return np.asarray(np.moveaxis(8 * (1 + np.tanh(hidden @ second.T / 2)), -1, 0))


def _to_integers(offsets: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(offsets)
    if not np.issubdtype(array.dtype, np.integer):
        raise UsageError(
            f"offsets of dtype {array.dtype}: they are counted in whole positions."
        )
    return array.astype(np.int64)


def _log_float32(numbers: ArrayLike, unit: int) -> NDArray[np.float32]:
    """Return the logarithm of ``numbers / unit`` rounded to float32, as in the libraries.

    The rounding decides the bucket of an offset at an edge, so the last bit matters; NumPy's own
    float32 logarithm differs in it between processors.
    """
    ratio = (np.asarray(numbers, dtype=np.float32) / np.float32(unit)).astype(np.float64)
    return np.log(ratio).astype(np.float32)


#: Largest number of heads for which slopes are computed; no model has a hundredth of it.
MAX_ALIBI_HEADS = 2**16


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
        Exponent of the smallest slope for a power of two, ``2 ** -bias_max``; MPT's
        ``alibi_bias_max``. The paper has 8.

    Returns
    -------
    NDArray
        ``[heads]``, positive; the bias is minus the slope times the distance.

    Raises
    ------
    UsageError
        If the number of heads is not from 1 to 65,536, or ``bias_max`` is not above 0 and up to
        1,000.

    Examples
    --------
    >>> import posprobe as pp
    >>> pp.encodings.alibi_slopes(8).tolist()
    [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]
    """
    heads = check_integer("alibi: the number of heads", heads)
    exponent: object = bias_max
    is_number = isinstance(exponent, Real) and not isinstance(exponent, bool)
    if (
        not 1 <= heads <= MAX_ALIBI_HEADS
        or not is_number
        or not 0 < bias_max <= MAX_ALIBI_EXPONENT
    ):
        raise UsageError(
            f"alibi: {heads} heads, greatest exponent {bias_max!r}: from 1 "
            f"to {MAX_ALIBI_HEADS} heads, and a number above 0 and up to "
            f"{MAX_ALIBI_EXPONENT}. The paper's is 8."
        )
    lower = 1 << (heads.bit_length() - 1)
    exponents = np.arange(1, lower + 1) / lower
    odd_exponents = np.arange(1, 2 * lower, 2) / (2 * lower)
    return np.asarray(
        2.0 ** (-bias_max * np.concatenate([exponents, odd_exponents])[:heads])
    )
