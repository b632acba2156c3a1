"""Sentences about a run of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from posprobe.analyses.facts import Answer, decide
from posprobe.analyses.models.attention import peak_name
from posprobe.analyses.models.attention_budget import AttentionBudget
from posprobe.analyses.models.rotary_use import MIN_HEAD_CONTEXTS, RotaryUse
from posprobe.page import NO_VALUE, AnswerLine
from posprobe.questions.attention import PositionShare, PreferredDistances
from posprobe.questions.models import (
    N_SURE_STANDARD_ERRORS,
    RUN_QUESTIONS,
    CostMeasure,
    LayerShare,
    ModelRun,
    Removal,
    SufficientSubstitute,
)
from posprobe.questions.places import MIN_LAST_HALF_WEIGHT, PlaceWeights
from posprobe.text import (
    Block,
    format_percent,
    format_percent_with_error,
    format_value,
    format_with_error,
    use_minus_sign,
)
from posprobe.words import ANSWER_TEXTS, QUESTION_TEXTS, summary_sentence
from posprobe.words.formats import (
    Template,
    capitalise,
    format_count,
    format_whole_percent,
    join_words,
)
from posprobe.words.lines import NumberFormat, chance_line

#: Phrases for the origin of contexts.
CONTEXT_SOURCES: Mapping[str, str] = ANSWER_TEXTS["sources"]
#: Texts on whether a layer ignores position, or why it was not measured.
LAYER_REASONS: Mapping[str, str] = ANSWER_TEXTS["layers"]


def contexts_phrase(facts: Any) -> str:
    """Return a phrase on the contexts of the numbers."""
    return f"{facts.contexts:,} contexts of {facts.tokens:,} tokens"


def rotary_contexts_phrase(rotary_use: RotaryUse) -> str:
    """Return a phrase on the contexts in which rotations were measured."""
    source = CONTEXT_SOURCES[rotary_use.source]
    contexts = f"on {rotary_use.contexts:,} contexts of {rotary_use.length:,} tokens"
    return f"{contexts} {source}".rstrip()


def _format_share_of_logits(share: float) -> str:
    # The estimate of a zero share can be slightly negative.
    return format_whole_percent(max(share, 0.0))


def distance_share_sentence(share: float) -> str:
    """Return the sentence on the share of distance, mean over heads."""
    return f"Distance decides {_format_share_of_logits(share)} of attention logits."


def _distance_clause(facts: PositionShare) -> str:
    """Return how much of position is distance, as a clause."""
    share = facts.distance / facts.share if facts.share > 0 else 0.0
    amounts = {0.995: "all of it", 0.85: "nearly all of it", 0.5: "most of it"}
    amount = next((text for least, text in amounts.items() if share >= least), "")
    if not amount:
        return f", {_format_share_of_logits(facts.distance)} by distance"
    return f", {amount} by distance"


def _main_heads_clause(facts: PositionShare) -> str:
    """Return in how many heads position decides most, as a clause."""
    if not facts.most:
        return ""
    return f"; in {facts.most} of {facts.heads} heads it decides most"


def displacement_name(displacement: int | Sequence[int]) -> str:
    """Return a displacement, query minus key, in words."""
    steps = [displacement] if isinstance(displacement, int) else displacement
    return peak_name([-step for step in steps])


def _favourite_clause(facts: PreferredDistances) -> str:
    """Return the distance that most heads prefer, as a clause."""
    if facts.preferred is None or facts.agreeing == 1 < facts.yes:
        return ""
    name = displacement_name(facts.preferred)
    article = "the " if isinstance(facts.preferred, int) else ""
    if facts.yes == 1:
        return f", {article}{name}"
    return f", most often {article}{name} ({facts.agreeing})"


def list_peaks(heads: Sequence[Block]) -> str:
    """List the preferred distances of a layer's heads, most frequent first."""
    counts = Counter(head["peak"] for head in heads if head["peak"] is not None)
    return ", ".join(f"{peak} ({count})" for peak, count in counts.most_common(4)) or "–"


