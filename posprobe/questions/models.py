"""What is asked of a run of a model: each answer follows from the numbers of one measurement.

A question whose measurement was not made is not asked, and its answer is None. Where a question
needs a random model to compare with, there is none either.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from posprobe.analyses.facts import Answer, Test, Verdict
from posprobe.analyses.models.attention import AttentionByOffset
from posprobe.analyses.models.experiments import (
    BlankImages,
    Cost,
    PermutationEffect,
    PhaseShift,
    Scheme,
    Substitute,
    SubstitutionEffect,
)
from posprobe.analyses.models.head_logits import HeadsByLayer
from posprobe.analyses.models.rotary_use import MIN_CONTEXTS, Origin, RotaryUse, Summary
from posprobe.analyses.models.states import NOISY, LayerMeans, MeanDecomposition
from posprobe.analyses.models.subspaces import SubspaceOverlap
from posprobe.questions.rank_tests import MIN_EFFECT_SHARE, value_property

#: Share of the variance up to which sampling noise hides nothing to speak of.
HIDES_LITTLE = 0.05
#: Share of the tokens' variance in random subspaces from which no other directions are left.
ALL = 0.99
#: Position directions are kept apart from tokens where they hold at most half of what random ones
#: hold: that is seen in a figure of the overlap, and a few per cent less is not.
HALF = 0.5
#: Steps in which sentences write a share, below which bands are not told apart.
WRITTEN = 1e-3
#: Relative change of hidden states that is small, as of a cost in nats: a hundredth of their norm.
SMALL = 0.01
#: Relative change up to which a model's own rounding can account for it, by number format.
_ROUNDING = {"float16": 4e-3, "bfloat16": 3e-2}
#: Share of a head's, or a layer's, attention that is most of it.
MOST = 0.5
#: In short contexts any head pays most of its attention somewhere: what counts is twice as much as
#: equal logits would pay there.
TIMES = 2.0
#: Share of what a table is worth from which an explanation is said to be enough.
ENOUGH = 0.9
#: Most components that are few, and standard errors by which a share must be above, or below, what
#: is enough.
FEW = 10
SURE = 2.0
#: Standard errors from the mean of a normal distribution to 5 and to 95 % of it.
BAND = 1.645


@dataclass(frozen=True, eq=False)
class Run:
    """What the questions see of a run of a model.

    Parameters
    ----------
    results
        Results by the name of the measurement.
    dtype
        Number format of the weights and activations.
    images
        Whether it was run on images, not text.
    random
        Whether the contexts were random.
    """

    results: Mapping[str, Any]
    dtype: str = "float32"
    images: bool = False
    random: bool = False

    @property
    def rounding(self) -> float:
        """Relative change of hidden states up to which rounding can account for it."""
        return _ROUNDING.get(self.dtype, 1e-3)

    @property
    def contexts(self) -> int:
        """How many of the given contexts were run at most; 0 where weights were enough.

        Contexts that were sampled from the model are those of one result alone.
        """
        sentences = [
            result for result in self.results.values() if getattr(result, "source", "") != "sampled"
        ]
        return max((getattr(result, "contexts", 0) for result in sentences), default=0)


Ask: TypeAlias = Callable[[Run], Answer | None]

# Hidden states.


@dataclass(frozen=True)
class Layer:
    """What positions add to the hidden states of one layer.

    Parameters
    ----------
    layer
        Its number; 0 is what enters the first.
    share
        Share of the variance of the hidden states that goes along with position; None where all are
        equal.
    noise
        The part of that share that is sampling noise, as a share of the same variance; None where
        it is unknown, or positions add nothing but rounding.
    rank
        Directions above sampling noise, None as well.
    """

    layer: int
    share: float | None
    noise: float | None
    rank: int | None

    @property
    def clear(self) -> bool:
        """Whether the share can be told: a direction stands out, and at most half is noise."""
        return bool(self.rank) and (self.noise or 0.0) <= NOISY * (self.share or 0.0)


@dataclass(frozen=True)
class Kept:
    """What is left of positions in the last hidden states.

    Parameters
    ----------
    first, last
        The first layer whose hidden states differ, None where nothing can be told of it or it is
        the last, and the last layer that was looked at.
    """

    first: Layer | None
    last: Layer

    @property
    def value(self) -> dict[str, Any] | None:
        """The shares of both layers, and their numbers."""
        if self.last.share is None:
            return None
        layers = self.first or self.last, self.last
        first, last = (layer.share for layer in layers)
        return {"first": first, "last": last, "layers": [layer.layer for layer in layers]}


def _layer(number: int, layer_means: LayerMeans) -> Layer:
    share = layer_means.shares["position"] if layer_means.shares else None
    is_measured = layer_means.noise_share is not None and share is not None
    noise = (layer_means.noise_share or 0.0) * (share or 0.0) if is_measured else None
    return Layer(number, share, noise, layer_means.rank)


def ask_kept(run: Run) -> Answer | None:
    """Ask whether positions show in the last hidden states, beside sampling noise."""
    states: MeanDecomposition | None = run.results.get("states")
    if states is None:
        return None
    if states.layout.size == 1:
        return Answer("kept", "cannot tell", "one_position", keys=("states.layout",))
    layers = [_layer(number, layer) for number, layer in states.layers.items()]
    end, last = len(layers) - 1, layers[-1]
    place = next((index for index, layer in enumerate(layers) if layer.share is not None), end)
    first = layers[place] if place < end and states.contexts > 1 else None
    facts = Kept(first, last)
    if last.share is None:
        position_keys = (f"states.layers.{place}.shares.position",) if first else ()
        keys = (*position_keys, f"states.layers.{end}.shares")
        return Answer("kept", "no", "equal_states", facts, keys=keys)
    if states.contexts == 1:
        return Answer("kept", "cannot tell", "one_context", keys=("states.contexts",))
    keys = tuple(
        f"states.layers.{index}.{key}"
        for index in dict.fromkeys((place, end))
        for key in ("shares.position", "noise_share", "rank")
    )
    test = None
    if last.noise is not None:
        noise_draws = states.layers[last.layer].noise_draws
        low, high = np.quantile(noise_draws or [last.noise], (0.05, 0.95)).tolist()
        band = (low, high) if len(noise_draws) > 1 else None
        test = Test(last.share, math.nan, last.noise, band, "sampling noise", len(noise_draws))
    return Answer("kept", *_remains(last), facts, test, keys)


def _remains(last_layer: Layer) -> tuple[Verdict, str]:
    if last_layer.rank is None:
        return "no", "rounding"
    if last_layer.rank == 0:
        # Little noise hides little: that nothing is seen is no evidence where there is much.
        little = last_layer.noise is not None and last_layer.noise <= HIDES_LITTLE
        return ("no", "noise") if little else ("cannot tell", "few_contexts")
    if not last_layer.clear:
        return "cannot tell", "noisy"
    return ("no", "small") if (last_layer.share or 0.0) < MIN_EFFECT_SHARE else ("yes", "seen")


@dataclass(frozen=True)
class Changed:
    """How much the last hidden states change.

    Parameters
    ----------
    change
        Norm of the change over theirs.
    images
        Whether patches were permuted, not tokens.
    shift
        Position of the first token, where positions were shifted.
    """

    change: float
    images: bool = False
    shift: int | None = None

    value = value_property("change")


def _against_rounding(
    question: str, value: float, rounding: float, small: float, facts: Any, *keys: str
) -> Answer:
    """Answer by a change, which is nothing up to the rounding, and little up to ``small``."""
    answer: Verdict = "yes" if value >= max(rounding, small) else "no"
    reason = "rounding" if value < rounding else "slight" if value < small else "changed"
    test = Test(value, math.nan, rounding, (0.0, rounding), "rounding")
    return Answer(question, answer, reason, facts, test, keys)


def _permuted(question: str, kind: str) -> Ask:
    def ask(run: Run) -> Answer | None:
        effect: PermutationEffect | None = run.results.get("permutation")
        if effect is None:
            return None
        change = getattr(effect, kind).tokens
        facts, key = Changed(change, run.images), f"permutation.{kind}.tokens"
        return _against_rounding(question, change, run.rounding, SMALL, facts, key)

    return ask


def ask_absolute(run: Run) -> Answer | None:
    """Ask whether outputs change when all positions are counted from a later one."""
    phase_shift: PhaseShift | None = run.results.get("shift")
    if phase_shift is None:
        return None
    keys = ("shift.change", "shift.shifts")
    pairs = zip(phase_shift.change.tolist(), phase_shift.shifts.tolist(), strict=True)
    changes = [(change, shift) for change, shift in pairs if shift]
    if not changes:
        return Answer("absolute", "cannot tell", "no_room", keys=keys)
    largest_change, shift = max(changes)
    facts = Changed(largest_change, shift=shift)
    return _against_rounding("absolute", largest_change, run.rounding, SMALL, facts, *keys)


@dataclass(frozen=True)
class Overlap:
    """How much of the tokens' variance lies in the leading position directions.

    Parameters
    ----------
    rank, width
        Position directions, and dimensions of the space.
    share
        Share of the variance of the tokens; None where that is undefined.
    expected
        The mean of random subspaces.
    """

    rank: int
    width: int
    share: float | None
    expected: float

    value = value_property("share")


def ask_apart(run: Run) -> Answer | None:
    """Ask whether positions avoid the directions of tokens, beside random subspaces."""
    overlap: SubspaceOverlap | None = run.results.get("subspaces")
    if overlap is None:
        return None
    share, (low, high) = overlap.variance, overlap.variance.band
    facts = Overlap(overlap.rank, len(overlap.cosine_change), share.value, share.expected)
    keys = ("subspaces.variance",)
    if share.value is None:
        return Answer("apart", "cannot tell", "all_alike", facts, keys=keys)
    test = Test(share.value, math.nan, share.expected, (low, high), "random subspaces")
    # One random subspace in ten lies outside its band: a claim needs more.
    margin = max(high - low, WRITTEN)
    answer: Verdict = "no"
    reason = "more" if share.value > high + margin else "chance"
    if share.expected > ALL:
        answer, reason = "cannot tell", "no_room"
    elif share.value < low - margin:
        small = share.value > HALF * share.expected
        answer, reason = ("no", "small") if small else ("yes", "less")
    elif share.value < low:
        answer, reason = "cannot tell", "open"
    return Answer("apart", answer, reason, facts, test, keys)


@dataclass(frozen=True)
class Blank:
    """How an image of one grey looks at the last layer.

    Parameters
    ----------
    layer
        Its number.
    share
        Share of the squared norm of the states that differs between patches.
    cosine
        Mean cosine with the position table, None where it is undefined.
    """

    layer: int
    share: float
    cosine: float | None

    value = value_property("share")


def ask_blank(run: Run) -> Answer | None:
    """Ask whether positions alone tell the patches of an image of one grey apart."""
    blank_images: BlankImages | None = run.results.get("blank")
    if blank_images is None:
        return None
    measured_layers = [
        (place, Blank(number, pattern.share, pattern.alignment))
        for place, (number, pattern) in enumerate(blank_images.constant.items())
        if pattern.share is not None
    ]
    if not measured_layers:
        return Answer("blank", "cannot tell", "no_states", keys=("blank.layers",))
    place, facts = measured_layers[-1]
    keys = [f"blank.layers.{place}.constant.{key}" for key in ("share", "alignment")]
    # Shares are of squares.
    return _against_rounding("blank", facts.share, run.rounding**2, SMALL**2, facts, *keys)


# Heads.


@dataclass(frozen=True)
class Preferred:
    """An offset, key minus query, ``[1]`` or ``[rows, columns]``, and how many heads prefer it."""

    offset: tuple[int, ...]
    heads: int


@dataclass(frozen=True)
class Heads:
    """Heads that positions alone make look mainly at one offset.

    Parameters
    ----------
    heads, of
        Number of such heads, and number of all heads.
    sharpest
        Largest attention of any head at the offset that it prefers, 0 where none prefers one.
    uniform
        Attention that equal logits would pay there.
    offsets
        Three most frequent offsets of these heads.
    """

    heads: int
    of: int
    sharpest: float
    uniform: float
    offsets: tuple[Preferred, ...]

    value = value_property("heads", "of", "sharpest")


def ask_heads(run: Run) -> Answer | None:
    """Ask whether positions alone make a head look mainly at one offset."""
    heads: HeadsByLayer | None = run.results.get("heads")
    if heads is None:
        return None
    layers = tuple(heads.layers.values())
    keys = tuple(f"heads.layers.{place}.attention" for place in range(len(layers)))
    if layers[0].layout.size == 1:
        return Answer("heads", "cannot tell", "one_position", keys=keys)
    peaks = [
        (attention, uniform, tuple(offset))
        for layer in layers
        for attention, uniform, offset in zip(
            np.nan_to_num(layer.attention).tolist(),
            np.nan_to_num(layer.uniform).tolist(),
            layer.peak.tolist(),
            strict=True,
        )
    ]
    sharpest, uniform, _ = max(peaks)
    sharp = Counter(
        offset for paid, uniform_share, offset in peaks if paid > max(MOST, TIMES * uniform_share)
    )
    offsets = tuple(Preferred(*counted_offset) for counted_offset in sharp.most_common(3))
    facts = Heads(sharp.total(), len(peaks), sharpest, uniform, offsets)
    if sharp:
        return Answer("heads", "yes", "sharp", facts, keys=keys)
    reason = "short" if sharpest > MOST else "even" if sharpest else "no_peak"
    return Answer("heads", "no", reason, facts, keys=keys)


@dataclass(frozen=True)
class First:
    """Attention to the first position, in the layer where it is most.

    Parameters
    ----------
    layer
        Number of the attention layer, from 0.
    attention
        Share of the other positions' attention, in the mean over heads.
    uniform
        Share that uniform attention would pay.
    """

    layer: int
    attention: float
    uniform: float

    value = value_property("attention")


def ask_first(run: Run) -> Answer | None:
    """Ask whether most attention of a layer goes to the first position; patches have none."""
    attention: AttentionByOffset | None = run.results.get("attention")
    if attention is None or attention.uniform_first is None:
        return None
    keys: tuple[str, ...] = ("attention.uniform_first",)
    means = [
        (float(layer.first.mean()), place, number)
        for place, (number, layer) in enumerate(attention.layers.items())
        if not np.isnan(layer.first).any()
    ]
    if not means:
        return Answer("first", "cannot tell", "no_layer", keys=keys)
    largest_share, place, number = max(means)
    facts = First(number, largest_share, attention.uniform_first)
    test = Test(largest_share, math.nan, facts.uniform, None, "uniform attention")
    keys = (f"attention.layers.{place}.first", *keys)
    answer: Verdict = "yes" if largest_share > MOST else "no"
    return Answer("first", answer, "most" if largest_share > MOST else "less", facts, test, keys)


@dataclass(frozen=True)
class Preferring:
    """How many heads prefer a distance, and what distance explains.

    Parameters
    ----------
    told
        The numbers over all heads.
    contexts, length, source
        Number of contexts, tokens of each, and their kind.
    """

    told: Summary
    contexts: int
    length: int
    source: Origin

    @property
    def heads(self) -> int:
        """All of them."""
        return self.told.yes + self.told.no + self.told.open

    @property
    def value(self) -> dict[str, Any]:
        """The counts, and the median share."""
        return {"heads": self.told.yes, "of": self.heads, "share": self.told.share}


def ask_distance(run: Run) -> Answer | None:
    """Ask whether any head prefers a distance."""
    rotary_use: RotaryUse | None = run.results.get("rotary_use")
    if rotary_use is None:
        return None
    summary = rotary_use.summary
    keys = tuple(f"rotary_use.summary.{key}" for key in ("share", "yes", "no", "open", "never"))
    facts = Preferring(summary, rotary_use.contexts, rotary_use.length, rotary_use.source)
    answer: Verdict = "cannot tell"
    if rotary_use.contexts < MIN_CONTEXTS:
        reason = "few_contexts"
    elif summary.share is None:
        reason = "even"
    elif summary.yes:
        answer, reason = "yes", "some"
    elif summary.open:
        reason = "open"
    else:
        answer, reason = "no", "no_head"
    return Answer("distance", answer, reason, facts, keys=keys)


# What positions are worth to the model, and whether less than all of them is enough.


@dataclass(frozen=True)
class Worth:
    """What positions are worth to what: the words of a cost.

    Parameters
    ----------
    scheme
        Part that is replaced: the rows of a table, rotations, or biases.
    table
        Name of the model's parameter or buffer.
    measure
        The cost: loss, divergence, answers or states.
    task
        Task of the model.
    """

    scheme: Scheme
    table: str
    measure: str
    task: str


@dataclass(frozen=True)
class Removal:
    """What removing positions costs.

    Parameters
    ----------
    worth
        Description of what is removed, and of its task.
    cost, error
        Mean over contexts and its standard error: nats, or for states a share of their norm; None
        where outputs are not finite, and of one context.
    loss, loss_error
        Loss of the unchanged model in nats, and its error; None without one.
    answers, answers_error
        Share of the top answers that change; None where there are none.
    small
        Cost up to which nothing is lost to speak of.
    """

    worth: Worth
    cost: float | None
    error: float | None
    loss: float | None
    loss_error: float | None
    answers: float | None
    answers_error: float | None
    small: float = SMALL

    value = value_property("cost")

    @property
    def most(self) -> float | None:
        """The cost and `SURE` standard errors more."""
        if self.cost is None or self.error is None:
            return None
        return self.cost + SURE * self.error


@dataclass(frozen=True)
class Enough:
    """How much of what positions are worth one substitute keeps: the first that is enough, or best.

    Parameters
    ----------
    label
        Its name in the table of costs.
    size
        Number of components; None for random tables.
    kept, error
        Share that is kept, and its standard error.
    of
        Number of substitutes that were tried.
    worth
        Description of what is replaced, and of its task.
    """

    label: str
    size: int | None
    kept: float
    error: float
    of: int
    worth: Worth

    value = value_property("kept")


def _worth(effect: SubstitutionEffect) -> Worth:
    return Worth(effect.scheme, effect.table, effect.measure, effect.task)


def _key(effect: SubstitutionEffect, substitute: Substitute) -> str:
    return f"substitution.substitutes.{effect.substitutes.index(substitute)}.{effect.measure}"


def ask_needed(run: Run) -> Answer | None:
    """Ask whether the model loses something when its positions are taken away."""
    effect: SubstitutionEffect | None = run.results.get("substitution")
    if effect is None:
        return None
    removed = effect[effect.removed]
    cost, changed_answers = removed.costs[effect.measure], removed.costs.get("answers")
    facts = Removal(
        _worth(effect), cost.value, cost.error, effect.loss, effect.loss_error,
        changed_answers.value if changed_answers else None,
        changed_answers.error if changed_answers else None,
    )  # fmt: skip
    test = None
    if cost.value is not None:
        band = None if cost.error is None else (-BAND * cost.error, BAND * cost.error)
        test = Test(cost.value, math.nan, 0.0, band, "no cost")
    answer, reason = _loses(cost, facts.most)
    return Answer("needed", answer, reason, facts, test, (_key(effect, removed),))


def _loses(cost: Cost, limit: float | None) -> tuple[Verdict, str]:
    if cost.value is None:
        return "cannot tell", "not_finite"
    if limit is None:
        return "cannot tell", "one_context"
    if cost.is_gain and cost.value < -SMALL:
        return "no", "gain"
    # A divergence is above 0 by any change: what is next to nothing is no loss, however certain.
    if limit < SMALL:
        return "no", "little"
    # That no loss was seen is no evidence that there is none: few contexts see nothing.
    if cost.kept is None:
        return "cannot tell", "open"
    return ("yes", "loses") if cost.value >= SMALL else ("cannot tell", "small")


def _few_components(substitute: Substitute) -> bool:
    return substitute.kind == "components" and (substitute.size or 0) <= FEW


def _enough(question: str, kind: Callable[[Substitute], bool]) -> Ask:
    """Make the question whether one of some substitutes keeps `ENOUGH`, where something is lost."""

    def ask(run: Run) -> Answer | None:
        effect: SubstitutionEffect | None = run.results.get("substitution")
        needed = ask_needed(run)
        if effect is None or needed is None or not needed.yes:
            return None
        costs = [
            (substitute, substitute.costs[effect.measure])
            for substitute in effect.substitutes
            if kind(substitute)
        ]
        measured_costs = [
            (substitute, cost.kept, cost.kept_error)
            for substitute, cost in costs
            if cost.kept is not None and cost.kept_error is not None
        ]
        if not measured_costs:
            return None
        sure = [cost for cost in measured_costs if cost[1] - SURE * cost[2] >= ENOUGH]
        best, kept_share, error = sure[0] if sure else max(measured_costs, key=lambda cost: cost[1])
        facts = Enough(
            best.label, best.size, kept_share, error, len(measured_costs), _worth(effect)
        )
        band = (ENOUGH - BAND * error, ENOUGH + BAND * error)
        test = Test(kept_share, math.nan, ENOUGH, band, "90 % kept")
        keys = tuple(_key(effect, cost[0]) for cost in measured_costs)
        answer: Verdict = "no"
        reason = "less"
        if sure:
            answer, reason = "yes", "enough"
        elif any(share + SURE * spread >= ENOUGH for _, share, spread in measured_costs):
            answer, reason = "cannot tell", "open"
        return Answer(question, answer, reason, facts, test, keys)

    return ask


#: By name, in the order of the page.
QUESTIONS: Mapping[str, Ask] = {
    "kept": ask_kept,
    "order": _permuted("order", "with_positions"),
    "order_without": _permuted("order_without", "without_positions"),
    "absolute": ask_absolute,
    "apart": ask_apart,
    "heads": ask_heads,
    "first": ask_first,
    "blank": ask_blank,
    "distance": ask_distance,
    "needed": ask_needed,
    "few": _enough("few", _few_components),
    "random": _enough("random", lambda substitute: substitute.kind == "null"),
}
