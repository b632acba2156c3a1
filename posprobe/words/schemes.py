"""Sentences about encodings without a table, and about kernels."""

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
from posprobe.words import ANSWER_TEXTS, QUESTION_TEXTS, answer_sentence
from posprobe.words.comparisons import chance_comparison
from posprobe.words.formats import (
    Template,
    capitalise,
    choose_plural,
    format_count,
    format_hundredths,
    format_two_figures,
    format_whole_percent,
    join_words,
)
from posprobe.words.lines import TEST_KEY, chance_line, compared_runs

#: Largest number of encodings that a sentence names.
MAX_NAMED_ENCODINGS = 4
#: Largest number of encodings that a headline names.
MAX_HEADLINE_ENCODINGS = 2


def _join_encodings(
    parts: Sequence[tuple[str, str]], max_parts: int = MAX_NAMED_ENCODINGS
) -> str:
    """Join clauses about encodings, with their names if there are several."""
    if len(parts) == 1:
        return f"{capitalise(parts[0][1])}."
    texts = [f"{name}: {text}" for name, text in parts[:max_parts]]
    if len(parts) > max_parts:
        texts.append(f"and {format_count(len(parts) - max_parts, 'more encoding')}")
    return f"{'; '.join(texts)}."


def _format_range(values: Iterable[float]) -> str:
    low, high = (format_two_figures(function(list(values))) for function in (min, max))
    return low if low == high else f"{low} to {high}"


# Rotary positions.


def _visible_phrase(ladder: RotaryLadder) -> str:
    return f"{'window' if ladder.windowed else 'context'} of {ladder.seen:,} positions"


def _pairs_phrase(ladder: RotaryLadder) -> str:
    """Return the number of pairs of a head, over all axes."""
    axis_text = f" ({ladder.pairs} per axis)" if ladder.axes > 1 else ""
    return f"{format_count(ladder.axes * ladder.pairs, 'pair')}{axis_text}"


def _turn_clause(ladder: RotaryLadder) -> str:
    n_slow = (ladder.slow or 0) * ladder.axes
    text = f"{n_slow} of {_pairs_phrase(ladder)} never turn within the {_visible_phrase(ladder)}"
    if ladder.longest is not None:
        text += f" (the slowest needs {ceil(ladder.longest):,})"
    return text


def _turns_sentence(facts: SchemeFacts[RotaryLadder]) -> str:
    ladders = [ladder for ladder in facts.encodings if ladder.slow is not None]
    return _join_encodings([(ladder.name, _turn_clause(ladder)) for ladder in ladders])


def _sign_clause(ladder: RotaryLadder) -> str:
    """Return a clause on how far the mean rotation, the logit of equal unit pairs, is positive."""
    score = "with identical query and key, the RoPE score"
    if ladder.first is None and ladder.axes > 1:
        return f"{score} is never negative along one axis: the pairs of the others stand still"
    context = "" if ladder.seen is None else f" ({_visible_phrase(ladder)})"
    if ladder.first is None:
        return f"{score} is positive up to {ladder.searched:,}, the farthest looked at{context}"
    return f"{score} stays positive up to distance {ladder.first - 1:,}{context}"


def _score_sentence(facts: SchemeFacts[RotaryLadder]) -> str:
    ladders = [ladder for ladder in facts.encodings if ladder.known] or facts.encodings
    return _join_encodings([(ladder.name, _sign_clause(ladder)) for ladder in ladders])


def _rule_clause(ladder: RotaryLadder) -> str:
    length = "" if ladder.length is None else f" for texts of {ladder.length:,} positions"
    if not ladder.changes:
        return f"the rule {ladder.rule} changes no wavelength{length}"
    training = "" if ladder.training is None else f" (training: {ladder.training:,})"
    return f"the rule {ladder.rule} changes the wavelengths{length}{training}"


def _rules_sentence(facts: SchemeFacts[RotaryLadder]) -> str:
    ladders = [ladder for ladder in facts.encodings if ladder.changes] or facts.encodings
    return _join_encodings([(ladder.name, _rule_clause(ladder)) for ladder in ladders])


# Linear biases.


