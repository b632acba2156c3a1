"""Show what a trained transformer has learned about position.

`load` reads a position table out of a checkpoint, the analyses measure it, `analyze` does all of
them and `Analysis.save` writes the bundle. Everything is imported on first use. What a notebook
seldom needs stands in the submodules, such as `posprobe.encodings`.
"""

from importlib import import_module as _import_module
from typing import Any as _Any
from warnings import warn as _warn

import lazy_loader

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
# Importable, but no part of the documented names of the top level.
_SUBMODULES = (
    "analyses",
    "encodings",
    "families",
    "forward",
    "layouts",
    "report",
    "schemes",
    "sources",
    "sweeps",
)
for _name in ("__version__", *_SUBMODULES):
    __all__.remove(_name)

#: Names that were at the top level, by the submodule that they belong to; version 0.3 drops them.
_MOVED = {
    "Analysis": "report",
    "Comparison": "report",
    "ForwardAnalysis": "report",
    "Grid": "layouts",
    "Likeness": "sweeps",
    "LinearBias": "schemes",
    "Match": "sweeps",
    "Nearest": "sweeps",
    "PaperFigure": "report",
    "RelativeBias": "schemes",
    "Rotary": "schemes",
    "SchemeAnalysis": "report",
    "Sequence": "layouts",
    "Series": "report",
    "Source": "sources",
    "Sweep": "sweeps",
    "against_sinusoid": "analyses",
    "alibi_slopes": "encodings",
    "analyze_schemes": "report",
    "binary": "encodings",
    "blank_images": "forward",
    "continuous_binary": "encodings",
    "counting": "encodings",
    "effective_table": "families",
    "explanations": "forward",
    "gram_dct": "analyses",
    "head_logits": "analyses",
    "heads": "analyses",
    "load_heads": "families",
    "measure_heads": "forward",
    "normalised_counting": "encodings",
    "permutation_effect": "forward",
    "phase_shift": "forward",
    "probes": "analyses",
    "random_tokens": "forward",
    "rotary_frequencies": "encodings",
    "rotation": "analyses",
    "scale": "analyses",
    "sine_ladder": "encodings",
    "smoothness": "analyses",
    "subspace_overlap": "analyses",
    "t5_buckets": "encodings",
    "translation_matrix": "encodings",
}


def __getattr__(name: str) -> _Any:
    if name not in _MOVED:
        return _public(name)
    place = f"{__name__}.{_MOVED[name]}"
    _warn(
        f"posprobe.{name} is now {place}.{name}; the old name leaves with version 0.3.",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(_import_module(place), name)
