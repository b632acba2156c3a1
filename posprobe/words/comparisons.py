"""Sentences about several tables or encodings, and about the steps of a training run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posprobe.analyses.breaks.history import AnswerHistory, SeamHistory
from posprobe.analyses.composition.budget import BUDGET_LABELS
from posprobe.analyses.facts import Shared, Verdict
from posprobe.page import AnswerLine
from posprobe.sources import DRAWN_PREFIX
from posprobe.text import Block, format_value
from posprobe.words import QUESTION_TEXTS
from posprobe.words.formats import (
    capitalise,
    format_count,
    format_similarity,
    join_words,
)
from posprobe.words.lines import budget_sums, budget_terms, describe_table

#: Verdicts in the order in which sentences name them.
_VERDICT_ORDER: tuple[Verdict, ...] = ("yes", "no", "cannot tell")
#: Number of periods that a headline names of a table.
MAX_HEADLINE_PERIODS = 5
#: Number of tables that a headline describes one by one.
MAX_DESCRIBED_TABLES = 3
#: Largest number of pairs without a distance that a note names.
MAX_SEPARATE_PAIRS = 2


def baseline_kind(table: Block) -> str:
    """Return how a baseline was made, ``drawn`` or ``formula``; empty for a stored table.

    Parameters
    ----------
    table
        Block of a table in a comparison.
    """
    description = table["table"]
    source = description["source"]
    if description["kind"] != "fixed" or source.get("file"):
        return ""
    if source["resolved"].startswith(DRAWN_PREFIX):
        return "drawn"
    # What is written down in full resolves to itself; other tables were made in memory.
    return "formula" if source["resolved"] == source["reference"] else ""


def baseline_notes(document: Block) -> dict[str, str]:
    """Return the notes of the baselines in a comparison's document, by their label."""
    kinds = {t["label"]: baseline_kind(t) for t in document.get("tables") or ()}
    return {label: f"baseline ({kind})" for label, kind in kinds.items() if kind}


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


def chance_band(pair: Block) -> tuple[str, Block | None]:
    """Return what random tables of a pair are, in the plural, and the band of their CKA.

    Patches on a grid have no walk: random fields as smooth as the two tables take its place.
    """
    bands = pair["nulls"] or {}
    if bands.get("walk") is not None:
        return "random walks", bands["walk"]
    return "random fields", bands.get("stationary")


def pair_sentence(pair: Block) -> str:
    """Return the sentence on the similarity of two tables, compared with random ones."""
    first, second = pair["tables"]
    if pair["cka"] is None:
        return f"{first} and {second}: no distance ({pair['undefined'].get('cka', 'undefined')})."
    noun, band = chance_band(pair)
    if band is None:
        return f"{first} and {second} have a CKA of {format_similarity(pair['cka'])} (0 to 1)."
    comparison = (
        "more similar" if similarity_verdict(pair) == "yes" else "no more similar"
    )
    high = format_similarity(band["p95"])
    kept_property = "the same steps" if noun == "random walks" else "the same smoothness"
    return (
        f"{first} and {second} are {comparison} than {noun}: CKA "
        f"{format_similarity(pair['cka'])} ({noun} with {kept_property}: up to {high})."
    )


def comparison_headline(document: Block) -> str:
    """Say what each table is made of, and how similar the tables are where that is known."""
    tables = document["tables"]
    # Random tables are no finding, and so are pairs with them.
    drawn_labels = {table["label"] for table in tables if baseline_kind(table) == "drawn"}
    pairs = [
        pair for pair in document["pairs"] if drawn_labels.isdisjoint(pair["tables"])
    ] or document["pairs"]
    # Where all tables are baselines, they are what is compared.
    subjects = [table for table in tables if not baseline_kind(table)] or tables
    composition = _composition_sentence(subjects)
    if len(subjects) < len(tables):
        composition = f"{composition} {_baselines_sentence(tables)}".strip()
    if composition and not any(map(similarity_verdict, pairs)):
        return composition
    return f"{composition} {_similarity_sentence(pairs)}".strip()


