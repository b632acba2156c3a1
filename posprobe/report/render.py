"""Page of a saved bundle: the choice of its builder, and its HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from posprobe.measurements import TABLE_MEASUREMENTS
from posprobe.page import Page
from posprobe.report import overview
from posprobe.report.comparison_overview import (
    COMPARISON_DRAWING_NAMES,
    FIGURE_NAMES,
    draw_comparison_overview,
)
from posprobe.report.html import render_html
from posprobe.report.pages.check import check_page
from posprobe.report.pages.comparisons import comparison_page, kernel_page
from posprobe.report.pages.model import forward_page
from posprobe.report.pages.resizing import rules_page, ways_page
from posprobe.report.pages.schemes import scheme_page
from posprobe.report.pages.table import table_page
from posprobe.report.run_overview import RUN_DRAWING_NAMES, draw_run_overview
from posprobe.report.svg import embed_svg
from posprobe.text import Block, escape_invisible

#: Names of the drawings that posprobe makes without matplotlib, of all pages but those of a table.
OWN_DRAWING_NAMES = (*RUN_DRAWING_NAMES, *COMPARISON_DRAWING_NAMES)
#: Function that builds a page, by a block that only documents of its kind have.
PAGE_BUILDERS: Mapping[str, Callable[[Block], Page]] = {
    "tables": comparison_page,
    "schemes": scheme_page,
    "records": kernel_page,
    "ways": ways_page,
    "rules": rules_page,
    "contexts": forward_page,
    "causes": check_page,
}


def is_single_table(document: Block) -> bool:
    """Return whether a document is about one table, whose page is drawn from its arrays."""
    return "table" in document and not PAGE_BUILDERS.keys() & document.keys()


def draw_first_screen(document: Block, arrays: overview.Arrays) -> dict[str, str]:
    """Draw what posprobe draws without matplotlib for a document: an ``svg`` by name.

    Parameters
    ----------
    document
        Content of ``analysis.json``.
    arrays
        Content of ``arrays.npz``.
    """
    if is_single_table(document):
        return overview.draw_overview(document, arrays)
    if "tables" in document:
        return draw_comparison_overview(document, arrays)
    return draw_run_overview(document, arrays)


def build_page(document: Block) -> Page:
    """Build the page of any document.

    Raises
    ------
    LookupError, TypeError, AttributeError
        If the document lacks a block that the page shows.
    """
    builders = (build for block, build in PAGE_BUILDERS.items() if block in document)
    return next(builders, table_page)(document)


def list_figure_names(document: Block) -> set[str]:
    """Return the names of all figures that the bundle of a document may have."""
    if is_single_table(document):
        names = {
            drawing.name
            for measurement in TABLE_MEASUREMENTS.values()
            for drawing in measurement.drawings
        }
        drawing_names = (*overview.DRAWING_NAMES, overview.CLOCK_DRAWING_NAME)
        return {"table", *names, *(f"overview-{name}" for name in drawing_names)}
    names = {picture.name for picture in build_page(document).all_pictures}
    return names | {f"overview-{name}" for name in OWN_DRAWING_NAMES}


def render(document: Block, drawings: Mapping[str, str]) -> str:
    """Render a bundle's page.

    Parameters
    ----------
    document
        Content of ``analysis.json``.
    drawings
        SVG texts of its figures by name; for a table those of `draw_overview`.

    Returns
    -------
    str
        HTML that refers only to files in its own folder.

    Raises
    ------
    LookupError, TypeError, AttributeError
        If the document lacks a block that the page shows.
    """
    page, version = build_page(document), document["environment"]["posprobe"]
    if is_single_table(document):
        svg_by_name = dict(drawings)
        if "budget" in svg_by_name:
            svg_by_name["budget"] += overview.budget_legend(document)
        return render_html(page, version, svg_by_name)
    # Drawings that posprobe makes without matplotlib are part of the page and follow its theme.
    own_drawings = {
        name: drawings[name] for name in OWN_DRAWING_NAMES if name in drawings
    }
    replaced_figures = {FIGURE_NAMES.get(name) for name in own_drawings}
    embedded_pictures = {
        picture.name: embed_svg(drawings[picture.name], escape_invisible(picture.alt))
        for picture in page.all_pictures
        if picture.name in drawings
        and picture.alt
        and picture.name not in replaced_figures
    }
    if "budget" in own_drawings:
        own_drawings["budget"] += overview.budget_legend(document)
    return render_html(page, version, embedded_pictures | own_drawings)
