"""What is said of encodings without a table, and of kernels side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import ceil, log

from posprobe.analyses.facts import Answer
from posprobe.page import NONE, Line
from posprobe.questions.schemes import (
    Falls,
    Ladder,
    Limit,
    Limits,
    Near,
    Rule,
    Rules,
    Sides,
    Signs,
    Smooth,
    Turns,
    kind_of,
)
from posprobe.report.narrator import ASKS, TEXTS
from posprobe.report.narrator.comparisons import walked
from posprobe.report.narrator.lines import KEY, held_against
from posprobe.report.narrator.words import (
    Template,
    capital,
    hundredths,
    listed,
    percent,
    some,
    two_figures,
)
from posprobe.schemes import POSITIONS
from posprobe.text import Block, minus, show

#: Encodings that a sentence names, and that a headline does.
NAMED, LEADING = 4, 2
#: What the values per distance are, and what has them.
_NOUNS = {"bias": ("head", "heads"), "cosine": ("table of vectors", "tables of vectors")}
#: Ratio of two half widths from which a reader sees that one curve is wider.
WIDER = 1.25
#: Pairs of curves that are told of, the most similar first.
PAIRS = 3


def _each(parts: Sequence[tuple[str, str]], most: int = NAMED) -> str:
    """Join what is said of each encoding: with its name if there are several, of many the first."""
    if len(parts) == 1:
        return f"{capital(parts[0][1])}."
    said = [f"{name}: {text}" for name, text in parts[:most]]
    if more := len(parts) - most:
        said += [f"and {some(more, 'more encoding')}"] if more > 0 else []
    return f"{'; '.join(said)}."


def _span(values: Iterable[float]) -> str:
    low, high = (two_figures(end(list(values))) for end in (min, max))
    return low if low == high else f"{low} to {high}"


# Rotary positions.


def _context(f: Ladder) -> str:
    return "window" if f.windowed else "context"


def _pairs(f: Ladder, count: str = "") -> str:
    """Count the pairs of a head, those of all axes."""
    total = some(f.axes * f.pairs, "pair")
    per = f" ({f.pairs} per axis)" if f.axes > 1 else ""
    return f"{count}{total}{per}"


def _turn(f: Ladder) -> str:
    slow = (f.slow or 0) * f.axes
    who = _pairs(f, f"{slow} of ") if slow else _pairs(f, "all " if f.axes * f.pairs > 1 else "")
    one = slow == 1 or f.axes * f.pairs == 1
    verb = f"{'completes' if one else 'complete'} a turn"
    need = "" if f.longest is None else f" (the slowest needs {ceil(f.longest):,})"
    verb = f"never {verb}" if slow else verb
    return f"{who} {verb} within the {_context(f)} of {f.seen:,} positions{need}"


def _turns(f: Turns) -> str:
    return _each([(each.name, _turn(each)) for each in f.ladders if each.slow is not None])


def _sign(f: Ladder) -> str:
    """Say how far the mean rotation stays positive: the logit of equal unit pairs is just that."""
    if f.first is None and f.axes > 1:
        return "is never negative along one axis, as the pairs of the other axes stand still"
    context = "" if f.seen is None else f" ({_context(f)}: {f.seen:,})"
    if f.first is None:
        return f"stays positive up to distance {f.searched:,}, the farthest looked at{context}"
    return f"stays positive up to distance {f.first - 1:,}{context}"


def _score(f: Signs) -> str:
    known = [each for each in f.encodings if each.known] or f.encodings
    whose = ["with identical query and key, the RoPE score", *["it"] * (len(known) - 1)]
    signs = zip(known, whose, strict=True)
    return _each([(each.name, f"{score} {_sign(each)}") for each, score in signs])


def _rule(f: Rule) -> str:
    if not f.changes:
        upto = "" if f.length is None else f" in texts of up to {f.length:,} positions"
        return f"the rule {f.rule} changes no wavelength{upto}"
    length = "" if f.length is None else f" for texts of {f.length:,} positions"
    more = f.training is not None and f.length is not None and f.length > f.training
    training = f" (training: {f.training:,})" if more else ""
    return f"the rule {f.rule} changes the wavelengths{length}{training}"


def _rules(f: Rules) -> str:
    changed = [each for each in f.rules if each.changes]
    return _each([(each.name, _rule(each)) for each in changed or f.rules])


# Linear biases.


def _heads(count: int) -> str:
    return f"all {count} heads" if count > 1 else "the only head"


def _falls(f: Falls) -> str:
    slopes = [slope for each in f.encodings for slope in each.slopes]
    by = f"by {_span(slopes)} logits per position"
    said = [f"The bias falls with distance in {_heads(len(slopes))}, {by}."]
    for length in dict.fromkeys(each.length for each in f.encodings):
        windows = [w for each in f.encodings if each.length == length for w in each.windows]
        keys = f"{_span(windows)} of {some(length, 'key')}"
        said.append(f"By itself, it spreads attention over {keys}.")
    return " ".join(said)


# What was learned of each distance.


def _count(kind: str, count: int, of: int) -> str:
    return f"{count} of {some(of, *_NOUNS[kind])}"


def _smooth(kind: str, f: Smooth) -> str:
    what = {"bias": "biases", "cosine": "cosines with distance 0"}[kind]
    return (
        f"In {_count(kind, f.structured or 0, f.heads)}, neighbouring distances have more similar "
        f"{what} than in 95 % of permutations ({f.chance:.2g} expected by chance)."
    )


def _near(kind: str, f: Near) -> str:
    near, far, ordered, heads = (f.total(each) for each in ("near", "far", "ordered", "heads"))
    which = _count(kind, near, ordered)
    which += " with an order of distances" if ordered < heads else ""
    if kind == "bias":
        said = [f"{which} {'favours' if near == 1 else 'favour'} near positions"]
        beyond = f"{far} {'favours' if far == 1 else 'favour'} those beyond a quarter of the length"
    else:
        said = [f"in {which}, near distances are most similar to distance 0"]
        beyond = f"in {far}, distances beyond a quarter of the length are"
    widths = [(each.unit, width) for each in f.encodings for width in each.widths]
    if widths:
        some_of = "" if len(widths) == near else f" in {len(widths)} of them"
        said.append(f"half of the fall is done within {_measured(widths)}{some_of}")
    if far:
        said.append(beyond)
    if unordered := f.total("varying") - ordered:
        said.append(f"{unordered} of {heads} {'shows' if unordered == 1 else 'show'} no order")
    return " ".join(f"{capital(each)}." for each in said)


def _measured(distances: Iterable[tuple[str, float]]) -> str:
    """Write distances with what they count, each unit by itself."""
    units: dict[str, list[float]] = {}
    for unit, distance in distances:
        units.setdefault(unit, []).append(distance)
    said = []
    for unit, each in units.items():
        low, high = f"{min(each):,g}", f"{max(each):,g}"
        one = high == "1" and unit == POSITIONS
        said.append(f"{low if low == high else f'{low} to {high}'} {'position' if one else unit}")
    return listed(said)


def _sides(f: Sides) -> str:
    ordered = f.total("ordered")
    order = " with an order of distances" if ordered < f.total("heads") else ""
    if not f.total("before") + f.total("after"):
        return (
            f"In {_heads(ordered)}{order}, the bias is largest at the query or equally large on "
            "both sides."
        )
    counts = {"an earlier key": f.total("before"), "a later key": f.total("after")}
    sides = [(side, n) for side, n in (counts | {"neither": f.same}).items() if n]
    has = "has its" if sides[0][1] == 1 else "have their"
    first = f"{sides[0][1]} {has} largest bias at {sides[0][0]}"
    each = listed([first, *(f"{n} at {side}" for side, n in sides[1:])])
    return f"Of {some(ordered, 'head')}{order}, {each}."


def _limits(noun: str, f: Limits) -> str:
    """Say each limit once, with the encodings that it is of where others have another or none."""
    found: dict[str, list[Limit]] = {}
    for each in sorted(f.encodings, key=lambda each: each.reach or 0):
        if each.reach is not None:
            side = "" if each.causal else " per side"
            text = f"from {each.reach:,} {each.unit} on, distances share one {noun}{side}"
            text = text if each.reach else f"all distances share one {noun}"
            found.setdefault(text, []).append(each)
    said = []
    for text, those in found.items():
        names = those[0].name if len(those) == 1 else f"{those[0].name} and {len(those) - 1} more"
        said.append(text if len(those) == len(f.encodings) else f"{text} ({names})")
    return " ".join(f"{capital(text)}." for text in said)


SCHEME_PARTS: Mapping[str, Mapping[str, Template]] = {
    "rotary_turns": {"turns": _turns},
    "rotary_positive": {"score": _score},
    "rotary_stretched": {"rules": _rules},
    "alibi_near": {"falls": _falls},
    "bias_smooth": {"smooth": partial(_smooth, "bias")},
    "bias_near": {"near": partial(_near, "bias")},
    "bias_sides": {"sides": _sides},
    "bias_limit": {"limits": partial(_limits, "bias")},
    "cosine_smooth": {"smooth": partial(_smooth, "cosine")},
    "cosine_near": {"near": partial(_near, "cosine")},
    "cosine_limit": {"limits": partial(_limits, "vector")},
}


# Answers in a line.


def _turning(f: Block) -> tuple[str, str]:
    known = [each for each in f["ladders"] if each["slow"] is not None]
    slow, pairs = (sum(each[key] * each["axes"] for each in known) for key in ("slow", "pairs"))
    return "pairs that never turn", f"{slow} of {pairs}" if known else NONE


def _negative(f: Block) -> tuple[str, str]:
    first = [each["first"] for each in f["encodings"] if each["first"] is not None]
    return "first negative distance", _range(first) if first else "none"


def _range(values: Sequence[int]) -> str:
    return " to ".join(f"{value:,}" for value in sorted({min(values), max(values)}))


def _halving(f: Block) -> tuple[str, str]:
    slopes = [slope for each in f["encodings"] for slope in each["slopes"]]
    return "halved every (positions)", _span([log(2) / slope for slope in slopes])


def _leaving(f: Block) -> tuple[str, str]:
    if f["length"] is None:
        return "weight left", NONE
    return f"weight left at {f['length']:,}", percent(f["left"])


def _structured(f: Block) -> tuple[str, str]:
    count = f["structured"]
    return "heads above chance", NONE if count is None else f"{count} of {f['heads']}"


def _counted(f: Block, *names: str) -> list[int]:
    return [sum(each[name] for each in f["encodings"]) for name in names]


def _favouring(f: Block) -> tuple[str, str]:
    near, heads = _counted(f, "near", "heads")
    return "heads that do", f"{near} of {heads}"


def _reaching(f: Block) -> tuple[str, str]:
    reach = [each["reach"] for each in f["encodings"] if each["reach"] is not None]
    return "from distance", _range(reach) if reach else "none"


#: From the facts of an answer a measure and its value.
_MEASURES: Mapping[str, Callable[[Block], tuple[str, str]]] = {
    "rotary_turns": _turning,
    "rotary_positive": _negative,
    "rotary_stretched": lambda f: (
        "rule", ", ".join(dict.fromkeys(each["rule"] for each in f["rules"])) or "none"
    ),
    "alibi_near": _halving,
    "alibi_reach": _leaving,
    "bias_smooth": _structured,
    "bias_near": _favouring,
    "bias_sides": lambda f: (
        "heads: before, after", ", ".join(map(str, _counted(f, "before", "after")))
    ),
    "bias_limit": _reaching,
    "cosine_smooth": _structured,
    "cosine_near": _favouring,
    "cosine_limit": _reaching,
}  # fmt: skip


def line(told: Block) -> Line:
    """Return an answer's block as a line; what version 1 did not keep is left out."""
    question, facts = ASKS[told["question"]], told.get("facts")
    measure, value = _MEASURES[told["question"]](facts) if facts else ("", NONE)
    return held_against(told, question, measure, two_figures, value)


