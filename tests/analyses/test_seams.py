"""Seams and special rows where they were put, and none where there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_answers import smooth
from made_tables import gaussian, hurried, patches, rotation, walk, waves
from matplotlib.figure import Figure
from numpy.typing import NDArray

import posprobe as pp
from posprobe.analyses.breaks.changes import pace_changes
from posprobe.analyses.breaks.outliers import MIN_SIDE
from posprobe.analyses.breaks.seams import Seams, seams, stretch
from posprobe.encodings import sinusoidal
from posprobe.families import load

if TYPE_CHECKING:
    from collections.abc import Callable

Floats = NDArray[np.floating[Any]]
Pair = tuple[int, int]


def kinds(found: Seams) -> list[str]:
    """Of the causes of the first special row."""
    return [cause.kind for cause in found.special[0].causes]


def rows(found: Seams) -> list[int]:
    return [special.row for special in found.special]


def sinusoid(n: int, d: int) -> Floats:
    return np.array(sinusoidal(n, d))


# --- a boundary that training blurred ---


def test_a_run_of_long_steps_is_a_break() -> None:
    # No step stands out of the others alone, and no level changes.
    found = []
    for seed in range(10):
        assert not seams(hurried(seed, broken=False)).between
        found += [pair[0] for pair in seams(hurried(seed)).between]
    assert len(found) >= 9
    assert all(abs(left - 201) <= 3 for left in found)


# --- real tables ---


def test_minilm_has_one_seam_and_four_special_rows() -> None:
    found = seams(load("sample:all-minilm-l6-v2"))
    assert found.between == ((127, 128),)
    assert rows(found) == [0, 127, 510, 511]
    assert found.cosines[126] == pytest.approx(0.387, abs=5e-4)
    assert found.cosines[127] == pytest.approx(0.516, abs=5e-4)
    (change,) = found.reasons
    assert (change.kind, change.of) == ("level", "norms")
    assert change.numbers == pytest.approx((0.415, 0.474), abs=5e-4)
    assert kinds(found) == ["far_from_next", "norm"]
    assert found.special[0].causes[1].numbers[0] == found.norms[0]


def test_whisper_has_its_seam_in_the_middle() -> None:
    found = seams(load("sample:whisper-tiny-decoder"))
    # The decoder is prompted with up to half of its 448 positions.
    assert found.between == ((223, 224),)
    assert rows(found) == [0, 1, 2, 3, 223, 224]


def test_a_table_like_gpt2_has_special_ends_and_no_flood() -> None:
    n = 512
    # A slow curve with noise, long rows at the start that settle within thirty, and a last row that
    # was hardly trained.
    slow = 3.4 * waves(n, [1000.0, 700.0], 1) @ rotation(64)[:4]
    table = slow + 0.01 * gaussian(n, 64, 2)
    table *= (1 + 0.5 * np.exp(-np.arange(n) / 6))[:, None]
    table[0] += 8 * rotation(64)[10]
    table[-1] *= 0.03
    found = seams(table)
    assert found.between == ()
    assert {0, n - 1} <= set(rows(found))
    assert len(found.special) <= 6


# --- planted seams ---


def _two_bases(n: int, d: int, edge: int, seed: int) -> Floats:
    table = sinusoid(n, d)
    return np.concatenate([table[:edge], table[edge:] @ rotation(d, seed)])


def _two_walks(n: int, d: int, edge: int, seed: int) -> Floats:
    away = 5 * gaussian(1, d, seed + 1)
    return np.concatenate([walk(edge, d, seed), walk(n - edge, d, seed + 2) + away])


def _two_lines(n: int, d: int, edge: int, seed: int) -> Floats:
    """Constant rows before the seam, and others behind it."""
    return np.repeat(gaussian(2, d, seed), [edge, n - edge], axis=0)


def _correlated_blocks(n: int, d: int, edge: int, seed: int) -> Floats:
    """Rows with a common part within each block and independent apart from it."""
    common = np.repeat(gaussian(2, d, seed), [edge, n - edge], axis=0)
    return common + gaussian(n, d, seed + 1)


def _fading(n: int, d: int, edge: int, seed: int) -> Floats:
    values = gaussian(n, d, seed)
    values[edge:] *= 0.02
    return values


def _hurrying(n: int, d: int, edge: int, seed: int) -> Floats:
    steps = gaussian(n, d, seed)
    steps[edge:] *= 4
    return np.asarray(np.cumsum(steps, axis=0))


def _moved(n: int, d: int, edge: int, seed: int) -> Floats:
    values = gaussian(n, d, seed)
    values[edge:] += 5 * gaussian(1, d, seed + 1000)
    return values


#: Tables that change at an edge and have no special rows beside; others may have.
ALONE = (_two_bases, _two_walks, _two_lines, _correlated_blocks)
CHANGING = (*ALONE, _fading, _hurrying, _moved)
#: Rows, columns, and the first row after the change. In few numbers a correlation does not show.
LARGE = [(256, 128, 128), (300, 96, 100), (512, 64, 450)]
SHAPES = [*LARGE, (64, 64, 32), (300, 8, 200)]


@pytest.mark.parametrize(
    ("make", "n", "d", "edge"),
    [
        (make, *shape)
        for make in CHANGING
        for shape in (LARGE if make is _correlated_blocks else SHAPES)
    ],
)
def test_a_seam_stands_exactly_where_a_table_changes(
    make: Callable[[int, int, int, int], Floats], n: int, d: int, edge: int
) -> None:
    for seed in range(3):
        table = make(n, d, edge, seed)
        found = seams(table)
        assert found.between == ((edge - 1, edge),)
        assert rows(found) == [] or make not in ALONE
        assert seams(table[::-1]).between == ((n - edge - 1, n - edge),)


@pytest.mark.parametrize("edge", [3, 5, 509])
def test_a_break_next_to_an_end_is_no_seam(edge: int) -> None:
    assert edge < MIN_SIDE or 512 - edge < MIN_SIDE
    assert seams(_two_bases(512, 64, edge, 0)).between == ()


# --- planted special rows ---


@pytest.mark.parametrize("row", [0, 1, 7, 100, 198])
def test_an_odd_row_is_special_and_no_seam(row: int) -> None:
    for seed in range(3):
        steady = sinusoid(200, 64)
        steady[row] = gaussian(1, 64, seed)
        wandering = walk(200, 64, seed)
        wandering[row] += 8 * gaussian(1, 64, seed + 1)[0]
        for table in (steady, wandering):
            found = seams(table)
            # A row between an odd one and the end has no neighbour to belong to.
            cut_off = {0} if row == 1 else {199} if row == 198 else set()
            assert set(rows(found)) == {row} | cut_off
            assert found.between == ()


@pytest.mark.parametrize(("odd", "seam"), [([99], (99, 100)), ([99, 100], (99, 100))])
def test_odd_rows_at_a_seam_do_not_hide_it(odd: list[int], seam: Pair) -> None:
    table = _two_bases(200, 64, 100, 5)
    table[odd] = gaussian(len(odd), 64)
    found = seams(table)
    assert found.between == (seam,)
    assert rows(found) == odd


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize(("ahead", "behind"), [(4, 1), (1, 0), (2, 0), (0, 1)])
def test_a_table_that_begins_again_has_its_seams_there_whatever_rows_are_special(
    ahead: int, behind: int, times: int
) -> None:
    """As in a table that is tiled to a longer context: its first rows are special, and its last."""
    for seed in range(3):
        table = sinusoid(120, 48)
        table[:ahead] = gaussian(ahead, 48, seed)
        table[120 - behind :] = gaussian(behind, 48, seed + 10)
        found = seams(np.tile(table, (times, 1)))
        assert found.between == tuple((120 * k - 1, 120 * k) for k in range(1, times))
        assert found.special


# --- tables with neither ---


@pytest.mark.parametrize("n", [16, 197, 2048])
@pytest.mark.parametrize("d", [2, 64])
def test_a_sinusoid_has_neither(n: int, d: int) -> None:
    found = seams(sinusoidal(n, d))
    assert found.between == ()
    assert found.special == ()


def _phases(table: Floats, seed: int) -> Floats:
    """Each column's power with random phases."""
    spectrum = np.abs(np.fft.rfft(table, axis=0))
    noise = np.fft.rfft(np.random.default_rng(seed).normal(size=table.shape), axis=0)
    return np.asarray(np.fft.irfft(spectrum * noise / np.abs(noise), n=len(table), axis=0))


