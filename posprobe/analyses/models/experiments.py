"""What experiments on a running model found.

Tokens permuted, positions shifted, images blank, and something else in the place of the position
table: costs are added up over contexts, with standard errors, and set beside what removing the
table costs. The experiments themselves are in `posprobe.forward`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.result import HIDDEN, As, Part, Result, Stored
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


#: Why numbers of permutations are unknown.
_UNKNOWN = {
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
        known = self.with_positions
        return {name: why for name, why in _UNKNOWN.items() if getattr(known, name) is None}


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

    shifts: Annotated[NDArray[np.int64], As(list[Count]), limits(minItems=1), Stored("shifts")]
    change: Annotated[NDArray[np.float64], As(list[NonNegative]), Stored("shift_change")]
    loss: Annotated[NDArray[np.float64] | None, "Nats per predicted token, by shift."]
    task: Annotated[str, As(str | None, lambda found: found.task or None)]
    contexts: Natural
    stopped: Annotated[bool, HIDDEN] = False

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for a loss that is None."""
        return {} if self.loss is not None else {"loss": self._why()}

    def _why(self) -> str:
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
    norms: Annotated[NDArray[np.float64], Stored("blank")]


@dataclass(frozen=True)
class LayerPatterns:
    """The same of both images at one layer."""

    constant: Annotated[Pattern, Part(stored="_constant")]
    noise: Annotated[Pattern, Part(stored="_noise")]


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
    ) -> Annotated[Mapping[int, LayerPatterns], limits(minItems=1), Part()]:
        """Both by layer."""
        return {k: LayerPatterns(pattern, self.noise[k]) for k, pattern in self.constant.items()}

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for each number that is None."""
        reasons = {
            "alignment": "the patches' states or rows are all equal, or their widths differ",
            "cka": "the patches' states or rows are all equal, or there are too few",
            "share": "all hidden states are 0",
        }
        patterns = [*self.constant.values(), *self.noise.values()]
        lacking = {key for key in reasons if any(getattr(p, key) is None for p in patterns)}
        return {key: why for key, why in reasons.items() if key in lacking}


#: What a cost is one of: the loss in nats; the Kullback-Leibler divergence of the outputs from the
#: unchanged model's, in nats; the share of top answers that are others; the norm of the change of
#: the last hidden states over theirs.
Measure: TypeAlias = Literal["loss", "divergence", "answers", "states"]


MEASURES: tuple[Measure, ...] = get_args(Measure)


#: What is replaced: the rows of a table, the frequencies of rotations, or the biases of heads.
Scheme: TypeAlias = Literal["table", "rotary", "relative"]


#: Standard errors by which removing the table must cost something for shares of that to mean
#: anything: a quotient of two uncertain numbers has no spread to speak of below.
CERTAIN = 3.0


#: First positions whose part in the cost of removal is reported: by then a model has seen a line of
#: text.
EARLY = 16


@dataclass(frozen=True)
class Cost:
    """What a substitute costs.

    Parameters
    ----------
    value
        Mean over contexts; None where outputs are not finite.
    error
        Its standard error over contexts; None of a single one.
    kept
        1 less the cost over that of removing the table: 1 where nothing is lost, 0 where as much as
        with the mean row in place of every row, below 0 where more. None where removing costs less
        than `CERTAIN` of its standard errors.
    kept_error
        Its standard error: the jackknife over contexts, of which each has both costs.
    """

    value: float | None
    error: Annotated[NonNegative | None, "Standard error over contexts."]
    kept: Annotated[float | None, "1 less the cost over that of removing the table."]
    kept_error: Annotated[NonNegative | None, "Its standard error, by the jackknife over contexts."]

    @property
    def is_gain(self) -> bool:
        """Whether the model does better with the substitute, by `CERTAIN` standard errors."""
        return is_gain(self.value, self.error)


@dataclass(frozen=True)
class AttentionShare:
    """Attention that goes to one range of distances."""

    value: Share | None
    error: Annotated[NonNegative | None, "Standard error over contexts."]


def _attention(found: Substitute) -> list[AttentionShare] | None:
    return None if found.attention is None else [AttentionShare(*each) for each in found.attention]


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
        As(list[AttentionShare] | None, _attention),
        "Share of the attention of positions by range of distances, mean over heads and layers.",
    ] = None

    @property
    def loss(self) -> Annotated[Cost | None, "Its change."]:
        """Of the costs."""
        return self.costs.get("loss")

    @property
    def divergence(self) -> Annotated[Cost | None, ""]:
        """Of the costs."""
        return self.costs.get("divergence")

    @property
    def answers(self) -> Annotated[Cost | None, ""]:
        """Of the costs."""
        return self.costs.get("answers")

    @property
    def states(self) -> Annotated[Cost | None, ""]:
        """Of the costs."""
        return self.costs.get("states")


@dataclass(frozen=True)
class Early:
    """The part of the first positions in what removing the table costs.

    Parameters
    ----------
    positions
        Number of first positions.
    cost
        Their share of the cost.
    of
        Their share of what is counted.
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
        As(str | None, lambda found: found.task or None),
        "What the model predicts, where it has a loss.",
    ] = ""
    loss: Annotated[float | None, "Of the unchanged model, in nats."] = None
    loss_error: NonNegative | None = None
    by_position: Annotated[Floats | None, Stored("substitution_by_position")] = None
    by_position_error: Annotated[Floats | None, Stored("substitution_by_position_error")] = None
    unchanged: Annotated[Floats | None, Stored("substitution_unchanged")] = None
    early: Early | None = None
    distances: Annotated[
        tuple[int, ...] | None,
        As(list[Count] | None),
        "First distance of each range; the last is open.",
    ] = None
    undefined: Annotated[Mapping[str, str], As(Reasons)] = field(default_factory=dict)
    stopped: Annotated[bool, HIDDEN] = False
    notes: Annotated[tuple[str, ...], HIDDEN] = ()

    def __getitem__(self, name: str) -> Substitute:
        """Return a substitute by its name."""
        return next(each for each in self.substitutes if each.name == name)


