"""Whether a table stays in bounds, and distance alone decides how alike its rows are."""

from __future__ import annotations

import numpy as np

from posprobe.analyses.answer import OPEN, Answer, Verdict, rank, too_few
from posprobe.analyses.closeness import Floats
from posprobe.analyses.stationary import Kernel, offset_sums, root, toeplitz
from posprobe.analyses.views import DRAWN_ROWS, DRAWS, LEVEL, View, signed

#: Share of kernels as long as half the table above which nobody knows whether it stays in bounds.
LONG_SHARE = 0.25
#: Least change of norms or speed along the table that counts.
SLIGHT = 0.1
#: Squares by which distances may differ where the offset decides them, as a share of the table's
#: and of those at the offset: what rounding to 16 bits does; and rows that are looked at, the first
#: and as many along the whole table.
EXACT, EXACT_HERE, EXACT_ROWS = 1e-4, 1e-3, 512
#: Fewest rows, and largest variance beside that of random walks with its steps, of a table that is
#: said to stay in bounds.
ENOUGH, BOUNDED = 16, 0.67
#: Times as long as its movements are related a table must be before it is said to wander.
LONG = 16
#: Words of a table that its steps, with random signs, bring as far.
WANDERS = "it wanders like a walk"
#: Words of rows like those of an identity matrix.
EQUALLY = "any two rows lie equally far apart"
#: Steps over which successive differences are compared.
STRIDES = (1, 2, 4, 8, 16, 32)


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
    found, mirrored = _unequal(rows), _mirrored(rows)[1]
    drawn = np.array(
        [_unequal(factor @ rng.standard_normal(rows.shape) * columns) for _ in range(5 * DRAWS + 4)]
    )
    each = [rank(found[k], drawn[:, k]) for k in range(4)]
    # Evidence for little: a norm or speed that hardly changes leaves the distance in charge.
    lengths = np.linalg.norm(rows, axis=1), np.linalg.norm(np.diff(rows, axis=0), axis=1)
    for k, values in enumerate(lengths, 1):
        each[k] = each[k] if variation(values) > SLIGHT else 1.0
    p_shift = min(1.0, 4 * min(each))
    misfit, typical = found[0], float(np.median(drawn[:, 0]))
    value = {"variance_ratio": ratio, "misfit": misfit, "p_walk": p_walk, "p_shift": p_shift}
    times = float(f"{1 / max(ratio, 1e-6):.2g}")
    much = "about as much" if 0.9 <= times <= 1.1 else f"{times:,g} times as much"
    far = f"a random walk with its steps would vary {much}"
    bounded = p_walk <= LEVEL or variation(lengths[0]) <= SLIGHT  # all as far from the mean row
    exact = bounded and _exact(shared.points)
    if exact:
        answer: Verdict = "yes"
        sentence = (
            "Yes: how far two rows lie apart follows from the distance of their positions alone, "
            "but for rounding."
        )
        if _equally_far(shared.points):
            sentence = f"Yes: {EQUALLY}, whatever the distance of their positions."
    elif p_walk <= LEVEL and p_shift > OPEN and _long_share(shared) > LONG_SHARE:
        answer = "cannot tell"
        sentence = (
            f"Cannot be told from {n} rows: a part of it changes so slowly that the table is too "
            "short to show whether it comes back."
        )
    elif p_walk <= LEVEL and p_shift > OPEN and n >= ENOUGH and ratio <= BOUNDED:
        answer = "yes"
        sentence = (
            f"Yes: it stays in bounds, and the distance of two rows decides how alike they are: "
            f"{far}, and inner products at one distance vary no more than in random tables of "
            "which that is true."
        )
    elif p_walk > OPEN and n >= max(LONG * block, ENOUGH):
        answer = "no"
        sentence = f"No sign that it stays in bounds: {WANDERS}: {far}."
    elif p_shift <= LEVEL:
        answer = "no"
        why = (
            (
                f"inner products at one distance vary by {misfit:.0%} of their squares, by "
                f"{typical:.0%} in draws of a stationary process"
            ),
            "rows lie further from the mean in some parts of the table than in others",
            "it moves faster in some parts of the table than in others",
            (
                "rows equally far before and after some place are more "
                f"{'alike' if mirrored else 'opposed'} than their distance explains"
            ),
        )[int(np.argmin(each))]
        sentence = (
            "No: the distance of two rows alone does not decide how alike they are, where they "
            f"stand does too: {why}."
        )
    elif p_walk <= LEVEL and n >= ENOUGH and ratio <= BOUNDED:
        answer = "cannot tell"
        sentence = (
            f"Cannot be told from {n} rows: it stays in bounds, but where rows stand may matter "
            "beside their distance."
        )
    else:
        answer = "cannot tell"
        sentence = (
            f"Cannot be told from {n} rows whether it stays in bounds: {far}, and random signs of "
            "so few independent steps bring that about as well."
        )
    evidence = None if exact else p_walk  # what is exact needs none
    return Answer("stationary", answer, sentence, value, typical, evidence, ratio, keys)


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
    """Return over how many steps the table must move for its movements to be unrelated.

    Movements that are shorter than those over fewer steps do not count: what goes round comes back,
    and over nearly a whole turn its movements are alike again.
    """
    path, found, farthest = shared.signed_walks[0], 1, 0.0
    for stride in (*STRIDES, 64, 128, 256, 512):
        moved = path[stride:] - path[:-stride]
        if len(moved) <= 2 * stride:
            break
        ahead = float(np.vdot(moved[stride:], moved[:-stride]))
        squares = float(np.square(moved).sum())
        if ahead > 0.15 * squares and squares >= farthest * len(moved):
            found = 2 * stride
        farthest = max(farthest, squares / len(moved))
    return found


