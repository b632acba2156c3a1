"""Questions about a run of a model: each answer follows from the numbers of one measurement.

A question whose measurement was not made is not asked, and its answer is None. No question is
asked that would need a random model for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from posprobe.analyses.facts import MAX_YES_P, Answer, Test, Verdict
from posprobe.analyses.models.experiments import (
    BlankImages,
    Cost,
    PermutationEffect,
    PhaseShift,
    Scheme,
    Substitute,
    SubstitutionEffect,
)
from posprobe.analyses.models.states import (
    MAX_POSITION_NOISE_SHARE,
    LayerMeans,
    MeanDecomposition,
)
from posprobe.analyses.models.subspaces import SubspaceOverlap
from posprobe.analyses.view import N_NULL_DRAWS
from posprobe.questions.attention import (
    ask_distance,
    ask_first,
    ask_places,
    ask_position,
)
from posprobe.questions.places import ask_by_table, ask_reach, ask_weigh_alike
from posprobe.questions.rank_tests import MIN_EFFECT_SHARE, value_property

#: Largest share of the variance in sampling noise at which the noise can hide no effect.
MAX_HIDING_NOISE_SHARE = 0.05
#: Largest share of the tokens' variance in random subspaces at which other directions are left.
MAX_RANDOM_SUBSPACE_SHARE = 0.99
#: Largest variance of tokens in position directions that avoid tokens, over that in random ones.
#: Half is visible in a figure of the overlap; a few per cent less is not.
MAX_SEPARATE_SHARE_RATIO = 0.5
#: Precision of shares in sentences: narrower bands are not told apart.
SENTENCE_SHARE_STEP = 1e-3
#: Smallest relevant change of hidden states as a share of their norm, and cost in nats.
MIN_RELEVANT_CHANGE = 0.01
#: Largest relative change that a model's own rounding explains, by number format.
_ROUNDING_BY_DTYPE = {"float16": 4e-3, "bfloat16": 3e-2}
#: Smallest share of the value of a table that a sufficient substitute keeps.
MIN_SUFFICIENT_SHARE = 0.9
#: Largest number of components that counts as few.
MAX_FEW_COMPONENTS = 10
#: Standard errors by which a share must be above, or below, the sufficient share.
N_SURE_STANDARD_ERRORS = 2.0
#: Standard errors from the mean of a normal distribution to its 5 and 95 % quantiles.
N_BAND_STANDARD_ERRORS = 1.645


@dataclass(frozen=True, eq=False)
class ModelRun:
    """Results of a run of a model that the questions are asked about.

    Parameters
    ----------
    results
        Results by the name of the measurement.
    dtype
        Number format of the weights and activations.
    images
        Whether the model was run on images, not text.
    random
        Whether the contexts were random.
    """

    results: Mapping[str, Any]
    dtype: str = "float32"
    images: bool = False
    random: bool = False

    @property
    def rounding(self) -> float:
        """Largest relative change of hidden states that rounding explains."""
        return _ROUNDING_BY_DTYPE.get(self.dtype, 1e-3)

    @property
    def contexts(self) -> int:
        """Largest number of contexts that were run; 0 where weights were enough."""
        return max(
            (getattr(result, "contexts", 0) for result in self.results.values()),
            default=0,
        )


#: Function that answers a question about a run; None where it is not asked.
AskRun: TypeAlias = Callable[[ModelRun], Answer | None]

# Hidden states.


@dataclass(frozen=True)
class LayerShare:
    """Contribution of positions to the hidden states of one layer.

    Parameters
    ----------
    layer
        Number of the layer; 0 is the input of the first layer.
    share
        Share of the variance of the hidden states that position explains; None where all are equal.
    noise
        Share of the same variance that is sampling noise within ``share``; None where it is
        unknown, or positions add nothing but rounding.
    rank
        Number of directions above sampling noise; None in the same cases.
    """

    layer: int
    share: float | None
    noise: float | None
    rank: int | None

    @property
    def clear(self) -> bool:
        """Whether the share is clear: a direction stands out, and at most half is noise."""
        return bool(self.rank) and (self.noise or 0.0) <= MAX_POSITION_NOISE_SHARE * (
            self.share or 0.0
        )


@dataclass(frozen=True)
class KeptPositions:
    """Contribution of positions to the last hidden states.

    Parameters
    ----------
    first, last
        First layer whose hidden states differ, None where its share is unknown or it is the last;
        and the last layer that was measured.
    """

    first: LayerShare | None
    last: LayerShare

    @property
    def value(self) -> dict[str, Any] | None:
        """Shares of both layers, and their numbers."""
        if self.last.share is None:
            return None
        first_layer = self.first or self.last
        layers = [first_layer.layer, self.last.layer]
        return {"first": first_layer.share, "last": self.last.share, "layers": layers}


def _layer_share(layer: int, layer_means: LayerMeans) -> LayerShare:
    share = layer_means.shares["position"] if layer_means.shares else None
    is_measured = layer_means.noise_share is not None and share is not None
    noise = (layer_means.noise_share or 0.0) * (share or 0.0) if is_measured else None
    return LayerShare(layer, share, noise, layer_means.rank)


def ask_kept(run: ModelRun) -> Answer | None:
    """Ask whether positions show in the last hidden states above sampling noise."""
    decomposition: MeanDecomposition | None = run.results.get("states")
    if decomposition is None:
        return None
    if decomposition.layout.size == 1:
        return Answer("kept", "cannot tell", "one_position", keys=("states.layout",))
    layers = [
        _layer_share(number, layer) for number, layer in decomposition.layers.items()
    ]
    last_index, last_layer = len(layers) - 1, layers[-1]
    shared_indices = (
        index for index, layer in enumerate(layers) if layer.share is not None
    )
    first_index = next(shared_indices, last_index)
    has_first = first_index < last_index and decomposition.contexts > 1
    first_layer = layers[first_index] if has_first else None
    facts = KeptPositions(first_layer, last_layer)
    if last_layer.share is None:
        position_keys = (
            (f"states.layers.{first_index}.shares.position",) if first_layer else ()
        )
        keys = (*position_keys, f"states.layers.{last_index}.shares")
        return Answer("kept", "no", "equal_states", facts, keys=keys)
    if decomposition.contexts == 1:
        return Answer("kept", "cannot tell", "one_context", keys=("states.contexts",))
    keys = tuple(
        f"states.layers.{index}.{key}"
        for index in dict.fromkeys((first_index, last_index))
        for key in ("shares.position", "noise_share", "rank")
    )
    test = None
    if last_layer.noise is not None:
        noise_draws = decomposition.layers[last_layer.layer].noise_draws
        quantiles = (MAX_YES_P, 1 - MAX_YES_P)
        low, high = np.quantile(noise_draws or [last_layer.noise], quantiles).tolist()
        n_draws = len(noise_draws)
        # A few draws do not reach such quantiles: the range is then wider by itself.
        margin = high - low if n_draws < N_NULL_DRAWS else 0.0
        band = (max(low - margin, 0.0), high + margin) if n_draws > 1 else None
        test = Test(
            last_layer.share, math.nan, last_layer.noise, band, "sampling noise", n_draws
        )
    is_outside = bool(test and test.interval and test.value > test.interval[1])
    return Answer("kept", *_judge_last_layer(last_layer, is_outside), facts, test, keys)


def _judge_last_layer(last_layer: LayerShare, is_outside: bool) -> tuple[Verdict, str]:
    """Return the verdict on a layer and its reason; a share outside its noise is not denied."""
    if last_layer.rank is None:
        return "no", "rounding"
    if last_layer.rank == 0:
        # Only where there is little noise, it is evidence that no direction stands out.
        is_quiet = (
            last_layer.noise is not None and last_layer.noise <= MAX_HIDING_NOISE_SHARE
        )
        is_noise = is_quiet and not is_outside
        return ("no", "noise") if is_noise else ("cannot tell", "few_contexts")
    if not last_layer.clear:
        return "cannot tell", "noisy"
    is_small = (last_layer.share or 0.0) < MIN_EFFECT_SHARE and not is_outside
    return ("no", "small") if is_small else ("yes", "seen")


@dataclass(frozen=True)
class StateChange:
    """Change of the last hidden states.

    Parameters
    ----------
    change
        Norm of the change over that of the hidden states.
    images
        Whether patches were permuted, not tokens.
    shift
        Position of the first token, where positions were shifted.
    """

    change: float
    images: bool = False
    shift: int | None = None

    value = value_property("change")


def _answer_change(
    question: str,
    change: float,
    rounding: float,
    min_change: float,
    facts: Any,
    *keys: str,
) -> Answer:
    """Answer whether a change exceeds both the rounding and ``min_change``."""
    answer: Verdict = "yes" if change >= max(rounding, min_change) else "no"
    reason = (
        "rounding"
        if change < rounding
        else "slight"
        if change < min_change
        else "changed"
    )
    # A change that is too slight to matter is no evidence either.
    test = Test(change, math.nan, rounding, (0.0, max(rounding, min_change)), "rounding")
    return Answer(question, answer, reason, facts, test, keys)


def _ask_permutation(question: str, variant: str) -> AskRun:
    def ask(run: ModelRun) -> Answer | None:
        effect: PermutationEffect | None = run.results.get("permutation")
        if effect is None:
            return None
        change = getattr(effect, variant).tokens
        facts, key = StateChange(change, run.images), f"permutation.{variant}.tokens"
        return _answer_change(
            question, change, run.rounding, MIN_RELEVANT_CHANGE, facts, key
        )

    return ask


def ask_absolute(run: ModelRun) -> Answer | None:
    """Ask whether outputs change when all positions are shifted."""
    phase_shift: PhaseShift | None = run.results.get("shift")
    if phase_shift is None:
        return None
    keys = ("shift.change", "shift.shifts")
    shifted_changes = zip(
        phase_shift.change.tolist(), phase_shift.shifts.tolist(), strict=True
    )
    changes = [(change, shift) for change, shift in shifted_changes if shift]
    if not changes:
        return Answer("absolute", "cannot tell", "no_room", keys=keys)
    largest_change, shift = max(changes)
    facts = StateChange(largest_change, shift=shift)
    limits = (run.rounding, MIN_RELEVANT_CHANGE)
    return _answer_change("absolute", largest_change, *limits, facts, *keys)


@dataclass(frozen=True)
class Overlap:
    """Share of the tokens' variance in the leading position directions.

    Parameters
    ----------
    rank, width
        Number of position directions, and dimensions of the space.
    share
        Share of the variance of the tokens; None where that is undefined.
    expected
        Mean share in random subspaces.
    """

    rank: int
    width: int
    share: float | None
    expected: float

    value = value_property("share")


def ask_apart(run: ModelRun) -> Answer | None:
    """Ask whether positions avoid the directions of tokens, compared with random subspaces."""
    overlap: SubspaceOverlap | None = run.results.get("subspaces")
    if overlap is None:
        return None
    share, (low, high) = overlap.variance, overlap.variance.band
    facts = Overlap(overlap.rank, len(overlap.cosine_change), share.value, share.expected)
    keys = ("subspaces.variance",)
    if share.value is None:
        return Answer("apart", "cannot tell", "all_alike", facts, keys=keys)
    # One random subspace in ten lies outside the band, so that a claim needs a margin. A larger
    # share is no evidence of avoidance, whatever chance gives.
    margin = max(high - low, SENTENCE_SHARE_STEP)
    interval = max(low - margin, 0.0), 1.0
    test = Test(share.value, math.nan, share.expected, interval, "random subspaces")
    answer: Verdict = "no"
    reason = "more" if share.value > high + margin else "chance"
    if share.expected > MAX_RANDOM_SUBSPACE_SHARE:
        answer, reason = "cannot tell", "no_room"
    elif share.value < low - margin:
        is_small = share.value > MAX_SEPARATE_SHARE_RATIO * share.expected
        answer, reason = ("cannot tell", "small") if is_small else ("yes", "less")
    elif share.value < low:
        answer, reason = "cannot tell", "open"
    return Answer("apart", answer, reason, facts, test, keys)


@dataclass(frozen=True)
class BlankImage:
    """Hidden states of an image of one grey at the last layer.

    Parameters
    ----------
    layer
        Number of the layer.
    share
        Share of the squared norm of the states that differs between patches.
    cosine
        Mean cosine with the position table, None where it is undefined.
    """

    layer: int
    share: float
    cosine: float | None

    value = value_property("share")


def ask_blank(run: ModelRun) -> Answer | None:
    """Ask whether positions alone distinguish the patches of an image of one grey."""
    blank_images: BlankImages | None = run.results.get("blank")
    if blank_images is None:
        return None
    measured_layers = [
        (index, BlankImage(number, pattern.share, pattern.alignment))
        for index, (number, pattern) in enumerate(blank_images.constant.items())
        if pattern.share is not None
    ]
    if not measured_layers:
        return Answer("blank", "cannot tell", "no_states", keys=("blank.layers",))
    index, facts = measured_layers[-1]
    keys = [f"blank.layers.{index}.constant.{key}" for key in ("share", "alignment")]
    # Shares are ratios of squares, so the limits are squared.
    limits = (run.rounding**2, MIN_RELEVANT_CHANGE**2)
    return _answer_change("blank", facts.share, *limits, facts, *keys)


# Cost of removing positions, and of substitutes for them.


@dataclass(frozen=True)
class CostMeasure:
    """Description of a cost: what is replaced, and what is measured.

    Parameters
    ----------
    scheme
        Encoding that is replaced: the rows of a table, rotations, or biases.
    table
        Name of the model's parameter or buffer.
    measure
        Name of the cost: loss, divergence, answers or states.
    task
        Task of the model.
    """

    scheme: Scheme
    table: str
    measure: str
    task: str


@dataclass(frozen=True)
class Removal:
    """Cost of removing positions.

    Parameters
    ----------
    worth
        Description of the cost.
    cost, error
        Mean cost over contexts and its standard error, in nats, or for states as a share of their
        norm. The cost is None where outputs are not finite; the error also for one context.
    loss, loss_error
        Loss of the unchanged model in nats and its standard error; None where it has no loss.
    answers, answers_error
        Share of the top answers that change, and its standard error; None where there are none.
    small
        Largest cost that counts as no loss.
    """

    worth: CostMeasure
    cost: float | None
    error: float | None
    loss: float | None
    loss_error: float | None
    answers: float | None
    answers_error: float | None
    small: float = MIN_RELEVANT_CHANGE

    value = value_property("cost")

    @property
    def most(self) -> float | None:
        """Upper bound of the cost: `N_SURE_STANDARD_ERRORS` standard errors above it."""
        if self.cost is None or self.error is None:
            return None
        return self.cost + N_SURE_STANDARD_ERRORS * self.error


@dataclass(frozen=True)
class SufficientSubstitute:
    """The first sufficient substitute for positions, or else the best one.

    Parameters
    ----------
    label
        Name of the substitute in the table of costs.
    size
        Number of components; None for random tables.
    kept, error
        Share of the cost of removal that it saves, and its standard error.
    of
        Number of substitutes that were tried.
    worth
        Description of the cost.
    """

    label: str
    size: int | None
    kept: float
    error: float
    of: int
    worth: CostMeasure

    value = value_property("kept")


def _cost_measure(effect: SubstitutionEffect) -> CostMeasure:
    return CostMeasure(effect.scheme, effect.table, effect.measure, effect.task)


def _cost_key(effect: SubstitutionEffect, substitute: Substitute) -> str:
    return f"substitution.substitutes.{effect.substitutes.index(substitute)}.{effect.measure}"


def ask_needed(run: ModelRun) -> Answer | None:
    """Ask whether the model loses something when its positions are removed."""
    effect: SubstitutionEffect | None = run.results.get("substitution")
    if effect is None:
        return None
    removed = effect[effect.removed]
    cost, changed_answers = removed.costs[effect.measure], removed.costs.get("answers")
    facts = Removal(
        worth=_cost_measure(effect),
        cost=cost.value,
        error=cost.error,
        loss=effect.loss,
        loss_error=effect.loss_error,
        answers=changed_answers.value if changed_answers else None,
        answers_error=changed_answers.error if changed_answers else None,
    )
    test = None
    if cost.value is not None:
        band = None if cost.error is None else _band(0.0, cost.error)
        test = Test(cost.value, math.nan, 0.0, band, "no cost")
    answer, reason = _judge_cost(cost, facts.most)
    return Answer("needed", answer, reason, facts, test, (_cost_key(effect, removed),))


def _band(mean: float, error: float) -> tuple[float, float]:
    """Return the 5 and 95 % quantiles of a normal distribution with this standard error."""
    return mean - N_BAND_STANDARD_ERRORS * error, mean + N_BAND_STANDARD_ERRORS * error


def _judge_cost(cost: Cost, upper_bound: float | None) -> tuple[Verdict, str]:
    if cost.value is None:
        return "cannot tell", "not_finite"
    if upper_bound is None:
        return "cannot tell", "one_context"
    if cost.is_gain and cost.value < -MIN_RELEVANT_CHANGE:
        return "no", "gain"
    # Any change makes a divergence positive, so a tiny one is no loss, however certain it is.
    if upper_bound < MIN_RELEVANT_CHANGE:
        return "no", "little"
    # A loss that is not significant is no evidence of none: few contexts show nothing.
    if cost.kept is None:
        return "cannot tell", "open"
    return (
        ("yes", "loses")
        if cost.value >= MIN_RELEVANT_CHANGE
        else ("cannot tell", "small")
    )


def _has_few_components(substitute: Substitute) -> bool:
    return (
        substitute.kind == "components" and (substitute.size or 0) <= MAX_FEW_COMPONENTS
    )


def _ask_substitutes(question: str, is_candidate: Callable[[Substitute], bool]) -> AskRun:
    """Make the question whether one of the candidates keeps `MIN_SUFFICIENT_SHARE`.

    It is asked only where removing positions costs something.
    """

    def ask(run: ModelRun) -> Answer | None:
        effect: SubstitutionEffect | None = run.results.get("substitution")
        needed_answer = ask_needed(run)
        if effect is None or needed_answer is None or not needed_answer.yes:
            return None
        costs = [
            (substitute, substitute.costs[effect.measure])
            for substitute in effect.substitutes
            if is_candidate(substitute)
        ]
        kept_shares = [
            (substitute, cost.kept, cost.kept_error)
            for substitute, cost in costs
            if cost.kept is not None and cost.kept_error is not None
        ]
        if not kept_shares:
            return None
        lower, upper = (
            [
                share + sign * N_SURE_STANDARD_ERRORS * error
                for _, share, error in kept_shares
            ]
            for sign in (-1, 1)
        )
        sufficient = [bound >= MIN_SUFFICIENT_SHARE for bound in lower]
        best = max(kept_shares, key=lambda kept_share: kept_share[1])
        substitute, share, error = (
            kept_shares[sufficient.index(True)] if any(sufficient) else best
        )
        facts = SufficientSubstitute(
            label=substitute.label,
            size=substitute.size,
            kept=share,
            error=error,
            of=len(kept_shares),
            worth=_cost_measure(effect),
        )
        band = _band(MIN_SUFFICIENT_SHARE, error)
        test = Test(share, math.nan, MIN_SUFFICIENT_SHARE, band, "90 % kept")
        keys = tuple(_cost_key(effect, substitute) for substitute, _, _ in kept_shares)
        answer: Verdict = "no"
        reason = "less"
        if any(sufficient):
            answer, reason = "yes", "enough"
        elif max(upper) >= MIN_SUFFICIENT_SHARE:
            answer, reason = "cannot tell", "open"
        return Answer(question, answer, reason, facts, test, keys)

    return ask


#: Questions by name, in the order of the page.
RUN_QUESTIONS: Mapping[str, AskRun] = {
    "position_decides": ask_position,
    "distance": ask_distance,
    "own_places": ask_places,
    "first": ask_first,
    "kept": ask_kept,
    "order": _ask_permutation("order", "with_positions"),
    "order_without": _ask_permutation("order_without", "without_positions"),
    "absolute": ask_absolute,
    "apart": ask_apart,
    "blank": ask_blank,
    "weigh_alike": lambda run: ask_weigh_alike(run.results.get("places")),
    "by_table": lambda run: ask_by_table(run.results.get("places")),
    "reach": lambda run: ask_reach(run.results.get("places")),
    "needed": ask_needed,
    "few": _ask_substitutes("few", _has_few_components),
    "random": _ask_substitutes("random", lambda substitute: substitute.kind == "null"),
}
