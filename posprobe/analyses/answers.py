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

from posprobe.analyses.answer import OPEN, Answer, Verdict, rank, too_few, verdict_of
from posprobe.analyses.closeness import Floats
from posprobe.analyses.rotation_answers import closed_form, ladder, rotations
from posprobe.analyses.stationary import (
    Kernel,
    fit_kernel,
    fit_offsets,
    leading,
    offset_sums,
    root,
    toeplitz,
)
from posprobe.analyses.views import DRAWS, LEVEL, View, signed, units, view
from posprobe.formatting import hundredths

#: False discovery rate over the questions of one table.
DISCOVERY_RATE = 0.05
#: Rows of the draws that need a factor of the kernel; longer tables are thinned.
DRAWN_ROWS = 128
#: Share of kernels as long as half the table above which nobody knows whether it stays in bounds.
LONG_SHARE = 0.25
#: Directions are fewer if they spread over at most this share of what smoothness gives.
FEWER = 0.75
#: A squared exponential kernel halves at so many of its lengths.
HALF = 1.18
#: The table must be so many times as long as its rows' likeness reaches.
STRETCHES = 8
#: Least change of norms or speed along the table that counts.
SLIGHT = 0.1
#: Steps over which successive differences are compared.
STRIDES = (1, 2, 4, 8, 16, 32)
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
    ranks, waves = _ranks(away), _waves(len(away))
    rng = shared.rng(0)
    # So many that the least p-value stands alone among the questions of a table.
    found = np.empty((3, ORDER_DRAWS + 1))
    for k in range(ORDER_DRAWS + 1):
        places = np.arange(len(short)) if k == 0 else rng.permutation(len(short))
        rows = short[places]
        found[0, k] = np.vdot(rows[1:], rows[:-1])
        found[1, k] = np.square(np.abs(np.fft.rfft(rows, axis=0)[1:])).sum(axis=1).max()
        found[2, k] = np.square(waves @ ranks[places]).sum()
    found[0] = np.abs(found[0] - np.median(found[0, 1:]))
    ahead, turning, far = (rank(each[0], each[1:]) for each in found)
    if _variation(away) <= SLIGHT:
        far = 1.0
    p = min(1.0, 3 * min(ahead, turning, far))
    answer = verdict_of(p, enough=len(shared) >= 16)
    chance = -1 / (len(shared) - 1)
    told = (
        f"neighbouring rows have a mean cosine of {hundredths(cosine)}, rows in random order "
        f"{hundredths(chance)}"
    )
    if 3 * far <= LEVEL < 3 * min(ahead, turning):
        quarters = [float(np.median(part)) for part in np.array_split(away, 4)]
        told = (
            f"rows lie {max(quarters) / max(min(quarters), 1e-9 * max(quarters)):.2g} times as far "
            f"{BY_DISTANCE}, though their directions show no order: {told}"
        )
    sentence = {
        "yes": f"Yes: the order of the rows matters: {told}.",
        "no": f"No sign that the order of the rows matters: {told}.",
        "cannot tell": f"Cannot be told from {len(shared)} rows: {told}.",
    }[answer]
    return Answer("order", answer, sentence, cosine, chance, p, cosine - chance, keys)


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
    best = int(np.argmax(cosines[:, 0]))
    length = half_length(shared.points)
    answer = verdict_of(p, enough=n >= 16)
    value: dict[str, float] = {
        "length": length, "cosine": float(cosines[best, 0]), "stride": STRIDES[best]
    }  # fmt: skip
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
    stride = STRIDES[best]
    over = "successive steps" if stride == 1 else f"successive differences over {stride} positions"
    told = f"{over} have a mean cosine of {hundredths(float(cosines[best, 0]))}, those of a walk 0"
    sentence = {
        "yes": f"Yes: it is a smooth curve: {told}; the likeness of rows falls to half of the "
        f"neighbours' over {length:.3g} positions.",
        "no": f"No: it is not smoother than steps added up at random: {told}.",
        "cannot tell": f"Cannot be told from {n} rows: {told}.",
    }[answer]
    return Answer("smooth", answer, sentence, value, 0.0, p, float(cosines[best, 0]), keys)


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