def _permuted(table: Floats, seed: int) -> Floats:
    return np.random.default_rng(seed).permutation(table)


def _student(n: int, d: int, seed: int) -> Floats:
    return np.random.default_rng([seed, n]).standard_t(3, (n, d))


def _wandering(n: int, d: int, seed: int) -> Floats:
    """A walk with a pull to its mean, 10 positions long."""
    table = gaussian(n, d, seed)
    for row in range(1, n):
        table[row] = np.exp(-0.1) * table[row - 1] + np.sqrt(1 - np.exp(-0.2)) * table[row]
    return table


NEITHER: dict[str, Callable[[int, int, int], Floats]] = {
    "walk": walk,
    "noise": gaussian,
    "permuted sinusoid": lambda n, d, seed: _permuted(sinusoid(n, d), seed),
    "permuted walk": lambda n, d, seed: _permuted(walk(n, d, seed), seed),
    "phases of a sinusoid": lambda n, d, seed: _phases(sinusoid(n, d), seed),
    "phases of a walk": lambda n, d, seed: _phases(walk(n, d, seed), seed),
    "heavy tails": _student,
    "walk with heavy tails": lambda n, d, seed: np.cumsum(_student(n, d, seed), axis=0),
    "rows of any length": lambda n, d, seed: (
        gaussian(n, d, seed) * np.abs(1 / _student(n, 1, seed)) ** 0.5
    ),
    "pulled walk": _wandering,
    "smooth": lambda n, d, seed: smooth(n, d, 8.0, seed),
}


