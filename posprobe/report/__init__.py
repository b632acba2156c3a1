"""An analysis becomes a bundle: JSON, arrays, figures and a page. Imported on first use."""

from importlib import import_module as _import_module
from typing import Any as _Any
from warnings import warn as _warn

import lazy_loader

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
#: Names that moved to `posprobe.studies`; version 0.3 drops them here.
_MOVED_TO_STUDIES = frozenset(
    {
        "Analysis",
        "Comparison",
        "ForwardAnalysis",
        "PaperFigure",
        "SchemeAnalysis",
        "Series",
        "analyze",
        "analyze_schemes",
        "compare",
        "compare_kernels",
        "measured_heads",
        "paper_figure",
    }
)
#: Names that changed as well, with the new one.
_RENAMED = {"check_request": "check_table_request"}


def __getattr__(name: str) -> _Any:
    if name not in _MOVED_TO_STUDIES | _RENAMED.keys():
        return _public(name)
    new_name = _RENAMED.get(name, name)
    _warn(
        f"posprobe.report.{name} is now posprobe.studies.{new_name}; the old "
        "name leaves with version 0.3.",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(_import_module("posprobe.studies"), new_name)