#: Of each number of a kernel the question, and what it is.
KERNELS: Mapping[str, tuple[str, str]] = {
    "kernel_falls": ("monotone_fraction", "steps that do not rise"),
    "kernel_offset": ("translation_invariance", "variance by offset"),
    "kernel_sides": ("asymmetry", "before against after"),
}


def kernel_line(question: str, answer: str, record: Block) -> Line:
    """Return the answer about a kernel as a line, from the block of the encoding."""
    key, measure = KERNELS[question]
    value = NONE if record[key] is None else percent(record[key])
    return Line(question, answer, ASKS[question], measure, value)


#: Distances of kernels, and what they are called.
_DISTANCES = {"correlation": "correlation of curves", "alignment": "alignment of kernels"}


def kernels_headline(pairs: Sequence[Block], walk: Block | None) -> str:
    """Say how similar the curves of encodings are: of two, or of several pairs how many."""
    if len(pairs) == 1 and "heads" in pairs[0]:
        return " ".join(_matched(pairs[0]["heads"]))
    found = [(pair["records"], _similar(pair, walk)) for pair in pairs]
    if len(pairs) == 1 and not found[0][1]:
        return " ".join(pair_sentences(pairs[0], walk))
    return walked(found, "The curves of {} over distance are")


def _similar(pair: Block, walk: Block | None) -> str:
    if walk is None or pair["correlation"] is None:
        return ""
    return "yes" if pair["correlation"] > walk["correlation"] else "no"


