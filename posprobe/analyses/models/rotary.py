"""Rotary ladders: wavelengths compared with context lengths, and decay with distance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import HIDDEN, NEWER, JsonType, Result, StoredArray
from posprobe.encodings.rotary import (
    axis_frequencies,
    first_negative,
    precision_horizon,
    rotary_bound,
    rotary_kernel,
    wavelengths,
)
from posprobe.errors import InvalidTable
from posprobe.number_types import Count, Natural, Reasons, Share

#: The first negative kernel value is searched up to this distance, in positions. The longest
#: contexts of any model have a million.
MAX_SEARCHED_DISTANCE = 2**20
#: Wavelengths that differ by a smaller share are equal. Scaling rules change them by far more than
#: the rounding of their own arithmetic.
EQUAL_WAVELENGTH_TOLERANCE = 1e-9
#: Steps along an axis if the configuration states none: images of 448 pixels in patches of 14 have
#: 32.
DEFAULT_AXIS_EXTENT = 32
#: A pair that turns by a smaller angle over the whole axis is dead. Such an angle changes a logit
#: by at most a tenth of the pair's strength.
MIN_TURN_RADIANS = 0.1
#: Number types for which the first position with a wrong angle is computed.
PRECISION_TYPES = ("bfloat16", "float16", "float32")
#: Points of the decay curves, evenly spaced on a logarithmic axis, about one per pixel of a figure.
N_DECAY_POINTS = 512


@dataclass(frozen=True)
class AxisLadder:
    """The pairs of one of several axes.

    Parameters
    ----------
    axis
        ``time``, ``rows`` or ``columns``.
    pairs
        Number of pairs that turn along the axis.
    shortest, longest
        Wavelengths in steps of the axis.
    extent
        Places along it that turns are counted within.
    turning
        Pairs that make a full turn.
    dead
        Pairs that turn by less than 0.1 rad, which moves their part of a logit by 0.1 of their
        strength at most.
    """

    axis: str
    pairs: Natural
    shortest: float
    longest: float
    extent: Natural
    turning: Count
    dead: Count


def axis_ladders(
    frequencies_by_axis: Mapping[str, NDArray[np.float64]], extent: int | None = None
) -> tuple[AxisLadder, ...]:
    """Measure the ladder of each axis.

    Parameters
    ----------
    frequencies_by_axis
        Frequencies ``[pairs]`` by axis, radians per step.
    extent
        Places along each; `DEFAULT_AXIS_EXTENT` where None.

    Examples
    --------
    >>> omega = np.array([1.0, 0.1, 0.001])
    >>> (rows,) = axis_ladders({"rows": omega}, 64)
    >>> rows.turning, rows.dead
    (2, 1)
    """
    n_steps = extent or DEFAULT_AXIS_EXTENT
    return tuple(
        AxisLadder(
            axis=axis,
            pairs=len(frequencies),
            shortest=float(wavelengths(frequencies).min()),
            longest=float(wavelengths(frequencies).max()),
            extent=n_steps,
            turning=int(np.sum(frequencies * (n_steps - 1) >= 2 * np.pi)),
            dead=int(np.sum(frequencies * (n_steps - 1) < MIN_TURN_RADIANS)),
        )
        for axis, frequencies in frequencies_by_axis.items()
        if len(frequencies)
    )


@dataclass(frozen=True, eq=False, repr=False)
class Rotation(Result):
    """A rotary ladder against the lengths it is used at.

    Parameters
    ----------
    wavelength
        ``[pairs]``, positions per turn (Peng et al. 2024, YaRN, eq. 13), as used at the target
        length.
    unscaled
        ``[pairs]``, the same before any scaling rule.
    training, target
        Context lengths in positions, None where unknown.
    never_turn_training, never_turn_target
        Share of the pairs whose wavelength is longer than the length: they never complete a turn.
    distance
        ``[k]``, distances of the two curves.
    kernel
        ``[k]``, mean cosine of the rotation; with several axes, for offsets along one of them.
    bound
        ``[k]``, upper bound on the decay (Su et al. 2021, section 3.4.3).
    first_negative
        The first distance at which the kernel is negative (Men et al. 2024); None where it is not
        up to ``searched``.
    searched
        Largest distance tried.
    attention_factor
        Factor on cosines and sines.
    axes
        Number of axes that share the head.
    length
        Positions of the text that the wavelengths are for, of which a query may see a window.
    horizon
        First position by type of number at which the angle of some pair is off by 0.1 rad.
    along
        The ladder of each of several axes.
    """

    figures: ClassVar[str] = "schemes.plot_rotation"

    wavelength: Annotated[NDArray[np.float64], StoredArray("wavelength")]
    unscaled: NDArray[np.float64]
    training: Annotated[
        Natural | None, "Positions that a query saw in training, or the window."
    ]
    target: Annotated[Natural | None, "Positions that it sees of the promised length."]
    never_turn_training: Annotated[
        Share | None, "Of the pairs: no whole turn in training."
    ]
    never_turn_target: Annotated[
        Share | None, "Of the pairs: none within the promised length."
    ]
    distance: Annotated[NDArray[np.int64], StoredArray("distance")]
    kernel: Annotated[NDArray[np.float64], StoredArray("kernel")]
    bound: Annotated[NDArray[np.float64], StoredArray("bound")]
    first_negative: Annotated[
        Natural | None, "First distance with a negative mean rotation."
    ]
    searched: Annotated[Natural, NEWER, "Largest distance at which that was looked for."]
    attention_factor: float
    axes: Annotated[int, HIDDEN] = 1
    length: Annotated[
        Natural | None,
        NEWER,
        "Positions of the text that the wavelengths are for; of a window more than the target.",
    ] = None

    horizon: Annotated[
        dict[str, int | None],
        NEWER,
        "By type of number, the first position at which a pair's angle is off by 0.1 rad.",
    ] = field(default_factory=dict)

    along: Annotated[
        tuple[AxisLadder, ...],
        NEWER,
        "Where pairs turn with several axes, the ladder of each.",
    ] = ()

    @property
    def pairs(self) -> Annotated[Natural, ""]:
        """Number of pairs."""
        return len(self.wavelength)

    @property
    def shortest_wavelength(self) -> Annotated[float, JsonType(float | None)]:
        """In positions."""
        return float(self.wavelength.min())

    @property
    def longest_wavelength(
        self,
    ) -> Annotated[float, JsonType(float | None), "Null where a pair does not turn."]:
        """In positions."""
        return float(self.wavelength.max())

    @property
    def rescaled(
        self,
    ) -> Annotated[
        bool, NEWER, "Whether a rule changes a wavelength in a text of `length`."
    ]:
        """Whether a rule changes a wavelength, as used in a text of this length."""
        return not np.allclose(
            self.wavelength, self.unscaled, rtol=EQUAL_WAVELENGTH_TOLERANCE
        )

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for numbers that are None."""
        reasons = {}
        if self.first_negative is None:
            reasons["first_negative"] = (
                f"the kernel is not negative up to {self.searched}"
                if self.axes == 1
                else "the pairs of the other axes stand still, so that the mean is never negative"
            )
        for name in ("training", "target"):
            if getattr(self, name) is None:
                reasons[f"never_turn_{name}"] = "the configuration states no length"
        return reasons


