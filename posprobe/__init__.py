"""Show what a trained transformer has learned about position.

`load` reads a position table out of a checkpoint, the analyses measure it, `analyze` runs all of
them and `Analysis.save` writes the bundle. Everything is imported on first use. Names that
notebooks seldom need are in submodules, such as `posprobe.encodings`.
"""

from importlib import import_module as _import_module
from typing import Any as _Any
from warnings import warn as _warn

import lazy_loader

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
#: Former top-level names, by the submodule that has them now; version 0.3 drops the old names.
_NAMES_BY_SUBMODULE = {
    "analyses": (
        "against_sinusoid heads probes rotation scale smoothness subspace_overlap"
    ),
    "encodings": (
        "alibi_slopes binary continuous_binary counting normalised_counting "
        "rotary_frequencies sine_ladder t5_buckets translation_matrix"
    ),
    "forward": ("blank_images explanations permutation_effect phase_shift random_tokens"),
    "layouts": "Grid Sequence",
    "schemes": "LinearBias RelativeBias Rotary",
    "sources": "Source",
    "studies": (
        "Analysis Comparison ForwardAnalysis PaperFigure SchemeAnalysis Series analyze_schemes"
    ),
    "sweeps": "Likeness Match Nearest Sweep",
}
_SUBMODULES_BY_NAME = {
    name: submodule
    for submodule, names in _NAMES_BY_SUBMODULE.items()
    for name in names.split()
}
# Submodules are importable, but are not documented names of the top level.
for _name in ("__version__", "families", "report", *_NAMES_BY_SUBMODULE):
    __all__.remove(_name)


def __getattr__(name: str) -> _Any:
    if name not in _SUBMODULES_BY_NAME:
        return _public(name)
    submodule = f"{__name__}.{_SUBMODULES_BY_NAME[name]}"
    _warn(
        f"posprobe.{name} is now {submodule}.{name}; the old name leaves with version 0.3.",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(_import_module(submodule), name)