def half_length(points: Floats) -> float:
    """Return the distance at which the mean inner product of rows halves, from that of neighbours.

    Parameters
    ----------
    points
        ``[n, d]``, centred.
    """
    n = len(points)
    mean = offset_sums(points) / np.arange(n, 0, -1)
    if mean[1] <= 0:
        return 0.0
    below = np.flatnonzero(mean[1:] <= mean[1] / 2)
    if not len(below):
        return float(n - 1)
    k = int(below[0]) + 1
    return float(k - 1 + (mean[k - 1] - mean[1] / 2) / (mean[k - 1] - mean[k]))


def stationary(shared: View) -> Answer:
    """Ask whether the table stays in bounds and the distance alone decides how alike rows are.

    In bounds: its variance is small beside its own steps with random signs, added up. Distance
    decides: inner products at one distance vary no more than in draws of the fitted kernel.
    """
    keys = ("similarity.centered.translation_invariance",)
    if few := too_few("stationary", shared, keys):
        return few
    n = len(shared)
    block = _independent(shared)
    walks = signed(shared.steps, block, shared.rng(7)) if block > 1 else shared.signed_walks
    variance = walks.var(axis=1).sum(axis=1).astype(np.float64)
    p_walk = rank(-variance[0], -variance[1:])
    ratio = float(variance[0] / max(np.median(variance[1:]), np.finfo(np.float64).tiny))
    thin = max(1, -(-n // DRAWN_ROWS))
    rows = shared.coordinates[::thin]
    factor = root(toeplitz(shared.kernel.by_offset(n)[::thin]))
    columns = np.sqrt(np.square(rows).sum(axis=0))
    rng = shared.rng(2)
    found = _unequal(rows)
    drawn = np.array(
        [_unequal(factor @ rng.standard_normal(rows.shape) * columns) for _ in range(5 * DRAWS + 4)]
    )
    each = [rank(found[k], drawn[:, k]) for k in range(4)]
    # Evidence for little: a norm or speed that hardly changes leaves the distance in charge.
    lengths = np.linalg.norm(rows, axis=1), np.linalg.norm(np.diff(rows, axis=0), axis=1)
    for k, values in enumerate(lengths, 1):
        each[k] = each[k] if _variation(values) > SLIGHT else 1.0
    p_shift = min(1.0, 4 * min(each))
    misfit, typical = found[0], float(np.median(drawn[:, 0]))
    value = {"variance_ratio": ratio, "misfit": misfit, "p_walk": p_walk, "p_shift": p_shift}
    times = float(f"{1 / max(ratio, 1e-6):.2g}")
    much = "about as much" if 0.9 <= times <= 1.1 else f"{times:,g} times as much"
    far = f"a random walk with its steps would vary {much}"
    if p_walk <= LEVEL and p_shift > OPEN and _long_share(shared) > LONG_SHARE:
        answer: Verdict = "cannot tell"
        sentence = (
            f"Cannot be told from {n} rows: a part of it changes so slowly that the table is too "
            "short to show whether it comes back."
        )
    elif p_walk <= LEVEL and p_shift > OPEN:
        answer = "yes"
        sentence = (
            f"Yes: it stays in bounds, and the distance of two rows decides how alike they are: "
            f"{far}, and inner products at one distance vary no more than in random tables of "
            "which that is true."
        )
    elif p_walk > OPEN and n >= 8 * block:
        answer = "no"
        sentence = f"No sign that it stays in bounds: it wanders like a walk: {far}."
    elif p_shift <= LEVEL:
        answer = "no"
        why = (
            (
                f"inner products at one distance vary by {misfit:.0%} of their squares, by "
                f"{typical:.0%} in draws of a stationary process"
            ),
            "rows lie further from the mean in some parts of the table than in others",
            "it moves faster in some parts of the table than in others",
            "rows at places that mirror each other are more alike than their distance explains",
        )[int(np.argmin(each))]
        sentence = (
            "No: the distance of two rows alone does not decide how alike they are, where they "
            f"stand does too: {why}."
        )
    else:
        answer = "cannot tell"
        sentence = f"Cannot be told from {n} rows: {far}."
    return Answer("stationary", answer, sentence, value, typical, p_walk, ratio, keys)


def _long_share(shared: View) -> float:
    """Return the share of the variance whose fitted kernels are as long as half the table."""
    kernel, n = shared.kernel, len(shared)
    weights = kernel.weights.copy()
    count = len(kernel.lengths)
    for family in range(4):
        weights[1 + family * count : 1 + (family + 1) * count][kernel.lengths < n / 2] = 0.0
    weights[-1] = 0.0
    long = Kernel(weights, kernel.lengths)
    return _centred_trace(long, n) / max(_centred_trace(kernel, n), np.finfo(np.float64).tiny)


def _centred_trace(kernel: Kernel, n: int) -> float:
    values = kernel.by_offset(n)
    pairs = np.where(np.arange(n) > 0, 2.0, 1.0) * np.arange(n, 0, -1)
    return float(n * values[0] - pairs @ values / n)


def _independent(shared: View) -> int:
    """Return over how many steps the table must move for its movements to be unrelated."""
    path, found = shared.signed_walks[0], 1
    for stride in (*STRIDES, 64, 128, 256, 512):
        moved = path[stride:] - path[:-stride]
        if len(moved) <= 2 * stride:
            break
        ahead = float(np.vdot(moved[stride:], moved[:-stride]))
        if ahead > 0.15 * float(np.square(moved).sum()):
            found = 2 * stride
    return found


def _unequal(rows: Floats) -> tuple[float, float, float, float]:
    """Return how unequal places are: by inner products, by norms, by speed, and by mirrored places.

    Norms and speeds as ranks, whose slowest four waves are looked at: single rows do not count.
    """
    return (
        _misfit(rows),
        _slow(np.linalg.norm(rows, axis=1)),
        _slow(np.linalg.norm(np.diff(rows, axis=0), axis=1)),
        _mirrored(rows),
    )


def _mirrored(rows: Floats) -> float:
    """Return the share of the Gram matrix's squares that means of mirrored places hold."""
    n = len(rows)
    rows = rows - rows.mean(axis=0)
    transform = np.fft.rfft(rows, 2 * n, axis=0)
    sums = np.fft.irfft(np.square(transform).sum(axis=1), 2 * n)[: 2 * n - 1]
    count = np.minimum(np.arange(1, 2 * n), np.arange(2 * n - 1, 0, -1))
    whole = float(np.square(rows.T @ rows).sum())
    return float((np.square(sums) / count).sum()) / max(whole, np.finfo(np.float64).tiny)


def _slow(values: Floats) -> float:
    return float(np.square(_waves(len(values)) @ _ranks(values)).sum())


def _ranks(values: Floats) -> Floats:
    """Return ranks less their mean; equal values rank in order."""
    count = len(values)
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable") / count
    return np.asarray((ranks - ranks.mean()) / count)


def _waves(count: int) -> Floats:
    return np.asarray(np.cos(np.pi * np.outer(np.arange(1, 5), np.arange(count) + 0.5) / count))


def _variation(values: Floats) -> float:
    """Return how much the slowest four waves change the logarithm of lengths: 0.1 is a tenth."""
    count = len(values)
    logs = np.log(np.maximum(values, 1e-9 * max(float(values.max()), 1e-300)))
    return float(np.sqrt(2 * np.square(_waves(count) @ (logs - logs.mean())).sum()) / count)


def _misfit(rows: Floats) -> float:
    """Share of the Gram matrix's squares, all distances apart, that its diagonal means leave."""
    rows = rows - rows.mean(axis=0)
    n = len(rows)
    sums = offset_sums(rows)
    pairs = np.where(np.arange(n) > 0, 2.0, 1.0)
    whole = float(np.square(rows.T @ rows).sum())
    kept = float((pairs * np.square(sums) / np.arange(n, 0, -1)).sum())
    return 1 - kept / max(whole, np.finfo(np.float64).tiny)


def low_dimensional(shared: View) -> Answer:
    """Ask whether the table has fewer directions than its smoothness alone gives.

    The null has independent columns of the fitted kernel, or of a walk, as many as the table.
    """
    keys = ("pca.participation_ratio", "pca.top3")
    if few := too_few("low_dimensional", shared, keys):
        return few
    n, d = shared.points.shape
    if d < 3:
        return Answer(
            "low_dimensional",
            "cannot tell",
            f"Cannot be told of {d} column{'s' if d > 1 else ''}.",
            keys=keys,
        )
    unit_rows = units(shared.points)
    spread, expected = _participation(unit_rows), _expected(fit_kernel(unit_rows), n, d)
    ninety = _directions(shared)
    are = "1 direction holds" if ninety == 1 else f"{ninety} directions hold"
    told = (
        f"{are} nine tenths of the variance; the effective number of directions (participation "
        f"ratio) is {spread:.3g}, that of independent columns as smooth {expected:.3g}"
    )
    most = min(n - 1, d)
    value = {"directions": ninety, "participation_ratio": spread, "columns": most}
    if half_length(shared.points) > n / STRETCHES:
        # Few independent stretches: any slow curve has few directions.
        text = f"Cannot be told from {n} rows that change so slowly: {told}."
        return Answer("low_dimensional", "cannot tell", text, value, expected, keys=keys)
    p, ratio = _fewer(shared)
    # Evidence for hardly fewer is no yes.
    answer = verdict_of(p if ratio <= FEWER else 1.0)
    sentence = {
        "yes": f"Yes: {told}, so they are unusually few.",
        "no": f"No, not clearly fewer than its smoothness gives: {told}.",
        "cannot tell": f"Cannot be told from {n} rows: {told}.",
    }[answer]
    return Answer("low_dimensional", answer, sentence, value, expected, p, ratio, keys)


def _fewer(shared: View) -> tuple[float, float]:
    """Return the rank among the nulls of how few directions rows take, and the ratio to them."""
    n, d = shared.points.shape
    thinned = units(shared.points[:: max(1, -(-n // DRAWN_ROWS))])
    rows, columns = len(thinned), min(d, DRAWN_ROWS)
    kernel = fit_kernel(thinned)
    found = _participation(thinned) / _expected(kernel, rows, d)
    distance = (np.arange(rows) - np.arange(rows)[:, None]).ravel() + rows - 1
    rng = shared.rng(3)
    factor = root(toeplitz(kernel.by_offset(rows)))
    # As smooth as can be: fewer directions than any other kernel of that length has.
    length = max(half_length(thinned), 0.5) / HALF
    smoothest = root(toeplitz(np.exp(-0.5 * (np.arange(rows) / length) ** 2)))
    drawn = np.empty((3, DRAWS))
    for k in range(DRAWS):
        white = rng.standard_normal((rows, columns))
        nulls = factor @ white, smoothest @ white, np.cumsum(white, axis=0)
        for null, points in enumerate(nulls):
            points = units(points - points.mean(axis=0))
            gram = points @ points.T
            sums = np.bincount(distance, gram.ravel())[rows - 1 :].astype(np.float64)
            drawn[null, k] = _spread(gram) / _expected(fit_offsets(sums), rows, columns)
    return (
        max(rank(-found, -null) for null in drawn),
        max(found / float(np.median(null)) for null in drawn),
    )


def _directions(shared: View) -> int:
    """Return how many directions hold nine tenths of the variance."""
    variances = np.square(shared.coordinates).sum(axis=0)
    if variances.sum() < 0.9 * len(shared):  # their mean squared norm is 1
        gram = _small_gram(shared.points.astype(np.float32))
        variances = np.linalg.eigvalsh(gram)[::-1].astype(np.float64)
    return int(np.searchsorted(np.cumsum(variances), 0.9 * len(shared) * (1 - 1e-6)) + 1)


def _small_gram(points: Floats) -> Floats:
    return points @ points.T if len(points) <= points.shape[1] else points.T @ points


def _participation(points: Floats) -> float:
    return _spread(_small_gram(points))


def _spread(gram: Floats) -> float:
    return float(np.trace(gram) ** 2 / max(np.square(gram).sum(), np.finfo(np.float64).tiny))


def _expected(kernel: Kernel, n: int, d: int) -> float:
    """Return the participation ratio of independent columns of a kernel, of ratio of means."""
    values = kernel.by_offset(n)
    running = np.cumsum(values)
    row = (running + running[::-1] - values[0]) / n
    mean = row.mean()
    pairs = np.where(np.arange(n) > 0, 2.0, 1.0) * np.arange(n, 0, -1)
    squared = np.square(values) @ pairs - 2 * n * np.square(row).sum() + (n * mean) ** 2
    trace = n * (values[0] - mean)
    if trace <= 0 or squared <= 0:
        return 1.0
    own = trace**2 / squared
    return float(1 / ((1 + 1 / d) / own + 1 / d))
