"""Blocks of documents that are no record of their own: tables, environments, encodings."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

import numpy as np

from posprobe.analyses.descriptive.closeness import Closeness
from posprobe.analyses.models.head_biases import Heads, Smoothness
from posprobe.analyses.models.rotary import Rotation
from posprobe.analyses.models.rotary_weights import WeightUse
from posprobe.errors import UsageError
from posprobe.layouts import LayoutBlock, describe_layout
from posprobe.number_types import PAIR_LIMITS, Count, Natural, Text, limits
from posprobe.sources import Source, describe_source
from posprobe.tables import DroppedRow, PositionTable, PrefixRow

# Blocks that several documents share.


class TableBlock(TypedDict):
    """The table and where it came from."""

    name: str
    kind: Literal["learned", "fixed"]
    family: str | None
    positions: Natural
    dim: Natural
    rows: Annotated[list[Count], "First position and one past the last.", PAIR_LIMITS]
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


def table_block(table: PositionTable) -> dict[str, Any]:
    """Return the ``table`` block of ``analysis.json``."""
    return {
        "name": table.name,
        "kind": table.kind,
        "family": table.family,
        "positions": len(table),
        "dim": table.dim,
        "rows": list(table.rows),
        "layout": describe_layout(table.layout),
        "prefix_rows": [
            {"row": row.row, "token": row.token} for row in table.prefix_rows
        ],
        "dropped_rows": [{"row": row.row, "reason": row.reason} for row in table.dropped],
        "notes": list(table.notes),
        "source": describe_source(table.source),
    }


def describe_environment(device: str, seed: int, command: str | None) -> EnvironmentBlock:
    """Return the ``environment`` block: versions, device, seed, command and time."""
    versions = {"posprobe": version("posprobe"), "python": platform.python_version()}
    versions["numpy"] = np.__version__
    libraries = [
        name for name in ("torch", "transformers", "timm") if name in sys.modules
    ]
    versions |= {name: version(name) for name in libraries}
    circumstances = {
        "device": device,
        "seed": seed,
        "command": command,
        "created": creation_time().isoformat(timespec="seconds"),
    }
    return cast("EnvironmentBlock", versions | circumstances)


def creation_time() -> datetime:
    """Return the time of creation that documents state: now, or SOURCE_DATE_EPOCH.

    Raises
    ------
    UsageError
        If that is no time in seconds.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        return datetime.now(UTC)
    try:
        return datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"SOURCE_DATE_EPOCH={epoch!r} is not a time in seconds. Set it to a whole number."
        ) from error


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
        "Smallest distance from which all farther ones share a value; null "
        "where none within the length do, and on a grid.",
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
    step: NotRequired[
        Annotated[float, "Of the coordinate that turns the pairs, per position."]
    ]
    window: NotRequired[
        Annotated[
            Natural | None, "Positions that a query sees where these layers see fewer."
        ]
    ]
    interleaved: bool
    rule: str
    scaling: dict[str, Any]
    unread_keys: NotRequired[
        Annotated[list[str], "Keys of the configuration on position that no rule reads."]
    ]
    max_positions: Natural | None
    training_length: Natural | None
    rotation: Rotation
    weights: NotRequired[
        Annotated[
            WeightUse, "What the weights of queries and keys alone say; of checkpoints."
        ]
    ]


class LinearBiasBlock(SchemeBlock):
    """Each head subtracts its slope times the distance."""

    scheme: Literal["alibi"]
    slopes: Annotated[list[float], "Per head, logits per position.", limits(minItems=1)]
    unread_keys: NotRequired[
        Annotated[list[str], "Keys of the configuration on position that no rule reads."]
    ]
    causal: bool
    max_positions: Natural | None


@dataclass(frozen=True)
class PairBlock(Closeness):
    """Distances of two tables, and what surrogates of both reach."""

    tables: Annotated[list[str], "Labels.", PAIR_LIMITS]
    nulls: Annotated[
        dict[str, BandBlock | None] | None,
        "By null model, the debiased CKA of surrogates of both tables; null without draws.",
    ]
