"""Why a row is special, what changes at a seam, what ends a stretch, and which rows are copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from posprobe.analyses.copies import Copies
from posprobe.analyses.facts import Cause


def _pace(found: Cause) -> str:
    (factor,) = found.numbers
    times = f"{factor:.2f}" if factor > 0.01 else f"{factor:.1e}"
    return f"steps from row to row become {times} times as long, at once and for good"


#: Clauses by kind of cause: format strings for its numbers, or functions of it.
CAUSES: Mapping[str, str | Callable[[Cause], str]] = {
    "together": "{causes}",
    # of a special row
    "zero": "zero: it has no direction",
    "norm": "norm {0:.3g}, usually {1:.3g}",
    "direction": "mean cosine {0:z.2f} with all other rows, usually {1:z.2f}",
    "far_from_next": "far from the next row: {0:.1f} times the usual step",
    "far_from_previous": "far from the row before: {0:.1f} times the usual step",
    "far_from_both": "far from both neighbours: {0:.1f} and {1:.1f} times the usual step",
    "among_equal": "the {of} around it are equal",
    "patch_far": "{0:.1f} times as far from its neighbours as patches around it from theirs",
    # of a seam
    "step": "{0:.1f} times the usual step, adjacent centred cosine {1:z.2f}",
    "step_among_equal": "rows around it are equal, adjacent centred cosine {0:z.2f}",
    "across": "centred cosine {0:z.2f} across {1:.0f} rows, usually {2:z.2f}",
    "level": "{of} change from {0:.3g} to {1:.3g}",
    "pace": _pace,
    "untrained": "rows from there on look untrained: independent, and alike in size",
    "long_steps": "{0:.0f} steps in a row are {1:.1f} times as long as usual",
    "means": "means of {0:.0f} rows are {1:.3g} apart, usually {2:.3g}",
    # of either, beside equal rows
    "equal_rows": "positions {0:.0f} to {1:.0f} hold one and the same row",
    "rows_of_zeros": "positions {0:.0f} to {1:.0f} hold only zeros",
    # of the ends of a stretch
    "seam": "a seam between positions {0:.0f} and {1:.0f}: {causes}",
    "special": "position {0:.0f} is special: {causes}",
    # of taking all rows
    "undefined": "{of}",
    "all_special": "every row is special",
    "no_run": "no {0:.0f} rows in succession are without a seam and a special row",
    "no_break": "no seam and no special row was found",
    "all_rows": "all rows were asked for",
}


def copied(found: Copies) -> str:
    """Say in a clause which rows are copies of others."""
    match found.kind:
        case "blocks":
            return f"each row stands {found.times} times in succession"
        case "period":
            return f"it repeats itself every {found.period} positions"
        case "mirror":
            return "its second half is the first in reverse order"
        case "near":
            return (
                f"rows {found.period} positions apart are alike again (mean cosine "
                f"{found.cosine:z.2f}, {found.between:z.2f} between)"
            )
        case "any":
            return f"{found.count} of its {found.rows} rows are copies of earlier ones"
