"""What is said of several tables or encodings side by side, and of the steps of a training run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from posprobe.analyses.breaks.history import AnswerHistory, SeamHistory
from posprobe.analyses.facts import Shared, Verdict
from posprobe.page import AnswerLine
from posprobe.text import Block, format_value
from posprobe.words import ASKS
from posprobe.words.formats import capital, listed, similarity, some
from posprobe.words.lines import size

#: Answers in the order in which they are told.
_ORDER: tuple[Verdict, ...] = ("yes", "no", "cannot tell")
#: Pairs without a distance that a note names.
_APART_DECIMALS = 2


def shared(shared_answer: Shared) -> str:
    """Say how several subjects answer one question."""
    kinds = set(shared_answer.answers.values())
    question = ASKS[shared_answer.question]
    if len(kinds) == 1:
        return f"{question} {capital(kinds.pop())}, for all."
    parts = [
        f"{kind} for {listed([label for label, v in shared_answer.answers.items() if v == kind])}"
        for kind in _ORDER
        if kind in kinds
    ]
    return f"{question} {capital(listed(parts))}."


def agreement(shared_answers: Sequence[Shared]) -> str:
    """Say which answers are the same for all subjects, and which contradict each other."""
    sentences = []
    for kind in _ORDER:
        names = [
            ASKS[shared_answer.question]
            for shared_answer in shared_answers
            if set(shared_answer.answers.values()) == {kind}
        ]
        sentences += [f"{' '.join(names)} {capital(kind)}."] if names else []
    if not sentences:
        sentences = ["No question has the same answer for all."]
    differ = sum(not shared_answer.same for shared_answer in shared_answers)
    fixed_texts = {0: "No answers contradict each other.", 1: "One answer differs."}
    return " ".join([*sentences, fixed_texts.get(differ, f"{differ} answers differ.")])


def pair_sentence(pair: Block) -> str:
    """Say how similar two tables are, beside random walks with their steps."""
    first, second = pair["tables"]
    if pair["cka"] is None:
        return f"{first} and {second}: no distance ({pair['undefined'].get('cka', 'undefined')})."
    walk = (pair["nulls"] or {}).get("walk")
    if walk is None:
        return f"{first} and {second} have a CKA of {similarity(pair['cka'])} (0 to 1)."
    comparison = "more similar" if similar(pair) == "yes" else "no more similar"
    low, high = similarity(walk["p5"]), similarity(walk["p95"])
    return (
        f"{first} and {second} are {comparison} than two random walks: "
        f"CKA {similarity(pair['cka'])} "
        f"(random walks with the same steps: {low} to {high})."
    )


def headline(pairs: Sequence[Block]) -> str:
    """Say how similar tables are: two of them, or of several pairs how many."""
    if len(pairs) == 1 and not similar(pairs[0]):
        return pair_sentence(pairs[0])
    return walked([(pair["tables"], similar(pair)) for pair in pairs], "{} are")


def walked(pairs: Sequence[tuple[Sequence[str], str]], noun: str) -> str:
    """Say which pairs are more similar than random walks: of several how many.

    Parameters
    ----------
    pairs
        The names of each pair, and yes or no; empty where that cannot be told.
    noun
        Name of the similar things, with braces for the names of a pair.
    """
    if len(pairs) == 1:
        ((names, answer),) = pairs
        comparison = "more" if answer == "yes" else "no more"
        return f"{noun.format(' and '.join(names))} {comparison} similar than two random walks."
    count = sum(answer == "yes" for _, answer in pairs)
    sentence = (
        f"{count or 'None'} of {len(pairs)} pairs {'is' if count < 2 else 'are'} more similar"
    )
    unknown = sum(not answer for _, answer in pairs)
    comparison = f" {some(unknown, 'pair')} cannot be told." if unknown else ""
    return f"{sentence} than two random walks.{comparison}"


def similar(pair: Block) -> str:
    """Answer whether two tables are more similar than random walks; empty without such a band."""
    walk = (pair["nulls"] or {}).get("walk")
    if pair["cka"] is None or walk is None:
        return ""
    return "yes" if pair["cka"] > walk["p95"] else "no"


def pair_line(pair: Block, name: str) -> AnswerLine:
    """Return how similar two tables are as a line."""
    question, cka = " · ".join(pair["tables"]), pair["cka"]
    if cka is None:
        return AnswerLine(name, "", question, "CKA (0–1)")
    walk = (pair["nulls"] or {}).get("walk")
    if walk is None:
        return AnswerLine(name, "", question, "CKA (0–1)", similarity(cka))
    chance = f"{similarity(walk['p5'])} to {similarity(walk['p95'])}"
    return AnswerLine(
        name, similar(pair), question, "CKA (0–1)", similarity(cka), chance, tested=cka,
        interval=(walk["p5"], walk["p95"]), facts=_distances(pair),
    )  # fmt: skip


def pair_sentences(pair: Block) -> Iterator[str]:
    """Say how similar two tables are by all distances."""
    yield pair_sentence(pair)
    if not similar(pair) and pair["procrustes"] is not None:
        yield _distances(pair)


def _distances(pair: Block) -> str:
    return (
        f"Procrustes distance {format_value(pair['procrustes'])} (0: a rotated copy), subspace overlap "
        f"{format_value(pair['subspace_overlap'])} (1: the same subspace)."
    )


def citation(value: Block) -> str:
    """Say where a value was published, and why it may differ."""
    text = f"{value['citation']}, {value['where']}."
    if value["differs"]:
        text += f" Not the same quantity: {value['differs']}."
    if value["matched"] == "name":
        text += " The table was recognised by its name alone."
    return text


#: What the answers about tables side by side are about.
KEY = "By chance: 5–95 % of random walks with the same steps. Answers: each table's own rows."


def lead(tables: Sequence[Block]) -> str:
    """Say of which sizes the tables are that are compared, from their blocks."""
    sizes = [size(table["table"]).partition(" · ")[0] for table in tables]
    size_text = f" of {sizes[0]}" if len(set(sizes)) == 1 else f": {listed(sizes)}"
    return f"{len(tables)} position tables{size_text}"


def rows_compared(document: Block) -> Iterator[str]:
    """Say which rows the numbers and distances of a comparison's document are of."""
    tables = document["tables"]
    if any("positions_before" in table for table in tables):
        # Bundles of 0.1.0 cut tables to the common length.
        yield f"The first {document['length']} positions of each table are compared."
        return
    lines = [t["table"]["positions"] for t in tables if t["table"]["layout"]["type"] != "grid"]
    if len(set(lines)) > 1:
        yield (
            "Numbers and answers use all rows of each table. Distances use the first "
            f"{min(lines)} positions, which all sequences have. Nothing is resampled."
        )
    # Sequences have positions in common, and equal grids.
    shapes = {table["label"]: _shape_of(table["table"]["layout"]) for table in tables}
    separate_labels = [
        f"{' and '.join(pair['tables'])} ({pair['undefined']['cka']})"
        for pair in document["pairs"]
        if pair["cka"] is None and len({shapes[label] for label in pair["tables"]}) > 1
    ]
    if separate_labels:
        yield f"There is no distance between {listed(separate_labels, _APART_DECIMALS)}."


