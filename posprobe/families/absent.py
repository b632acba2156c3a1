"""What is said of a checkpoint without a table of positions: what it has instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from posprobe.checkpoints import Checkpoint
from posprobe.families.find import Encoding

#: How wav2vec 2.0 and its kin, PVT v2 and XCiT name what stands in for positions.
_CONVOLUTION = re.compile(r"pos_conv|conv_pos|peg\.|pos_embed\.proj|\.cpe\.")
#: What the networks of diffusers call the layer that takes the sinusoid of the time step.
_TIME_STEP = re.compile(
    r"(?:^|[._])(?:time_embedding|timestep_embedder|time_embedder)\.linear_1\.weight$"
)
#: Tensors of a small file that are named, since one of them is the one to name.
_FEW = 5
#: Keys under which the networks of diffusers state the widths of rotations over several axes.
_AXES = ("axes_dims_rope", "axes_dim", "rope_axes_dim")


def what_instead(checkpoint: Checkpoint, found: tuple[Encoding, ...]) -> str:
    """Say that there is no table, and what was found in its place."""
    others = {encoding.scheme: encoding for encoding in reversed(found)}
    if not others and checkpoint.models:
        told = (_in_model(folder, model) for folder, model in checkpoint.models.items())
        return f"{checkpoint.location}: it has no table of positions. {' '.join(told)}"
    model = checkpoint.config.get("model_type")
    if not others:
        count = len(checkpoint.tensors)
        names = f" ({', '.join(name[:80] for name in checkpoint.tensors)})" if count <= _FEW else ""
        seen = f"among its {count} tensor{'s' if count != 1 else ''}{names}" + (
            f" (model_type {model})" if model else ""
        )
        conv = next((name for name in checkpoint.tensors if _CONVOLUTION.search(name)), None)
        instead = f" A convolution tells places apart: {conv}." if conv else ""
        return (
            f"{checkpoint.location}: no position table was found {seen}, and the configuration "
            f"names no other scheme.{instead} If a tensor holds positions, name it with "
            "--tensor NAME."
        )
    instead = "; ".join(f"{scheme} positions ({other.why})" for scheme, other in others.items())
    return (
        f"{checkpoint.location}: it has no table of positions. It has {instead}. "
        "`posprobe inspect` lists what the checkpoint says about position."
    )


def _in_model(folder: str, model: Checkpoint) -> str:
    """Say in a sentence what one of several models has."""
    kind = model.config.get("_class_name") or model.config.get("model_type")
    what = f"{folder} ({kind})" if isinstance(kind, str) else folder
    step = next((name for name in model.tensors if _TIME_STEP.search(name)), None)
    parts = [_rotations(model.config)] if any(key in model.config for key in _AXES) else []
    if step is not None:
        parts.append(
            "a sinusoid of the time step, computed at run time and handed to "
            f"{step.removeprefix(f'{folder}.')}: it numbers the steps of denoising, not positions"
        )
    return f"{what} has {'; and '.join(parts) or 'none among its tensors'}."


def _rotations(config: Mapping[str, Any]) -> str:
    key = next(key for key in _AXES if key in config)
    return f"rotary positions over several axes ({key}), whose base stands in the code of diffusers"
