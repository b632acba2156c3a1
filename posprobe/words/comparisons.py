"""Sentences about several tables or encodings, and about the steps of a training run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from posprobe.analyses.breaks.history import AnswerHistory, SeamHistory
from posprobe.analyses.facts import Shared, Verdict
from posprobe.page import AnswerLine
from posprobe.text import Block, format_value
from posprobe.words import QUESTION_TEXTS
from posprobe.words.formats import capitalise, format_count, format_similarity, join_words
from posprobe.words.lines import describe_table

#: Verdicts in the order in which sentences name them.
_VERDICT_ORDER: tuple[Verdict, ...] = ("yes", "no", "cannot tell")
#: Largest number of pairs without a distance that a note names.
MAX_SEPARATE_PAIRS = 2


def shared_sentence(shared: Shared) -> str:
    """Return the sentence on the answers of several subjects to one question."""
    verdicts = set(shared.answers.values())
    question = QUESTION_TEXTS[shared.question]
    if len(verdicts) == 1:
        return f"{question} {capitalise(verdicts.pop())}, for all."
    clauses = []
    for verdict in _VERDICT_ORDER:
        labels = [label for label, answer in shared.answers.items() if answer == verdict]
        if labels:
            clauses.append(f"{verdict} for {join_words(labels)}")
    return f"{question} {capitalise(join_words(clauses))}."


def agreement_sentence(shared_answers: Sequence[Shared]) -> str:
    """Return sentences on the answers that all subjects share, and on contradictions."""
    sentences = []
    for verdict in _VERDICT_ORDER:
        names = [
            QUESTION_TEXTS[shared.question]
            for shared in shared_answers
            if set(shared.answers.values()) == {verdict}
        ]
        sentences += [f"{' '.join(names)} {capitalise(verdict)}."] if names else []
    if not sentences:
        sentences = ["No question has the same answer for all."]
    n_differing = sum(not shared.same for shared in shared_answers)
    fixed_texts = {0: "No answers contradict each other.", 1: "One answer differs."}
    return " ".join(
        [*sentences, fixed_texts.get(n_differing, f"{n_differing} answers differ.")]
    )


def pair_sentence(pair: Block) -> str:
    """Return the sentence on the similarity of two tables, compared with random walks."""
    first, second = pair["tables"]
    if pair["cka"] is None:
        return (
            f"{first} and {second}: no distance ({pair['undefined'].get('cka', 'undefined')})."
        )
    walk = (pair["nulls"] or {}).get("walk")
    if walk is None:
        return f"{first} and {second} have a CKA of {format_similarity(pair['cka'])} (0 to 1)."
    comparison = "more similar" if similarity_verdict(pair) == "yes" else "no more similar"
    low, high = format_similarity(walk["p5"]), format_similarity(walk["p95"])
    return (
        f"{first} and {second} are {comparison} than two random walks: CKA "
        f"{format_similarity(pair['cka'])} (random walks with the same "
        f"steps: {low} to {high})."
    )


def comparison_headline(pairs: Sequence[Block]) -> str:
    """Say how similar tables are: two of them, or of several pairs how many."""
    if len(pairs) == 1 and not similarity_verdict(pairs[0]):
        return pair_sentence(pairs[0])
    return walk_comparison(
        [(pair["tables"], similarity_verdict(pair)) for pair in pairs], "{} are"
    )


def walk_comparison(pairs: Sequence[tuple[Sequence[str], str]], noun: str) -> str:
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
        return (
            f"{noun.format(' and '.join(names))} {comparison} similar than two random walks."
        )
    count = sum(answer == "yes" for _, answer in pairs)
    sentence = (
        f"{count or 'None'} of {len(pairs)} pairs {'is' if count < 2 else 'are'} more similar"
    )
    n_unknown = sum(not answer for _, answer in pairs)
    comparison = f" {format_count(n_unknown, 'pair')} cannot be told." if n_unknown else ""
    return f"{sentence} than two random walks.{comparison}"


def similarity_verdict(pair: Block) -> str:
    """Return whether two tables are more similar than random walks; empty without a band."""
    walk = (pair["nulls"] or {}).get("walk")
    if pair["cka"] is None or walk is None:
        return ""
    return "yes" if pair["cka"] > walk["p95"] else "no"


def pair_line(pair: Block, name: str) -> AnswerLine:
    """Return the similarity of two tables as a line."""
    question, cka = " · ".join(pair["tables"]), pair["cka"]
    if cka is None:
        return AnswerLine(name, "", question, "CKA (0–1)")
    walk = (pair["nulls"] or {}).get("walk")
    if walk is None:
        return AnswerLine(name, "", question, "CKA (0–1)", format_similarity(cka))
    chance = f"{format_similarity(walk['p5'])} to {format_similarity(walk['p95'])}"
    return AnswerLine(
        name,
        similarity_verdict(pair),
        question,
        "CKA (0–1)",
        format_similarity(cka),
        chance,
        tested=cka,
        interval=(walk["p5"], walk["p95"]),
        facts=_distances_sentence(pair),
    )


def pair_sentences(pair: Block) -> Iterator[str]:
    """Yield sentences on the similarity of two tables by all measures."""
    yield pair_sentence(pair)
    if not similarity_verdict(pair) and pair["procrustes"] is not None:
        yield _distances_sentence(pair)


def _distances_sentence(pair: Block) -> str:
    procrustes, overlap = (
        format_value(pair[key]) for key in ("procrustes", "subspace_overlap")
    )
    return (
        f"Procrustes distance {procrustes} (0: a rotated copy), subspace "
        f"overlap {overlap} (1: the same subspace)."
    )


def citation_sentence(value: Block) -> str:
    """Return sentences on where a value was published, and why it may differ."""
    text = f"{value['citation']}, {value['where']}."
    if value["differs"]:
        text += f" Not the same quantity: {value['differs']}."
    if value["matched"] == "name":
        text += " The table was recognised by its name alone."
    return text


#: What the answers about tables side by side are about.
COMPARISON_KEY = (
    "By chance: 5–95 % of random walks with the same steps. Answers: each table's own rows."
)


def comparison_lead(tables: Sequence[Block]) -> str:
    """Say of which sizes the tables are that are compared, from their blocks."""
    sizes = [describe_table(table["table"]).partition(" · ")[0] for table in tables]
    size_text = f" of {sizes[0]}" if len(set(sizes)) == 1 else f": {join_words(sizes)}"
    return f"{len(tables)} position tables{size_text}"


def compared_rows_notes(document: Block) -> Iterator[str]:
    """Say which rows the numbers and distances of a comparison's document are of."""
    tables = document["tables"]
    if any("positions_before" in table for table in tables):
        # Bundles of 0.1.0 cut tables to the common length.
        yield f"The first {document['length']} positions of each table are compared."
        return
    lines = [t["table"]["positions"] for t in tables if t["table"]["layout"]["type"] != "grid"]
    if len(set(lines)) > 1:
        yield (
            "Numbers and answers use all rows of each table. Distances use "
            f"the first {min(lines)} positions, which all sequences have. "
            "Nothing is resampled."
        )
    # Sequences have positions in common, and equal grids.
    shapes = {table["label"]: _grid_shape(table["table"]["layout"]) for table in tables}
    separate_labels = [
        f"{' and '.join(pair['tables'])} ({pair['undefined']['cka']})"
        for pair in document["pairs"]
        if pair["cka"] is None and len({shapes[label] for label in pair["tables"]}) > 1
    ]
    if separate_labels:
        yield f"There is no distance between {join_words(separate_labels, MAX_SEPARATE_PAIRS)}."


