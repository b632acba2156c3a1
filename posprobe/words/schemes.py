"""What is said of encodings without a table, and of kernels side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import ceil, log

from posprobe.analyses.facts import Answer
from posprobe.page import NO_VALUE, AnswerLine
from posprobe.questions.schemes import (
    KERNEL_QUESTIONS,
    DistanceLimit,
    HeadPreference,
    LinearSlopes,
    RotaryLadder,
    SchemeFacts,
    scheme_kind,
)
from posprobe.text import Block, use_minus_sign
from posprobe.words import ASKS, TEXTS, sentence
from posprobe.words.comparisons import walked
from posprobe.words.formats import (
    Template,
    capital,
    hundredths,
    listed,
    percent,
    some,
    two_figures,
)
from posprobe.words.lines import KEY, held_against

#: Encodings that a sentence names, and that a headline does.
NAMED = 4
LEADING = 2


def _each(parts: Sequence[tuple[str, str]], max_parts: int = NAMED) -> str:
    """Join what is said of each encoding: with its name if there are several, of many the first."""
    if len(parts) == 1:
        return f"{capital(parts[0][1])}."
    texts = [f"{name}: {text}" for name, text in parts[:max_parts]]
    if len(parts) > max_parts:
        texts.append(f"and {some(len(parts) - max_parts, 'more encoding')}")
    return f"{'; '.join(texts)}."


def _span(values: Iterable[float]) -> str:
    low, high = (two_figures(end(list(values))) for end in (min, max))
    return low if low == high else f"{low} to {high}"


# Rotary positions.


def _seen(f: RotaryLadder) -> str:
    return f"{'window' if f.windowed else 'context'} of {f.seen:,} positions"


def _pairs(f: RotaryLadder) -> str:
    """Count the pairs of a head, those of all axes."""
    per = f" ({f.pairs} per axis)" if f.axes > 1 else ""
    return f"{some(f.axes * f.pairs, 'pair')}{per}"


def _turn(f: RotaryLadder) -> str:
    need = "" if f.longest is None else f" (the slowest needs {ceil(f.longest):,})"
    return f"{(f.slow or 0) * f.axes} of {_pairs(f)} never turn within the {_seen(f)}{need}"


def _turns(f: SchemeFacts[RotaryLadder]) -> str:
    return _each(
        [(encoding.name, _turn(encoding)) for encoding in f.encodings if encoding.slow is not None]
    )


def _sign(f: RotaryLadder) -> str:
    """Say how far the mean rotation stays positive: the logit of equal unit pairs is just that."""
    score = "with identical query and key, the RoPE score"
    if f.first is None and f.axes > 1:
        return f"{score} is never negative along one axis: the pairs of the others stand still"
    context = "" if f.seen is None else f" ({_seen(f)})"
    if f.first is None:
        return f"{score} is positive up to {f.searched:,}, the farthest looked at{context}"
    return f"{score} stays positive up to distance {f.first - 1:,}{context}"


def _score(f: SchemeFacts[RotaryLadder]) -> str:
    decided = [encoding for encoding in f.encodings if encoding.known] or f.encodings
    return _each([(encoding.name, _sign(encoding)) for encoding in decided])


def _rule(f: RotaryLadder) -> str:
    length = "" if f.length is None else f" for texts of {f.length:,} positions"
    if not f.changes:
        return f"the rule {f.rule} changes no wavelength{length}"
    training = "" if f.training is None else f" (training: {f.training:,})"
    return f"the rule {f.rule} changes the wavelengths{length}{training}"


def _rules(f: SchemeFacts[RotaryLadder]) -> str:
    changed_encodings = [encoding for encoding in f.encodings if encoding.changes]
    return _each(
        [(encoding.name, _rule(encoding)) for encoding in changed_encodings or f.encodings]
    )


# Linear biases.


def _falls(f: SchemeFacts[LinearSlopes]) -> str:
    slopes = [slope for encoding in f.encodings for slope in encoding.slopes]
    sentences = [
        f"The bias falls by {_span(slopes)} logits per position in {some(len(slopes), 'head')}."
    ]
    for length in dict.fromkeys(encoding.length for encoding in f.encodings):
        windows = [
            w for encoding in f.encodings if encoding.length == length for w in encoding.windows
        ]
        keys = f"{_span(windows)} of {some(length, 'key')}"
        sentences.append(f"By itself, it spreads attention over {keys}.")
    return " ".join(sentences)


# What was learned of each distance.


def _near(noun: str, f: SchemeFacts[HeadPreference]) -> str:
    n_near, n_far, ordered, heads = (
        f.total(encoding) for encoding in ("near", "far", "ordered", "heads")
    )
    sentence = f"Of {some(ordered, noun)} with an order of distances, {n_near} "
    sentence += f"{'favours' if n_near == 1 else 'favour'} near ones"
    if n_far:
        sentence += f" and {n_far} those beyond a quarter of the length"
    unordered = f.total("varying") - ordered
    return f"{sentence}; {unordered} of {heads} have no order." if unordered else f"{sentence}."


def _sides(f: SchemeFacts[HeadPreference]) -> str:
    counts = f.value or {}
    return (
        f"{some(f.total('ordered'), 'head')} with an order of distances: the largest bias is at an "
        f"earlier key in {counts['before']}, at a later key in {counts['after']}, at neither in "
        f"{counts['same']}."
    )


def _limits(noun: str, f: SchemeFacts[DistanceLimit]) -> str:
    """Say each limit once, with the encodings that it is of where others have another or none."""
    names_by_limit: dict[str, list[str]] = {}
    for encoding in sorted(f.encodings, key=lambda encoding: encoding.reach or 0):
        if encoding.reach is not None:
            side = "" if encoding.causal else " per side"
            text = f"From {encoding.reach:,} {encoding.unit} on, distances share one {noun}{side}"
            text = text if encoding.reach else f"All distances share one {noun}"
            names_by_limit.setdefault(text, []).append(encoding.name)
    return " ".join(
        f"{text}." if len(names) == len(f.encodings) else f"{text} ({listed(names, NAMED)})."
        for text, names in names_by_limit.items()
    )


SCHEME_PARTS: Mapping[str, Mapping[str, Template]] = {
    "rotary_turns": {"turns": _turns},
    "rotary_positive": {"score": _score},
    "rotary_stretched": {"rules": _rules},
    "alibi_near": {"falls": _falls},
    "bias_near": {"near": partial(_near, "head")},
    "bias_sides": {"sides": _sides},
    "bias_limit": {"limits": partial(_limits, "bias")},
    "cosine_near": {"near": partial(_near, "table")},
    "cosine_limit": {"limits": partial(_limits, "vector")},
}


# Answers in a line.


def _turning(f: Block) -> tuple[str, str]:
    decided = [encoding for encoding in f["encodings"] if encoding["slow"] is not None]
    slow, pairs = (
        sum(encoding[key] * encoding["axes"] for encoding in decided) for key in ("slow", "pairs")
    )
    return "pairs that never turn", f"{slow} of {pairs}" if decided else NO_VALUE


def _least(measure: str, key: str) -> Callable[[Block], tuple[str, str]]:
    """Return how a distance is told that some encodings have, from the least to the largest."""

    def answer(f: Block) -> tuple[str, str]:
        decided = [encoding[key] for encoding in f["encodings"] if encoding[key] is not None]
        ends = sorted({min(decided), max(decided)}) if decided else ()
        return measure, " to ".join(f"{end:,}" for end in ends) or "none"

    return answer


def _halving(f: Block) -> tuple[str, str]:
    slopes = [slope for encoding in f["encodings"] for slope in encoding["slopes"]]
    return "halved every (positions)", _span([log(2) / slope for slope in slopes])


def _leaving(f: Block) -> tuple[str, str]:
    if f["length"] is None:
        return "weight left", NO_VALUE
    return f"weight left at {f['length']:,}", percent(f["left"])


def _structured(f: Block) -> tuple[str, str]:
    count = f["structured"]
    return "heads above chance", NO_VALUE if count is None else f"{count} of {f['heads']}"


def _counted(f: Block, *names: str) -> list[str]:
    return [str(sum(encoding[name] for encoding in f["encodings"])) for name in names]


def _favouring(f: Block) -> tuple[str, str]:
    return "heads that do", " of ".join(_counted(f, "near", "heads"))


def _ruled(f: Block) -> tuple[str, str]:
    return "rule", ", ".join(
        dict.fromkeys(encoding["rule"] for encoding in f["encodings"])
    ) or "none"


#: From the facts of an answer a measure and its value.
_MEASURES: Mapping[str, Callable[[Block], tuple[str, str]]] = {
    "rotary_turns": _turning,
    "rotary_positive": _least("first negative distance", "first"),
    "rotary_stretched": _ruled,
    "alibi_near": _halving,
    "alibi_reach": _leaving,
    "bias_smooth": _structured,
    "bias_near": _favouring,
    "bias_sides": lambda f: ("heads: before, after", ", ".join(_counted(f, "before", "after"))),
    "bias_limit": _least("from distance", "reach"),
    "cosine_smooth": _structured,
    "cosine_near": _favouring,
    "cosine_limit": _least("from distance", "reach"),
}


def line(answer: Block) -> AnswerLine:
    """Return an answer's block as a line; what version 1 did not keep is left out."""
    question, facts = ASKS[answer["question"]], answer.get("facts")
    measure, value = _MEASURES[answer["question"]](facts) if facts else ("", NO_VALUE)
    return held_against(answer, question, measure, two_figures, value)


