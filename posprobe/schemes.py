"""Positional encodings without a table of rows: relative biases, rotations, linear biases.

Each has ``kernel(n)``, the similarity of positions that the scheme induces, like
`posprobe.tables.PositionTable`, so that all encodings can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.drawable import Card, Displayable, Drawable, format_repr
from posprobe.encodings.rotary import (
    axis_frequencies,
    rescale_frequencies,
    rotary_frequencies,
    rotary_kernel,
)
from posprobe.encodings.tables import check_integer
from posprobe.errors import InvalidTable, UsageError
from posprobe.layouts import Grid, Layout, Sequence, describe_layout
from posprobe.sources import Source
from posprobe.tables import PositionTable

#: ``bias``: added to the attention logits; ``cosine``: between the vectors of an offset and of
#: offset zero, for encodings with a vector per offset that is multiplied with the query.
Quantity: TypeAlias = Literal["bias", "cosine"]

#: Default unit of distances.
POSITION_UNIT = "positions"
#: Axes of videos and of texts with images; images have the last two.
AXIS_NAMES = ("time", "rows", "columns")
#: Keys of a rotary rule that define the frequencies before scaling.
_UNSCALED_KEYS = ("rope_theta", "partial_rotary_factor")
#: Smallest magnitude of the largest value: squares of smaller values underflow, and squares of
#: values above its inverse overflow.
_MIN_BIAS_MAGNITUDE = 1e-140
#: Largest kernel in rows: 4096 rows take 128 MiB per head.
MAX_KERNEL_ROWS = 4096


class _SchemeBase(Drawable):
    """Methods that all schemes share."""

    def kernel(self: Scheme, n: int) -> NDArray[np.float64]:  # type: ignore[misc]
        """Return the values of `curves` between all positions, ``[heads, n, n]``, query first.

        Raises
        ------
        UsageError
            If ``n`` is not a positive whole number, too large, or not the size of the grid.
        """
        layout = self.layout if isinstance(self, RelativeBias) else None
        n = _check_length(self.name, n, layout)
        grid = layout if isinstance(layout, Grid) else Grid(1, n)
        if n > MAX_KERNEL_ROWS:
            raise UsageError(
                f"{self.name}: a kernel of {n} positions has {n * n} "
                f"numbers per head; up to {MAX_KERNEL_ROWS} positions are "
                "formed. curves(n) gives the same by offset."
            )
        by_displacement = self.curves(n).reshape(self.heads, -1)
        row, column = np.divmod(np.arange(n), grid.width)
        row_offset = row - row[:, None] + grid.height - 1
        column_offset = column - column[:, None] + grid.width - 1
        kernel: NDArray[np.float64] = by_displacement[
            :, row_offset * (2 * grid.width - 1) + column_offset
        ]
        return kernel

    def _card(self: Scheme) -> Card:  # type: ignore[misc]
        return Card(self.name, _defined_facts(self), pictures=self._pictures())

    def __repr__(self: Scheme) -> str:  # type: ignore[misc]
        numbers = {
            key: v
            for key, v in _defined_facts(self).items()
            if isinstance(v, int | float)
        }
        return format_repr(
            self, repr(self.name), *(f"{key}={value}" for key, value in numbers.items())
        )


@dataclass(frozen=True, eq=False, repr=False)
class RelativeBias(_SchemeBase):
    """Relative positions: a value per offset and head.

    Parameters
    ----------
    values
        ``[heads, 2 r + 1]`` by offset, key minus query, from ``-r`` to ``r``; offsets beyond are
        treated as ``-r`` and ``r``. Or ``[heads, 2 h - 1, 2 w - 1]`` by displacement on a grid, key
        minus query, rows first.
    layout
        Positions that the model configures, or the grid.
    name, source, family
        Same as for a `PositionTable`.
    quantity
        Kind of the values: logits to be added (T5, Swin), or cosines of the vectors that are
        multiplied with the query (Shaw et al. 2018, SAM), which have no value without one.
    causal
        Whether a query sees no later key, so that positive offsets never occur.
    computed
        Whether the values follow from a smooth function (Swin v2's network, a formula), so that
        smoothness says nothing of training.
    unit
        Unit of distances: ``positions``, or for biases of places on a page, a share of its width or
        height (LayoutLM, UDOP).
    special
        Biases to and from special tokens by name, ``[heads]`` each (BEiT).
    notes
        Remarks for the reader.

    Raises
    ------
    InvalidTable
        If the values are not finite, do not fit the layout, or their squares leave the range of the
        arithmetic.

    Examples
    --------
    >>> import posprobe as pp
    >>> (bias,) = pp.load_schemes("t5:512x32")
    >>> bias.quantity
    'bias'
    >>> bias.curves(64).shape
    (1, 127)
    """

    figures: ClassVar[str] = "relative.plot_heads"

    values: NDArray[np.float64]
    layout: Layout
    name: str
    source: Source
    family: str | None = None
    quantity: Quantity = "bias"
    causal: bool = False
    computed: bool = False
    unit: str = POSITION_UNIT
    special: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    scheme: ClassVar[Literal["relative"]] = "relative"

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        subject = f"{self.name}: relative positions of shape {list(values.shape)}"
        if values.ndim == 0 or 0 in values.shape:
            raise InvalidTable(f"{subject}: there is no head, or no distance, in it.")
        if isinstance(self.layout, Grid):
            span = (2 * self.layout.height - 1, 2 * self.layout.width - 1)
            if values.shape[1:] != span:
                raise InvalidTable(
                    f"{subject}: a {self.layout} has {span[0]} x {span[1]} displacements."
                )
        elif values.ndim != 2 or values.shape[1] % 2 == 0:
            raise InvalidTable(
                f"{subject}: [heads, 2 r + 1] numbers by offset are expected."
            )
        if not np.isfinite(values).all():
            raise InvalidTable(
                f"{subject}: contains NaN or infinity. The checkpoint is damaged: use a sound copy."
            )
        largest = float(np.abs(values).max())
        if largest and not _MIN_BIAS_MAGNITUDE < largest < 1 / _MIN_BIAS_MAGNITUDE:
            raise InvalidTable(
                f"{subject}: its numbers reach {largest:.1e}, and sums of "
                "their squares leave the range of the arithmetic. Scale "
                "them first."
            )
        read_only = values.view()
        read_only.flags.writeable = False
        object.__setattr__(self, "values", read_only)

    @property
    def heads(self) -> int:
        """Number of heads."""
        return int(self.values.shape[0])

    def curves(self, n: int) -> NDArray[np.float64]:
        """Return the values by offset, ``[heads, 2 n - 1]``, key minus query.

        On a grid ``n`` must be its size, and the values are ``[heads, 2 h - 1, 2 w - 1]``.

        Raises
        ------
        UsageError
            If ``n`` is not a positive whole number, or not the size of the grid.
        """
        n = _check_length(self.name, n, self.layout)
        if isinstance(self.layout, Grid):
            return self.values
        reach = self.values.shape[1] // 2
        return self.values[:, np.clip(np.arange(1 - n, n), -reach, reach) + reach]


@dataclass(frozen=True)
class RotarySpec:
    """The parameters of a rotary encoding.

    Parameters
    ----------
    head_dim
        Width of a head.
    base
        Base of the frequencies, ``base ** (-2 i / d)``.
    partial
        Share of the head's width that is rotated.
    scaling
        Rule that scales the frequencies beyond the training length, and its parameters, as in
        ``rope_parameters`` of transformers; empty for none.
    max_positions
        The length that the configuration promises.
    training_length
        Length before scaling, if it is known.
    axes
        Number of axes: 1, or 2 for patches, where a grid's rows turn one half of the pairs and its
        columns the other, or 3 for video.
    step
        Change of the coordinate that turns the pairs per position: 1, or for coordinates that run
        from -1 to 1 over an image, the width of a patch (DINOv3).
    across
        Speed at which columns of a grid turn their pairs, relative to rows.
    extent
        Number of patches along an axis, if the configuration states it.
    sections
        Number of pairs that turn with time, row and column, in a model of texts with images.
    sections_in_turn
        Whether rows and columns take their pairs in turn, and not one after the other.
    window
        Positions that a query sees, itself included, if these layers see fewer than all.
    interleaved
        Whether the two numbers of a pair are neighbours (GPT-J) or half a width apart (GPT-NeoX).
    backwards
        Whether pairs turn the other way than usual, from the second number to the first (nanochat).
    layers
        Name of the layers that it serves, if others have another encoding.
    notes
        Remarks for the reader.
    unread_keys
        Keys of the configuration that concern position and that no rule reads.
    """

    head_dim: int
    _: KW_ONLY
    base: float = 10_000.0
    partial: float = 1.0
    scaling: Mapping[str, Any] = field(default_factory=dict)
    max_positions: int | None = None
    training_length: int | None = None
    axes: int = 1
    step: float = 1.0
    across: float = 1.0
    extent: int | None = None
    sections: tuple[int, ...] = ()
    sections_in_turn: bool = False
    window: int | None = None
    interleaved: bool = False
    backwards: bool = False
    layers: str = ""
    notes: tuple[str, ...] = ()
    unread_keys: tuple[str, ...] = ()

    def ladder(self, length: int | None = None) -> tuple[NDArray[np.float64], float]:
        """Return the angle per unit of each pair, and the factor on cosines and sines.

        Parameters
        ----------
        length
            Length of the sequence at hand, on which some rules depend; where None, the training
            length.

        Raises
        ------
        UsageError, InvalidCheckpoint
            If the parameters contradict each other or the rule is unknown.
        """
        return rotary_frequencies(
            self.head_dim // self.axes // 2 * 2 if self.axes > 1 else self.head_dim,
            base=self.base,
            partial=self.partial,
            scaling=self.scaling,
            max_positions=self.max_positions,
            length=length,
        )


@dataclass(frozen=True, eq=False, repr=False)
class Rotary(_SchemeBase, RotarySpec):
    """Rotary position embedding (Su et al. 2021): query and key turn with their position.

    Parameters
    ----------
    name, source, family
        Same as for a `PositionTable`; the source has no tensor. The others are those of
        `RotarySpec`.

    Raises
    ------
    UsageError, InvalidCheckpoint
        If the parameters contradict each other or the rule is unknown.

    Examples
    --------
    >>> import posprobe as pp
    >>> (rotary,) = pp.load_schemes("rotary:4096x128,base=500000")
    >>> rotary.head_dim, rotary.base
    (128, 500000.0)
    >>> rotary.kernel(8).shape
    (1, 8, 8)
    """

    figures: ClassVar[str] = "schemes.plot_rotation"

    name: str
    source: Source
    family: str | None = None

    __eq__ = object.__eq__
    __hash__ = object.__hash__
    scheme: ClassVar[Literal["rotary"]] = "rotary"
    heads: ClassVar[int] = 1

    def __post_init__(self) -> None:
        self.frequencies()

    @property
    def rule(self) -> str:
        """Name of the scaling rule; ``default`` for none."""
        return str(self.scaling.get("rope_type", self.scaling.get("type", "default")))

    @property
    def rotated(self) -> int:
        """Number of dimensions of a head that are rotated, along all axes."""
        return 2 * self.axes * len(self.frequencies())

    def seen(self, length: int | None) -> int | None:
        """Return how many positions of a text of ``length`` a query sees; None for unknown."""
        return min(filter(None, (self.window, length)), default=None)

    def frequencies(self, length: int | None = None) -> NDArray[np.float64]:
        """Return the angle per position of each pair, ``[pairs]`` in radians, fastest first.

        Pairs with frequency 0, which do not rotate, are not included.

        Parameters
        ----------
        length
            Length of the sequence at hand, on which some rules depend; where None, the training
            length.
        """
        return self._ladder(length)[0]

    def attention_factor(self, length: int | None = None) -> float:
        """Return the factor on cosines and sines that some rules add (YaRN, LongRoPE)."""
        return self._ladder(length)[1]

    def unscaled(self) -> NDArray[np.float64]:
        """Return the frequencies before scaling, ``[pairs]``."""
        # The rule of Gemma 4 selects the pairs that turn; only its factor scales them.
        unscaled_entries = {
            key: value for key, value in self.scaling.items() if key in _UNSCALED_KEYS
        }
        if self.rule == "proportional":
            unscaled_entries["rope_type"] = self.rule
        return replace(self, scaling=unscaled_entries).frequencies()

    def rescaled(self, length: int | None = None) -> NDArray[np.float64]:
        """Return the frequencies after its rule scaled them twice, ``[pairs]``.

        Parameters
        ----------
        length
            Same as for `frequencies`.
        """
        return self.step * rescale_frequencies(
            self.frequencies(length) / self.step,
            self.head_dim,
            base=self.base,
            partial=self.partial,
            scaling=self.scaling,
            max_positions=self.max_positions,
            length=length,
        )

    def _ladder(self, length: int | None) -> tuple[NDArray[np.float64], float]:
        omega, factor = self.ladder(length)
        omega = omega[omega > 0]
        if not omega.size:
            raise UsageError(
                f"{self.name}: a share of {self.partial} of the head rotates no pair."
            )
        return self.step * omega, factor

    def along_axes(self) -> dict[str, NDArray[np.float64]]:
        """Return the frequencies of each axis, radians per step; empty for a single axis."""
        omega = self.frequencies()
        if self.axes > 1:
            names = AXIS_NAMES[-self.axes :]
            return {
                name: omega * (self.across if name == "columns" else 1) for name in names
            }
        if len(self.sections) != len(AXIS_NAMES) or sum(self.sections) != len(omega):
            return {}
        pair_axes = np.repeat(np.arange(len(AXIS_NAMES)), self.sections)
        if self.sections_in_turn:
            # Qwen3-VL: pairs 1, 4, ... turn with rows, 2, 5, ... with columns, the rest with time.
            pair_axes = np.zeros(len(omega), dtype=np.int64)
            for axis in (1, 2):
                pair_axes[
                    axis : len(AXIS_NAMES) * self.sections[axis] : len(AXIS_NAMES)
                ] = axis
        return {name: omega[pair_axes == axis] for axis, name in enumerate(AXIS_NAMES)}

    def curves(self, n: int) -> NDArray[np.float64]:
        """Return the mean rotation by offset, ``[1, 2 n - 1]``, for a sequence of ``n`` positions.

        It is the mean over the rotated pairs of ``cos(frequency * offset)``: the cosine of a query
        equal to the key, with pairs of equal length. With several axes, offsets are along one axis.

        Raises
        ------
        UsageError
            If ``n`` is not a positive whole number.
        """
        n = _check_length(self.name, n)
        half = rotary_kernel(
            axis_frequencies(self.frequencies(n), self.axes), np.arange(n)
        )
        return np.concatenate([half[:0:-1], half])[None]


@dataclass(frozen=True, eq=False, repr=False)
class LinearBias(_SchemeBase):
    """ALiBi (Press et al. 2022): every head subtracts its slope times the distance.

    Parameters
    ----------
    slopes
        ``[heads]``, positive: logits per position.
    name, source, family
        Same as for a `PositionTable`; the source has no tensor.
    max_positions
        The length that the configuration promises.
    causal
        Whether a query sees no later key.
    notes
        Remarks for the reader.
    unread_keys
        Keys of the configuration that concern position and that no rule reads.

    Examples
    --------
    >>> import posprobe as pp
    >>> (alibi,) = pp.load_schemes("alibi:512x8")
    >>> alibi.slopes[:3].tolist()
    [0.5, 0.25, 0.125]
    >>> alibi.kernel(4)[0, 3].tolist()
    [-1.5, -1.0, -0.5, -0.0]
    """

    figures: ClassVar[str] = "schemes.plot_slopes"

    slopes: NDArray[np.float64]
    name: str
    source: Source
    max_positions: int | None = None
    causal: bool = True
    family: str | None = None
    notes: tuple[str, ...] = ()
    unread_keys: tuple[str, ...] = ()

    scheme: ClassVar[Literal["alibi"]] = "alibi"

    def __post_init__(self) -> None:
        slopes = np.asarray(self.slopes, dtype=np.float64)
        if slopes.ndim != 1 or not slopes.size or not np.isfinite(slopes).all():
            raise InvalidTable(
                f"{self.name}: slopes of shape {list(slopes.shape)}: one "
                "finite number per head is expected."
            )
        object.__setattr__(self, "slopes", slopes)

    @property
    def heads(self) -> int:
        """Number of heads."""
        return len(self.slopes)

    def curves(self, n: int) -> NDArray[np.float64]:
        """Return the bias by offset, ``[heads, 2 n - 1]``: minus slope times distance.

        Raises
        ------
        UsageError
            If ``n`` is not a positive whole number.
        """
        n = _check_length(self.name, n)
        return -self.slopes[:, None] * np.abs(np.arange(1 - n, n))


#: Positional encodings without a table of rows.
Scheme: TypeAlias = RelativeBias | Rotary | LinearBias

#: Positional encodings of any form.
Encoding: TypeAlias = PositionTable | Scheme


class Schemes(Displayable, tuple[Scheme, ...]):
    """The schemes of one checkpoint; a notebook shows a line for each, and draws the first."""

    def _card(self) -> Card:
        names = {scheme.name: _defined_facts(scheme) for scheme in self}
        if len(self) == 1:
            return Card(*next(iter(names.items())), pictures=self[0]._pictures())
        lines = [
            {"name": scheme.name, "scheme": scheme.scheme, "heads": scheme.heads}
            for scheme in self
        ]
        pictures = self[0]._pictures() if self else ()
        return Card(f"{len(self)} encodings", {}, lines=lines, pictures=pictures)


def _defined_facts(scheme: Scheme) -> dict[str, object]:
    """Return the facts that identify a scheme, without those that it does not have."""
    facts = describe_scheme(scheme)
    return {key: value for key, value in facts.items() if value not in (None, [], {})}


def describe_scheme(scheme: Scheme) -> dict[str, Any]:
    """Return the facts that identify a scheme, for ``analysis.json``."""
    facts: dict[str, Any] = {"scheme": scheme.scheme, "head_count": scheme.heads}
    names: tuple[str, ...]
    match scheme:
        case RelativeBias():
            names = ("quantity", "causal", "computed", "unit")
            facts["layout"] = describe_layout(scheme.layout)
            facts |= {"reach": _find_reach(scheme), "special": sorted(scheme.special)}
        case Rotary():
            names = (
                "head_dim",
                "rotated",
                "base",
                "axes",
                "step",
                "window",
                "interleaved",
                "rule",
                "max_positions",
                "training_length",
            )
            facts["scaling"] = dict(scheme.scaling)
            facts["unread_keys"] = [*scheme.unread_keys]
        case LinearBias():
            names = ("causal", "max_positions")
            facts["slopes"] = [float(slope) for slope in scheme.slopes]
            facts["unread_keys"] = [*scheme.unread_keys]
    return facts | {name: getattr(scheme, name) for name in names}


def declared_length(scheme: Scheme) -> int | None:
    """Return the number of positions that a scheme is declared for, at most its window."""
    match scheme:
        case RelativeBias():
            return scheme.layout.size
        case Rotary():
            return scheme.seen(scheme.max_positions)
        case LinearBias():
            return scheme.max_positions


def _find_reach(bias: RelativeBias) -> int | None:
    """Return the smallest distance beyond which all offsets have one value; None without one."""
    if not isinstance(bias.layout, Sequence):
        return None
    middle = bias.values.shape[1] // 2
    sides = [bias.values[:, middle::-1], bias.values[:, middle:]]
    changes = (np.diff(sides[:1] if bias.causal else sides, axis=2) != 0).any(axis=(0, 1))
    reach = int(np.flatnonzero(changes).max(initial=-1)) + 1
    return reach if reach < bias.layout.length - 1 else None


def _check_length(name: str, n: int, layout: Layout | None = None) -> int:
    n = check_integer(f"{name}: the number of positions", n)
    if n < 1:
        raise UsageError(f"{name}: {n} positions: choose at least one.")
    if isinstance(layout, Grid) and n != layout.size:
        raise UsageError(
            f"{name}: its positions are a {layout}: n is {layout.size}, not {n}."
        )
    return n
