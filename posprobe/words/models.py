"""What is said of a run of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from posprobe.analyses.facts import Answer
from posprobe.analyses.models.head_logits import peak_name
from posprobe.analyses.models.rotary_use import MIN_HEAD_CONTEXTS, RotaryUse
from posprobe.page import NO_VALUE, AnswerLine
from posprobe.questions.models import (
    N_SURE_STANDARD_ERRORS,
    CostMeasure,
    DistanceHeads,
    LayerShare,
    ModelRun,
    Removal,
    SufficientSubstitute,
)
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

#: What contexts are.
CONTEXT_SOURCES: Mapping[str, str] = ANSWER_TEXTS["sources"]
#: Whether a layer ignores position, or why it was not measured.
LAYER_REASONS: Mapping[str, str] = ANSWER_TEXTS["layers"]


def contexts_phrase(f: DistanceHeads | RotaryUse) -> str:
    """Say what contexts the numbers are of."""
    return f"on {f.contexts:,} contexts of {f.length:,} tokens {CONTEXT_SOURCES[f.source]}".rstrip()


def _distance_share_clause(f: DistanceHeads) -> str:
    if f.told.share is None or f.told.least is None or f.told.most is None:
        return "All logits of a query are equal"
    # An estimate of nothing can be a little below 0.
    share, low, high = (
        format_whole_percent(max(share, 0.0)) for share in (f.told.share, f.told.least, f.told.most)
    )
    range_text = high if low == high else f"{low.removesuffix(' %')} to {high}"
    return f"Distance alone explains {share} ({range_text}) of the differences between a query's logits"


def list_peaks(heads: Sequence[Block]) -> str:
    """List the preferred distances of a layer's heads, most frequent first."""
    common_peaks = Counter(head["peak"] for head in heads if head["peak"] is not None).most_common(
        4
    )
    return ", ".join(f"{peak} ({count})" for peak, count in common_peaks) or "–"


def count_verdicts(heads: Sequence[Block]) -> str:
    """Count a layer's heads by their answers: yes, no, can't tell."""
    answers = Counter(head["answer"] for head in heads)
    return " / ".join(str(answers[verdict]) for verdict in ("yes", "no", "cannot tell"))


def no_heads_reason(rotary_use: RotaryUse) -> str:
    """Say why nothing can be drawn; empty where it can."""
    return "" if rotary_use.heads else "no layer could be measured"


#: What a measurement needs that a model lacks.
NEEDS_ROTARY = "a text model of transformers with rotary embeddings"
NEEDS_ADDED = "positions that are added to the input; this model rotates queries and keys"


#: Why what came after an interruption was not measured.
INTERRUPTED_REASON = "the run was interrupted"
#: Most words of a summary.
MAX_SUMMARY_WORDS = 60


# Hidden states.


def _layers_sentence(*layers: LayerShare | None, with_noise: bool = True) -> str:
    """Say what position explains at layers of which it can be told: each with its own noise."""
    parts = [
        f"{format_percent(layer.share or 0.0)}{'' if index else ' of the hidden-state variance'} at "
        f"layer {layer.layer}"
        + (f" (sampling noise {format_percent(layer.noise)})" if with_noise and layer.noise else "")
        for index, layer in enumerate(layer for layer in layers if layer and layer.clear)
    ]
    return f"Position explains {' and '.join(parts)}." if parts else ""


# Other tables in the place of the model's own.

_SCHEME_PHRASES = {"table": "the table is", "rotary": "rotations are", "relative": "biases are"}
_MEASURE_PHRASES = {
    "divergence": "the outputs",
    "answers": "the top answers",
    "states": "the last hidden states",
}


def _task_phrase(f: CostMeasure) -> str:
    return f"the {f.task.replace(' ', '-')} loss"


def _cost_clause(f: Removal) -> str:
    cost = format_with_error(f.cost, f.error)
    if f.worth.measure == "loss":
        loss_text = format_with_error(f.loss, f.loss_error)
        return f"{_task_phrase(f.worth)} changes by {cost} nats (unchanged: {loss_text})"
    if f.worth.measure == "divergence":
        answers_text = format_percent_with_error(f.answers, f.answers_error)
        return f"outputs diverge by {cost} nats; {answers_text} of the top answers change"
    return f"the last hidden states change by {cost} times their norm"