#: What an answer means, of what a configuration decides and of what was learned.
KEYS: Mapping[bool, str] = {False: "From the configuration: exact.", True: f"Learned values: {KEY}"}


def what_it_is(schemes: Sequence[Block]) -> str:
    """Say what encodings of one kind are."""
    places_text = f" in {len(schemes)} places" if len(schemes) > 1 else ""
    match scheme_kind(schemes[0]):
        case "rotary":
            return f"rotary embeddings (RoPE){places_text}"
        case "alibi":
            return f"linear biases (ALiBi), a fixed slope per head{places_text}"
        case "cosine":
            return f"a learned vector per distance{places_text}"
    layouts = [scheme["layout"] for scheme in schemes]
    if layouts[0]["type"] == "grid":
        sizes = dict.fromkeys(f"{layout['height']} × {layout['width']}" for layout in layouts)
        windows_text = f"displacement in windows of {' and '.join(sizes)} patches"
    else:
        windows_text = "distance"
    return f"a learned bias per head and {windows_text}{places_text}"


# What is said first.


def summary(answers: Mapping[str, Answer]) -> str:
    """Sum up the encodings of a checkpoint, kind by kind.

    Parameters
    ----------
    answers
        Answers by question.
    """
    clauses = []
    if "rotary_turns" in answers:
        ladders: Sequence[RotaryLadder] = answers["rotary_turns"].facts.encodings
        clauses.append(_each([(ladder.name, _wavelengths(ladder)) for ladder in ladders], LEADING))
        # Of several, the answers tell it.
        clauses += [sentence(answers["rotary_positive"])] if len(ladders) == 1 else []
    if "alibi_near" in answers:
        halving = _span(answers["alibi_near"].value["halving"])
        clauses.append(f"With equal contents, ALiBi halves attention every {halving} positions.")
    for kind in ("bias", "cosine"):
        if f"{kind}_smooth" in answers:
            clauses += _of_distances(
                *(answers.get(f"{kind}_{property_name}") for property_name in _LEARNED)
            )
    return " ".join(clauses)