def pair_line(pair: Block, name: str, walk: Block | None) -> Line:
    """Return how similar the curves of two encodings are as a line."""
    if heads := pair.get("heads"):
        question, value = " · ".join(pair["records"]), hundredths(heads["correlation"])
        return Line(name, "", question, "correlation of heads", minus(value))
    value = NONE if pair["correlation"] is None else hundredths(pair["correlation"])
    chance = NONE if walk is None else f"below {hundredths(walk['correlation'])}"
    question = " · ".join(pair["records"])
    return Line(name, _similar(pair, walk), question, "correlation", minus(value), chance)


def pair_sentences(pair: Block, walk: Block | None) -> Iterator[str]:
    """Say how similar two encodings are, by their curves and by their kernels."""
    if heads := pair.get("heads"):
        yield from _matched(heads)
        return
    if pair["correlation"] is not None:
        yield _pair(pair, walk)
    for name, what in _DISTANCES.items():
        if pair[name] is None:
            yield f"The {what} is undefined: {pair['undefined'][name]}."
    if pair["alignment"] is not None:
        bar = f" (95 % of random walks: below {hundredths(walk['alignment'])})" if walk else ""
        yield f"The kernels have a centred alignment of {hundredths(pair['alignment'])}{bar}."


def _matched(heads: Block) -> Iterator[str]:
    """Say how similar the heads of two runs are, each matched with one by its curve."""
    within = heads["within"]
    bar = f" (heads of one run with each other: {hundredths(within)})" if within else ""
    found = hundredths(heads["correlation"])
    yield f"Heads matched by their curves have a median correlation of {found}{bar}."
    if heads["same"] is not None:
        yield (
            f"{heads['same']} of {some(heads['heads'], 'head')} meet the head of their own layer "
            f"and number; such heads have a median correlation of {hundredths(heads['by_place'])}."
        )


