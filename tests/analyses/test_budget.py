"""The variance budget and the clock of rotations: planted parts, laws, trained tables."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays
from made_answers import planted, smooth, surface
from made_tables import as_table, gaussian, rotation, walk, waves
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

import posprobe as pp
from posprobe.analyses.composition.budget import ORDER, same_planes
from posprobe.analyses.composition.planes import Fitted, find_rotations, fit_clock
from posprobe.figures.fits import COLORS

Floats = NDArray[np.float64]


def of_size(values: Floats, share: float) -> Floats:
    """Return rows around their mean with so large a sum of squares."""
    rows = values - values.mean(axis=0)
    return np.asarray(np.sqrt(share) * rows / np.linalg.norm(rows))


def shares(budget: Any) -> dict[str, float]:
    """Return the parts of a table around its mean row, waves of a kind together."""
    found: dict[str, float] = {}
    for each in budget.around_mean():
        found[each.part] = found.get(each.part, 0.0) + each.share
    return found


# --- laws ---


@given(
    arrays.arrays(
        np.float64,
        st.tuples(st.integers(2, 40), st.integers(1, 4)),
        elements=st.floats(-1e3, 1e3, width=32),
    )
)
def test_shares_add_up_to_the_sum_of_squares(values: Floats) -> None:
    found = pp.budget(values)
    if not np.asarray(values, dtype=np.float32).any():
        assert found.undefined
        return
    assert sum(each.share for each in found.parts) == pytest.approx(1, abs=1e-6)
    assert all(each.share > 0 for each in found.parts)
    mean = len(values) * np.square(values.mean(axis=0)).sum() / np.square(values).sum()
    assert (found.mean or 0.0) == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_no_square_overflows_or_vanishes(scale: float) -> None:
    values = smooth(64, 4, 6.0)
    found = pp.budget(values * scale)
    assert sum(each.share for each in found.parts) == pytest.approx(1)
    assert pp.clock(values * scale).undefined == pp.clock(values).undefined


def test_levels_of_parts_and_outlier_rows_are_counted_exactly() -> None:
    values = smooth(200, 16, 6.0)
    values[120:] += 4 * rotation(16)[0] * np.linalg.norm(values, axis=1).mean()
    values[40] *= 20
    found = pp.budget(values)
    plain = np.delete(values, 40, axis=0)
    level = plain.mean(axis=0)
    parts = values[:40], values[41:120], values[120:]
    levels = sum(len(part) * np.square(part.mean(axis=0) - level).sum() for part in parts)
    assert found.breaks == pytest.approx(levels / np.square(values).sum(), rel=1e-9)
    assert (found.special or 0.0) + levels / np.square(values).sum() + (found.mean or 0.0) < 1


def codes(height: int, width: int, d: int, seed: int) -> Floats:
    rows, columns = smooth(height, d, 3.0, seed), smooth(width, d, 3.0, seed + 50)
    cells = np.repeat(rows[:, None], width, axis=1) + np.repeat(columns[None], height, axis=0)
    return cells.reshape(height * width, d)


def plane(height: int, width: int, d: int, seed: int) -> Floats:
    place = np.stack(np.divmod(np.arange(height * width), width), axis=1).astype(np.float64)
    return np.asarray(place @ gaussian(2, d, seed))


@pytest.mark.parametrize(
    ("code", "share", "field"), [(codes, 0.1, 0.0), (plane, 0.3, 0.0), (codes, 0.3, 0.5)]
)
def test_codes_beside_noise_and_surfaces_have_their_shares(
    code: Callable[..., Floats], share: float, field: float
) -> None:
    grid = pp.layouts.Grid(14, 14)
    found = 0
    for seed in range(4):
        values = of_size(code(14, 14, 64, seed), share)
        values += of_size(gaussian(196, 64, seed + 9), 1 - share - field)
        values += of_size(surface(14, 64, 2, 2.0, seed + 20), field)
        told = shares(pp.budget(as_table(values, grid)))
        found += abs(told.get("rows", 0.0) + told.get("columns", 0.0) - share) < 0.08
    # Beside a surface of half of the variance a code of a seventh may hide.
    assert found >= (2 if field else 3)


# --- planted parts ---

PARTS: dict[str, Callable[[int, int], Floats]] = {
    "noise": lambda n, seed: gaussian(n, 64, seed),
    "walk": lambda n, seed: walk(n, 64, seed),
    "smooth": lambda n, seed: smooth(n, 64, 12.0, seed),
    "line": lambda n, seed: np.outer(np.arange(n), gaussian(1, 64, seed)[0]),
    "rotation": lambda n, seed: waves(n, [9.3]) @ rotation(64, seed)[:2],
    "alternating": lambda n, seed: np.outer(1 - 2 * (np.arange(n) % 2), gaussian(1, 64, seed)[0]),
}
PAIRS = [
    ("noise", "walk"), ("noise", "smooth"), ("noise", "line"), ("noise", "rotation"),
    ("noise", "alternating"), ("walk", "rotation"), ("smooth", "rotation"), ("line", "rotation"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_planted_parts_have_their_shares_within_the_stated_errors(one: str, other: str) -> None:
    # What alternates for a few rows alone is hard to tell from noise.
    loose = 0.1 if other == "alternating" else 0.03
    off = []
    for seed, n in enumerate((128, 128, 200, 200)):
        values = of_size(PARTS[one](n, seed), 0.6) + of_size(PARTS[other](n, seed + 50), 0.4)
        whole = float(np.square(values - values.mean(axis=0)).sum())
        # What the two have in common counts half with each.
        parts = {one: 0.6 + (whole - 1) / 2, other: 0.4 + (whole - 1) / 2}
        found = pp.budget(values)
        told = shares(found)
        off += [abs(told.get(part, 0.0) - share / whole) for part, share in parts.items()]
        errors = {each.part: each.error for each in found.around_mean() if each.error is not None}
        if other != "alternating":
            assert found.explained
            assert errors.keys() >= {one, other} & {"smooth", "walk", "line"}
            for part, error in errors.items():
                assert abs(told[part] - parts.get(part, 0.0) / whole) < error
    assert np.median(off) < loose / 2
    assert max(off) < loose


def knot(n: int, seed: int) -> Floats:
    """A torus knot, in three columns."""
    t = np.linspace(0, 6 * np.pi, n)
    radius = 2 + np.cos(5 * t)
    points = np.stack([radius * np.cos(2 * t), radius * np.sin(2 * t), np.sin(5 * t)], axis=1)
    return np.asarray(points @ rotation(64, seed)[:3])


def moving_average(n: int, seed: int) -> Floats:
    """Means of six independent rows each."""
    return np.asarray(sliding_window_view(gaussian(n + 5, 64, seed), 6, axis=0).mean(axis=-1))


@pytest.mark.parametrize("made", [knot, moving_average])
def test_what_is_not_in_the_model_is_said_not_to_be_explained(
    made: Callable[[int, int], Floats],
) -> None:
    found = [pp.budget(made(300, seed)) for seed in range(3)]
    assert sum(each.explained is False for each in found) >= 2
    assert all(part.error is None for each in found if not each.explained for part in each.parts)


# --- clocks ---


def reading(n: int, warp: float, rng: np.random.Generator) -> Floats:
    """Return a clock whose speed differs from 1 by at most so much."""
    bend = np.polynomial.legendre.legval(
        np.linspace(-1, 1, n), [0, 0, *rng.standard_normal(3) / np.arange(1, 4)]
    )
    speed = np.gradient(bend)
    return np.asarray(np.cumsum(1 + warp * speed / np.abs(speed).max()))


def alike(clocks: list[Floats]) -> float:
    """Return the largest correlation of how far two clocks run ahead of a straight line."""
    place = np.arange(len(clocks[0]))
    ahead = [each - np.polyval(np.polyfit(place, each, 1), place) for each in clocks]
    return float(np.triu(np.corrcoef(ahead), 1).max())


def fitted(periods: list[float], warp: float, seed: int, *, own: bool, n: int = 400) -> Fitted:
    rng = np.random.default_rng(seed)
    clocks = [reading(n, warp, rng)] * len(periods)
    while own and alike(clocks) > 0.9:
        clocks = [reading(n, warp, rng) for _ in periods]
    z = np.exp(2j * np.pi * np.stack(clocks) / np.array(periods)[:, None])
    noise = 0.1 * rng.standard_normal((2, len(periods), n))
    return fit_clock(z + noise[0] + 1j * noise[1])


@pytest.mark.parametrize("periods", [[5.0, 17.0], [4.0, 9.0, 14.0, 23.0]])
@pytest.mark.parametrize("warp", [0.05, 0.2])
def test_a_shared_clock_is_found_and_told_from_clocks_of_their_own(
    periods: list[float], warp: float
) -> None:
    together = [fitted(periods, warp, seed, own=False) for seed in range(20)]
    assert sum(each.shared for each in together) >= 19
    ratios = together[0].paces[:-1] / together[0].paces[1:]
    assert ratios == pytest.approx(np.divide(periods[1:], periods[:-1]), rel=0.01)
    apart = [fitted(periods, warp, seed, own=True) for seed in range(20)]
    assert sum(each.shared for each in apart) <= 1


def test_a_clock_is_not_shared_that_one_of_three_rotations_does_not_read() -> None:
    shared = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        one, other = (reading(256, 0.1, rng) for _ in range(2))
        while alike([one, other]) > 0.9:
            other = reading(256, 0.1, rng)
        z = np.exp(2j * np.pi * np.stack([one / 5, one / 17, other / 9]))
        noise = 0.1 * rng.standard_normal((2, 3, 256))
        shared += fit_clock(z + noise[0] + 1j * noise[1]).shared
    assert shared <= 1


def test_a_clock_is_read_off_the_phases() -> None:
    n = 400
    clock = reading(n, 0.15, np.random.default_rng(3))
    z = np.exp(2j * np.pi * np.outer(1 / np.array([5.0, 17.0, 41.0]), clock))
    found = fit_clock(z)
    expected = np.gradient(clock) / np.gradient(clock).mean()
    assert np.abs(found.speed / found.speed.mean() - expected).max() < 0.01
    assert found.one == pytest.approx(1, abs=1e-3)
    assert found.fixed < 0.9


def test_one_rotation_has_a_circle_and_no_clock() -> None:
    found = pp.clock(waves(128, [9.0]) @ rotation(8)[:2])
    assert found.periods == pytest.approx((9,), rel=0.01)
    assert found.paths.shape == (1, 128, 2)
    assert found.shared is None
    assert pp.clock(gaussian(64, 8)).undefined


def series_on_a_clock(members: int, seed: int) -> Floats:
    """Circles of periods that triple on one clock, beside a smooth curve of a third and noise."""
    n, d = 384, 384
    ahead = np.cumsum(1 + 0.1 * np.cos(np.pi * np.linspace(-1, 1, n)))
    turned = 2 * np.pi * np.outer(ahead, 1 / (5.9 * 3.0 ** np.arange(members))) + seed
    circles = np.hstack([np.cos(turned), np.sin(turned)]) @ rotation(d, seed)[: 2 * members]
    rest = of_size(smooth(n, d, 15.0, seed + 9), 0.35 * n) + of_size(gaussian(n, d, seed), 0.02 * n)
    return np.asarray(np.sqrt(0.18) * circles + rest)


@pytest.mark.parametrize("members", [3, 4])
def test_a_slow_member_of_a_series_is_found_by_the_clock_and_not_made_up(members: int) -> None:
    counted = []
    for seed in range(2):
        found = pp.clock(series_on_a_clock(members, seed))
        assert found.shared
        assert found.ratios == pytest.approx((3,) * (len(found.periods) - 1), rel=0.02)
        counted.append(len(found.periods))
    assert max(counted) == members
    # The fourth makes 2.4 turns, and is found in eight of ten.
    assert counted.count(members) >= (1 if members == 4 else 2)


def test_every_part_has_a_colour_on_the_page_and_in_figures() -> None:
    sheet = (files("posprobe.report") / "templates" / "drawings.css").read_text(encoding="utf-8")
    for part in set(ORDER) - {"mean", "rotation"}:
        assert part in COLORS
        name = "line-part" if part == "line" else part
        assert f".{name} {{ fill:" in sheet, part


# --- trained tables ---


def test_minilm_is_four_rotations_on_one_clock() -> None:
    table = pp.load("sample:all-minilm-l6-v2")
    found = pp.budget(table)
    told = (found.mean, found.special, found.breaks, found.noise)
    # As counted with other tools: the mean row, outliers, the break, noise.
    assert told == pytest.approx((0.115, 0.065, 0.038, 0.015), abs=0.01)
    clock = pp.clock(table)
    assert clock.shared
    assert clock.ratios == pytest.approx((3, 3, 3), abs=0.01)
    assert clock.fixed == pytest.approx(0.49, abs=0.01)
    assert clock.one == pytest.approx(0.991, abs=0.005)
    # Locks by the phases in planes that a band of the spectrum has, with NumPy alone.
    assert clock.lock[:2] == pytest.approx((0.991, 0.971), abs=0.02)


def test_both_parts_of_minilm_rotate_in_the_same_planes() -> None:
    facts: Any = planted("sample:all-minilm-l6-v2").answers["seams"].facts
    (same,) = facts.same
    assert (same.first, same.last, same.around, same.rotations) == (1, 126, 3, 3)
    # As the four planes of 128 to 509 were found with band filters and NumPy alone.
    assert same.held == pytest.approx(0.80, abs=0.01)


@pytest.mark.parametrize("again", [True, False])
def test_planes_of_another_part_are_the_same_only_where_they_are(again: bool) -> None:
    both = [
        np.sqrt(0.4) * (waves(size, [7.0, 19.0]) @ rotation(64, seed)[:4])
        + of_size(gaussian(size, 64, seed), 0.1 * size)
        for size, seed in ((200, 1), (120, 1 if again else 2))
    ]
    found = find_rotations(both[0] - both[0].mean(axis=0), 0)
    same = same_planes(found, np.vstack(both), [(200, 320)], 5)
    assert len(same) == again
    if again:
        assert (same[0].first, same[0].last, same[0].around) == (205, 324, 2)