def list_preferred(heads: Sequence[Block]) -> str:
    """List the displacements that a layer's heads prefer, most frequent first."""
    counts = Counter(
        displacement_name(head["preferred"])
        for head in heads
        if head["preferred"] is not None
    )
    return ", ".join(f"{name} ({count})" for name, count in counts.most_common(4)) or "–"


def count_verdicts(heads: Sequence[Block]) -> str:
    """Count a layer's heads by their answers: yes, no, can't tell."""
    answers = Counter(head["answer"] for head in heads)
    return " / ".join(str(answers[verdict]) for verdict in ("yes", "no", "cannot tell"))


def no_heads_reason(rotary_use: RotaryUse) -> str:
    """Return the reason why nothing can be drawn; empty where it can."""
    return "" if rotary_use.heads else "no layer could be measured"


#: Requirement of the rotary measurements.
NEEDS_ROTARY = "a text model of transformers with rotary embeddings"
#: Requirement of the measurements of a table.
NEEDS_ADDED = "positions that are added to the input; this model rotates queries and keys"


#: Heads that a note names.
MAX_NAMED_HEADS = 8
#: Reason why results after an interruption are missing.
INTERRUPTED_REASON = "the run was interrupted"
#: Sentences of a summary: what decides where heads look, and what reaches the output.
MAX_SUMMARY_SENTENCES = 2


# Hidden states.


def _layers_sentence(*layers: LayerShare | None, with_noise: bool = True) -> str:
    """Return the sentence on the shares of clear layers, each with its sampling noise."""
    clauses: list[str] = []
    for layer in layers:
        if layer is None or not layer.clear:
            continue
        subject = "" if clauses else " of the hidden-state variance"
        clause = f"{format_percent(layer.share or 0.0)}{subject} at layer {layer.layer}"
        if with_noise and layer.noise:
            clause += f" (sampling noise {format_percent(layer.noise)})"
        clauses.append(clause)
    return f"Position explains {' and '.join(clauses)}." if clauses else ""


# Substitutes for the model's own table.

_SCHEME_PHRASES = {
    "table": "the table is",
    "rotary": "rotations are",
    "relative": "biases are",
}
_MEASURE_PHRASES = {
    "divergence": "the outputs",
    "answers": "the top answers",
    "states": "the last hidden states",
}


def _task_phrase(cost_measure: CostMeasure) -> str:
    return f"the {cost_measure.task.replace(' ', '-')} loss"


def _cost_clause(removal: Removal) -> str:
    cost = format_with_error(removal.cost, removal.error)
    if removal.worth.measure == "loss":
        loss_text = format_with_error(removal.loss, removal.loss_error)
        return f"{_task_phrase(removal.worth)} changes by {cost} nats (unchanged: {loss_text})"
    if removal.worth.measure == "divergence":
        answers_text = format_percent_with_error(removal.answers, removal.answers_error)
        return f"outputs diverge by {cost} nats; {answers_text} of the top answers change"
    return f"the last hidden states change by {cost} times their norm"


def _substitute_clause(substitute: SufficientSubstitute) -> str:
    kept_share, error, cost_measure = substitute.kept, substitute.error, substitute.worth
    subject = f"A random table ({substitute.label})"
    if substitute.size:
        subject = capitalise(substitute.label)
    verb = "keep" if (substitute.size or 1) > 1 else "keeps"
    task = _MEASURE_PHRASES.get(cost_measure.measure) or _task_phrase(cost_measure)
    suffix = (
        ", worse than no positions"
        if kept_share < -N_SURE_STANDARD_ERRORS * error
        else ""
    )
    return (
        f"{subject} {verb} {format_percent_with_error(kept_share, error)} of what "
        f"{_SCHEME_PHRASES[cost_measure.scheme]} worth to {task}{suffix}"
    )


_SUBSTITUTE_PARTS: Mapping[str, Template] = {
    "keeps": _substitute_clause,
    "most": lambda f: f", the most of {f.of} tried" if f.of > 1 else "",
}
_PLACE_PARTS: Mapping[str, Template] = {
    "place": lambda f: _format_share_of_logits(f.place),
    "fewest": lambda _: str(MIN_HEAD_CONTEXTS),
}


