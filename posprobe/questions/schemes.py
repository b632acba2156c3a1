"""What encodings without a table tell attention about position, one kind after the other.

What a configuration decides, of rotary and linear positions, is known exactly. What was learned of
each distance is held against permuted distances, and of kernels side by side single numbers are
read. Questions are asked of the blocks of ``analysis.json``, numbered as they stand there; what
concerns none of them is not asked, and its answer is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

from posprobe.analyses.facts import Answer, Correction, Test, Verdict, decide
from posprobe.analyses.models.head_biases import SIDED
from posprobe.analyses.result import HIDDEN
from posprobe.questions.rank_tests import binomial_tail, judge_p_value, value_property
from posprobe.schemes import POSITION_UNIT

Block: TypeAlias = Mapping[str, Any]
#: Encodings of one kind, with their places in the document.
Numbered: TypeAlias = Sequence[tuple[int, Block]]
Ask: TypeAlias = Callable[[Numbered], Answer | None]

#: Share of heads without structure that lie above 95 % of permutations.
CHANCE = 0.05
#: Share of steps that do not rise from which a curve falls steadily: as many as a test at the 5 %
#: level leaves to chance may rise.
STEADY = 0.95
#: Share of a kernel's variance by offset from which the offset alone decides, as of a sinusoid that
#: was rounded, and below which a tenth or more depends on something else.
DECIDES = 0.99
LEAVES = 0.9

E = TypeVar("E")


@dataclass(frozen=True)
class Encodings(Generic[E]):
    """Facts of several encodings.

    Parameters
    ----------
    encodings
        Facts about each encoding.
    value
        Value of the answer in ``analysis.json``.
    """

    encodings: tuple[E, ...]
    value: Annotated[Any, HIDDEN] = None

    def total(self, count: str) -> int:
        """Return a count over all encodings, by its name."""
        return sum(getattr(encoding, count) for encoding in self.encodings)


def _keys(schemes: Numbered, *paths: str) -> tuple[str, ...]:
    return tuple(f"schemes.{number}.{path}" for number, _ in schemes for path in paths)


# Rotary positions.


@dataclass(frozen=True)
class Ladder:
    """A rotary encoding beside the positions that a query sees.

    Parameters
    ----------
    name
        Name of the encoding.
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
    rule, changes
        The rule for longer contexts, and whether it changes a wavelength.
    length, training
        Positions of the text that the wavelengths are for, and of training; None where unknown.
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
    rule: str
    changes: bool
    length: int | None
    training: int | None

    @property
    def known(self) -> bool:
        """Whether its sign can be answered: with several axes it is the same at every length."""
        return self.axes > 1 or self.seen is not None


def _ladders(schemes: Numbered) -> Iterator[Ladder]:
    for _, block in schemes:
        rotation = block["rotation"]
        share, pairs, target = (rotation[key] for key in ("never_turn_target", "pairs", "target"))
        yield Ladder(
            name=block["name"], pairs=pairs, axes=block["axes"],
            shortest=rotation["shortest_wavelength"], longest=rotation["longest_wavelength"],
            slow=None if share is None else round(share * pairs),
            seen=target, windowed=target is not None and block["window"] == target,
            first=rotation["first_negative"], searched=rotation["searched"],
            rule=block["rule"], changes=rotation["rescaled"], length=rotation["length"],
            training=block["training_length"],
        )  # fmt: skip


def ask_turns(schemes: Numbered) -> Answer:
    """Ask whether every pair completes a turn within the stated length."""
    ladders = tuple(_ladders(schemes))
    # Of encodings with a stated length, the share of pairs that complete none.
    shares = [encoding.slow / encoding.pairs for encoding in ladders if encoding.slow is not None]
    answer: Verdict = "yes"
    reason = "all"
    if not shares:
        answer, reason = "cannot tell", "no_length"
    elif any(shares):
        answer, reason = "no", "never"
    keys = _keys(schemes, "rotation.never_turn_target", "rotation.longest_wavelength")
    return Answer("rotary_turns", answer, reason, Encodings(ladders, shares or None), keys=keys)


