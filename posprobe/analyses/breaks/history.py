"""What changes over the steps of a training run: seams, which are followed, and answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

#: Positions by which a seam may lie elsewhere at the next step and be the same one: half of what
#: two seams are apart at least (`outliers.MIN_SIDE`).
MAX_SEAM_SHIFT_ROWS = 4


@dataclass(frozen=True)
class SeamHistory:
    """When a seam appears, moves and goes.

    Parameters
    ----------
    left
        Position before it, where it is first.
    appears
        The first step of its latest stretch of steps; None where it is there from the beginning.
    moves
        Number of moves in that stretch of steps.
    moved
        Step of the last move, and the position before it from then on; None where it stays.
    gone
        The first step without it; None where it is there to the end.
    earlier
        Stretches of steps before, at whose ends it was gone.
    step
        Training step of the latest of these changes.
    last
        Whether that is the last step.
    """

    left: int
    appears: int | None
    moves: int
    moved: tuple[int, int] | None
    gone: int | None
    earlier: int
    step: int
    last: bool


@dataclass(frozen=True)
class AnswerHistory:
    """When an answer changes.

    Parameters
    ----------
    question
        Its name.
    before, until
        The answer before the last change, and the last step that has it.
    after, step
        The answer since, and the first step that has it.
    last
        Whether that is the last step.
    earlier
        Changes before.
    """

    question: str
    before: str
    until: int
    after: str
    step: int
    last: bool
    earlier: int


def histories(
    steps: Sequence[int],
    seams: Sequence[Sequence[int] | None],
    answers: Mapping[str, Sequence[str | None]],
) -> tuple[SeamHistory | AnswerHistory, ...]:
    """Tell what changes, in the order of the last change.

    A seam is followed from step to step: the nearest one within `MAX_SEAM_SHIFT_ROWS` positions is
    the same. One that is found at a single step before the last is left out, as chance finds such
    seams in noise.

    Parameters
    ----------
    steps
        Training steps in order.
    seams
        At each step the first position after each seam; None where none could be looked for.
    answers
        Answers at each step by question; None where it was not asked.

    Examples
    --------
    >>> (seam,) = histories((0, 100, 200, 300), ((), (), (128,), (128,)), {})
    >>> seam.left, seam.appears, seam.gone
    (127, 200, None)
    """
    observed = [
        (step, step_seams)
        for step, step_seams in zip(steps, seams, strict=True)
        if step_seams is not None
    ]
    ordered = [step for step, _ in observed]
    step_seams: list[SeamHistory | AnswerHistory] = [
        history
        for seam in _followed(observed)
        if len(seam) > 1 or seam[-1][0] == ordered[-1]
        if (history := _of_seam(seam, ordered))
    ]
    for question, series_answers in answers.items():
        step_seams += _of_answers(question, steps, series_answers)
    return tuple(sorted(step_seams, key=lambda history: history.step))


def _followed(observed: Sequence[tuple[int, Sequence[int]]]) -> list[list[tuple[int, int]]]:
    """Return each seam as the steps at which it is there, each with the position after it."""
    seams: list[list[tuple[int, int]]] = []
    for step, seam_rows in observed:
        rows = set(seam_rows)
        candidates = sorted(
            (abs(row - seam[-1][1]), k, row) for k, seam in enumerate(seams) for row in rows
        )
        for shift, k, row in candidates:
            if shift <= MAX_SEAM_SHIFT_ROWS and seams[k][-1][0] != step and row in rows:
                seams[k].append((step, row))
                rows.discard(row)
        seams += [[(step, row)] for row in sorted(rows)]
    return seams


def _of_seam(seam: Sequence[tuple[int, int]], ordered: Sequence[int]) -> SeamHistory | None:
    """Tell what becomes of one seam; None where it is the same at all steps."""
    place = {step: k for k, step in enumerate(ordered)}
    gaps = [k for k in range(1, len(seam)) if place[seam[k][0]] - place[seam[k - 1][0]] > 1]
    stretch = seam[gaps[-1] :] if gaps else seam
    (since, row), (last_step, _) = stretch[0], stretch[-1]
    appears = None if since == ordered[0] else since
    moves = [(step, new - 1) for (_, old), (step, new) in pairwise(stretch) if new != old]
    last_move = moves[-1] if moves else None
    gone = None if last_step == ordered[-1] else ordered[place[last_step] + 1]
    change_steps = [
        step for step in (appears, last_move and last_move[0], gone) if step is not None
    ]
    if not change_steps:
        return None
    return SeamHistory(
        row - 1, appears, len(moves), last_move, gone, len(gaps), change_steps[-1],
        change_steps[-1] == ordered[-1],
    )  # fmt: skip


def _of_answers(
    question: str, steps: Sequence[int], answers: Sequence[str | None]
) -> Iterator[AnswerHistory]:
    parts: list[tuple[str, int, int]] = []
    for step, answer in zip(steps, answers, strict=True):
        if answer is not None and parts and parts[-1][0] == answer:
            parts[-1] = (answer, parts[-1][1], step)
        elif answer is not None:
            parts.append((answer, step, step))
    if len(parts) > 1:
        (before, _, change_step), (after, since, _) = parts[-2:]
        is_last = since == steps[-1]
        yield AnswerHistory(question, before, change_step, after, since, is_last, len(parts) - 2)
