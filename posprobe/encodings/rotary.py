"""Rotary positions: rules for their frequencies, and what follows from these alone.

A pair of columns ``k`` of queries and keys is turned by the angle ``m * inv_freq[k]`` at position
``m`` (Su et al. 2021), so that a logit depends on content and distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from posprobe.arrays import Floats
from posprobe.errors import InvalidCheckpoint, UsageError

#: What is divided by is no smaller: quotients stay in the range of the arithmetic.
SMALLEST = 1e-100


def yarn_correction_range(
    dim: int,
    base: float,
    length: float,
    *,
    fast: float = 32.0,
    slow: float = 1.0,
    truncate: bool = True,
) -> tuple[float, float]:
    """Pairs between which YaRN goes over from kept to interpolated (Peng et al. 2023, sec. 3.2).

    Parameters
    ----------
    dim, base
        Width that is rotated, and ``rope_theta``.
    length
        Positions in training, before scaling.
    fast, slow
        A pair with at least ``fast`` turns in that length is kept, one with at most ``slow`` is
        interpolated: ``beta_fast`` and ``beta_slow``.
    truncate
        Round outwards to whole pairs, as the released code does.

    Returns
    -------
    tuple
        First and last pair, from 0 and to ``dim - 1``.
    """
    low, high = (
        dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (fast, slow)
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    return max(low, 0), min(high, dim - 1)


@dataclass(frozen=True)
class Head:
    """What a rule starts from, checked."""

    width: int
    partial: float
    base: float
    max_positions: int | None
    length: int | None

    @property
    def dim(self) -> int:
        """Columns that are rotated."""
        return int(self.width * self.partial)

    @property
    def omega(self) -> Floats:
        """Frequencies before scaling."""
        return _ladder(self.dim, self.base)


@dataclass(frozen=True)
class Keys:
    """The mapping of a configuration, read with errors that name the rule and the key."""

    rule: str
    given: Mapping[str, Any]

    def number(
        self, key: str, default: float | None = None, *, least: float | None = None
    ) -> float:
        """Read a finite number, above 0 or not below ``least``; null counts as missing."""
        value = self.given.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise InvalidCheckpoint(
                f"rope_parameters: the rule {self.rule!r} needs {key}, which is missing. Add it to "
                "the configuration."
            )
        number = self._finite(key, value)
        if number < (SMALLEST if least is None else least):
            raise self._wrong(key, value, "a positive number" if least is None else f">= {least}")
        return number

    def numbers(self, key: str, count: int) -> Floats:
        """Read as many positive numbers as there are pairs."""
        values = self.given.get(key)
        if not isinstance(values, list | tuple):
            raise self._wrong(key, values, "a list of numbers")
        if len(values) != count:
            raise self._wrong(key, f"a list of {len(values)}", f"a list of {count}, one per pair")
        array = np.array([self._finite(key, value) for value in values])
        if not (array >= SMALLEST).all():
            raise self._wrong(key, float(array.min()), "a list of positive numbers")
        return array

    def original_length(self, head: Head) -> float:
        """Read the training length, or take the length that the model is configured for."""
        return self.number("original_max_position_embeddings", head.max_positions)

    def extension(self, head: Head) -> float:
        """Read the factor, or the ratio of the lengths where it is null."""
        if head.max_positions is None:
            return self.number("factor")
        return self.number("factor", head.max_positions / self.original_length(head))

    def _finite(self, key: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, value, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self._wrong(key, value, "a finite number")
        return number

    def _wrong(self, key: str, value: object, wanted: str) -> InvalidCheckpoint:
        shown = str(value)[:40]
        return InvalidCheckpoint(
            f"rope_parameters: {key} of the rule {self.rule!r} is {shown}; it must be {wanted}. "
            "Correct the configuration."
        )


def _ladder(dim: int, base: float) -> Floats:
    return np.asarray(base ** -(np.arange(0, dim, 2) / dim))


def _default(head: Head, keys: Keys) -> tuple[Floats, float]:  # noqa: ARG001 - one of the RULES
    return head.omega, 1.0


def _linear(head: Head, keys: Keys) -> tuple[Floats, float]:
    return head.omega / keys.number("factor"), 1.0


def _dynamic(head: Head, keys: Keys) -> tuple[Floats, float]:
    if head.dim < 3:
        raise UsageError(f"rotary: the rule 'dynamic' has no base for {head.dim} columns.")
    if keys.given.get("alpha"):
        stretch = keys.number("alpha")
    elif head.max_positions is None:
        raise UsageError(
            "rotary: the rule 'dynamic' depends on max_position_embeddings. Pass max_positions."
        )
    else:
        factor = keys.number("factor")
        length = max(head.length or 0, head.max_positions)
        stretch = factor * length / head.max_positions - (factor - 1)
    return _ladder(head.dim, head.base * stretch ** (head.dim / (head.dim - 2))), 1.0


def _yarn(head: Head, keys: Keys) -> tuple[Floats, float]:
    if "factor" not in keys.given:
        keys.number("factor")
    factor, original = keys.extension(head), keys.original_length(head)

    def temperature(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0

    attention = temperature(1)
    if keys.given.get("mscale") and keys.given.get("mscale_all_dim"):
        attention = temperature(keys.number("mscale")) / temperature(keys.number("mscale_all_dim"))
    # The library takes a 0 for "not given", as for null.
    fast, slow = (
        keys.number(key) if keys.given.get(key) else usual
        for key, usual in (("beta_fast", 32.0), ("beta_slow", 1.0))
    )
    if fast < slow:
        raise InvalidCheckpoint(
            f"rope_parameters: beta_fast is {fast:g} and beta_slow {slow:g} for the rule 'yarn'; "
            "beta_fast must not be the smaller one. Correct the configuration."
        )
    low, high = yarn_correction_range(
        head.dim,
        head.base,
        original,
        fast=fast,
        slow=slow,
        truncate=bool(keys.given.get("truncate", True)),
    )
    ramp = (np.arange(head.omega.size) - low) / (high - low if high != low else 0.001)
    interpolated = np.clip(ramp, 0, 1)
    omega = head.omega * (interpolated / factor + 1 - interpolated)
    return omega, keys.number("attention_factor", attention)


def _longrope(head: Head, keys: Keys) -> tuple[Floats, float]:
    original, factor = keys.original_length(head), keys.extension(head)
    long, short = (keys.numbers(key, head.omega.size) for key in ("long_factor", "short_factor"))
    attention = 1.0
    if factor > 1 and keys.given.get("attention_factor") is None:
        if original <= 1:
            raise InvalidCheckpoint(
                "rope_parameters: original_max_position_embeddings is 1, and the rule 'longrope' "
                "divides by its logarithm. Correct the configuration."
            )
        attention = math.sqrt(1 + math.log(factor) / math.log(original))
    chosen = long if head.length and head.length > original else short
    return head.omega / chosen, keys.number("attention_factor", attention)


def _llama3(head: Head, keys: Keys) -> tuple[Floats, float]:
    factor, original = keys.number("factor"), keys.original_length(head)
    low, high = keys.number("low_freq_factor"), keys.number("high_freq_factor")
    if high <= low:
        raise InvalidCheckpoint(
            f"rope_parameters: high_freq_factor is {high:g} and low_freq_factor {low:g} for the "
            "rule 'llama3'; it must be the larger one. Correct the configuration."
        )
    turns = original * head.omega / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return head.omega * ((1 - kept) / factor + kept), 1.0


def proportional(head: Head, keys: Keys) -> tuple[Floats, float]:
    """Span the ladder over the whole head and let its slow pairs stand still (Gemma)."""
    omega = _ladder(head.width, head.base)
    rotated = np.arange(omega.size) < int(head.partial * head.width // 2)
    return np.where(rotated, omega, 0.0) / keys.number("factor", 1.0), 1.0


#: Scaling rules by the name they have in a configuration.
RULES: Mapping[str, Callable[[Head, Keys], tuple[Floats, float]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": proportional,
}


#: Numbers held at a time where distances and pairs are combined: 32 MiB.
_BLOCK = 2**22


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
    for default, and Hunyuan's ``dynamic`` with ``alpha``.

    Parameters
    ----------
    head_dim
        Width of a head.
    base
        ``rope_theta``, where the mapping has none.
    partial
        ``partial_rotary_factor``, the share of the head that is rotated, where the mapping has
        none.
    scaling
        ``rope_parameters`` or the older ``rope_scaling`` of a configuration; the rule stands under
        ``rope_type`` or ``type``. Where kinds of layers differ, the mapping of one kind.
    max_positions
        ``max_position_embeddings``, which dynamic needs and which stands in for
        ``original_max_position_embeddings`` where that is missing.
    length
        Positions of the current input, on which dynamic and longrope depend; without it, at most
        as many as at first in training.

    Returns
    -------
    inv_freq : NDArray
        ``[pairs]``, radians per position, as many pairs as are rotated (proportional: of the whole
        head, 0 for those that are not).
    attention_factor : float
        Multiplies cosines and sines, so logits by its square.

    Raises
    ------
    InvalidCheckpoint
        If the rule is unknown, a key it needs is missing, or a value cannot be.
    UsageError
        If another argument cannot be.

    Examples
    --------
    >>> import posprobe as pp
    >>> frequencies, factor = pp.encodings.rotary_frequencies(8)
    >>> frequencies.round(6).tolist(), factor
    ([1.0, 0.1, 0.01, 0.001], 1.0)
    """
    given = dict(scaling or {})
    nested = [key for key, value in given.items() if isinstance(value, Mapping)]
    if nested:
        raise InvalidCheckpoint(
            f"rope_parameters: it differs by kind of layer ({', '.join(nested)}). Pass the mapping "
            "of one kind."
        )
    name = given.get("rope_type") or given.get("type") or "default"
    rule = RULES.get({"su": "longrope", "mrope": "default"}.get(str(name), str(name)))
    if rule is None:
        raise InvalidCheckpoint(
            f"rope_parameters: no scaling rule is called {name!r}. Known are {', '.join(RULES)}."
        )
    keys = Keys(str(name), given)
    base = keys.number("rope_theta", base)
    partial = keys.number("partial_rotary_factor", partial, least=0)
    if (
        head_dim < 2
        or head_dim % 2
        or not (math.isfinite(base) and base > 1)
        or not 0 <= partial <= 1
    ):
        raise UsageError(
            f"rotary: head width {head_dim}, base {base}, rotated share {partial}: the width must "
            "be positive and even, the base a number above 1, the share between 0 and 1."
        )
    for what, value in (("max_positions", max_positions), ("length", length)):
        if value is not None and value < 1:
            raise UsageError(f"rotary: {what} is {value}; it counts positions, so at least 1.")
    head = Head(head_dim, partial, base, max_positions, length)
    if head.dim < 1 and rule is not proportional:
        raise UsageError(f"rotary: a share of {partial} of {head_dim} columns rotates none.")
    return rule(head, keys)


