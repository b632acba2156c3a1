"""A saved bundle becomes one page: which page a document has."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from posprobe.page import Page
from posprobe.report import overview
from posprobe.report.html import html
from posprobe.report.svg import inline
from posprobe.text import Block, plain

#: By a block that a document of something else than one table has, what lays out its page.
OTHERS = {
    "tables": "comparison.comparison_page",
    "schemes": "schemes.scheme_page",
    "records": "comparison.kernel_page",
    "ways": "resizing_page.ways_page",
    "rules": "resizing_page.rules_page",
    "contexts": "forward.forward_page",
    "causes": "check_page.check_page",
}


def of_table(document: Block) -> bool:
    """Tell whether a document is of one table, whose page is drawn from its arrays."""
    return "table" in document and not OTHERS.keys() & document.keys()


def page_of(document: Block) -> Page:
    """Lay out the page of any document. What other documents need is not imported.

    Raises
    ------
    LookupError, TypeError, AttributeError
        If the document lacks a block that the page shows.
    """
    place = next(
        (place for key, place in OTHERS.items() if key in document), "table_page.table_page"
    )
    module, _, build = place.partition(".")
    page: Page = getattr(import_module(f"posprobe.report.{module}"), build)(document)
    return page


def render(document: Block, drawings: Mapping[str, str]) -> str:
    """Render a bundle's page.

    Parameters
    ----------
    document
        The content of ``analysis.json``.
    drawings
        SVG text of its figures by name; of a table those of `posprobe.report.overview.drawings`.

    Returns
    -------
    str
        HTML that refers to nothing outside itself but the files beside it.

    Raises
    ------
    LookupError, TypeError, AttributeError
        If the document lacks a block that the page shows.
    """
    page, version = page_of(document), document["environment"]["posprobe"]
    if of_table(document):
        drawn = dict(drawings)
        if "budget" in drawn:
            drawn["budget"] += overview.legend(document)
        return html(page, version, drawn)
    shown = {
        each.name: inline(drawings[each.name], each.name, plain(each.alt))
        for each in page.drawn
        if each.name in drawings
    }
    return html(page, version, shown)
