"""Questions about encodings without a table, by kind.

Rotary and linear positions follow exactly from the configuration. Values that were learned for each
distance are compared with permuted distances. Kernels are judged by single numbers. Questions are
asked about the blocks of ``analysis.json`` with their indices there. A question that concerns none
of them is not asked, and its answer is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

from posprobe.analyses.facts import Answer, Correction, Test, Verdict, decide
from posprobe.analyses.models.head_biases import MIN_ODD_SHARE
from posprobe.analyses.result import HIDDEN
from posprobe.questions.rank_tests import binomial_tail, judge_p_value, value_property
from posprobe.schemes import POSITION_UNIT

Block: TypeAlias = Mapping[str, Any]
#: Encodings of one kind, with their indices in the document.
NumberedBlocks: TypeAlias = Sequence[tuple[int, Block]]
#: Function that answers a question about encodings of one kind; None where it is not asked.
AskSchemes: TypeAlias = Callable[[NumberedBlocks], Answer | None]

#: Share of heads without structure that lie above 95 % of permutations.
CHANCE_HEAD_SHARE = 0.05
#: Smallest share of steps of a steadily falling curve that do not rise: the other steps are as many
#: as a test at the 5 % level leaves to chance.
MIN_FALLING_STEP_SHARE = 0.95
#: Smallest share of a kernel's variance that offsets explain if they alone decide, as in a rounded
#: sinusoid.
MIN_OFFSET_SHARE = 0.99
#: Below this share of a kernel's variance, more than a tenth depends on something else.
MAX_DENIAL_OFFSET_SHARE = 0.9

E = TypeVar("E")


@dataclass(frozen=True)
class SchemeFacts(Generic[E]):
    """Facts about several encodings.

    Parameters
    ----------
    encodings
        Facts about each encoding.
    value
        Value of the answer in ``analysis.json``.
    unread
        Keys of the configuration that concern position and that no rule reads.
    """

    encodings: tuple[E, ...]
    value: Annotated[Any, HIDDEN] = None
    unread: tuple[str, ...] = ()

    def total(self, name: str) -> int:
        """Return the sum of a count over all encodings, by the name of its field."""
        return sum(getattr(facts, name) for facts in self.encodings)


def _scheme_keys(schemes: NumberedBlocks, *paths: str) -> tuple[str, ...]:
    return tuple(f"schemes.{number}.{path}" for number, _ in schemes for path in paths)


# Rotary positions.


@dataclass(frozen=True)
class RotaryLadder:
    """Frequencies of a rotary encoding and the positions that a query can see.

    Parameters
    ----------
    name
        Name of the encoding.
    pairs, axes
        Number of pairs along each axis, and number of axes.
    shortest, longest
        Shortest and longest wavelength in positions; None where it is infinite.
    slow
        Number of pairs along each axis that make no whole turn over the visible positions.
    seen, windowed
        Number of positions that a query can see, None where the configuration states no length; and
        whether a window of the layers limits it.
    first, searched
        Smallest distance in positions at which the mean rotation is negative, None where there is
        none; and the largest distance that was tried. With several axes, along one of them.
    rule, changes
        Name of the scaling for longer contexts, and whether it changes a wavelength.
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
        """Whether the sign can be decided: with several axes it is the same at every length."""
        return self.axes > 1 or self.seen is not None


def _rotary_ladders(schemes: NumberedBlocks) -> Iterator[RotaryLadder]:
    for _, block in schemes:
        rotation = block["rotation"]
        pairs, target = rotation["pairs"], rotation["target"]
        slow_share = rotation["never_turn_target"]
        yield RotaryLadder(
            name=block["name"],
            pairs=pairs,
            axes=block["axes"],
            shortest=rotation["shortest_wavelength"],
            longest=rotation["longest_wavelength"],
            slow=None if slow_share is None else round(slow_share * pairs),
            seen=target,
            windowed=target is not None and block["window"] == target,
            first=rotation["first_negative"],
            searched=rotation["searched"],
            rule=block["rule"],
            changes=rotation["rescaled"],
            length=rotation["length"],
            training=block["training_length"],
        )


