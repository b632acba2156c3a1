"""A saved bundle becomes one page: which page a document has, and what the page carries."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from posprobe.figures.grid import MAX_TILES
from posprobe.number_format import Block
from posprobe.page import Page
from posprobe.report.embed import cosines, json_text
from posprobe.report.html import html

#: Bytes that a page may have, the same of a table of more than so many positions, whose pairs are
#: looked up in cells anyway, and what all but drawings and data take at most.
LIMIT, LARGE_LIMIT, LARGE, TEXT = 2_000_000, 1_500_000, 2048, 150_000


def page_of(document: Block) -> Page:
    """Lay out the page of any document. What other documents need is not imported.

    Raises
    ------
    LookupError, TypeError, AttributeError
        If the document lacks a block that the page shows.
    """
    if "tables" in document:
        from posprobe.report.comparison_page import comparison_page

        return comparison_page(document)
    if "schemes" in document:
        from posprobe.report.scheme_page import scheme_page

        return scheme_page(document)
    if "records" in document:
        from posprobe.report.kernel_page import kernel_page

        return kernel_page(document)
    if "ways" in document:
        from posprobe.report.resizing_page import ways_page

        return ways_page(document)
    if "rules" in document:
        from posprobe.report.resizing_page import rules_page

        return rules_page(document)
    if "contexts" in document:
        from posprobe.report.forward_page import forward_page

        return forward_page(document)
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
        The content of ``analysis.json``; the page carries it.
    drawings
        SVG text of its figures by name.
    arrays
        The content of ``arrays.npz``, of whose cosines the page carries a rounded copy; without
        them none can be read by pointing.

    Returns
    -------
    str
        HTML that refers to nothing outside itself but the files beside it.

    Raises
    ------
    LookupError, TypeError, AttributeError
        If the document lacks a block that the page shows.
    """
    size = len(json_text(document).encode(errors="replace"))
    packed = None
    if "table" in document:
        limit = LARGE_LIMIT if document["table"]["positions"] > LARGE else LIMIT
        packed = cosines(arrays, limit - TEXT - sum(map(len, drawings.values())) - size)
    pieces = html(
        page_of(document),
        document,
        document["environment"]["posprobe"],
        drawings,
        cosines=packed | {"tiles": MAX_TILES} if packed else None,
    )
    return "".join(pieces)
