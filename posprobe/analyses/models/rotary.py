"""Rotary ladders: wavelengths against context lengths, decay with distance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import HIDDEN, NEWER, As, Result, Stored
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

#: Distances beyond which the first negative kernel value is not looked for: the longest contexts
#: that are promised have a million positions.
SEARCH = 2**20
#: Wavelengths that differ by a smaller share are the same: rules that change one change it by far
#: more than the rounding of their own arithmetic.
SAME = 1e-9
#: Places along an axis where no configuration says how many (pictures of 448 pixels in patches of
#: 14 have 32), and the least angle in radians by which a pair has to turn over all of them: it
#: moves a logit by a tenth of the pair's strength at most.
EXTENT = 32
DEAD = 0.1
#: Types of numbers of which the first wrong angle is looked for.
TYPES = ("bfloat16", "float16", "float32")
#: Points of the decay curves, spread evenly on a logarithmic axis: as many as a figure has pixels.
POINTS = 512


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
    along: Mapping[str, NDArray[np.float64]], extent: int | None = None
) -> tuple[AxisLadder, ...]:
    """Measure the ladder of each axis.

    Parameters
    ----------
    along
        Frequencies ``[pairs]`` by axis, radians per step.
    extent
        Places along each; `EXTENT` where None.

    Examples
    --------
    >>> omega = np.array([1.0, 0.1, 0.001])
    >>> (rows,) = axis_ladders({"rows": omega}, 64)
    >>> rows.turning, rows.dead
    (2, 1)
    """
    places = extent or EXTENT
    return tuple(
        AxisLadder(
            axis=axis,
            pairs=len(omega),
            shortest=float(wavelengths(omega).min()),
            longest=float(wavelengths(omega).max()),
            extent=places,
            turning=int(np.sum(omega * (places - 1) >= 2 * np.pi)),
            dead=int(np.sum(omega * (places - 1) < DEAD)),
        )
        for axis, omega in along.items()
        if len(omega)
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
        That share the head.
    length
        Positions of the text that the wavelengths are for, of which a query may see a window.
    horizon
        First position by type of number at which the angle of some pair is off by 0.1 rad.
    along
        The ladder of each of several axes.
    """

    figures: ClassVar[str] = "schemes.plot_rotation"

    wavelength: Annotated[NDArray[np.float64], Stored("wavelength")]
    unscaled: NDArray[np.float64]
    training: Annotated[Natural | None, "Positions that a query saw in training, or the window."]
    target: Annotated[Natural | None, "Positions that it sees of the promised length."]
    never_turn_training: Annotated[Share | None, "Of the pairs: no whole turn in training."]
    never_turn_target: Annotated[Share | None, "Of the pairs: none within the promised length."]
    distance: Annotated[NDArray[np.int64], Stored("distance")]
    kernel: Annotated[NDArray[np.float64], Stored("kernel")]
    bound: Annotated[NDArray[np.float64], Stored("bound")]
    first_negative: Annotated[Natural | None, "First distance with a negative mean rotation."]
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
        tuple[AxisLadder, ...], NEWER, "Where pairs turn with several axes, the ladder of each."
    ] = ()

    @property
    def pairs(self) -> Annotated[Natural, ""]:
        """Number of pairs."""
        return len(self.wavelength)

    @property
    def shortest_wavelength(self) -> Annotated[float, As(float | None)]:
        """In positions."""
        return float(self.wavelength.min())

    @property
    def longest_wavelength(
        self,
    ) -> Annotated[float, As(float | None), "Null where a pair does not turn."]:
        """In positions."""
        return float(self.wavelength.max())

    @property
    def rescaled(
        self,
    ) -> Annotated[bool, NEWER, "Whether a rule changes a wavelength in a text of `length`."]:
        """Whether a rule changes a wavelength, as used in a text of this length."""
        return not np.allclose(self.wavelength, self.unscaled, rtol=SAME)

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for numbers that are None."""
        found = {}
        if self.first_negative is None:
            found["first_negative"] = (
                f"the kernel is not negative up to {self.searched}"
                if self.axes == 1
                else "the pairs of the other axes stand still, so that the mean is never negative"
            )
        for name in ("training", "target"):
            if getattr(self, name) is None:
                found[f"never_turn_{name}"] = "the configuration states no length"
        return found


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
        That share the head, each with these pairs.
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
    if omega.ndim != 1 or not omega.size or not np.isfinite(omega).all() or (omega < 0).any():
        raise InvalidTable(
            f"frequencies of shape {list(omega.shape)}: one finite, positive number per pair is "
            "expected."
        )
    turns = wavelengths(omega)
    before = turns if unscaled is None else wavelengths(unscaled)
    longest = max(target or 0, training or 0, 4096)
    distance = np.unique(np.round(np.geomspace(1, longest, POINTS)).astype(np.int64))
    distance = np.concatenate([[0], distance])
    head = axis_frequencies(omega, axes)
    return Rotation(
        wavelength=turns,
        unscaled=before,
        training=training,
        target=target,
        never_turn_training=float((before > training).mean()) if training else None,
        never_turn_target=float((turns > target).mean()) if target else None,
        distance=distance,
        kernel=rotary_kernel(head, distance),
        bound=rotary_bound(head, distance),
        first_negative=first_negative(head, SEARCH),
        searched=SEARCH,
        attention_factor=attention_factor,
        axes=axes,
        length=length or target,
        horizon={name: precision_horizon(omega, name) for name in TYPES} if axes == 1 else {},
        along=along,
    )