def _chunk_advice(facts: PlaceWeights) -> str:
    """Return the name of the part on the length of chunks; empty where none was measured."""
    if facts.output != "embedding" or facts.ends is None:
        return ""
    if facts.chunk_tokens is not None:
        return "chunks"
    return "no_chunks" if facts.last_half >= MIN_LAST_HALF_WEIGHT else ""


MODEL_PARTS: Mapping[str, Mapping[str, Template]] = {
    "kept": {
        "explained": lambda f: _layers_sentence(f.first, f.last),
        "explains": lambda f: _layers_sentence(f.first, f.last, with_noise=False),
        # Share of position at the first layer, where it is clear.
        "before": lambda f: (
            f" {explained}" if (explained := _layers_sentence(f.first)) else ""
        ),
        "noise": lambda f: "little" if f.last.noise else "",
    },
    "blank": {"aligned": lambda f: "" if f.cosine is None else "cosine"},
    "position_decides": {
        **_PLACE_PARTS,
        "share": lambda f: _format_share_of_logits(f.share),
        "distance": lambda f: _format_share_of_logits(f.distance),
        "on": contexts_phrase,
        "how": _distance_clause,
        "most": _main_heads_clause,
    },
    "own_places": _PLACE_PARTS,
    "needed": {
        "cost": _cost_clause,
        "change": lambda f: format_with_error(f.cost, f.error),
        "unit": lambda f: (
            "of the norm of the states" if f.worth.measure == "states" else "nats"
        ),
    },
    "few": _SUBSTITUTE_PARTS,
    "random": _SUBSTITUTE_PARTS,
    "weigh_alike": {
        "heavier": lambda f: "first" if f.first_weighs_more else "last",
        "lighter": lambda f: "last" if f.first_weighs_more else "first",
        "advice": _chunk_advice,
        "additive": lambda f: "" if f.r2 is None else "explained",
        "edge": lambda f: "" if f.border is None else "at_border",
    },
    "by_table": {
        "share": lambda f: format_whole_percent(min(max(f.share, 0.0), 1.0)),
    },
    "reach": {
        "tokens": lambda f: format_value(max(1, round(f.reach)), "d"),
        "shorter": lambda f: "others" if f.shorter else "",
        "lengths": lambda f: join_words(
            [f"{round(a.reach)} of {a.tokens:,}" for a in f.shorter]
        ),
    },
    "distance": {
        "on": contexts_phrase,
        "favourite": _favourite_clause,
        "fewest": lambda _: str(MIN_HEAD_CONTEXTS),
    },
}


#: Questions that a summary answers, most important first.
_SUMMARY_ORDER = (
    "position_decides",
    "weigh_alike",
    "reach",
    "distance",
    "kept",
    "order_without",
    "order",
    "absolute",
    "few",
    "needed",
    "apart",
    "first",
    "blank",
)


def summarise_run(answers: Mapping[str, Answer], run: ModelRun) -> str:
    """Summarise a run in at most `MAX_SUMMARY_SENTENCES` sentences, most important first.

    Parameters
    ----------
    answers
        Answers by the name of the question, in the order of the page.
    run
        Run that the answers are about.
    """
    sentences = [
        sentence
        for name in _SUMMARY_ORDER
        if name in answers and (sentence := summary_sentence(answers[name]))
    ][:MAX_SUMMARY_SENTENCES]
    if not sentences:
        return "No question has a clear answer."
    if run.random and run.contexts:
        sentences.append(f"(Measured on random {'pixels' if run.images else 'tokens'}.)")
    return " ".join(sentences)


def summarise_result(name: str, result: Any) -> str:
    """Summarise one result of a run by the answers that it allows, as `summarise_run` does."""
    run = ModelRun({name: result})
    answers = [ask(run) for ask in RUN_QUESTIONS.values()]
    return summarise_run(decide(filter(None, answers), (), run), run)