def _grid_shape(layout: Block) -> tuple[int, ...]:
    return (layout["height"], layout["width"]) if layout["type"] == "grid" else ()


def seam_sentence(seam: SeamHistory) -> str:
    """Say when a seam appears, moves and goes."""
    changes = [] if seam.appears is None else [f"appears at step {seam.appears}"]
    if seam.moved is not None:
        step, left_row = seam.moved
        frequency = f"{seam.moves} times, the last time " if seam.moves > 1 else ""
        changes.append(
            f"moves {frequency}to positions {left_row} and {left_row + 1} at step {step}"
        )
    if seam.gone is not None:
        changes.append(f"is gone at step {seam.gone}")
    sentence = (
        f"The break between positions {seam.left} and {seam.left + 1} {join_words(changes)}"
    )
    return f"{sentence}{_step_notes(seam.last, seam.earlier)}."


def answer_change_sentence(change: AnswerHistory) -> str:
    """Return the sentence on when the answer to a question changes."""
    sentence = f"{change.before.capitalize()} at step {change.until}"
    sentence += f", {change.after} at step {change.step}"
    notes = _step_notes(change.last, change.earlier)
    return f"{QUESTION_TEXTS[change.question]} {sentence}{notes}."


def _step_notes(is_last: bool, earlier: int) -> str:
    notes = ["the last step"] if is_last else []
    notes += [format_count(earlier, "earlier change")] if earlier else []
    return f" ({'; '.join(notes)})" if notes else ""
