"""Every measurement inside a running model, in the order of the page."""

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
from posprobe.analyses.models.experiments import (
    BlankImages,
    PermutationEffect,
    PhaseShift,
    SubstitutionEffect,
)
from posprobe.analyses.models.head_logits import HeadsByLayer
from posprobe.analyses.models.rotary_use import Origin, RotaryUse
from posprobe.analyses.models.states import EffectiveTable, MeanDecomposition
from posprobe.analyses.models.subspaces import SubspaceOverlap, subspace_overlap
from posprobe.arrays import Array
from posprobe.errors import UsageError
from posprobe.forward.contexts import has_table
from posprobe.forward.rotary import stated_context
from posprobe.forward.running import body_of, is_sound
from posprobe.layouts import Grid, Layout
from posprobe.measurements import Drawing, compared_numbers
from posprobe.measurements.baselines import formula_numbers, made, numbers_of_table
from posprobe.measurements.model.contexts import (
    SEEN,
    SINUSOID,
    STORED,
    WALKS,
    WHOLE,
    Contexts as Contexts,
    LabelledRow,
    ModelInputs as ModelInputs,
    ModelMeasurement as ModelMeasurement,
    by_layer,
    mean_over_heads,
    only_images,
    only_text,
)
from posprobe.nulls import band
from posprobe.tables import PositionTable
from posprobe.text import (
    Block,
    between,
    cell,
    fine_percent,
    lookup,
    percent_with_error,
    show,
    with_error,
)
from posprobe.words import models
from posprobe.words.models import NEEDS_ADDED

#: Numbers of a layer's table that are compared with the sinusoid and random walks, and what they
#: are called.
LAYER_NUMBERS = {
    "similarity.centered.neighbour_mean": "neighbour cosine",
    "similarity.centered.translation_invariance": "invariance",
    "pca.stable_rank": "stable rank",
    "sinusoid.cka": "CKA with the sinusoid",
}


def _states(given: ModelInputs) -> MeanDecomposition:
    found = forward.decompose(
        given.model, given.batches("hidden states"), positions=given.positions,
        layers=given.layers, name=given.reference,
    )  # fmt: skip
    return with_numbers(found, given.nulls, given.seed)


def with_numbers(found: MeanDecomposition, draws: int, seed: int) -> MeanDecomposition:
    """Measure the table of every layer, and the sinusoid and random walks of the same shape.

    Parameters
    ----------
    found
        Of all its layers.
    draws
        Random walks, whose steps are equally long.
    seed
        Of the walks.
    """
    tables = [found.table(number) for number in found.layers]
    layout, dim = tables[0].layout, tables[0].dim
    numbers = [numbers_of_table(table) for table in tables]
    walks = (made(_walk(layout, dim, seed, draw), layout) for draw in range(draws))
    drawn = [numbers_of_table(walk) for walk in walks]
    return replace(
        found,
        layers={
            number: replace(layer, analyses=known)
            for (number, layer), known in zip(found.layers.items(), numbers, strict=True)
        },
        baselines={
            "sinusoid": dict(formula_numbers(layout, dim)),
            "walk": {key: band([one.get(key) for one in drawn]) for key in numbers[0]},
            "draws": draws,
            "seed": seed,
        },
    )


def _drawn_with(result: MeanDecomposition) -> dict[str, Any]:
    """Compute what the figures of layers show: cosines and components of some, and baselines."""
    from posprobe.figures.common import spread
    from posprobe.figures.states import PANELS

    moving = [n for n, layer in result.layers.items() if layer.stable_rank is not None]
    shown = {n: result.table(n) for n in spread(moving, PANELS)}
    return {
        **result.baselines,
        "cosines": {n: cosines_of(table) for n, table in shown.items()},
        "components": {n: analyses.pca(table) for n, table in shown.items()},
    }


def cosines_of(table: PositionTable) -> Patches | Similarity:
    """Return what a panel of cosines shows: a mosaic of a small grid, else the matrix."""
    from posprobe.figures.states import MOSAIC

    layout = table.layout
    if isinstance(layout, Grid) and max(layout.height, layout.width) <= MOSAIC:
        return analyses.grid(table)
    return analyses.similarity(table)


def _walk(layout: Layout, dim: int, seed: int, draw: int) -> Array:
    """Draw a random walk in reading order whose steps are equally long, from the origin."""
    steps = np.random.default_rng([seed, draw]).standard_normal((layout.size, dim))
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    steps[0] = 0
    return np.cumsum(steps, axis=0)