def _substitute_clause(f: SufficientSubstitute) -> str:
    subject = capitalise(f.label) if f.size else f"A random table ({f.label})"
    suffix = ", worse than no positions" if f.kept < -N_SURE_STANDARD_ERRORS * f.error else ""
    task = _MEASURE_PHRASES.get(f.worth.measure) or _task_phrase(f.worth)
    return (
        f"{subject} keep{'' if (f.size or 1) > 1 else 's'} {format_percent_with_error(f.kept, f.error)} of "
        f"what {_SCHEME_PHRASES[f.worth.scheme]} worth to {task}{suffix}"
    )


_SUBSTITUTE_PARTS: Mapping[str, Template] = {
    "keeps": _substitute_clause,
    "most": lambda f: f", the most of {f.of} tried" if f.of > 1 else "",
}
MODEL_PARTS: Mapping[str, Mapping[str, Template]] = {
    "kept": {
        "explained": lambda f: _layers_sentence(f.first, f.last),
        "explains": lambda f: _layers_sentence(f.first, f.last, with_noise=False),
        # What position explains at the first layer, where that can be told.
        "before": lambda f: f" {explained}" if (explained := _layers_sentence(f.first)) else "",
        "noise": lambda f: "little" if f.last.noise else "",
    },
    "blank": {"aligned": lambda f: "" if f.cosine is None else "cosine"},
    "heads": {
        "offsets": lambda f: join_words([f"{peak_name(e.offset)} ({e.heads})" for e in f.offsets]),
    },
    "needed": {
        "cost": _cost_clause,
        "change": lambda f: format_with_error(f.cost, f.error),
        "unit": lambda f: "of the norm of the states" if f.worth.measure == "states" else "nats",
    },
    "few": _SUBSTITUTE_PARTS,
    "random": _SUBSTITUTE_PARTS,
    "distance": {
        "on": contexts_phrase, "explains": _distance_share_clause, "fewest": lambda _: str(MIN_HEAD_CONTEXTS),
        "turning": lambda f: "" if f.told.never is None else "strength",
    },
}  # fmt: skip


#: Questions of whose answers a summary tells, the first ones first.
_SUMMARY_ORDER = (
    "distance", "kept", "order", "order_without", "absolute", "few", "needed", "apart", "heads",
    "first", "blank",
)  # fmt: skip


def summarise_run(answers: Mapping[str, Answer], run: ModelRun) -> str:
    """Sum a run up in at most `MAX_SUMMARY_WORDS` words, the first answers first.

    Parameters
    ----------
    answers
        Answers by the name of the question, in the order of the page.
    run
        Run that the answers are about.
    """
    clauses: dict[str, str] = {}
    for name in _SUMMARY_ORDER:
        clause_text = summary_sentence(answers[name]) if name in answers else ""
        extended_clauses = {**clauses, name: clause_text}
        if (
            clause_text
            and len(
                " ".join(
                    [*extended_clauses.values(), _random_contexts_note(run, extended_clauses)]
                ).split()
            )
            <= MAX_SUMMARY_WORDS
        ):
            clauses = extended_clauses
    if not clauses:
        return "No question has a clear answer."
    return " ".join([*clauses.values(), _random_contexts_note(run, clauses)]).rstrip()


def _random_contexts_note(run: ModelRun, clauses: Mapping[str, str]) -> str:
    """Say that contexts are random; the sentence on distances names its own."""
    if not (run.random and run.contexts) or list(clauses) == ["distance"]:
        return ""
    measured = "The rest is measured" if "distance" in clauses else "Measured"
    return f"({measured} on random {'pixels' if run.images else 'tokens'}.)"


def interrupted_notes(title: str, result: Any) -> tuple[str, ...]:
    """Say over how many contexts a result is that was interrupted; nothing of others."""
    if not getattr(result, "stopped", False):
        return ()
    return (f"{title}: {INTERRUPTED_REASON} after {format_count(result.contexts, 'context')}",)


