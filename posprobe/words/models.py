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
from posprobe.words import ASKS, TEXTS, in_short
from posprobe.words.formats import Template, capital, listed, percent, some
from posprobe.words.lines import Form, held_against

#: What contexts are.
SOURCES: Mapping[str, str] = TEXTS["sources"]
#: Whether a layer ignores position, or why it was not measured.
REASONS: Mapping[str, str] = TEXTS["layers"]


def on(f: DistanceHeads | RotaryUse) -> str:
    """Say what contexts the numbers are of."""
    return f"on {f.contexts:,} contexts of {f.length:,} tokens {SOURCES[f.source]}".rstrip()


def _explains(f: DistanceHeads) -> str:
    if f.told.share is None or f.told.least is None or f.told.most is None:
        return "All logits of a query are equal"
    # An estimate of nothing can be a little below 0.
    share, low, high = (
        percent(max(share, 0.0)) for share in (f.told.share, f.told.least, f.told.most)
    )
    span = high if low == high else f"{low.removesuffix(' %')} to {high}"
    return f"Distance alone explains {share} ({span}) of the differences between a query's logits"


def peaks(heads: Sequence[Block]) -> str:
    """List the preferred distances of a layer's heads, most frequent first."""
    common_peaks = Counter(head["peak"] for head in heads if head["peak"] is not None).most_common(
        4
    )
    return ", ".join(f"{peak} ({count})" for peak, count in common_peaks) or "–"


def counts(heads: Sequence[Block]) -> str:
    """Count a layer's heads by their answers: yes, no, can't tell."""
    answers = Counter(head["answer"] for head in heads)
    return " / ".join(str(answers[verdict]) for verdict in ("yes", "no", "cannot tell"))


def no_heads(rotary_use: RotaryUse) -> str:
    """Say why nothing can be drawn; empty where it can."""
    return "" if rotary_use.heads else "no layer could be measured"


#: What a measurement needs that a model lacks.
NEEDS_ROTARY = "a text model of transformers with rotary embeddings"
NEEDS_ADDED = "positions that are added to the input; this model rotates queries and keys"


#: Why what came after an interruption was not measured.
INTERRUPTED = "the run was interrupted"
#: Most words of a summary.
WORDS = 60


# Hidden states.


def _explained(*layers: LayerShare | None, noise: bool = True) -> str:
    """Say what position explains at layers of which it can be told: each with its own noise."""
    parts = [
        f"{format_percent(layer.share or 0.0)}{'' if place else ' of the hidden-state variance'} at "
        f"layer {layer.layer}"
        + (f" (sampling noise {format_percent(layer.noise)})" if noise and layer.noise else "")
        for place, layer in enumerate(layer for layer in layers if layer and layer.clear)
    ]
    return f"Position explains {' and '.join(parts)}." if parts else ""


# Other tables in the place of the model's own.

_WORTH = {"table": "the table is", "rotary": "rotations are", "relative": "biases are"}
_TASKS = {
    "divergence": "the outputs",
    "answers": "the top answers",
    "states": "the last hidden states",
}


def _task(f: CostMeasure) -> str:
    return f"the {f.task.replace(' ', '-')} loss"


def _cost(f: Removal) -> str:
    cost = format_with_error(f.cost, f.error)
    if f.worth.measure == "loss":
        loss_text = format_with_error(f.loss, f.loss_error)
        return f"{_task(f.worth)} changes by {cost} nats (unchanged: {loss_text})"
    if f.worth.measure == "divergence":
        answers_text = format_percent_with_error(f.answers, f.answers_error)
        return f"outputs diverge by {cost} nats; {answers_text} of the top answers change"
    return f"the last hidden states change by {cost} times their norm"


def _keeps(f: SufficientSubstitute) -> str:
    who = capital(f.label) if f.size else f"A random table ({f.label})"
    worse = ", worse than no positions" if f.kept < -N_SURE_STANDARD_ERRORS * f.error else ""
    task = _TASKS.get(f.worth.measure) or _task(f.worth)
    return (
        f"{who} keep{'' if (f.size or 1) > 1 else 's'} {format_percent_with_error(f.kept, f.error)} of "
        f"what {_WORTH[f.worth.scheme]} worth to {task}{worse}"
    )


