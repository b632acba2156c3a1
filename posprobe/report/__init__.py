"""An analysis becomes a bundle: JSON, arrays, figures and a page."""

from posprobe.report.analysis import Analysis, analyze, describe
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
from posprobe.report.export import write_table
from posprobe.report.forward import ForwardAnalysis
from posprobe.report.kernels import compare_kernels
from posprobe.report.paper import PaperFigure, paper_figure
from posprobe.report.schemes import SchemeAnalysis, analyze_schemes
from posprobe.report.stored import read_bundle

__all__ = [
    "Analysis",
    "Comparison",
    "ForwardAnalysis",
    "PaperFigure",
    "SchemeAnalysis",
    "analyze",
    "analyze_schemes",
    "bundle_name",
    "check_place",
    "compare",
    "compare_kernels",
    "default_place",
    "describe",
    "forward_name",
    "paper_figure",
    "read_bundle",
    "render_bundle",
    "sources_of",
    "to_json",
    "write_bundle",
    "write_table",
]