@pytest.mark.slow
@pytest.mark.parametrize("process", NEITHER)
def test_random_tables_rarely_have_either(process: str) -> None:
    draws = 40
    found = [seams(NEITHER[process]((32, 64, 128)[seed % 3], 32, seed)) for seed in range(draws)]
    assert sum(bool(one.between) for one in found) <= 0.05 * draws
    assert sum(bool(one.special) for one in found) <= 0.05 * draws


@pytest.mark.parametrize("row", [0, 100, 199])
def test_a_row_unlike_all_others_is_special_in_rough_tables(row: int) -> None:
    for seed in range(3):
        table = gaussian(200, 64, seed) + 16 * np.eye(64)[0]  # mean cosine 0.8
        table[row] = 16 * np.eye(64)[1] + gaussian(1, 64, seed + 1)[0]
        found = seams(table)
        assert rows(found) == [row]
        units = table / np.linalg.norm(table, axis=1, keepdims=True)
        alike = float(np.delete(units @ units[row], row).mean())
        assert kinds(found)[0] == "direction"
        assert found.special[0].causes[0].numbers[0] == pytest.approx(alike)
        assert found.between == ()


# --- the longest stretch ---


@pytest.mark.parametrize("memory", [0.0, 0.6, 0.98])
def test_a_row_unlike_the_rest_is_special_however_large_the_steps(memory: float) -> None:
    """Rows share a direction, and one does not, as in a decoder's table."""
    rng = np.random.default_rng(0)
    rest = rng.standard_normal((448, 128))
    rest /= np.sqrt(rng.chisquare(24, (448, 1)) / 24) if memory > 0.9 else 1.0
    for t in range(1, 448):
        rest[t] = memory * rest[t - 1] + (1 - memory**2) ** 0.5 * rest[t]
    rest *= np.sqrt(0.17 / np.median(np.square(rest).sum(axis=1)))
    shared, other = np.linalg.qr(rng.standard_normal((128, 2)))[0].T
    values = rest + np.sqrt(0.83) * shared
    values[224] = 0.45 * shared + 0.9 * other
    assert [row.row for row in seams(values).special] == [224]
    assert not seams(np.delete(values, 224, axis=0)).special


def test_the_stretch_lies_between_seams_and_special_rows() -> None:
    found = stretch(seams(load("sample:all-minilm-l6-v2")))
    assert found.rows == slice(128, 510)
    assert not found.whole
    first, *_, last = found.reasons
    assert (first.kind, first.numbers) == ("seam", (127, 128))
    assert [cause.of for cause in first.causes] == ["norms"]
    assert (last.kind, last.numbers) == ("special", (510,))


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (gaussian(100, 16), "no_break"),
        (gaussian(5, 16), "undefined"),
        (patches(6, 6, 8), "undefined"),
    ],
)
def test_without_a_break_all_rows_are_the_stretch(table: Floats, why: str) -> None:
    found = stretch(seams(table))
    assert found.whole
    assert found.rows == slice(0, len(table))
    assert [cause.kind for cause in found.reasons] == [why]


