"""An analysis becomes a bundle: JSON, arrays, figures and a page. Imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posprobe.report.analysis import Analysis, analyze, check_request, describe
    from posprobe.report.bundle import (
        bundle_name,
        check_place,
        default_place,
        forward_name,
        render_bundle,
        sources_of,
        to_json,
        write_bundle,
    )
    from posprobe.report.comparison import Comparison, compare
    from posprobe.report.export import table_path, write_table
    from posprobe.report.forward import ForwardAnalysis
    from posprobe.report.kernels import compare_kernels
    from posprobe.report.paper import PaperFigure, paper_figure
    from posprobe.report.schemes import SchemeAnalysis, analyze_schemes
    from posprobe.report.series import Series
    from posprobe.report.stored import read_bundle

#: Modules of the public names: one kind of bundle does not import what another needs.
_HOMES = {
    "Analysis": "analysis",
    "Comparison": "comparison",
    "ForwardAnalysis": "forward",
    "PaperFigure": "paper",
    "SchemeAnalysis": "schemes",
    "Series": "series",
    "analyze": "analysis",
    "analyze_schemes": "schemes",
    "bundle_name": "bundle",
    "check_place": "bundle",
    "check_request": "analysis",
    "compare": "comparison",
    "compare_kernels": "kernels",
    "default_place": "bundle",
    "describe": "analysis",
    "forward_name": "bundle",
    "paper_figure": "paper",
    "read_bundle": "stored",
    "render_bundle": "bundle",
    "sources_of": "bundle",
    "table_path": "export",
    "to_json": "bundle",
    "write_bundle": "bundle",
    "write_table": "export",
}

__all__ = [
    "Analysis",
    "Comparison",
    "ForwardAnalysis",
    "PaperFigure",
    "SchemeAnalysis",
    "Series",
    "analyze",
    "analyze_schemes",
    "bundle_name",
    "check_place",
    "check_request",
    "compare",
    "compare_kernels",
    "default_place",
    "describe",
    "forward_name",
    "paper_figure",
    "read_bundle",
    "render_bundle",
    "sources_of",
    "table_path",
    "to_json",
    "write_bundle",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
