"""Images without content: what tells their patches apart."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe import forward
from posprobe.analyses.experiments import BlankImages
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import LabelledRow, ModelMeasurement, by_layer, only_images
from posprobe.text import Block

#: Numbers of an image at a layer, and what they are called.
PATTERNS = {
    "share": "squared norm that differs between patches",
    "alignment": "cosine with the position embedding",
    "cka": "CKA with the position embedding",
}


def _blank_rows(document: Block) -> Iterator[LabelledRow]:
    for key, label in PATTERNS.items():
        for kind, what in (("constant", "grey"), ("noise", "noise")):
            yield by_layer(document["blank"], f"{label}, image of {what}", f"{kind}.{key}")


BLANK = ModelMeasurement[BlankImages](
    name="blank",
    title="Images without content",
    compute=lambda given: forward.blank_images(
        given.model, seed=given.seed, name=given.reference
    ),
    record=BlankImages,
    drawings=(Drawing("blank"),),
    needs=only_images,
    rows=_blank_rows,
)  # fmt: skip
