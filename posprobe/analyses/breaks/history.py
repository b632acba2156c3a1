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
        (step, seam_rows)
        for step, seam_rows in zip(steps, seams, strict=True)
        if seam_rows is not None
    ]
    observed_steps = [step for step, _ in observed]
    seam_rows: list[SeamHistory | AnswerHistory] = [
        history
        for seam in _follow_seams(observed)
        if len(seam) > 1 or seam[-1][0] == observed_steps[-1]
        if (history := _seam_history(seam, observed_steps))
    ]
    for question, question_answers in answers.items():
        seam_rows += _answer_histories(question, steps, question_answers)
    return tuple(sorted(seam_rows, key=lambda history: history.step))


def _follow_seams(observed: Sequence[tuple[int, Sequence[int]]]) -> list[list[tuple[int, int]]]:
    """Return each seam as the steps at which it is there, each with the position after it."""
    seams: list[list[tuple[int, int]]] = []
    for step, rows in observed:
        unmatched_rows = set(rows)
        candidates = sorted(
            (abs(row - seam[-1][1]), k, row)
            for k, seam in enumerate(seams)
            for row in unmatched_rows
        )
        for shift, k, row in candidates:
            if shift <= MAX_SEAM_SHIFT_ROWS and seams[k][-1][0] != step and row in unmatched_rows:
                seams[k].append((step, row))
                unmatched_rows.discard(row)
        seams += [[(step, row)] for row in sorted(unmatched_rows)]
    return seams


def _seam_history(
    seam: Sequence[tuple[int, int]], observed_steps: Sequence[int]
) -> SeamHistory | None:
    """Tell what becomes of one seam; None where it is the same at all steps."""
    step_indices = {step: k for k, step in enumerate(observed_steps)}
    gap_indices = [
        k
        for k in range(1, len(seam))
        if step_indices[seam[k][0]] - step_indices[seam[k - 1][0]] > 1
    ]
    stretch = seam[gap_indices[-1] :] if gap_indices else seam
    (first_step, row), (last_step, _) = stretch[0], stretch[-1]
    appears = None if first_step == observed_steps[0] else first_step
    moves = [(step, new - 1) for (_, old), (step, new) in pairwise(stretch) if new != old]
    last_move = moves[-1] if moves else None
    gone = None if last_step == observed_steps[-1] else observed_steps[step_indices[last_step] + 1]
    change_steps = [
        step for step in (appears, last_move and last_move[0], gone) if step is not None
    ]
    if not change_steps:
        return None
    return SeamHistory(
        row - 1, appears, len(moves), last_move, gone, len(gap_indices), change_steps[-1],
        change_steps[-1] == observed_steps[-1],
    )  # fmt: skip


def _answer_histories(
    question: str, steps: Sequence[int], answers: Sequence[str | None]
) -> Iterator[AnswerHistory]:
    periods: list[tuple[str, int, int]] = []
    for step, answer in zip(steps, answers, strict=True):
        if answer is not None and periods and periods[-1][0] == answer:
            periods[-1] = (answer, periods[-1][1], step)
        elif answer is not None:
            periods.append((answer, step, step))
    if len(periods) > 1:
        (before, _, change_step), (after, since, _) = periods[-2:]
        is_last = since == steps[-1]
        yield AnswerHistory(question, before, change_step, after, since, is_last, len(periods) - 2)