def ask_rotary_turns(schemes: NumberedBlocks) -> Answer:
    """Ask whether every pair completes a turn within the stated length."""
    ladders = tuple(_rotary_ladders(schemes))
    # Share of pairs that complete no turn, for encodings with a stated length.
    slow_shares = [
        ladder.slow / ladder.pairs for ladder in ladders if ladder.slow is not None
    ]
    answer: Verdict = "yes"
    reason = "all"
    if not slow_shares:
        answer, reason = "cannot tell", "no_length"
    elif any(slow_shares):
        answer, reason = "no", "never"
    keys = _scheme_keys(
        schemes, "rotation.never_turn_target", "rotation.longest_wavelength"
    )
    facts = SchemeFacts(ladders, slow_shares or None)
    return Answer("rotary_turns", answer, reason, facts, keys=keys)


def ask_rotary_positive(schemes: NumberedBlocks) -> Answer:
    """Ask whether the mean rotation stays positive within the stated length."""
    ladders = tuple(_rotary_ladders(schemes))
    decided = [ladder for ladder in ladders if ladder.known]
    negative = [
        ladder.first is not None and ladder.first < (ladder.seen or 0)
        for ladder in decided
    ]
    not_searched = [
        ladder.first is None and ladder.axes == 1 and ladder.searched < (ladder.seen or 0)
        for ladder in decided
    ]
    answer: Verdict = "yes"
    reason = "positive"
    if not decided:
        answer, reason = "cannot tell", "no_length"
    elif any(negative):
        answer, reason = "no", "within"
    elif any(not_searched):
        answer, reason = "cannot tell", "not_searched"
    facts = SchemeFacts(ladders, [ladder.first for ladder in decided] or None)
    keys = _scheme_keys(schemes, "rotation.first_negative", "rotation.target")
    return Answer("rotary_positive", answer, reason, facts, keys=keys)


def ask_rotary_stretched(schemes: NumberedBlocks) -> Answer:
    """Ask whether a scaling for longer contexts changes the wavelengths."""
    scaled = tuple(
        ladder for ladder in _rotary_ladders(schemes) if ladder.rule != "default"
    )
    answer: Verdict = "yes" if any(ladder.changes for ladder in scaled) else "no"
    reason = "changed" if answer == "yes" else "unchanged" if scaled else "no_rule"
    facts = SchemeFacts(scaled, [ladder.rule for ladder in scaled] or None)
    keys = _scheme_keys(schemes, "rule", "rotation.rescaled", "rotation.length")
    return Answer("rotary_stretched", answer, reason, facts, keys=keys)


# Linear biases.


@dataclass(frozen=True)
class LinearSlopes:
    """The linear biases of one encoding.

    Parameters
    ----------
    slopes
        Slope of each head, in logits per position.
    windows, length
        Number of keys over which the bias alone spreads attention, for each head, and number of
        all keys.
    """

    slopes: tuple[float, ...]
    windows: tuple[float, ...]
    length: int


def ask_linear_near(schemes: NumberedBlocks) -> Answer:
    """Ask whether near keys get more attention, as they do by definition."""
    slopes_by_scheme = []
    for _, block in schemes:
        windows, length = block["heads"]["window"], block["heads"]["layout"]["length"]
        slopes_by_scheme.append(
            LinearSlopes(tuple(block["slopes"]), tuple(windows), length)
        )
    # Distances in positions at which attention halves, with equal contents.
    half_distances = [
        math.log(2) / slope
        for linear_slopes in slopes_by_scheme
        for slope in linear_slopes.slopes
    ]
    facts = SchemeFacts(tuple(slopes_by_scheme), {"halving": half_distances})
    keys = _scheme_keys(schemes, "slopes", "heads.window")
    return Answer("alibi_near", "yes", "falls", facts, keys=keys)


