"""All measurements inside a running model, in the order of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from posprobe import analyses, families, forward
from posprobe.analyses import Patches, Similarity
from posprobe.analyses.models.attention import AttentionByOffset
from posprobe.analyses.models.attention_budget import AttentionBudget
from posprobe.analyses.models.experiments import (
    BlankImages,
    PermutationEffect,
    PhaseShift,
    SubstitutionEffect,
)
from posprobe.analyses.models.places import Places
from posprobe.analyses.models.rotary_use import RotaryUse
from posprobe.analyses.models.states import MeanDecomposition
from posprobe.analyses.models.subspaces import SubspaceOverlap, subspace_overlap
from posprobe.arrays import Array
from posprobe.errors import PosprobeError, UsageError
from posprobe.forward.contexts import has_table
from posprobe.forward.pooling import frame_text, read_recipe
from posprobe.forward.running import find_body
from posprobe.layouts import Grid, Layout
from posprobe.measurements import Drawing
from posprobe.measurements.baselines import (
    build_null_table,
    measure_formula,
    measure_numbers,
)
from posprobe.measurements.model.contexts import (
    MODEL_COLUMN,
    RANDOM_WALK_COLUMN,
    SINUSOID_COLUMN,
    Contexts as Contexts,
    LabelledRow,
    ModelInputs as ModelInputs,
    ModelMeasurement as ModelMeasurement,
    format_head_mean,
    list_by_layer,
    needs_images,
    needs_text,
)
from posprobe.nulls import null_band
from posprobe.tables import PositionTable
from posprobe.text import (
    Block,
    format_cell,
    format_percent,
    format_percent_with_error,
    format_value,
    format_with_error,
    lookup,
)
from posprobe.words import models
from posprobe.words.models import NEEDS_ADDED

#: Labels of the numbers of a layer's table that are compared with the sinusoid and random walks.
LAYER_NUMBER_LABELS = {
    "similarity.centered.neighbour_mean": "neighbour cosine",
    "similarity.centered.translation_invariance": "invariance",
    "pca.stable_rank": "stable rank",
    "sinusoid.cka": "CKA with the sinusoid",
}


#: Measurements that these numbers belong to.
LAYER_MEASUREMENTS = ("similarity", "pca", "sinusoid")


def _decompose_states(inputs: ModelInputs) -> MeanDecomposition:
    if "attention_budget" in inputs.measurements:
        decomposition, _ = inputs.states_and_budget
    else:
        decomposition = forward.decompose(
            inputs.model,
            inputs.batches("hidden states"),
            positions=inputs.positions,
            layers=inputs.layers,
            name=inputs.reference,
        )
    return add_layer_numbers(decomposition, inputs.nulls, inputs.seed)


def add_layer_numbers(
    decomposition: MeanDecomposition, n_walks: int, seed: int
) -> MeanDecomposition:
    """Measure the table of every layer, and the sinusoid and random walks of the same shape.

    Parameters
    ----------
    decomposition
        Mean decomposition, whose layers are measured.
    n_walks
        Number of random walks, whose steps are equally long.
    seed
        Seed of the walks.
    """
    tables = [decomposition.table(number) for number in decomposition.layers]
    layout, dim = tables[0].layout, tables[0].dim
    numbers = [measure_numbers(table, LAYER_MEASUREMENTS) for table in tables]
    walk_tables = (
        build_null_table(_draw_random_walk(layout, dim, seed, draw), layout)
        for draw in range(n_walks)
    )
    walk_numbers = [measure_numbers(walk, LAYER_MEASUREMENTS) for walk in walk_tables]
    return replace(
        decomposition,
        layers={
            number: replace(layer, analyses=layer_numbers)
            for (number, layer), layer_numbers in zip(
                decomposition.layers.items(), numbers, strict=True
            )
        },
        baselines={
            "sinusoid": dict(measure_formula(layout, dim)),
            "walk": {
                key: null_band([walk.get(key) for walk in walk_numbers])
                for key in numbers[0]
            },
            "draws": n_walks,
            "seed": seed,
        },
    )


def _state_figure_inputs(result: MeanDecomposition) -> dict[str, Any]:
    """Return the cosines and components of some layers, and the baselines, for the figures."""
    from posprobe.figures.common import pick_evenly
    from posprobe.figures.states import MAX_STATE_PANELS

    varying_layers = [
        n for n, layer in result.layers.items() if layer.stable_rank is not None
    ]
    tables = {n: result.table(n) for n in pick_evenly(varying_layers, MAX_STATE_PANELS)}
    return {
        **result.baselines,
        "cosines": {n: cosines_of(table) for n, table in tables.items()},
        "components": {n: analyses.pca(table) for n, table in tables.items()},
    }


def cosines_of(table: PositionTable) -> Patches | Similarity:
    """Return the cosines for one panel: a mosaic of a small grid, else the matrix."""
    from posprobe.figures.states import MAX_MOSAIC_SIDE

    layout = table.layout
    if isinstance(layout, Grid) and max(layout.height, layout.width) <= MAX_MOSAIC_SIDE:
        return analyses.grid(table)
    return analyses.similarity(table)


def _draw_random_walk(layout: Layout, dim: int, seed: int, draw: int) -> Array:
    """Draw a random walk from the origin, in reading order, whose steps are equally long."""
    steps = np.random.default_rng([seed, draw]).standard_normal((layout.size, dim))
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    steps[0] = 0
    return np.cumsum(steps, axis=0)


def _state_rows(document: Block) -> Iterator[LabelledRow]:
    """Yield what positions add to every layer, with the sinusoid and random walks."""
    block, baselines = document["states"], document["beside"] or {}
    yield list_by_layer(
        block, "variance explained by position", "shares.position", _format_share
    )
    noise_shares = {k["layer"]: _format_share(_noise_share(k)) for k in block["layers"]}
    yield "of which sampling noise", noise_shares
    yield list_by_layer(
        block, "variance explained by context", "shares.context", _format_share
    )
    yield list_by_layer(block, "relative norm of what positions add", "relative_norm")
    yield list_by_layer(block, "directions above sampling noise", "rank")
    for key, label in LAYER_NUMBER_LABELS.items():
        texts: dict[int | str, str] = {
            layer["layer"]: format_cell(layer["analyses"].get(key))
            for layer in block["layers"]
        }
        if baselines.get("sinusoid"):
            texts[SINUSOID_COLUMN] = format_cell(baselines["sinusoid"].get(key))
        if walk_band := (baselines.get("walk") or {}).get(key):
            low, high = (format_value(walk_band[end], ".2g") for end in ("p5", "p95"))
            texts[RANDOM_WALK_COLUMN] = f"{low} to {high}"
        yield f"{label} of what positions add", texts


def _noise_share(layer: Block) -> float | None:
    """Return the share of the variance that looks positional but is sampling noise."""
    noise, position_share = layer["noise_share"], lookup(layer, "shares.position")
    return None if noise is None or position_share is None else noise * position_share


def _format_share(share: float | None) -> str:
    return "–" if share is None else format_percent(share)


#: Labels of the numbers of a head that are listed by their mean.
HEAD_MEAN_LABELS = {
    "first": "attention to the first position, mean over heads",
    "special": "attention to what is no position, mean over heads",
    "locality": "locality of attention, mean over heads",
    "symmetry": "symmetry of attention, mean over heads",
}


def _format_most_common(names: Sequence[str]) -> str:
    name, count = Counter(names).most_common(1)[0]
    return f"{name} ({count} of {len(names)})"


def _attention_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["attention"]
    yield list_by_layer(
        block, "offset that most heads prefer, measured", "peak_name", _format_most_common
    )
    for key, label in HEAD_MEAN_LABELS.items():
        # Contexts without such tokens, or not on a line, lack the number in every head.
        if any(value for layer in block["layers"] for value in layer[key]):
            yield list_by_layer(block, label, key, format_head_mean)
    yield list_by_layer(block, "attention explained by offset", "translation_invariance")


def _measure_budget(inputs: ModelInputs) -> AttentionBudget:
    if "states" not in inputs.measurements:
        return forward.attention_budget(
            inputs.model, inputs.batches("attention budget"), name=inputs.reference
        )
    _, budget = inputs.states_and_budget
    if isinstance(budget, PosprobeError):
        raise budget
    return budget


#: Labels of the shares of heads that are listed by their mean.
BUDGET_ROW_LABELS = {
    "distance": "logits: share of distance, mean over heads",
    "key": "logits: share of the place of the key",
    "other": "logits: share of other position",
    "content": "logits: share of content",
    "moved": "attention that moves without position, mean over heads",
}


def _budget_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["attention_budget"]
    heads_by_layer: dict[int, list[Block]] = {
        layer["layer"]: [] for layer in block["layers"]
    }
    for head in block["heads"]:
        heads_by_layer[head["layer"]].append(head)
    for key, label in BUDGET_ROW_LABELS.items():
        yield (
            label,
            {
                layer: format_head_mean(head[key] for head in heads)
                for layer, heads in heads_by_layer.items()
            },
        )
    yield (
        "preferred distances (heads)",
        {layer: models.list_preferred(heads) for layer, heads in heads_by_layer.items()},
    )


#: Labels of the numbers of heads that are listed by their median.
ROTARY_MEDIAN_LABELS = {
    "share": "distance share, median over heads",
    "spread": "spread (nats), median over heads",
    "moved": "moved attention, median over heads",
}


def _needs_added_rows(inputs: ModelInputs) -> str:
    # A model that rotates queries and keys adds no rows to its input.
    adds_nothing = forward.is_rotary(inputs.model) and not has_table(inputs.model)
    return NEEDS_ADDED if adds_nothing else ""


def _needs_rotary(inputs: ModelInputs) -> str:
    # Rotations along rows and columns of images are not measured; the attempt raises that message.
    is_rotary = forward.has_image_rotation if inputs.takes_images else forward.is_rotary
    return "" if is_rotary(inputs.model) else models.NEEDS_ROTARY


def _measure_rotary_use(inputs: ModelInputs) -> RotaryUse:
    return forward.rotary_use(
        inputs.model,
        inputs.batches("rotary use"),
        source=inputs.context_source.origin,
        name=inputs.reference,
    )


def _rotary_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["rotary_use"]
    heads_by_layer: dict[int, list[Block]] = {
        layer["layer"]: [] for layer in block["layers"]
    }
    for head in block["heads"]:
        heads_by_layer[head["layer"]].append(head)
    for key, label in ROTARY_MEDIAN_LABELS.items():
        values_by_layer = {
            layer: [head[key] for head in heads if head[key] is not None]
            for layer, heads in heads_by_layer.items()
        }
        yield (
            label,
            {
                layer: format_cell(median(values) if values else None, ".2g")
                for layer, values in values_by_layer.items()
            },
        )
    yield (
        "preferred distances (heads)",
        {layer: models.list_peaks(heads) for layer, heads in heads_by_layer.items()},
    )
    yield (
        "heads: yes / no / cannot tell",
        {layer: models.count_verdicts(heads) for layer, heads in heads_by_layer.items()},
    )
    yield list_by_layer(block, "position", "reason", models.LAYER_REASONS.__getitem__)
    yield list_by_layer(
        block,
        "shift check, residual",
        "shift_check",
        lambda value: format_cell(value, ".1e"),
    )


#: Number of token embeddings to read from a local file, if it holds as many.
N_LOCAL_TOKENS = 2**15
#: Labels of the shares of token and position subspaces.
SUBSPACE_SHARE_LABELS = {
    "variance": "token variance within the position subspace",
    "top": "position subspace within the tenth that tokens use most",
    "bottom": "position subspace within the tenth that tokens use least",
}


def _measure_subspaces(inputs: ModelInputs) -> SubspaceOverlap:
    table = inputs.table
    # More tokens determine the directions that they use least better, and a disk reads them fast.
    n_tokens = (
        4 * table.dim if table.source.revision else max(N_LOCAL_TOKENS, 4 * table.dim)
    )
    tokens = families.load_tokens(
        table, seed=inputs.seed, rows=n_tokens, offline=inputs.offline
    )
    overlap = subspace_overlap(table, tokens.values)
    if len(overlap.token_share) < overlap.rank:
        raise UsageError(
            f"the token embeddings have rank {len(overlap.token_share)}, so "
            f"they cannot be compared with the {overlap.rank} position "
            "directions"
        )
    return overlap


def _subspace_rows(document: Block) -> Iterator[LabelledRow]:
    for key, label in SUBSPACE_SHARE_LABELS.items():
        share = document["subspaces"][key]
        chance_band = format_value(share["band"], " to ")
        yield (
            label,
            {MODEL_COLUMN: f"{format_cell(share['value'])} (by chance {chance_band})"},
        )


def _repeated_token_rows(document: Block) -> Iterator[LabelledRow]:
    for key in ("first", "locality", "symmetry"):
        label = f"{HEAD_MEAN_LABELS[key]}, one token repeated"
        yield list_by_layer(document["words"], label, key, format_head_mean)


#: Contexts that are permuted: the change is a large part of the states, or rounding.
MAX_PERMUTED_CONTEXTS = 4
#: Labels of the effects of a permutation.
PERMUTATION_LABELS = {
    "tokens": "change of the last states when permuted",
    "special": "the same of tokens that stay",
    "accuracy": "right answers",
    "scrambled_accuracy": "right answers when permuted",
}


def _permutation_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["permutation"]
    condition_labels = {
        "with_positions": "as it is",
        "without_positions": "table set to 0",
    }
    for key, label in PERMUTATION_LABELS.items():
        if any(block[condition][key] is not None for condition in condition_labels):
            for condition, condition_label in condition_labels.items():
                yield (
                    f"{label}, {condition_label}",
                    {MODEL_COLUMN: format_cell(block[condition][key])},
                )


def _shift_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["shift"]
    for index, shift in enumerate(block["shifts"]):
        label = f"change of the last states, first position {shift}"
        yield label, {MODEL_COLUMN: format_cell(block["change"][index])}
        if block["loss"] is not None:
            yield (
                f"loss (nats), first position {shift}",
                {MODEL_COLUMN: format_cell(block["loss"][index])},
            )


#: Labels of the numbers of an image without content at a layer.
BLANK_IMAGE_LABELS = {
    "share": "squared norm that differs between patches",
    "alignment": "cosine with the position embedding",
    "cka": "CKA with the position embedding",
}


def _blank_rows(document: Block) -> Iterator[LabelledRow]:
    for key, label in BLANK_IMAGE_LABELS.items():
        for image, image_label in (("constant", "grey"), ("noise", "noise")):
            yield list_by_layer(
                document["blank"], f"{label}, image of {image_label}", f"{image}.{key}"
            )


#: Labels of the costs of a substitute.
COST_LABELS = {
    "loss": "change of the loss (nats)",
    "divergence": "divergence (nats)",
    "answers": "top answers changed",
    "states": "change of the states",
}


def _measure_substitution(inputs: ModelInputs) -> SubstitutionEffect:
    return forward.substitution_effect(
        inputs.model,
        inputs.batches("other tables"),
        rows=inputs.positions,
        random=inputs.context_source.origin == "random",
        mask_token=inputs.mask_token,
        seed=inputs.seed,
        name=inputs.reference,
    )


def _substitution_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["substitution"]
    measure = block["measure"]
    format_cost = format_percent_with_error if measure == "answers" else format_with_error
    for substitute in block["substitutes"]:
        cost, substitute_label = substitute[measure], substitute["label"]
        kept_share = format_percent_with_error(cost["kept"], cost["kept_error"])
        yield f"kept with {substitute_label}", {MODEL_COLUMN: kept_share}
        change = format_cost(cost["value"], cost["error"])
        yield f"{COST_LABELS[measure]} with {substitute_label}", {MODEL_COLUMN: change}


def _measure_places(inputs: ModelInputs) -> Places:
    tokenizer, recipe = inputs.context_source.tokenizer, None
    if inputs.pooling is None and not inputs.takes_images:
        recipe = read_recipe(
            inputs.reference, revision=inputs.revision, offline=inputs.offline
        )
    prompt = "" if recipe is None else recipe.prompt
    return forward.places(
        inputs.model,
        inputs.batches("places"),
        pooling=inputs.pooling or recipe,
        special_tokens=None if tokenizer is None else frame_text(tokenizer, prompt),
        source=inputs.context_source.origin,
        seed=inputs.seed,
        name=inputs.reference,
    )


def _predicts(empty_model: Any) -> bool:
    """Tell whether a model predicts tokens, or the class of an image, whose change is measured."""
    is_classifier = type(empty_model).__name__.endswith("ForImageClassification")
    return is_classifier or forward.generates(empty_model)


#: Labels of the numbers of places at the full length.
PLACE_LABELS = {
    "first_over_last": "first over last quarter",
    "reach": "tokens back with 90 % of the influence",
    "caused": "share of the preference that moves with positions",
}


def _place_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["places"]
    for key, label in PLACE_LABELS.items():
        if block[key] is not None:
            yield label, {MODEL_COLUMN: format_cell(block[key])}
    unit = "patches" if block["grid"] else "tokens"
    for length in block["lengths"]:
        weights = zip(length["weights"], length["error"], strict=True)
        texts = ", ".join(f"{weight:.2f} ({error:.2f})" for weight, error in weights)
        label = f"{length['measure']} by place, {length['tokens']:,} {unit}"
        yield label, {MODEL_COLUMN: texts}


_MODEL_MEASUREMENTS: tuple[ModelMeasurement[Any], ...] = (
    ModelMeasurement[AttentionBudget](
        name="attention_budget",
        title="Attention budget",
        compute=_measure_budget,
        record=AttentionBudget,
        drawings=(Drawing("attention_budget"),),
        rows=_budget_rows,
    ),
    ModelMeasurement[MeanDecomposition](
        name="states",
        title="Through the layers",
        compute=_decompose_states,
        record=MeanDecomposition,
        drawings=(Drawing("layers"), Drawing("cosines"), Drawing("paths")),
        rows=_state_rows,
        figure_inputs=_state_figure_inputs,
    ),
    ModelMeasurement[RotaryUse](
        name="rotary_use",
        title="Rotary use",
        compute=_measure_rotary_use,
        record=RotaryUse,
        drawings=(Drawing("rotary_curves"), Drawing("rotary_usage")),
        needs=_needs_rotary,
        needs_head=forward.is_rotary,
        rows=_rotary_rows,
        is_default=False,
    ),
    ModelMeasurement[SubspaceOverlap](
        name="subspaces",
        title="Position and token directions",
        compute=_measure_subspaces,
        record=SubspaceOverlap,
        drawings=(Drawing("overlap"),),
        needs=_needs_added_rows,
        rows=_subspace_rows,
        is_from_weights=True,
        is_default=False,
    ),
    ModelMeasurement[AttentionByOffset](
        name="attention",
        title="Attention as measured",
        compute=lambda inputs: forward.attend(
            inputs.model, inputs.batches("attention"), name=inputs.reference
        ),
        record=AttentionByOffset,
        drawings=(Drawing("attention"), Drawing("first")),
        rows=_attention_rows,
        is_default=False,
    ),
    ModelMeasurement[AttentionByOffset](
        name="words",
        title="One word repeated",
        compute=lambda inputs: forward.attend(
            inputs.model,
            inputs.batches("one word repeated", repeat_token=True),
            layers=[0],
            name=inputs.reference,
        ),
        record=AttentionByOffset,
        drawings=(Drawing("words"),),
        needs=needs_text,
        rows=_repeated_token_rows,
        is_default=False,
    ),
    ModelMeasurement[PermutationEffect](
        name="permutation",
        title="Permuted tokens",
        compute=lambda inputs: forward.permutation_effect(
            inputs.model,
            inputs.batches("permutations", MAX_PERMUTED_CONTEXTS),
            seed=inputs.seed,
            name=inputs.reference,
        ),
        record=PermutationEffect,
        drawings=(Drawing("permutation"),),
        needs=_needs_added_rows,
        rows=_permutation_rows,
    ),
    ModelMeasurement[PhaseShift](
        name="shift",
        title="Shifted positions",
        compute=lambda inputs: forward.phase_shift(
            # The loss of random tokens says nothing, so the head is left out.
            (
                find_body(inputs.model)
                if inputs.context_source.origin == "random"
                else inputs.model
            ),
            inputs.batches(
                "shifted positions", inputs.n_experiment_contexts, leave_room=True
            ),
            mask_token=inputs.mask_token,
            seed=inputs.seed,
            name=inputs.reference,
        ),
        record=PhaseShift,
        drawings=(Drawing("shift"),),
        needs=needs_text,
        rows=_shift_rows,
        is_default=False,
    ),
    ModelMeasurement[BlankImages](
        name="blank",
        title="Images without content",
        compute=lambda inputs: forward.blank_images(
            inputs.model, seed=inputs.seed, name=inputs.reference
        ),
        record=BlankImages,
        drawings=(Drawing("blank"),),
        needs=needs_images,
        rows=_blank_rows,
        is_default=False,
    ),
    ModelMeasurement[Places](
        name="places",
        title="Places that reach the output",
        compute=_measure_places,
        record=Places,
        drawings=(Drawing("places"),),
        needs_head=_predicts,
        rows=_place_rows,
    ),
    ModelMeasurement[SubstitutionEffect](
        name="substitution",
        title="What the model uses of its positions",
        compute=_measure_substitution,
        record=SubstitutionEffect,
        drawings=(Drawing("substitution"), Drawing("substitution_positions")),
        is_default=False,
        needs_head=lambda _: True,
        rows=_substitution_rows,
    ),
)
#: Measurements inside a model by name.
MODEL_MEASUREMENTS = {
    measurement.name: measurement for measurement in _MODEL_MEASUREMENTS
}