def _state_rows(document: Block) -> Iterator[LabelledRow]:
    """Yield what positions add to every layer, with the sinusoid and random walks beside it."""
    block, beside = document["states"], document["beside"] or {}
    yield by_layer(block, "variance explained by position", "shares.position", _share)
    yield "of which sampling noise", {k["layer"]: _share(_noise(k)) for k in block["layers"]}
    yield by_layer(block, "variance explained by context", "shares.context", _share)
    yield by_layer(block, "relative norm of what positions add", "relative_norm")
    yield by_layer(block, "directions above sampling noise", "rank")
    for key, label in LAYER_NUMBERS.items():
        texts: dict[int | str, str] = {
            layer["layer"]: cell(layer["analyses"].get(key)) for layer in block["layers"]
        }
        if beside.get("sinusoid"):
            texts[SINUSOID] = cell(beside["sinusoid"].get(key))
        if found := (beside.get("walk") or {}).get(key):
            texts[WALKS] = f"{show(found['p5'], '.2g')} to {show(found['p95'], '.2g')}"
        yield f"{label} of what positions add", texts


def _noise(layer: Block) -> float | None:
    """Return the share of the variance that sampling noise puts into that of positions."""
    noise, share = layer["noise_share"], lookup(layer, "shares.position")
    return None if noise is None or share is None else noise * share


def _share(value: float | None) -> str:
    return "–" if value is None else fine_percent(value)


#: Numbers of a head of which the mean is listed, and what it is called.
HEAD_MEANS = {
    "first": "attention to the first position, mean over heads",
    "special": "attention to what is no position, mean over heads",
    "locality": "locality of attention, mean over heads",
    "symmetry": "symmetry of attention, mean over heads",
}


def _most_common(names: Sequence[str]) -> str:
    name, count = Counter(names).most_common(1)[0]
    return f"{name} ({count} of {len(names)})"


def _attention_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["attention"]
    yield by_layer(block, "offset that most heads prefer, measured", "peak_name", _most_common)
    for key, label in HEAD_MEANS.items():
        # Where there are no such tokens, and no line, there is no such number.
        if any(value for layer in block["layers"] for value in layer[key]):
            yield by_layer(block, label, key, mean_over_heads)
    yield by_layer(block, "attention explained by offset", "translation_invariance")


#: Numbers of a head of which the range is listed, and what it is called.
HEAD_RANGES = {
    "attention": "attention at the offset that a head prefers",
    "uniform": "the same with equal logits",
    "offset_share": "logits explained by offset",
    "key_share": "logits the same for every query",
}


def _head_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["heads"]
    label = "offset that most heads prefer, by their weights"
    yield by_layer(block, label, "peak_name", _most_common)
    for key, label in HEAD_RANGES.items():
        yield by_layer(block, label, key, between)


#: Tokens of a context that the model samples itself: the distance share grows with the length.
LENGTH = 256
#: Numbers of heads whose median is listed, and what it is called.
MEDIANS = {
    "share": "distance share, median over heads",
    "spread": "spread (nats), median over heads",
    "moved": "moved attention, median over heads",
}


def _needs_added(given: ModelInputs) -> str:
    # A model that rotates queries and keys adds no rows to its input.
    lacks = forward.is_rotary(given.model) and not has_table(given.model)
    return NEEDS_ADDED if lacks else ""


def _needs(given: ModelInputs) -> str:
    # Along rows and columns of images nothing is measured, and the attempt says so.
    turns = forward.turns_images if given.takes_images else forward.is_rotary
    return "" if turns(given.model) else models.NEEDS_ROTARY


def _contexts(given: ModelInputs) -> tuple[Iterator[Array], Origin]:
    """Return what the model is run on: drawn tokens only where it cannot write its own."""
    asked = given.contexts
    if not asked.is_random:
        return given.batches("rotary use"), "text" if asked.text else "tokens"
    if asked.tokens == "random" or not (forward.generates(given.model) and is_sound(given.model)):
        return given.batches("rotary use"), "random"
    length = asked.length or min(LENGTH, stated_context(given.model) or LENGTH)
    sampled = forward.sampled_tokens(
        given.model, length, given.few, seed=given.seed, batch_size=asked.batch_size
    )
    return sampled, "sampled"


def _rotary_use(given: ModelInputs) -> RotaryUse:
    contexts, source = _contexts(given)
    return forward.rotary_use(given.model, contexts, source=source, name=given.reference)


