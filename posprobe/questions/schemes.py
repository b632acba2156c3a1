"""What encodings without a table tell attention about position, one kind after the other.

What a configuration decides, of rotary and linear positions, is known exactly. What was learned of
each distance is held against permuted distances, and of kernels side by side single numbers are
read. Questions are asked of the blocks of ``analysis.json``, numbered as they stand there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from posprobe.analyses.facts import Answer, Correction, Test, Verdict, decide
from posprobe.analyses.models.head_biases import SIDED
from posprobe.questions.base import Question, at_least, verdict_of
from posprobe.schemes import POSITIONS

Block: TypeAlias = Mapping[str, Any]
#: Encodings of one kind, with their places in the document.
Numbered: TypeAlias = Sequence[tuple[int, Block]]

#: Share of heads without structure that lie above 95 % of permutations.
CHANCE = 0.05
#: Share of steps that do not rise from which a curve falls steadily: as many as a test at the 5 %
#: level leaves to chance may rise.
STEADY = 0.95
#: Share of a kernel's variance by offset from which the offset alone decides, as of a sinusoid that
#: was rounded, and below which a tenth or more depends on something else.
DECIDES, LEAVES = 0.99, 0.9


def _keys(found: Numbered, *paths: str) -> tuple[str, ...]:
    return tuple(f"schemes.{number}.{path}" for number, _ in found for path in paths)


# Rotary positions.


@dataclass(frozen=True)
class Ladder:
    """A rotary encoding beside the positions that a query sees.

    Parameters
    ----------
    name
        Of the encoding.
    pairs, axes
        Pairs of numbers that turn along each axis, and axes.
    shortest, longest
        Wavelengths in positions per turn; None where it is infinite.
    slow
        Pairs along each axis that make no whole turn over the positions seen.
    seen, windowed
        Positions that a query sees, None where the configuration states no length; and whether a
        window of the layers is what bounds them.
    first, searched
        The first distance in positions at which the mean rotation is negative, None where there is
        none up to the largest that was tried. With several axes, along one of them.
    """

    name: str
    pairs: int
    axes: int
    shortest: float | None
    longest: float | None
    slow: int | None
    seen: int | None
    windowed: bool
    first: int | None
    searched: int

    @property
    def known(self) -> bool:
        """Whether its sign can be answered: with several axes it is the same at every length."""
        return self.axes > 1 or self.seen is not None


@dataclass(frozen=True)
class Turns:
    """Of every rotary encoding, which pairs complete a turn."""

    ladders: tuple[Ladder, ...]

    @property
    def value(self) -> list[float] | None:
        """Of encodings with a stated length, the share of pairs that complete none."""
        return [each.slow / each.pairs for each in self.ladders if each.slow is not None] or None


def turns(found: Numbered) -> Answer:
    """Ask whether every pair completes a turn within the stated length."""
    facts = Turns(tuple(_ladder(block) for _, block in found))
    keys = _keys(found, "rotation.never_turn_target", "rotation.longest_wavelength")
    slow = [each.slow for each in facts.ladders if each.slow is not None]
    if not slow:
        return Answer("rotary_turns", "cannot tell", "no_length", facts, keys=keys)
    if any(slow):
        return Answer("rotary_turns", "no", "never", facts, keys=keys)
    return Answer("rotary_turns", "yes", "all", facts, keys=keys)


def _ladder(block: Block) -> Ladder:
    rotation = block["rotation"]
    share, pairs, seen = (rotation[key] for key in ("never_turn_target", "pairs", "target"))
    return Ladder(
        name=block["name"], pairs=pairs, axes=block["axes"],
        shortest=rotation["shortest_wavelength"], longest=rotation["longest_wavelength"],
        slow=None if share is None else round(share * pairs),
        seen=seen, windowed=seen is not None and block["window"] == seen,
        first=rotation["first_negative"], searched=rotation["searched"],
    )  # fmt: skip


@dataclass(frozen=True)
class Signs:
    """Of every rotary encoding, where its mean rotation is negative."""

    encodings: tuple[Ladder, ...]

    @property
    def value(self) -> list[int | None] | None:
        """The first negative distance of each encoding of which there is something to answer."""
        return [each.first for each in self.encodings if each.known] or None


def positive(found: Numbered) -> Answer:
    """Ask whether the mean rotation stays positive within the stated length."""
    facts = Signs(tuple(_ladder(block) for _, block in found))
    keys = _keys(found, "rotation.first_negative", "rotation.target")
    known = [each for each in facts.encodings if each.known]
    if not known:
        return Answer("rotary_positive", "cannot tell", "no_length", facts, keys=keys)
    if any(each.first is not None and each.first < (each.seen or 0) for each in known):
        return Answer("rotary_positive", "no", "within", facts, keys=keys)
    if any(
        each.first is None and each.axes == 1 and each.searched < (each.seen or 0) for each in known
    ):
        return Answer("rotary_positive", "cannot tell", "not_searched", facts, keys=keys)
    return Answer("rotary_positive", "yes", "positive", facts, keys=keys)


@dataclass(frozen=True)
class Rule:
    """A rule for longer contexts.

    Parameters
    ----------
    name, rule
        Of the encoding and of the rule.
    changes
        Whether it changes a wavelength.
    length, training
        Positions of the text that the wavelengths are for, and of training; None where unknown.
    """

    name: str
    rule: str
    changes: bool
    length: int | None
    training: int | None


@dataclass(frozen=True)
class Rules:
    """The rules for longer contexts that a configuration states."""

    rules: tuple[Rule, ...]

    @property
    def value(self) -> list[str] | None:
        """Their names."""
        return [each.rule for each in self.rules] or None


def stretched(found: Numbered) -> Answer:
    """Ask whether a rule for longer contexts changes the wavelengths."""
    facts = Rules(tuple(_rule(block) for _, block in found if block["rule"] != "default"))
    keys = _keys(found, "rule", "rotation.rescaled", "rotation.length")
    if not facts.rules:
        return Answer("rotary_stretched", "no", "no_rule", facts, keys=keys)
    if any(each.changes for each in facts.rules):
        return Answer("rotary_stretched", "yes", "changed", facts, keys=keys)
    return Answer("rotary_stretched", "no", "unchanged", facts, keys=keys)


def _rule(block: Block) -> Rule:
    rotation = block["rotation"]
    return Rule(
        block["name"], block["rule"], rotation["rescaled"], rotation["length"],
        block["training_length"],
    )  # fmt: skip


#: Of rotary positions.
ROTARY = (
    Question("rotary_turns", turns, ("all", "never", "no_length")),
    Question("rotary_positive", positive, ("positive", "within", "not_searched", "no_length")),
    Question("rotary_stretched", stretched, ("changed", "unchanged", "no_rule")),
)


# Linear biases.


@dataclass(frozen=True)
class Slopes:
    """The linear biases of one encoding.

    Parameters
    ----------
    name
        Of the encoding.
    slopes
        Of each head, logits per position.
    windows, length
        Of each head, keys over which the bias alone spreads attention, of so many.
    """

    name: str
    slopes: tuple[float, ...]
    windows: tuple[float, ...]
    length: int


@dataclass(frozen=True)
class Falls:
    """How fast linear biases fall."""

    encodings: tuple[Slopes, ...]

    @property
    def halving(self) -> list[float]:
        """Of each head, positions over which attention halves, contents being equal."""
        return [math.log(2) / slope for each in self.encodings for slope in each.slopes]

    @property
    def value(self) -> dict[str, list[float]]:
        """The same, by its name."""
        return {"halving": self.halving}


def linear_near(found: Numbered) -> Answer:
    """Ask whether near keys get more attention, as they do by definition."""
    facts = Falls(
        tuple(
            Slopes(
                name=block["name"],
                slopes=tuple(block["slopes"]),
                windows=tuple(block["heads"]["window"]),
                length=block["heads"]["layout"]["length"],
            )
            for _, block in found
        )
    )
    keys = _keys(found, "slopes", "heads.window")
    return Answer("alibi_near", "yes", "falls", facts, keys=keys)


@dataclass(frozen=True)
class Left:
    """What the head with the smallest slope leaves of attention at the end of the context.

    Parameters
    ----------
    length
        Positions of the context, None where none is stated.
    left
        What a key so far away gets of the attention that the nearest gets, contents being equal.
    halving
        Distance at which it gets half of it.
    """

    length: int | None
    left: float | None
    halving: float

    @property
    def value(self) -> float | None:
        """What is left."""
        return self.left


def linear_reach(found: Numbered) -> Answer:
    """Ask whether half of the attention is left at the end of the stated context."""
    facts = max(
        (_left(min(block["slopes"]), block["max_positions"]) for _, block in found),
        key=lambda each: -1.0 if each.left is None else each.left,
    )
    keys = _keys(found, "slopes", "max_positions")
    if facts.length is None:
        return Answer("alibi_reach", "cannot tell", "no_length", facts, keys=keys)
    if facts.halving >= facts.length:
        return Answer("alibi_reach", "yes", "half", facts, keys=keys)
    return Answer("alibi_reach", "no", "less", facts, keys=keys)


def _left(slope: float, length: int | None) -> Left:
    left = None if length is None else math.exp(-slope * length)
    return Left(length, left, math.log(2) / slope)


#: Of linear biases.
ALIBI = (
    Question("alibi_near", linear_near, ("falls",)),
    Question("alibi_reach", linear_reach, ("half", "less", "no_length")),
)


# What was learned of each distance: biases, or vectors by their cosines with that of distance 0.


@dataclass(frozen=True)
class Smooth:
    """Heads whose neighbouring distances have similar values.

    Parameters
    ----------
    heads, varying
        All that were learned, and those whose values are not all equal.
    structured
        Heads above 95 % of permutations of their distances; None where nothing was tested.
    """

    heads: int
    varying: int
    structured: int | None

    @property
    def chance(self) -> float:
        """Heads above it where nothing was learned."""
        return CHANCE * self.varying

    @property
    def value(self) -> int | None:
        """Heads above it."""
        return self.structured


def structured(name: str, found: Numbered) -> Answer:
    """Ask whether neighbouring distances have similar values, beside permuted distances."""
    learned = [(number, block) for number, block in found if not block["computed"]]
    keys = _keys(learned or found, "smoothness.structured")
    heads = sum(block["head_count"] for _, block in learned or found)
    if not learned:
        return Answer(name, "cannot tell", "computed", Smooth(heads, heads, None), keys=keys)
    known = sum(value is not None for _, b in learned for value in b["smoothness"]["correlation"])
    if not known:
        return Answer(name, "cannot tell", "equal", Smooth(heads, 0, None), keys=keys)
    count = sum(block["smoothness"]["structured"] for _, block in learned)
    facts = Smooth(heads, known, count)
    # Each head is above its own permutations with a chance of 5 %: their number is binomial.
    p = at_least(count, known, CHANCE)
    low, high = (
        next(float(k) for k in range(known + 1) if at_least(k + 1, known, CHANCE) <= above)
        for above in (0.95, 0.05)
    )
    draws = learned[0][1]["smoothness"]["permutations"]
    test = Test(count, p, facts.chance, (low, high), "permuted", draws, CHANCE**known)
    answer = verdict_of(p)
    reason = {"yes": "smooth", "no": "no_order", "cannot tell": "weak"}[answer]
    return Answer(name, answer, reason, facts, test, keys)


@dataclass(frozen=True)
class Preference:
    """Which distances the heads of an encoding favour, of those that have an order of distances.

    Parameters
    ----------
    name, unit
        Of the encoding, and what its distances count.
    computed
        Whether a function gives the values, so that their order needs no test.
    heads, varying
        All heads, and those whose values are not all equal.
    near, far
        Heads with an order whose largest value lies within a quarter of the length, and beyond.
    widths
        Distances at which near heads have fallen half way, where they fall to a level.
    before, after
        Heads with an order whose largest value is at an earlier key, and at a later one.
    """

    name: str
    unit: str
    computed: bool
    heads: int
    varying: int
    near: int
    far: int
    widths: tuple[float, ...]
    before: int
    after: int

    @property
    def ordered(self) -> int:
        """Heads with an order of distances."""
        return self.near + self.far


@dataclass(frozen=True)
class Preferences:
    """Which distances heads favour."""

    encodings: tuple[Preference, ...]

    def total(self, count: str) -> int:
        """Return a count of heads over all encodings, by its name."""
        return sum(getattr(each, count) for each in self.encodings)

    def without_learned(self) -> Preferences:
        """Return what is left where heads that were learned have no more order than chance."""
        none: dict[str, Any] = {"near": 0, "far": 0, "widths": (), "before": 0, "after": 0}
        return replace(
            self,
            encodings=tuple(e if e.computed else replace(e, **none) for e in self.encodings),
        )


@dataclass(frozen=True)
class Near(Preferences):
    """Whether heads favour near positions."""

    @property
    def value(self) -> dict[str, int] | None:
        """Heads that favour near positions and far ones; None where no head has an order."""
        known = {name: self.total(name) for name in ("near", "far")}
        return known if any(known.values()) else None


@dataclass(frozen=True)
class Sides(Preferences):
    """Which side of the query heads favour."""

    @property
    def same(self) -> int:
        """Heads whose largest value is at the query, or whose sides are equal."""
        return self.total("ordered") - self.total("before") - self.total("after")

    @property
    def value(self) -> dict[str, int] | None:
        """Heads by side; None where no head has an order."""
        sides = {name: self.total(name) for name in ("before", "after")} | {"same": self.same}
        return sides if self.total("ordered") else None


def _preference(block: Block) -> Preference:
    """Count the heads of an encoding that have an order of distances by what they favour."""
    heads = block["heads"]
    varying = [head for head, near in enumerate(heads["near"]) if near is not None]
    ordered = [head for head in varying if block["computed"] or _above(block, head)]
    near = [head for head in ordered if heads["near"][head]]
    # Where both sides are equal, the largest value is on either.
    sided = [] if _sideless(block) else [h for h in ordered if (heads["asymmetry"][h] or 0) > SIDED]
    return Preference(
        name=block["name"], unit=block["unit"], computed=block["computed"],
        heads=block["head_count"], varying=len(varying), near=len(near),
        far=len(ordered) - len(near),
        widths=tuple(w for head in near if (w := heads["half_width"][head]) is not None),
        before=sum(heads["peak"][head] < 0 for head in sided),
        after=sum(heads["peak"][head] > 0 for head in sided),
    )  # fmt: skip


def _above(block: Block, head: int) -> bool:
    correlation = block["smoothness"]["correlation"][head]
    return correlation is not None and bool(correlation > block["smoothness"]["p95"][head])


def _line(block: Block) -> bool:
    return bool(block["layout"]["type"] == "sequence")


def _sideless(block: Block) -> bool:
    """Tell where no key is earlier and none later: among patches, on a page, with hidden keys."""
    return not _line(block) or block["unit"] != POSITIONS or bool(block["causal"])


def near(name: str, found: Numbered) -> Answer:
    """Ask whether most heads favour near positions."""
    facts = Near(tuple(_preference(block) for _, block in found))
    keys = _keys(found, "heads.near", "heads.half_width", "smoothness.structured")
    return Answer(name, *_most(facts), facts, keys=keys)


def _most(facts: Near) -> tuple[Verdict, str]:
    heads, varying, ordered = (facts.total(name) for name in ("heads", "varying", "ordered"))
    if not ordered:
        return "cannot tell", "no_order" if varying else "equal"
    if facts.total("near") > heads / 2:
        return "yes", "most"
    # Heads without order may favour either; heads of one value favour nothing.
    if facts.total("near") + varying - ordered <= heads / 2:
        return "no", "few"
    return "cannot tell", "open"


def sides(found: Numbered) -> Answer:
    """Ask whether heads prefer one side of the query."""
    facts = Sides(tuple(_preference(block) for _, block in found))
    keys = _keys(found, "heads.peak", "heads.asymmetry", "smoothness.structured")
    return Answer("bias_sides", *_sided(facts), facts, keys=keys)


def _sided(facts: Sides) -> tuple[Verdict, str]:
    if not facts.total("ordered"):
        return "cannot tell", "no_order" if facts.total("varying") else "equal"
    if facts.total("before") or facts.total("after"):
        return "yes", "sided"
    return "no", "even"


@dataclass(frozen=True)
class Limit:
    """From where on distances share one value.

    Parameters
    ----------
    name, unit
        Of the encoding, and what its distances count.
    causal
        Whether later keys are hidden; else each side has a value of its own.
    reach
        The smallest distance that shares its value with all farther ones; None where all differ.
    """

    name: str
    unit: str
    causal: bool
    reach: int | None


@dataclass(frozen=True)
class Limits:
    """Of every encoding on a line, from where on distances share one value."""

    encodings: tuple[Limit, ...]

    @property
    def value(self) -> list[int] | None:
        """The distances, None where no encoding has one."""
        return [each.reach for each in self.encodings if each.reach is not None] or None


def limited(name: str, found: Numbered) -> Answer:
    """Ask from where on distances share one value."""
    facts = Limits(tuple(Limit(b["name"], b["unit"], b["causal"], b["reach"]) for _, b in found))
    keys = _keys(found, "reach")
    if facts.value:
        return Answer(name, "yes", "shared", facts, keys=keys)
    return Answer(name, "no", "changing", facts, keys=keys)


_SMOOTH = ("smooth", "no_order", "weak", "computed", "equal")
_NEAR = ("most", "few", "open", "no_order", "equal")
_LIMIT = ("shared", "changing")
#: Of biases that were learned per distance.
BIAS = (
    Question("bias_smooth", partial(structured, "bias_smooth"), _SMOOTH),
    Question("bias_near", partial(near, "bias_near"), _NEAR),
    Question("bias_sides", sides, ("sided", "even", "no_order", "equal")),
    Question("bias_limit", partial(limited, "bias_limit"), _LIMIT),
)
#: Of vectors that were learned per distance.
COSINE = (
    Question("cosine_smooth", partial(structured, "cosine_smooth"), _SMOOTH),
    Question("cosine_near", partial(near, "cosine_near"), _NEAR),
    Question("cosine_limit", partial(limited, "cosine_limit"), _LIMIT),
)
#: By kind of encoding, in the order of the page.
KINDS: Mapping[str, tuple[Question[Numbered], ...]] = {
    "rotary": ROTARY, "alibi": ALIBI, "bias": BIAS, "cosine": COSINE,
}  # fmt: skip
#: The questions of all kinds by name.
NAMES = tuple(question.name for questions in KINDS.values() for question in questions)
#: Of which encodings of its kind a question is asked, where that is not all of them.
_CONCERNED: Mapping[str, Callable[[Block], bool]] = {
    "bias_sides": lambda block: not _sideless(block),
    "bias_limit": _line,
    "cosine_limit": _line,
}


def _by_order(
    name: str, of: str, settle: Callable[[Any], tuple[Verdict, str]]
) -> Correction[Sequence[Block]]:
    """Return the correction of a preference where heads have no more order than chance makes.

    Of values without order the largest lies somewhere as well.
    """

    def correct(answers: Mapping[str, Answer], seen: Sequence[Block]) -> Answer | None:
        del seen
        own = answers.get(name)
        if own is None or answers[of].yes:
            return None
        facts = own.facts.without_learned()
        return None if facts == own.facts else own.corrected(*settle(facts), of, facts=facts)

    return correct


CORRECTIONS = (
    _by_order("bias_near", "bias_smooth", _most),
    _by_order("bias_sides", "bias_smooth", _sided),
    _by_order("cosine_near", "cosine_smooth", _most),
)


def answers_of(schemes: Sequence[Block]) -> dict[str, Answer]:
    """Answer what can be asked of the encodings of a checkpoint.

    Parameters
    ----------
    schemes
        The blocks of ``analysis.json``.

    Returns
    -------
    dict
        Every answer by its question; what concerns none of the encodings is not asked.
    """
    own = []
    for kind, questions in KINDS.items():
        found = [each for each in enumerate(schemes) if kind_of(each[1]) == kind]
        for question in questions:
            concerned = _CONCERNED.get(question.name)
            asked = [each for each in found if concerned is None or concerned(each[1])]
            if asked:
                own.append(question.ask(asked))
    return decide(own, CORRECTIONS, schemes)


def kind_of(block: Block) -> str:
    """Return the kind of an encoding: rotary, alibi, bias or cosine."""
    return str(block["quantity"] if block["scheme"] == "relative" else block["scheme"])


# Kernels between positions, side by side.


@dataclass(frozen=True)
class Kernel:
    """A number of a kernel.

    Parameters
    ----------
    label
        Of the encoding.
    value
        A share; None where it is undefined.
    """

    label: str
    value: float | None


def kernel(
    name: str, key: str, settle: Callable[[float], tuple[Verdict, str]], record: Block
) -> Answer:
    """Answer a question by one number of a kernel.

    Parameters
    ----------
    name, key
        Of the question and of the number.
    settle
        The rule: from the number to the answer and its reason.
    record
        A block of ``analysis.json``.
    """
    facts = Kernel(record["label"], record[key])
    if facts.value is None:
        return Answer(name, "cannot tell", "undefined", facts, keys=(key,))
    return Answer(name, *settle(facts.value), facts, keys=(key,))


def _falling(share: float) -> tuple[Verdict, str]:
    return ("yes", "falls") if share >= STEADY else ("no", "rises")


def _by_offset(share: float) -> tuple[Verdict, str]:
    if LEAVES <= share < DECIDES:
        return "cannot tell", "mostly"
    return ("yes", "decides") if share >= DECIDES else ("no", "partly")


def _even(share: float) -> tuple[Verdict, str]:
    return ("yes", "even") if share <= SIDED else ("no", "sided")


#: Of the kernel that an encoding of any kind induces between positions.
KERNELS = (
    Question(
        "kernel_falls",
        partial(kernel, "kernel_falls", "monotone_fraction", _falling),
        ("falls", "rises", "undefined"),
    ),
    Question(
        "kernel_offset",
        partial(kernel, "kernel_offset", "translation_invariance", _by_offset),
        ("decides", "partly", "mostly", "undefined"),
    ),
    Question(
        "kernel_sides",
        partial(kernel, "kernel_sides", "asymmetry", _even),
        ("even", "sided", "undefined"),
    ),
)
