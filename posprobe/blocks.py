"""Blocks of documents that are no record of their own: tables, environments, encodings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from posprobe.analyses.models.head_biases import Heads, Smoothness
from posprobe.analyses.models.rotary import Rotation
from posprobe.analyses.models.rotary_weights import WeightUse
from posprobe.analyses.tables.closeness import Closeness
from posprobe.layouts import LayoutBlock
from posprobe.number_types import TWO, Count, Natural, Text, limits
from posprobe.sources import Source
from posprobe.tables import DroppedRow, PrefixRow

# What several documents share.


class TableBlock(TypedDict):
    """The table and where it came from."""

    name: str
    kind: Literal["learned", "fixed"]
    family: str | None
    positions: Natural
    dim: Natural
    rows: Annotated[list[Count], "First position and one past the last.", TWO]
    layout: LayoutBlock
    prefix_rows: Annotated[list[PrefixRow], "Numbered as stored."]
    dropped_rows: Annotated[list[DroppedRow], "Numbered as stored."]
    notes: list[str]
    source: Source


class EnvironmentBlock(TypedDict):
    """What is needed to repeat the analysis: versions, device, seed, command and time."""

    posprobe: str
    python: str
    numpy: str
    torch: NotRequired[str]
    transformers: NotRequired[str]
    timm: NotRequired[str]
    device: str
    seed: int
    command: str | None
    created: Annotated[str, limits(format="date-time")]


class BandBlock(TypedDict):
    """5, 50 and 95 % of the surrogates."""

    p5: float
    p50: float
    p95: float


# Encodings without a table.


class SchemeBlock(TypedDict):
    """What all encodings without a table have."""

    name: str
    family: str | None
    head_count: Natural
    notes: list[str]
    source: Source
    heads: Heads


class RelativeBlock(SchemeBlock):
    """A learned value per head and distance."""

    scheme: Literal["relative"]
    layout: LayoutBlock
    quantity: Literal["bias", "cosine"]
    causal: bool
    computed: bool
    unit: NotRequired[Annotated[Text, "What distances count."]]
    reach: Annotated[
        Count | None,
        "Smallest distance from which all farther ones share a value; null where none within the "
        "length do, and on a grid.",
    ]
    special: Annotated[list[str], "Special tokens that have biases of their own."]
    smoothness: Smoothness


class RotaryBlock(SchemeBlock):
    """Queries and keys turn with their position."""

    scheme: Literal["rotary"]
    head_dim: Natural
    rotated: Count
    base: float
    axes: Literal[1, 2, 3]
    step: NotRequired[Annotated[float, "Of the coordinate that turns the pairs, per position."]]
    window: NotRequired[
        Annotated[Natural | None, "Positions that a query sees where these layers see fewer."]
    ]
    interleaved: bool
    rule: str
    scaling: dict[str, Any]
    max_positions: Natural | None
    training_length: Natural | None
    rotation: Rotation
    weights: NotRequired[
        Annotated[WeightUse, "What the weights of queries and keys alone say; of checkpoints."]
    ]


class LinearBiasBlock(SchemeBlock):
    """Each head subtracts its slope times the distance."""

    scheme: Literal["alibi"]
    slopes: Annotated[list[float], "Per head, logits per position.", limits(minItems=1)]
    causal: bool
    max_positions: Natural | None


@dataclass(frozen=True)
class PairBlock(Closeness):
    """Distances of two tables, and what surrogates of both reach."""

    tables: Annotated[list[str], "Labels.", TWO]
    nulls: Annotated[
        dict[str, BandBlock | None] | None,
        "By null model, the debiased CKA of surrogates of both tables; null without draws.",
    ]
