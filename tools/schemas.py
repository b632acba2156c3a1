"""Write the JSON Schemas of all documents from their types.

Run with ``uv run python tools/schemas.py``; a test holds the files equal to what this makes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from posprobe import documents
from posprobe.analyses.attention_by_offset import AttentionBlock
from posprobe.analyses.effective import EffectiveBlock
from posprobe.analyses.experiments import BlankBlock, PermutationBlock, PhaseShiftBlock
from posprobe.analyses.grid import GridBlock
from posprobe.analyses.head_logits import HeadsByLayerBlock
from posprobe.analyses.mean_decomposition import StatesBlock
from posprobe.analyses.norms import NormsBlock
from posprobe.analyses.pca import PCABlock
from posprobe.analyses.probes import ProbesBlock
from posprobe.analyses.scale import ScaleBlock
from posprobe.analyses.seams import SeamsBlock
from posprobe.analyses.shift import ShiftBlock
from posprobe.analyses.similarity import SimilarityBlock
from posprobe.analyses.sinusoid import SinusoidBlock
from posprobe.analyses.spectrum import SpectrumBlock
from posprobe.analyses.subspaces import SubspacesBlock
from posprobe.analyses.timefreq import DCTBlock, SpectrogramBlock
from posprobe.schema import json_schema

FOLDER = Path(__file__).parents[1] / "posprobe" / "report" / "schema"

#: Blocks of a table's measurements, and of those of a model.
TABLE: Mapping[str, Any] = {
    "norms": NormsBlock,
    "similarity": SimilarityBlock,
    "pca": PCABlock,
    "spectrum": SpectrumBlock,
    "spectrogram": SpectrogramBlock,
    "dct": DCTBlock,
    "shift": ShiftBlock,
    "seams": SeamsBlock,
    "sinusoid": SinusoidBlock,
    "grid": GridBlock,
    "scale": ScaleBlock,
    "probes": ProbesBlock,
}
MODEL: Mapping[str, Any] = {
    "states": StatesBlock,
    "heads": HeadsByLayerBlock,
    "effective": EffectiveBlock,
    "subspaces": SubspacesBlock,
    "attention": AttentionBlock,
    "words": AttentionBlock,
    "permutation": PermutationBlock,
    "shift": PhaseShiftBlock,
    "blank": BlankBlock,
}


def schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each file with its content."""
    made = {
        "analysis": json_schema(
            documents.AnalysisDocument | documents.SchemesDocument,
            blocks=TABLE,
            into=documents.AnalysisDocument,
        ),
        "comparison": json_schema(
            documents.ComparisonDocument, blocks=TABLE, into=documents.ComparedTable
        ),
        "kernels": json_schema(documents.KernelsDocument),
        "forward": json_schema(
            documents.ForwardDocument,
            blocks={name: block | None for name, block in MODEL.items()},
            required=True,
        ),
    }
    for name, schema in made.items():
        titles = {"$id": f"urn:posprobe:{name}:1", "title": f"posprobe.{name}/1"}
        yield f"{name}-1.json", {"$schema": schema.pop("$schema"), **titles, **schema}


def text(schema: Mapping[str, Any]) -> str:
    """Return a schema as its file has it."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all files."""
    for name, schema in schemas():
        (FOLDER / name).write_text(text(schema), encoding="utf-8")


if __name__ == "__main__":
    main()
