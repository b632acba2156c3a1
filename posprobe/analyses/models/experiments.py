"""Results of experiments on a running model.

Tokens are permuted, positions shifted, images blank, and substitutes take the place of the position
table. Costs are means over contexts, with standard errors, and are compared with the cost of
removing the table. `posprobe.forward` runs the experiments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.resampling import jackknife_error
from posprobe.analyses.result import HIDDEN, JsonType, NumberSuffixes, Result, StoredArray
from posprobe.arrays import Floats
from posprobe.layouts import Grid, Layout
from posprobe.number_types import Count, Natural, NonNegative, Reasons, Share, limits


@dataclass(frozen=True)
class Change:
    """What changes when a model's tokens are permuted.

    Parameters
    ----------
    tokens
        Relative change of the last hidden states, each compared with that of the same token at its
        new place: 0 where the model knows no order.
    special
        Relative change of the last hidden states of tokens that stay, such as CLS of an image
        model; None where there are none.
    accuracy, scrambled_accuracy
        Share of the contexts that are classified right, as they are and permuted; None without
        labels.
    """

    tokens: NonNegative
    special: float | None
    accuracy: float | None
    scrambled_accuracy: float | None


#: Reasons for undefined numbers of a permutation, by key.
_PERMUTATION_REASONS = {
    "special": "all tokens are permuted, none stays",
    "accuracy": "the contexts have no labels",
    "scrambled_accuracy": "the contexts have no labels",
}


@dataclass(frozen=True, repr=False)
class PermutationEffect(Result):
    """The experiment on a model as it is and on the same model with its position table set to 0.

    Parameters
    ----------
    with_positions, without_positions
        Changes with the model's positions, and without them.
    contexts
        Number of contexts, each permuted in its own way.
    seed
        Seed of the permutations.
    table
        Name of the parameter that was set to 0.
    stopped
        Whether the run was interrupted, so that there are fewer contexts than were asked for.
    """

    figures: ClassVar[str] = "experiments.plot_permutation"

    with_positions: Change
    without_positions: Change
    contexts: Natural
    seed: int
    table: str
    stopped: Annotated[bool, HIDDEN] = False

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for numbers that are None."""
        change = self.with_positions
        return {
            name: reason
            for name, reason in _PERMUTATION_REASONS.items()
            if getattr(change, name) is None
        }


@dataclass(frozen=True, eq=False, repr=False)
class PhaseShift(Result):
    """The same contexts with all positions counted from a later one (Sinha et al. 2022).

    Parameters
    ----------
    shifts
        ``[s]``, rising from 0: position of the first token.
    change
        ``[s]``: relative change of the last hidden states against those at shift 0. Where only
        distances count it is rounding.
    loss
        ``[s]``: mean cross-entropy per predicted token, in nats; its exponential is the perplexity.
        None for a model without a language-modelling head, or whose mask is not known.
    task
        Task of the model: ``"next token"``, ``"masked token"`` or empty.
    contexts
        Number of contexts.
    stopped
        Whether the run was interrupted, so that there are fewer contexts than were asked for.
    """

    figures: ClassVar[str] = "experiments.plot_phase_shift"

    shifts: Annotated[
        NDArray[np.int64],
        JsonType(list[Count]),
        limits(minItems=1),
        StoredArray("shifts"),
    ]
    change: Annotated[
        NDArray[np.float64], JsonType(list[NonNegative]), StoredArray("shift_change")
    ]
    loss: Annotated[NDArray[np.float64] | None, "Nats per predicted token, by shift."]
    task: Annotated[str, JsonType(str | None, lambda effect: effect.task or None)]
    contexts: Natural
    stopped: Annotated[bool, HIDDEN] = False

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for a loss that is None."""
        return {} if self.loss is not None else {"loss": self._explain_missing_loss()}

    def _explain_missing_loss(self) -> str:
        if self.task:
            return "which token masks another is not known without a tokenizer"
        return "the model was loaded without a head that predicts tokens"


@dataclass(frozen=True, eq=False)
class Pattern:
    """What differs between the patches of one image without content, at one layer.

    Parameters
    ----------
    share
        Squared norm of the states less their mean over patches, over that of the states.
    alignment
        Mean over patches of the cosine of a patch's state with the row of its position in the
        table, both less their means over patches; None where either has no direction.
    cka
        Debiased linear CKA of states and table, which a rotation between the two leaves as it is;
        None where either is constant.
    norms
        ``[h, w]``: norm of each patch's state less the mean of all.
    """

    share: float | None
    alignment: float | None
    cka: float | None
    norms: Annotated[NDArray[np.float64], StoredArray("blank")]


@dataclass(frozen=True)
class LayerPatterns:
    """The same of both images at one layer."""

    constant: Annotated[Pattern, NumberSuffixes(stored="_constant")]
    noise: Annotated[Pattern, NumberSuffixes(stored="_noise")]


@dataclass(frozen=True, eq=False, repr=False)
class BlankImages(Result):
    """Hidden states of images without content, which only positions can tell apart.

    Yang et al. 2024 (Denoising Vision Transformers) find the grid pattern of such images in the
    features of ordinary ones.

    Parameters
    ----------
    constant
        Results by layer for an image of zeros, the mean grey; 0 is what enters the first layer.
    noise
        Results by layer for one image of independent normal pixels.
    layout
        Layout of the patches.
    seed
        Seed of the noise.
    table
        Name of the parameter that states are compared with.
    """

    figures: ClassVar[str] = "experiments.plot_blank"

    constant: Annotated[Mapping[int, Pattern], HIDDEN]
    noise: Annotated[Mapping[int, Pattern], HIDDEN]
    layout: Grid
    seed: int
    table: str

    @property
    def layers(
        self,
    ) -> Annotated[Mapping[int, LayerPatterns], limits(minItems=1), NumberSuffixes()]:
        """Both by layer."""
        return {
            k: LayerPatterns(pattern, self.noise[k])
            for k, pattern in self.constant.items()
        }

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for each number that is None."""
        reasons = {
            "alignment": "the patches' states or rows are all equal, or their widths differ",
            "cka": "the patches' states or rows are all equal, or there are too few",
            "share": "all hidden states are 0",
        }
        patterns = [*self.constant.values(), *self.noise.values()]
        undefined_keys = {
            key for key in reasons if any(getattr(p, key) is None for p in patterns)
        }
        return {key: reason for key, reason in reasons.items() if key in undefined_keys}


