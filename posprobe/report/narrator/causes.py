"""Why a row is special, what changes at a seam, what ends a stretch, and which rows are copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from posprobe.analyses.copies import Copies
from posprobe.analyses.facts import Cause


def _pace(found: Cause) -> str:
    (factor,) = found.numbers
    times = f"{factor:.2f}" if factor > 0.01 else f"{factor:.1e}"
    return f"steps become {times} times as long from there on"


#: Clauses by kind of cause: format strings for its numbers, or functions of it.
CAUSES: Mapping[str, str | Callable[[Cause], str]] = {
    "together": "{causes}",
    # of a special row
    "zero": "zero: it has no direction",
    "norm": "norm {0:.3g}, median {1:.3g}",
    "direction": "mean cosine {0:z.2f} with all other rows, median {1:z.2f}",
    "far_from_next": "far from the next row: {0:.1f} times the median step",
    "far_from_previous": "far from the row before: {0:.1f} times the median step",
    "far_from_both": "far from both neighbours: {0:.1f} and {1:.1f} times the median step",
    "among_equal": "the {of} around it are equal",
    "patch_far": "{0:.1f} times as far from its neighbours as patches nearby",
    # of a seam
    "step": "step {0:.1f} times the median, centred cosine of neighbours {1:z.2f}",
    "step_among_equal": "rows around it are equal, centred cosine of neighbours {0:z.2f}",
    "across": "centred cosine {0:z.2f} across {1:.0f} rows, median {2:z.2f}",
    "level": "{of} change from {0:.3g} to {1:.3g}",
    "pace": _pace,
    "untrained": "rows from there on look untrained: independent, with similar norms",
    "long_steps": "{0:.0f} successive steps are {1:.1f} times the median",
    "means": "means of {0:.0f} rows are {1:.3g} apart, median {2:.3g}",
    # of either, beside equal rows
    "equal_rows": "positions {0:.0f} to {1:.0f} are all equal",
    "rows_of_zeros": "positions {0:.0f} to {1:.0f} are zero",
    # of the ends of a stretch
    "seam": "a break between positions {0:.0f} and {1:.0f}: {causes}",
    "special": "position {0:.0f} is an outlier: {causes}",
    # of taking all rows
    "undefined": "{of}",
    "all_special": "every row is an outlier",
    "no_run": "no run of {0:.0f} rows is free of breaks and outliers",
    "no_break": "no breaks or outliers found",
    "all_rows": "all rows were asked for",
}


def copied(found: Copies) -> str:
    """Say in a clause which rows are copies of others."""
    match found.kind:
        case "blocks":
            return f"each row occurs {found.times} times in succession"
        case "period":
            return f"the rows repeat every {found.period} positions"
        case "mirror":
            return "the second half is the first in reverse order"
        case "near":
            return (
                f"rows {found.period} positions apart are similar again (mean cosine "
                f"{found.cosine:z.2f}; {found.between:z.2f} between)"
            )
        case "any":
            return f"{found.count} of {found.rows} rows are copies of earlier ones"