def _rotary_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["rotary_use"]
    heads: dict[int, list[Block]] = {layer["layer"]: [] for layer in block["layers"]}
    for head in block["heads"]:
        heads[head["layer"]].append(head)
    for key, label in MEDIANS.items():
        known = {
            k: [head[key] for head in own if head[key] is not None] for k, own in heads.items()
        }
        yield label, {k: cell(median(own) if own else None, ".2g") for k, own in known.items()}
    yield "preferred distances (heads)", {k: models.peaks(own) for k, own in heads.items()}
    yield "heads: yes / no / cannot tell", {k: models.counts(own) for k, own in heads.items()}
    yield by_layer(block, "position", "reason", models.REASONS.__getitem__)
    yield by_layer(block, "shift check, residual", "shift_check", lambda value: cell(value, ".1e"))


def _effective(given: ModelInputs) -> EffectiveTable:
    table = families.effective_table(
        given.reference, rows=given.positions, revision=given.revision, offline=given.offline
    )
    before, after = (numbers_of_table(one) for one in (given.table, table))
    return EffectiveTable(before, after, table.notes, table)


def _effective_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["effective"]
    for key, number in compared_numbers().items():
        if block["raw"].get(key) is not None:
            texts: dict[int | str, str] = {STORED: cell(block["raw"][key])}
            yield f"{number.label} of the table", texts | {SEEN: cell(block["effective"][key])}


#: Token embeddings that are read of a local file, where there are as many.
TOKENS = 2**15
#: Shares by key, and what they are.
SHARES = {
    "variance": "token variance within the position subspace",
    "top": "position subspace within the tenth that tokens use most",
    "bottom": "position subspace within the tenth that tokens use least",
}


def _subspaces(given: ModelInputs) -> SubspaceOverlap:
    table = given.table
    # What tokens use least is better known the more of them are read, and a disk is near.
    rows = 4 * table.dim if table.source.revision else max(TOKENS, 4 * table.dim)
    tokens = families.load_tokens(table, seed=given.seed, rows=rows, offline=given.offline)
    found = subspace_overlap(table, tokens.values)
    if len(found.token_share) < found.rank:
        raise UsageError(
            f"the token embeddings have rank {len(found.token_share)}, so they cannot be compared "
            f"with the {found.rank} position directions"
        )
    return found


def _subspace_rows(document: Block) -> Iterator[LabelledRow]:
    for key, label in SHARES.items():
        found = document["subspaces"][key]
        chance = show(found["band"], " to ")
        yield label, {WHOLE: f"{cell(found['value'])} (by chance {chance})"}


def _word_rows(document: Block) -> Iterator[LabelledRow]:
    for key in ("first", "locality", "symmetry"):
        label = f"{HEAD_MEANS[key]}, one token repeated"
        yield by_layer(document["words"], label, key, mean_over_heads)


#: Numbers of a model, and what they are called.
CHANGES = {
    "tokens": "change of the last states when permuted",
    "special": "the same of tokens that stay",
    "accuracy": "right answers",
    "scrambled_accuracy": "right answers when permuted",
}


def _permutation_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["permutation"]
    kinds = {"with_positions": "as it is", "without_positions": "table set to 0"}
    for key, label in CHANGES.items():
        if any(block[kind][key] is not None for kind in kinds):
            for kind, what in kinds.items():
                yield f"{label}, {what}", {WHOLE: cell(block[kind][key])}


def _shift_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["shift"]
    for place, at in enumerate(block["shifts"]):
        label = f"change of the last states, first position {at}"
        yield label, {WHOLE: cell(block["change"][place])}
        if block["loss"] is not None:
            yield f"loss (nats), first position {at}", {WHOLE: cell(block["loss"][place])}


#: Numbers of an image at a layer, and what they are called.
PATTERNS = {
    "share": "squared norm that differs between patches",
    "alignment": "cosine with the position embedding",
    "cka": "CKA with the position embedding",
}


def _blank_rows(document: Block) -> Iterator[LabelledRow]:
    for key, label in PATTERNS.items():
        for kind, what in (("constant", "grey"), ("noise", "noise")):
            yield by_layer(document["blank"], f"{label}, image of {what}", f"{kind}.{key}")


#: Costs, and what they are called.
COSTS = {
    "loss": "change of the loss (nats)",
    "divergence": "divergence (nats)",
    "answers": "top answers changed",
    "states": "change of the states",
}


def _substitution(given: ModelInputs) -> SubstitutionEffect:
    return forward.substitution_effect(
        given.model, given.batches("other tables"), rows=given.positions,
        random=given.contexts.is_random, mask_token=given.mask_token, seed=given.seed,
        name=given.reference,
    )  # fmt: skip