def interrupted_notes(title: str, result: Any) -> tuple[str, ...]:
    """Return a note on the contexts of an interrupted result; none for other results."""
    if not getattr(result, "stopped", False):
        return ()
    return (
        f"{title}: {INTERRUPTED_REASON} after {format_count(result.contexts, 'context')}",
    )


def unmeasured_notes(result: Any) -> tuple[str, ...]:
    """Return notes on layers that rotary use or the attention budget leave out."""
    unmeasured: list[tuple[int, str]]
    lost_notes: tuple[str, ...] = ()
    match result:
        case RotaryUse():
            subject = "rotary use"
            unmeasured = [(n.layer, n.reason) for n in result.layers if n.ignores is None]
        case AttentionBudget():
            subject = "attention budget"
            unmeasured = [(n.layer, n.problem) for n in result.layers if n.problem]
            lost_notes = _lost_heads_notes(result)
        case _:
            return ()
    reasons: dict[str, list[str]] = {}
    for layer, reason in unmeasured:
        reasons.setdefault(LAYER_REASONS[reason], []).append(str(layer))
    return (
        tuple(
            f"Not measured: {subject} of "
            f"{'layer' if len(numbers) == 1 else 'layers'} "
            f"{join_words(numbers)} ({reason.removeprefix('not measured: ')})"
            for reason, numbers in reasons.items()
        )
        + lost_notes
    )


def _lost_heads_notes(budget: AttentionBudget) -> tuple[str, ...]:
    """Return a note on the heads whose logits are lost; none without such heads."""
    if not budget.lost_heads:
        return ()
    heads = budget.lost_heads
    names = join_words([f"{head.layer}.{head.head}" for head in heads[:MAX_NAMED_HEADS]])
    if len(heads) > MAX_NAMED_HEADS:
        names += f" and {len(heads) - MAX_NAMED_HEADS} more"
    most = format_percent(max(head.lost for head in heads))
    noun = "head" if len(heads) == 1 else "heads"
    subject = f"Not measured: attention budget of {noun} {names} (layer.head)"
    return (f"{subject}, up to {most} of whose attention is 0 in this precision",)


# Lines of answers and their key, from the blocks of a document.

#: Key to the ranges by chance.
RUN_KEY = (
    "By chance: random signs (5–95 %), noise or permuted places (2–98 %), or rounding."
)


def _change_measure(_: Block) -> tuple[str, str]:
    return "change of states", ""


def _substitute_measure(facts: Block) -> tuple[str, str]:
    return "share kept", use_minus_sign(
        format_percent_with_error(facts["kept"], facts["error"])
    )


def _distance_measure(facts: Block) -> tuple[str, str]:
    # Version 2 counted the heads in a summary of their rotary use.
    numbers = facts.get("told", facts)
    counts = [numbers[verdict] for verdict in ("yes", "no", "open")]
    return "heads", f"{counts[0]} of {sum(counts)}"


def _first_measure(facts: Block) -> tuple[str, str]:
    if "sinks" in facts:
        return "heads", f"{facts['sinks']} of {facts['heads']}"
    # Version 2 had the layer that pays the first token most.
    return f"attention, layer {facts['layer']}", _format_short_share(facts["attention"])


