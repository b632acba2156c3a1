"""Tables of another size: closed forms, the libraries' own numbers, and what is refused."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from timm.layers.pos_embed import resample_abs_pos_embed

import posprobe as pp
from posprobe.errors import UsageError
from posprobe.resizing import GRID_WAYS, SEQUENCE_WAYS, VIDEO_WAYS, WAYS

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

DIGITS = "sample:digits-vit"


def random_table(*shape: int, grid: tuple[int, int] | None = None) -> pp.PositionTable:
    values = np.random.default_rng(0).normal(size=shape)
    return pp.table(values.astype(np.float32), grid=grid)


def waves(
    size: int, frequencies: tuple[float, ...], width: int = 12
) -> NDArray[np.float64]:
    """Sinusoids of a few frequencies, in cycles per position, mixed into all columns."""
    time = np.arange(size)[:, None]
    angles = 2 * np.pi * time * np.array(frequencies)
    basis = np.concatenate([np.ones((size, 1)), np.cos(angles), np.sin(angles)], axis=1)
    return basis @ np.random.default_rng(1).normal(size=(basis.shape[1], width))


# Closed forms.


@pytest.mark.parametrize("size", [5, 33, 100])
@pytest.mark.parametrize("way", ["linear", "cubic"])
def test_a_straight_line_stays_one(way: str, size: int) -> None:
    slope = np.random.default_rng(0).normal(size=6)
    table = pp.table(np.arange(33)[:, None] * slope)
    resized = pp.resize(table, to=size, how=way).values
    np.testing.assert_allclose(
        resized, np.linspace(0, 32, size)[:, None] * slope, atol=1e-12
    )


def test_a_cubic_polynomial_is_its_own_spline() -> None:
    resized = pp.resize(
        pp.table(np.linspace(-1, 1, 9)[:, None] ** [1, 2, 3]), to=50, how="cubic"
    )
    np.testing.assert_allclose(
        resized.values, np.linspace(-1, 1, 50)[:, None] ** [1, 2, 3], atol=1e-12
    )


@pytest.mark.parametrize(
    ("old", "new"), [(24, 36), (24, 25), (25, 60), (25, 14), (24, 16)]
)
def test_fourier_is_exact_where_a_table_is_periodic(old: int, new: int) -> None:
    def periodic(size: int) -> NDArray[np.float64]:
        angles = 2 * np.pi * np.arange(size)[:, None] / size * np.array([0, 1, 3, 5])
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)

    resized = pp.resize(pp.table(periodic(old)), to=new, how="fourier")
    np.testing.assert_allclose(resized.values, periodic(new), atol=1e-12)


def test_sinusoids_go_on() -> None:
    frequencies = (1 / 17.3, 1 / 6.1)
    resized = pp.resize(pp.table(waves(64, frequencies)), to=200, how="sinusoids").values
    np.testing.assert_allclose(resized, waves(200, frequencies), atol=1e-6)


def test_sinusoids_of_a_grid_go_on_along_both_axes() -> None:
    rows, columns = waves(40, (1 / 9.1,), 4), waves(50, (1 / 7.3,), 4)
    cells = rows[:, None] * columns[None, :]
    old_table = pp.table(cells[:24, :24].reshape(-1, 4), grid=(24, 24))
    resized = pp.resize(old_table, to=(40, 50), how="sinusoids").values
    np.testing.assert_allclose(resized, cells.reshape(-1, 4), atol=1e-5)


def test_tiles_and_repeated_rows() -> None:
    table = random_table(5, 3)
    longer = [0, 1, 2, 3, 4, 0, 1]
    assert np.array_equal(pp.resize(table, to=7, how="tile").values, table.values[longer])
    repeated = pp.resize(table, to=7, how="repeat-last")
    assert np.array_equal(repeated.values, table.values[[0, 1, 2, 3, 4, 4, 4]])
    cells = np.arange(6, dtype=np.float32).reshape(6, 1)
    grid = pp.resize(pp.table(cells, grid=(2, 3)), to=(3, 4), how="tile")
    assert grid.values.ravel().tolist() == [0, 1, 2, 0, 3, 4, 5, 3, 0, 1, 2, 0]


@pytest.mark.parametrize("way", ["tile", "sinusoids", "repeat-last"])
def test_ways_that_continue_keep_the_old_rows(way: str) -> None:
    table = random_table(20, 6)
    assert np.array_equal(pp.resize(table, to=31, how=way).values[:20], table.values)
    assert np.array_equal(pp.resize(table, to=9, how=way).values, table.values[:9])


@pytest.mark.parametrize("way", SEQUENCE_WAYS)
def test_the_same_size_is_the_same_sequence(way: str) -> None:
    table = random_table(12, 4)
    assert np.array_equal(pp.resize(table, to=12, how=way).values, table.values)


@pytest.mark.parametrize("way", GRID_WAYS)
def test_the_same_size_is_the_same_grid(way: str) -> None:
    table = pp.load(DIGITS)
    assert np.array_equal(pp.resize(table, to=(8, 8), how=way).values, table.values)


@pytest.mark.parametrize("way", SEQUENCE_WAYS[:4])
def test_a_single_row_becomes_many(way: str) -> None:
    resized = pp.resize(random_table(1, 4), to=3, how=way).values
    np.testing.assert_allclose(
        resized, np.repeat(random_table(1, 4).values, 3, axis=0), rtol=1e-6
    )


@pytest.mark.parametrize("way", SEQUENCE_WAYS)
def test_a_constant_table_stays_constant(way: str) -> None:
    resized = pp.resize(pp.table(np.full((10, 3), 2.5)), to=23, how=way)
    np.testing.assert_allclose(resized.values, 2.5, atol=1e-12)


# The libraries.


@pytest.mark.parametrize("way", ["bicubic", "bilinear"])
@pytest.mark.parametrize("size", [(12, 12), (7, 10), (4, 4)])
def test_timm_has_the_same_bits(way: str, size: tuple[int, int]) -> None:
    table = pp.load(DIGITS)
    assert table.prefix is not None
    stored = torch.from_numpy(np.concatenate([table.prefix, table.values]))[None]
    expected = resample_abs_pos_embed(
        stored, list(size), num_prefix_tokens=1, interpolation=way
    )
    ours = pp.resize(table, to=size, how=way)
    assert np.array_equal(ours.values, expected[0, 1:].numpy())
    assert ours.prefix is not None
    assert np.array_equal(ours.prefix, expected[0, :1].numpy())
    assert ours.values.dtype == np.float32


def models() -> dict[str, tuple[Any, Any]]:
    """Return tiny vision models of transformers, and their embeddings."""
    import transformers as library

    sizes: dict[str, Any] = {
        "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
        "image_size": 20, "patch_size": 4,
    }  # fmt: skip
    vit = library.ViTModel(library.ViTConfig(**sizes))
    deit = library.DeiTModel(library.DeiTConfig(**sizes))
    clip = library.CLIPVisionModel(library.CLIPVisionConfig(**sizes))
    siglip = library.SiglipVisionModel(library.SiglipVisionConfig(**sizes))

    def inside(model: Any) -> Any:
        return next(m for m in model.modules() if hasattr(m, "interpolate_pos_encoding"))

    return {
        "vit": (vit, inside(vit)),
        "deit": (deit, inside(deit)),
        "clip": (clip, inside(clip)),
        "siglip": (siglip, inside(siglip)),
    }


@pytest.mark.parametrize("size", [(9, 9), (3, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transformers_has_the_same_bits(
    size: tuple[int, int], dtype: torch.dtype, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    for name, (model, embeddings) in models().items():
        model.to(dtype)
        model.save_pretrained(tmp_path / name)
        table = pp.load(str(tmp_path / name))
        special = 0 if table.prefix is None else len(table.prefix)
        patches = torch.zeros(1, size[0] * size[1] + special, 8)
        with torch.no_grad():
            expected = embeddings.interpolate_pos_encoding(
                patches, 4 * size[0], 4 * size[1]
            )
        ours = pp.resize(table, to=size, how="transformers")
        assert np.array_equal(ours.values, expected[0, special:].float().numpy()), name


# What is refused.


@pytest.mark.parametrize(
    ("table", "size", "way", "says"),
    [
        (
            random_table(8, 4),
            (3, 3),
            "linear",
            "sequence of 8, so that its new size reads as",
        ),
        (random_table(8, 4), 16, "bicubic", "'bicubic' does not resize a sequence of 8"),
        (
            random_table(8, 4),
            16,
            "nearest",
            "'nearest' is not a method. Choose one of linear",
        ),
        (random_table(8, 4), 0, "linear", "a size of 0 is smaller than one position"),
        (random_table(8, 4), 2**40, "linear", "at most 134,217,728 are made"),
        (random_table(6, 4), 12, "sinusoids", "fitted to 8 rows at least"),
        (random_table(6, 4, grid=(2, 3)), 12, "tile", "reads ROWSxCOLUMNS"),
        (random_table(6, 4, grid=(2, 3)), (0, 3), "tile", "smaller than one patch"),
        (
            random_table(6, 4, grid=(2, 3)),
            (4, 4),
            "linear",
            "does not resize a grid of 2 x 3",
        ),
    ],
)
def test_impossible_sizes_are_refused(
    table: pp.PositionTable, size: int | tuple[int, int], way: str, says: str
) -> None:
    with pytest.raises(UsageError) as refused:
        pp.resize(table, to=size, how=way)
    assert says in str(refused.value)


def test_every_way_that_is_offered_is_one_of_some_layout() -> None:
    assert {*GRID_WAYS, *SEQUENCE_WAYS, *VIDEO_WAYS} == {*WAYS}
    texts = json.loads((files("posprobe") / "cli/options.json").read_bytes())
    for kind, ways in (("Grids", GRID_WAYS), ("Sequences", SEQUENCE_WAYS)):
        assert f"{kind}: {', '.join(ways)}." in texts["resize"]["method"]["help"]
