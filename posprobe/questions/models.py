"""What is asked of a run of a model: each answer follows from the numbers of one measurement.

Where a question needs a random model to compare with, there is none, and it is not asked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from posprobe.analyses.facts import Answer, Test, Verdict
from posprobe.analyses.models.attention import AttentionByOffset
from posprobe.analyses.models.experiments import BlankImages, PhaseShift
from posprobe.analyses.models.head_logits import HeadsByLayer
from posprobe.analyses.models.rotary_use import MIN_CONTEXTS, Origin, RotaryUse
from posprobe.analyses.models.states import NOISY, LayerMeans, MeanDecomposition
from posprobe.analyses.models.subspaces import SubspaceOverlap
from posprobe.questions.base import LEAST_SHARE, Question

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


@dataclass(frozen=True, eq=False)
class Run:
    """What the questions see of a run of a model.

    Parameters
    ----------
    results
        By the name of the measurement.
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
        given = [
            found for found in self.results.values() if getattr(found, "source", "") != "sampled"
        ]
        return max((getattr(found, "contexts", 0) for found in given), default=0)


@dataclass(frozen=True)
class RunQuestion(Question[Run]):
    """A question about a run of a model, and whether the run has what it is asked of."""

    applies: Callable[[Run], bool] = lambda _: True


def measured(name: str) -> Callable[[Run], bool]:
    """Return whether a measurement was made, as a function of the run."""
    return lambda run: name in run.results


@dataclass(frozen=True)
class Layer:
    """What positions add to the hidden states of one layer.

    Parameters
    ----------
    layer
        Its number; 0 is what enters the first.
    share
        Of the variance of the hidden states, what goes along with position; None where all are
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
    contexts
        How many means are over.
    first, last
        The first layer whose hidden states differ, None where nothing can be told of it or it is
        the last, and the last layer that was looked at.
    """

    contexts: int
    first: Layer | None
    last: Layer

    @property
    def value(self) -> dict[str, Any] | None:
        """The shares of both layers, and their numbers."""
        if self.last.share is None:
            return None
        first = self.first or self.last
        return {
            "first": first.share, "last": self.last.share, "layers": [first.layer, self.last.layer],
        }  # fmt: skip


def _layer(number: int, found: LayerMeans) -> Layer:
    share = found.shares["position"] if found.shares else None
    known = found.noise_share is not None and share is not None
    noise = (found.noise_share or 0.0) * (share or 0.0) if known else None
    return Layer(number, share, noise, found.rank)


def kept(run: Run) -> Answer:
    """Ask whether positions show in the last hidden states, beside sampling noise."""
    found: MeanDecomposition = run.results["states"]
    if found.layout.size == 1:
        return Answer("kept", "cannot tell", "one_position", keys=("states.layout",))
    layers = [_layer(number, layer) for number, layer in found.layers.items()]
    end, last = len(layers) - 1, layers[-1]
    place = next((at for at, layer in enumerate(layers) if layer.share is not None), end)
    first = layers[place] if place < end and found.contexts > 1 else None
    facts = Kept(found.contexts, first, last)
    if last.share is None:
        seen = (f"states.layers.{place}.shares.position",) if first else ()
        keys = (*seen, f"states.layers.{end}.shares")
        return Answer("kept", "no", "equal_states", facts, keys=keys)
    if found.contexts == 1:
        return Answer("kept", "cannot tell", "one_context", keys=("states.contexts",))
    keys = tuple(
        f"states.layers.{at}.{key}"
        for at in dict.fromkeys((place, end))
        for key in ("shares.position", "noise_share", "rank")
    )
    test = None
    if last.noise is not None:
        drawn = found.layers[last.layer].noise_draws
        low, high = np.quantile(drawn or [last.noise], (0.05, 0.95)).tolist()
        band = (low, high) if len(drawn) > 1 else None
        test = Test(last.share, math.nan, last.noise, band, "sampling noise", len(drawn))
    answer, reason = _remains(last)
    return Answer("kept", answer, reason, facts, test, keys)


def _remains(last: Layer) -> tuple[Verdict, str]:
    if last.rank is None:
        return "no", "rounding"
    if last.rank == 0:
        # Little noise hides little: that nothing is seen is no evidence where there is much.
        little = last.noise is not None and last.noise <= HIDES_LITTLE
        return ("no", "noise") if little else ("cannot tell", "few_contexts")
    if not last.clear:
        return "cannot tell", "noisy"
    return ("no", "small") if (last.share or 0.0) < LEAST_SHARE else ("yes", "seen")


@dataclass(frozen=True)
class Changed:
    """How much the last hidden states change.

    Parameters
    ----------
    change
        Norm of the change over theirs.
    rounding
        What the model's rounding can account for.
    contexts
        How many were run.
    images
        Whether patches were permuted, not tokens.
    shift
        Position of the first token, where positions were shifted.
    """

    change: float
    rounding: float
    contexts: int
    images: bool = False
    shift: int | None = None

    @property
    def value(self) -> float:
        """The change."""
        return self.change


