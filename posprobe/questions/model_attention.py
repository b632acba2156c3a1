"""What the heads of a model make of positions: by their weights, and as measured on contexts."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from posprobe.analyses.attention_by_offset import AttentionByOffset
from posprobe.analyses.facts import Answer, Test, Verdict
from posprobe.analyses.head_logits import HeadsByLayer
from posprobe.questions.models import Run, RunQuestion, measured

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
