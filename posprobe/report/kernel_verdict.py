"""What encodings of any scheme share and where they differ, as answers and in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posprobe.analyses.answer import Verdict
from posprobe.analyses.heads import SIDED
from posprobe.report.questions import KERNEL_QUESTIONS
from posprobe.report.verdict import capital, shared
from posprobe.text import Block, hundredths, listed, show

if TYPE_CHECKING:
    from posprobe.documents import SharedVerdictBlock

#: Share of steps that do not rise from which a curve falls steadily.
STEADY = 0.95
#: Share of a kernel's variance by offset from which the offset alone decides, and below which it
#: does not.
DECIDES, LEAVES = 0.99, 0.9
#: Ratio of two half widths from which they differ.
WIDER = 1.25
#: Most pairs that are told of, the most alike first.
PAIRS = 3


def kernel_verdict(
    records: Sequence[Block], pairs: Sequence[Block], walk: Block | None
) -> SharedVerdictBlock:
    """Say what the kernels of encodings share and where they differ.

    All of it is read off the curves, without a null; how alike two curves are stands beside what
    pairs of random walks reach.

    Parameters
    ----------
    records, pairs, walk
        Blocks of ``analysis.json``.

    Returns
    -------
    dict
        ``summary`` and ``answers``, as of tables.
    """
    labels = [str(record["label"]) for record in records]
    answers = [
        [{"question": name, "answer": answer} for name, answer in _answers(record).items()]
        for record in records
    ]
    told = shared(labels, [{"answers": each} for each in answers], KERNEL_QUESTIONS)
    known = [pair for pair in pairs if pair["correlation"] is not None]
    known.sort(key=lambda pair: -pair["correlation"])
    said = [_pair(pair, walk) for pair in known[:PAIRS]]
    if len(known) > PAIRS:
        others = len(known) - PAIRS
        said.append(
            f"the other {'pair is' if others == 1 else f'{others} pairs are'} no more alike"
        )
    widths = {
        str(record["label"]): float(record["half_width"])
        for record in records
        if record["half_width"] is not None
    }
    if len(widths) > 1 and max(widths.values()) >= WIDER * max(min(widths.values()), 1e-9):
        each = [f"{show(width)} for {label}" for label, width in widths.items()]
        said.append(f"half of the fall is done at a distance of {listed(each)}")
    summary = " ".join((*(f"{capital(text)}." for text in said), told["summary"]))
    return {"summary": summary, "answers": told["answers"]}


def _answers(record: Block) -> dict[str, Verdict]:
    falls, sides = record["monotone_fraction"], record["asymmetry"]
    offset = record["translation_invariance"]
    return {
        "kernel_falls": _yes(falls, None if falls is None else falls >= STEADY),
        "kernel_offset": "cannot tell"
        if offset is None or LEAVES <= offset < DECIDES
        else _yes(offset, offset >= DECIDES),
        "kernel_sides": _yes(sides, None if sides is None else sides <= SIDED),
    }


def _yes(value: float | None, holds: bool | None) -> Verdict:
    if value is None:
        return "cannot tell"
    return "yes" if holds else "no"


def _pair(pair: Block, walk: Block | None) -> str:
    value = float(pair["correlation"])
    text = (
        f"the curves of {listed(pair['records'])} over distance have a correlation of "
        f"{hundredths(value)}"
    )
    if walk is None:
        return text
    bar = hundredths(walk["correlation"])
    if abs(value) > walk["correlation"]:
        return f"{text}, more than 95 % of pairs of random walks, which reach {bar}"
    return f"{text}, as pairs of random walks often have, 5 % of them more than {bar}"
