"""Explanations of the position table in the table's place."""

from __future__ import annotations

from itertools import pairwise

from posprobe import forward
from posprobe.analyses.substitution import SubstitutionEffect
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import ModelInputs, ModelMeasurement
from posprobe.number_format import Block, cell, percent_with_error, with_error
from posprobe.page import Table, columns
from posprobe.report.narrator.captions_models import ALTS, LACKS, TABLES

#: Costs, and what their columns are called.
COLUMNS = {
    "loss": "change of the loss (nats)",
    "divergence": "divergence (nats)",
    "answers": "top answers changed",
    "states": "change of the states",
}


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
        row = [each["label"], percent_with_error(main["kept"], main["kept_error"])]
        row += [cell(each["variance"])] if with_variance else []
        for key in measures:
            write = percent_with_error if key == "answers" else with_error
            row.append(write(each[key]["value"], each[key]["error"]))
        if with_cka:
            row.append(with_error(each["cka"], each["cka_error"]))
        rows.append(tuple(row))
    headings = ["=kept", *(["=of the variance"] if with_variance else [])]
    headings += [*(f"={COLUMNS[key]}" for key in measures), *(["=CKA"] if with_cka else [])]
    named = columns("in its place", *headings)
    return (
        Table(
            TABLES["substitution"](block), named, tuple(rows), brief=True, brief_rows=_brief(every)
        ),
    )


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
    headings = columns("in its place", *(f"={name}" for name in _distances(block)))
    return (
        Table(
            TABLES["distances"](block),
            headings,
            rows,
            brief=True,
            brief_rows=_brief(block["substitutes"]),
        ),
    )


def _brief(every: list[Block]) -> tuple[int, ...]:
    """Choose what a terminal prints: of what comes in many sizes a few."""
    some = ("1", "3", "10")
    return tuple(
        place
        for place, each in enumerate(every)
        if each["kind"] not in ("components", "sinusoids", "smoothed")
        or each["name"].rpartition("_")[2] in (*some, "4")
    )


SUBSTITUTION = ModelMeasurement[SubstitutionEffect](
    name="substitution",
    compute=_compute,
    record=SubstitutionEffect,
    drawings=(
        Drawing("substitution", ALTS["substitution"]),
        Drawing(
            "substitution_positions",
            ALTS["substitution_positions"],
            lacks=LACKS["substitution_positions"],
        ),
        Drawing(
            "substitution_attention",
            ALTS["substitution_attention"],
            lacks=lambda found: found.undefined.get("attention", ""),
        ),
    ),
    slow=True,
    head=lambda _: True,
    tables=lambda document: (*_costs(document), *_attention(document)),
)
