"""Images without content: what tells their patches apart."""

from __future__ import annotations

from collections.abc import Iterator

from posprobe import forward
from posprobe.analyses.experiments import BlankImages
from posprobe.measurements.base import Drawing, Finding
from posprobe.measurements.model.base import ModelMeasurement, only_images
from posprobe.measurements.model.sentences import by_layer, percent
from posprobe.page import Table, columns
from posprobe.text import Block, cell, show

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
    caption = f"By layer; cosine and CKA are with {block['table']}."
    return (Table(caption, columns("layer", *headings), rows),)


def _findings(document: Block) -> Iterator[Finding]:
    layers = document["blank"]["layers"]
    places = [p for p, layer in enumerate(layers) if layer["constant"]["alignment"] is not None]
    if not places:
        return
    ends = tuple(dict.fromkeys((places[0], places[-1])))
    said = [
        f"{show(layers[place]['constant']['alignment'])} at layer {layers[place]['layer']}"
        for place in ends
    ]
    last = layers[places[-1]]
    share = percent(last["constant"]["share"] or 0.0)
    yield Finding(
        "An image of one grey makes a pattern over patches whose mean cosine with the position "
        f"table is {' and '.join(said)} (0 where unrelated); patches differ by "
        f"{share} of the squared norm at layer {last['layer']}.",
        tuple(
            f"blank.layers.{place}.constant.{key}"
            for place in ends
            for key in ("alignment", "share")
        ),
    )


BLANK = ModelMeasurement[BlankImages](
    name="blank",
    title="Images without content",
    shows="What tells patches apart where pixels do not: an image of one grey, and one of noise.",
    reading="Maps: how far each patch's state lies from the mean of all, over the largest of the "
    "map. Cosine: mean over patches of the state with the row of its position in the table, both "
    "centred; 0 is unrelated. Share: how much of the states' squared norm differs between patches.",
    limits="One image of each kind. States can hold position in directions of their own: then CKA, "
    "which a rotation leaves as it is, stays high while the cosine falls.",
    source="The pattern was shown by Yang et al. 2024 (Denoising Vision Transformers); the numbers "
    "are ours.",
    compute=lambda given: forward.blank_images(
        given.model, seed=given.seed, name=given.reference
    ),
    record=BlankImages,
    drawings=(
        Drawing(
            "blank",
            by_layer(
                "Norms of patches at some layers, and by layer the cosine with the table: {} for "
                "grey, {} for noise.",
                "constant.alignment", "noise.alignment",
            ),
        ),
    ),
    needs=only_images,
    tables=_layers,
    findings=_findings,
)  # fmt: skip