#: What is asked of values that were learned per distance.
_LEARNED = ("smooth", "near", "limit")


def _wavelengths(f: RotaryLadder) -> str:
    ends = [end for end in (f.shortest, f.longest) if end is not None]
    reach = f"of wavelength {_span(ends)} positions" if len(ends) == 2 else "that never turn"
    if f.slow is None:
        return f"{_pairs(f)} {reach}"
    return f"{_pairs(f)} {reach}; {f.slow * f.axes or 'none'} never turn within the {_seen(f)}"


def _of_distances(
    smooth_answer: Answer | None, near_answer: Answer | None, limit_answer: Answer | None
) -> Iterator[str]:
    if smooth_answer is not None:
        yield sentence(smooth_answer)
    if near_answer is not None and near_answer.value:
        yield sentence(near_answer)
    if (
        limit_answer is not None
        and limit_answer.yes
        and smooth_answer is not None
        and smooth_answer.reason != "equal"
    ):
        yield sentence(limit_answer)


# Kernels side by side.

#: What each number of a kernel is, by the question that it answers.
_OF_KERNELS: Mapping[str, str] = {
    "kernel_falls": "steps that do not rise",
    "kernel_offset": "variance by offset",
    "kernel_sides": "before against after",
}
#: What a kernel holds.
KERNEL_OF = {"cosine": "cosine", "bias": "bias (logits)", "rotation": "mean rotation"}
#: What the answers about kernels are about.
KERNEL_KEY = "Mean over heads. By chance: 95 % of pairs of random walks."