#: Measure of a cost: the loss in nats; the Kullback-Leibler divergence of the outputs from the
#: unchanged model's, in nats; the share of top answers that change; the norm of the change of the
#: last hidden states over their norm.
Measure: TypeAlias = Literal["loss", "divergence", "answers", "states"]


MEASURES: tuple[Measure, ...] = get_args(Measure)


#: Scheme that is replaced: the rows of a table, the frequencies of rotations, or heads' biases.
Scheme: TypeAlias = Literal["table", "rotary", "relative"]


#: Shares of the cost of removing the table are given only if that cost is at least so many standard
#: errors. Below, the quotient of two uncertain numbers has no useful standard error.
MIN_COST_STANDARD_ERRORS = 3.0


#: Number of first positions whose share in the cost of removal is reported. A model has then read
#: about a line of text.
N_EARLY_POSITIONS = 16


@dataclass(frozen=True)
class Cost:
    """What a substitute costs.

    Parameters
    ----------
    value
        Mean over contexts; None where outputs are not finite.
    error
        Standard error over contexts; None for a single context.
    kept
        1 less the cost over that of removing the table: 1 where nothing is lost, 0 where as much as
        with the mean row in place of every row, below 0 where more. None where removing costs less
        than `MIN_COST_STANDARD_ERRORS` of its standard errors.
    kept_error
        Standard error of ``kept`` by the jackknife over contexts, of which each has both costs.
    """

    value: float | None
    error: Annotated[NonNegative | None, "Standard error over contexts."]
    kept: Annotated[float | None, "1 less the cost over that of removing the table."]
    kept_error: Annotated[
        NonNegative | None, "Its standard error, by the jackknife over contexts."
    ]

    @property
    def is_gain(self) -> bool:
        """Whether the model is better with the substitute, by so many standard errors."""
        return is_gain(self.value, self.error)


@dataclass(frozen=True)
class AttentionShare:
    """Attention that goes to one range of distances."""

    value: Share | None
    error: Annotated[NonNegative | None, "Standard error over contexts."]


def _list_attention_shares(substitute: Substitute) -> list[AttentionShare] | None:
    return (
        None
        if substitute.attention is None
        else [
            AttentionShare(*mean_error_pair) for mean_error_pair in substitute.attention
        ]
    )