_ENOUGH_TEMPLATES: Mapping[str, Template] = {
    "keeps": _keeps,
    "most": lambda f: f", the most of {f.of} tried" if f.of > 1 else "",
}
MODEL_PARTS: Mapping[str, Mapping[str, Template]] = {
    "kept": {
        "explained": lambda f: _explained(f.first, f.last),
        "explains": lambda f: _explained(f.first, f.last, noise=False),
        # What position explains at the first layer, where that can be told.
        "before": lambda f: f" {explained}" if (explained := _explained(f.first)) else "",
        "noise": lambda f: "little" if f.last.noise else "",
    },
    "blank": {"aligned": lambda f: "" if f.cosine is None else "cosine"},
    "heads": {
        "offsets": lambda f: listed([f"{peak_name(e.offset)} ({e.heads})" for e in f.offsets]),
    },
    "needed": {
        "cost": _cost,
        "change": lambda f: format_with_error(f.cost, f.error),
        "unit": lambda f: "of the norm of the states" if f.worth.measure == "states" else "nats",
    },
    "few": _ENOUGH_TEMPLATES,
    "random": _ENOUGH_TEMPLATES,
    "distance": {
        "on": on, "explains": _explains, "fewest": lambda _: str(MIN_HEAD_CONTEXTS),
        "turning": lambda f: "" if f.told.never is None else "strength",
    },
}  # fmt: skip


#: Questions of whose answers a summary tells, the first ones first.
_SUMMARY_ORDER = (
    "distance", "kept", "order", "order_without", "absolute", "few", "needed", "apart", "heads",
    "first", "blank",
)  # fmt: skip


def summary(answers: Mapping[str, Answer], run: ModelRun) -> str:
    """Sum a run up in at most `WORDS` words, the first answers first.

    Parameters
    ----------
    answers
        Answers by the name of the question, in the order of the page.
    run
        Run that the answers are about.
    """
    clauses: dict[str, str] = {}
    for name in _SUMMARY_ORDER:
        clause_text = in_short(answers[name]) if name in answers else ""
        extended = {**clauses, name: clause_text}
        if (
            clause_text
            and len(" ".join([*extended.values(), _note(run, extended)]).split()) <= WORDS
        ):
            clauses = extended
    if not clauses:
        return "No question has a clear answer."
    return " ".join([*clauses.values(), _note(run, clauses)]).rstrip()


def _note(run: ModelRun, clauses: Mapping[str, str]) -> str:
    """Say that contexts are random; the sentence on distances names its own."""
    if not (run.random and run.contexts) or list(clauses) == ["distance"]:
        return ""
    measured = "The rest is measured" if "distance" in clauses else "Measured"
    return f"({measured} on random {'pixels' if run.images else 'tokens'}.)"


def interrupted(title: str, result: Any) -> tuple[str, ...]:
    """Say over how many contexts a result is that was interrupted; nothing of others."""
    if not getattr(result, "stopped", False):
        return ()
    return (f"{title}: {INTERRUPTED} after {some(result.contexts, 'context')}",)


def left_out(result: Any) -> tuple[str, ...]:
    """Say which layers of rotary use were not measured, and why; nothing of others."""
    if not isinstance(result, RotaryUse):
        return ()
    reasons: dict[str, list[str]] = {}
    for layer in result.layers:
        if layer.ignores is None:
            reasons.setdefault(REASONS[layer.reason], []).append(str(layer.layer))
    return tuple(
        f"Not measured: rotary use of {'layer' if len(numbers) == 1 else 'layers'} "
        f"{listed(numbers)} ({reason.removeprefix('not measured: ')})"
        for reason, numbers in reasons.items()
    )


# Answers in a line, and what stands above them, from the blocks of a document.

#: What the answers are held against.
KEY = "By chance: sampling noise (5–95 %), rounding, or random subspaces (5–95 %)."


