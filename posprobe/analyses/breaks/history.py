"""Follow seams and answers over the steps of a training run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

#: A seam is the same if it moves by at most this many positions to the next step: half of the
#: smallest distance of two seams (`outliers.MIN_SIDE_ROWS`).
MAX_SEAM_SHIFT_ROWS = 4


@dataclass(frozen=True)
class SeamHistory:
    """The training steps at which a seam appears, moves and disappears.

    Parameters
    ----------
    left
        Position before the seam when it first appears.
    appears
        First step of its latest presence; None if it is present from the beginning.
    moves
        Number of moves during that presence.
    moved
        Step of the last move, and the position before the seam since; None if it does not move.
    gone
        First step without the seam; None if it is present to the end.
    earlier
        Number of earlier presences, after which it disappeared.
    step
        Training step of the latest of these changes.
    last
        Whether that step is the last one.
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
    """The training steps at which an answer changes.

    Parameters
    ----------
    question
        Key of the question.
    before, until
        Answer before the last change, and the last step that has it.
    after, step
        Answer since the last change, and the first step that has it.
    last
        Whether that step is the last one.
    earlier
        Number of earlier changes.
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
    """Return the histories of all seams and answers that change, in order of the last change.

    A seam is followed from step to step: the nearest seam within `MAX_SEAM_SHIFT_ROWS` positions is
    the same. A seam that is found at a single step before the last is omitted, because chance finds
    such seams in noise.

    Parameters
    ----------
    steps
        Training steps in order.
    seams
        First position after each seam, at each step; None at steps where seams are undefined.
    answers
        Answers at each step by question; None at steps where it was not asked.

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
    histories: list[SeamHistory | AnswerHistory] = [
        history
        for seam in _follow_seams(observed)
        if len(seam) > 1 or seam[-1][0] == observed_steps[-1]
        if (history := _seam_history(seam, observed_steps))
    ]
    for question, question_answers in answers.items():
        histories += _answer_histories(question, steps, question_answers)
    return tuple(sorted(histories, key=lambda history: history.step))


def _follow_seams(
    observed: Sequence[tuple[int, Sequence[int]]],
) -> list[list[tuple[int, int]]]:
    """Return each seam as the steps at which it is present, each with the position after it."""
    seams: list[list[tuple[int, int]]] = []
    for step, rows in observed:
        unmatched_rows = set(rows)
        candidates = sorted(
            (abs(row - seam[-1][1]), k, row)
            for k, seam in enumerate(seams)
            for row in unmatched_rows
        )
        for shift, k, row in candidates:
            if (
                shift <= MAX_SEAM_SHIFT_ROWS
                and seams[k][-1][0] != step
                and row in unmatched_rows
            ):
                seams[k].append((step, row))
                unmatched_rows.discard(row)
        seams += [[(step, row)] for row in sorted(unmatched_rows)]
    return seams


def _seam_history(
    seam: Sequence[tuple[int, int]], observed_steps: Sequence[int]
) -> SeamHistory | None:
    """Return the history of one seam; None if it is the same at all steps."""
    step_indices = {step: index for index, step in enumerate(observed_steps)}
    seam_indices = [step_indices[step] for step, _ in seam]
    gaps = [k for k in range(1, len(seam)) if seam_indices[k] - seam_indices[k - 1] > 1]
    presence = seam[gaps[-1] :] if gaps else seam
    (first_step, first_row), (last_step, _) = presence[0], presence[-1]
    appears = None if first_step == observed_steps[0] else first_step
    moves = [
        (step, new - 1) for (_, old), (step, new) in pairwise(presence) if new != old
    ]
    last_move = moves[-1] if moves else None
    gone = (
        None
        if last_step == observed_steps[-1]
        else observed_steps[step_indices[last_step] + 1]
    )
    change_steps = [
        step for step in (appears, last_move and last_move[0], gone) if step is not None
    ]
    if not change_steps:
        return None
    return SeamHistory(
        left=first_row - 1,
        appears=appears,
        moves=len(moves),
        moved=last_move,
        gone=gone,
        earlier=len(gaps),
        step=change_steps[-1],
        last=change_steps[-1] == observed_steps[-1],
    )


def _answer_histories(
    question: str, steps: Sequence[int], answers: Sequence[str | None]
) -> Iterator[AnswerHistory]:
    """Yield the history of the answers to a question, if they change."""
    spells: list[tuple[str, int, int]] = []  # answer, first and last step
    for step, answer in zip(steps, answers, strict=True):
        if answer is not None and spells and spells[-1][0] == answer:
            spells[-1] = (answer, spells[-1][1], step)
        elif answer is not None:
            spells.append((answer, step, step))
    if len(spells) > 1:
        (before, _, last_old_step), (after, change_step, _) = spells[-2:]
        yield AnswerHistory(
            question=question,
            before=before,
            until=last_old_step,
            after=after,
            step=change_step,
            last=change_step == steps[-1],
            earlier=len(spells) - 2,
        )
