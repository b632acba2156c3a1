"""Encodings without a table of rows become records: relative biases, rotations, linear biases."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from posprobe import encodings
from posprobe.checkpoints import Checkpoint
from posprobe.errors import InvalidCheckpoint, NoPositionTable, UsageError
from posprobe.families.find import Encoding
from posprobe.families.parts import parts_of
from posprobe.families.relative_layout import read_relative
from posprobe.families.rotary import LinearSpec, RotarySpec
from posprobe.layouts import Sequence
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme
from posprobe.sources import Source

#: Largest distance that buckets are laid out for.
MOST_DISTANCES = 2**20
#: Keys that give some heads, or parts of them, a width of their own.
_OWN_WIDTHS = {"qk_rope_head_dim", "global_head_dim", "per_layer_config"}


def build_scheme(checkpoint: Checkpoint, encoding: Encoding, name: str, reference: str) -> Scheme:
    """Build the record of an encoding that has no table of rows.

    Parameters
    ----------
    checkpoint, encoding
        As found by `find_encodings`.
    name
        Short name for titles.
    reference
        As typed.

    Raises
    ------
    InvalidCheckpoint
        If what is stored or configured contradicts itself.
    NoPositionTable
        If nothing is stored that could be shown.
    """
    if encoding.problem:
        raise InvalidCheckpoint(f"{checkpoint.location}: {encoding.problem}")
    if encoding.relative is not None:
        return read_relative(checkpoint, encoding.relative, name, reference)
    source = Source(reference, checkpoint.location, checkpoint.revision)
    spec = encoding.spec
    try:
        match spec:
            case RotarySpec():
                _check_heads(checkpoint, spec)
                numbers = asdict(spec)
                del numbers["layers"]
                return Rotary(name=name, source=source, family=encoding.family, **numbers)
            case LinearSpec():
                slopes = encodings.alibi_slopes(spec.heads, bias_max=spec.most) * spec.scale
                return LinearBias(
                    slopes, name, source, spec.max_positions, family=encoding.family,
                    notes=spec.notes,
                )  # fmt: skip
    except UsageError as error:
        raise InvalidCheckpoint(f"{checkpoint.location}: {error}") from error
    if encoding.scheme == "fixed":
        raise NoPositionTable(
            f"{checkpoint.location}: {encoding.why}. `posprobe analyze sinusoidal:NxD` (or "
            "sincos2d:HxWxD) shows it; the checkpoint stores none of it."
        )
    raise NoPositionTable(
        f"{checkpoint.location}: {encoding.scheme} positions ({encoding.why}) whose numbers the "
        "checkpoint does not state. Add its config.json."
    )


def _check_heads(checkpoint: Checkpoint, spec: RotarySpec) -> None:
    """Refuse a head that is wider than the stored queries, or does not divide them."""
    if len(parts_of(checkpoint.config)) > 1 or _OWN_WIDTHS & checkpoint.config.keys():
        return  # whose queries they are cannot be told
    for name in checkpoint.tensors:
        if name.endswith(".q_proj.weight"):
            info = checkpoint.tensors[name]
            if info.shape and info.shape[0] % spec.head_dim:
                raise InvalidCheckpoint(
                    f"{info.file}: tensor {name}, shape {list(info.shape)}: the configuration says "
                    f"that a head is {spec.head_dim} wide, which does not divide {info.shape[0]}. "
                    "One of them belongs to another checkpoint: fix config.json."
                )
            return


def scheme_of_formula(source: str) -> Scheme:
    """Build the encoding that a formula reference such as ``rotary:4096x128`` names.

    ``t5:LENGTHxBUCKETS`` is one head whose bias falls by one from bucket to bucket: it shows what
    T5's buckets can tell apart.

    Raises
    ------
    UnknownReference, UsageError
        If the reference names no formula, or sizes or options that cannot be.
    NoPositionTable
        If the formula is a table, which `load` builds.
    """
    name, (length, width), options = _sizes(source)
    origin = Source(reference=source, resolved=source)
    match name:
        case "rotary":
            return Rotary(
                width, source, origin, max_positions=length, training_length=length, **options,
                family="formula",
            )  # fmt: skip
        case "alibi":
            slopes = encodings.alibi_slopes(width, **options)
            return LinearBias(slopes, source, origin, length, family="formula")
    reach = options.get("max_distance", 128)
    if reach > MOST_DISTANCES:
        raise UsageError(f"{source}: max goes up to {MOST_DISTANCES}.")
    offsets = np.arange(-reach, reach + 1)
    bidirectional = options.get("bidirectional", True)
    bucket = encodings.t5_buckets(offsets, buckets=width, **options)
    rank = bucket % (width // 2) if bidirectional else bucket
    return RelativeBias(
        -rank[None].astype(np.float64), Sequence(length), source, origin, family="formula",
        causal=not bidirectional, computed=True,
    )  # fmt: skip


def _sizes(source: str) -> tuple[str, tuple[int, int], dict[str, Any]]:
    name, sizes, options = encodings.parse_formula(source)
    if name not in ("rotary", "alibi", "t5"):
        raise NoPositionTable(f"{source}: it is a table of positions and no other encoding.")
    return name, (sizes[0], sizes[1]), options
