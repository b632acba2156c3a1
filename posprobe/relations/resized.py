"""Records of resizing: the effect of each way and each rule, and its cost to a model.

They hold numbers alone, as the documents do; `posprobe.words.resizing` writes the sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import Number
from posprobe.analyses.result import HIDDEN, NEWER
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Count, Natural, NonNegative, Reasons, Row, Text

#: A cosine that differs by less counts as unchanged.
MIN_COSINE_CHANGE = 0.02
#: A norm that differs by a smaller share counts as unchanged.
MIN_NORM_CHANGE = 0.05
#: Rows are kept from this mean cosine with the old rows on.
MIN_KEPT_COSINE = 0.9
#: Rows are lost up to this mean cosine with the old rows.
MAX_LOST_COSINE = 0.5
#: A period within this factor of the expected one stays, or scales with the table.
MAX_SAME_PERIOD_RATIO = 1.1

#: The share of their places or positions that rows keep.
Degree: TypeAlias = Literal["kept", "partly", "lost"]


@dataclass(frozen=True)
class Turns:
    """Leading pairs of components that go round: of the positions, or of one axis of a grid."""

    periods: Annotated[
        tuple[float, ...],
        "In positions, of pairs that go round at least once, that with the most variance first.",
    ]
    turns: Annotated[float | None, "Of the first of them; null where there is none."]


@dataclass(frozen=True)
class Effect:
    """Numbers of one table beside those of the table that it was made of."""

    norm_mean: Annotated[NonNegative, Number("mean norm", "of the rows")]
    norm_min: Annotated[NonNegative, Number("smallest norm", "of the rows")]
    neighbour_cosine: Annotated[
        float | None, Number("neighbours", "mean centred cosine of neighbouring rows")
    ]
    same_place: Annotated[
        float | None,
        Number(
            "same place",
            "mean centred cosine with the old row at the nearest relative place",
        ),
    ]
    same_position: Annotated[
        float | None,
        Number(
            "same position", "mean centred cosine with the old row of the same position"
        ),
    ]
    translation_invariance: Annotated[
        float | None,
        Number("invariance", "share of the cosines' variance that the offset explains"),
    ]
    copies: Annotated[Count, Number("copies", "rows that equal one before them")]
    turns: Annotated[
        dict[str, Turns],
        "By axis: `positions`, or `rows` and `columns`; empty without codes.",
    ]
    seams: Annotated[
        tuple[tuple[Row, Row], ...] | None, "Those that the old table has not."
    ]
    special: tuple[Row, ...] | None
    undefined: Reasons


@dataclass(frozen=True)
class Period:
    """The change of the leading period of a table.

    Parameters
    ----------
    axis
        ``positions``, ``rows`` or ``columns``.
    change
        Whether the period stays, scales with the table, or is lost.
    before, after
        Period before and after, in positions; ``after`` is None if it is lost.
    """

    axis: str
    change: Literal["stays", "scales", "lost"]
    before: float
    after: Annotated[float | None, "In positions; null if it is lost."]


@dataclass(frozen=True)
class Way(Effect):
    """One way of resizing, and what it does to the table."""

    how: str
    kind: Annotated[
        Literal["stretches", "continues"],
        "Whether old rows are spread over the new range, or keep their positions.",
    ]
    before: Annotated[Effect, HIDDEN]
    old: Annotated[Layout, HIDDEN]
    new: Annotated[Layout, HIDDEN]
    start: Annotated[int, HIDDEN]

    @property
    def factors(self) -> Mapping[str, float]:
        """Length after resizing over length before, by axis."""
        if isinstance(self.old, Grid) and isinstance(self.new, Grid):
            height, width = (
                self.new.height / self.old.height,
                self.new.width / self.old.width,
            )
            return {"rows": height, "columns": width}
        return {"positions": self.new.size / self.old.size}

    @property
    def place(self) -> Degree | None:
        """Whether rows keep their relative places; None if that is undefined."""
        return _rate_cosine(self.same_place)

    @property
    def position(self) -> Degree | None:
        """Whether rows keep their positions; None if that is undefined."""
        return _rate_cosine(self.same_position)

    @property
    def alike(self) -> bool:
        """Whether all rows are equal, before and after."""
        old_copies, new_copies = self.before.copies, self.copies
        return old_copies == self.old.size - 1 and new_copies == self.new.size - 1

    @property
    def periods(
        self,
    ) -> Annotated[
        tuple[Period, ...],
        NEWER,
        "The leading period before, by axis, and what becomes of it.",
    ]:
        """The change of the leading period of each axis that has codes before and after."""
        return tuple(self._iterate_periods())

    def _iterate_periods(self) -> Iterator[Period]:
        for axis, factor in self.factors.items():
            if axis not in self.turns or axis not in self.before.turns:
                continue
            old_periods, new_periods = (
                self.before.turns[axis].periods,
                self.turns[axis].periods,
            )
            if not old_periods:
                continue
            leading = old_periods[0]
            # All new periods are compared, because another pair may lead at another size.
            recurring = [
                period for period in new_periods if _is_near(period / leading, 1.0)
            ]
            scaled = [
                period for period in new_periods if _is_near(period / leading, factor)
            ]
            if self.kind == "stretches" and factor != 1 and scaled:
                yield Period(axis, "scales", leading, scaled[0])
            elif recurring:
                yield Period(axis, "stays", leading, recurring[0])
            else:
                yield Period(axis, "lost", leading, None)

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the numbers that changed by `MIN_COSINE_CHANGE`, norms by `MIN_NORM_CHANGE`."""
        changed_names = []
        for name in ("neighbour_cosine", "translation_invariance"):
            old_cosine, new_cosine = getattr(self.before, name), getattr(self, name)
            if old_cosine is None or new_cosine is None:
                continue
            if abs(new_cosine - old_cosine) > MIN_COSINE_CHANGE:
                changed_names.append(name)
        for name in ("norm_mean", "norm_min"):
            old_norm, new_norm = getattr(self.before, name), getattr(self, name)
            if old_norm and abs(new_norm / old_norm - 1) > MIN_NORM_CHANGE:
                changed_names.append(name)
        return tuple(changed_names)