#: Measure, and its value where that is not the number tested, from the facts, by question.
_RUN_MEASURES: Mapping[str, Callable[[Block], tuple[str, str]]] = {
    "kept": lambda f: (
        f"explained at layer {f['last']['layer']}",
        _format_short_share(f["last"]["share"]),
    ),
    "order": _change_measure,
    "order_without": _change_measure,
    "absolute": _change_measure,
    "apart": lambda f: ("token variance", _format_short_share(f["share"])),
    "distance": _distance_measure,
    "heads": lambda f: ("heads", f"{f['heads']} of {f['of']}"),
    "position_decides": lambda _: ("share of logits", ""),
    "own_places": lambda _: ("share beyond distance", ""),
    "weigh_alike": lambda f: ("deviation of weights", _format_short_share(f["spread"])),
    "by_table": lambda _: ("share that moves", ""),
    "reach": lambda f: ("tokens back", _format_tokens(f["reach"])),
    "first": _first_measure,
    "blank": lambda _: ("share that differs", ""),
    "needed": lambda f: ("cost", format_with_error(f["cost"], f["error"])),
    "few": _substitute_measure,
    "random": _substitute_measure,
}
#: Questions of earlier versions, whose bundles can still be rendered.
_FORMER_QUESTIONS = {"heads": "Heads fixed on one offset?"}
#: Questions about a relative change, written with two figures and not as a share.
_CHANGE_QUESTIONS = {"order", "order_without", "absolute"}
#: Questions whose value has a standard error: their limits, no cost or nine tenths, are no chance.
_COST_QUESTIONS = {"needed", "few", "random"}


def _format_short_share(share: float | None) -> str:
    if share is None:
        return NO_VALUE
    return format_percent(share).replace("less than", "<").replace("more than", ">")


def _format_tokens(number: float) -> str:
    """Format a number of tokens: whole ones, or with two figures below ten."""
    return f"{number:.2g}" if number < 10 else f"{number:.0f}"


def run_line(answer: Block) -> AnswerLine:
    """Return an answer's block as a line, without facts that version 1 did not keep."""
    name, facts = answer["question"], answer.get("facts")
    question = _FORMER_QUESTIONS.get(name) or QUESTION_TEXTS[name]
    measure, value = _RUN_MEASURES[name](facts) if facts else ("", NO_VALUE)
    if name in _COST_QUESTIONS:
        return AnswerLine(name, answer["answer"], question, measure, value)
    if facts and name == "weigh_alike" and answer["reason"] == "ends":
        measure, value = "first ÷ last quarter", f"{facts['ends']:.2g} ×"
        return chance_line(answer, question, measure, "{:.2g}".format, value)
    if name == "reach":
        return chance_line(answer, question, measure, _format_tokens, value)
    number_format: NumberFormat = (
        (lambda number: format_value(number, ".2g"))
        if name in _CHANGE_QUESTIONS
        else _format_short_share
    )
    return chance_line(answer, question, measure, number_format, value)


def describe_run(document: Block) -> str:
    """Describe the model of a run and its contexts."""
    model, contexts = document["model"], document["contexts"]
    parts = [f"{model['class']}", f"{model['parameters']:,} parameters", model["dtype"]]
    if contexts["used"]:
        shape = contexts.get("shape")
        size = (
            " × ".join(map(str, shape))
            if shape
            else format_count(contexts["length"], "token")
        )
        seed = "" if contexts["seed"] is None else f", seed {contexts['seed']}"
        parts.append(f"run on {contexts['used']} × {contexts['kind']} ({size}{seed})")
    return " · ".join(parts)


#: Notes on weights in which a checkpoint differs from its model.
_WEIGHT_DIFFERENCES: Mapping[str, str] = {
    "missing_weights": "Weights that the checkpoint lacks are random, and show nothing",
    "unused_weights": "Weights of the checkpoint that the model does not take were left out",
}


def run_notes(document: Block) -> Iterator[str]:
    """Return the notes that a reader of a run must know before anything else."""
    for key, remark in _WEIGHT_DIFFERENCES.items():
        if names := document["model"].get(key):
            yield f"{remark}: {join_words(names)}."
    contexts = document["contexts"]
    if contexts.get("random") and contexts["used"]:
        real_inputs, option = "text", "--text FILE"
        if "shape" in contexts:
            real_inputs, option = "pictures", "--images DIR"
        yield f"To measure on {real_inputs} instead, use `{option}`."
    for note in document["notes"]:
        yield f"{capitalise(note)}."
    missing = document["missing"]
    for explanation in dict.fromkeys(missing.values()):
        names = join_words(
            [name for name, reason in missing.items() if reason == explanation]
        )
        yield f"Not measured: {names} ({explanation.rstrip('.')})."
