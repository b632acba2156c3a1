"""Directions in which positions vary, and directions in which tokens vary."""

from __future__ import annotations

from posprobe import families
from posprobe.analyses.subspaces import SubspaceOverlap, subspace_overlap
from posprobe.errors import UsageError
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import ModelInputs, ModelMeasurement
from posprobe.number_format import Block, cell, show
from posprobe.page import Table, columns
from posprobe.report.narrator.captions_models import ALTS, TABLES, subspaces_facts

#: Token embeddings that are read of a local file, where there are as many.
TOKENS = 2**15
#: Shares by key: what they are called, and what they are.
SHARES = {
    "variance": ("variance", "of the tokens, within the position subspace"),
    "top": ("top tenth", "of the subspace, within what tokens use most"),
    "bottom": ("bottom tenth", "of the subspace, within what tokens use least"),
}


def _compute(given: ModelInputs) -> SubspaceOverlap:
    table = given.table
    # What tokens use least is better known the more of them are read, and a disk is near.
    rows = 4 * table.dim if table.source.revision else max(TOKENS, 4 * table.dim)
    tokens = families.load_tokens(table, seed=given.seed, rows=rows, offline=given.offline)
    found = subspace_overlap(table, tokens.values)
    if len(found.token_share) < found.rank:
        raise UsageError(
            f"the token embeddings have rank {len(found.token_share)}, so they cannot be compared "
            f"with the {found.rank} position directions"
        )
    return found


def _overlaps(document: Block) -> tuple[Table, ...]:
    block = document["subspaces"]
    rows = tuple(
        (
            label, cell(block[key]["value"]), show(block[key]["expected"]),
            show(block[key]["band"], " to "), meaning,
        )
        for key, (label, meaning) in SHARES.items()
    )  # fmt: skip
    headings = columns("share", "=value", "=random subspace", "=5 to 95 %", "meaning")
    return (Table(TABLES["subspaces"](block), headings, rows),)


SUBSPACES = ModelMeasurement[SubspaceOverlap](
    name="subspaces",
    compute=_compute,
    record=SubspaceOverlap,
    drawings=(Drawing("overlap", ALTS["overlap"]),),
    facts=subspaces_facts,
    tables=_overlaps,
    from_weights=True,
)