def costs(
    sums: Floats, weights: Floats, removed: int, *, norm: bool = False, rounding: float = 0.0
) -> list[Cost]:
    """Average costs over contexts, and set them beside what removing the table costs.

    A cost is the sum over contexts over that of the weights, and its error that of the jackknife,
    which is the usual standard error where all weights are equal (Efron & Stein 1981). What is kept
    is 1 less the quotient of two such costs of the same contexts.

    Parameters
    ----------
    sums
        ``[m, c]``: of each substitute in each context.
    weights
        ``[c]``, what sums are to be divided by: of answers, or of squared norms.
    removed
        Name of the substitute that counts as removing the table.
    norm
        Whether costs are roots of the quotients, as norms are of their squares.
    rounding
        Cost up to which the removal of the table is the model's own rounding.

    Returns
    -------
    list
        One for each substitute.
    """
    count = sums.shape[1]
    total = float(weights.sum())
    if not total:
        return [Cost(None, None, None, None)] * len(sums)

    def cost(part: Floats, weight: Floats | float) -> Floats:
        mean = part / np.maximum(weight, np.finfo(np.float64).tiny)
        return np.sqrt(np.maximum(mean, 0.0)) if norm else mean

    whole = sums.sum(axis=1)
    value = cost(whole, total)
    # Leaving out the only context with a weight leaves nothing to divide by.
    rest = np.maximum(total - weights, 0.0)
    some = count > 1 and bool((rest > 1e-12 * total).all())
    without = cost(whole[:, None] - sums, rest) if some else np.zeros((len(sums), 0))
    error = _jackknife(without) if some else np.full(len(sums), np.nan)
    least = max(CERTAIN * float(error[removed]), rounding) if some else np.nan
    damage = float(value[removed])
    kept = np.full(len(sums), np.nan)
    kept_error = np.full(len(sums), np.nan)
    if damage > least and (without[removed] > 0).all():
        kept = 1 - value / damage
        kept_error = _jackknife(1 - without / without[removed])
    return [
        Cost(*(float(one) if np.isfinite(one) else None for one in each))
        for each in zip(value, error, kept, kept_error, strict=True)
    ]


def is_gain(value: float | None, error: float | None) -> bool:
    """Tell whether a cost is below 0 by `CERTAIN` standard errors or more; not of one context."""
    return value is not None and error is not None and value < 0 and -value >= CERTAIN * error


def mean_and_error(values: Floats) -> tuple[float | None, float | None]:
    """Return the mean of the values that are numbers, and its standard error; None of none."""
    known = values[np.isfinite(values)]
    if not known.size:
        return None, None
    error = float(known.std(ddof=1) / np.sqrt(known.size)) if known.size > 1 else None
    return float(known.mean()), error


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


def early(along: Floats, weight: Floats) -> Early | None:
    """Return the part of the first positions in a cost that is a mean over contexts and positions.

    Parameters
    ----------
    along
        ``[t]``: sums over contexts.
    weight
        ``[t]``: what is counted at each position.

    Returns
    -------
    Early or None
        None where these are half of the positions or more, or the cost is not above 0.
    """
    whole = float(np.nansum(along))
    if len(along) <= 2 * EARLY or not whole > 0:
        return None
    part = float(np.nansum(along[:EARLY]))
    return Early(EARLY, part / whole, float(weight[:EARLY].sum() / weight.sum()))


def _jackknife(without: Floats) -> Floats:
    """Return standard errors from numbers with each context left out: ``[m]`` of ``[m, c]``."""
    count = without.shape[1]
    return np.asarray(np.sqrt((count - 1) * without.var(axis=1)))
