"""A saved run of a rotary model as an encoding: what its heads' logits are by distance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.models.rotary_use import Origin, Place
from posprobe.errors import InvalidCheckpoint, UnknownReference, UsageError
from posprobe.layouts import Sequence
from posprobe.report.stored import FORWARD, read_bundle, stored_arrays
from posprobe.schemes import RelativeBias
from posprobe.sources import Source

#: What helps where a run cannot be read.
_AGAIN = "Run the model again: `posprobe forward REF --only rotary_use`."


@dataclass(frozen=True, eq=False, repr=False)
class MeasuredHeads(RelativeBias):
    """Mean logits of the heads of a rotary model by offset, measured in a run.

    Parameters
    ----------
    places
        Layer and number of each head.
    run
        ``contexts``, ``length`` and ``source`` of the run, and ``share``, the median distance
        share, None where no head has one.
    """

    scheme: ClassVar[Any] = "rotary"

    places: tuple[Place, ...] = ()
    run: dict[str, Any] | None = None


def run_document(reference: str) -> dict[str, Any] | None:
    """Return the document of a run that a folder holds; None of anything else."""
    try:
        document = read_bundle(Path(reference))
    except (UnknownReference, InvalidCheckpoint, OSError, ValueError):
        return None
    return document if document["schema"] == FORWARD else None


def measured_heads(reference: str) -> MeasuredHeads | None:
    """Read the curves of a run's heads from its bundle; None where a folder holds no run.

    Distances are those that all layers were measured at: fewer where one sees a window.

    Raises
    ------
    UsageError
        If the run did not measure rotary use.
    InvalidCheckpoint
        If the bundle is damaged.
    """
    document = run_document(reference)
    if document is None:
        return None
    use, folder = document.get("rotary_use"), Path(reference)
    name = "rotary_measured"
    try:
        if not use or not use["heads"]:
            raise UsageError(f"{reference}: this run did not measure what heads do. {_AGAIN}")
        curves = stored_arrays(folder / "arrays.npz", _AGAIN, (name,))[name]
        places = tuple((_whole(head["layer"]), _whole(head["head"])) for head in use["heads"])
        share = use["summary"]["share"]
        if use["source"] not in get_args(Origin) or not (share is None or 0 <= share <= 1):
            raise ValueError(f"source {use['source']!r:.40}, median share {share!r:.40}")
        return MeasuredHeads(
            values=_by_offset(curves, use["layers"], places),
            layout=Sequence(min(layer["window"] for layer in use["layers"] if layer["window"])),
            name=str(document["name"]),
            source=Source(reference, str(folder.resolve())),
            causal=not any(layer["both_sides"] for layer in use["layers"]),
            places=places,
            run={key: _whole(use[key]) for key in ("contexts", "length")}
            | {"source": use["source"], "share": share},
        )
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidCheckpoint(
            f"{folder}: it lacks what the run measured ({type(error).__name__}: {error}). {_AGAIN}"
        ) from error


def _whole(value: Any) -> int:
    """Return a number that counts, which somebody may have edited."""
    if type(value) is not int or not 0 <= value < 2**31:
        raise ValueError(f"{value!r:.40} is no such number")
    return value


def _by_offset(
    curves: NDArray[np.float64], layers: list[dict[str, Any]], places: tuple[Place, ...]
) -> NDArray[np.float64]:
    """Take curves by distance, ``[layers, heads, n]``, as those of heads by offset of the key.

    Where no layer sees later keys they are as earlier ones.
    """
    rows = {_whole(layer["layer"]): row for row, layer in enumerate(layers)}
    if len(rows) < len(layers) or len(set(places)) < len(places):
        raise ValueError("a layer or head stands there twice")
    window = min(_whole(layer["window"]) for layer in layers if layer["window"])
    found = []
    for layer, head in places:
        row = rows[layer]
        both, own = layers[row]["both_sides"], layers[row]["window"]
        if curves.ndim != 3 or not 0 < own + (own - 1) * both <= curves.shape[2]:
            raise ValueError(f"layer {layer} has no curves over {own} distances")
        curve = curves[row, head, own - 1 if both else 0 :][:window]
        before = curves[row, head, :own][::-1][:window] if both else curve
        found.append(np.concatenate([curve[:0:-1], before]))
    return np.stack(found)