@dataclass(frozen=True)
class RemainingAttention:
    """Attention at the end of the context in the head with the smallest slope.

    Parameters
    ----------
    length
        Length of the context in positions; None where none is stated.
    left
        Attention to a key at that distance over that to the nearest key, with equal contents.
    halving
        Distance in positions at which attention halves.
    unread
        Keys of the configuration that concern position and that no rule reads.
    """

    length: int | None
    left: float | None
    halving: float
    unread: tuple[str, ...] = ()

    value = value_property("left")


def ask_linear_reach(schemes: NumberedBlocks) -> Answer:
    """Ask whether half of the attention is left at the end of the stated context."""
    candidates = [
        _remaining_attention(min(block["slopes"]), block["max_positions"])
        for _, block in schemes
    ]
    facts = max(candidates, key=lambda facts: -1.0 if facts.left is None else facts.left)
    keys = _scheme_keys(schemes, "slopes", "max_positions")
    if facts.length is None:
        return Answer("alibi_reach", "cannot tell", "no_length", facts, keys=keys)
    if facts.halving >= facts.length:
        return Answer("alibi_reach", "yes", "half", facts, keys=keys)
    return Answer("alibi_reach", "no", "less", facts, keys=keys)


def _remaining_attention(slope: float, length: int | None) -> RemainingAttention:
    remaining_share = None if length is None else math.exp(-slope * length)
    return RemainingAttention(length, remaining_share, math.log(2) / slope)


# Learned values per distance: biases, or cosines of vectors with that of distance 0.


@dataclass(frozen=True)
class SmoothHeads:
    """Heads whose neighbouring distances have similar values.

    Parameters
    ----------
    heads, varying
        Number of learned heads, and of those whose values are not all equal.
    structured
        Number of heads above 95 % of permutations of their distances; None where none was tested.
    """

    heads: int
    varying: int
    structured: int | None

    value = value_property("structured")

    @property
    def chance(self) -> float:
        """Expected number of structured heads where nothing was learned."""
        return CHANCE_HEAD_SHARE * self.varying


def ask_smooth_distances(question: str, schemes: NumberedBlocks) -> Answer:
    """Ask whether neighbouring distances have more similar values than permuted ones."""
    learned_schemes = [
        (number, block) for number, block in schemes if not block["computed"]
    ]
    keys = _scheme_keys(learned_schemes or schemes, "smoothness.structured")
    n_heads = sum(block["head_count"] for _, block in learned_schemes or schemes)
    if not learned_schemes:
        facts = SmoothHeads(n_heads, n_heads, None)
        return Answer(question, "cannot tell", "computed", facts, keys=keys)
    smoothness = [block["smoothness"] for _, block in learned_schemes]
    correlations = [value for block in smoothness for value in block["correlation"]]
    n_tested = sum(value is not None for value in correlations)
    if not n_tested:
        return Answer(
            question, "cannot tell", "equal", SmoothHeads(n_heads, 0, None), keys=keys
        )
    n_structured = sum(block["structured"] for block in smoothness)
    facts = SmoothHeads(n_heads, n_tested, n_structured)
    # Each head is above its own permutations with a chance of 5 %, so their number is binomial.
    p = binomial_tail(n_structured, n_tested, CHANCE_HEAD_SHARE)
    band = (_chance_quantile(n_tested, 0.95), _chance_quantile(n_tested, 0.05))
    n_draws, smallest_p = smoothness[0]["permutations"], CHANCE_HEAD_SHARE**n_tested
    test = Test(n_structured, p, facts.chance, band, "permuted", n_draws, smallest_p)
    return Answer(
        question, *judge_p_value(p, "smooth", "no_order", "weak"), facts, test, keys
    )