def _falls_sentences(facts: SchemeFacts[LinearSlopes]) -> str:
    slopes = [
        slope for linear_slopes in facts.encodings for slope in linear_slopes.slopes
    ]
    heads = format_count(len(slopes), "head")
    sentences = [
        f"The bias falls by {_format_range(slopes)} logits per position in {heads}."
    ]
    for length in dict.fromkeys(
        linear_slopes.length for linear_slopes in facts.encodings
    ):
        windows = [
            window
            for linear_slopes in facts.encodings
            if linear_slopes.length == length
            for window in linear_slopes.windows
        ]
        keys = f"{_format_range(windows)} of {format_count(length, 'key')}"
        sentences.append(f"By itself, it spreads attention over {keys}.")
    return " ".join(sentences)


# Learned values per distance.


def _near_sentence(noun: str, facts: SchemeFacts[HeadPreference]) -> str:
    n_near, n_far, n_ordered, n_heads = (
        facts.total(name) for name in ("near", "far", "ordered", "heads")
    )
    sentence = f"Of {format_count(n_ordered, noun)} with an order of distances, {n_near} "
    sentence += f"{'favours' if n_near == 1 else 'favour'} near ones"
    if n_far:
        sentence += f" and {n_far} those beyond a quarter of the length"
    n_unordered = facts.total("varying") - n_ordered
    if n_unordered:
        sentence += f"; {n_unordered} of {n_heads} have no order"
    return f"{sentence}."


def _sides_sentence(facts: SchemeFacts[HeadPreference]) -> str:
    counts = facts.value or {}
    heads = format_count(facts.total("ordered"), "head")
    return (
        f"{heads} with an order of distances: the largest bias is at an "
        f"earlier key in {counts['before']}, at a later key in "
        f"{counts['after']}, at neither in {counts['same']}."
    )


def _limit_sentences(noun: str, facts: SchemeFacts[DistanceLimit]) -> str:
    """Return one sentence per limit, with its encodings where others have another limit or none."""
    names_by_limit: dict[str, list[str]] = {}
    for limit in sorted(facts.encodings, key=lambda limit: limit.reach or 0):
        if limit.reach is not None:
            side = "" if limit.causal else " per side"
            text = (
                f"From {limit.reach:,} {limit.unit} on, distances share one {noun}{side}"
            )
            text = text if limit.reach else f"All distances share one {noun}"
            names_by_limit.setdefault(text, []).append(limit.name)
    return " ".join(
        f"{text}."
        if len(names) == len(facts.encodings)
        else f"{text} ({join_words(names, MAX_NAMED_ENCODINGS)})."
        for text, names in names_by_limit.items()
    )


SCHEME_PARTS: Mapping[str, Mapping[str, Template]] = {
    "rotary_turns": {"turns": _turns_sentence},
    "rotary_positive": {"score": _score_sentence},
    "rotary_stretched": {"rules": _rules_sentence},
    "alibi_near": {"falls": _falls_sentences},
    "bias_near": {"near": partial(_near_sentence, "head")},
    "bias_sides": {"sides": _sides_sentence},
    "bias_limit": {"limits": partial(_limit_sentences, "bias")},
    "cosine_near": {"near": partial(_near_sentence, "table")},
    "cosine_limit": {"limits": partial(_limit_sentences, "vector")},
}


# Lines of answers.


def _turning_measure(facts: Block) -> tuple[str, str]:
    ladders = [ladder for ladder in facts["encodings"] if ladder["slow"] is not None]
    slow, pairs = (
        sum(ladder[key] * ladder["axes"] for ladder in ladders)
        for key in ("slow", "pairs")
    )
    return "pairs that never turn", f"{slow} of {pairs}" if ladders else NO_VALUE


def _distance_range_measure(measure: str, key: str) -> Callable[[Block], tuple[str, str]]:
    """Return the measure of a distance that some encodings have, with its range."""

    def answer(facts: Block) -> tuple[str, str]:
        distances = [
            encoding[key] for encoding in facts["encodings"] if encoding[key] is not None
        ]
        extremes = sorted({min(distances), max(distances)}) if distances else ()
        return measure, " to ".join(f"{distance:,}" for distance in extremes) or "none"

    return answer