def _shape_of(layout: Block) -> tuple[int, ...]:
    return (layout["height"], layout["width"]) if layout["type"] == "grid" else ()


def seam(f: SeamHistory) -> str:
    """Say when a seam appears, moves and goes."""
    parts = [] if f.appears is None else [f"appears at step {f.appears}"]
    if f.moved is not None:
        step, left_row = f.moved
        frequency = f"{f.moves} times, the last time " if f.moves > 1 else ""
        parts.append(f"moves {frequency}to positions {left_row} and {left_row + 1} at step {step}")
    if f.gone is not None:
        parts.append(f"is gone at step {f.gone}")
    sentence = f"The break between positions {f.left} and {f.left + 1} {listed(parts)}"
    return f"{sentence}{_noted(f.last, f.earlier)}."


def answer(f: AnswerHistory) -> str:
    """Say when the answer to a question changes."""
    sentence = f"{f.before.capitalize()} at step {f.until}, {f.after} at step {f.step}"
    return f"{ASKS[f.question]} {sentence}{_noted(f.last, f.earlier)}."


def _noted(is_last: bool, earlier: int) -> str:
    notes = ["the last step"] if is_last else []
    notes += [some(earlier, "earlier change")] if earlier else []
    return f" ({'; '.join(notes)})" if notes else ""
