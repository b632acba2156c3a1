"""Name the quantised types that files declare in findings on their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from posprobe.checkpoints import TensorInfo
from posprobe.relations import RULES, Finding
from posprobe.sources import Source

#: Types of ggml with these prefixes round each number to the nearest of its block. Other types
#: keep several numbers as one code; those of ONNX may have a step for each column.
NEAREST_ROUNDING_PREFIXES = ("Q", "IQ4", "MXFP4")


def quantised_type(storage: Source | TensorInfo) -> str | None:
    """Return the quantised type in which numbers are stored; None if they are not quantised."""
    return storage.quantisation.name if storage.quantisation else None


def name_declared_type(finding: Finding, types: Sequence[str | None]) -> Finding:
    """Add the quantised type that a file declares to a finding on its values.

    Values that moved further than by rounding stay "moved" if the type rounds to the nearest.
    Of other types the declaration is the only evidence.
    """
    side = (
        finding.more["side"] if finding.cause == "quantised" else "b" if types[1] else "a"
    )
    declared_type = types[side == "b"]
    if declared_type is None or finding.cause not in ("quantised", "moved"):
        return finding
    details = {**finding.more, "type": declared_type, "side": side}
    nearer_share = details.pop("beyond", {}).get(side, 0.0)
    rounds_to_nearest = declared_type.startswith(NEAREST_ROUNDING_PREFIXES)
    if rounds_to_nearest and nearer_share >= RULES["quantised"].tolerance:
        return replace(finding, more=details)
    return replace(finding, cause="quantised", more=details)
