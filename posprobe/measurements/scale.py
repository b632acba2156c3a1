"""Position norms against token norms."""

from __future__ import annotations

from dataclasses import replace

from posprobe import analyses
from posprobe.analyses import Scale
from posprobe.measurements.base import Drawing, Measurement, TableInputs, sentence
from posprobe.text import Block, show


def _sample(block: Block) -> tuple[str, ...]:
    """Say what the positions were compared with."""
    sample = block.get("sample")
    if sample is None:
        return ()
    vectors = f"{sample['sampled']} {sample['kind']} vectors of mean norm "
    vectors += f"{show(block['token_norm'])} (standard error {sample['standard_error']:.1%})"
    shape = " × ".join(map(str, sample["shape"]))
    return (
        f"Compared with {vectors}, from {sample['tensor']}, {shape}.",
        f"{sample['note'][0].upper()}{sample['note'][1:]}.",
    )


def _compute(given: TableInputs) -> Scale:
    assert given.tokens is not None  # noqa: S101 - `needs` says so
    found = analyses.scale(given.positions, given.tokens.values)
    return replace(found, sample=given.tokens.summary())


SCALE = Measurement[TableInputs, Scale](
    name="scale",
    compute=_compute,
    record=Scale,
    drawings=(
        Drawing(
            "scale",
            sentence(
                "Norms of positions and norms of tokens: a ratio of {} of their means.", "ratio"
            ),
        ),
    ),
    needs=lambda given: (
        ""
        if given.tokens is not None
        else "the embeddings that positions are added to: tokens=load_tokens(table)"
    ),
    facts=_sample,
)  # fmt: skip
