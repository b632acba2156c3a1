"""Seams and special rows are found where planted, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_tables import (
    gaussian,
    hurried_circles,
    patches,
    rotation,
    sinusoid,
    smooth,
    walk,
    waves,
)
from matplotlib.figure import Figure
from numpy.typing import NDArray

import posprobe as pp
from posprobe.analyses.breaks.changes import find_step_changes
from posprobe.analyses.breaks.limits import MIN_SIDE_ROWS
from posprobe.analyses.breaks.seams import Seams, seams
from posprobe.analyses.breaks.stretches import find_stretch
from posprobe.encodings import sinusoidal
from posprobe.families import load

if TYPE_CHECKING:
    from collections.abc import Callable

Floats = NDArray[np.floating[Any]]
Pair = tuple[int, int]


def cause_kinds(row_seams: Seams) -> list[str]:
    """Return the kinds of the first special row's causes."""
    return [cause.kind for cause in row_seams.special[0].causes]


def special_rows(row_seams: Seams) -> list[int]:
    return [special.row for special in row_seams.special]


# --- blurred seams ---


def test_a_run_of_long_steps_is_a_seam() -> None:
    # No single step stands out, and no level changes.
    left_rows = []
    for seed in range(10):
        assert not seams(hurried_circles(seed, broken=False)).between
        left_rows += [pair[0] for pair in seams(hurried_circles(seed)).between]
    assert len(left_rows) >= 9
    assert all(abs(left_row - 201) <= 3 for left_row in left_rows)


# --- real tables ---


def test_minilm_has_one_seam_and_four_special_rows() -> None:
    row_seams = seams(load("sample:all-minilm-l6-v2"))
    assert row_seams.between == ((127, 128),)
    assert special_rows(row_seams) == [0, 127, 510, 511]
    assert row_seams.cosines[126] == pytest.approx(0.387, abs=5e-4)
    assert row_seams.cosines[127] == pytest.approx(0.516, abs=5e-4)
    (change,) = row_seams.reasons
    assert (change.kind, change.subject) == ("level", "norms")
    assert change.numbers == pytest.approx((0.415, 0.474), abs=5e-4)
    assert cause_kinds(row_seams) == ["far_from_next", "norm"]
    assert row_seams.special[0].causes[1].numbers[0] == row_seams.norms[0]


def test_whisper_has_its_seam_in_the_middle() -> None:
    row_seams = seams(load("sample:whisper-tiny-decoder"))
    # The decoder is prompted with up to half of its 448 positions.
    assert row_seams.between == ((223, 224),)
    assert special_rows(row_seams) == [0, 1, 2, 3, 223, 224]


def test_a_table_like_gpt2_has_special_ends_and_no_flood() -> None:
    n = 512
    # A slow curve with noise, long rows at the start that settle within thirty, and a last row that
    # was hardly trained.
    slow = 3.4 * waves(n, [1000.0, 700.0], 1) @ rotation(64)[:4]
    table = slow + 0.01 * gaussian(n, 64, 2)
    table *= (1 + 0.5 * np.exp(-np.arange(n) / 6))[:, None]
    table[0] += 8 * rotation(64)[10]
    table[-1] *= 0.03
    row_seams = seams(table)
    assert row_seams.between == ()
    assert {0, n - 1} <= set(special_rows(row_seams))
    assert len(row_seams.special) <= 6


# --- planted seams ---


def make_two_bases(n: int, d: int, edge: int, seed: int) -> Floats:
    table = sinusoid(n, d)
    return np.concatenate([table[:edge], table[edge:] @ rotation(d, seed)])


def make_two_walks(n: int, d: int, edge: int, seed: int) -> Floats:
    level = 5 * gaussian(1, d, seed + 1)
    return np.concatenate([walk(edge, d, seed), walk(n - edge, d, seed + 2) + level])


def make_two_lines(n: int, d: int, edge: int, seed: int) -> Floats:
    """Return constant rows before the seam, and others behind it."""
    return np.repeat(gaussian(2, d, seed), [edge, n - edge], axis=0)


def make_correlated_blocks(n: int, d: int, edge: int, seed: int) -> Floats:
    """Return rows that share a vector within each block and are independent otherwise."""
    common = np.repeat(gaussian(2, d, seed), [edge, n - edge], axis=0)
    return common + gaussian(n, d, seed + 1)


def make_fading(n: int, d: int, edge: int, seed: int) -> Floats:
    values = gaussian(n, d, seed)
    values[edge:] *= 0.02
    return values


def make_hurrying(n: int, d: int, edge: int, seed: int) -> Floats:
    steps = gaussian(n, d, seed)
    steps[edge:] *= 4
    return np.asarray(np.cumsum(steps, axis=0))


