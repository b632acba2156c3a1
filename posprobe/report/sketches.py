"""The small drawing beside each answer: its evidence, from the numbers of a bundle alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.report import sketch_components, sketch_rows
from posprobe.report.sketch_rows import LARGEST, Seen
from posprobe.text import Block

#: How each question is drawn.
DRAWN: Mapping[str, Callable[[Seen], str]] = {
    "closed_form": sketch_rows.closed_form,
    "special_rows": sketch_rows.special_rows,
    "seams": sketch_rows.seams,
    "order": sketch_rows.order,
    "rows_and_columns": sketch_components.rows_and_columns,
    "axis_rotations": sketch_components.axis_rotations,
    "smooth": sketch_rows.smooth,
    "stationary": sketch_rows.stationary,
    "low_dimensional": sketch_components.low_dimensional,
    "rotations": sketch_components.rotations,
    "winding": sketch_components.winding,
    "ladder": sketch_components.ladder,
}
#: Drawn along the table: patches of a grid that follow each other there need not be neighbours.
ALONG = ("special_rows", "smooth", "stationary")


def sketches(document: Block, arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """Draw what answers rest on.

    Parameters
    ----------
    document
        The content of ``analysis.json``, of a table.
    arrays
        The content of ``arrays.npz``; without them, what the document alone can show.

    Returns
    -------
    dict
        SVG elements by question; a question whose answer no picture helps has none.

    Raises
    ------
    LookupError, TypeError, ValueError
        If document and arrays are not of one table.
    """
    told = document.get("verdict")
    if not told:
        return {}
    answers = {answer["question"]: answer for answer in told["answers"]}
    start = document["table"]["rows"][0]
    first, stop = told["rows"]
    rows = None
    if "values" in arrays:
        values = arrays["values"]
        if values.size <= LARGEST and stop - first > 3:
            kept = values[first - start : stop - start]
            kept = (kept / (np.abs(kept).max() or 1.0)).astype(np.float32)
            rows = kept - kept.mean(axis=0)
    seen = Seen(document, answers, rows, first, arrays)
    left_out = ALONG if document["table"]["layout"]["type"] == "grid" else ()
    made = {}
    for name, draw in DRAWN.items():
        if name in answers and name not in left_out and (found := draw(seen)):
            made[name] = found
    return made
