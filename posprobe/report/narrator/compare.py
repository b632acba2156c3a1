"""What is said of several tables, or encodings, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from posprobe.analyses.facts import Shared, Verdict
from posprobe.number_format import Block
from posprobe.report.narrator import asks
from posprobe.report.narrator.lines import QUESTIONS
from posprobe.report.narrator.words import capital, listed, similarity

#: Answers in the order in which they are told.
_ORDER: tuple[Verdict, ...] = ("yes", "no", "cannot tell")
#: Pairs without a distance that a note names.
_APART = 2


def shared(found: Shared) -> str:
    """Say how several subjects answer one question."""
    kinds = set(found.answers.values())
    question = asks()[found.question]
    if len(kinds) == 1:
        return f"{question} {capital(kinds.pop())}, for all."
    parts = [
        f"{kind} for {listed([label for label, one in found.answers.items() if one == kind])}"
        for kind in _ORDER
        if kind in kinds
    ]
    return f"{question} {capital(listed(parts))}."


def agreement(found: Sequence[Shared]) -> str:
    """Say which answers are the same for all subjects, and which contradict each other."""
    alike: Mapping[str, list[str]] = {kind: [] for kind in _ORDER}
    for each in found:
        kinds = list(set(each.answers.values()))
        if len(kinds) == 1:
            alike[kinds[0]].append(asks()[each.question])
    told = [f"{' '.join(names)} {capital(kind)}." for kind, names in alike.items() if names]
    if not told:
        told = ["No question has the same answer for all."]
    differ = sum(not each.same for each in found)
    few = {0: "No answers contradict each other.", 1: "One answer differs."}
    told.append(few.get(differ, f"{differ} answers differ."))
    return " ".join(told)


def pair_sentence(pair: Block) -> str:
    """Say how similar two tables are, beside random walks with their steps."""
    first, second = pair["tables"]
    if pair["cka"] is None:
        return f"{first} and {second}: no distance ({pair['undefined'].get('cka', 'undefined')})."
    walk = (pair["nulls"] or {}).get("walk")
    if walk is None:
        return f"{first} and {second} have a CKA of {similarity(pair['cka'])} (0 to 1)."
    more = "more similar" if pair["cka"] > walk["p95"] else "no more similar"
    low, high = similarity(walk["p5"]), similarity(walk["p95"])
    return (
        f"{first} and {second} are {more} than two random walks: CKA {similarity(pair['cka'])} "
        f"(random walks with the same steps: {low} to {high})."
    )


def differing(document: Block) -> tuple[list[tuple[str, ...]], str]:
    """Return the questions whose answers differ, a row each, and say which answers agree."""
    if "verdict" not in document:
        return [], ""
    labels = [table["label"] for table in document["tables"]]
    rows, alike = [], []
    for each in document["verdict"]["answers"]:
        question = QUESTIONS.get(each["question"])
        if question is None:
            continue
        own = [each["answers"].get(label, "–") for label in labels]
        if len(set(own)) == 1:
            alike.append(f"{question} {capital(own[0])}.")
        else:
            rows.append((question, *own))
    return rows, f"Answers that agree: {' '.join(alike)}" if alike else ""


def lead(tables: Sequence[Block]) -> str:
    """Say which tables are compared, from their blocks."""
    return f"{len(tables)} position tables: {listed([_shape(table) for table in tables])}."


def _shape(table: Block) -> str:
    layout, count = table["table"]["layout"], table["table"]["positions"]
    grid = f" ({layout['height']} × {layout['width']})" if layout["type"] == "grid" else ""
    return f"{table['label']} of {count} positions{grid}"


def rows_compared(document: Block) -> Iterator[str]:
    """Say which rows the numbers and distances of a comparison's document are of."""
    tables = document["tables"]
    if any("positions_before" in table for table in tables):
        length = document["length"]
        for table in tables:
            if table["positions_before"] != length:
                yield (
                    f"{table['label']} has {table['positions_before']} positions; the first "
                    f"{length} are compared. Nothing is resampled."
                )
        return
    lines = [t["table"]["positions"] for t in tables if t["table"]["layout"]["type"] != "grid"]
    if len(set(lines)) > 1:
        yield (
            "Numbers and answers use all rows of each table. Distances use the first "
            f"{min(lines)} positions, which all sequences have. Nothing is resampled."
        )
    # Sequences have positions in common, and equal grids.
    shapes = {table["label"]: _shape_of(table["table"]["layout"]) for table in tables}
    apart = [
        f"{' and '.join(pair['tables'])} ({pair['undefined']['cka']})"
        for pair in document["pairs"]
        if pair["cka"] is None and len({shapes[label] for label in pair["tables"]}) > 1
    ]
    if apart:
        yield f"There is no distance between {listed(apart, _APART)}."


def _shape_of(layout: Block) -> tuple[int, ...]:
    return (layout["height"], layout["width"]) if layout["type"] == "grid" else ()
