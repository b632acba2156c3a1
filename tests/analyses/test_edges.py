"""Numbers, tables and surroundings at the edge end in one clear sentence with the right code."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limits import Limits, posprobe
from made_cli import Cli, assert_one_clear_error, cli

import posprobe as pp
from posprobe.errors import OUT_OF_MEMORY, InvalidTable, UsageError
from posprobe.schemes import RelativeBias

__all__ = ["cli"]

SQUARES: tuple[Callable[[Any], Any], ...] = (
    pp.norms, pp.seams, pp.similarity, pp.spectrogram, pp.spectrum,
)  # fmt: skip
SUMS: tuple[Callable[[Any], Any], ...] = (
    pp.axis_codes, pp.bridging, pp.budget, pp.pca, pp.shift, pp.winding,
)  # fmt: skip


@pytest.mark.parametrize(
    ("measure", "reach"),
    [
        *((measure, reach) for measure in SQUARES for reach in (1e160, 1e308, 1e-200)),
        *((measure, 1e308) for measure in SUMS),
    ],
)
def test_a_measurement_of_numbers_at_the_edge_is_refused_by_name(
    measure: Callable[[Any], Any], reach: float
) -> None:
    table = np.random.default_rng(0).uniform(-1, 1, (16, 16))
    with pytest.raises(InvalidTable, match=r"reach .* Scale the table"):
        measure(pp.table(table / np.abs(table).max() * reach, grid=(4, 4)))


@pytest.mark.parametrize("exponent", [-460, 460])
def test_what_has_no_units_is_the_same_up_to_the_edge(exponent: int) -> None:
    # By a power of two, which changes no digit.
    table = np.cos(np.arange(96)[:, None] * 1e4 ** -(np.arange(16) / 16))
    one, other = (
        (pp.spectrum(part), pp.spectrogram(part), pp.winding(part))
        for part in (table, np.ldexp(table, exponent))
    )
    noise, scaled = (np.asarray(each[0].threshold) / each[0].power for each in (one, other))
    np.testing.assert_allclose(noise, scaled)
    np.testing.assert_allclose(one[1].strongest, other[1].strongest)
    assert one[2].radius_cv == pytest.approx(other[2].radius_cv)


@pytest.mark.parametrize("reach", [1e150, 1e-170])
def test_biases_at_the_edge_are_refused_by_name(reach: float) -> None:
    (bias,) = pp.load_schemes("t5:32x8")
    assert isinstance(bias, RelativeBias)
    with pytest.raises(InvalidTable, match=r"t5:32x8.* reach .* Scale them"):
        replace(bias, values=bias.values / np.abs(bias.values).max() * reach)


def test_radii_whose_squares_leave_the_range_vary_as_others_do() -> None:
    circle = np.stack([np.cos(0.3 * np.arange(64)), 2 * np.sin(0.3 * np.arange(64))], axis=1)
    assert pp.winding(circle).radius_cv == pytest.approx(pp.winding(circle * 1e200).radius_cv)


def test_a_table_with_too_many_rows_is_refused_before_its_numbers_are_widened(
    tmp_path: Path,
) -> None:
    with (tmp_path / "t.npy").open("wb") as file:
        shape, width = (2**18, 512), 4  # 512 MiB, of which the file holds nothing
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + shape[0] * shape[1] * width)
    # As float64 the numbers would take 1 GiB; whether each is finite takes an eighth of one.
    done = posprobe("analyze", "t.npy", "--quiet", cwd=tmp_path, limits=Limits(memory=2**29))
    assert_one_clear_error(done, 4)
    assert "262144 positions" in done.err


def test_where_memory_runs_out_the_code_is_not_that_of_a_bug(tmp_path: Path) -> None:
    done = posprobe(
        "analyze", "sinusoidal:20000x1000", "--quiet", cwd=tmp_path,
        limits=Limits(memory=300 * 2**20),
    )  # fmt: skip
    assert_one_clear_error(done, OUT_OF_MEMORY)
    assert "out of memory" in done.err


@pytest.mark.parametrize("files", [5, 6, 7])
def test_out_of_file_descriptors_nothing_is_left(files: int, tmp_path: Path) -> None:
    words = ("analyze", "sinusoidal:16x4", "--only", "norms", "--nulls", "0", "--out", "b")
    done = posprobe(*words, "--quiet", cwd=tmp_path, limits=Limits(files=files))
    left = [path.name for path in tmp_path.iterdir()]
    assert left == (["b"] if done.code == 0 else [])


@pytest.mark.parametrize("words", ["analyze sample:digits-vit --only norms", "sweep rotary:64x8"])
def test_a_working_directory_that_was_deleted_is_no_bug(
    words: str, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert_one_clear_error(cli(*words.split(), "--quiet"), UsageError.exit_code)
