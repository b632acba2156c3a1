"""A saved bundle becomes one page: which page a document has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from posprobe.page import Page
from posprobe.report import overview
from posprobe.report.html import html
from posprobe.report.svg import inline
from posprobe.text import Block, plain

#: Blocks that a document of something else than one table has.
OTHERS = {"tables", "schemes", "records", "ways", "rules", "contexts"}


def of_table(document: Block) -> bool:
    """Tell whether a document is of one table, whose page is drawn from its arrays."""
    return "table" in document and not OTHERS & document.keys()


def page_of(document: Block) -> Page:
    """Lay out the page of any document. What other documents need is not imported.

    Raises
    ------
    LookupError, TypeError, AttributeError
        If the document lacks a block that the page shows.
    """
    if "tables" in document:
        from posprobe.report.comparison import comparison_page

        return comparison_page(document)
    if "schemes" in document:
        from posprobe.report.schemes import scheme_page

        return scheme_page(document)
    if "records" in document:
        from posprobe.report.kernels import kernel_page

        return kernel_page(document)
    if "ways" in document:
        from posprobe.report.resizing_page import ways_page

        return ways_page(document)
    if "rules" in document:
        from posprobe.report.resizing_page import rules_page

        return rules_page(document)
    if "contexts" in document:
        from posprobe.report.forward import forward_page

        return forward_page(document)
    if "causes" in document:
        from posprobe.report.check_page import check_page

        return check_page(document)
    from posprobe.report.table_page import table_page

    return table_page(document)


def render(
    document: Block,
    drawings: Mapping[str, str],
    arrays: Mapping[str, NDArray[Any]] = MappingProxyType({}),
) -> str:
    """Render a bundle's page.

    Parameters
    ----------
    document
        The content of ``analysis.json``.
    drawings
        SVG text of its figures by name.
    arrays
        Of a table, the content of ``arrays.npz``, of which its page is drawn.

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
        drawn = overview.drawings(document, arrays)
        if "budget" in drawn:
            drawn["budget"] += overview.legend(document)
        return html(page, version, drawn)
    shown = {
        each.name: inline(drawings[each.name], each.name, plain(each.alt))
        for each in page.drawn
        if each.name in drawings
    }
    return html(page, version, shown)
