"""Patches of videos: read from configuration and kernel, decomposed, resized, and else refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_checkpoints import model_folder
from made_schemas import problems
from transformers import VivitConfig, VivitModel

import posprobe as pp
from posprobe.analyses import video_codes
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.families import inspect
from posprobe.layouts import Grid, Sequence, Video, describe_layout
from posprobe.relations.fingerprints import fingerprint, likeness, read_fingerprint
from posprobe.resizing.checkpoint import write_checkpoint

D = 16
KERNEL = {"patch_embed.proj.weight": np.zeros((D, 3, 2, 16, 16))}


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def video(frames: int = 4, height: int = 5, width: int = 6) -> pp.PositionTable:
    return pp.table(random(frames * height * width, D), grid=(frames, height, width))


@pytest.fixture(scope="module")
def vivit(tmp_path_factory: pytest.TempPathFactory) -> tuple[VivitModel, str]:
    """Return a small ViViT of 8 x 3 x 3 patches, and its folder."""
    torch.manual_seed(0)
    model = VivitModel(
        VivitConfig(
            image_size=48,
            num_frames=16,
            hidden_size=D,
            num_attention_heads=2,
            num_hidden_layers=1,
            intermediate_size=D,
        )
    )
    torch.nn.init.normal_(model.embeddings.position_embeddings)
    folder = tmp_path_factory.mktemp("vivit") / "model"
    model.save_pretrained(folder)
    return model, str(folder)


def test_the_rows_of_vivit_are_its_frames(vivit: tuple[VivitModel, str]) -> None:
    model, folder = vivit
    table = pp.load(folder)
    assert table.layout == Video(8, 3, 3)
    assert [row.token for row in table.prefix_rows] == ["CLS"]
    stored = model.embeddings.position_embeddings.detach().numpy()[0]
    np.testing.assert_array_equal(table.values, stored[1:])
    (encoding,) = inspect(folder)
    assert encoding["layout"] == {"type": "video", "frames": 8, "height": 3, "width": 3}
    assert encoding["why"] == "the configured video of 8 x 3 x 3"


@pytest.mark.parametrize(
    "config",
    [
        {"image_size": 80, "patch_size": 16, "num_frames": 8, "tubelet_size": 2},
        {"image_size": [80, 80], "num_frames": 8, "tubelet_size": [2, 16, 16]},
        {"image_size": 80, "patch_size": [16, 16], "frames_per_clip": 8},
    ],
    ids=str,
)
def test_what_a_configuration_leaves_out_is_in_the_kernel(
    config: dict[str, Any], tmp_path: Path
) -> None:
    tensors = {
        "pos_embed": random(1, 4 * 5 * 5, D),
        **KERNEL,
    }  # 10 x 10 would be a square
    assert pp.load(model_folder(tmp_path, tensors, **config)).layout == Video(4, 5, 5)


def test_a_video_of_unknown_length_is_refused_with_an_example(tmp_path: Path) -> None:
    tensors = {"pos_embed": random(1, 4 * 14 * 14, D), **KERNEL}
    path = model_folder(tmp_path, tensors)
    with pytest.raises(
        InvalidCheckpoint, match=r"784, 16.*`grid=\(4, 14, 14\)`.*`tensor="
    ):
        pp.load(path)
    assert pp.load(path, grid=(4, 14, 14)).layout == Video(4, 14, 14)
    assert pp.load(path, grid=(28, 28)).layout == Grid(28, 28)


@pytest.mark.parametrize("frames", [None, "many", [8], 1.5, -3, 2**70, True])
@pytest.mark.parametrize("tubelet", [None, [], ["2"], 0, {}])
def test_a_senseless_number_of_frames_makes_no_video(
    frames: Any, tubelet: Any, tmp_path: Path
) -> None:
    config = {"image_size": 80, "patch_size": 16, "num_frames": frames}
    tensors = {"pos_embed": random(1, 25, D)}
    path = model_folder(tmp_path, tensors, **config, tubelet_size=tubelet)
    assert pp.load(path).layout == Grid(5, 5)


def test_a_kernel_of_one_picture_leaves_the_table_a_grid(tmp_path: Path) -> None:
    kernel = {"patch_embed.proj.weight": np.zeros((D, 3, 1, 16, 16))}
    tensors = {"pos_embed": random(1, 26, D), "cls_token": random(1, 1, D), **kernel}
    assert pp.load(model_folder(tmp_path, tensors)).layout == Grid(5, 5)


def test_timesformer_has_a_table_for_each_picture_and_one_of_time(tmp_path: Path) -> None:
    tensors = {
        "embeddings.position_embeddings": random(1, 26, D),
        "embeddings.time_embeddings": random(1, 8, D),
        "embeddings.cls_token": random(1, 1, D),
    }
    config = {"model_type": "timesformer", "image_size": 80, "patch_size": 16}
    path = model_folder(tmp_path, tensors, **config, num_frames=8)
    layouts = {encoding["tensor"]: encoding["layout"] for encoding in inspect(path)}
    assert layouts["embeddings.position_embeddings"] == describe_layout(Grid(5, 5))
    assert layouts["embeddings.time_embeddings"] == describe_layout(Sequence(8))


@pytest.mark.parametrize("size", [(8, 7, 9), (2, 3, 4), (4, 5, 12), (5, 5, 6)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_resizing_is_pytorchs_trilinear(size: tuple[int, ...], dtype: Any) -> None:
    values = random(4 * 5 * 6, D).astype(dtype)
    resized = pp.resize(pp.table(values, grid=(4, 5, 6)), to=size, how="trilinear")
    patches = torch.tensor(values).reshape(1, 4, 5, 6, D).permute(0, 4, 1, 2, 3)
    expected = torch.nn.functional.interpolate(
        patches, size=size, mode="trilinear", align_corners=False
    )
    assert resized.layout == Video(*size)
    np.testing.assert_allclose(
        resized.values,
        expected[0].permute(1, 2, 3, 0).reshape(-1, D).numpy(),
        rtol=0,
        atol=8 * np.finfo(dtype).eps,
    )


def test_a_resized_copy_is_what_the_library_builds(
    vivit: tuple[VivitModel, str], tmp_path: Path
) -> None:
    _, folder = vivit
    table = pp.load(folder)
    resized = pp.resize(table, to=(4, 6, 6), how="trilinear")
    copied = write_checkpoint(folder, resized, tmp_path / "copy")
    config = json.loads((tmp_path / "copy" / "config.json").read_text())
    assert (config["image_size"], config["num_frames"]) == (96, 8)
    assert set(copied.keys) == {"image_size", "num_frames"}
    model: Any = VivitModel.from_pretrained(tmp_path / "copy")
    embeddings = model.embeddings.position_embeddings.detach().numpy()[0]
    np.testing.assert_array_equal(embeddings[1:], resized.values)
    np.testing.assert_array_equal(embeddings[:1], table.prefix)
    report = pp.check(folder, str(tmp_path / "copy"))
    (finding,) = report.causes
    assert (finding.a, finding.b) == ([8, 3, 3], [4, 6, 6])


def test_the_codes_have_the_shares_that_were_planted() -> None:
    codes = [random(n, D, seed=n) for n in (4, 5, 6)]
    codes = [code - code.mean(axis=0) for code in codes]
    frames, rows, columns = codes
    values = 2 * frames[:, None, None] + rows[:, None] + 0.5 * columns
    result = video_codes(pp.table(values.reshape(-1, D), grid=(4, 5, 6)))
    variances = np.array(
        [np.sum((w * c) ** 2) / len(c) for w, c in zip((2, 1, 0.5), codes, strict=True)]
    )
    shares = [code.share for code in result.axes.values()]
    np.testing.assert_allclose(shares, variances / variances.sum(), rtol=1e-6)
    assert list(result.axes) == ["frames", "rows", "columns"]
    assert abs(result.interaction_share) < 1e-12
    assert result.frames is not None
    np.testing.assert_allclose(result.frames.code, 2 * frames, atol=1e-6)


def test_noise_is_in_no_code() -> None:
    result = video_codes(video(8, 10, 10))
    assert result.interaction_share > 0.9
    constant = pp.table(np.ones((8, D)), grid=(2, 2, 2))
    assert "no variance" in video_codes(constant).undefined
    assert "no video" in video_codes(pp.sinusoidal(8, D)).undefined


def test_an_analysis_holds_the_three_codes_and_asks_nothing(tmp_path: Path) -> None:
    analysis = pp.analyze(video())
    document = analysis.to_dict()
    assert problems("analysis", document) == []
    assert "verdict" not in document
    assert document["table"]["layout"]["type"] == "video"
    shares = [
        document["video_codes"][axis]["share"] for axis in ("frames", "rows", "columns")
    ]
    assert sum(shares) == pytest.approx(document["video_codes"]["additive_share"])
    (note,) = analysis.table.notes
    assert "time code plus a row code plus a column code" in note
    assert "--rows 0:30" in note
    folder = analysis.save(tmp_path / "bundle")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "4 frames × 5 × 6 patches" in page
    assert not {"similarity", "mosaic", "axis_codes"} & {
        path.stem for path in (folder / "figures").iterdir()
    }


def test_the_figure_names_the_three_axes() -> None:
    figure = pp.analyze(video()).figures()["video_codes"]()
    titles = [subfigure.get_suptitle() for subfigure in figure.subfigs]
    assert [title.split(" code")[0] for title in titles] == ["time", "row", "column"]


def test_one_frame_is_a_grid_and_whole_frames_are_a_video() -> None:
    table = video()
    assert table[30:60].layout == Grid(5, 6)
    assert table[30:42].layout == Grid(2, 6)
    assert table[30:120].layout == Video(3, 5, 6)
    assert table[24:36].layout == Sequence(12)
    assert any("video of 4 x 5 x 6" in note for note in table[24:36].notes)


@pytest.mark.parametrize(
    "use",
    [
        pp.similarity,
        pp.pca,
        pp.spectrum,
        pp.axis_codes,
        pp.budget,
        lambda table: pp.compare(table, table),
        lambda table: pp.surrogate(table, "independent"),
        lambda table: pp.analyze(table, only=("pca",)),
        lambda table: pp.paper_figure("similarity", table),
        lambda table: pp.resize(table, to=(30, 30), how="bicubic"),
        lambda table: pp.resize(table, to=(2, 2, 2), how="bicubic"),
    ],
)
def test_what_is_known_of_lines_and_grids_only_is_refused(
    use: Callable[[pp.PositionTable], Any],
) -> None:
    with pytest.raises(UsageError, match="video of 4 x 5 x 6"):
        use(video())


def test_a_fingerprint_keeps_the_layout() -> None:
    sketch = fingerprint(video())
    copy = read_fingerprint(json.loads(json.dumps(sketch.to_dict())))
    assert copy is not None
    assert copy.layout == Video(4, 5, 6)
    assert likeness(sketch, copy).relation == "identical"
    larger = fingerprint(pp.resize(video(), to=(8, 5, 6), how="trilinear"))
    assert likeness(sketch, larger).distance is None
