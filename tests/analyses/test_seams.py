"""Seams and special rows where they were put, and none where there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from made_answers import smooth
from made_tables import gaussian, hurried, patches, rotation, walk, waves
from matplotlib.figure import Figure
from numpy.typing import NDArray

from posprobe.analyses.sequences.seams import Seams, seams, stretch
from posprobe.analyses.tables.outliers import MIN_SIDE
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


@pytest.mark.parametrize("make", [_two_bases, _two_walks, _two_lines, _correlated_blocks])
@pytest.mark.parametrize(("n", "d", "edge"), [(256, 128, 128), (300, 96, 100), (512, 384, 450)])
def test_two_blocks_have_a_seam(
    make: Callable[[int, int, int, int], Floats], n: int, d: int, edge: int
) -> None:
    for seed in range(3):
        found = seams(make(n, d, edge, seed))
        assert found.between == ((edge - 1, edge),)
        assert rows(found) == []


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


def _phases(table: Floats, rng: np.random.Generator) -> Floats:
    """Each column's power with random phases."""
    spectrum = np.abs(np.fft.rfft(table, axis=0))
    noise = np.fft.rfft(rng.standard_normal(table.shape), axis=0)
    return np.asarray(np.fft.irfft(spectrum * noise / np.abs(noise), n=len(table), axis=0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "null",
    [
        "walk",
        "noise",
        "permuted sinusoid",
        "permuted walk",
        "phases of a sinusoid",
        "phases of a walk",
    ],
)
def test_null_models_rarely_have_either(null: str) -> None:
    draws, seam, special, d = 60, 0, 0, 32
    for seed in range(draws):
        n = (32, 128)[seed % 2]
        rng = np.random.default_rng([seed, n])
        match null:
            case "walk":
                table: Floats = walk(n, d, seed)
            case "noise":
                table = gaussian(n, d, seed)
            case "permuted sinusoid":
                table = rng.permutation(sinusoid(n, d))
            case "permuted walk":
                table = rng.permutation(walk(n, d, seed))
            case "phases of a sinusoid":
                table = _phases(sinusoid(n, d), rng)
            case _:
                table = _phases(walk(n, d, seed), rng)
        found = seams(table)
        seam += bool(found.between)
        special += bool(found.special)
    assert seam <= 0.05 * draws
    assert special <= 0.05 * draws


def _student(n: int, d: int, seed: int) -> Floats:
    return np.random.default_rng([seed, n]).standard_t(3, (n, d))


def _wandering(n: int, d: int, seed: int) -> Floats:
    """A walk with a pull to its mean, 10 positions long."""
    table = gaussian(n, d, seed)
    for row in range(1, n):
        table[row] = np.exp(-0.1) * table[row - 1] + np.sqrt(1 - np.exp(-0.2)) * table[row]
    return table


@pytest.mark.parametrize(
    "process",
    [
        _student,
        lambda n, d, seed: np.cumsum(_student(n, d, seed), axis=0),
        lambda n, d, seed: gaussian(n, d, seed) * np.abs(1 / _student(n, 1, seed)) ** 0.5,
        _wandering,
        lambda n, d, seed: smooth(n, d, 8.0, seed),
    ],
    ids=["heavy tails", "walk with heavy tails", "rows of any length", "pulled walk", "smooth"],
)
def test_long_steps_among_others_are_neither(
    process: Callable[[int, int, int], Floats],
) -> None:
    draws = 60
    found = [seams(process((64, 128)[seed % 2], 32, seed)) for seed in range(draws)]
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
