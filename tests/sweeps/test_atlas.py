"""The atlas of a sweep: what it keeps of each matrix, where it puts tables, and what it weighs."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.decomposition import PCA

import posprobe as pp
from posprobe.measurements import compared_numbers
from posprobe.sweeps.atlas import (
    LENGTH,
    MOST,
    SIDE,
    Atlas,
    _map,
    image,
    is_thumbnail,
    levels_of,
    thumbnail,
)

ABOUT = {
    "options": {"only": None, "rows": None, "nulls": 9},
    "environment": {"command": "x", "seed": 0, "posprobe": "1", "created": "now"},
}


def cosines(n: int, seed: int = 0) -> NDArray[np.float64]:
    rows = np.cumsum(np.random.default_rng(seed).normal(size=(n, 5)), axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    matrix: NDArray[np.float64] = rows @ rows.T
    return matrix


def square(text: str) -> NDArray[np.float64]:
    matrix = np.empty((SIDE, SIDE))
    matrix[np.tril_indices(SIDE)] = levels_of(text)
    upper = np.triu_indices(SIDE)
    matrix[upper] = matrix.T[upper]
    return matrix


@pytest.mark.parametrize("n", [2, 3, 24, 25, 100, 240])
def test_a_thumbnail_holds_means_of_blocks(n: int) -> None:
    matrix = cosines(n)
    kept = square(thumbnail(matrix))
    for i, j in ((0, 0), (23, 0), (11, 5), (23, 23)):
        sides = [slice(k * n // SIDE, max((k + 1) * n // SIDE, k * n // SIDE + 1)) for k in (i, j)]
        assert kept[i, j] == pytest.approx(matrix[sides[0], sides[1]].mean(), abs=0.5 / 7 + 1e-9)


def test_what_is_undefined_counts_for_nothing_and_stays_undefined() -> None:
    matrix = cosines(48)
    matrix[7] = matrix[:, 7] = np.nan  # a zero row shares its cell with another
    matrix[20:22] = matrix[:, 20:22] = np.nan  # and two fill theirs
    kept = square(thumbnail(matrix))
    assert kept[3, 3] == 1  # the cosine of row 6 with itself
    assert np.isnan(kept[10]).all()
    assert np.isnan(kept).sum() == 2 * SIDE - 1
    assert is_thumbnail(thumbnail(np.full((5, 5), np.nan)))
    for other in (None, 3, "a" * (LENGTH - 1), "a" * LENGTH + "\n", "q" * LENGTH):
        assert not is_thumbnail(other)


def test_its_picture_shows_the_cells() -> None:
    matrix = np.outer(signs := np.where(np.arange(24) < 9, 1.0, -1.0), signs)
    matrix[0] = matrix[:, 0] = 0
    found = re.search(r"base64,([^\"]+)", image(thumbnail(matrix)))
    assert found
    content = base64.b64decode(found[1])
    assert len(content) < 600
    with Image.open(BytesIO(content)) as drawn:
        pixels = np.asarray(drawn.convert("RGB")).astype(int)
    red, blue = pixels[..., 0] - pixels[..., 2], pixels[..., 2] - pixels[..., 0]
    assert (red[1:9, 1:9] > 60).all()
    assert (blue[1:9, 9:] > 60).all()
    assert np.ptp(pixels[0, 3]) == 0


def test_the_map_is_that_of_scikit_learn() -> None:
    texts = [thumbnail(cosines(20 + 10 * k, seed=k)) for k in range(12)]
    x, y, share = _map([*texts[:5], None, *texts[5:]])
    assert x[5] is None
    assert y[5] is None
    placed = np.array([pair for pair in zip(x, y, strict=True) if None not in pair], dtype=float)
    fit = PCA(2)
    expected = fit.fit_transform(np.stack([square(text).ravel() for text in texts]))
    np.testing.assert_allclose(np.abs(placed), np.abs(expected), rtol=2e-3, atol=2e-3)
    assert share == pytest.approx(fit.explained_variance_ratio_.sum())
    # Two tables, or copies of one, have no map.
    assert _map(texts[:2])[2] is None
    assert _map(texts[:1] * 4)[2] is None


def row(at: int) -> dict[str, Any]:
    rng = np.random.default_rng(at)
    numbers = {key: rng.normal() for key in compared_numbers()}
    about = {"name": f"organisation/model-{at}", "reference": f"organisation/model-{at}@{at:040d}"}
    sizes = {"positions": 512, "dim": 768, "family": "bert", "scheme": "learned"}
    answers = {f"answers.{name}": "cannot tell" for name in ("order", "smooth", "rotations")}
    return about | sizes | answers | numbers | {"thumbnail": thumbnail(cosines(100, seed=at))}


def test_a_thousand_tables_stay_under_three_megabytes() -> None:
    atlas = Atlas({"size": "double", "note": "string"})
    for at in range(1000):
        own = {"user.size": at / 7, "user.note": f"a note of some length {at}"}
        atlas.add([row(at % 50) | own])
    counts = {"rows": 1000, "references": 1000, "failures": 0}
    assert len("".join(atlas.page(ABOUT, counts)).encode()) < 3_000_000
    for _ in range(MOST):
        atlas.add([{"reference": "x", "dim": 3}])
    page = "".join(atlas.page(ABOUT, counts))
    assert f"The first {MOST:,} of {MOST + 1000:,} rows are shown" in page


def test_a_page_is_never_in_memory_as_a_whole() -> None:
    atlas, counts = Atlas({}), {"rows": 0, "references": 0, "failures": 0}
    for at in range(400):
        atlas.add([row(at % 10)])
    for _ in atlas.page(ABOUT, counts):  # templates and palette are kept once they were needed
        pass
    pieces = atlas.page(ABOUT, counts)
    tracemalloc.start()
    try:
        size = sum(map(len, pieces))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < size


def test_a_sweep_ends_with_its_atlas(tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)> `x`"
    given = [
        {"reference": "sinusoidal:30x8", hostile: hostile},
        {"reference": "sinusoidal:20x6", hostile: "=x"},
        {"reference": "./nowhere"},
    ]
    options: dict[str, Any] = {"nulls": 0, "engine": "threads", "out": tmp_path / "s"}
    swept = pp.sweep(given, only=["similarity"], bundles=True, command=hostile, **options).run()
    page = (tmp_path / "s" / "atlas.html").read_text(encoding="utf-8")
    assert "<img src=x" not in page
    assert page.count("</script>") == page.count("<script") == 2
    assert len(re.findall(r'<img src="data:image/png;base64,[\w+/=]+" alt=""', page)) == 2
    (bundle, _) = swept.to_arrow()["bundle"].to_pylist()
    assert f'href="{bundle}/report.html"' in page
    assert (tmp_path / "s" / bundle / "report.html").is_file()
    assert "1 failed" in page
    # Nothing from elsewhere may run or be asked for.
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert policy
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'; base-uri 'none'" in policy[1]
    assert policy[1].startswith("default-src 'none'; img-src data:; ")
    data = re.search(r'<script type="application/json" id="analysis">(.*?)</script>', page)
    assert data
    atlas = json.loads(data[1])["atlas"]
    assert {group["label"]: group["values"] for group in atlas["groups"]}[hostile] == [
        hostile, "=x",
    ]  # fmt: skip
    # What is kept beside a row is no column.
    assert "thumbnail" not in swept.to_arrow().column_names


def test_an_atlas_without_matrices_numbers_or_rows_is_a_page(tmp_path: Path) -> None:
    for name, references in (("none", ["./nowhere"]), ("few", ["rotary:64x8", "alibi:32x4"])):
        swept = pp.sweep(references, out=tmp_path / name, engine="threads", nulls=0).run()
        page = (swept.folder / "atlas.html").read_text(encoding="utf-8")
        assert "There is no map" in page
