"""What a table has learned, as answers: yes, no, or cannot be told from so many rows.

Each question is asked against null tables that have everything weaker and lack just this. Evidence
is a rank p-value, ``(1 + number of null tables that reach the value) / (draws + 1)`` (Phipson &
Smyth 2010), the greatest over the nulls that apply; over the questions the false discovery rate is
held (Benjamini & Hochberg 1995). Nothing here changes when the columns are rotated, when the table
is scaled, or when one row is added to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.answer import OPEN, Answer, rank, too_few, verdict_of
from posprobe.analyses.closeness import Floats
from posprobe.analyses.directions_answer import low_dimensional
from posprobe.analyses.rotation_answers import closed_form, ladder, rotations
from posprobe.analyses.stationary import half_length, leading
from posprobe.analyses.stationary_answer import (
    SLIGHT,
    STRIDES,
    ranks,
    slow_waves,
    stationary,
    variation,
)
from posprobe.analyses.views import DRAWS, LEVEL, View, chance_cosine, units, view
from posprobe.text import hundredths, show

#: False discovery rate over the questions of one table.
DISCOVERY_RATE = 0.05
#: Words of an order that is not one of directions.
BY_DISTANCE = "from the mean row in one quarter of the table as in another"
#: Permutations of the rows.
ORDER_DRAWS = 10 * DRAWS
#: Share of the variance along a straight line from which it is told of noise, and from which it is
#: all that there is; fewest rows that are asked, and the likeness of neighbours beside the line
#: that counts as none.
LINE, ALL_LINE, LINE_ROWS, UNLIKE = 0.1, 0.99, 32, 0.1


def ask(values: Floats, *, seed: int = 0, dtype: str = "F32") -> list[Answer]:
    """Ask every question about a sequence.

    Parameters
    ----------
    values
        ``[n, d]``, finite; rows that are special already left out.
    seed
        Of all draws.
    dtype
        Format in which the table was stored, for recognising formulas.
    """
    shared = view(values, seed=seed)
    form = closed_form(shared, values, dtype)
    rungs = ladder(shared, form)
    turning = rotations(shared, form if form.answer == "yes" else rungs)
    answers = [
        order(shared),
        smooth(shared),
        stationary(shared),
        low_dimensional(shared),
        turning,
        rungs,
        form,
    ]
    return settle(answers)


def settle(answers: Sequence[Answer]) -> list[Answer]:
    """Hold the false discovery rate over the questions: a yes that fails it is left open."""
    with_p = sorted(a.p for a in answers if a.p is not None)
    bar = max(
        (p for k, p in enumerate(with_p, 1) if p <= DISCOVERY_RATE * k / len(with_p)), default=0.0
    )
    return [
        replace(a, answer="cannot tell", sentence=_left_open(a.sentence, len(with_p)))
        if a.answer == "yes" and a.p is not None and a.p > bar
        else a
        for a in answers
    ]


def _left_open(sentence: str, questions: int) -> str:
    claim = sentence.removeprefix("Yes: ").rstrip(".")
    return (
        f"Cannot be told: it looks as if {claim}. But among {questions} questions, one such value "
        "is no surprise."
    )


def order(shared: View) -> Answer:
    """Ask whether the order of the rows matters at all, against the same rows permuted.

    Three numbers: the mean cosine of neighbouring centred rows; the greatest share of the spectrum
    in one frequency, which finds rotations whose neighbours are orthogonal; and how much of the
    distances from the mean row, as ranks, is in their slowest four waves.
    """
    keys = ("similarity.centered.neighbour_mean", "spectrum.entropy")
    if few := too_few("order", shared, keys):
        return few
    unit_rows = units(shared.points)
    cosine = float(np.einsum("ij,ij->i", unit_rows[1:], unit_rows[:-1]).mean())
    short = leading(unit_rows, 8).astype(np.float32)
    away = np.linalg.norm(shared.points, axis=1)
    by_rank, waves = ranks(away), slow_waves(len(away))
    rng = shared.rng(0)
    # So many that the least p-value stands alone among the questions of a table.
    found = np.empty((3, ORDER_DRAWS + 1))
    for k in range(ORDER_DRAWS + 1):
        places = np.arange(len(short)) if k == 0 else rng.permutation(len(short))
        rows = short[places]
        found[0, k] = np.vdot(rows[1:], rows[:-1])
        found[1, k] = _waves(rows).max()
        found[2, k] = np.square(waves @ by_rank[places]).sum()
    found[0] = np.abs(found[0] - np.median(found[0, 1:]))
    ahead, turning, far = (rank(each[0], each[1:]) for each in found)
    if variation(away) <= SLIGHT:
        far = 1.0
    p = min(1.0, 3 * min(ahead, turning, far))
    answer = verdict_of(p, enough=len(shared) >= 16)
    chance = chance_cosine(unit_rows)
    told = (
        f"neighbouring rows have a mean cosine of {hundredths(cosine)}, rows in random order "
        f"{hundredths(chance)}"
    )
    wave = _one_wave(short, found[1]) if 3 * turning <= LEVEL < 3 * ahead else ""
    if 3 * far <= LEVEL < 3 * ahead:
        quarters = [float(np.median(part)) for part in np.array_split(away, 4)]
        directions = f"and {wave}" if wave else f"though their directions show no order: {told}"
        told = (
            f"rows lie {max(quarters) / max(min(quarters), 1e-9 * max(quarters)):.2g} times as far "
            f"{BY_DISTANCE}, {directions}"
        )
    elif wave:
        told = f"{wave}, though {told}"
    sentence = {
        "yes": f"Yes: the order of the rows matters: {told}.",
        "no": f"No sign that the order of the rows matters: {told}.",
        "cannot tell": f"Cannot be told from {len(shared)} rows: {told}.",
    }[answer]
    return Answer("order", answer, sentence, cosine, chance, p, cosine - chance, keys)


def _waves(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the power of rows at each frequency but 0, as it adds up to their variance."""
    power = np.square(np.abs(np.fft.rfft(rows, axis=0)[1:])).sum(axis=1)
    # All but the fastest of an even number of rows stand for two frequencies of the transform.
    power[: (len(rows) - 1) // 2] *= 2
    return np.asarray(power)


def _one_wave(rows: NDArray[np.float32], strongest: Floats) -> str:
    """Tell what the strongest wave holds of rows, and its median ``[1:]`` in random order."""
    power = _waves(rows)
    whole = float(power.sum())
    return (
        f"a wave with a period of {show(len(rows) / (int(power.argmax()) + 1))} positions holds "
        f"{strongest[0] / whole:.0%} of the variance of their directions, in random order about "
        f"{np.median(strongest[1:]) / whole:.0%}"
    )


def smooth(shared: View) -> Answer:
    """Ask whether the table bends gradually, against its own steps with random signs.

    Successive differences over 1, 2, 4, ... positions are compared: those of a walk are
    independent, those of a smooth curve point the same way. The value is the distance at which the
    mean inner product of centred rows falls to half of what neighbours have.
    """
    keys = ("similarity.centered.offset_profile",)
    if few := too_few("smooth", shared, keys):
        return few
    n = len(shared)
    walks = shared.signed_walks
    found = []
    for stride in STRIDES:
        if n < 4 * stride + 4:
            break
        difference = walks[:, stride:] - walks[:, :-stride]
        ahead = np.einsum("kti,kti->k", difference[:, stride:], difference[:, :-stride])
        size = np.einsum("kti,kti->k", difference, difference)
        found.append(ahead / np.where(size > 0, size, 1.0))
    cosines = np.stack(found).astype(np.float64)
    spread = cosines[:, 1:].std(axis=1, keepdims=True)
    score = (
        (cosines - np.median(cosines[:, 1:], axis=1, keepdims=True))
        / np.where(spread > 0, spread, np.inf)
    ).max(axis=0)
    p = rank(score[0], score[1:])
    stride = STRIDES[int(np.argmax(cosines[:, 0]))]
    # The walks have the leading directions alone: what is told is of all.
    cosine = _mean_cosine(shared.points[stride:] - shared.points[:-stride], stride)
    length = half_length(shared.points)
    answer = verdict_of(p, enough=n >= 16)
    value: dict[str, float] = {"length": length, "cosine": cosine, "stride": stride}
    straight, p_straight = _straight(shared, noise=answer != "yes")
    if straight > (ALL_LINE if answer == "yes" else LINE) and p_straight <= LEVEL:
        value["straight"] = straight
        text = (
            f"Yes: it is a straight line: evenly spaced points on it hold {straight:.1%} of the "
            "variance."
            if answer == "yes"
            else f"Yes: it is a straight line in noise: evenly spaced points on it hold "
            f"{straight:.0%} of the variance, and what is left shows no order."
        )
        return Answer("smooth", "yes", text, value, 0.0, p_straight, straight, keys)
    over = "successive steps" if stride == 1 else f"successive differences over {stride} positions"
    told = f"{over} have a mean cosine of {hundredths(cosine)}, those of a walk 0"
    sentence = {
        "yes": f"Yes: it is a smooth curve: {told}; the likeness of rows falls to half of the "
        f"neighbours' over {length:.3g} positions.",
        "no": f"No: it is not smoother than steps added up at random: {told}.",
        "cannot tell": f"Cannot be told from {n} rows: {told}.",
    }[answer]
    return Answer("smooth", answer, sentence, value, 0.0, p, cosine, keys)


def _mean_cosine(rows: Floats, stride: int) -> float:
    """Return the mean cosine of rows so many places apart; 0 where none has a direction."""
    sizes = np.linalg.norm(rows, axis=1)
    sizes = sizes[stride:] * sizes[:-stride]
    there = sizes > 0
    inner = np.einsum("ij,ij->i", rows[stride:], rows[:-stride])
    return float((inner[there] / sizes[there]).mean()) if there.any() else 0.0


def _straight(shared: View, *, noise: bool) -> tuple[float, float]:
    """Return the share of the variance along a straight line, and its rank among permuted rows.

    The rank is 1 where something other than ``noise`` was asked of and what the line leaves has an
    order of its own: a walk is no line.
    """
    n = len(shared)
    if n < LINE_ROWS:
        return 0.0, 1.0
    place = np.arange(n) - (n - 1) / 2
    place = place / np.linalg.norm(place)
    along = place @ shared.points
    share = float(along @ along) / n
    if share <= LINE:
        return share, 1.0
    if noise:
        rest = shared.points - np.outer(place, along)
        left = units(rest)
        short = leading(left, 8)
        rng = shared.rng(8)
        drawn = np.array(
            [
                np.vdot(rows[1:], rows[:-1])
                for rows in (rng.permutation(short) for _ in range(DRAWS))
            ]
        )
        found = float(np.vdot(short[1:], short[:-1]))
        typical = float(np.median(drawn))
        cosine = float(np.einsum("ij,ij->i", left[1:], left[:-1]).mean())
        if abs(cosine) > UNLIKE or rank(abs(found - typical), np.abs(drawn - typical)) <= OPEN:
            return share, 1.0
    rng = shared.rng(9)
    places = np.stack([rng.permutation(place) for _ in range(ORDER_DRAWS)])
    return share, rank(share, np.square(places @ shared.points).sum(axis=1) / n)
