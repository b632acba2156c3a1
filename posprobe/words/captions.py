"""Texts beside figures: how to read one, of what it is and how it was made, why it is lacking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from posprobe.analyses import PCA, Shift, SinusoidFit, Spectrum
from posprobe.analyses.composition.bridging import Bridging
from posprobe.analyses.composition.budget import Clock
from posprobe.analyses.descriptive.winding import Winding
from posprobe.analyses.models.attention import AttentionByOffset
from posprobe.analyses.models.experiments import SubstitutionEffect
from posprobe.analyses.models.states import MeanDecomposition
from posprobe.data import read_data
from posprobe.layouts import Grid
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme
from posprobe.sources import Source
from posprobe.tables import PositionTable
from posprobe.text import escape_invisible
from posprobe.words.formats import Words, capital, listed, some
from posprobe.words.models import no_heads

if TYPE_CHECKING:
    from posprobe.analyses import Heads, Rotation


#: Components that a figure draws against position.
COMPONENTS = 6
#: Periods that a caption lists.
PERIODS = 12
#: Letters of a checksum or commit that identify it.
DIGITS = 12


def baselines_caption(draws: int) -> str:
    """Say what numbers stand beside: the sinusoid's, and null models' where any were drawn."""
    caption = "Each number, and the same number of the sinusoid of this shape"
    if draws:
        caption += f" and of null models (5 to 95 % of {some(draws, 'draw')})"
    return caption


@cache
def _texts() -> Mapping[str, Any]:
    return read_data("words/captions.toml")


def _say(figure: str, **names: Any) -> str:
    return Words(_texts()["parts"], **names).format(_texts()[figure])


def _held_out(result: Bridging) -> Mapping[str, Any]:
    first, last = result.start + result.first, result.start + result.stop - 1
    rows = f"held-out rows of positions {first} to {last}"
    codes = "held-out entries of the row code and of the column code"
    return {"held_out": codes if result.axes else rows}


def _top(result: PCA, n_components: int) -> Mapping[str, Any]:
    n_components = min(n_components, result.count)
    return {
        "drawn": n_components,
        "top": float(result.explained_variance_ratio[:n_components].sum()),
    }


def _turning(result: Shift) -> Mapping[str, Any]:
    turning = [f"{period:.3g}" for period in result.periods[result.rotations].tolist()]
    return {"turning": listed(turning, PERIODS) or "none"}


def _lines(result: Spectrum) -> Mapping[str, Any]:
    return {"above": ", ".join(f"{line.period:.3g}" for line in result.lines[:6]) or "none"}


def _pair(result: Winding) -> Mapping[str, Any]:
    pair = result.pairs[0]
    first, second = (number + 1 for number in pair.components)
    last = result.start + len(result.scores) - 1
    return {"pair": pair, "first": first, "second": second, "last": last}


def _shared(result: Clock) -> Mapping[str, Any]:
    last_position = result.first + result.paths.shape[1] - 1
    return {"last": last_position, "shared": "one_clock" if result.shared else ""}


def _limit(table: PositionTable) -> Mapping[str, Any]:
    return {"limit": float(np.percentile(np.abs(table.values), 99))}


#: From a result what its text names besides it.
_NAMES: Mapping[str, Callable[[Any], Mapping[str, Any]]] = {
    "bridging": _held_out,
    "clock": _shared,
    "components": lambda result: _top(result, COMPONENTS),
    "shift": _turning,
    "spectrum": _lines,
    "table": _limit,
    "trajectory": lambda result: _top(result, 2),
    "winding": _pair,
}
#: How rows are drawn, by whether they are centred; None draws both ways.
_TREATED = {
    True: "after subtracting the mean row",
    False: "as stored",
    None: "as stored and after subtracting the mean row",
}


def reading(kind: str, draws: str, results: Any, *, centred: bool | None = None) -> str:
    """Say how to read a figure in a paper; where nothing is written of it, what it ``draws``.

    Parameters
    ----------
    kind, draws
        Name of the figure, and what it draws in a few words.
    results
        The result, or results by label where a figure shows several.
    centred
        Whether rows are drawn after subtracting their mean; where None, as figures choose: a single
        table both ways, of several the matrices as stored and the profiles centred.
    """
    if kind not in _texts():
        return f"{capital(draws)}."
    results_by_name = results if isinstance(results, Mapping) else {"": results}
    names = _NAMES.get(kind, lambda _: {})
    text = _texts()["each"].get(kind, "")
    parts = [
        f"{label} {Words({}, r=result, **names(result)).format(text)}"
        for label, result in results_by_name.items()
    ]
    first_result = next(iter(results_by_name.values()))
    is_single = len(results_by_name) == 1 and not (
        kind == "profile" and isinstance(first_result.layout, Grid)
    )
    if centred is None and not is_single:
        centred = kind == "profile"
    placeholders = {"each": "; ".join(parts), "treated": _TREATED[centred]}
    return _say(kind, r=first_result, **names(first_result), **placeholders)


# Why a figure is lacking.


def _no_path(result: PCA) -> str:
    is_short = result.count < 2
    return result.undefined or ("a path needs two components, and there is one" if is_short else "")


def _no_wave(result: SinusoidFit) -> str:
    return "" if result.sinusoids is not None else "no wave was fitted"


def _no_pair(result: Winding) -> str:
    return result.undefined or ("" if result.pairs else "no pair of components goes round")


def _none_receives(result: AttentionByOffset) -> str:
    from posprobe.figures.heads import list_receivers

    return "" if list_receivers(result) else "there is no first position and no special token"


def _still(result: MeanDecomposition) -> str:
    moves = any(layer.stable_rank is not None for layer in result.layers.values())
    return "" if moves else "positions add nothing at any layer"


def _no_plane(result: MeanDecomposition) -> str:
    width = next(iter(result.layers.values())).pos.shape[1]
    is_too_small = result.layout.size < 3 or width < 2
    return _still(result) or (
        "a path needs three positions and two dimensions" if is_too_small else ""
    )


def _no_positions(effect: SubstitutionEffect) -> str:
    return "" if effect.by_position is not None else "the outputs have no positions"


#: From a result, why a figure cannot be drawn; empty where it can. Of others, why all of the result
#: is undefined, if it is.
LACKS: Mapping[str, Callable[[Any], str]] = {
    "bridging": lambda result: "" if result.axes else result.undefined,
    "rotary_curves": no_heads,
    "rotary_usage": no_heads,
    "cosines": _still,
    "first": _none_receives,
    "paths": _no_plane,
    # A figure of a running model has this name, too.
    "shift": lambda result: result.undefined if isinstance(result, Shift) else "",
    "sinusoid": _no_wave,
    "substitution_positions": _no_positions,
    "trajectory": _no_path,
    "winding": _no_pair,
}


# Of what a figure is, and how it was made.


def caption(*sentences: str) -> str:
    """Join sentences into one paragraph, ended by what made the figure.

    A byte of a file's name that is not text is written as an escape.
    """
    credit = f"Made with posprobe {version('posprobe')}."
    text = escape_invisible(" ".join(" ".join([*filter(None, sentences), credit]).split()))
    return text.encode(errors="backslashreplace").decode() + "\n"


def provenance(names: Sequence[str], records: Sequence[PositionTable | Scheme]) -> str:
    """Say of each record what it is, which rows were kept, and where it was read."""
    sentences = []
    for name, record in zip(names, records, strict=True):
        whence = _whence(record.source)
        sentences.append(f"{name}: {_what(record)}{f'; {whence}' if whence != name else ''}.")
    return " ".join(sentences)


def _what(record: PositionTable | Scheme) -> str:
    match record:
        case PositionTable():
            return _table(record)
        case Rotary():
            text = f"rotary embedding, head width {record.head_dim}, base {record.base:g}"
            return text + ("" if record.rule == "default" else f", rule {record.rule}")
        case LinearBias():
            return f"linear biases (ALiBi), {some(record.heads, 'head')}"
        case RelativeBias():
            return f"relative {record.quantity}, {record.layout}, {some(record.heads, 'head')}"


def _table(record: PositionTable) -> str:
    begin, end = record.rows
    size = f"n = {len(record)}"
    if isinstance(record.layout, Grid):
        size += f" patches, {record.layout.height} × {record.layout.width}"
    else:
        size += f", positions {begin} to {end - 1}"
    text = f"{record.kind} table, {size}, d = {record.dim}"
    rows = [row.row for row in record.dropped]
    if rows:
        rows_text = f"row {rows[0]}" if len(rows) == 1 else f"rows {rows[0]} to {rows[-1]}"
        text += f", {rows_text} as stored left out"
    if record.prefix_rows:
        text += ", without " + " and ".join(row.token for row in record.prefix_rows)
    return text


def _whence(source: Source) -> str:
    text = source.reference
    if source.tensor:
        stored = f" ({source.dtype})" if source.dtype else ""
        text = f"{source.tensor}{stored} of {text}"
    if source.revision:
        text += f", revision {source.revision[:DIGITS]}"
    elif source.sha256:
        text += f", SHA-256 {source.sha256[:DIGITS]}"
    return text


def heads(heads_by_name: Mapping[str, Heads]) -> str:
    """Say how to read curves by distance."""
    return _say(next(iter(heads_by_name.values())).quantity)


def rotation(rotations_by_name: Mapping[str, Rotation]) -> str:
    """Say how to read ladders of wavelengths."""
    lengths = "; ".join(
        f"{name}: {int((result.wavelength > result.target).sum())} of {len(result.wavelength)} "
        f"pairs never complete a turn in {result.target} positions"
        for name, result in rotations_by_name.items()
        if result.target
    )
    return _say("rotation") + (f" {lengths}." if lengths else "")


def slopes(record: LinearBias) -> str:
    """Say how to read linear biases."""
    return _say("slopes", most=record.slopes.max(), least=record.slopes.min())
