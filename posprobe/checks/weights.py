"""Pairs as two copies declare them, and the weights that make their queries and keys."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.checks.sides import MOST, Side
from posprobe.errors import PosprobeError
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

#: Queries of a layer; keys are called alike.
_QUERY = re.compile(
    r"(?P<before>(?:.*\.)?)(?P<layer>\d+)\.(?P<name>(?:self_attn|attention|attn|self_attention)?\.?"
    r"(?:self\.query|q_proj|wq|attn_q|to_q))\.weight"
)
_KEYS = {"query": "key", "q_proj": "k_proj", "wq": "wk", "attn_q": "attn_k", "to_q": "to_k"}
_OTHERS = re.compile(r"vision|visual|audio")


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
    declared = tuple(
        record.interleaved if side.declared else None for record, side in ((one, a), (other, b))
    )
    found: dict[tuple[str, str | None], list[tuple[int, Finding]]] = {}
    stored = a.checkpoint is not None and b.checkpoint is not None
    reason = "no_projections" if stored else "no_weights"
    missing = []
    try:
        for layer, kinds, mine, theirs in (
            _projections(a, b, one, other, all_layers=all_layers) if stored else ()
        ):
            order, finding = relate_projections(mine, theirs)
            finding = as_declared(finding, kinds)
            found.setdefault((finding.cause, order), []).append((layer, finding))
    except PosprobeError as error:
        missing.append(NotCompared("weights", str(error)))
        found = {}
    findings = []
    for each in found.values():
        worst = max((finding for _, finding in each), key=lambda finding: finding.value or 0.0)
        layers = [layer for layer, _ in each]
        findings.append(replace(worst, more={**worst.more, "layers": layers}))
    orders: list[str | None] = [*sorted({order for _, order in found if order})] or [None]
    pairs = [relate_layouts((declared[0], declared[1]), order) for order in orders]
    findings += {each.cause: each for each in pairs if each is not None}.values()
    if not found and not missing:
        missing.append(NotCompared("weights", reason, decides=False))
    if None in pairs:
        missing.append(NotCompared("pairs", "pairs_unknown"))
    return findings, missing


def _projections(
    a: Side, b: Side, one: Rotary, other: Rotary, *, all_layers: bool
) -> Iterator[tuple[int, list[str | None], Projections, Projections]]:
    """Yield layers with the types that files declare, and what was read of both."""
    checkpoints = [side.checkpoint for side in (a, b) if side.checkpoint is not None]
    names = [_names(checkpoint) for checkpoint in checkpoints]
    if names[0].keys() != names[1].keys() or not names[0]:
        return
    layers = sorted(names[0])
    if not all_layers:
        layers = sorted({layers[0], layers[len(layers) // 2], layers[-1]})
    whole = all_layers or all(checkpoint.revision is None for checkpoint in checkpoints)
    for layer in layers:
        with stage(f"Comparing queries and keys of layer {layer}"):
            infos = [
                checkpoint.tensors[name]
                for checkpoint, found in zip(checkpoints, names, strict=True)
                for name in found[layer]
            ]
            shapes = [info.shape for info in infos]
            kinds = [stored_type(info) for info in infos[::2]]
            numbers = max(math.prod(shape) for shape in shapes)
            one_head = not whole or (numbers > MOST and not all_layers)
            if any(len(shape) != 2 or shape[0] % one.head_dim for shape in shapes):
                return
            mine, theirs = (
                _read(checkpoint, found[layer], record, one_head=one_head)
                for checkpoint, found, record in zip(checkpoints, names, (one, other), strict=True)
            )
            yield layer, kinds, mine, theirs


def _read(
    checkpoint: Checkpoint, names: tuple[str, str], record: Rotary, *, one_head: bool
) -> Projections:
    query, key = (
        checkpoint.read_rows(
            name, np.arange(record.head_dim if one_head else checkpoint.tensors[name].shape[0])
        ).astype(np.float64)
        for name in names
    )
    return Projections(query, key, record.head_dim, record.rotated)


def _names(checkpoint: Checkpoint) -> dict[int, tuple[str, str]]:
    """Return by layer the names of the weights that make queries and keys."""
    found = {}
    for name in checkpoint.tensors:
        if (seen := _QUERY.fullmatch(name)) and not _OTHERS.search(seen["before"]):
            stem, _, last = seen["name"].rpartition(".")
            key = f"{seen['before']}{seen['layer']}.{stem}{'.' if stem else ''}{_KEYS[last]}.weight"
            if key in checkpoint.tensors:
                found[int(seen["layer"])] = (name, key)
    return found