def rotation(
    frequencies: NDArray[np.floating[Any]],
    *,
    unscaled: NDArray[np.floating[Any]] | None = None,
    training: int | None = None,
    target: int | None = None,
    attention_factor: float = 1.0,
    axes: int = 1,
    length: int | None = None,
    along: tuple[AxisLadder, ...] = (),
) -> Rotation:
    """Measure a rotary ladder.

    Parameters
    ----------
    frequencies
        ``[pairs]``, radians per position, as used in a text of the length.
    unscaled
        ``[pairs]`` before scaling; where None, the same.
    training, target
        Context lengths in positions.
    attention_factor
        For the record.
    axes
        Number of axes that share the head, each with these pairs.
    length
        Positions of the text; where None, the target.
    along
        From `axis_ladders`, for the record.

    Raises
    ------
    InvalidTable
        If there is no pair, or a frequency is negative or not finite.

    Examples
    --------
    >>> import posprobe as pp
    >>> frequencies, _ = pp.encodings.rotary_frequencies(128, base=500000.0)
    >>> rotation = pp.analyses.rotation(frequencies, training=8192)
    >>> print(f"{rotation.wavelength[0]:.2f}")
    6.28
    >>> print(f"{rotation.never_turn_training:.2f}")
    0.45
    """
    omega = np.asarray(frequencies, dtype=np.float64)
    if omega.ndim != 1 or not omega.size or not ((omega >= 0) & np.isfinite(omega)).all():
        raise InvalidTable(
            f"frequencies of shape {list(omega.shape)}: one finite, "
            "positive number per pair is expected."
        )
    wavelength = wavelengths(omega)
    unscaled_wavelengths = wavelength if unscaled is None else wavelengths(unscaled)
    max_distance = max(target or 0, training or 0, 4096)
    distance = np.unique(
        np.round(np.geomspace(1, max_distance, N_DECAY_POINTS)).astype(np.int64)
    )
    distance = np.concatenate([[0], distance])
    head_frequencies = axis_frequencies(omega, axes)
    return Rotation(
        wavelength=wavelength,
        unscaled=unscaled_wavelengths,
        training=training,
        target=target,
        never_turn_training=float((unscaled_wavelengths > training).mean())
        if training
        else None,
        never_turn_target=float((wavelength > target).mean()) if target else None,
        distance=distance,
        kernel=rotary_kernel(head_frequencies, distance),
        bound=rotary_bound(head_frequencies, distance),
        first_negative=first_negative(head_frequencies, MAX_SEARCHED_DISTANCE),
        searched=MAX_SEARCHED_DISTANCE,
        attention_factor=attention_factor,
        axes=axes,
        length=length or target,
        horizon={name: precision_horizon(omega, name) for name in PRECISION_TYPES}
        if axes == 1
        else {},
        along=along,
    )