def _halving_measure(facts: Block) -> tuple[str, str]:
    slopes = [slope for encoding in facts["encodings"] for slope in encoding["slopes"]]
    return "halved every (positions)", _format_range([log(2) / slope for slope in slopes])


def _remaining_measure(facts: Block) -> tuple[str, str]:
    if facts["length"] is None:
        return "weight left", NO_VALUE
    return f"weight left at {facts['length']:,}", format_whole_percent(facts["left"])


def _structured_measure(facts: Block) -> tuple[str, str]:
    count = facts["structured"]
    return (
        "heads above chance",
        NO_VALUE if count is None else f"{count} of {facts['heads']}",
    )


def _count_heads(facts: Block, *names: str) -> list[str]:
    return [str(sum(encoding[name] for encoding in facts["encodings"])) for name in names]


def _near_measure(facts: Block) -> tuple[str, str]:
    return "heads that do", " of ".join(_count_heads(facts, "near", "heads"))


def _rule_measure(facts: Block) -> tuple[str, str]:
    rules = dict.fromkeys(encoding["rule"] for encoding in facts["encodings"])
    return "rule", ", ".join(rules) or "none"


#: Measure and its value, from the facts of an answer, by question.
_SCHEME_MEASURES: Mapping[str, Callable[[Block], tuple[str, str]]] = {
    "rotary_turns": _turning_measure,
    "rotary_positive": _distance_range_measure("first negative distance", "first"),
    "rotary_stretched": _rule_measure,
    "alibi_near": _halving_measure,
    "alibi_reach": _remaining_measure,
    "bias_smooth": _structured_measure,
    "bias_near": _near_measure,
    "bias_sides": lambda f: (
        "heads: before, after",
        ", ".join(_count_heads(f, "before", "after")),
    ),
    "bias_limit": _distance_range_measure("from distance", "reach"),
    "cosine_smooth": _structured_measure,
    "cosine_near": _near_measure,
    "cosine_limit": _distance_range_measure("from distance", "reach"),
}


def scheme_line(answer: Block) -> AnswerLine:
    """Return an answer's block as a line, without facts that version 1 did not keep."""
    question, facts = QUESTION_TEXTS[answer["question"]], answer.get("facts")
    measure, value = (
        _SCHEME_MEASURES[answer["question"]](facts) if facts else ("", NO_VALUE)
    )
    if facts and answer["reason"] == "unread":
        measure, value = "keys that are not read", str(len(facts["unread"]))
    return chance_line(answer, question, measure, format_two_figures, value)


def key_sentence(schemes: Sequence[Block]) -> str:
    """Return the meaning of answers about schemes of one kind: learned, or configured."""
    if scheme_kind(schemes[0]) in ("bias", "cosine"):
        return f"Learned values: {TEST_KEY}"
    unread_keys = dict.fromkeys(
        key for scheme in schemes for key in scheme.get("unread_keys", ())
    )
    if not unread_keys:
        return "From the configuration: exact."
    verb = choose_plural([*unread_keys], "is|are")
    return (
        f"From the configuration, of which {join_words([*unread_keys])} {verb} not read."
    )


def describe_schemes(schemes: Sequence[Block]) -> str:
    """Describe the encodings of one kind."""
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
        sizes = dict.fromkeys(
            f"{layout['height']} × {layout['width']}" for layout in layouts
        )
        windows_text = f"displacement in windows of {' and '.join(sizes)} patches"
    else:
        windows_text = "distance"
    return f"a learned bias per head and {windows_text}{places_text}"


# Summary.