@dataclass(frozen=True, eq=False)
class Substitute:
    """A table that stood in the place of the model's own.

    Parameters
    ----------
    name, label, kind, size
        Fields of `posprobe.forward.replacements.Explanation`.
    variance
        Share of the table's variance that it keeps; None of a constant table.
    costs
        Costs by measure.
    cka, cka_error
        Mean debiased linear CKA of the last hidden states with those of the unchanged model within
        a context, and its standard error; None for a model with a head, and where undefined.
    attention
        For each range of distances the mean share of the attention of positions that goes there,
        over heads and layers, and its standard error over contexts; None where none is shown.
    """

    name: str
    label: str
    kind: str
    size: Natural | None
    variance: Annotated[float | None, "Share of the table's variance that it keeps."]
    costs: Annotated[Mapping[str, Cost], HIDDEN]
    cka: Annotated[
        float | None, "Debiased, of the last hidden states with the unchanged model's."
    ] = None
    cka_error: NonNegative | None = None
    attention: Annotated[
        tuple[tuple[float | None, float | None], ...] | None,
        JsonType(list[AttentionShare] | None, _list_attention_shares),
        "Share of the attention of positions by range of distances, mean over heads and layers.",
    ] = None

    @property
    def loss(self) -> Annotated[Cost | None, "Its change."]:
        """Cost in loss; None if it was not measured."""
        return self.costs.get("loss")

    @property
    def divergence(self) -> Annotated[Cost | None, ""]:
        """Cost in divergence; None if it was not measured."""
        return self.costs.get("divergence")

    @property
    def answers(self) -> Annotated[Cost | None, ""]:
        """Cost in top answers; None if it was not measured."""
        return self.costs.get("answers")

    @property
    def states(self) -> Annotated[Cost | None, ""]:
        """Cost in hidden states; None if it was not measured."""
        return self.costs.get("states")


@dataclass(frozen=True)
class Early:
    """The part of the first positions in what removing the table costs.

    Parameters
    ----------
    positions
        Number of first positions.
    cost
        Share of the first positions in the cost.
    of
        Share of the first positions in the weights.
    """

    positions: Natural
    cost: Annotated[float, "Share of the cost."]
    of: Annotated[Share, "Share of what is counted: of the predicted tokens, or of all."]


@dataclass(frozen=True, eq=False, repr=False)
class SubstitutionEffect(Result):
    """What a model loses when explanations of its position table stand in the table's place.

    Parameters
    ----------
    substitutes
        Substitutes in the order in which they were run; the first is the table itself, which costs
        nothing.
    measure
        The cost that sentences are about: ``"loss"`` where the model has one, else
        ``"divergence"`` where it gives answers, else ``"states"``.
    removed
        Name of the substitute that counts as removing the table.
    contexts
        Number of contexts.
    seed
        Seed of the null models and of the choice of masked tokens.
    table
        Name of the model's parameter or buffer; of several the first.
    layout, start
        Layout and first of the positions that were replaced: those that the contexts reach.
    scheme
        Part that is replaced: the rows of a table, the frequencies of rotations, or heads' biases.
    task
        Task of the model: ``"next token"``, ``"masked token"`` or empty.
    loss, loss_error
        Loss of the unchanged model in nats, with its standard error over contexts.
    by_position, by_position_error
        ``[m, t]``: mean over contexts of the cost by position, and its standard error; None where
        outputs have no positions.
    unchanged
        ``[t]``: loss of the unchanged model by position, at the place whose output predicts; NaN
        where nothing is predicted; None without a loss.
    early
        Share of the first positions in what removing the table costs; None where it is undefined.
    distances
        First distance of each range of `Substitute.attention`; the last is open. On a grid the
        larger of those along rows and columns. Attention to the first position of a sequence is
        not counted. None where the model shows no attention.
    undefined
        Reason for each number that is None.
    stopped
        Whether the run was interrupted, so that there are fewer contexts than were asked for.
    notes
        Further remarks for the reader.
    """

    figures: ClassVar[str] = "substitution.plot_substitution"

    substitutes: tuple[Substitute, ...]
    measure: Annotated[str, "The cost that sentences are about."]
    removed: Annotated[str, "The substitute that counts as removing the table."]
    contexts: Natural
    seed: int
    table: str
    layout: Layout
    start: Count
    scheme: Scheme = "table"
    task: Annotated[
        str,
        JsonType(str | None, lambda effect: effect.task or None),
        "What the model predicts, where it has a loss.",
    ] = ""
    loss: Annotated[float | None, "Of the unchanged model, in nats."] = None
    loss_error: NonNegative | None = None
    by_position: Annotated[Floats | None, StoredArray("substitution_by_position")] = None
    by_position_error: Annotated[
        Floats | None, StoredArray("substitution_by_position_error")
    ] = None
    unchanged: Annotated[Floats | None, StoredArray("substitution_unchanged")] = None
    early: Early | None = None
    distances: Annotated[
        tuple[int, ...] | None,
        JsonType(list[Count] | None),
        "First distance of each range; the last is open.",
    ] = None
    undefined: Annotated[Mapping[str, str], JsonType(Reasons)] = field(
        default_factory=dict
    )
    stopped: Annotated[bool, HIDDEN] = False
    notes: Annotated[tuple[str, ...], HIDDEN] = ()

    def __getitem__(self, name: str) -> Substitute:
        """Return a substitute by its name."""
        return next(
            substitute for substitute in self.substitutes if substitute.name == name
        )


