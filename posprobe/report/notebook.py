"""What analyses and comparisons show of themselves in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from posprobe.nulls import NULLS
from posprobe.report.page import verdict_rows
from posprobe.report.sections import show


def verdict_html(nulls: Mapping[str, Any]) -> str:
    """Return the numbers beside the sinusoid and the bands of the null models as a table."""
    rows = []
    for row in verdict_rows(nulls):
        bands = [
            band["median"] + (f" ({band['range']})" if band["range"] else "")
            for band in row["nulls"]
        ]
        shown = bands if nulls["draws"] else []
        rows.append([row["label"], row["value"], row["sinusoid"], *shown])
    names = NULLS if nulls["draws"] else ()
    return table_html(["", "table", "sinusoid", *names], rows)


def comparison_html(document: Mapping[str, Any]) -> str:
    """Return the pairs of a comparison's document as a table."""
    numbers = [
        key for key, value in document["pairs"][0].items() if isinstance(value, float | int | None)
    ]
    rows = [
        [" and ".join(pair.get("tables") or pair["records"]), *(show(pair[key]) for key in numbers)]
        for pair in document["pairs"]
    ]
    return table_html(["", *(key.replace("_", " ") for key in numbers)], rows)


def table_html(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; every cell is escaped."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