def summarise_schemes(answers: Mapping[str, Answer]) -> str:
    """Summarise the encodings of a checkpoint by kind.

    Parameters
    ----------
    answers
        Answers by question.
    """
    clauses = []
    unread = [answer for answer in answers.values() if answer.reason == "unread"]
    if unread:
        clauses.append(answer_sentence(unread[0]))
    elif "rotary_turns" in answers:
        ladders: Sequence[RotaryLadder] = answers["rotary_turns"].facts.encodings
        wavelengths = [(ladder.name, _wavelengths_clause(ladder)) for ladder in ladders]
        clauses.append(_join_encodings(wavelengths, MAX_HEADLINE_ENCODINGS))
        # For several encodings, only the answers give the sign.
        clauses += (
            [answer_sentence(answers["rotary_positive"])] if len(ladders) == 1 else []
        )
    if "alibi_near" in answers and answers["alibi_near"] not in unread:
        halving = _format_range(answers["alibi_near"].value["halving"])
        clauses.append(
            f"With equal contents, ALiBi halves attention every {halving} positions."
        )
    for kind in ("bias", "cosine"):
        if f"{kind}_smooth" in answers:
            clauses += _distance_sentences(
                *(answers.get(f"{kind}_{question}") for question in _DISTANCE_QUESTIONS)
            )
    return " ".join(clauses)


#: Questions about values that were learned per distance.
_DISTANCE_QUESTIONS = ("smooth", "near", "limit")


def _wavelengths_clause(ladder: RotaryLadder) -> str:
    text = f"{_pairs_phrase(ladder)} that never turn"
    if ladder.shortest is not None and ladder.longest is not None:
        wavelengths = _format_range([ladder.shortest, ladder.longest])
        text = f"{_pairs_phrase(ladder)} of wavelength {wavelengths} positions"
    if ladder.slow is None:
        return text
    n_slow = ladder.slow * ladder.axes or "none"
    return f"{text}; {n_slow} never turn within the {_visible_phrase(ladder)}"


def _distance_sentences(
    smooth_answer: Answer | None, near_answer: Answer | None, limit_answer: Answer | None
) -> Iterator[str]:
    if smooth_answer is not None:
        yield answer_sentence(smooth_answer)
    if near_answer is not None and near_answer.value:
        yield answer_sentence(near_answer)
    has_values = smooth_answer is not None and smooth_answer.reason != "equal"
    if limit_answer is not None and limit_answer.yes and has_values:
        yield answer_sentence(limit_answer)


# Kernels.

#: Names of the numbers of a kernel, by the question that they answer.
_KERNEL_MEASURES: Mapping[str, str] = {
    "kernel_falls": "steps that do not rise",
    "kernel_offset": "variance by offset",
    "kernel_sides": "before against after",
}
#: Quantities of kernels.
KERNEL_QUANTITIES = {
    "cosine": "cosine",
    "bias": "bias (logits)",
    "rotation": "mean rotation",
    "logit": "mean logit (nats)",
}
#: Key to the answers about kernels.
KERNEL_KEY = "Mean over heads. By chance: 95 % of pairs of random walks."


def kernel_line(question: str, answer: str, record: Block) -> AnswerLine:
    """Return the answer about a kernel as a line, from the block of the encoding."""
    number = record[KERNEL_QUESTIONS[question][0]]
    value = NO_VALUE if number is None else format_whole_percent(number)
    return AnswerLine(
        question, answer, QUESTION_TEXTS[question], _KERNEL_MEASURES[question], value
    )


def kernels_headline(
    pairs: Sequence[Block], walk: Block | None, records: Sequence[Block]
) -> str:
    """Return what decides where heads look if all are runs, else how similar the curves are."""
    if runs := compared_runs(records):
        return _runs_headline(runs)
    if len(pairs) == 1 and ("heads" in pairs[0] or not _curve_verdict(pairs[0], walk)):
        return " ".join(curve_sentences(pairs[0], walk))
    verdicts = [(pair["records"], _curve_verdict(pair, walk)) for pair in pairs]
    return chance_comparison(verdicts, "The curves of {} over distance are")


def _runs_headline(runs: Sequence[tuple[str, Block]]) -> str:
    """Say what position decides in two runs, or in the runs with the most and the least."""
    shares = {
        # The estimate of a zero share can be slightly negative.
        label: max(run["distance"] + run["key"] + run["other"], 0.0)
        for label, run in runs
    }
    texts = {label: format_whole_percent(share) for label, share in shares.items()}
    if len(runs) == 2:
        (first, first_text), (second, second_text) = texts.items()
        where = f"{first_text} of where the heads look in {first}"
        return f"Position decides {where}, {second_text} in {second}."
    lowest, highest = (
        function(shares, key=lambda label: shares[label]) for function in (min, max)
    )
    return (
        f"Position decides most in {highest} ({texts[highest]} of where the heads look) "
        f"and least in {lowest} ({texts[lowest]})."
    )


