"""An analysis becomes a bundle: JSON, arrays, figures and a page."""

from posprobe.report.analysis import NAMES, Analysis, analyze, describe
from posprobe.report.bundle import read_bundle, render_bundle, to_json, write_bundle

__all__ = [
    "NAMES",
    "Analysis",
    "analyze",
    "describe",
    "read_bundle",
    "render_bundle",
    "to_json",
    "write_bundle",
]