def _baselines_sentence(tables: Sequence[Block]) -> str:
    """Name the tables that were drawn or computed, by how they were made."""
    labels_by_kind: dict[str, list[str]] = {}
    for table in tables:
        if kind := baseline_kind(table):
            labels_by_kind.setdefault(kind, []).append(table["label"])
    clauses = [
        f"{join_words(labels)} ({kind})" for kind, labels in labels_by_kind.items()
    ]
    is_single = sum(map(len, labels_by_kind.values())) == 1
    return f"{'Baseline' if is_single else 'Baselines'}: {'; '.join(clauses)}."


def _composition_sentence(tables: Sequence[Block]) -> str:
    """Say what most of the variance of each table is; of many tables, how many rotate or break."""
    if not all(table.get("budget") and table.get("verdict") for table in tables):
        return ""
    if len(tables) <= MAX_DESCRIBED_TABLES:
        clauses = [f"{table['label']} {_composition_phrase(table)}" for table in tables]
        return f"{'; '.join(clauses)}."
    counts = {
        question: sum(
            answer["question"] == question and answer["answer"] == "yes"
            for table in tables
            for answer in table["verdict"]["answers"]
        )
        for question in ("rotations", "seams")
    }
    rotate = "has" if counts["rotations"] == 1 else "have"
    seams = "breaks" if counts["seams"] == 1 else "break"
    return (
        f"Of {len(tables)} tables, {counts['rotations']} {rotate} rotations and "
        f"{counts['seams']} {seams}."
    )


def _composition_phrase(table: Block) -> str:
    """Return the verb phrase on what a table is: a formula, or its largest term."""
    answers = {answer["question"]: answer for answer in table["verdict"]["answers"]}
    if answers.get("closed_form", {}).get("answer") == "yes":
        return "follows a known formula"
    terms = budget_terms(table)
    if not terms:
        return "does not vary"
    parts = [(term.share, term.value, BUDGET_LABELS[term.kind]) for term in terms]
    _, value, name = max([*parts, *budget_sums(terms)])
    periods = [term.short_label for term in terms if term.kind == "rotation"]
    of_periods = (
        f" of {join_words(periods, MAX_HEADLINE_PERIODS)} positions"
        if name == BUDGET_LABELS["rotation"]
        else ""
    )
    return f"is {value} {name}{of_periods}"


def _similarity_sentence(pairs: Sequence[Block]) -> str:
    """Say how similar tables are: two of them, or of several pairs how many."""
    if len(pairs) == 1 and not similarity_verdict(pairs[0]):
        return pair_sentence(pairs[0])
    nouns = dict.fromkeys(
        chance_band(pair)[0] for pair in pairs if similarity_verdict(pair)
    )
    return chance_comparison(
        [(pair["tables"], similarity_verdict(pair)) for pair in pairs],
        "{} are",
        " or ".join(nouns) or "random walks",
    )


def chance_comparison(
    pairs: Sequence[tuple[Sequence[str], str]],
    noun: str,
    random_tables: str = "random walks",
) -> str:
    """Say which pairs are more similar than random tables: of several how many.

    Parameters
    ----------
    pairs
        The names of each pair, and yes or no; empty where that cannot be told.
    noun
        Name of the similar things, with braces for the names of a pair.
    random_tables
        Name of the random tables, in the plural.
    """
    if len(pairs) == 1:
        ((names, answer),) = pairs
        comparison = "more" if answer == "yes" else "no more"
        return f"{noun.format(' and '.join(names))} {comparison} similar than {random_tables}."
    compared_pairs = [answer for _, answer in pairs if answer]
    if not compared_pairs:
        return f"The similarity of the {len(pairs)} pairs cannot be compared with chance."
    count = sum(answer == "yes" for answer in compared_pairs)
    n_unknown = len(pairs) - len(compared_pairs)
    noun = "comparable pairs" if n_unknown else "pairs"
    sentence = (
        f"{count or 'None'} of {len(compared_pairs)} {noun} "
        f"{'is' if count < 2 else 'are'} more similar"
    )
    comparison = (
        f" {format_count(n_unknown, 'pair')} cannot be compared." if n_unknown else ""
    )
    return f"{sentence} than {random_tables}.{comparison}"


def similarity_verdict(pair: Block) -> str:
    """Return whether two tables are more similar than random ones; empty without a band."""
    _, band = chance_band(pair)
    if pair["cka"] is None or band is None:
        return ""
    return "yes" if pair["cka"] > band["p95"] else "no"


