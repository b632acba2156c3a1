"""Rotary positions: rules for their frequencies, and properties that follow from these.

A pair of columns ``k`` of queries and keys is turned by the angle ``m * inv_freq[k]`` at position
``m`` (Su et al. 2021), so that a logit depends on content and distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from posprobe import settings
from posprobe.arrays import Floats
from posprobe.errors import InvalidCheckpoint, UsageError

#: Default number of turns within the training length from which YaRN keeps a pair (Peng et al.
#: 2023, section 3.2).
YARN_FAST_TURNS = 32.0
#: Default number of turns up to which YaRN interpolates a pair.
YARN_SLOW_TURNS = 1.0


def yarn_correction_range(
    dim: int,
    base: float,
    length: float,
    *,
    fast: float = YARN_FAST_TURNS,
    slow: float = YARN_SLOW_TURNS,
    truncate: bool = True,
) -> tuple[float, float]:
    """Range of pairs in which YaRN changes from kept to interpolated (Peng et al. 2023, sec. 3.2).

    Parameters
    ----------
    dim, base
        Width that is rotated, and ``rope_theta``.
    length
        Positions in training, before scaling.
    fast, slow
        Turns in that length from which a pair is kept, and up to which a pair is interpolated:
        ``beta_fast`` and ``beta_slow``.
    truncate
        Whether to round outwards to whole pairs, as the released code does.

    Returns
    -------
    tuple
        First and last pair, between 0 and ``dim - 1``.
    """
    low, high = (
        dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (fast, slow)
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    return max(low, 0), min(high, dim - 1)


@dataclass(frozen=True)
class RotaryHead:
    """The inputs of a scaling rule: the sizes of a head, and the parameters of the rule.

    Frequencies that are ``scaled`` already take the place of the geometric series.
    """

    width: int
    partial: float
    base: float
    max_positions: int | None
    length: int | None
    stated: Mapping[str, Any]
    scaled: Floats | None = None

    @property
    def dim(self) -> int:
        """Number of columns that are rotated."""
        return int(self.width * self.partial)

    @property
    def omega(self) -> Floats:
        """Frequencies before scaling."""
        if self.scaled is not None:
            return self.scaled
        return _geometric_frequencies(self.dim, self.base)

    def number(self, key: str, default: float | None = None) -> float:
        """Read a positive number; null counts as missing."""
        value = settings.read_number(self.stated, key, path="rope_parameters")
        value = default if value is None else value
        if value is None:
            raise InvalidCheckpoint(
                f"rope_parameters: its rule needs {key}, which is missing. Add it to config.json."
            )
        return value

    def divisors(self, key: str) -> Floats:
        """Read a list of positive numbers, one per pair."""
        count = self.omega.size
        declared = self.stated.get(key)
        if not isinstance(declared, list | tuple) or len(declared) != count:
            expected = f"a list of {count} numbers, one per pair,"
            raise settings.wrong_value_error(key, declared, expected, "rope_parameters")
        numbers = [
            settings.read_number({key: divisor}, key, path="rope_parameters")
            for divisor in declared
        ]
        if None in numbers:
            raise settings.wrong_value_error(
                key, None, "a positive number", "rope_parameters"
            )
        return np.array(numbers, dtype=np.float64)

    @property
    def original_length(self) -> float:
        """Training length, or the configured length if it is not stated."""
        return self.number("original_max_position_embeddings", self.max_positions)

    @property
    def factor(self) -> float:
        """Stated factor, or the ratio of the lengths."""
        if self.max_positions is None:
            return self.number("factor")
        return self.number("factor", self.max_positions / self.original_length)


def _geometric_frequencies(dim: int, base: float) -> Floats:
    return np.asarray(base ** -(np.arange(0, dim, 2) / dim))


def _default_rule(head: RotaryHead) -> tuple[Floats, float]:
    return head.omega, 1.0


def _linear_rule(head: RotaryHead) -> tuple[Floats, float]:
    return head.omega / head.number("factor"), 1.0


def _dynamic_rule(head: RotaryHead) -> tuple[Floats, float]:
    if head.dim < 3:
        raise UsageError(
            f"rotary: the rule 'dynamic' has no base for {head.dim} columns."
        )
    if head.stated.get("alpha"):
        base_factor = head.number("alpha")
    elif head.max_positions is None:
        raise UsageError(
            "rotary: the rule 'dynamic' depends on max_position_embeddings. Pass max_positions."
        )
    else:
        factor = head.number("factor")
        trained = head.number("max_trained_positions", head.max_positions)
        length = max(head.length or 0, trained)
        base_factor = factor * length / trained - (factor - 1)
    return _geometric_frequencies(
        head.dim, head.base * base_factor ** (head.dim / (head.dim - 2))
    ), 1.0


def _yarn_rule(head: RotaryHead) -> tuple[Floats, float]:
    original, declared = head.original_length, head.stated
    # Null stands for the ratio of the lengths; without the key the library raises an error.
    factor = head.factor if "factor" in declared else head.number("factor")

    def temperature(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0

    attention = temperature(1)
    if declared.get("mscale") and declared.get("mscale_all_dim"):
        attention = temperature(head.number("mscale")) / temperature(
            head.number("mscale_all_dim")
        )
    # The library treats 0 like null, as not given.
    fast = head.number("beta_fast") if declared.get("beta_fast") else YARN_FAST_TURNS
    slow = head.number("beta_slow") if declared.get("beta_slow") else YARN_SLOW_TURNS
    if fast < slow:
        raise settings.wrong_value_error(
            "beta_fast", fast, f"at least beta_slow = {slow:g}", "rope_parameters"
        )
    truncate = bool(declared.get("truncate", True))
    low, high = yarn_correction_range(
        head.dim, head.base, original, fast=fast, slow=slow, truncate=truncate
    )
    ramp = (np.arange(head.omega.size) - low) / (high - low if high != low else 0.001)
    interpolated = np.clip(ramp, 0, 1)
    omega = head.omega * (interpolated / factor + 1 - interpolated)
    return omega, head.number("attention_factor", attention)


def _longrope_rule(head: RotaryHead) -> tuple[Floats, float]:
    original, factor = head.original_length, head.factor
    long_factors, short_factors = (
        head.divisors("long_factor"),
        head.divisors("short_factor"),
    )
    attention = 1.0
    if factor > 1 and head.stated.get("attention_factor") is None:
        key = "original_max_position_embeddings"
        if original <= 1:  # its logarithm divides
            raise settings.wrong_value_error(
                key, original, "a number above 1", "rope_parameters"
            )
        attention = math.sqrt(1 + math.log(factor) / math.log(original))
    factors = long_factors if head.length and head.length > original else short_factors
    return head.omega / factors, head.number("attention_factor", attention)


def _llama3_rule(head: RotaryHead) -> tuple[Floats, float]:
    low, high = head.number("low_freq_factor"), head.number("high_freq_factor")
    if high <= low:
        expected = f"more than low_freq_factor = {low:g}"
        raise settings.wrong_value_error(
            "high_freq_factor", high, expected, "rope_parameters"
        )
    turns = head.original_length * head.omega / (2 * math.pi)
    kept_share = np.clip((turns - low) / (high - low), 0, 1)
    return head.omega * ((1 - kept_share) / head.number("factor") + kept_share), 1.0


def _proportional_rule(head: RotaryHead) -> tuple[Floats, float]:
    """Span the ladder over the whole head and set its slow frequencies to 0 (Gemma)."""
    omega = _geometric_frequencies(head.width, head.base)
    rotated = np.arange(omega.size) < int(head.partial * head.width // 2)
    return np.where(rotated, omega, 0.0) / head.number("factor", 1.0), 1.0


#: Scaling rules by the name they have in a configuration.
SCALING_RULES: Mapping[str, Callable[[RotaryHead], tuple[Floats, float]]] = {
    "default": _default_rule,
    "linear": _linear_rule,
    "dynamic": _dynamic_rule,
    "yarn": _yarn_rule,
    "longrope": _longrope_rule,
    "llama3": _llama3_rule,
    "proportional": _proportional_rule,
}
_OLD_RULE_NAMES = {"su": "longrope", "mrope": "default"}


#: Largest number of angles of distances and pairs in memory at a time: 32 MiB.
_MAX_BLOCK_ANGLES = 2**22


def rotary_frequencies(
    head_dim: int,
    *,
    base: float = 10_000.0,
    partial: float = 1.0,
    scaling: Mapping[str, Any] | None = None,
    max_positions: int | None = None,
    length: int | None = None,
) -> tuple[Floats, float]:
    """Inverse frequencies of a head, and the factor on its cosines and sines.

    The rules and their keys are those of transformers 5.23 (``modeling_rope_utils.py``): default,
    linear (Chen et al. 2023), dynamic NTK, yarn (Peng et al. 2023), longrope (Ding et al. 2024),
    llama3 and proportional (Gemma). Older names are read as well: ``su`` for longrope, ``mrope``
    for default, Hunyuan's ``dynamic`` with ``alpha``, and Nomic's with ``max_trained_positions``.

    Parameters
    ----------
    head_dim
        Width of a head.
    base
        ``rope_theta``, if the mapping has none.
    partial
        ``partial_rotary_factor``, the share of the head that is rotated, if the mapping has none.
    scaling
        ``rope_parameters`` or the older ``rope_scaling`` of a configuration, with the rule under
        ``rope_type`` or ``type``. If kinds of layers differ, the mapping of one kind.
    max_positions
        ``max_position_embeddings``, which dynamic needs and which replaces a missing
        ``original_max_position_embeddings``.
    length
        Positions of the current input, on which dynamic and longrope depend; without it, at most
        as many as at first in training.

    Returns
    -------
    inv_freq : NDArray
        ``[pairs]``, radians per position, as many pairs as are rotated (proportional: of the whole
        head, 0 for those that are not).
    attention_factor : float
        Factor on cosines and sines, so that logits change by its square.

    Raises
    ------
    InvalidCheckpoint
        If the rule is unknown, a key that it needs is missing, or a value is invalid.
    UsageError
        If another argument is invalid.

    Examples
    --------
    >>> import posprobe as pp
    >>> frequencies, factor = pp.encodings.rotary_frequencies(8)
    >>> frequencies.round(6).tolist(), factor
    ([1.0, 0.1, 0.01, 0.001], 1.0)
    """
    rule, head = _read_rule(
        RotaryHead(head_dim, partial, base, max_positions, length, scaling or {})
    )
    return rule(head)


def rescale_frequencies(
    inv_freq: Floats,
    head_dim: int,
    *,
    base: float,
    partial: float,
    scaling: Mapping[str, Any],
    max_positions: int | None,
    length: int | None,
) -> Floats:
    """Scale frequencies by a rule that scaled them already, as engines do by mistake.

    Parameters
    ----------
    inv_freq
        ``[pairs]``, radians per position, after scaling.
    head_dim, base, partial, scaling, max_positions, length
        As for `rotary_frequencies`.
    """
    rule, head = _read_rule(
        RotaryHead(head_dim, partial, base, max_positions, length, scaling)
    )
    return rule(replace(head, scaled=inv_freq))[0]


def _read_rule(
    head: RotaryHead,
) -> tuple[Callable[[RotaryHead], tuple[Floats, float]], RotaryHead]:
    """Return the rule that a configuration states, and the head with its stated sizes."""
    head_dim, declared = head.width, head.stated
    nested = [key for key, value in declared.items() if isinstance(value, Mapping)]
    if nested:
        raise InvalidCheckpoint(
            "rope_parameters: it differs by kind of layer "
            f"({', '.join(nested)}). Pass the mapping of one kind."
        )
    name = str(declared.get("rope_type") or declared.get("type") or "default")
    rule = SCALING_RULES.get(_OLD_RULE_NAMES.get(name, name))
    if rule is None:
        raise InvalidCheckpoint(
            f"rope_parameters: no scaling rule is called {name!r}. Known "
            f"are {', '.join(SCALING_RULES)}."
        )
    head = replace(
        head,
        base=head.number("rope_theta", head.base),
        partial=head.number("partial_rotary_factor", head.partial),
    )
    if (
        head_dim < 2
        or head_dim % 2
        or not (math.isfinite(head.base) and head.base > 1)
        or not 0 <= head.partial <= 1
    ):
        raise UsageError(
            f"rotary: head width {head_dim}, base {head.base}, rotated "
            f"share {head.partial}: the width must be positive and even, "
            "the base a number above 1, the share between 0 and 1."
        )
    if any(
        count is not None and count < 1 for count in (head.max_positions, head.length)
    ):
        raise UsageError(
            f"rotary: {head.max_positions} positions, length {head.length}: at least 1 each."
        )
    if head.dim < 1 and rule is not _proportional_rule:
        raise UsageError(
            f"rotary: a share of {head.partial} of {head_dim} columns rotates none."
        )
    return rule, head


def wavelengths(inv_freq: ArrayLike) -> Floats:
    """Positions that each pair needs for a full turn (Peng et al. 2023, eq. 13).

    Returns
    -------
    NDArray
        ``[pairs]``; infinite for a pair that is never turned.
    """
    omega = np.asarray(inv_freq, dtype=np.float64)
    infinite = np.full_like(omega, np.inf)
    return np.divide(2 * np.pi, omega, out=infinite, where=omega != 0)


def axis_frequencies(inv_freq: ArrayLike, axes: int) -> Floats:
    """Frequencies of all pairs of a head for an offset along one of its axes.

    Parameters
    ----------
    inv_freq
        ``[pairs]`` of an axis, radians per position.
    axes
        Number of axes that share the head, each with as many pairs.

    Returns
    -------
    NDArray
        ``[axes * pairs]``: the pairs of the other axes stand still.
    """
    omega = np.asarray(inv_freq, dtype=np.float64)
    return np.concatenate([omega, np.zeros((axes - 1) * omega.size)])


def rotary_kernel(inv_freq: ArrayLike, distance: ArrayLike) -> Floats:
    """Mean of ``cos(m * inv_freq)`` over pairs: the logit of equal unit pairs at distance ``m``.

    Parameters
    ----------
    inv_freq
        ``[pairs]``.
    distance
        Distances ``m`` of any shape.

    Returns
    -------
    NDArray
        In the shape of ``distance``; 1 at distance 0.
    """
    return _apply_over_distances(
        distance, inv_freq, lambda angles: np.cos(angles).mean(axis=1)
    )


def rotary_bound(inv_freq: ArrayLike, distance: ArrayLike) -> Floats:
    """RoFormer's bound on the logit over distance (Su et al. 2021, section 3.4.3).

    The mean over ``j`` of ``|S_j|``, where ``S_j`` is the sum of ``exp(i m inv_freq)`` over the
    first ``j`` pairs.

    Parameters
    ----------
    inv_freq, distance
        Same as for `rotary_kernel`.

    Returns
    -------
    NDArray
        In the shape of ``distance``; ``(pairs + 1) / 2`` at distance 0.
    """
    return _apply_over_distances(
        distance,
        inv_freq,
        lambda angles: np.abs(np.cumsum(np.exp(1j * angles), axis=1)).mean(axis=1),
    )


def first_negative(inv_freq: ArrayLike, limit: int) -> int | None:
    """Smallest distance at which `rotary_kernel` is negative, None if there is none up to a limit.

    From there on a token like the query may get a lower logit than an arbitrary one; Men et al.
    (2024) require it not to happen within the context.

    Parameters
    ----------
    inv_freq
        ``[pairs]``.
    limit
        Largest distance to try.
    """
    omega = np.asarray(inv_freq, dtype=np.float64)
    if 2 * np.count_nonzero(omega) <= omega.size:
        return None  # pairs without rotation, if at least half, outweigh all others
    begin, step = 1, 64
    while begin <= limit:
        distances = np.arange(begin, min(begin + step, limit + 1))
        negative = np.flatnonzero(rotary_kernel(inv_freq, distances) < 0)
        if negative.size:
            return begin + int(negative[0])
        begin, step = begin + step, min(2 * step, 4096)  # most bases of a scan fail early
    return None


def _apply_over_distances(
    distance: ArrayLike, inv_freq: ArrayLike, average: Callable[[Floats], Floats]
) -> Floats:
    """Apply ``average`` to the angles ``[m, pairs]`` of all distances, a block at a time."""
    distances = np.asarray(distance, dtype=np.float64)
    omega = np.asarray(inv_freq, dtype=np.float64)
    flat = distances.ravel()
    values = np.empty(flat.size)
    step = max(_MAX_BLOCK_ANGLES // max(omega.size, 1), 1)
    for begin in range(0, flat.size, step):
        block = slice(begin, begin + step)
        values[block] = average(np.outer(flat[block], omega))
    return values.reshape(distances.shape)


#: Largest error of an angle in radians: 0.1 changes its cosine by at most 0.1.
MAX_ANGLE_ERROR_RADIANS = 0.1
#: Largest position in the search for the first wrong angle.
MAX_HORIZON_POSITIONS = 2**23
#: Number of positions that are checked at a time.
_HORIZON_BLOCK_POSITIONS = 2**16
#: Largest relative error of an angle from rounding position, frequency and product: slightly more
#: than 3 halves of the step between numbers next to 1.
_MAX_RELATIVE_ROUNDING = {
    "bfloat16": 1.52 * 2**-7,
    "float16": 1.52 * 2**-10,
    "float32": 1.52 * 2**-23,
}


def round_to_type(values: ArrayLike, name: str) -> Floats:
    """Round to the nearest number of a type, ties to even.

    Parameters
    ----------
    values
        Values of any shape.
    name
        ``float32``, ``float16`` or ``bfloat16``.
    """
    single_precision = np.asarray(values, dtype=np.float32)
    if name == "float32":
        return single_precision.astype(np.float64)
    if name == "float16":
        with np.errstate(over="ignore"):
            return np.asarray(values).astype(np.float16).astype(np.float64)
    bits = single_precision.view(np.uint32).astype(np.uint64)
    rounded_bits = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32)
    return rounded_bits.view(np.float32).astype(np.float64)


def precision_horizon(inv_freq: ArrayLike, name: str) -> int | None:
    """Return the first position at which an angle is off by `MAX_ANGLE_ERROR_RADIANS`.

    All arithmetic is of one type: positions, frequencies and their products are rounded, as in a
    model that is cast as a whole. Engines that keep angles in float32 and round only cosines have
    no such position.

    Parameters
    ----------
    inv_freq
        ``[pairs]``, radians per position.
    name
        Type of number, as for `round_to_type`.

    Returns
    -------
    int
        Position; None if there is none within 8 million positions.

    Examples
    --------
    >>> import posprobe as pp
    >>> frequencies, _ = pp.encodings.rotary_frequencies(128)
    >>> [precision_horizon(frequencies, name) for name in ("bfloat16", "float16")]
    [40, 182]
    """
    omega = np.asarray(inv_freq, dtype=np.float64)
    min_angle = (
        MAX_ANGLE_ERROR_RADIANS / _MAX_RELATIVE_ROUNDING[name]
    )  # no smaller angle can be off by as much
    omega = omega[omega * MAX_HORIZON_POSITIONS > min_angle]
    if not omega.size:
        return None
    for first_position in range(
        int(min_angle / omega.max()), MAX_HORIZON_POSITIONS, _HORIZON_BLOCK_POSITIONS
    ):
        positions = np.arange(first_position, first_position + _HORIZON_BLOCK_POSITIONS)
        # Other pairs do not turn far enough within the block.
        fast_omega = omega[omega * positions[-1] > min_angle]
        exact_angles = np.outer(positions, fast_omega)
        rounded = round_to_type(
            np.outer(round_to_type(positions, name), round_to_type(fast_omega, name)),
            name,
        )
        is_wrong = (np.abs(rounded - exact_angles) > MAX_ANGLE_ERROR_RADIANS).any(axis=1)
        if is_wrong.any():
            return first_position + int(is_wrong.argmax())
    return None