def _changed(_: Block) -> tuple[str, str]:
    return "change of states", ""


def _enough(f: Block) -> tuple[str, str]:
    return "share kept", use_minus_sign(format_percent_with_error(f["kept"], f["error"]))


def _preferring(f: Block) -> tuple[str, str]:
    counts = [f["told"][verdict] for verdict in ("yes", "no", "open")]
    return "heads", f"{counts[0]} of {sum(counts)}"


#: From the facts of an answer a measure, and its value where that is not the number tested.
_MEASURES: Mapping[str, Callable[[Block], tuple[str, str]]] = {
    "kept": lambda f: (f"explained at layer {f['last']['layer']}", _short(f["last"]["share"])),
    "order": _changed,
    "order_without": _changed,
    "absolute": _changed,
    "apart": lambda f: ("token variance", _short(f["share"])),
    "distance": _preferring,
    "heads": lambda f: ("heads", f"{f['heads']} of {f['of']}"),
    "first": lambda f: (f"attention, layer {f['layer']}", _short(f["attention"])),
    "blank": lambda _: ("share that differs", ""),
    "needed": lambda f: ("cost", format_with_error(f["cost"], f["error"])),
    "few": _enough,
    "random": _enough,
}
#: What is no share is written with two figures.
_NO_SHARES = {"order", "order_without", "absolute"}
#: Held against no cost, or nine tenths kept, which is no chance: the value has its standard error.
_NO_CHANCE = {"needed", "few", "random"}


def _short(share: float | None) -> str:
    if share is None:
        return NO_VALUE
    return format_percent(share).replace("less than", "<").replace("more than", ">")


def line(answer: Block) -> AnswerLine:
    """Return an answer's block as a line; what version 1 did not keep is left out."""
    name, facts = answer["question"], answer.get("facts")
    measure, value = _MEASURES[name](facts) if facts else ("", NO_VALUE)
    if name in _NO_CHANCE:
        return AnswerLine(name, answer["answer"], ASKS[name], measure, value)
    form: Form = (lambda number: format_value(number, ".2g")) if name in _NO_SHARES else _short
    return held_against(answer, ASKS[name], measure, form, value)


def title(reference: str) -> str:
    """Shorten a reference that is a path to the last of its parts."""
    is_path = reference.startswith((".", "/", "~"))
    return reference.rstrip("/").rpartition("/")[2] or reference if is_path else reference


def run_of(document: Block) -> str:
    """Say which model was run, and on what."""
    model, contexts = document["model"], document["contexts"]
    parts = [f"{model['class']}", f"{model['parameters']:,} parameters", model["dtype"]]
    if contexts["used"]:
        shape = contexts.get("shape")
        size = " × ".join(map(str, shape)) if shape else some(contexts["length"], "token")
        seed = "" if contexts["seed"] is None else f", seed {contexts['seed']}"
        parts.append(f"run on {contexts['used']} × {contexts['kind']} ({size}{seed})")
    return " · ".join(parts)


#: Weights by which a checkpoint differs from its model.
_DIFFERING: Mapping[str, str] = {
    "missing_weights": "Weights that the checkpoint lacks are random, and show nothing",
    "unused_weights": "Weights of the checkpoint that the model does not take were left out",
}


def notes(document: Block) -> Iterator[str]:
    """Say what a reader must know of a run before anything else."""
    for key, remark in _DIFFERING.items():
        if names := document["model"].get(key):
            yield f"{remark}: {listed(names)}."
    contexts = document["contexts"]
    if contexts.get("random") and contexts["used"]:
        real, option = "text", "--text FILE"
        if "shape" in contexts:
            real, option = "pictures", "--images DIR"
        yield f"To measure on {real} instead, use `{option}`."
    for note in document["notes"]:
        yield f"{capital(note)}."
    missing = document["missing"]
    for explanation in dict.fromkeys(missing.values()):
        names = listed([name for name, reason in missing.items() if reason == explanation])
        yield f"Not measured: {names} ({explanation.rstrip('.')})."
