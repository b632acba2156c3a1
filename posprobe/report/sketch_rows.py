"""Small drawings of rows by position and by distance, and what all small drawings are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posprobe.encodings.sinusoidal import frequencies
from posprobe.report.panel import BOTTOM, LEFT, POINTS, RIGHT, Kind, Numbers, Panel
from posprobe.text import Block, lookup, show

#: Numbers of a table beyond which nothing that looks at all of them is drawn.
LARGEST = 2**22
#: Components and rows that a path in a plane is found from.
COMPONENTS, ROWS = 24, 512
#: Least range of cosines that an axis shows.
LEAST_RANGE = 0.6
#: Steps over which differences are compared, as the question of smoothness does.
STRIDES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, eq=False)
class Seen:
    """What drawings are made from.

    Parameters
    ----------
    document
        The content of ``analysis.json``.
    answers
        By question.
    rows
        ``[n, d]``: what most questions were asked of, centred; None where it is not at hand.
    first
        Its first position.
    arrays
        The content of ``arrays.npz``.
    """

    document: Block
    answers: Mapping[str, Block]
    rows: NDArray[np.float32] | None
    first: int
    arrays: Mapping[str, NDArray[Any]]

    @cached_property
    def scores(self) -> NDArray[np.float32] | None:
        """``[n, k]``: the rows in their leading principal components."""
        return None if self.rows is None else _leading(self.rows)


def _leading(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the leading principal components' scores, by block power iteration."""
    some = rows[:: max(1, -(-len(rows) // ROWS))]
    wide = min(COMPONENTS, *some.shape)
    basis = np.random.default_rng(0).standard_normal((rows.shape[1], wide)).astype(np.float32)
    for _ in range(4):
        basis = np.linalg.qr(some.T @ (some @ basis))[0]
    scores = rows @ basis
    turn = np.linalg.eigh((scores.T @ scores).astype(np.float64))[1][:, ::-1]
    return np.asarray(scores @ turn.astype(np.float32))


def closed_form(seen: Seen) -> str:
    """Compare likeness by distance with that of the sinusoid."""
    answer = seen.answers["closed_form"]
    profile = lookup(seen.document, "similarity.raw.offset_profile")
    table = seen.document["table"]
    dim = table["dim"] - table["dim"] % 2
    if table["layout"]["type"] != "sequence" or not profile or dim < 2:
        return _cka(answer)
    value = answer["value"] or {}
    base = value.get("base") or lookup(seen.document, "sinusoid.base") or 1e4
    distance = np.unique(np.linspace(0, len(profile) - 1, POINTS).astype(int))
    formula = np.cos(np.outer(distance, frequencies(dim, base=float(base)))).mean(axis=1)
    panel = Panel("cosine of two rows, by distance", (0, len(profile) - 1), (-0.6, 1.05))
    panel.across(0, "null")
    panel.line(distance, formula, "named")
    panel.line(np.arange(len(profile)), profile)
    panel.axis("0", "red: sinusoid", str(len(profile) - 1))
    return panel.svg(
        "Mean cosine of two rows by their distance, of the table as a blue line and of the "
        f"sinusoid of base {show(float(base))} as a red one"
        + (f"; the CKA of both is {show(value['cka'])}." if value.get("cka") else ".")
    )


def _cka(answer: Block) -> str:
    value = (answer["value"] or {}).get("cka")
    if value is None:
        return ""
    panel = Panel("likeness to the formula (CKA)", (0, 1), (0, 1))
    panel.bar(0, 0, max(float(value), 0.0), "own")
    panel.upright(1.0, "named")
    panel.label(show(float(value)), LEFT, panel.row(0) + 24)
    panel.axis("0: unrelated", "", "1: the same")
    return panel.svg(f"CKA with the formula: {show(float(value))}, where 1 is the same.")


def _blocks(count: int, most: int) -> tuple[NDArray[np.intp], Numbers]:
    """Cut rows into at most so many blocks: their edges, and the middle of each."""
    edges = np.unique(np.linspace(0, count, min(count, most) + 1).astype(np.intp))
    return edges, (edges[:-1] + edges[1:] - 1) / 2


def _steps(values: NDArray[Any]) -> Numbers:
    moved = np.diff(np.asarray(values, dtype=np.float64), axis=0)
    return np.asarray(np.linalg.norm(moved, axis=1))


def special_rows(seen: Seen) -> str:
    """Draw how far each row is from the next, with what is special marked."""
    answer = seen.answers["special_rows"]
    if "values" not in seen.arrays or seen.arrays["values"].size > LARGEST:
        return ""
    if answer["answer"] == "cannot tell":
        return ""
    values, start = seen.arrays["values"], seen.document["table"]["rows"][0]
    named = [int(row) - start for row in answer["value"] or ()]
    norms, steps = np.asarray(seen.arrays["norms"], dtype=np.float64), _steps(values)
    usual = float(np.median(steps)) or 1.0
    level = float(np.median(norms)) or 1.0
    far = np.maximum(np.append(steps, 0), np.append(0, steps)) / usual
    odd = np.maximum(norms, 1e-12) / level
    # Whichever shows better that the named rows are unlike the others.
    by_norm = bool(named) and np.max(np.abs(np.log(odd[named]))) > np.max(
        np.abs(np.log(np.maximum(far[named], 1e-12)))
    )
    shown = odd if by_norm else far
    low, high = float(max(shown.min(), 1e-3)), float(max(shown.max(), 2.0))
    title = "norm, over the median" if by_norm else "step to a neighbour, over the usual"
    panel = Panel(title, (0, len(shown) - 1), (min(low, 0.5), high * 1.2), log_y=True)
    panel.across(1.0)
    columns = np.arange(len(shown))
    edges, middles = _blocks(len(shown), 120)
    panel.line(middles, np.maximum.reduceat(shown, edges[:-1]))
    panel.dots(columns[named], shown[named], "named")
    last = start + len(shown) - 1
    panel.axis(str(start), "position", str(last))
    panel.beside(f"× {show(high)}", len(shown) - 1, high, "end", rise=-6)
    said = f"{len(named)} rows stand out" if named else "no row stands out"
    return panel.svg(f"{title[0].upper()}{title[1:]}, by position: {said}.")


def seams(seen: Seen) -> str:
    """Draw the norms along the table, with seams marked."""
    answer = seen.answers["seams"]
    if answer["answer"] == "cannot tell" or "norms" not in seen.arrays:
        return ""
    pairs, start = answer["value"] or [], seen.document["table"]["rows"][0]
    norms = np.asarray(seen.arrays["norms"], dtype=np.float64)
    count = len(norms)
    middle = float(np.median(norms)) or 1.0
    panel = Panel("norms of rows, over the median", (0, count - 1), (0, 2))
    panel.across(1.0)
    edges, middles = _blocks(count, 90)
    means = np.add.reduceat(norms, edges[:-1]) / np.diff(edges)
    panel.line(middles, np.minimum(means / middle, 2))
    for left, right in pairs:
        panel.upright((left + right) / 2 - start)
        panel.beside(f"{left} | {right}", (left + right) / 2 - start, 2, _side(left, count), -6)
    panel.axis(str(start), "position", str(start + count - 1))
    places = ", ".join(f"{left} and {right}" for left, right in pairs)
    said = f"seams between {places}" if pairs else "no seam"
    return panel.svg(f"Norms of rows by position, over their median: {said}.")


def _side(place: float, count: int) -> str:
    return "end" if place > 0.7 * count else "start"


def order(seen: Seen) -> str:
    """Draw likeness by distance with the band of rows in random order."""
    answer = seen.answers["order"]
    profile = lookup(seen.document, "similarity.centered.offset_profile")
    if not profile or answer["value"] is None:
        return ""
    key = "similarity.centered.neighbour_mean"
    band = lookup(seen.document["nulls"]["numbers"].get(key), "permuted")
    null = float(answer["null"] or 0.0)
    low, high = (band["p5"], band["p95"]) if band else (null, null)
    layout = seen.document["table"]["layout"]
    if layout["type"] == "grid":
        height, width = layout["height"], layout["width"]
        lines = [
            profile[height - 1][width - 1 :],
            [row[width - 1] for row in profile[height - 1 :]],
        ]
    else:
        lines = [profile]
    longest = max(map(len, lines))
    panel = Panel("cosine of two rows, by distance", (0, longest - 1), (-1, 1.05))
    panel.band(float(low), float(high))
    kinds: tuple[Kind, ...] = ("own", "named")
    for kind, line in zip(kinds, lines, strict=False):
        panel.line(np.arange(len(line)), line, kind)
    which = "blue: right, red: down" if len(lines) > 1 else "grey: random order"
    panel.axis("0", which, str(longest - 1))
    return panel.svg(
        "Mean cosine of two rows, the mean row subtracted, by their distance: "
        f"{show(float(answer['value']))} for neighbours; rows in random order about "
        f"{null:.2f}, as a grey band."
    )


def smooth(seen: Seen) -> str:
    """Draw how alike successive differences are, beside those of a walk."""
    answer = seen.answers["smooth"]
    if "bridging.r2" in answer["keys"]:
        return _gaps(seen)
    if seen.rows is None or not isinstance(answer["value"], Mapping):
        return ""
    rows, strides, cosines = seen.rows, [], []
    for stride in STRIDES:
        if len(rows) < 4 * stride + 4:
            break
        moved = rows[stride:] - rows[:-stride]
        size = float(np.vdot(moved[stride:], moved[stride:]))
        strides.append(stride)
        cosines.append(float(np.vdot(moved[stride:], moved[:-stride])) / (size or 1.0))
    if len(strides) < 2:
        return ""
    panel = Panel("do successive steps point alike?", (1, strides[-1]), (-1.05, 1.05), log_x=True)
    panel.across(0.0)
    panel.label("a walk: 0", RIGHT, (BOTTOM + 19) / 2 + 10, "end")
    panel.dotted(strides, cosines)
    panel.axis("1", "steps over so many rows", str(strides[-1]))
    best = int(np.argmax(cosines))
    return panel.svg(
        "Mean cosine of successive differences by the number of rows they span, at most "
        f"{cosines[best]:.2f} over {strides[best]}; those of a random walk have 0."
    )


def _gaps(seen: Seen) -> str:
    """Draw how well sinusoids and smooth curves predict rows across gaps."""
    block = seen.document["bridging"]
    gaps, r2 = block["gaps"], block["r2"]
    smooth = [name for name in ("linear", "matern12", "matern32", "rbf") if name in r2]
    waves = [name for name in ("sinusoids", "ladder") if name in r2]
    if not gaps or not smooth or not waves:
        return ""

    def best(names: list[str]) -> Numbers:
        lists = np.array([r2[name] for name in names], dtype=np.float64)
        return np.asarray(np.nanmax(lists, axis=0))

    panel = Panel("missing rows predicted (R²)", (1, gaps[-1]), (-0.1, 1.05), log_x=True)
    panel.across(0.0)
    panel.dotted(gaps, best(waves))
    panel.line(gaps, best(smooth), "named")
    panel.axis("1", "blue: sinusoids, red: curve", str(gaps[-1]))
    return panel.svg(
        "Held-out R² by the number of rows left out: sinusoids as a blue line, the best smooth "
        f"curve as a red one, {best(waves)[-1]:.2f} and {best(smooth)[-1]:.2f} across "
        f"{gaps[-1]} rows."
    )


def stationary(seen: Seen) -> str:
    """Draw whether rows at one distance are as alike everywhere; of a wanderer, how far it gets."""
    answer = seen.answers["stationary"]
    if seen.rows is None or not isinstance(answer["value"], Mapping):
        return ""
    rows, n = seen.rows, len(seen.rows)
    if answer["answer"] == "no" and answer["p"] is not None and answer["p"] > 0.1:
        return _wandering(rows)
    length = lookup(seen.answers.get("smooth"), "value.length") or 1
    apart = int(np.clip(round(float(length)), 1, max(n // 3, 1)))
    norms = np.linalg.norm(rows, axis=1)
    inner = np.einsum("ij,ij->i", rows[apart:], rows[:-apart])
    size = norms[apart:] * norms[:-apart]
    cosines = inner / np.where(size > 0, size, np.nan)
    edges, middles = _blocks(len(cosines), 100)
    shown = np.add.reduceat(cosines, edges[:-1]) / np.diff(edges)
    if not np.isfinite(shown).any():
        return ""
    mean, low, high = (
        float(number) for number in (np.nanmean(cosines), np.nanmin(shown), np.nanmax(shown))
    )
    # Wide enough that what hardly varies looks so.
    room = max(LEAST_RANGE - (high - low), 0.1) / 2
    panel = Panel(
        f"cosine of rows {apart} apart: {low:.2f} to {high:.2f}", (0, n - 1),
        (low - room, high + room),
    )  # fmt: skip
    panel.across(mean)
    panel.line(middles + apart / 2, shown)
    panel.axis(str(seen.first), "position; dashed: mean", str(seen.first + n - 1))
    return panel.svg(
        f"Cosine of rows {apart} apart along the table: {mean:.2f} on average, from {low:.2f} to "
        f"{high:.2f}."
    )


def _wandering(rows: NDArray[np.float32]) -> str:
    n = len(rows)
    lags = np.unique(np.geomspace(1, max(n // 2, 2), 9).astype(int))
    squares = np.array([float(np.square(rows[k:] - rows[:-k]).sum(axis=1).mean()) for k in lags])
    if not squares[0] > 0:
        return ""
    squares = squares / squares[0]
    high = float(max(squares.max(), lags[-1]))
    panel = Panel(
        "squared distance of two rows", (1, lags[-1]), (0.8, high * 1.1), log_x=True, log_y=True
    )
    panel.line(lags, lags, "null")
    panel.dotted(lags, squares)
    panel.axis("1", "rows apart; grey: a walk", str(lags[-1]))
    return panel.svg(
        "Mean squared distance of two rows by how many positions they are apart, over that of "
        f"neighbours: {squares[-1]:.3g} at {lags[-1]}, where a random walk has {lags[-1]}."
    )