# What stands beside answers and drawings.


#: What a kernel holds.
KERNEL_OF = {"cosine": "cosine", "bias": "bias (logits)", "rotation": "mean rotation"}
#: What the answers about kernels are about.
KERNEL_KEY = "Mean over heads. By chance: 95 % of pairs of random walks."


def kernels_lead(document: Block) -> str:
    """Say how many encodings are compared, and between which positions."""
    layout = document["layout"]
    where = f"{document['length']:,} positions"
    if layout["type"] == "grid":
        where = f"the patches of a grid of {layout['height']} × {layout['width']}"
    return f"{len(document['records'])} encodings by their kernels between {where}"


def measured(record: Block) -> Iterator[str]:
    """Say of a run what it was measured on, and what distance explains there."""
    if run := record.get("run"):
        whose = TEXTS["sources"][run["source"]]
        on = f"{run['contexts']:,} contexts of {run['length']:,} tokens {whose}".rstrip()
        yield f"{record['label']}: measured on {on}."
        if run["share"] is not None:
            yield (
                f"{record['label']}: distance alone explains {percent(max(run['share'], 0.0))} of "
                "the differences between a query's logits (median head)."
            )


def positions_compared(document: Block) -> Iterator[str]:
    """Say which encodings have more positions than are compared."""
    length = document["length"]
    others = [
        f"{record['label']} has {record['positions']}"
        for record in document["records"]
        if record["positions"] not in (None, length)
    ]
    if others:
        yield (
            f"{length} positions of each are compared: {', '.join(others)}. Nothing is resampled."
        )


#: What an answer means, of what a configuration decides and of what was learned.
KEYS: Mapping[bool, str] = {False: "From the configuration: exact.", True: f"Learned values: {KEY}"}


def what_it_is(schemes: Sequence[Block]) -> str:
    """Say what encodings of one kind are."""
    several = f" in {len(schemes)} places" if len(schemes) > 1 else ""
    match kind_of(schemes[0]):
        case "rotary":
            return f"rotary embeddings (RoPE){several}"
        case "alibi":
            return f"linear biases (ALiBi), a fixed slope per head{several}"
        case "cosine":
            return f"a learned vector per distance{several}"
    layouts = [scheme["layout"] for scheme in schemes]
    if layouts[0]["type"] == "grid":
        sizes = dict.fromkeys(f"{layout['height']} × {layout['width']}" for layout in layouts)
        where = f"displacement in windows of {' and '.join(sizes)} patches"
    else:
        where = "distance"
    return f"a learned bias per head and {where}{several}"


# What is said first.


def summary(answers: Mapping[str, Answer]) -> str:
    """Sum up the encodings of a checkpoint, kind by kind.

    Parameters
    ----------
    answers
        By question.
    """
    said = []
    if "rotary_turns" in answers:
        said.append(_of_rotary(answers["rotary_turns"].facts, answers["rotary_positive"].facts))
    if "alibi_near" in answers:
        said.append(_of_slopes(answers["alibi_near"].facts))
    said += [_of_distances(kind, answers) for kind in _NOUNS if f"{kind}_smooth" in answers]
    return " ".join(said)


