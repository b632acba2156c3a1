"""Captions of figures: how to read them, their provenance, and why one is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from posprobe.analyses import PCA, Shift, SinusoidFit, Spectrum
from posprobe.analyses.composition.bridging import Bridging
from posprobe.analyses.composition.rotation_clock import Clock
from posprobe.analyses.descriptive.winding import Winding
from posprobe.analyses.facts import Number
from posprobe.analyses.models.attention import AttentionByOffset
from posprobe.analyses.models.attention_budget import AttentionBudget
from posprobe.analyses.models.experiments import SubstitutionEffect
from posprobe.analyses.models.places import N_PLACE_PERMUTATIONS, Places
from posprobe.analyses.models.rotary_use import RotaryUse
from posprobe.analyses.models.states import MeanDecomposition
from posprobe.data import read_data
from posprobe.figures.common import rows_per_cell
from posprobe.figures.fits import MIN_DRAWN_R2
from posprobe.figures.grid import tile_block, tile_stride
from posprobe.figures.relative import choose_drawing
from posprobe.layouts import Grid
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme
from posprobe.sources import Source
from posprobe.tables import PositionTable
from posprobe.text import escape_invisible
from posprobe.words import PICTURE_TEXTS
from posprobe.words.formats import TemplateFormatter, capitalise, format_count, join_words
from posprobe.words.models import (
    CONTEXT_SOURCES,
    no_heads_reason,
    rotary_contexts_phrase,
)

if TYPE_CHECKING:
    from posprobe.analyses import Heads, Norms, Patches, Rotation, Similarity


#: Values of the placeholders in a caption, by name.
Names: TypeAlias = Mapping[str, Any]

#: Largest number of components that a figure draws against position.
MAX_CAPTION_COMPONENTS = 6
#: Largest number of periods that a caption lists.
MAX_CAPTION_PERIODS = 12
#: Leading digits that identify a checksum or commit.
N_CHECKSUM_DIGITS = 12


def baselines_caption(draws: int) -> str:
    """Return the caption of numbers with their baselines: sinusoid, and null models if drawn."""
    caption = "Each number, and the same number of the sinusoid of this shape"
    if draws:
        caption += f" and of null models (5 to 95 % of {format_count(draws, 'draw')})"
    return caption


@cache
def _caption_texts() -> Mapping[str, Any]:
    return read_data("words/captions.toml")


def run_caption(drawing: str, results: Mapping[str, Any]) -> str:
    """Return how to read a drawing of the results of runs, by their names.

    Parameters
    ----------
    drawing
        Name of the drawing.
    results
        Result of each run; several where one drawing shows what decides where their heads look.
    """
    if len(results) > 1:
        return PICTURE_TEXTS["kernels"]["budgets"]
    (result,) = results.values()
    match result:
        case AttentionBudget():
            return _fill_caption("attention_budget", **_attention_names(result))
        case Places():
            return _fill_caption("places", r=result, **_place_names(result))
    return PICTURE_TEXTS["model"][drawing]


def describe_contexts(
    result: AttentionBudget | Places | RotaryUse, contexts_kind: str = ""
) -> str:
    """Return the contexts of a run in words; those of a budget with their kind, if given."""
    if isinstance(result, RotaryUse):
        return rotary_contexts_phrase(result)
    if isinstance(result, Places):
        full_length, source = result.full_length, CONTEXT_SOURCES[result.source]
        noun, unit = ("picture", "patches") if result.grid else ("document", "tokens")
        counted = format_count(full_length.documents, noun)
        return f"{f'{counted} {source}'.rstrip()}, {full_length.tokens:,} {unit} each"
    unit = "patches" if isinstance(result.layout, Grid) else "tokens"
    counted = format_count(result.contexts, "context")
    kind = f" ({contexts_kind})" if contexts_kind else ""
    return f"{counted} of {result.tokens:,} {unit}{kind}"


def _attention_names(result: AttentionBudget) -> Names:
    on_grid = isinstance(result.layout, Grid)
    return {"curves": "attention_maps" if on_grid else "attention_curves"}


def _place_names(result: Places) -> Names:
    full_length = result.full_length
    is_text_curve = result.grid is None and result.output != "next_token"
    text_subject = "embedding_places" if is_text_curve else "next_token_places"
    return {
        "subject": "cell_places" if result.grid else text_subject,
        "output": "class" if result.output == "classes" else result.output,
        "measure": full_length.measure,
        "shorter": "shorter_texts" if len(result.lengths) > 1 else "",
        "chance": "permuted_places" if is_text_curve else "",
        "reversed": "reversed_positions"
        if is_text_curve and full_length.reversed is not None
        else "",
        "reach": "reach_of_places" if full_length.reach is not None else "",
        "draws": N_PLACE_PERMUTATIONS,
    }


def _fill_caption(figure: str, **names: Any) -> str:
    return TemplateFormatter(_caption_texts()["parts"], **names).format(
        _caption_texts()[figure]
    )


def _bridging_names(result: Bridging) -> Names:
    first, last = result.start + result.first, result.start + result.stop - 1
    rows = f"held-out rows of positions {first} to {last}"
    codes = "held-out entries of the row code and of the column code"
    drawn = [bridging for bridging in (result, *result.axes.values()) if bridging.r2]
    is_cut = any(
        (r2 < MIN_DRAWN_R2).any() for bridging in drawn for r2 in bridging.r2.values()
    )
    return {
        "held_out": codes if result.axes else rows,
        "cut": "cut_values" if is_cut else "",
        "lowest": MIN_DRAWN_R2,
    }


def _clock_names(result: Clock) -> Names:
    last_position = result.first + result.paths.shape[1] - 1
    return {"last": last_position, "shared": "one_clock" if result.shared else ""}


def _component_names(result: PCA) -> Names:
    on_grid = isinstance(result.layout, Grid)
    return {
        **_leading_components(result, MAX_CAPTION_COMPONENTS),
        "axis": "grid_maps" if on_grid else "over_positions",
        "walk": "" if on_grid else "walk_components",
    }


def _leading_components(result: PCA, n_components: int) -> Names:
    n_components = min(n_components, result.count)
    return {
        "drawn": n_components,
        "top": float(result.explained_variance_ratio[:n_components].sum()),
    }


def _trajectory_names(result: PCA) -> Names:
    on_grid = isinstance(result.layout, Grid)
    return {
        **_leading_components(result, 2),
        "colours": "by_row_of_patches" if on_grid else "by_time",
    }


def _mosaic_names(result: Patches) -> Names:
    block, step = tile_block(result.layout), tile_stride(result.layout)
    return {
        "block": block,
        "step": step,
        "tiles": "some_patches" if step > 1 else "each_patch",
        "averaged": "averaged_tiles" if block > 1 else "",
    }


def _norm_names(result: Norms) -> Names:
    has_dots = bool(result.outlier_rows) and not isinstance(result.layout, Grid)
    return {
        "n_outliers": format_count(len(result.outlier_rows), "position"),
        "outliers": "outlier_norms" if has_dots else "",
    }


def _shift_names(result: Shift) -> Names:
    periods = [f"{period:.3g}" for period in result.periods[result.rotations].tolist()]
    return {"turning": join_words(periods, MAX_CAPTION_PERIODS) or "none"}


def _table_names(table: PositionTable) -> Names:
    strides = dict(
        zip(("row", "dimension"), map(rows_per_cell, table.values.shape), strict=True)
    )
    return {
        "limit": float(np.percentile(np.abs(table.values), 99)),
        "strides": "table_strides" if max(strides.values()) > 1 else "",
        "strides_text": join_words(
            [f"one {noun} in {step}" for noun, step in strides.items() if step > 1]
        ),
    }


def _winding_names(result: Winding) -> Names:
    pair = result.pairs[0]
    first, second = (number + 1 for number in pair.components)
    last = result.start + len(result.scores) - 1
    return {"pair": pair, "first": first, "second": second, "last": last}


def _profile_names(results: Mapping[str, Similarity]) -> Names:
    result = next(iter(results.values()))
    on_grid = isinstance(result.layout, Grid)
    has_band = len(results) == 1 and not on_grid and result.centered.pooled == 1
    return {
        "apart": "by_displacement" if on_grid else "by_offset",
        "spread": "spread_of_pairs" if has_band else "",
    }


def _similarity_names(results: Mapping[str, Similarity]) -> Names:
    on_grid = isinstance(next(iter(results.values())).layout, Grid)
    sides = {
        name: result.raw.pooled * rows_per_cell(len(result.raw.matrix))
        for name, result in results.items()
    }
    cells = [
        f"{side} × {side} pairs" + (f" ({name})" if len(results) > 1 else "")
        for name, side in sides.items()
        if side > 1
    ]
    return {
        "apart": "by_columns" if on_grid else "by_offset",
        "averaged": "averaged_cells" if cells else "",
        "cells": join_words(cells),
    }


def _spectrum_names(results: Mapping[str, Spectrum]) -> Names:
    result = next(iter(results.values()))
    is_single, on_grid = len(results) == 1, isinstance(result.layout, Grid)
    power = "power_of_grid" if on_grid else "power_of_line"
    return {
        "power": power if is_single else "power_shares",
        "taper": "grid_taper" if on_grid else "line_taper",
        "chance": "red_noise" if is_single and not on_grid else "",
        "above": ", ".join(f"{line.period:.3g}" for line in result.lines[:6]) or "none",
    }


def _variance_names(results: Mapping[str, PCA]) -> Names:
    return {"curves": "share_and_sum" if len(results) == 1 else "running_sum"}


#: Functions that return the values of the placeholders in a caption from its result, by figure.
_NAMES_OF_ONE: Mapping[str, Callable[[Any], Names]] = {
    "bridging": _bridging_names,
    "clock": _clock_names,
    "components": _component_names,
    "mosaic": _mosaic_names,
    "norms": _norm_names,
    "shift": _shift_names,
    "table": _table_names,
    "trajectory": _trajectory_names,
    "winding": _winding_names,
}
#: The same for figures of several results, from the results by label.
_NAMES_OF_SEVERAL: Mapping[str, Callable[[Mapping[str, Any]], Names]] = {
    "comparison": _similarity_names,
    "profile": _profile_names,
    "similarity": _similarity_names,
    "spectrum": _spectrum_names,
    "variance": _variance_names,
}
#: Phrases on the drawn rows, by whether they are centred; None for both.
_CENTRING_TEXTS = {
    True: "after subtracting the mean row",
    False: "as stored",
    None: "as stored and after subtracting the mean row",
}


def reading_caption(
    figure: str, description: str, results: Any, *, centred: bool | None = None
) -> str:
    """Return a caption on how to read a figure; its ``description`` where there is no text.

    Parameters
    ----------
    figure, description
        Name of the figure, and its content in a few words.
    results
        Result of the analysis, or results by label where a figure shows several.
    centred
        Whether to draw rows after subtracting their mean; None for the choice of the figure: a
        single table both ways, for several tables the matrices as stored and the profiles centred.
    """
    if figure not in _caption_texts():
        return f"{capitalise(description)}."
    results_by_name = results if isinstance(results, Mapping) else {"": results}
    text = _caption_texts()["each"].get(figure, "")
    captions = [
        f"{label} {TemplateFormatter({}, r=result).format(text)}"
        for label, result in results_by_name.items()
    ]
    first_result = next(iter(results_by_name.values()))
    names = (
        _NAMES_OF_SEVERAL[figure](results_by_name)
        if figure in _NAMES_OF_SEVERAL
        else _NAMES_OF_ONE.get(figure, lambda _: {})(first_result)
    )
    is_grid_profile = figure == "profile" and isinstance(first_result.layout, Grid)
    is_single = len(results_by_name) == 1 and not is_grid_profile
    if centred is None and not is_single:
        centred = figure == "profile"
    placeholders = {"each": "; ".join(captions), "treated": _CENTRING_TEXTS[centred]}
    return _fill_caption(figure, r=first_result, **names, **placeholders)


# Reasons why a figure is missing.


def _path_reason(result: PCA) -> str:
    is_short = result.count < 2
    return result.undefined or (
        "a path needs two components, and there is one" if is_short else ""
    )


def _wave_reason(result: SinusoidFit) -> str:
    return "" if result.sinusoids is not None else "no wave was fitted"


def _pair_reason(result: Winding) -> str:
    return result.undefined or (
        "" if result.pairs else "no pair of components goes round"
    )


def _receiver_reason(result: AttentionByOffset) -> str:
    from posprobe.figures.heads import list_receivers

    return (
        ""
        if list_receivers(result)
        else "there is no first position and no special token"
    )


def _movement_reason(result: MeanDecomposition) -> str:
    moves = any(layer.stable_rank is not None for layer in result.layers.values())
    return "" if moves else "positions add nothing at any layer"


def _plane_reason(result: MeanDecomposition) -> str:
    width = next(iter(result.layers.values())).pos.shape[1]
    if reason := _movement_reason(result):
        return reason
    is_too_small = result.layout.size < 3 or width < 2
    return "a path needs three positions and two dimensions" if is_too_small else ""


def _positions_reason(effect: SubstitutionEffect) -> str:
    return "" if effect.by_position is not None else "the outputs have no positions"


#: Functions from a result to the reason why a figure cannot be drawn, empty where it can, by
#: figure. For other figures, the reason is why the whole result is undefined.
MISSING_FIGURE_REASONS: Mapping[str, Callable[[Any], str]] = {
    "bridging": lambda result: "" if result.axes else result.undefined,
    "rotary_curves": no_heads_reason,
    "rotary_usage": no_heads_reason,
    "cosines": _movement_reason,
    "first": _receiver_reason,
    "paths": _plane_reason,
    # A figure of a running model has the same name.
    "shift": lambda result: result.undefined if isinstance(result, Shift) else "",
    "sinusoid": _wave_reason,
    "substitution_positions": _positions_reason,
    "trajectory": _path_reason,
    "winding": _pair_reason,
}


# Provenance of a figure.


def describe_numbers(numbers: Iterable[Number]) -> str:
    """Return the labels of numbers, each with what it means in brackets."""
    labels = [
        number.label + (f" ({number.meaning})" if number.meaning else "")
        for number in numbers
    ]
    return join_words(labels, len(labels))


def join_caption(*sentences: str) -> str:
    """Join sentences into one paragraph.

    Bytes of a file name that are not text are written as escapes.
    """
    text = escape_invisible(" ".join(" ".join(filter(None, sentences)).split()))
    return text.encode(errors="backslashreplace").decode() + "\n"


def credit() -> str:
    """Return the sentence that ends the sources of a figure or table."""
    return f"Made with posprobe {version('posprobe')}."


def describe_records(
    names: Sequence[str], records: Sequence[PositionTable | Scheme]
) -> str:
    """Return a sentence on each record: what it is, and its rows."""
    return " ".join(
        f"{name}: {_describe_record(record)}."
        for name, record in zip(names, records, strict=True)
    )


def describe_sources(
    names: Sequence[str], records: Sequence[PositionTable | Scheme]
) -> str:
    """Return a sentence on where each record was read; none of formulas."""
    sources = (
        (name, _describe_source(record.source))
        for name, record in zip(names, records, strict=True)
    )
    return " ".join(f"{name}: {source}." for name, source in sources if source != name)


def _describe_record(record: PositionTable | Scheme) -> str:
    match record:
        case PositionTable():
            return _describe_table(record)
        case Rotary():
            text = f"rotary embedding, head width {record.head_dim}, base {record.base:g}"
            return text + ("" if record.rule == "default" else f", rule {record.rule}")
        case LinearBias():
            return f"linear biases (ALiBi), {format_count(record.heads, 'head')}"
        case RelativeBias():
            heads = format_count(record.heads, "head")
            return f"relative {record.quantity}, {record.layout}, {heads}"


def _describe_table(record: PositionTable) -> str:
    start, stop = record.rows
    size = f"n = {len(record)}"
    if isinstance(record.layout, Grid):
        size += f" patches, {record.layout.height} × {record.layout.width}"
    else:
        size += f", positions {start} to {stop - 1}"
    text = f"{record.kind} table, {size}, d = {record.dim}"
    rows = [row.row for row in record.dropped]
    if rows:
        rows_text = (
            f"row {rows[0]}" if len(rows) == 1 else f"rows {rows[0]} to {rows[-1]}"
        )
        text += f", {rows_text} as stored left out"
    if record.prefix_rows:
        text += ", without " + " and ".join(row.token for row in record.prefix_rows)
    return text


def _describe_source(source: Source) -> str:
    text = source.reference
    if source.tensor:
        stored = f" ({source.dtype})" if source.dtype else ""
        text = f"{source.tensor}{stored} of {text}"
    if source.revision:
        text += f", revision {source.revision[:N_CHECKSUM_DIGITS]}"
    elif source.sha256:
        text += f", SHA-256 {source.sha256[:N_CHECKSUM_DIGITS]}"
    return text


def heads_caption(heads_by_name: Mapping[str, Heads]) -> str:
    """Return the caption of curves by distance."""
    is_centred = choose_drawing(heads_by_name) != "curves"
    return _fill_caption(
        next(iter(heads_by_name.values())).quantity,
        centring="centred_biases" if is_centred else "",
    )


def rotation_caption(rotations_by_name: Mapping[str, Rotation]) -> str:
    """Return the caption of ladders of wavelengths."""
    lengths = "; ".join(
        f"{name}: {int((result.wavelength > result.target).sum())} of "
        f"{len(result.wavelength)} pairs never complete a turn in "
        f"{result.target} positions"
        for name, result in rotations_by_name.items()
        if result.target
    )
    return _fill_caption("rotation") + (f" {lengths}." if lengths else "")


def slopes_caption(record: LinearBias) -> str:
    """Return the caption of linear biases."""
    return _fill_caption("slopes", most=record.slopes.max(), least=record.slopes.min())