def _against_rounding(
    question: str, value: float, rounding: float, small: float, facts: Any, keys: tuple[str, ...]
) -> Answer:
    """Answer by a change, which is nothing up to the rounding, and little up to ``small``."""
    answer: Verdict = "yes"
    reason = "changed"
    if value < rounding:
        answer, reason = "no", "rounding"
    elif value < small:
        answer, reason = "no", "slight"
    test = Test(value, math.nan, rounding, (0.0, rounding), "rounding")
    return Answer(question, answer, reason, facts, test, keys)


def _permuted(question: str, kind: str) -> Callable[[Run], Answer]:
    def ask(run: Run) -> Answer:
        found = run.results["permutation"]
        change = getattr(found, kind).tokens
        facts = Changed(change, run.rounding, found.contexts, run.images)
        keys = (f"permutation.{kind}.tokens",)
        return _against_rounding(question, change, run.rounding, SMALL, facts, keys)

    return ask


def absolute(run: Run) -> Answer:
    """Ask whether outputs change when all positions are counted from a later one."""
    found: PhaseShift = run.results["shift"]
    keys = ("shift.change", "shift.shifts")
    pairs = zip(found.change.tolist(), found.shifts.tolist(), strict=True)
    moved = [(change, shift) for change, shift in pairs if shift]
    if not moved:
        return Answer("absolute", "cannot tell", "no_room", keys=keys)
    most, shift = max(moved)
    facts = Changed(most, run.rounding, found.contexts, shift=shift)
    return _against_rounding("absolute", most, run.rounding, SMALL, facts, keys)


@dataclass(frozen=True)
class Overlap:
    """How much of the tokens' variance lies in the leading position directions.

    Parameters
    ----------
    rank, width
        Position directions, and dimensions of the space.
    share
        Of the variance of the tokens; None where that is undefined.
    expected, low, high
        The same of random subspaces: the mean, and 5 and 95 %.
    """

    rank: int
    width: int
    share: float | None
    expected: float
    low: float
    high: float

    @property
    def value(self) -> float | None:
        """The share."""
        return self.share


def apart(run: Run) -> Answer:
    """Ask whether positions avoid the directions of tokens, beside random subspaces."""
    found: SubspaceOverlap = run.results["subspaces"]
    share, (low, high) = found.variance, found.variance.band
    width = len(found.cosine_change)
    facts = Overlap(found.rank, width, share.value, share.expected, low, high)
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
        Of the squared norm of the states, what differs between patches.
    cosine
        Mean cosine with the position table, None where it is undefined.
    rounding
        Share that the model's rounding can account for.
    """

    layer: int
    share: float
    cosine: float | None
    rounding: float

    @property
    def value(self) -> float:
        """The share."""
        return self.share


def blank(run: Run) -> Answer:
    """Ask whether positions alone tell the patches of an image of one grey apart."""
    found: BlankImages = run.results["blank"]
    known = [
        (place, number, pattern)
        for place, (number, pattern) in enumerate(found.constant.items())
        if pattern.share is not None
    ]
    if not known:
        return Answer("blank", "cannot tell", "no_states", keys=("blank.layers",))
    place, number, pattern = known[-1]
    # Shares are of squares.
    least, small = run.rounding**2, SMALL**2
    facts = Blank(number, pattern.share or 0.0, pattern.alignment, least)
    keys = tuple(f"blank.layers.{place}.constant.{key}" for key in ("share", "alignment"))
    return _against_rounding("blank", facts.share, least, small, facts, keys)


_CHANGES = ("changed", "slight", "rounding")
KEPT = RunQuestion(
    "kept", kept,
    ("seen", "small", "rounding", "noise", "few_contexts", "noisy", "equal_states", "one_context",
     "one_position"),
    applies=measured("states"),
)  # fmt: skip
INPUT_ORDER = RunQuestion(
    "order", _permuted("order", "with_positions"), _CHANGES, applies=measured("permutation")
)
ORDER_WITHOUT = RunQuestion(
    "order_without", _permuted("order_without", "without_positions"), _CHANGES,
    applies=measured("permutation"),
)  # fmt: skip
ABSOLUTE = RunQuestion("absolute", absolute, (*_CHANGES, "no_room"), applies=measured("shift"))
APART = RunQuestion(
    "apart", apart, ("less", "small", "chance", "more", "open", "no_room", "all_alike"),
    applies=measured("subspaces"),
)  # fmt: skip
BLANK = RunQuestion("blank", blank, (*_CHANGES, "no_states"), applies=measured("blank"))


#: Share of a head's, or a layer's, attention that is most of it.
MOST = 0.5
#: In short contexts any head pays most of its attention somewhere: what counts is twice as much as
#: equal logits would pay there.
TIMES = 2.0


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
        How many do, of how many.
    sharpest
        Largest attention of any head at the offset that it prefers, 0 where none prefers one.
    uniform
        What equal logits would pay there.
    layers
        How many layers were looked at.
    offsets
        Of the heads that do, the three most frequent.
    kinds
        How many different offsets these heads prefer.
    """

    heads: int
    of: int
    sharpest: float
    uniform: float
    layers: int
    offsets: tuple[Preferred, ...]
    kinds: int

    @property
    def value(self) -> dict[str, Any]:
        """The counts, and the largest attention."""
        return {"heads": self.heads, "of": self.of, "sharpest": self.sharpest}


