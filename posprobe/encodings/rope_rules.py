"""Rules that scale rotary frequencies beyond the training length, read from a configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.errors import InvalidCheckpoint, UsageError

Floats: TypeAlias = NDArray[np.float64]
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
