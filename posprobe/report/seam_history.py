"""Seams over the steps of a training run: when each appears, moves and goes, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from posprobe.text import listed

#: Rows by which a seam may lie elsewhere at the next step and be the same one.
NEAR = 4


def seam_changes(
    steps: Sequence[int], seams: Sequence[Sequence[int] | None]
) -> tuple[tuple[int, str], ...]:
    """Tell for each seam when it appears, moves and goes.

    A seam is followed from step to step: the nearest one within `NEAR` rows is the same. One that
    is found at a single step before the last is left out, as chance finds such seams in noise.

    Parameters
    ----------
    steps
        In order.
    seams
        At each step the first position after each seam; None where none could be looked for.

    Returns
    -------
    tuple
        The step of its last change and a sentence, for each seam that changes, in that order.

    Examples
    --------
    >>> seam_changes((0, 100, 200, 300), ((), (), (128,), (128,)))
    ((200, 'The seam between positions 127 and 128 appears at step 200 and stays.'),)
    """
    looked = [(step, found) for step, found in zip(steps, seams, strict=True) if found is not None]
    if not looked:
        return ()
    ordered = [step for step, _ in looked]
    told = []
    for seam in _followed(looked):
        if len(seam) > 1 or seam[-1][0] == ordered[-1]:
            told += _told(seam, ordered)
    return tuple(sorted(told))


def _followed(looked: Sequence[tuple[int, Sequence[int]]]) -> list[list[tuple[int, int]]]:
    """Return each seam as the steps at which it is there, each with the position after it."""
    seams: list[list[tuple[int, int]]] = []
    for step, found in looked:
        rows = set(found)
        near = sorted(
            (abs(row - seam[-1][1]), k, row) for k, seam in enumerate(seams) for row in rows
        )
        for apart, k, row in near:
            if apart <= NEAR and seams[k][-1][0] != step and row in rows:
                seams[k].append((step, row))
                rows.discard(row)
        seams += [[(step, row)] for row in sorted(rows)]
    return seams


def _told(seam: Sequence[tuple[int, int]], ordered: Sequence[int]) -> list[tuple[int, str]]:
    """Say what becomes of one seam; nothing where it is the same at all steps."""
    place = {step: k for k, step in enumerate(ordered)}
    gaps = [k for k in range(1, len(seam)) if place[seam[k][0]] - place[seam[k - 1][0]] > 1]
    stretch = seam[gaps[-1] :] if gaps else seam
    (since, row), (until, _) = stretch[0], stretch[-1]
    changed, parts = [], []
    if since != ordered[0]:
        changed.append(since)
        last = since == ordered[-1]
        parts.append(f"appears at step {since}{', the last' if last else ''}")
    if moves := [(step, new) for (_, old), (step, new) in pairwise(stretch) if new != old]:
        step, new = moves[-1]
        changed.append(step)
        often = f"{len(moves)} times, the last time " if len(moves) > 1 else ""
        parts.append(f"moves {often}to positions {new - 1} and {new} at step {step}")
    if until != ordered[-1]:
        changed.append(ordered[place[until] + 1])
        parts.append(f"is gone from step {changed[-1]} on")
    elif parts and parts[-1][-4:] != "last":
        parts.append("stays")
    if not parts:
        return []
    said = f"The seam between positions {row - 1} and {row} {listed(parts)}"
    if gaps:
        said += f"; {len(gaps)} earlier appearance{'s' * (len(gaps) > 1)}"
    return [(changed[-1], f"{said}.")]