def _of_rotary(turns: Turns, signs: Signs) -> str:
    said = _each([(each.name, _wavelengths(each)) for each in turns.ladders], LEADING)
    # Of several, the answers tell it.
    return f"{said} {_score(signs)}" if len(signs.encodings) == 1 else said


def _wavelengths(f: Ladder) -> str:
    ends = [end for end in (f.shortest, f.longest) if end is not None]
    reach = f"of {_span(ends)} positions" if len(ends) == 2 else "without end"
    one = f.axes * f.pairs == 1
    said = f"{_pairs(f)} {'has a wavelength' if one else 'have wavelengths'} {reach}"
    if f.slow is None:
        return said
    turning = f.axes * (f.pairs - f.slow)
    count = str(turning) if f.slow or one else "all"
    verb = "completes" if turning == 1 else "complete"
    return f"{said}, and {count} {verb} a turn within the {_context(f)} of {f.seen:,}"


def _of_slopes(f: Falls) -> str:
    halving = f.halving
    fast, slow = two_figures(min(halving)), two_figures(max(halving))
    said = f"With equal contents, ALiBi halves attention every {fast} positions"
    if fast == slow:
        return f"{said} in {'every' if len(halving) > 1 else 'the only'} head."
    return f"{said} in the steepest of {len(halving)} heads and every {slow} in the flattest."


def _of_distances(kind: str, answers: Mapping[str, Answer]) -> str:
    smooth, near = answers[f"{kind}_smooth"], answers[f"{kind}_near"]
    f: Smooth = smooth.facts
    heads, values = some(f.heads, *_NOUNS[kind]), "biases" if kind == "bias" else "cosines"
    count = f"{_count(kind, f.structured or 0, f.heads)} ({f.chance:.2g} by chance)"
    weak = f"The evidence for an order of distances is weak: {count}."
    said = [
        {
            "smooth": f"Neighbouring distances have similar {values} in {count}.",
            "no_order": f"No order of distances was found in {heads}.",
            "computed": f"The {values} of {heads} are computed from the distance.",
            "equal": f"The {values} of {heads} are the same at all distances.",
        }.get(smooth.reason, weak)
    ]
    if near.value:
        one = near.value["near"] == 1
        far = f", {near.value['far']} far ones" if near.value["far"] else ""
        said.append(f"{near.value['near']} {'favours' if one else 'favour'} near positions{far}.")
    limit = answers.get(f"{kind}_limit")
    if limit is not None and limit.yes and smooth.reason != "equal":
        said.append(_limits("bias" if kind == "bias" else "vector", limit.facts))
    return " ".join(said)


def summary_of_kernels(records: Sequence[Block], pairs: Sequence[Block], walk: Block | None) -> str:
    """Say how similar the kernels of encodings are, and how wide.

    Parameters
    ----------
    records, pairs, walk
        Blocks of ``analysis.json``.
    """
    known = [pair for pair in pairs if pair["correlation"] is not None]
    known.sort(key=lambda pair: -pair["correlation"])
    if len(pairs) == 1 and "heads" in pairs[0]:
        return " ".join(_matched(pairs[0]["heads"]))
    said = [_pair(pair, walk) for pair in known[:PAIRS]]
    if (others := len(known) - PAIRS) > 0:
        which = "pair is" if others == 1 else f"{others} pairs are"
        said.append(f"The other {which} no more similar.")
    widths = {
        str(record["label"]): float(record["half_width"])
        for record in records
        if record["half_width"] is not None
    }
    if len(widths) > 1 and max(widths.values()) >= WIDER * max(min(widths.values()), 1e-9):
        each = [f"{show(width)} for {label}" for label, width in widths.items()]
        said.append(f"Half of the fall with distance is done at {listed(each)}.")
    return " ".join(said)


def _pair(pair: Block, walk: Block | None) -> str:
    value, names = float(pair["correlation"]), listed(pair["records"])
    if walk is None:
        return f"The curves of {names} over distance have a correlation of {hundredths(value)}."
    bar = f"95 % of random walks: below {hundredths(walk['correlation'])}"
    kind = "similar" if value > 0 else "opposed"
    if abs(value) <= walk["correlation"]:
        kind = f"no more {kind} than those of random walks"
    return (
        f"The curves of {names} over distance are {kind} (correlation {hundredths(value)}; {bar})."
    )