def unmeasured_notes(result: Any) -> tuple[str, ...]:
    """Say which layers of rotary use were not measured, and why; nothing of others."""
    if not isinstance(result, RotaryUse):
        return ()
    reasons: dict[str, list[str]] = {}
    for layer in result.layers:
        if layer.ignores is None:
            reasons.setdefault(LAYER_REASONS[layer.reason], []).append(str(layer.layer))
    return tuple(
        f"Not measured: rotary use of {'layer' if len(numbers) == 1 else 'layers'} "
        f"{join_words(numbers)} ({reason.removeprefix('not measured: ')})"
        for reason, numbers in reasons.items()
    )


# Answers in a line, and what stands above them, from the blocks of a document.

#: What the answers are held against.
RUN_KEY = "By chance: sampling noise (5–95 %), rounding, or random subspaces (5–95 %)."


def _change_measure(_: Block) -> tuple[str, str]:
    return "change of states", ""


def _substitute_measure(f: Block) -> tuple[str, str]:
    return "share kept", use_minus_sign(format_percent_with_error(f["kept"], f["error"]))


def _distance_measure(f: Block) -> tuple[str, str]:
    counts = [f["told"][verdict] for verdict in ("yes", "no", "open")]
    return "heads", f"{counts[0]} of {sum(counts)}"


#: From the facts of an answer a measure, and its value where that is not the number tested.
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
    "first": lambda f: (f"attention, layer {f['layer']}", _format_short_share(f["attention"])),
    "blank": lambda _: ("share that differs", ""),
    "needed": lambda f: ("cost", format_with_error(f["cost"], f["error"])),
    "few": _substitute_measure,
    "random": _substitute_measure,
}
#: What is no share is written with two figures.
_CHANGE_QUESTIONS = {"order", "order_without", "absolute"}
#: Held against no cost, or nine tenths kept, which is no chance: the value has its standard error.
_COST_QUESTIONS = {"needed", "few", "random"}


def _format_short_share(share: float | None) -> str:
    if share is None:
        return NO_VALUE
    return format_percent(share).replace("less than", "<").replace("more than", ">")


def run_line(answer: Block) -> AnswerLine:
    """Return an answer's block as a line; what version 1 did not keep is left out."""
    name, facts = answer["question"], answer.get("facts")
    measure, value = _RUN_MEASURES[name](facts) if facts else ("", NO_VALUE)
    if name in _COST_QUESTIONS:
        return AnswerLine(name, answer["answer"], QUESTION_TEXTS[name], measure, value)
    number_format: NumberFormat = (
        (lambda number: format_value(number, ".2g"))
        if name in _CHANGE_QUESTIONS
        else _format_short_share
    )
    return chance_line(answer, QUESTION_TEXTS[name], measure, number_format, value)


def shorten_reference(reference: str) -> str:
    """Shorten a reference that is a path to the last of its parts."""
    is_path = reference.startswith((".", "/", "~"))
    return reference.rstrip("/").rpartition("/")[2] or reference if is_path else reference


def describe_run(document: Block) -> str:
    """Say which model was run, and on what."""
    model, contexts = document["model"], document["contexts"]
    parts = [f"{model['class']}", f"{model['parameters']:,} parameters", model["dtype"]]
    if contexts["used"]:
        shape = contexts.get("shape")
        size = " × ".join(map(str, shape)) if shape else format_count(contexts["length"], "token")
        seed = "" if contexts["seed"] is None else f", seed {contexts['seed']}"
        parts.append(f"run on {contexts['used']} × {contexts['kind']} ({size}{seed})")
    return " · ".join(parts)


#: Weights by which a checkpoint differs from its model.
_WEIGHT_DIFFERENCES: Mapping[str, str] = {
    "missing_weights": "Weights that the checkpoint lacks are random, and show nothing",
    "unused_weights": "Weights of the checkpoint that the model does not take were left out",
}


def run_notes(document: Block) -> Iterator[str]:
    """Say what a reader must know of a run before anything else."""
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
        names = join_words([name for name, reason in missing.items() if reason == explanation])
        yield f"Not measured: {names} ({explanation.rstrip('.')})."