def _rate_cosine(cosine: float | None) -> Degree | None:
    if cosine is None:
        return None
    if cosine >= MIN_KEPT_COSINE:
        return "kept"
    return "lost" if cosine <= MAX_LOST_COSINE else "partly"


def _is_near(ratio: float, target: float) -> bool:
    return 1 / MAX_SAME_PERIOD_RATIO <= ratio / target <= MAX_SAME_PERIOD_RATIO


@dataclass(frozen=True)
class Rule:
    """One rule of scaling, at the new length."""

    rule: str
    kept: Annotated[Count, "Pairs that turn as in training."]
    slowed: Annotated[
        Count, Number("slower pairs", "pairs that turn more slowly than in training")
    ]
    slowest: Annotated[
        float, Number("slowed most", "times, the pair that is slowed down most")
    ]
    whole_turn: Annotated[
        Count, Number("whole turns", "pairs of which training has shown every angle")
    ]
    interpolated: Annotated[
        Count, Number("interpolated", "others, whose angles are among those of training")
    ]
    extrapolated: Annotated[
        Count, Number("extrapolated", "others, whose angles go beyond those of training")
    ]
    longest_wavelength: Annotated[
        float | None,
        Number("longest wavelength", "in positions; none where a pair does not turn"),
    ]
    kernel_at_1: Annotated[float, Number("rotation at 1", "mean rotation of neighbours")]
    kernel_at_training: Annotated[
        float,
        Number("rotation at training length", "mean rotation at the training length"),
    ]
    kernel_at_to: Annotated[
        float, Number("rotation at new length", "mean rotation at the new length")
    ]
    first_negative: Annotated[
        Natural | None,
        Number("first negative", "first distance of a negative mean rotation"),
    ]
    attention_factor: Annotated[float, Number("attention factor", "on cosines and sines")]
    undefined: Reasons
    pairs: Annotated[int, HIDDEN]


@dataclass(frozen=True)
class Part:
    """Mean loss over some positions."""

    first: Count
    last: Count
    loss: float


@dataclass(frozen=True)
class Cost:
    """What the model does with one table, or by one rule."""

    value: Annotated[float, "Mean loss in nats."]
    error: Annotated[NonNegative | None, "Standard error over contexts."]
    parts: Annotated[tuple[Part, ...], "By position in the context."] = ()


@dataclass(frozen=True, eq=False)
class Run:
    """The model run with each table, or by each rule.

    Parameters
    ----------
    kind, contexts, task
        What the model was run on, the number of contexts, and what it predicts.
    before
        Cost of the unchanged model at its trained length.
    ways
        Losses by way or rule, at the new length.
    best
        Way with the lowest cost, and those whose cost is not clearly higher.
    length, cut
        Number of tokens of a window, and of its beginning that the unchanged model reads.
    losses
        Mean loss by position ``[n]``, under ``before`` and by way.
    measure
        Name of what a cost is: the loss.
    """

    kind: Annotated[Text, "What it was run on."]
    contexts: Natural
    task: Annotated[str, "What is predicted: the next, or a masked token."]
    before: Annotated[
        Cost, "The unchanged model on the beginning of the same windows of text."
    ]
    ways: dict[str, Cost]
    best: Annotated[tuple[str, ...], HIDDEN]
    length: Annotated[int, HIDDEN]
    cut: Annotated[int, HIDDEN]
    losses: Annotated[Mapping[str, NDArray[np.float64]], HIDDEN]
    measure: Literal["loss"] = "loss"


@dataclass(frozen=True)
class Copied:
    """A checkpoint copied with its table at another size."""

    tensor: str
    #: The file that holds it.
    file: str
    #: Shapes before and after.
    old_shape: tuple[int, ...]
    new_shape: tuple[int, ...]
    #: Keys of its configuration that were changed.
    keys: tuple[str, ...]
    #: Files left out, since they may hold the table at its old size.
    omitted_files: tuple[str, ...]