def heads(run: Run) -> Answer:
    """Ask whether positions alone make a head look mainly at one offset."""
    found: HeadsByLayer = run.results["heads"]
    layers = tuple(found.layers.values())
    keys = tuple(f"heads.layers.{place}.attention" for place in range(len(layers)))
    if layers[0].layout.size == 1:
        return Answer("heads", "cannot tell", "one_position", keys=keys)
    every = [
        (attention, uniform, tuple(offset))
        for layer in layers
        for attention, uniform, offset in zip(
            np.nan_to_num(layer.attention).tolist(),
            np.nan_to_num(layer.uniform).tolist(),
            layer.peak.tolist(),
            strict=True,
        )
    ]
    sharpest, uniform, _ = max(every)
    sharp = Counter(offset for paid, even, offset in every if paid > max(MOST, TIMES * even))
    facts = Heads(
        heads=sharp.total(), of=len(every), sharpest=sharpest, uniform=uniform, layers=len(layers),
        offsets=tuple(Preferred(*each) for each in sharp.most_common(3)), kinds=len(sharp),
    )  # fmt: skip
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
        What uniform attention would pay.
    """

    layer: int
    attention: float
    uniform: float

    @property
    def value(self) -> float:
        """The attention."""
        return self.attention


def first(run: Run) -> Answer:
    """Ask whether most attention of a layer goes to the first position."""
    found: AttentionByOffset = run.results["attention"]
    keys: tuple[str, ...] = ("attention.uniform_first",)
    means = [
        (float(layer.first.mean()), place, number)
        for place, (number, layer) in enumerate(found.layers.items())
        if not np.isnan(layer.first).any()
    ]
    if not means:
        return Answer("first", "cannot tell", "no_layer", keys=keys)
    most, place, number = max(means)
    facts = First(number, most, found.uniform_first or 0.0)
    test = Test(most, math.nan, facts.uniform, None, "uniform attention")
    keys = (f"attention.layers.{place}.first", *keys)
    answer: Verdict = "yes" if most > MOST else "no"
    return Answer("first", answer, "most" if most > MOST else "less", facts, test, keys)


HEADS = RunQuestion(
    "heads", heads, ("sharp", "short", "even", "no_peak", "one_position"), applies=measured("heads")
)
#: Patches have no first position.
FIRST = RunQuestion(
    "first", first, ("most", "less", "no_layer"),
    applies=lambda run: "attention" in run.results
    and run.results["attention"].uniform_first is not None,
)  # fmt: skip


@dataclass(frozen=True)
class Preferring:
    """How many heads prefer a distance, and what distance explains.

    Parameters
    ----------
    share, least, most
        Distance share: median, smallest and largest of any head; None where none has one.
    yes, no, open
        Heads that do, that do not, and of which it cannot be told.
    never, positions
        Mean share of the usage in pairs that make no full turn within so many positions.
    contexts, length, source
        How many contexts of how many tokens, and what they are.
    """

    share: float | None
    least: float | None
    most: float | None
    yes: int
    no: int
    open: int
    never: float | None
    positions: int
    contexts: int
    length: int
    source: Origin

    @property
    def heads(self) -> int:
        """All of them."""
        return self.yes + self.no + self.open

    @property
    def value(self) -> dict[str, Any]:
        """The counts, and the median share."""
        return {"heads": self.yes, "of": self.heads, "share": self.share}


def distance(run: Run) -> Answer:
    """Ask whether any head prefers a distance."""
    found: RotaryUse = run.results["rotary_use"]
    told = found.summary
    keys = tuple(f"rotary_use.summary.{key}" for key in ("share", "yes", "no", "open", "never"))
    facts = Preferring(
        told.share, told.least, told.most, told.yes, told.no, told.open, told.never,
        told.positions, found.contexts, found.length, found.source,
    )  # fmt: skip
    if found.contexts < MIN_CONTEXTS or told.share is None:
        reason = "few_contexts" if found.contexts < MIN_CONTEXTS else "even"
        return Answer("distance", "cannot tell", reason, facts, keys=keys)
    if told.yes:
        return Answer("distance", "yes", "some", facts, keys=keys)
    if told.open:
        return Answer("distance", "cannot tell", "open", facts, keys=keys)
    return Answer("distance", "no", "no_head", facts, keys=keys)


DISTANCE = RunQuestion(
    "distance", distance, ("some", "open", "no_head", "few_contexts", "even"),
    applies=measured("rotary_use"),
)  # fmt: skip

#: In the order of the page.
QUESTIONS = (KEPT, INPUT_ORDER, ORDER_WITHOUT, ABSOLUTE, APART, HEADS, FIRST, BLANK, DISTANCE)
