"""Explanations of the position table in the table's place."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from posprobe import forward
from posprobe.analyses.substitution import SubstitutionEffect
from posprobe.measurements.base import Drawing, Finding
from posprobe.measurements.model.base import ModelInputs, ModelMeasurement
from posprobe.measurements.model.sentences import (
    below,
    kept,
    percent,
    percent_with_error,
    random_contexts,
    removal,
    smallest,
    with_error,
    worth,
)
from posprobe.page import Table, columns
from posprobe.text import Block, cell, listed

#: Costs, and what their columns are called.
COLUMNS = {
    "loss": "change of the loss (nats)",
    "divergence": "divergence (nats)",
    "answers": "top answers changed",
    "states": "change of the states",
}

#: Standard errors of both by which shares of attention must differ.
SURE = 2.0
#: Kinds that are named beside components and sinusoids.
_SIMPLE = ("rotations", "ladder", "formula", "codes", "repaired", "given")


def _compute(given: ModelInputs) -> SubstitutionEffect:
    return forward.substitution_effect(
        given.model, given.batches("other tables"), rows=given.positions,
        random=given.is_random, mask_token=given.mask_token, seed=given.seed,
        name=given.reference,
    )  # fmt: skip


def _costs(document: Block) -> tuple[Table, ...]:
    block = document["substitution"]
    every = block["substitutes"]
    measures = [key for key in COLUMNS if every[0][key] is not None]
    with_cka = any(each["cka"] is not None for each in every)
    with_variance = block["scheme"] == "table"
    rows = []
    for each in every:
        main = each[block["measure"]]
        row = [each["label"], kept(main), *([cell(each["variance"])] if with_variance else [])]
        for key in measures:
            write = percent_with_error if key == "answers" else with_error
            row.append(write(each[key]["value"], each[key]["error"]))
        if with_cka:
            row.append(with_error(each["cka"], each["cka_error"]))
        rows.append(tuple(row))
    headings = ["=kept", *(["=of the variance"] if with_variance else [])]
    headings += [*(f"={COLUMNS[key]}" for key in measures), *(["=CKA"] if with_cka else [])]
    count = block["contexts"]
    caption = (
        f"In the place of {block['table']}, over {count} context{'' if count == 1 else 's'}, each "
        f"number with its standard error. Kept: of {worth(block)}."
    )
    named = columns("in its place", *headings)
    return (Table(caption, named, tuple(rows), brief=True, brief_rows=_brief(every)),)


def _distances(block: Block) -> tuple[str, ...]:
    """Write the ranges of distances, such as ``2 to 3``."""
    first = block["distances"]
    ends = [f"{a}" if b == a + 1 else f"{a} to {b - 1}" for a, b in pairwise(first)]
    return (*ends, f"{first[-1]} and more")


def _attention(document: Block) -> tuple[Table, ...]:
    block = document["substitution"]
    if block["distances"] is None:
        return ()
    rows = tuple(
        (
            each["label"],
            *(percent_with_error(share["value"], share["error"]) for share in each["attention"]),
        )
        for each in block["substitutes"]
    )
    first = "" if block["layout"]["type"] == "grid" else (
        " What goes to the first position is in none of them, so that they add up to less than "
        "100 %."
    )  # fmt: skip
    caption = (
        f"Where attention goes: shares by distance in {_cells(block)}, in the mean over heads and "
        f"layers, with standard errors over contexts.{first}"
    )
    headings = columns("in its place", *(f"={name}" for name in _distances(block)))
    return (Table(caption, headings, rows, brief=True, brief_rows=_brief(block["substitutes"])),)


def _cells(block: Block) -> str:
    return "patches" if block["layout"]["type"] == "grid" else "positions"


def _moved(block: Block, places: dict[str, int]) -> Iterator[Finding]:
    """Say at which distance removing the table changes attention most, beside its errors."""
    own, removed = (block["substitutes"][at]["attention"] for at in (0, places[block["removed"]]))
    changes = [
        (abs(two["value"] - one["value"]), at)
        for at, (one, two) in enumerate(zip(own, removed, strict=True))
        if None not in (one["value"], two["value"], one["error"], two["error"])
    ]
    if not changes:
        return
    most, at = max(changes)
    one, two = own[at], removed[at]
    # Both are of the same contexts, so that this is more than the error of the difference.
    if most < SURE * (one["error"] + two["error"]):
        said = "Attention by distance stays, within standard errors, when positions are taken away"
    else:
        name = _distances(block)[at]
        cells = _cells(block)
        if name == "1":
            cells = cells.removesuffix("es" if cells == "patches" else "s")
        far = "" if name != "0" else ", which is their own place,"
        said = (
            f"Attention changes most at a distance of {name} {cells}{far} when positions "
            f"are taken away: from {percent_with_error(one['value'], one['error'])} of it to "
            f"{percent_with_error(two['value'], two['error'])}, in the mean over heads and layers"
        )
    keys = (0, places[block["removed"]])
    yield Finding(f"{said}.", tuple(f"substitution.substitutes.{k}.attention.{at}" for k in keys))


def _brief(every: list[Block]) -> tuple[int, ...]:
    """Choose what a terminal prints: of what comes in many sizes a few."""
    some = ("1", "3", "10")
    return tuple(
        place
        for place, each in enumerate(every)
        if each["kind"] not in ("components", "sinusoids", "smoothed")
        or each["name"].rpartition("_")[2] in (*some, "4")
    )


def _findings(document: Block) -> Iterator[Finding]:
    block = document["substitution"]
    places = {each["name"]: place for place, each in enumerate(block["substitutes"])}
    main = block["measure"]
    note = random_contexts(document)
    tail = f" ({note})" if note else ""

    def keys(*names: str) -> tuple[str, ...]:
        return tuple(f"substitution.substitutes.{places[name]}.{main}" for name in names)

    removed = block["removed"]
    if block["substitutes"][places[removed]][main]["kept"] is None:
        why = block["undefined"]["kept"]
        said = f"{_begun(removal(block))}: {why}, so that shares of what it is worth are undefined"
        yield Finding(f"{said}{tail}.", keys(removed))
        return
    yield Finding(f"{_begun(removal(block))}{tail}.", keys(removed))
    for kind in ("components", "sinusoids"):
        if found := smallest(block, kind):
            name = found["name"]
            plural = "keeps" if found["size"] == 1 else "keep"
            yield Finding(
                f"Its {found['label']} {plural} {kept(found[main])} of "
                f"{worth(block)}{below([found[main]['kept']])}{_variance(found)}.",
                keys(name),
            )
    smooth = smallest(block, "smoothed", largest=True)
    simple = [
        each for each in block["substitutes"]
        if each[main]["kept"] is not None and (each is smooth or each["kind"] in _SIMPLE)
    ]  # fmt: skip
    if simple:
        yield Finding(
            f"Of the same, other explanations keep: {_each(simple, main)}.",
            keys(*(each["name"] for each in simple)),
        )
    random = [
        each for each in block["substitutes"]
        if each["kind"] == "null" and each[main]["kept"] is not None
    ]  # fmt: skip
    if random:
        yield Finding(
            f"Random tables in its place, one of each, keep: {_each(random, main)}.",
            keys(*(each["name"] for each in random)),
        )
    parts = [
        each for each in block["substitutes"]
        if each["kind"] in ("band", "head") and each[main]["kept"] is not None
    ]  # fmt: skip
    if parts:
        least = min(parts, key=lambda each: float(each[main]["kept"]))
        said = f"one costs most: {least['label']}, {kept(least[main])} of {worth(block)} is kept"
        said += below([least[main]["kept"]])
        if least[main]["kept"] >= 1:
            said = f"none costs anything of {worth(block)}"
        yield Finding(f"Of {len(parts)} parts taken away alone, {said}.", keys(least["name"]))
    if block["distances"] is not None:
        yield from _moved(block, places)
    if part := block["early"]:
        better = ""
        if part["cost"] < 0 or part["cost"] > 1:
            who = "they" if part["cost"] < 0 else "all later ones together"
            better = f" ({who} do better without)"
        yield Finding(
            f"The first {part['positions']} positions have {percent(part['cost'], 0)} of that "
            f"cost of taking positions away{better}, and are {percent(part['of'], 0)} of what is "
            "counted.",
            ("substitution.early",),
        )


def _each(some: list[Block], main: str) -> str:
    said = "; ".join(f"{each['label']}, {kept(each[main])}" for each in some)
    return said + below(each[main]["kept"] for each in some)


def _variance(found: Block) -> str:
    share = found["variance"]
    return "" if share is None else f", and {percent(share)} of its variance"


def _begun(sentence: str) -> str:
    return f"{sentence[0].upper()}{sentence[1:]}"


def _alt(block: Block) -> str:
    names = [each["label"] for each in block["substitutes"] if each["kind"] in ("null", "codes")]
    found = smallest(block, "components")
    if found is None or found[block["measure"]]["kept"] is None:
        return f"What tables in place of {block['table']} cost the model."
    share = kept(found[block["measure"]])
    beside = f", beside {listed(names)}" if names else ""
    return f"Share of the table's worth kept: {found['label']} {share}{beside}."


def _no_positions(found: SubstitutionEffect) -> str:
    return "" if found.by_position is not None else "the outputs have no positions"


def _no_attention(found: SubstitutionEffect) -> str:
    return found.undefined.get("attention", "")


SUBSTITUTION = ModelMeasurement[SubstitutionEffect](
    name="substitution",
    title="What the model uses of its positions",
    shows="What the model loses when explanations of its position table stand in the table's "
    "place, or when rotations or biases are taken away.",
    reading="Kept is 1 less the cost over that of the mean row in place of every row, which counts "
    "as removing the table: 100 % where nothing is lost, below 0 where the mean row would be "
    "better, above 100 % where the table itself is no better. All but the zeros keep the mean row; "
    "rows of special tokens stay, and so do rows that no context reaches. The divergence is that "
    "of the outputs from the unchanged model's (Kullback-Leibler). Of a model without a table the "
    "rotations of a band of periods are stopped, one band at a time and all up to it, or the "
    "biases of a head set to their mean at all offsets. Explanations that a table does not have "
    "are left out, such as rotations where none was found. Where attention goes is a mean over "
    "heads and layers: heads that look elsewhere can balance.",
    limits="The model was not trained with other tables: what it loses is what it makes of them "
    "now, not what it could have learned from them. Of each random table there is one draw, and "
    "errors are over contexts alone.",
    source="The substitution is ours. Fits by rotation: Schönemann 1966; divergence: Kullback & "
    "Leibler 1951; errors of shares: the jackknife (Efron & Stein 1981).",
    compute=_compute,
    record=SubstitutionEffect,
    drawings=(
        Drawing("substitution", _alt),
        Drawing(
            "substitution_positions",
            lambda block: f"Cost by position: of {worth(block)}, what is lost with some of them.",
            lacks=_no_positions,
        ),
        Drawing(
            "substitution_attention",
            lambda block: (
                f"Share of attention by distance in {_cells(block)}, as it is and with "
                "tables in place of the model's."
            ),
            lacks=_no_attention,
        ),
    ),
    slow=True,
    head=True,
    tables=lambda document: (*_costs(document), *_attention(document)),
    findings=_findings,
)