def ask_positive(schemes: Numbered) -> Answer:
    """Ask whether the mean rotation stays positive within the stated length."""
    ladders = tuple(_ladders(schemes))
    decided = [encoding for encoding in ladders if encoding.known]
    answer: Verdict = "yes"
    reason = "positive"
    if not decided:
        answer, reason = "cannot tell", "no_length"
    elif any(
        encoding.first is not None and encoding.first < (encoding.seen or 0) for encoding in decided
    ):
        answer, reason = "no", "within"
    elif any(
        encoding.first is None and encoding.axes == 1 and encoding.searched < (encoding.seen or 0)
        for encoding in decided
    ):
        answer, reason = "cannot tell", "not_searched"
    facts = Encodings(ladders, [encoding.first for encoding in decided] or None)
    keys = _keys(schemes, "rotation.first_negative", "rotation.target")
    return Answer("rotary_positive", answer, reason, facts, keys=keys)


def ask_stretched(schemes: Numbered) -> Answer:
    """Ask whether a rule for longer contexts changes the wavelengths."""
    ruled = tuple(encoding for encoding in _ladders(schemes) if encoding.rule != "default")
    answer: Verdict = "yes" if any(encoding.changes for encoding in ruled) else "no"
    reason = "changed" if answer == "yes" else "unchanged" if ruled else "no_rule"
    facts = Encodings(ruled, [encoding.rule for encoding in ruled] or None)
    keys = _keys(schemes, "rule", "rotation.rescaled", "rotation.length")
    return Answer("rotary_stretched", answer, reason, facts, keys=keys)


# Linear biases.


@dataclass(frozen=True)
class Slopes:
    """The linear biases of one encoding.

    Parameters
    ----------
    slopes
        Slope of each head, logits per position.
    windows, length
        Number of keys over which the bias alone spreads attention, for each head, and number of
        keys in all.
    """

    slopes: tuple[float, ...]
    windows: tuple[float, ...]
    length: int


def ask_linear_near(schemes: Numbered) -> Answer:
    """Ask whether near keys get more attention, as they do by definition."""
    slopes = tuple(
        Slopes(
            tuple(block["slopes"]),
            tuple(block["heads"]["window"]),
            block["heads"]["layout"]["length"],
        )
        for _, block in schemes
    )
    # Positions over which attention halves, contents being equal.
    halving = [math.log(2) / slope for slope_facts in slopes for slope in slope_facts.slopes]
    facts = Encodings(slopes, {"halving": halving})
    keys = _keys(schemes, "slopes", "heads.window")
    return Answer("alibi_near", "yes", "falls", facts, keys=keys)


@dataclass(frozen=True)
class Left:
    """What the head with the smallest slope leaves of attention at the end of the context.

    Parameters
    ----------
    length
        Positions of the context, None where none is stated.
    left
        Attention to a key at that distance over that to the nearest, with equal contents.
    halving
        Distance at which it gets half of it.
    """

    length: int | None
    left: float | None
    halving: float

    value = value_property("left")


def ask_linear_reach(schemes: Numbered) -> Answer:
    """Ask whether half of the attention is left at the end of the stated context."""
    facts = max(
        (_left(min(block["slopes"]), block["max_positions"]) for _, block in schemes),
        key=lambda encoding: -1.0 if encoding.left is None else encoding.left,
    )
    keys = _keys(schemes, "slopes", "max_positions")
    if facts.length is None:
        return Answer("alibi_reach", "cannot tell", "no_length", facts, keys=keys)
    if facts.halving >= facts.length:
        return Answer("alibi_reach", "yes", "half", facts, keys=keys)
    return Answer("alibi_reach", "no", "less", facts, keys=keys)


def _left(slope: float, length: int | None) -> Left:
    remaining = None if length is None else math.exp(-slope * length)
    return Left(length, remaining, math.log(2) / slope)


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

    value = value_property("structured")

    @property
    def chance(self) -> float:
        """Heads above it where nothing was learned."""
        return CHANCE * self.varying


def ask_smooth(name: str, schemes: Numbered) -> Answer:
    """Ask whether neighbouring distances have similar values, beside permuted distances."""
    learned = [(number, block) for number, block in schemes if not block["computed"]]
    keys = _keys(learned or schemes, "smoothness.structured")
    heads = sum(block["head_count"] for _, block in learned or schemes)
    if not learned:
        return Answer(name, "cannot tell", "computed", Smooth(heads, heads, None), keys=keys)
    n_measured = sum(
        value is not None for _, b in learned for value in b["smoothness"]["correlation"]
    )
    if not n_measured:
        return Answer(name, "cannot tell", "equal", Smooth(heads, 0, None), keys=keys)
    count = sum(block["smoothness"]["structured"] for _, block in learned)
    facts = Smooth(heads, n_measured, count)
    # Each head is above its own permutations with a chance of 5 %: their number is binomial.
    p = binomial_tail(count, n_measured, CHANCE)
    low, high = (
        next(
            float(k)
            for k in range(n_measured + 1)
            if binomial_tail(k + 1, n_measured, CHANCE) <= level
        )
        for level in (0.95, 0.05)
    )
    draws = learned[0][1]["smoothness"]["permutations"]
    test = Test(count, p, facts.chance, (low, high), "permuted", draws, CHANCE**n_measured)
    return Answer(name, *judge_p_value(p, "smooth", "no_order", "weak"), facts, test, keys)