def _chance_quantile(n_heads: int, tail: float) -> float:
    """Return the number of heads that chance exceeds with a probability of at most ``tail``."""
    tails = (binomial_tail(k + 1, n_heads, CHANCE_HEAD_SHARE) for k in range(n_heads + 1))
    return next(float(k) for k, probability in enumerate(tails) if probability <= tail)


@dataclass(frozen=True)
class HeadPreference:
    """Numbers of heads of an encoding by the distances that they favour.

    Heads count only if they have an order of distances.

    Parameters
    ----------
    computed
        Whether a function gives the values, so that their order needs no test.
    heads, varying
        Number of all heads, and of those whose values are not all equal.
    near, far
        Number of ordered heads whose largest value lies within a quarter of the length, and beyond.
    before, after
        Number of ordered heads whose largest value is at an earlier key, and at a later one.
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
        """Number of heads with an order of distances."""
        return self.near + self.far


def _count_preferences(block: Block) -> HeadPreference:
    """Count the ordered heads of an encoding by the distances that they favour."""
    heads = block["heads"]
    varying_heads = [
        head for head, is_near in enumerate(heads["near"]) if is_near is not None
    ]
    ordered_heads = [
        head
        for head in varying_heads
        if block["computed"] or _exceeds_permutations(block, head)
    ]
    n_near = sum(bool(heads["near"][head]) for head in ordered_heads)
    # Where both sides are equal, the side of the largest value means nothing.
    has_sides = not _is_sideless(block)
    peaks = [
        heads["peak"][head]
        for head in ordered_heads
        if has_sides and (heads["asymmetry"][head] or 0) > MIN_ODD_SHARE
    ]
    return HeadPreference(
        computed=block["computed"],
        heads=block["head_count"],
        varying=len(varying_heads),
        near=n_near,
        far=len(ordered_heads) - n_near,
        before=sum(peak < 0 for peak in peaks),
        after=sum(peak > 0 for peak in peaks),
    )


def _exceeds_permutations(block: Block, head: int) -> bool:
    correlation = block["smoothness"]["correlation"][head]
    return correlation is not None and bool(
        correlation > block["smoothness"]["p95"][head]
    )


def _is_line(block: Block) -> bool:
    return bool(block["layout"]["type"] == "sequence")


def _is_sideless(block: Block) -> bool:
    """Return whether keys have no two sides: among patches, on a page, with a causal mask."""
    return not _is_line(block) or block["unit"] != POSITION_UNIT or bool(block["causal"])


def ask_near_distances(question: str, schemes: NumberedBlocks) -> Answer:
    """Ask whether most heads favour near positions."""
    facts = _near_facts(tuple(_count_preferences(block) for _, block in schemes))
    keys = _scheme_keys(
        schemes, "heads.near", "heads.half_width", "smoothness.structured"
    )
    return Answer(question, *_judge_near(facts), facts, keys=keys)


def _near_facts(preferences: tuple[HeadPreference, ...]) -> SchemeFacts[HeadPreference]:
    """Return facts whose value counts heads by near and far; None where none has an order."""
    facts = SchemeFacts(preferences)
    counts = {name: facts.total(name) for name in ("near", "far")}
    return replace(facts, value=counts if any(counts.values()) else None)


def _judge_near(facts: SchemeFacts[HeadPreference]) -> tuple[Verdict, str]:
    n_heads, n_varying, n_ordered = (
        facts.total(name) for name in ("heads", "varying", "ordered")
    )
    if not n_ordered:
        return "cannot tell", "no_order" if n_varying else "equal"
    if facts.total("near") > n_heads / 2:
        return "yes", "most"
    # Heads without order may favour either; heads with a single value favour none.
    if facts.total("near") + n_varying - n_ordered <= n_heads / 2:
        return "no", "few"
    return "cannot tell", "open"


def ask_sides(schemes: NumberedBlocks) -> Answer | None:
    """Ask whether heads prefer one side of the query, where there are two."""
    schemes = [(number, block) for number, block in schemes if not _is_sideless(block)]
    if not schemes:
        return None
    facts = _side_facts(tuple(_count_preferences(block) for _, block in schemes))
    keys = _scheme_keys(schemes, "heads.peak", "heads.asymmetry", "smoothness.structured")
    return Answer("bias_sides", *_judge_sides(facts), facts, keys=keys)


def _side_facts(preferences: tuple[HeadPreference, ...]) -> SchemeFacts[HeadPreference]:
    """Return facts whose value counts heads by side; None where none has an order."""
    facts = SchemeFacts(preferences)
    n_ordered = facts.total("ordered")
    side_counts = {name: facts.total(name) for name in ("before", "after")}
    even_counts = {"same": n_ordered - sum(side_counts.values())}
    return replace(facts, value=side_counts | even_counts if n_ordered else None)


def _judge_sides(facts: SchemeFacts[HeadPreference]) -> tuple[Verdict, str]:
    if not facts.total("ordered"):
        return "cannot tell", "no_order" if facts.total("varying") else "equal"
    if facts.total("before") or facts.total("after"):
        return "yes", "sided"
    return "no", "even"


@dataclass(frozen=True)
class DistanceLimit:
    """Distance from which on all distances share one value.

    Parameters
    ----------
    name, unit
        Name of the encoding, and unit of its distances.
    causal
        Whether later keys are masked; else each side has a value of its own.
    reach
        Smallest distance that shares its value with all larger ones; None where all differ.
    """

    name: str
    unit: str
    causal: bool
    reach: int | None


def ask_limit(question: str, schemes: NumberedBlocks) -> Answer | None:
    """Ask whether distances on a line share one value from some distance on."""
    schemes = [(number, block) for number, block in schemes if _is_line(block)]
    if not schemes:
        return None
    limits = tuple(
        DistanceLimit(block["name"], block["unit"], block["causal"], block["reach"])
        for _, block in schemes
    )
    reaches = [limit.reach for limit in limits if limit.reach is not None]
    answer: Verdict = "yes" if reaches else "no"
    facts = SchemeFacts(limits, reaches or None)
    reason = "shared" if reaches else "changing"
    return Answer(question, answer, reason, facts, keys=_scheme_keys(schemes, "reach"))


#: Questions by kind of encoding and by name, in the order of the page.
QUESTIONS_BY_KIND: Mapping[str, Mapping[str, AskSchemes]] = {
    "rotary": {
        "rotary_turns": ask_rotary_turns,
        "rotary_positive": ask_rotary_positive,
        "rotary_stretched": ask_rotary_stretched,
    },
    "alibi": {"alibi_near": ask_linear_near, "alibi_reach": ask_linear_reach},
    "bias": {
        "bias_smooth": partial(ask_smooth_distances, "bias_smooth"),
        "bias_near": partial(ask_near_distances, "bias_near"),
        "bias_sides": ask_sides,
        "bias_limit": partial(ask_limit, "bias_limit"),
    },
    "cosine": {
        "cosine_smooth": partial(ask_smooth_distances, "cosine_smooth"),
        "cosine_near": partial(ask_near_distances, "cosine_near"),
        "cosine_limit": partial(ask_limit, "cosine_limit"),
    },
}
#: Names of the questions about all kinds of encodings.
SCHEME_QUESTIONS = tuple(
    name for questions in QUESTIONS_BY_KIND.values() for name in questions
)


def _make_order_correction(
    question: str,
    order_question: str,
    make_facts: Callable[[tuple[HeadPreference, ...]], SchemeFacts[HeadPreference]],
    judge: Callable[[SchemeFacts[HeadPreference]], tuple[Verdict, str]],
) -> Correction[Sequence[Block]]:
    """Return the correction of a preference where heads have no more order than by chance.

    The largest of unordered values also lies at some distance.
    """
    no_counts: dict[str, Any] = dict.fromkeys(("near", "far", "before", "after"), 0)

    def correct(answers: Mapping[str, Answer], _: Sequence[Block]) -> Answer | None:
        answer = answers.get(question)
        if answer is None or answers[order_question].yes:
            return None
        preferences = [
            preference if preference.computed else replace(preference, **no_counts)
            for preference in answer.facts.encodings
        ]
        facts = make_facts(tuple(preferences))
        if facts == answer.facts:
            return None
        return answer.with_correction(*judge(facts), order_question, facts=facts)

    return correct


def _make_unread_correction(question: str) -> Correction[Sequence[Block]]:
    """Make the correction of an answer from a configuration with keys that no rule reads."""
    kind = question.partition("_")[0]

    def correct(answers: Mapping[str, Answer], schemes: Sequence[Block]) -> Answer | None:
        unread = dict.fromkeys(
            key
            for block in schemes
            if scheme_kind(block) == kind
            for key in block.get("unread_keys", ())
        )
        if question not in answers or not unread:
            return None
        answer = answers[question]
        facts = replace(answer.facts, unread=tuple(unread))
        return replace(answer, answer="cannot tell", reason="unread", facts=facts)

    return correct


#: Questions whose answers follow from the configuration.
CONFIGURED_QUESTIONS = (
    "rotary_turns",
    "rotary_positive",
    "rotary_stretched",
    "alibi_near",
    "alibi_reach",
)
SCHEME_CORRECTIONS = (
    *map(_make_unread_correction, CONFIGURED_QUESTIONS),
    _make_order_correction("bias_near", "bias_smooth", _near_facts, _judge_near),
    _make_order_correction("bias_sides", "bias_smooth", _side_facts, _judge_sides),
    _make_order_correction("cosine_near", "cosine_smooth", _near_facts, _judge_near),
)


def answer_schemes(schemes: Sequence[Block]) -> dict[str, Answer]:
    """Return the answers about the encodings of a checkpoint, by question.

    Parameters
    ----------
    schemes
        Blocks of the encodings in ``analysis.json``.
    """
    answers = []
    for kind, questions in QUESTIONS_BY_KIND.items():
        blocks = [
            (number, block)
            for number, block in enumerate(schemes)
            if scheme_kind(block) == kind
        ]
        if blocks:
            answers += [answer for ask in questions.values() if (answer := ask(blocks))]
    return decide(answers, SCHEME_CORRECTIONS, schemes)


def scheme_kind(block: Block) -> str:
    """Return the kind of an encoding: rotary, alibi, bias or cosine."""
    return str(block["quantity"] if block["scheme"] == "relative" else block["scheme"])


# Kernels between positions.


def _judge_offset_share(share: float) -> Verdict:
    if MAX_DENIAL_OFFSET_SHARE <= share < MIN_OFFSET_SHARE:
        return "cannot tell"
    return "yes" if share >= MIN_OFFSET_SHARE else "no"


#: Key of the number, and function that judges it, by question about the kernel that an encoding of
#: any kind induces between positions.
KERNEL_QUESTIONS: Mapping[str, tuple[str, Callable[[float], Verdict]]] = {
    "kernel_falls": (
        "monotone_fraction",
        lambda share: "yes" if share >= MIN_FALLING_STEP_SHARE else "no",
    ),
    "kernel_offset": ("translation_invariance", _judge_offset_share),
    "kernel_sides": (
        "asymmetry",
        lambda share: "yes" if share <= MIN_ODD_SHARE else "no",
    ),
}


def answer_kernel(block: Block) -> list[Answer]:
    """Answer every question about the kernel of an encoding from its block.

    Curves of a run are means over places, so that they do not say what else decides.
    """
    answers = []
    for question, (key, judge) in KERNEL_QUESTIONS.items():
        if question == "kernel_offset" and block["scheme"] == "measured":
            continue
        answer: Verdict = "cannot tell" if block[key] is None else judge(block[key])
        answers.append(Answer(question, answer, key, keys=(key,)))
    return answers
