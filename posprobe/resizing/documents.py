"""What ``posprobe resize --json`` prints, as types: of a table, and of rotary positions."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from posprobe.documents import EnvironmentBlock, TableBlock
from posprobe.layouts import LayoutBlock
from posprobe.resizing.effects import EffectBlock
from posprobe.resizing.losses import RunBlock
from posprobe.schema import Count, Natural, Reasons, Text, limits
from posprobe.sources import SourceBlock


class WayBlock(EffectBlock):
    """One way of resizing, and what it does to the table."""

    how: str
    kind: Annotated[
        Literal["stretches", "continues"],
        "Whether old rows are spread over the new range, or keep their positions.",
    ]
    sentences: list[Text]


class WaysDocument(TypedDict):
    """Ways of resizing a table."""

    schema: Literal["posprobe.resizing/1"]
    table: Annotated[TableBlock, "Before."]
    to: LayoutBlock
    before: Annotated[EffectBlock, "The old table beside itself."]
    ways: list[WayBlock]
    missing: Annotated[dict[str, Text], "By way, why it is left out."]
    against: Annotated[TableBlock | None, "The table of the new size that was given."]
    run: Annotated[RunBlock | None, "The model run with each table; null where it was not."]
    environment: EnvironmentBlock


class RuleBlock(TypedDict):
    """One rule of scaling, at the new length."""

    rule: str
    attention_factor: Annotated[float, "On cosines and sines."]
    kept: Annotated[Count, "Pairs that turn as in training."]
    slowed: Annotated[Count, "Pairs that turn more slowly."]
    slowest: Annotated[float, "Times, the pair that is slowed down most."]
    whole_turn: Annotated[Count, "Pairs that complete a turn within the training length."]
    interpolated: Annotated[Count, "Others, whose angles are among those of training."]
    extrapolated: Annotated[Count, "Others, whose angles go beyond those of training."]
    longest_wavelength: Annotated[float | None, "In positions; null where a pair does not turn."]
    first_negative: Annotated[Natural | None, "First distance of a negative mean rotation."]
    kernel_at_1: Annotated[float, "Mean rotation of neighbours."]
    kernel_at_training: Annotated[float, "Mean rotation at the training length."]
    kernel_at_to: Annotated[float, "Mean rotation at the new length."]
    undefined: Reasons
    sentence: Text


class RulesDocument(TypedDict):
    """Rules of scaling of rotary positions."""

    schema: Literal["posprobe.resizing/1"]
    name: str
    source: SourceBlock
    base: float
    pairs: Natural
    training: Annotated[Natural, "Positions that the model was trained with."]
    to: Natural
    rules: Annotated[list[RuleBlock], limits(minItems=1)]
    missing: Annotated[dict[str, Text], "By rule, why it is left out."]
    run: Annotated[RunBlock | None, "The model run by each rule; null where it was not."]
    environment: EnvironmentBlock
