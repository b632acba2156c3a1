"""Draw docs/images/gallery-*.png and write docs/gallery.md: every kind of figure, from the samples.

    uv run python tools/gallery.py

Figures for papers are PDF or SVG at exact width; these are small images of them for a page.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal

import posprobe as pp

DOCS = Path(__file__).parent.parent / "docs"
MINILM = "sample:all-minilm-l6-v2"
WHISPER = "sample:whisper-tiny-decoder"
SINUSOID = "sinusoidal:512x384"
#: Kind, references, span, and what it is for.
FIGURES: tuple[tuple[str, tuple[str, ...], Literal["column", "page"], str], ...] = (
    ("comparison", (MINILM, WHISPER, SINUSOID), "page", "the composite for a first page"),
    (
        "similarity",
        (MINILM, "sample:rxnmapper-albert", SINUSOID),
        "page",
        "Wang & Chen's figure 1",
    ),
    (
        "mosaic",
        ("sample:digits-vit",),
        "column",
        "ViT's figure 7, every tile on one range",
    ),
    (
        "winding",
        (MINILM,),
        "page",
        "two components that trace a circle, and their period",
    ),
    ("bridging", (MINILM,), "page", "what predicts rows that were left out"),
    (
        "axis_codes",
        ("sample:digits-vit",),
        "page",
        "the codes of rows and columns of patches",
    ),
    ("shift", (MINILM,), "column", "rotations of the learned step, with periods"),
    ("spectrogram", (MINILM,), "page", "frequencies along the table"),
    ("components", (MINILM,), "page", "scores against position"),
    ("trajectory", (WHISPER,), "column", "the path of the first components"),
    ("heads", ("rotary:8192x128,base=500000",), "page", "a rotary ladder and its decay"),
    ("heads", ("alibi:512x8",), "column", "ALiBi's slopes"),
    (
        "budget",
        (MINILM, WHISPER, "sample:rxnmapper-albert"),
        "page",
        "what the variance is made of",
    ),
    (
        "clock",
        (MINILM,),
        "page",
        "circles of the rotations, and the speed of their clock",
    ),
)
HEAD = """# Gallery

Pick a figure and copy its command. Each comes with a caption; `posprobe list figures` shows all
kinds. Made by `tools/gallery.py` from the bundled samples.

First screens of real checkpoints: [GPT-2](images/gpt2.png), [DeiT-Ti](images/deit-tiny.png),
[a rotary ladder](images/rotary-2048x128.png),
[heads of a rotary model](images/forward-pydoc-llama.png), and
[a run of a vision model](images/forward-digits-vit.png).
"""


def main() -> None:
    """Draw the figures and write the page."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    text = HEAD
    for number, (kind, references, span, purpose) in enumerate(FIGURES):
        records = [record for reference in references for record in load(reference)]
        figure = pp.paper_figure(
            kind, *records, venue="neurips" if span == "page" else "acl", span=span
        )
        name = f"gallery-{number}-{kind}.png"
        figure.figure.savefig(
            DOCS / "images" / name, dpi=140, metadata={"Software": None}
        )
        command = (
            f"posprobe figure {kind} {' '.join(references)} -o {kind}.pdf --span {span}"
        )
        text += f"\n**{kind}**: {purpose}. `{command}`\n\n![{kind}: {purpose}](images/{name})\n"
    (DOCS / "gallery.md").write_text(text, encoding="utf-8")


def load(
    reference: str,
) -> list[
    pp.PositionTable | pp.schemes.RelativeBias | pp.schemes.Rotary | pp.schemes.LinearBias
]:
    """Load a table, or the encodings of a formula without one."""
    if reference.startswith(("rotary", "alibi")):
        return list(pp.load_schemes(reference))
    return [pp.load(reference)]


if __name__ == "__main__":
    main()