def costs(
    sums: Floats,
    weights: Floats,
    removed_index: int,
    *,
    norm: bool = False,
    rounding: float = 0.0,
) -> list[Cost]:
    """Average costs over contexts, and compare them with the cost of removing the table.

    A cost is the sum over contexts over the sum of the weights. Its error is that of the jackknife,
    which is the usual standard error if all weights are equal (Efron & Stein 1981). The kept share
    is 1 less the quotient of two such costs of the same contexts.

    Parameters
    ----------
    sums
        ``[m, c]``: of each substitute in each context.
    weights
        ``[c]``, what sums are to be divided by: of answers, or of squared norms.
    removed_index
        Index of the substitute that counts as removing the table.
    norm
        Whether costs are roots of the quotients, as norms are of their squares.
    rounding
        Cost up to which the removal of the table is the model's own rounding.

    Returns
    -------
    list
        One cost for each substitute.
    """
    count = sums.shape[1]
    total = float(weights.sum())
    if not total:
        return [Cost(None, None, None, None)] * len(sums)

    def cost(cost_sum: Floats, weight: Floats | float) -> Floats:
        mean = cost_sum / np.maximum(weight, np.finfo(np.float64).tiny)
        return np.sqrt(np.maximum(mean, 0.0)) if norm else mean

    totals = sums.sum(axis=1)
    values = cost(totals, total)
    remaining = np.maximum(total - weights, 0.0)
    left_out_costs = np.zeros((len(sums), 0))
    errors, min_damage = np.full(len(sums), np.nan), np.nan
    # Without its only context with a weight, a cost would be divided by 0.
    if count > 1 and bool((remaining > 1e-12 * total).all()):
        left_out_costs = cost(totals[:, None] - sums, remaining)
        errors = jackknife_error(left_out_costs.T)
        min_damage = max(
            MIN_COST_STANDARD_ERRORS * float(errors[removed_index]), rounding
        )
    damage = float(values[removed_index])
    kept_shares = np.full(len(sums), np.nan)
    kept_errors = np.full(len(sums), np.nan)
    if damage > min_damage and (left_out_costs[removed_index] > 0).all():
        kept_shares = 1 - values / damage
        kept_errors = jackknife_error(
            (1 - left_out_costs / left_out_costs[removed_index]).T
        )
    return [
        Cost(*(float(number) if np.isfinite(number) else None for number in numbers))
        for numbers in zip(values, errors, kept_shares, kept_errors, strict=True)
    ]


def is_gain(value: float | None, error: float | None) -> bool:
    """Tell whether a cost is below 0 by `MIN_COST_STANDARD_ERRORS`; False for one context."""
    if value is None or error is None:
        return False
    return value < 0 and -value >= MIN_COST_STANDARD_ERRORS * error


def mean_and_error(values: Floats) -> tuple[float | None, float | None]:
    """Return the mean of the finite values, and its standard error; None without any."""
    finite_values = values[np.isfinite(values)]
    if not finite_values.size:
        return None, None
    error = (
        float(finite_values.std(ddof=1) / np.sqrt(finite_values.size))
        if finite_values.size > 1
        else None
    )
    return float(finite_values.mean()), error


def by_position(
    sums: Floats, weight: Floats, count: Floats, *, norm: bool = False
) -> tuple[Floats, Floats]:
    """Average a cost over contexts at each position.

    Parameters
    ----------
    sums
        ``[2, m, t]``: of the cost over contexts, and of its square.
    weight, count
        ``[t]``: what sums are to be divided by, and how many contexts have one.
    norm
        Whether costs are roots of the quotients.

    Returns
    -------
    tuple
        ``[m, t]`` means, and ``[m, t]`` their standard errors where all weights are 1; NaN where
        nothing is counted, and where one context alone is.
    """
    mean = sums[0] / np.where(weight > 0, weight, np.nan)
    if norm:
        return np.sqrt(np.maximum(mean, 0.0)), np.full_like(mean, np.nan)
    spread = np.maximum(sums[1] / np.where(count > 0, count, np.nan) - mean**2, 0.0)
    return mean, np.sqrt(spread / np.where(count > 1, count - 1, np.nan))


def measure_early(position_sums: Floats, weight: Floats) -> Early | None:
    """Return the share of the first positions in a mean cost over contexts and positions.

    Parameters
    ----------
    position_sums
        ``[t]``: sums over contexts.
    weight
        ``[t]``: what is counted at each position.

    Returns
    -------
    Early or None
        None where these are half of the positions or more, or the cost is not above 0.
    """
    total = float(np.nansum(position_sums))
    if len(position_sums) <= 2 * N_EARLY_POSITIONS or not total > 0:
        return None
    early_sum = float(np.nansum(position_sums[:N_EARLY_POSITIONS]))
    return Early(
        N_EARLY_POSITIONS,
        early_sum / total,
        float(weight[:N_EARLY_POSITIONS].sum() / weight.sum()),
    )