def pair_line(pair: Block, name: str) -> AnswerLine:
    """Return the similarity of two tables as a line."""
    question, cka = " · ".join(pair["tables"]), pair["cka"]
    if cka is None:
        return AnswerLine(name, "", question, "CKA (0–1)")
    _, band = chance_band(pair)
    if band is None:
        return AnswerLine(name, "", question, "CKA (0–1)", format_similarity(cka))
    # Only similarity beyond chance is a yes, so that its range has no lower end.
    return AnswerLine(
        name,
        similarity_verdict(pair),
        question,
        "CKA (0–1)",
        format_similarity(cka),
        f"0 to {format_similarity(band['p95'])}",
        tested=cka,
        interval=(0.0, band["p95"]),
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


def sweep_headline(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say how many tables of a sweep rotate, break, are untrained in part, or come from another.

    Parameters
    ----------
    rows
        Rows of the sweep; the sentence is empty where no question was asked.
    """
    tables = [row for row in rows if row.get("answers.order") is not None]
    if not tables:
        return ""
    rotating = ("answers.rotations", "answers.axis_rotations")
    # Both forms of the verb, for one table and for several.
    counts = {
        ("rotates", "rotate"): sum(
            any(row.get(key) == "yes" for key in rotating) for row in tables
        ),
        ("breaks", "break"): sum(row.get("answers.seams") == "yes" for row in tables),
        ("has untrained rows", "have untrained rows"): sum(
            (row.get("budget.untrained") or 0) > 0 for row in tables
        ),
        ("comes from another", "come from another"): sum(
            row.get("lineage") not in (None, row["reference"])
            # Tables of one formula do not come from each other.
            and row.get("answers.closed_form") != "yes"
            for row in tables
        ),
    }
    clauses = [
        f"{count:,} {singular if count == 1 else plural}"
        for (singular, plural), count in counts.items()
        if count or singular == "rotates"
    ]
    n_others = len(rows) - len(tables)
    verb = "has" if n_others == 1 else "have"
    others = f" {format_count(n_others, 'encoding')} {verb} no table." if n_others else ""
    return f"Of {format_count(len(tables), 'table')}, {join_words(clauses)}.{others}"


def comparison_key(document: Block) -> str:
    """Say what the numbers and answers about tables side by side are about."""
    answers = " Answers: each table's own rows." if document.get("verdict") else ""
    if any(map(similarity_verdict, document["pairs"])):
        chance = (
            "By chance: 95 % of random walks with the same steps, or of random "
            "fields as smooth."
        )
    else:
        chance = "Add --nulls 9 to compare the similarity with random tables."
    return f"{chance}{answers}"


def comparison_lead(tables: Sequence[Block]) -> str:
    """Say how many tables and baselines are compared, and of which sizes they are."""
    n_baselines = sum(bool(baseline_kind(table)) for table in tables)
    counts = [
        format_count(count, noun)
        for count, noun in (
            (len(tables) - n_baselines, "position table"),
            (n_baselines, "baseline"),
        )
        if count
    ]
    sizes = {
        table["label"]: describe_table(table["table"]).partition(" · ")[0]
        for table in tables
    }
    ((common_size, count),) = Counter(sizes.values()).most_common(1)
    if count == 1 < len(tables):
        return f"{join_words(counts)}: {join_words(list(sizes.values()))}"
    others = [f"{label}: {size}" for label, size in sizes.items() if size != common_size]
    exceptions = f" ({'; '.join(others)})" if others else ""
    return f"{join_words(counts)} of {common_size}{exceptions}"


def compared_rows_notes(document: Block) -> Iterator[str]:
    """Say which rows the numbers and distances of a comparison's document are of."""
    tables = document["tables"]
    if any("positions_before" in table for table in tables):
        # Bundles of 0.1.0 cut tables to the common length.
        yield f"The first {document['length']} positions of each table are compared."
        return
    lines = [
        t["table"]["positions"] for t in tables if t["table"]["layout"]["type"] != "grid"
    ]
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
    sentence = f"The break between positions {seam.left} and {seam.left + 1} {join_words(changes)}"
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