def make_shifted(n: int, d: int, edge: int, seed: int) -> Floats:
    values = gaussian(n, d, seed)
    values[edge:] += 5 * gaussian(1, d, seed + 1000)
    return values


#: Tables that change at an edge without special rows beside it; the others may have some.
CHANGES_WITHOUT_SPECIAL_ROWS = (
    make_two_bases,
    make_two_walks,
    make_two_lines,
    make_correlated_blocks,
)
CHANGES = (*CHANGES_WITHOUT_SPECIAL_ROWS, make_fading, make_hurrying, make_shifted)
#: Rows, columns, and the first row after the change. Smaller tables do not show a correlation.
LARGE_SHAPES = [(256, 128, 128), (300, 96, 100), (512, 64, 450)]
SHAPES = [*LARGE_SHAPES, (64, 64, 32), (300, 8, 200)]


@pytest.mark.parametrize(
    ("make", "n", "d", "edge"),
    [
        (make, *shape)
        for make in CHANGES
        for shape in (LARGE_SHAPES if make is make_correlated_blocks else SHAPES)
    ],
)
def test_a_seam_stands_exactly_at_a_change(
    make: Callable[[int, int, int, int], Floats], n: int, d: int, edge: int
) -> None:
    for seed in range(3):
        table = make(n, d, edge, seed)
        row_seams = seams(table)
        assert row_seams.between == ((edge - 1, edge),)
        assert special_rows(row_seams) == [] or make not in CHANGES_WITHOUT_SPECIAL_ROWS
        assert seams(table[::-1]).between == ((n - edge - 1, n - edge),)


@pytest.mark.parametrize("edge", [3, 5, 509])
def test_a_break_next_to_an_end_is_no_seam(edge: int) -> None:
    assert edge < MIN_SIDE_ROWS or 512 - edge < MIN_SIDE_ROWS
    assert seams(make_two_bases(512, 64, edge, 0)).between == ()


# --- planted special rows ---


@pytest.mark.parametrize("row", [0, 1, 7, 100, 198])
def test_a_planted_odd_row_is_special_and_no_seam(row: int) -> None:
    for seed in range(3):
        steady = sinusoid(200, 64)
        steady[row] = gaussian(1, 64, seed)
        wandering = walk(200, 64, seed)
        wandering[row] += 8 * gaussian(1, 64, seed + 1)[0]
        for table in (steady, wandering):
            row_seams = seams(table)
            # A row between an odd one and the end has no neighbour that resembles it.
            cut_off = {0} if row == 1 else {199} if row == 198 else set()
            assert set(special_rows(row_seams)) == {row} | cut_off
            assert row_seams.between == ()


@pytest.mark.parametrize(("odd", "seam"), [([99], (99, 100)), ([99, 100], (99, 100))])
def test_odd_rows_at_a_seam_do_not_hide_it(odd: list[int], seam: Pair) -> None:
    table = make_two_bases(200, 64, 100, 5)
    table[odd] = gaussian(len(odd), 64)
    row_seams = seams(table)
    assert row_seams.between == (seam,)
    assert special_rows(row_seams) == odd


@pytest.mark.parametrize("n_tiles", [2, 3])
@pytest.mark.parametrize(("n_leading", "n_trailing"), [(4, 1), (1, 0), (2, 0), (0, 1)])
def test_tiled_tables_have_seams_between_their_tiles(
    n_leading: int, n_trailing: int, n_tiles: int
) -> None:
    """Tables tiled to a longer context have special first and last rows."""
    for seed in range(3):
        table = sinusoid(120, 48)
        table[:n_leading] = gaussian(n_leading, 48, seed)
        table[120 - n_trailing :] = gaussian(n_trailing, 48, seed + 10)
        row_seams = seams(np.tile(table, (n_tiles, 1)))
        assert row_seams.between == tuple(
            (120 * k - 1, 120 * k) for k in range(1, n_tiles)
        )
        assert row_seams.special


# --- tables without seams and special rows ---


@pytest.mark.parametrize("n", [16, 197, 2048])
@pytest.mark.parametrize("d", [2, 64])
def test_a_sinusoid_has_no_seams_and_no_special_rows(n: int, d: int) -> None:
    row_seams = seams(sinusoidal(n, d))
    assert row_seams.between == ()
    assert row_seams.special == ()


def randomise_phases(table: Floats, seed: int) -> Floats:
    """Return columns of equal power with random phases."""
    spectrum = np.abs(np.fft.rfft(table, axis=0))
    noise = np.fft.rfft(np.random.default_rng(seed).normal(size=table.shape), axis=0)
    return np.asarray(
        np.fft.irfft(spectrum * noise / np.abs(noise), n=len(table), axis=0)
    )


def permute_rows(table: Floats, seed: int) -> Floats:
    return np.random.default_rng(seed).permutation(table)


