"""Images without content: what tells their patches apart."""

from __future__ import annotations

from posprobe import forward
from posprobe.analyses.experiments import BlankImages
from posprobe.measurements.base import Drawing
from posprobe.measurements.model.base import ModelMeasurement, only_images
from posprobe.number_format import Block, cell
from posprobe.page import Table, columns
from posprobe.report.narrator.captions_models import ALTS, TABLES

#: Numbers of an image at a layer, and what their columns are called.
COLUMNS = {"share": "share", "alignment": "cosine", "cka": "CKA"}


def _layers(document: Block) -> tuple[Table, ...]:
    block = document["blank"]
    rows = tuple(
        (
            str(layer["layer"]),
            *(cell(layer[kind][key]) for key in COLUMNS for kind in ("constant", "noise")),
        )
        for layer in block["layers"]
    )
    headings = [f"={label}, {kind}" for label in COLUMNS.values() for kind in ("grey", "noise")]
    return (Table(TABLES["blank"](block), columns("layer", *headings), rows),)


BLANK = ModelMeasurement[BlankImages](
    name="blank",
    compute=lambda given: forward.blank_images(
        given.model, seed=given.seed, name=given.reference
    ),
    record=BlankImages,
    drawings=(Drawing("blank", ALTS["blank"]),),
    needs=only_images,
    tables=_layers,
)  # fmt: skip
