"""Pairs as two copies declare them, and the weights that make their queries and keys."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from posprobe.checkpoints import Checkpoint, TensorInfo
from posprobe.checks.sides import Side
from posprobe.errors import InvalidTable, PosprobeError
from posprobe.families.parts import part_for, parts_of
from posprobe.families.rotary import head_count
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

#: Modules that make queries, by the module that makes keys in their place.
_KEYS = {"query": "key", "q_proj": "k_proj", "wq": "wk", "attn_q": "attn_k", "to_q": "to_k"}
#: Modules that make queries, keys and values at once: all queries first, then all keys; or group by
#: group, the queries of a group before its key and value (GPT-NeoX, BLOOM, Falcon, InternLM2).
_STACKED = frozenset({"qkv_proj", "c_attn", "Wqkv", "attn_qkv", "qkv"})
_GROUPED = frozenset({"query_key_value", "wqkv"})
#: Models that order them in another way under one of these names, or under the other's.
_OTHER_ORDER = frozenset({"codegen", "gpt_bigcode", "chatglm"})
_PROJECTION = re.compile(
    r"(?P<before>(?:.*\.)?)(?P<layer>\d+)\.(?P<stem>(?:[A-Za-z_]+\.)*)"
    rf"(?P<name>{'|'.join([*_KEYS, *_STACKED, *_GROUPED])})\.weight"
)
_OTHERS = re.compile(r"vision|visual|audio|cross|encoder_attn")
#: Most numbers of a projection that is read whole unless all are asked for, which bounds time.
WHOLE = 2**20


@dataclass(frozen=True)
class Heads:
    """Where the queries, or the keys, of one layer stand.

    Parameters
    ----------
    tensor
        Its name; others may stand in it as well.
    first
        Number of the first row of each head.
    columns
        Whether rows are the tensor's columns (GPT-2's ``Conv1D``).
    """

    tensor: str
    first: tuple[int, ...]
    columns: bool = False


def projections_of(checkpoint: Checkpoint) -> dict[int, tuple[str, str]]:
    """Name the tensors that make queries and keys, by layer; they are one where fused.

    Cross-attention and towers for images and sound are left out. Nothing is read.
    """
    fused = not any(part.model_type in _OTHER_ORDER for part in parts_of(checkpoint.config))
    found = {}
    for name in checkpoint.tensors:
        seen = _PROJECTION.fullmatch(name)
        if seen is None or _OTHERS.search(seen["before"] + seen["stem"]):
            continue
        if seen["name"] in _KEYS:
            key = f"{seen['before']}{seen['layer']}.{seen['stem']}{_KEYS[seen['name']]}.weight"
            if key in checkpoint.tensors:
                found[int(seen["layer"])] = (name, key)
        elif fused:
            found[int(seen["layer"])] = (name, name)
    return found


def find_heads(
    checkpoint: Checkpoint, names: tuple[str, str], head_dim: int
) -> tuple[Heads, Heads] | None:
    """Find where the queries and the keys of one layer stand, from shapes alone.

    Parameters
    ----------
    names
        As `projections_of` has them.
    head_dim
        Rows of a head.

    Returns
    -------
    tuple or None
        Queries and keys; None where the shapes do not fit heads of this width, or as many as the
        configuration states.
    """
    infos = [checkpoint.tensors[name] for name in names]
    if any(len(info.shape) != 2 for info in infos):
        return None
    if names[0] != names[1]:
        if any(info.shape[0] % head_dim for info in infos):
            return None
        query, key = (Heads(info.name, tuple(range(0, info.shape[0], head_dim))) for info in infos)
        return query, key
    info = infos[0]
    heads = head_count(part_for(info.name, parts_of(checkpoint.config))) or 0
    columns = info.shape[1] == 3 * info.shape[0]
    blocks, rest = divmod(info.shape[int(columns)], head_dim)
    keys, odd = divmod(blocks - heads, 2)
    if rest or odd or keys < 1 or heads < 1 or heads % keys:
        return None
    at = np.arange(blocks) * head_dim
    chosen = at[:heads], at[heads : heads + keys]
    if info.name.split(".")[-2] in _GROUPED:
        groups = at.reshape(keys, -1)
        chosen = groups[:, :-2].ravel(), groups[:, -2]
    query, key = (Heads(info.name, tuple(each.tolist()), columns) for each in chosen)
    return query, key


def read_heads(
    checkpoint: Checkpoint, heads: Heads, head_dim: int, count: int | None = None
) -> NDArray[np.float64]:
    """Read the first heads, ``[count * head_dim, width]``; all where no count is given.

    Raises
    ------
    InvalidTable
        If a number is not finite.
    PosprobeError
        As for `Checkpoint.read_rows`.
    """
    rows = np.add.outer(heads.first[:count], np.arange(head_dim)).ravel()
    read = (
        checkpoint.read(heads.tensor).values.T[rows]
        if heads.columns
        else checkpoint.read_rows(heads.tensor, rows)
    ).astype(np.float64)
    if not np.isfinite(read).all():
        raise InvalidTable(
            f"{checkpoint.tensors[heads.tensor].where}: contains NaN or infinity. The checkpoint "
            "is damaged: use a sound copy"
        )
    return read


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
) -> Iterator[tuple[int, str | None, Sequence[str | None], Projections, Projections]]:
    """Yield layers, what of them was read, the types that files declare, and the rows of both."""
    sides = [
        (side.checkpoint, record, projections_of(side.checkpoint))
        for side, record in ((a, one), (b, other))
        if side.checkpoint is not None
    ]
    layers = sorted(sides[0][2])
    if sides[1][2].keys() != set(layers) or not layers or one.head_dim != other.head_dim:
        return
    if not all_layers:
        layers = sorted({layers[0], layers[len(layers) // 2], layers[-1]})
    for layer in layers:
        with stage(f"Comparing queries and keys of layer {layer}"):
            found = [find_heads(source, names[layer], one.head_dim) for source, _, names in sides]
            infos = [source.tensors[names[layer][0]] for source, _, names in sides]
            large = max(math.prod(info.shape) for info in infos) > WHOLE
            remote = any(source.revision is not None for source, _, _ in sides)
            count = 1 if (large or remote) and not all_layers else None
            read = []
            for (source, record, _), heads in zip(sides, found, strict=True):
                if heads is None:
                    return
                query, key = (read_heads(source, each, one.head_dim, count) for each in heads)
                read.append(Projections(query, key, one.head_dim, record.rotated))
            kinds = [stored_type(info) for info in infos]
            yield layer, "first head" if count else None, kinds, read[0], read[1]