def draw_student(n: int, d: int, seed: int) -> Floats:
    return np.random.default_rng([seed, n]).standard_t(3, (n, d))


def make_pulled_walk(n: int, d: int, seed: int) -> Floats:
    """Return a walk that is pulled to its mean within 10 positions."""
    table = gaussian(n, d, seed)
    for row in range(1, n):
        table[row] = (
            np.exp(-0.1) * table[row - 1] + np.sqrt(1 - np.exp(-0.2)) * table[row]
        )
    return table


SEAMLESS_PROCESSES: dict[str, Callable[[int, int, int], Floats]] = {
    "walk": walk,
    "noise": gaussian,
    "permuted sinusoid": lambda n, d, seed: permute_rows(sinusoid(n, d), seed),
    "permuted walk": lambda n, d, seed: permute_rows(walk(n, d, seed), seed),
    "phases of a sinusoid": lambda n, d, seed: randomise_phases(sinusoid(n, d), seed),
    "phases of a walk": lambda n, d, seed: randomise_phases(walk(n, d, seed), seed),
    "heavy tails": draw_student,
    "walk with heavy tails": lambda n, d, seed: np.cumsum(
        draw_student(n, d, seed), axis=0
    ),
    "rows of any length": lambda n, d, seed: (
        gaussian(n, d, seed) * np.abs(1 / draw_student(n, 1, seed)) ** 0.5
    ),
    "pulled walk": make_pulled_walk,
    "smooth": lambda n, d, seed: smooth(n, d, 8.0, seed),
}


@pytest.mark.slow
@pytest.mark.parametrize("process", SEAMLESS_PROCESSES)
def test_random_tables_rarely_have_seams_or_special_rows(process: str) -> None:
    draws = 40
    all_seams = [
        seams(SEAMLESS_PROCESSES[process]((32, 64, 128)[seed % 3], 32, seed))
        for seed in range(draws)
    ]
    assert sum(bool(draw_seams.between) for draw_seams in all_seams) <= 0.05 * draws
    assert sum(bool(draw_seams.special) for draw_seams in all_seams) <= 0.05 * draws


@pytest.mark.parametrize("row", [0, 100, 199])
def test_a_row_unlike_all_others_is_special_in_rough_tables(row: int) -> None:
    for seed in range(3):
        table = gaussian(200, 64, seed) + 16 * np.eye(64)[0]  # mean cosine 0.8
        table[row] = 16 * np.eye(64)[1] + gaussian(1, 64, seed + 1)[0]
        row_seams = seams(table)
        assert special_rows(row_seams) == [row]
        units = table / np.linalg.norm(table, axis=1, keepdims=True)
        mean_cosine = float(np.delete(units @ units[row], row).mean())
        assert cause_kinds(row_seams)[0] == "direction"
        assert row_seams.special[0].causes[0].numbers[0] == pytest.approx(mean_cosine)
        assert row_seams.between == ()


# --- the longest stretch ---


@pytest.mark.parametrize("memory", [0.0, 0.6, 0.98])
def test_a_row_unlike_the_rest_is_special_however_large_the_steps(memory: float) -> None:
    """All rows but one share a direction, as in a decoder's table."""
    rng = np.random.default_rng(0)
    background = rng.standard_normal((448, 128))
    background /= np.sqrt(rng.chisquare(24, (448, 1)) / 24) if memory > 0.9 else 1.0
    for t in range(1, 448):
        background[t] = (
            memory * background[t - 1] + (1 - memory**2) ** 0.5 * background[t]
        )
    background *= np.sqrt(0.17 / np.median(np.square(background).sum(axis=1)))
    shared_direction, odd_direction = np.linalg.qr(rng.standard_normal((128, 2)))[0].T
    values = background + np.sqrt(0.83) * shared_direction
    values[224] = 0.45 * shared_direction + 0.9 * odd_direction
    assert [row.row for row in seams(values).special] == [224]
    assert not seams(np.delete(values, 224, axis=0)).special


def test_the_stretch_lies_between_seams_and_special_rows() -> None:
    longest_stretch = find_stretch(seams(load("sample:all-minilm-l6-v2")))
    assert longest_stretch.rows == slice(128, 510)
    assert not longest_stretch.is_whole
    first, *_, last = longest_stretch.reasons
    assert (first.kind, first.numbers) == ("seam", (127, 128))
    assert [cause.subject for cause in first.causes] == ["norms"]
    assert (last.kind, last.numbers) == ("special", (510,))


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (gaussian(100, 16), "no_break"),
        (gaussian(5, 16), "undefined"),
        (patches(6, 6, 8), "undefined"),
    ],
)
def test_without_a_break_all_rows_are_the_stretch(table: Floats, reason: str) -> None:
    longest_stretch = find_stretch(seams(table))
    assert longest_stretch.is_whole
    assert longest_stretch.rows == slice(0, len(table))
    assert [cause.kind for cause in longest_stretch.reasons] == [reason]