# --- what is written and drawn ---


def test_the_figure_marks_seams_and_special_rows_at_their_positions() -> None:
    found = seams(load("sample:all-minilm-l6-v2")[100:])
    ax: Any = found.plot(Figure().add_subplot())
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_array_equal(lines["seam"].get_xdata(), [127.5, 127.5])
    np.testing.assert_array_equal(lines["special row"].get_xdata(), [127, 510, 511])
    texts = {text.get_text() for text in ax.texts}
    assert texts == {"127 | 128", "127", "510\N{EN DASH}511"}
    profile = max(ax.lines, key=lambda line: len(line.get_xdata()))
    np.testing.assert_array_equal(profile.get_xdata(), np.arange(100, 511) + 0.5)
    np.testing.assert_array_equal(profile.get_ydata(), found.cosines)


def test_long_steps_of_a_wandering_rotation_whose_rows_return_are_not_special() -> None:
    """After eight positions rows are alike again; neighbours are alike all the same."""
    found = 0
    for seed in range(15):
        for n in (64, 200):
            heavy = np.abs(np.random.default_rng(seed + 9).standard_t(2, (n, 1)))
            wandering = np.cumsum(0.02 * gaussian(n, 32, seed) * heavy, axis=0)
            circle = waves(n, [8.0]) @ rotation(32, seed)[:2]
            found += bool(seams(circle + wandering).special)
    assert found <= 1  # of 30 tables


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_change_of_norm_among_independent_rows_is_placed_by_the_rows(factor: float) -> None:
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
@pytest.mark.parametrize("at", [40, 100, 160])
def test_a_walk_whose_steps_change_at_once(at: int, factor: float) -> None:
    steps = np.random.default_rng(at).normal(size=(200, 24))
    steps[at:] *= factor
    ((row, found),) = pace_changes(steps_of(np.cumsum(steps, axis=0)))
    # Step ``at`` leads from row at - 1 to row at.
    assert abs(row - (at - 1)) <= 1
    assert found == pytest.approx(factor, rel=0.12)


def test_three_parts_have_two_changes() -> None:
    steps = np.random.default_rng(1).normal(size=(240, 16))
    steps[80:] *= 2
    steps[160:] *= 2
    rows = [row for row, _ in pace_changes(steps_of(np.cumsum(steps, axis=0)))]
    assert rows == pytest.approx([79, 159], abs=1)


def tails(n: int, seed: int) -> NDArray[np.float64]:
    return np.asarray(1 / np.sqrt(np.random.default_rng([9, seed]).chisquare(2, (n, 1)) / 2))


#: By what varies: the size of each step, and whether rows are its sum or the step itself.
SIZES: dict[str, tuple[Callable[[int, int], Any], bool]] = {
    "trend": (lambda n, _: np.linspace(1, 4, n)[:, None], False),
    "wave": (lambda n, _: 2 + np.cos(2 * np.pi * np.arange(n) / n)[:, None], True),
    "heavy tails": (tails, True),
    "noise": (lambda *_: 1.0, False),
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("n", [48, 150, 400])
def test_a_trend_heavy_tails_and_noise_are_no_change(name: str, n: int) -> None:
    size, summed = SIZES[name]
    for seed in range(10):
        values = size(n, seed) * gaussian(n, 16, seed)
        assert not pace_changes(steps_of(np.cumsum(values, axis=0) if summed else values))


def test_a_real_table_breaks_where_its_matrix_shows_it() -> None:
    # Cosines of neighbours, far from the seam on either side: 0.2 before, more than 0.6 after.
    table = load("sample:sapiens-roberta")
    ((left, right),) = seams(table).between
    assert (left, right) == (83, 84)
    before: Any = pp.similarity(table[:80]).centered.neighbour_mean
    after: Any = pp.similarity(table[88:]).centered.neighbour_mean
    assert before < 0.3 < 0.6 < after
