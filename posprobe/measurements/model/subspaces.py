"""Directions in which positions vary, and directions in which tokens vary."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe import families
from posprobe.analyses.subspaces import SubspaceOverlap, subspace_overlap
from posprobe.errors import UsageError
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import WHOLE, LabelledRow, ModelInputs, ModelMeasurement
from posprobe.text import Block, cell, show

#: Token embeddings that are read of a local file, where there are as many.
TOKENS = 2**15
#: Shares by key, and what they are.
SHARES = {
    "variance": "token variance within the position subspace",
    "top": "position subspace within the tenth that tokens use most",
    "bottom": "position subspace within the tenth that tokens use least",
}


def _subspaces(given: ModelInputs) -> SubspaceOverlap:
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


def _subspace_rows(document: Block) -> Iterator[LabelledRow]:
    for key, label in SHARES.items():
        found = document["subspaces"][key]
        chance = show(found["band"], " to ")
        yield label, {WHOLE: f"{cell(found['value'])} (by chance {chance})"}


SUBSPACES = ModelMeasurement[SubspaceOverlap](
    name="subspaces",
    title="Position and token directions",
    compute=_subspaces,
    record=SubspaceOverlap,
    drawings=(Drawing("overlap"),),
    rows=_subspace_rows,
    from_weights=True,
)
