"""Show what a trained transformer has learned about position.

`load` reads a position table out of a checkpoint, the analyses measure it, `analyze` does all of
them and `Analysis.save` writes the bundle. Everything is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posprobe.analyses import (
        against_sinusoid,
        gram_dct,
        grid,
        norms,
        pca,
        probes,
        seams,
        shift,
        similarity,
        spectrogram,
        spectrum,
    )
    from posprobe.encodings import sincos2d, sinusoidal
    from posprobe.errors import PosprobeError
    from posprobe.families import load
    from posprobe.report import Analysis, Comparison, analyze, compare
    from posprobe.table import Grid, PositionTable, Sequence

_HOMES = {
    "Analysis": "report",
    "Comparison": "report",
    "Grid": "table",
    "PositionTable": "table",
    "PosprobeError": "errors",
    "Sequence": "table",
    "against_sinusoid": "analyses",
    "analyze": "report",
    "compare": "report",
    "gram_dct": "analyses",
    "grid": "analyses",
    "load": "families",
    "norms": "analyses",
    "pca": "analyses",
    "probes": "analyses",
    "seams": "analyses",
    "shift": "analyses",
    "similarity": "analyses",
    "sincos2d": "encodings",
    "sinusoidal": "encodings",
    "spectrogram": "analyses",
    "spectrum": "analyses",
}

__all__ = [
    "Analysis",
    "Comparison",
    "Grid",
    "PositionTable",
    "PosprobeError",
    "Sequence",
    "against_sinusoid",
    "analyze",
    "compare",
    "gram_dct",
    "grid",
    "load",
    "norms",
    "pca",
    "probes",
    "seams",
    "shift",
    "similarity",
    "sincos2d",
    "sinusoidal",
    "spectrogram",
    "spectrum",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("posprobe")
    if name not in _HOMES:
        raise AttributeError(f"module 'posprobe' has no attribute {name!r}")
    return getattr(import_module(f"posprobe.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