def _substitution_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["substitution"]
    measure = block["measure"]
    write = percent_with_error if measure == "answers" else with_error
    for each in block["substitutes"]:
        main, what = each[measure], each["label"]
        yield f"kept with {what}", {WHOLE: percent_with_error(main["kept"], main["kept_error"])}
        yield f"{COSTS[measure]} with {what}", {WHOLE: write(main["value"], main["error"])}


_EVERY: tuple[ModelMeasurement[Any], ...] = (
    ModelMeasurement[MeanDecomposition](
        name="states",
        title="Through the layers",
        compute=_states,
        record=MeanDecomposition,
        drawings=(Drawing("layers"), Drawing("cosines"), Drawing("paths")),
        rows=_state_rows,
        drawn_with=_drawn_with,
    ),
    ModelMeasurement[HeadsByLayer](
        name="heads",
        title="Heads by their weights",
        compute=lambda given: forward.measure_heads(
            given.reference, rows=given.positions, revision=given.revision, offline=given.offline
        ),
        record=HeadsByLayer,
        drawings=(Drawing("heads"),),
        rows=_head_rows,
        needs=_needs_added,
        from_weights=True,
    ),
    ModelMeasurement[RotaryUse](
        name="rotary_use",
        title="Rotary use",
        compute=_rotary_use,
        record=RotaryUse,
        drawings=(Drawing("rotary_curves"), Drawing("rotary_usage")),
        needs=_needs,
        head=forward.is_rotary,
        rows=_rotary_rows,
    ),
    ModelMeasurement[EffectiveTable](
        name="effective",
        title="The table as attention sees it",
        compute=_effective,
        record=EffectiveTable,
        drawings=(Drawing("effective"),),
        needs=_needs_added,
        rows=_effective_rows,
        from_weights=True,
        drawn_with=lambda result: {"effective": cosines_of(result.table)},
    ),
    ModelMeasurement[SubspaceOverlap](
        name="subspaces",
        title="Position and token directions",
        compute=_subspaces,
        record=SubspaceOverlap,
        drawings=(Drawing("overlap"),),
        needs=_needs_added,
        rows=_subspace_rows,
        from_weights=True,
    ),
    ModelMeasurement[AttentionByOffset](
        name="attention",
        title="Attention as measured",
        compute=lambda given: forward.attend(
            given.model, given.batches("attention"), name=given.reference
        ),
        record=AttentionByOffset,
        drawings=(Drawing("attention"), Drawing("first")),
        rows=_attention_rows,
    ),
    ModelMeasurement[AttentionByOffset](
        name="words",
        title="One word repeated",
        compute=lambda given: forward.attend(
            given.model,
            given.batches("one word repeated", repeated=True),
            layers=[0],
            name=given.reference,
        ),
        record=AttentionByOffset,
        drawings=(Drawing("words"),),
        needs=only_text,
        rows=_word_rows,
    ),
    ModelMeasurement[PermutationEffect](
        name="permutation",
        title="Permuted tokens",
        compute=lambda given: forward.permutation_effect(
            given.model,
            given.batches("permutations", given.few),
            seed=given.seed,
            name=given.reference,
        ),
        record=PermutationEffect,
        drawings=(Drawing("permutation"),),
        needs=_needs_added,
        rows=_permutation_rows,
    ),
    ModelMeasurement[PhaseShift](
        name="shift",
        title="Shifted positions",
        compute=lambda given: forward.phase_shift(
            # A loss of random tokens says nothing.
            body_of(given.model) if given.contexts.is_random else given.model,
            given.batches("shifted positions", given.few, room=True),
            mask_token=given.mask_token,
            seed=given.seed,
            name=given.reference,
        ),
        record=PhaseShift,
        drawings=(Drawing("shift"),),
        needs=only_text,
        rows=_shift_rows,
    ),
    ModelMeasurement[BlankImages](
        name="blank",
        title="Images without content",
        compute=lambda given: forward.blank_images(
            given.model, seed=given.seed, name=given.reference
        ),
        record=BlankImages,
        drawings=(Drawing("blank"),),
        needs=only_images,
        rows=_blank_rows,
    ),
    ModelMeasurement[SubstitutionEffect](
        name="substitution",
        title="What the model uses of its positions",
        compute=_substitution,
        record=SubstitutionEffect,
        drawings=(Drawing("substitution"), Drawing("substitution_positions")),
        slow=True,
        head=lambda _: True,
        rows=_substitution_rows,
    ),
)
#: Measurements inside a model by name.
MODEL = {each.name: each for each in _EVERY}
