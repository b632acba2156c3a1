"""Which rows are copies of others, and what the causes in ``answers.toml`` must choose."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe.analyses.copies import Copies
from posprobe.analyses.facts import Cause
from posprobe.report.narrator.words import Template


def _pace(found: Cause) -> str:
    (factor,) = found.numbers
    return f"{factor:.2f}" if factor > 0.01 else f"{factor:.1e}"


CAUSE_PARTS: Mapping[str, Template] = {"pace": _pace}


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
