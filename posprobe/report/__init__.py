"""An analysis becomes a bundle: JSON, arrays, figures and a page."""

from posprobe.report.analysis import NAMES, Analysis, analyze, describe
from posprobe.report.bundle import (
    bundle_name,
    read_bundle,
    render_bundle,
    to_json,
    write_bundle,
)
from posprobe.report.export import write_table

__all__ = [
    "NAMES",
    "Analysis",
    "analyze",
    "bundle_name",
    "describe",
    "read_bundle",
    "render_bundle",
    "to_json",
    "write_bundle",
    "write_table",
]