def _curve_verdict(pair: Block, walk: Block | None) -> str:
    if walk is None or pair["correlation"] is None:
        return ""
    return "yes" if pair["correlation"] > walk["correlation"] else "no"


def curve_line(pair: Block, name: str, walk: Block | None) -> AnswerLine:
    """Return the similarity of the curves of two encodings as a line."""
    question = " · ".join(pair["records"])
    if heads := pair.get("heads"):
        value = use_minus_sign(format_hundredths(heads["correlation"]))
        return AnswerLine(name, "", question, "correlation of heads", value)
    value = (
        NO_VALUE
        if pair["correlation"] is None
        else format_hundredths(pair["correlation"])
    )
    chance = (
        NO_VALUE if walk is None else f"below {format_hundredths(walk['correlation'])}"
    )
    verdict, value = _curve_verdict(pair, walk), use_minus_sign(value)
    return AnswerLine(name, verdict, question, "correlation", value, chance)


def curve_sentences(pair: Block, walk: Block | None) -> Iterator[str]:
    """Yield sentences on the similarity of two encodings, by curves and by kernels."""
    if heads := pair.get("heads"):
        yield from _matched_heads_sentences(heads)
        return
    names = join_words(pair["records"])
    subjects = {
        "correlation": f"The curves of {names} over distance",
        "alignment": "Their kernels",
    }
    for key, subject in subjects.items():
        measure = key if key == "correlation" else "centred alignment"
        if pair[key] is None:
            yield f"{subject} have no {measure}: {pair['undefined'][key]}."
            continue
        walk_text = (
            f" (95 % of random walks: below {format_hundredths(walk[key])})"
            if walk
            else ""
        )
        yield f"{subject} have a {measure} of {format_hundredths(pair[key])}{walk_text}."


def _matched_heads_sentences(heads: Block) -> Iterator[str]:
    """Yield sentences on the similarity of the heads of two runs, matched by their curves."""
    text = f"a median correlation of {format_hundredths(heads['correlation'])}"
    if within_correlation := heads["within"]:
        text += f" (heads of one run with each other: {format_hundredths(within_correlation)})"
    yield f"Heads matched by their curves have {text}."
    if heads["same"] is not None:
        n_heads = format_count(heads["heads"], "head")
        yield (
            f"{heads['same']} of {n_heads} meet the head of their own layer "
            "and number; such heads have a median correlation of "
            f"{format_hundredths(heads['by_place'])}."
        )


def kernels_lead(document: Block) -> str:
    """Return a phrase on the number of encodings and positions that are compared."""
    layout = document["layout"]
    if runs := compared_runs(document["records"]):
        return (
            f"{format_count(len(runs), 'run')} by what decides where their heads look, and by "
            f"{document['length']:,} distances"
        )
    length_text = f"{document['length']:,} positions"
    if layout["type"] == "grid":
        length_text = f"the patches of a grid of {layout['height']} × {layout['width']}"
    return f"{len(document['records'])} encodings by their kernels between {length_text}"


def _run_contexts_phrase(run: Block) -> str:
    """Return the contexts of a run as a phrase."""
    if "kind" in run:
        return f"{run['contexts']:,} contexts of {run['tokens']:,} tokens ({run['kind']})"
    # In bundles of version 2.
    source = ANSWER_TEXTS["sources"][run["source"]]
    return f"{run['contexts']:,} contexts of {run['length']:,} tokens {source}".rstrip()


def kernel_notes(document: Block) -> Iterator[str]:
    """Yield notes on the contexts of each kernel, and on positions that are not compared."""
    length, other_labels = document["length"], []
    for record in document["records"]:
        if run := record.get("run"):
            yield f"{record['label']}: measured on {_run_contexts_phrase(run)}."
        if record["positions"] not in (None, length):
            other_labels.append(f"{record['label']} has {record['positions']}")
    if other_labels:
        yield (
            f"{length} positions of each are compared: "
            f"{', '.join(other_labels)}. Nothing is resampled."
        )
