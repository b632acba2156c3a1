"""Compare the learned sinks of attention that two copies store."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from posprobe.checkpoints import Checkpoint
from posprobe.relations import Finding, NotCompared

#: Learned sinks by the ends of their tensors' names.
_SINK_NAME = re.compile(r"(?:^|.*\.)(\d+)\.(?:.*\.)?\w*sinks?(?:_bias|\.weight|\.bias)?$")
#: A tensor that is nearer to another, over its size, is the same: rounding to bfloat16 changes it
#: by less.
MAX_TENSOR_CHANGE = 0.01
#: Relations of weights beside which sinks are the same, as none was trained.
_EQUAL_CAUSES = ("identical", "rounded", "quantised", "same_pairs", "pairs_reordered")


def find_sinks(checkpoint: Checkpoint) -> dict[int, str]:
    """Return the names of the learned sinks of a checkpoint by layer."""
    matches = map(_SINK_NAME.fullmatch, checkpoint.tensors)
    return {int(match[1]): match[0] for match in matches if match}


def compare_sinks(
    a: Checkpoint, b: Checkpoint, weight_findings: Sequence[Finding]
) -> tuple[list[Finding], list[NotCompared]]:
    """Compare the sinks of each layer.

    Parameters
    ----------
    a, b
        Copies.
    weight_findings
        Findings on their queries and keys: of weights that were trained, sinks were trained, too.
    """
    sinks_a, sinks_b = find_sinks(a), find_sinks(b)
    lone_layers = {
        ("sinks", None): sorted(sinks_a.keys() - sinks_b.keys()),
        (None, "sinks"): sorted(sinks_b.keys() - sinks_a.keys()),
    }
    missing = [
        Finding("sinks", "sinks_missing", *holders, None, 0.0, more={"layers": layers})
        for holders, layers in lone_layers.items()
        if layers
    ]
    if missing:
        return missing, []
    changes = {}
    for layer, name in sorted(sinks_a.items()):
        values_a, values_b = (
            checkpoint.read(sinks).values.astype(np.float64).ravel()
            for checkpoint, sinks in ((a, name), (b, sinks_b[layer]))
        )
        if values_a.shape != values_b.shape:
            return [], [NotCompared("sinks", "sinks_unlike")]
        size = float(np.linalg.norm(values_a)) or 1.0
        changes[layer] = float(np.linalg.norm(values_b - values_a)) / size
    if not changes:
        return [], []
    changed = [k for k, change in changes.items() if change > MAX_TENSOR_CHANGE]
    if not changed:
        return [Finding("sinks", "sinks_stored", value=max(changes.values()))], []
    if any(finding.cause not in _EQUAL_CAUSES for finding in weight_findings):
        return [], [NotCompared("sinks", "sinks_unlike", decides=False)]
    value = max(changes.values())
    more = {"layers": changed}
    return [Finding("sinks", "sinks_changed", None, None, value, 0.0, more=more)], []