# --- documents and figures ---


def test_the_figure_marks_seams_and_special_rows_at_their_positions() -> None:
    row_seams = seams(load("sample:all-minilm-l6-v2")[100:])
    ax: Any = row_seams.plot(Figure().add_subplot())
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_array_equal(lines["seam"].get_xdata(), [127.5, 127.5])
    np.testing.assert_array_equal(lines["special row"].get_xdata(), [127, 510, 511])
    texts = {text.get_text() for text in ax.texts}
    assert texts == {"127 | 128", "127", "510\N{EN DASH}511"}
    profile = max(ax.lines, key=lambda line: len(line.get_xdata()))
    np.testing.assert_array_equal(profile.get_xdata(), np.arange(100, 511) + 0.5)
    np.testing.assert_array_equal(profile.get_ydata(), row_seams.cosines)


def test_long_steps_of_a_wandering_rotation_are_not_special() -> None:
    """Rows resemble each other again after eight positions, and neighbours always do."""
    n_special = 0
    for seed in range(15):
        for n in (64, 200):
            step_sizes = np.abs(np.random.default_rng(seed + 9).standard_t(2, (n, 1)))
            wandering = np.cumsum(0.02 * gaussian(n, 32, seed) * step_sizes, axis=0)
            circle = waves(n, [8.0]) @ rotation(32, seed)[:2]
            n_special += bool(seams(circle + wandering).special)
    assert n_special <= 1  # of 30 tables


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_change_of_norm_among_independent_rows_is_placed_by_the_rows(
    factor: float,
) -> None:
    """Two norms of the ratio 2 in 32 dimensions overlap in one row in twenty."""
    exact = 0
    for seed in range(20):
        values = gaussian(128, 32, seed)
        values[100:] *= factor
        (pair,) = seams(values).between
        exact += pair == (99, 100)
    assert exact >= 17


# --- changes of pace ---


def steps_of(values: Any) -> NDArray[np.float64]:
    return np.asarray(np.linalg.norm(np.diff(values, axis=0), axis=1))


@pytest.mark.parametrize("factor", [0.5, 2.0, 3.0])
@pytest.mark.parametrize("change", [40, 100, 160])
def test_a_sudden_change_of_step_size_is_found_with_its_ratio(
    change: int, factor: float
) -> None:
    steps = np.random.default_rng(change).normal(size=(200, 24))
    steps[change:] *= factor
    ((row, ratio),) = find_step_changes(steps_of(np.cumsum(steps, axis=0)))
    # Step ``at`` leads from row at - 1 to row at.
    assert abs(row - (change - 1)) <= 1
    assert ratio == pytest.approx(factor, rel=0.12)


def test_three_stretches_of_pace_have_two_changes() -> None:
    steps = np.random.default_rng(1).normal(size=(240, 16))
    steps[80:] *= 2
    steps[160:] *= 2
    rows = [row for row, _ in find_step_changes(steps_of(np.cumsum(steps, axis=0)))]
    assert rows == pytest.approx([79, 159], abs=1)


def heavy_tails(n: int, seed: int) -> NDArray[np.float64]:
    return np.asarray(
        1 / np.sqrt(np.random.default_rng([9, seed]).chisquare(2, (n, 1)) / 2)
    )


#: Sizes of the steps by name, and whether rows are sums of steps or the steps themselves.
STEP_SIZES: dict[str, tuple[Callable[[int, int], Any], bool]] = {
    "trend": (lambda n, _: np.linspace(1, 4, n)[:, None], False),
    "wave": (lambda n, _: 2 + np.cos(2 * np.pi * np.arange(n) / n)[:, None], True),
    "heavy tails": (heavy_tails, True),
    "noise": (lambda *_: 1.0, False),
}


@pytest.mark.parametrize("name", STEP_SIZES)
@pytest.mark.parametrize("n", [48, 150, 400])
def test_a_trend_heavy_tails_and_noise_are_no_change(name: str, n: int) -> None:
    size, summed = STEP_SIZES[name]
    for seed in range(10):
        values = size(n, seed) * gaussian(n, 16, seed)
        assert not find_step_changes(
            steps_of(np.cumsum(values, axis=0) if summed else values)
        )


def test_a_trained_table_breaks_between_differing_neighbour_means() -> None:
    # Cosines of neighbours, far from the seam on either side: 0.2 before, more than 0.6 after.
    table = load("sample:sapiens-roberta")
    ((left, right),) = seams(table).between
    assert (left, right) == (83, 84)
    before: Any = pp.similarity(table[:80]).centered.neighbour_mean
    after: Any = pp.similarity(table[88:]).centered.neighbour_mean
    assert before < 0.3 < 0.6 < after
