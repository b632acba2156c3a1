"""What is said of many tables: how training changes them, and how alike they are."""

from __future__ import annotations

from posprobe.analyses.history import AnswerHistory, SeamHistory
from posprobe.report.narrator import ASKS
from posprobe.report.narrator.words import listed, percent, some


def seam(f: SeamHistory) -> str:
    """Say when a seam appears, moves and goes."""
    parts = [] if f.appears is None else [f"appears at step {f.appears}"]
    if f.moved is not None:
        step, left = f.moved
        often = f"{f.moves} times, the last time " if f.moves > 1 else ""
        parts.append(f"moves {often}to positions {left} and {left + 1} at step {step}")
    if f.gone is not None:
        parts.append(f"is gone {_since(f.gone, f.last)}")
    elif not f.last:
        parts.append("stays")
    notes = ["the last step"] if f.last else []
    notes += [some(f.earlier, "earlier appearance")] if f.earlier else []
    return f"The break between positions {f.left} and {f.left + 1} {listed(parts)}{_noted(notes)}."


def answer(f: AnswerHistory) -> str:
    """Say when the answer to a question changes."""
    notes = ["the last step"] if f.last else []
    notes += [some(f.earlier, "earlier change")] if f.earlier else []
    after = f"{f.after} {_since(f.step, f.last)}"
    return f"{ASKS[f.question]} {f.before.capitalize()} at step {f.until}, {after}{_noted(notes)}."


def similarity_map(share: float | None) -> str:
    """Say what the map of a survey shows.

    Parameters
    ----------
    share
        Of the variance of the small cosine matrices in their first two components; None without a
        map.
    """
    if share is None:
        return "There is no map: it needs three different tables whose similarity was measured."
    return (
        f"PCA of the 24 × 24 similarity matrices ({percent(share)} of the variance). Nearby points "
        "look alike."
    )


def _since(step: int, last: bool) -> str:
    return f"at step {step}" if last else f"from step {step} on"


def _noted(notes: list[str]) -> str:
    return f" ({'; '.join(notes)})" if notes else ""