def _unequal(rows: Floats) -> tuple[float, float, float, float]:
    """Return how unequal places are: by inner products, by norms, by speed, and by mirrored places.

    Norms and speeds as ranks, whose slowest four waves are looked at: single rows do not count.
    """
    return (
        _misfit(rows),
        _slow(np.linalg.norm(rows, axis=1)),
        _slow(np.linalg.norm(np.diff(rows, axis=0), axis=1)),
        _mirrored(rows)[0],
    )


def _mirrored(rows: Floats) -> tuple[float, bool]:
    """Return the share of the Gram matrix's squares that means of mirrored places hold.

    Places that mirror each other at one place are all an even number of positions apart, or all an
    odd one, which distance explains where rows alternate: neighbouring centres are taken together.
    And whether those places are alike, where that is most.
    """
    n = len(rows)
    rows = rows - rows.mean(axis=0)
    transform = np.fft.rfft(rows, 2 * n, axis=0)
    sums = np.fft.irfft(np.square(transform).sum(axis=1), 2 * n)[: 2 * n - 1]
    count = np.minimum(np.arange(1, 2 * n), np.arange(2 * n - 1, 0, -1))
    both = sums[1:] + sums[:-1]
    squares = np.square(both) / (count[1:] + count[:-1])
    whole = float(np.square(rows.T @ rows).sum())
    share = float(squares.sum()) / max(whole, np.finfo(np.float64).tiny)
    return share, bool(both[np.argmax(squares)] > 0)


def _slow(values: Floats) -> float:
    return float(np.square(slow_waves(len(values)) @ ranks(values)).sum())


def ranks(values: Floats) -> Floats:
    """Return ranks less their mean; equal values rank in order."""
    count = len(values)
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable") / count
    return np.asarray((ranks - ranks.mean()) / count)


def slow_waves(count: int) -> Floats:
    """Return the four slowest waves of a sequence of so many values: ``[4, count]``."""
    return np.asarray(np.cos(np.pi * np.outer(np.arange(1, 5), np.arange(count) + 0.5) / count))


def variation(values: Floats) -> float:
    """Return how much the slowest four waves change the logarithm of lengths: 0.1 is a tenth."""
    count = len(values)
    logs = np.log(np.maximum(values, 1e-9 * max(float(values.max()), 1e-300)))
    return float(np.sqrt(2 * np.square(slow_waves(count) @ (logs - logs.mean())).sum()) / count)


def _misfit(rows: Floats) -> float:
    """Share of the Gram matrix's squares, all distances apart, that its diagonal means leave."""
    rows = rows - rows.mean(axis=0)
    n = len(rows)
    sums = offset_sums(rows)
    pairs = np.where(np.arange(n) > 0, 2.0, 1.0)
    whole = float(np.square(rows.T @ rows).sum())
    kept = float((pairs * np.square(sums) / np.arange(n, 0, -1)).sum())
    return 1 - kept / max(whole, np.finfo(np.float64).tiny)


def _exact(points: Floats) -> bool:
    """Say whether offsets decide all distances, of neighbours and along the whole table."""
    along = points[:: -(-len(points) // EXACT_ROWS)]
    parts = _unlike_by_place(points[:EXACT_ROWS]), _unlike_by_place(along)
    return all(whole <= EXACT and here <= EXACT_HERE for whole, here in parts)


def _equally_far(points: Floats) -> bool:
    """Say whether rows are as far from each other as all others are, as those of one-hot codes."""
    rows = points[:: -(-len(points) // EXACT_ROWS)]
    gram = rows @ rows.T
    norms = np.diag(gram)
    squared = (norms[:, None] + norms - 2 * gram)[~np.eye(len(rows), dtype=bool)]
    return bool(np.ptp(squared) <= 4 * np.sqrt(EXACT) * squared.mean())


def _unlike_by_place(rows: Floats) -> tuple[float, float]:
    """Return the squares by which squared distances differ from their mean at each offset.

    Relative to those of the Gram matrix, and, where that is most, to those of the mean at the same
    offset: far rows of a line are so far apart that any noise is small beside them. Unlike inner
    products of centred rows, distances between rows of a sinusoid follow from the offset whatever
    the mean row is.
    """
    gram = rows @ rows.T
    norms = np.diag(gram)
    squared = norms[:, None] + norms - 2 * gram
    n = len(rows)
    offset = np.abs(np.arange(n) - np.arange(n)[:, None]).ravel()
    pairs = np.bincount(offset)
    mean = np.bincount(offset, squared.ravel()) / pairs
    off = np.bincount(offset, np.square(squared.ravel() - mean[offset]))
    tiny = np.finfo(np.float64).tiny
    here = float((off[1:] / np.maximum(pairs * np.square(mean), tiny)[1:]).max(initial=0.0))
    return float(off.sum()) / max(4 * float(np.square(gram).sum()), tiny), here
