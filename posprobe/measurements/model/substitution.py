"""Explanations of the position table in the table's place."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe import forward
from posprobe.analyses.substitution import SubstitutionEffect
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import WHOLE, LabelledRow, ModelInputs, ModelMeasurement
from posprobe.text import Block, percent_with_error, with_error

#: Costs, and what they are called.
COSTS = {
    "loss": "change of the loss (nats)",
    "divergence": "divergence (nats)",
    "answers": "top answers changed",
    "states": "change of the states",
}


def _substitution(given: ModelInputs) -> SubstitutionEffect:
    return forward.substitution_effect(
        given.model, given.batches("other tables"), rows=given.positions,
        random=given.is_random, mask_token=given.mask_token, seed=given.seed,
        name=given.reference,
    )  # fmt: skip


def _substitution_rows(document: Block) -> Iterator[LabelledRow]:
    block = document["substitution"]
    measure = block["measure"]
    write = percent_with_error if measure == "answers" else with_error
    for each in block["substitutes"]:
        main = each[measure]
        yield (
            f"kept with {each['label']}",
            {WHOLE: percent_with_error(main["kept"], main["kept_error"])},
        )
        yield (
            f"{COSTS[measure]} with {each['label']}",
            {WHOLE: write(main["value"], main["error"])},
        )


SUBSTITUTION = ModelMeasurement[SubstitutionEffect](
    name="substitution",
    title="What the model uses of its positions",
    compute=_substitution,
    record=SubstitutionEffect,
    drawings=(
        Drawing("substitution"),
        Drawing("substitution_positions"),
        Drawing("substitution_attention"),
    ),
    slow=True,
    head=lambda _: True,
    rows=_substitution_rows,
)
