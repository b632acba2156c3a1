"""Pairs as two copies declare them, and the weights that make their queries and keys."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from posprobe.analyses.pair_layout import pair_layout
from posprobe.checkpoints import TensorInfo
from posprobe.checks.sides import Side
from posprobe.errors import InvalidTable, PosprobeError
from posprobe.families.projections import RotaryWeights
from posprobe.progress import stage
from posprobe.relations import (
    Finding,
    NotCompared,
    Projections,
    relate_layouts,
    relate_projections,
)
from posprobe.schemes import Rotary
from posprobe.sources import Source

#: Most numbers of a projection that is read whole unless all are asked for, which bounds time.
WHOLE = 2**20


def stored_type(stored: Source | TensorInfo) -> str | None:
    """Return the quantised type in which numbers are stored; None where they are not."""
    return stored.quantisation.name if stored.quantisation else None


def as_declared(found: Finding, kinds: Sequence[str | None]) -> Finding:
    """Call values rounded that a file declares so: grids of larger blocks are not looked for."""
    if found.cause != "moved" or not any(kinds):
        return found
    side = "b" if kinds[1] else "a"
    more = {"type": kinds[1] or kinds[0], "side": side}
    return replace(found, cause="quantised", more=more)


def relate_weights(
    a: Side, b: Side, *, all_layers: bool
) -> tuple[list[Finding], list[NotCompared]]:
    """Compare pairs as declared, and the order of the rows that make queries and keys."""
    one, other = (
        next(each for each in side.records["rotary"].values() if isinstance(each, Rotary))
        for side in (a, b)
    )
    found: dict[tuple[str, str | None], list[tuple[int, Finding]]] = {}
    stored = a.checkpoint is not None and b.checkpoint is not None
    reason = "no_projections" if stored else "no_weights"
    missing = []
    try:
        for layer, read, kinds, mine, theirs in (
            _projections(a, b, one, other, all_layers=all_layers) if stored else ()
        ):
            order, finding = relate_projections(mine, theirs)
            finding = as_declared(finding, kinds)
            if read:
                finding = replace(finding, more={**finding.more, "read": read})
            found.setdefault((finding.cause, order), []).append((layer, finding))
    except PosprobeError as error:
        missing.append(NotCompared("weights", str(error)))
        found = {}
    declared = _neighbours(a, one), _neighbours(b, other)
    findings = []
    for each in found.values():
        worst = max((finding for _, finding in each), key=lambda finding: finding.value or 0.0)
        layers = [layer for layer, _ in each]
        findings.append(replace(worst, more={**worst.more, "layers": layers}))
    orders: list[str | None] = [*sorted({order for _, order in found if order})] or [None]
    pairs = [relate_layouts(declared, order) for order in orders]
    findings += {each.cause: each for each in pairs if each is not None}.values()
    if not found and not missing:
        missing.append(NotCompared("weights", reason, decides=False))
    if None in pairs:
        missing.append(NotCompared("pairs", "pairs_unknown"))
    return findings, missing


def _projections(
    a: Side, b: Side, one: Rotary, other: Rotary, *, all_layers: bool
) -> Iterator[tuple[int, str | None, Sequence[str | None], Projections, Projections]]:
    """Yield layers, what of them was read, the types that files declare, and the rows of both."""
    both = [side.weights for side in (a, b) if side.weights is not None]
    if len(both) < 2 or both[0].layers.keys() != both[1].layers.keys() or not both[0].layers:
        return
    layers = sorted(both[0].layers)
    if one.head_dim != other.head_dim:
        return
    if not all_layers:
        layers = sorted({layers[0], layers[len(layers) // 2], layers[-1]})
    remote = any(side.checkpoint.revision is not None for side in both)
    for layer in layers:
        with stage(f"Comparing queries and keys of layer {layer}"):
            infos = [side.checkpoint.tensors[f"{side.layers[layer].query}.weight"] for side in both]
            large = max(math.prod(info.shape) for info in infos) > WHOLE
            first = (large or remote) and not all_layers
            kinds = [stored_type(info) for info in infos]
            mine, theirs = (
                _read(side, layer, record, first=first)
                for side, record in zip(both, (one, other), strict=True)
            )
            yield layer, "first head" if first else None, kinds, mine, theirs


def _read(side: RotaryWeights, layer: int, record: Rotary, *, first: bool) -> Projections:
    found = side.read(layer, first=first)
    query, key = (
        each.reshape(-1, each.shape[-1]).astype(np.float64) for each in (found.query, found.key)
    )
    if not (np.isfinite(query).all() and np.isfinite(key).all()):
        raise InvalidTable(
            f"{side.checkpoint.tensors[f'{side.layers[layer].query}.weight'].where}: contains NaN "
            "or infinity, or its keys do. The checkpoint is damaged: use a sound copy"
        )
    return Projections(query, key, record.head_dim, record.rotated)


def _neighbours(side: Side, record: Rotary) -> bool | None:
    """Tell whether pairs are neighbours: as declared, else as all weights on disk tell, if so."""
    if side.declared:
        return record.interleaved
    if side.weights is None or side.weights.checkpoint.revision is not None:
        return None
    sizes = [side.weights.read(layer).row_sizes for layer in side.weights.layers]
    found = pair_layout(np.concatenate(sizes)[:, : record.rotated]) if sizes else None
    answer = found.answer if found else None
    return {"halves": False, "neighbours": True}.get(answer or "")
