"""Runs of models that were saved: their attention budgets, read back without trust in the files."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import Verdict
from posprobe.analyses.models.attention_budget import (
    AttentionBudget,
    HeadBudget,
    LayerWindow,
    LogitSource,
)
from posprobe.arrays import Floats
from posprobe.errors import InvalidCheckpoint, UnknownReference, UsageError
from posprobe.layouts import Grid, Layout, Sequence as Line
from posprobe.report.files import RUN_SCHEMAS, read_arrays, read_bundle
from posprobe.text import shorten_reference

#: Advice for a run that cannot be read.
RUN_AGAIN_ADVICE = "Run the model again."
#: The shares of a head add up to 1, but for rounding.
MAX_SHARE_SUM_ERROR = 1e-6
#: Shares between 0 and 1 may exceed 1 by rounding in single precision.
MAX_ROUNDED_SHARE = 1 + 1e-6
#: No estimate of a share is as far from 0.
MAX_SHARE_MAGNITUDE = 10.0


@dataclass(frozen=True, eq=False)
class SavedRun:
    """A saved run of a model.

    Parameters
    ----------
    document
        Content of its ``analysis.json``.
    budget
        What decides where its heads look.
    contexts_kind
        Kind of its contexts, in words.
    """

    document: Mapping[str, Any]
    budget: AttentionBudget
    contexts_kind: str


def run_document(reference: str) -> dict[str, Any] | None:
    """Return the document of the run in a folder; None for any other reference."""
    try:
        document = read_bundle(Path(reference))
    except (UnknownReference, InvalidCheckpoint, OSError, ValueError):
        return None
    return document if document["schema"] in RUN_SCHEMAS else None


def read_run(reference: str) -> SavedRun | None:
    """Read a saved run with its attention budget; None if the folder holds no run.

    Raises
    ------
    UsageError
        If the run did not measure the attention budget.
    InvalidCheckpoint
        If the bundle is damaged, or was changed by hand.
    """
    document = run_document(reference)
    if document is None:
        return None
    block = document.get("attention_budget")
    if block is None:
        raise UsageError(
            f"{reference}: this run did not measure what decides where heads look. "
            f"{RUN_AGAIN_ADVICE}"
        )
    try:
        if not block["heads"]:
            raise UsageError(f"{reference}: no head of this run could be measured.")
        name = "attention_curves"
        arrays = read_arrays(Path(reference) / "arrays.npz", RUN_AGAIN_ADVICE, (name,))
        budget = _read_budget(document, arrays[name])
        return SavedRun(document, budget, str(document["contexts"]["kind"]))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InvalidCheckpoint(
            f"{reference}: it lacks what the run measured "
            f"({type(error).__name__}: {error}). {RUN_AGAIN_ADVICE}"
        ) from error


def _read_budget(document: Mapping[str, Any], curves: NDArray[Any]) -> AttentionBudget:
    """Read the record of a budget from its block and its curves."""
    block = document["attention_budget"]
    layers = tuple(map(_read_layer, block["layers"]))
    windows = {layer.layer: layer.window for layer in layers}
    heads = tuple(map(_read_head, block["heads"]))
    if len(windows) < len(layers) or len({_index(head) for head in heads}) < len(heads):
        raise ValueError("a layer or head stands there twice")
    layout = _read_layout(block["layout"])
    if block["source"] not in get_args(LogitSource):
        raise ValueError(f"source {block['source']!r:.40}")
    displacements = _read_displacements(
        layout,
        max(windows.values()),
        curves.shape,
        is_two_sided=block["both_sides"] is True,
    )
    if len(curves) != len(heads):
        raise ValueError(f"{len(curves)} curves of {len(heads)} heads")
    for head, curve in zip(heads, curves, strict=True):
        _check_curve(head, curve, displacements, windows[head.layer])
    return AttentionBudget(
        heads=heads,
        lost_heads=(),
        layers=layers,
        contexts=_check_count(block["contexts"]),
        tokens=_check_count(block["tokens"]),
        both_sides=block["both_sides"] is True,
        layout=layout,
        source=block["source"],
        by_chance=None,
        uniform_first=None,
        curves=curves.astype(np.float64),
        displacements=displacements,
        name=shorten_reference(str(document["name"])),
    )


def _index(head: HeadBudget) -> tuple[int, int]:
    return head.layer, head.head


def _read_layer(block: Mapping[str, Any]) -> LayerWindow:
    problem = block["problem"]
    return LayerWindow(
        _check_count(block["layer"]),
        _check_count(block["window"]),
        None if problem is None else str(problem),
    )


def _read_head(block: Mapping[str, Any]) -> HeadBudget:
    shares = {
        name: _check_number(name, block[name], -MAX_SHARE_MAGNITUDE, MAX_SHARE_MAGNITUDE)
        for name in ("distance", "key", "other", "content")
    }
    if abs(sum(shares.values()) - 1) > MAX_SHARE_SUM_ERROR:
        raise ValueError(f"shares add up to {sum(shares.values()):.6g} and not to 1")
    if block["prefers"] not in get_args(Verdict):
        raise ValueError(f"prefers {block['prefers']!r:.40}")
    preferred, error, p, first = (
        block[name] for name in ("preferred", "error", "p", "first")
    )
    return HeadBudget(
        layer=_check_count(block["layer"]),
        head=_check_count(block["head"]),
        **shares,
        error=math.nan if error is None else _check_number("error", error),
        moved=_check_number("moved", block["moved"], high=MAX_ROUNDED_SHARE),
        spread=_check_number("spread", block["spread"]),
        preferred=tuple(preferred) if isinstance(preferred, list) else preferred,
        prefers=block["prefers"],
        p=None if p is None else _check_number("p", p, high=MAX_ROUNDED_SHARE),
        first=None
        if first is None
        else _check_number("first", first, high=MAX_ROUNDED_SHARE),
        lost=_check_number("lost", block["lost"], high=MAX_ROUNDED_SHARE),
    )


def _read_layout(block: Mapping[str, Any]) -> Layout:
    if block["type"] == "grid":
        return Grid(_check_count(block["height"]), _check_count(block["width"]))
    return Line(_check_count(block["length"]))


def _read_displacements(
    layout: Layout, window: int, shape: tuple[int, ...], *, is_two_sided: bool
) -> NDArray[np.int64]:
    """Return the displacements of curves of this shape, ``[n, axes]``, query minus key."""
    axes = [(1 - window if is_two_sided else 0, window)]
    if isinstance(layout, Grid):
        reaches = layout.height // 3, layout.width // 3
        axes = [(-reach, reach + 1) for reach in reaches]
    # Sizes are compared before arrays of these sizes are made.
    n = math.prod(stop - start for start, stop in axes)
    if len(shape) != 2 or shape[1] != n:
        raise ValueError(f"curves of shape {list(shape)} over {n} displacements")
    mesh = np.meshgrid(*(np.arange(*axis) for axis in axes), indexing="ij")
    return np.stack([axis.ravel() for axis in mesh], axis=1)


def _check_curve(
    head: HeadBudget, curve: Floats, displacements: NDArray[Any], window: int
) -> None:
    """Check that a head has a mean logit at every displacement of its layer, and its favourite."""
    is_visible = (displacements.max(axis=1) < window) & (displacements[:, -1] >= 0)
    if not is_visible.any() or not np.isfinite(curve[is_visible]).all():
        raise ValueError(f"layer {head.layer} has no curves over {window} distances")
    if head.preferred is not None:
        place = [head.preferred] if isinstance(head.preferred, int) else head.preferred
        if tuple(place) not in map(tuple, displacements.tolist()):
            raise ValueError(f"preferred {head.preferred!r:.40}")


def _check_count(value: Any) -> int:
    """Check a count that was read from a document, which may have been edited."""
    if type(value) is not int or not 0 <= value < 2**31:
        raise ValueError(f"{value!r:.40} is no such number")
    return value


def _check_number(
    name: str, value: Any, low: float = 0.0, high: float = sys.float_info.max
) -> float:
    """Check a number that was read from a document, which may have been edited."""
    if type(value) not in (int, float) or not low <= value <= high:
        raise ValueError(f"{name} {value!r:.40}")
    return float(value)