@dataclass(frozen=True)
class Preference:
    """Which distances the heads of an encoding favour, of those that have an order of distances.

    Parameters
    ----------
    computed
        Whether a function gives the values, so that their order needs no test.
    heads, varying
        All heads, and those whose values are not all equal.
    near, far
        Heads with an order whose largest value lies within a quarter of the length, and beyond.
    before, after
        Heads with an order whose largest value is at an earlier key, and at a later one.
    """

    computed: bool
    heads: int
    varying: int
    near: int
    far: int
    before: int
    after: int

    @property
    def ordered(self) -> int:
        """Heads with an order of distances."""
        return self.near + self.far


def _preference(block: Block) -> Preference:
    """Count the heads of an encoding that have an order of distances by what they favour."""
    heads = block["heads"]
    varying = [head for head, prefers_near in enumerate(heads["near"]) if prefers_near is not None]
    ordered = [head for head in varying if block["computed"] or _above(block, head)]
    prefers_near = [head for head in ordered if heads["near"][head]]
    # Where both sides are equal, the largest value is on either.
    sided = [] if _sideless(block) else [h for h in ordered if (heads["asymmetry"][h] or 0) > SIDED]
    return Preference(
        computed=block["computed"], heads=block["head_count"], varying=len(varying),
        near=len(prefers_near), far=len(ordered) - len(prefers_near),
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
    return not _line(block) or block["unit"] != POSITION_UNIT or bool(block["causal"])


def ask_near(name: str, schemes: Numbered) -> Answer:
    """Ask whether most heads favour near positions."""
    facts = _near(tuple(_preference(block) for _, block in schemes))
    keys = _keys(schemes, "heads.near", "heads.half_width", "smoothness.structured")
    return Answer(name, *_most(facts), facts, keys=keys)


def _near(heads: tuple[Preference, ...]) -> Encodings[Preference]:
    """Return whether heads favour near positions; without a value where none has an order."""
    facts = Encodings(heads)
    counts = {name: facts.total(name) for name in ("near", "far")}
    return replace(facts, value=counts if any(counts.values()) else None)


def _most(facts: Encodings[Preference]) -> tuple[Verdict, str]:
    heads, varying, ordered = (facts.total(name) for name in ("heads", "varying", "ordered"))
    if not ordered:
        return "cannot tell", "no_order" if varying else "equal"
    if facts.total("near") > heads / 2:
        return "yes", "most"
    # Heads without order may favour either; heads of one value favour nothing.
    if facts.total("near") + varying - ordered <= heads / 2:
        return "no", "few"
    return "cannot tell", "open"


def ask_sides(schemes: Numbered) -> Answer | None:
    """Ask whether heads prefer one side of the query, where there are two."""
    schemes = [(number, block) for number, block in schemes if not _sideless(block)]
    if not schemes:
        return None
    facts = _sides(tuple(_preference(block) for _, block in schemes))
    keys = _keys(schemes, "heads.peak", "heads.asymmetry", "smoothness.structured")
    return Answer("bias_sides", *_sided(facts), facts, keys=keys)


def _sides(heads: tuple[Preference, ...]) -> Encodings[Preference]:
    """Return heads by side, with those of neither; without a value where none has an order."""
    facts = Encodings(heads)
    ordered = facts.total("ordered")
    sides = {name: facts.total(name) for name in ("before", "after")}
    counts = {"same": ordered - sum(sides.values())}
    return replace(facts, value=sides | counts if ordered else None)


def _sided(facts: Encodings[Preference]) -> tuple[Verdict, str]:
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
        Name of the encoding, and unit of its distances.
    causal
        Whether later keys are hidden; else each side has a value of its own.
    reach
        The smallest distance that shares its value with all farther ones; None where all differ.
    """

    name: str
    unit: str
    causal: bool
    reach: int | None


def ask_limit(name: str, schemes: Numbered) -> Answer | None:
    """Ask from where on distances share one value, of encodings on a line."""
    schemes = [(number, block) for number, block in schemes if _line(block)]
    if not schemes:
        return None
    limits = tuple(Limit(b["name"], b["unit"], b["causal"], b["reach"]) for _, b in schemes)
    reached = [encoding.reach for encoding in limits if encoding.reach is not None]
    answer: Verdict = "yes" if reached else "no"
    facts = Encodings(limits, reached or None)
    reason = "shared" if reached else "changing"
    return Answer(name, answer, reason, facts, keys=_keys(schemes, "reach"))


#: By kind of encoding the questions by name, in the order of the page.
KINDS: Mapping[str, Mapping[str, Ask]] = {
    "rotary": {
        "rotary_turns": ask_turns,
        "rotary_positive": ask_positive,
        "rotary_stretched": ask_stretched,
    },
    "alibi": {"alibi_near": ask_linear_near, "alibi_reach": ask_linear_reach},
    "bias": {
        "bias_smooth": partial(ask_smooth, "bias_smooth"),
        "bias_near": partial(ask_near, "bias_near"),
        "bias_sides": ask_sides,
        "bias_limit": partial(ask_limit, "bias_limit"),
    },
    "cosine": {
        "cosine_smooth": partial(ask_smooth, "cosine_smooth"),
        "cosine_near": partial(ask_near, "cosine_near"),
        "cosine_limit": partial(ask_limit, "cosine_limit"),
    },
}
#: The questions of all kinds by name.
NAMES = tuple(name for questions in KINDS.values() for name in questions)


def _by_order(
    name: str,
    question: str,
    make_facts: Callable[[tuple[Preference, ...]], Encodings[Preference]],
    settle: Callable[[Encodings[Preference]], tuple[Verdict, str]],
) -> Correction[Sequence[Block]]:
    """Return the correction of a preference where heads have no more order than chance makes.

    Of values without order the largest lies somewhere as well.
    """
    no_counts: dict[str, Any] = dict.fromkeys(("near", "far", "before", "after"), 0)

    def correct(answers: Mapping[str, Answer], _: Sequence[Block]) -> Answer | None:
        answer = answers.get(name)
        if answer is None or answers[question].yes:
            return None
        heads = answer.facts.encodings
        facts = make_facts(
            tuple(
                head_facts if head_facts.computed else replace(head_facts, **no_counts)
                for head_facts in heads
            )
        )
        return (
            None
            if facts == answer.facts
            else answer.corrected(*settle(facts), question, facts=facts)
        )

    return correct


CORRECTIONS = (
    _by_order("bias_near", "bias_smooth", _near, _most),
    _by_order("bias_sides", "bias_smooth", _sides, _sided),
    _by_order("cosine_near", "cosine_smooth", _near, _most),
)


def answers_of(schemes: Sequence[Block]) -> dict[str, Answer]:
    """Answer what can be asked of the encodings of a checkpoint, by question.

    Parameters
    ----------
    schemes
        The blocks of ``analysis.json``.
    """
    answers = []
    for kind, questions in KINDS.items():
        schemes_of_kind = [
            numbered for numbered in enumerate(schemes) if kind_of(numbered[1]) == kind
        ]
        if schemes_of_kind:
            answers += [answer for ask in questions.values() if (answer := ask(schemes_of_kind))]
    return decide(answers, CORRECTIONS, schemes)


def kind_of(block: Block) -> str:
    """Return the kind of an encoding: rotary, alibi, bias or cosine."""
    return str(block["quantity"] if block["scheme"] == "relative" else block["scheme"])


# Kernels between positions, side by side.


def _by_offset(share: float) -> Verdict:
    if LEAVES <= share < DECIDES:
        return "cannot tell"
    return "yes" if share >= DECIDES else "no"


#: Of the kernel that an encoding of any kind induces between positions: by question, the number
#: that answers it, and the rule.
KERNELS: Mapping[str, tuple[str, Callable[[float], Verdict]]] = {
    "kernel_falls": ("monotone_fraction", lambda share: "yes" if share >= STEADY else "no"),
    "kernel_offset": ("translation_invariance", _by_offset),
    "kernel_sides": ("asymmetry", lambda share: "yes" if share <= SIDED else "no"),
}


def kernel_answers(record: Block) -> list[Answer]:
    """Answer every question about a kernel, by the block of its encoding."""
    answers = []
    for name, (key, rule) in KERNELS.items():
        answer: Verdict = "cannot tell" if record[key] is None else rule(record[key])
        answers.append(Answer(name, answer, key, keys=(key,)))
    return answers