def wavelengths(inv_freq: ArrayLike) -> Floats:
    """Positions that each pair needs for a full turn (Peng et al. 2023, eq. 13).

    Returns
    -------
    NDArray
        ``[pairs]``; infinite for a pair that is never turned.
    """
    omega = np.asarray(inv_freq, dtype=np.float64)
    never = np.full_like(omega, np.inf)
    return np.divide(2 * np.pi, omega, out=never, where=omega != 0)


def along_axis(inv_freq: ArrayLike, axes: int) -> Floats:
    """Frequencies of all pairs of a head for an offset along one of its axes.

    Parameters
    ----------
    inv_freq
        ``[pairs]`` of an axis, radians per position.
    axes
        How many axes share the head, each with as many pairs.

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
    return _over_distances(distance, inv_freq, lambda angles: np.cos(angles).mean(axis=1))


def rotary_bound(inv_freq: ArrayLike, distance: ArrayLike) -> Floats:
    """RoFormer's bound on the logit over distance (Su et al. 2021, section 3.4.3).

    The mean over ``j`` of ``|S_j|``, where ``S_j`` is the sum of ``exp(i m inv_freq)`` over the
    first ``j`` pairs.

    Parameters
    ----------
    inv_freq, distance
        As for `rotary_kernel`.

    Returns
    -------
    NDArray
        In the shape of ``distance``; ``(pairs + 1) / 2`` at distance 0.
    """
    return _over_distances(
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
        return None  # the half that stands still outweighs the others wherever they point
    begin, step = 1, 64
    while begin <= limit:
        distances = np.arange(begin, min(begin + step, limit + 1))
        negative = np.flatnonzero(rotary_kernel(inv_freq, distances) < 0)
        if negative.size:
            return begin + int(negative[0])
        begin, step = begin + step, min(2 * step, 4096)  # most bases of a scan fail early
    return None


def _over_distances(
    distance: ArrayLike, inv_freq: ArrayLike, mean: Callable[[Floats], Floats]
) -> Floats:
    """Apply ``mean`` to the angles ``[m, pairs]`` of all distances, a block at a time."""
    distances = np.asarray(distance, dtype=np.float64)
    omega = np.asarray(inv_freq, dtype=np.float64)
    flat = distances.ravel()
    done = np.empty(flat.size)
    step = max(_BLOCK // max(omega.size, 1), 1)
    for begin in range(0, flat.size, step):
        block = slice(begin, begin + step)
        done[block] = mean(np.outer(flat[block], omega))
    return done.reshape(distances.shape)