def kernel_line(question: str, answer: str, record: Block) -> AnswerLine:
    """Return the answer about a kernel as a line, from the block of the encoding."""
    number = record[KERNEL_QUESTIONS[question][0]]
    value = NO_VALUE if number is None else percent(number)
    return AnswerLine(question, answer, ASKS[question], _OF_KERNELS[question], value)


def kernels_headline(pairs: Sequence[Block], walk: Block | None) -> str:
    """Say how similar the curves of encodings are: of two, or of several pairs how many."""
    if len(pairs) == 1 and ("heads" in pairs[0] or not _similar(pairs[0], walk)):
        return " ".join(pair_sentences(pairs[0], walk))
    verdicts = [(pair["records"], _similar(pair, walk)) for pair in pairs]
    return walked(verdicts, "The curves of {} over distance are")


def _similar(pair: Block, walk: Block | None) -> str:
    if walk is None or pair["correlation"] is None:
        return ""
    return "yes" if pair["correlation"] > walk["correlation"] else "no"


def pair_line(pair: Block, name: str, walk: Block | None) -> AnswerLine:
    """Return how similar the curves of two encodings are as a line."""
    question = " · ".join(pair["records"])
    if heads := pair.get("heads"):
        value = use_minus_sign(hundredths(heads["correlation"]))
        return AnswerLine(name, "", question, "correlation of heads", value)
    value = NO_VALUE if pair["correlation"] is None else hundredths(pair["correlation"])
    chance = NO_VALUE if walk is None else f"below {hundredths(walk['correlation'])}"
    return AnswerLine(
        name, _similar(pair, walk), question, "correlation", use_minus_sign(value), chance
    )


def pair_sentences(pair: Block, walk: Block | None) -> Iterator[str]:
    """Say how similar two encodings are, by their curves and by their kernels."""
    if heads := pair.get("heads"):
        yield from _matched(heads)
        return
    names = listed(pair["records"])
    subjects = {"correlation": f"The curves of {names} over distance", "alignment": "Their kernels"}
    for key, subject in subjects.items():
        measure = key if key == "correlation" else "centred alignment"
        if pair[key] is None:
            yield f"{subject} have no {measure}: {pair['undefined'][key]}."
            continue
        bar = f" (95 % of random walks: below {hundredths(walk[key])})" if walk else ""
        yield f"{subject} have a {measure} of {hundredths(pair[key])}{bar}."


def _matched(heads: Block) -> Iterator[str]:
    """Say how similar the heads of two runs are, each matched with one by its curve."""
    within_share = heads["within"]
    bar = f" (heads of one run with each other: {hundredths(within_share)})" if within_share else ""
    correlation_text = hundredths(heads["correlation"])
    yield f"Heads matched by their curves have a median correlation of {correlation_text}{bar}."
    if heads["same"] is not None:
        yield (
            f"{heads['same']} of {some(heads['heads'], 'head')} meet the head of their own layer "
            f"and number; such heads have a median correlation of {hundredths(heads['by_place'])}."
        )


def kernels_lead(document: Block) -> str:
    """Say how many encodings are compared, and between which positions."""
    layout = document["layout"]
    length_text = f"{document['length']:,} positions"
    if layout["type"] == "grid":
        length_text = f"the patches of a grid of {layout['height']} × {layout['width']}"
    return f"{len(document['records'])} encodings by their kernels between {length_text}"


def kernel_notes(document: Block) -> Iterator[str]:
    """Say what each kernel was measured on, and which have more positions than are compared."""
    length, other_labels = document["length"], []
    for record in document["records"]:
        if run := record.get("run"):
            source_text = TEXTS["sources"][run["source"]]
            contexts_text = (
                f"{run['contexts']:,} contexts of {run['length']:,} tokens {source_text}".rstrip()
            )
            yield f"{record['label']}: measured on {contexts_text}."
        if record["positions"] not in (None, length):
            other_labels.append(f"{record['label']} has {record['positions']}")
    if other_labels:
        yield (
            f"{length} positions of each are compared: {', '.join(other_labels)}. "
            "Nothing is resampled."
        )
