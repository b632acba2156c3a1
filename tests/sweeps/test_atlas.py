"""The atlas of a sweep: what it keeps of each matrix, where it puts tables, and what it weighs."""

from __future__ import annotations

import base64
import hashlib
import re
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import posprobe as pp
from posprobe.measurements import compared_numbers
from posprobe.sweeps.atlas import (
    MAX_ATLAS_ROWS,
    THUMBNAIL_CELLS,
    atlas,
    is_thumbnail,
    thumbnail,
)
from posprobe.words.comparisons import sweep_headline

METADATA = {
    "options": {"only": None, "rows": None, "nulls": 9},
    "environment": {"command": "x", "seed": 0, "posprobe": "1", "created": "now"},
}


def cosines(n: int, seed: int = 0) -> NDArray[np.float64]:
    rows = np.cumsum(np.random.default_rng(seed).normal(size=(n, 5)), axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    matrix: NDArray[np.float64] = rows @ rows.T
    return matrix


def pixels(text: str) -> NDArray[np.int64]:
    with Image.open(BytesIO(base64.b64decode(text))) as image:
        return np.asarray(image.convert("RGB")).astype(np.int64)


def test_a_thumbnail_shows_means_of_blocks_in_red_and_blue() -> None:
    signs = np.where(np.arange(96) < 36, 1.0, -1.0)
    thumbnail_pixels = pixels(thumbnail(np.outer(signs, signs)))
    assert thumbnail_pixels.shape == (THUMBNAIL_CELLS, THUMBNAIL_CELLS, 3)
    red, blue = (
        thumbnail_pixels[..., 0] - thumbnail_pixels[..., 2],
        thumbnail_pixels[..., 2] - thumbnail_pixels[..., 0],
    )
    assert (red[:9, :9] > 60).all()
    assert (red[9:, 9:] > 60).all()
    assert (blue[:9, 9:] > 60).all()
    # Half of a block cancels the other half.
    stripes = np.where(np.arange(96) % 2, 1.0, -1.0)
    white = pixels(thumbnail(np.outer(stripes, np.ones(96))))
    assert (np.ptp(white, axis=2) == 0).all()


@pytest.mark.parametrize("n", [1, 2, 25])
def test_undefined_cosines_are_grey(n: int) -> None:
    matrix = np.ones((n, n))
    matrix[0] = matrix[:, 0] = np.nan
    thumbnail_pixels = pixels(thumbnail(matrix))
    assert (thumbnail_pixels[0] == 150).all()
    assert (thumbnail_pixels[-1, -1, 0] == 150) == (n == 1)


def test_only_short_base64_is_put_on_a_page() -> None:
    assert is_thumbnail(thumbnail(np.random.default_rng(0).normal(size=(100, 100))))
    for bad_thumbnail in (
        None,
        3,
        "",
        'a" onerror=x',
        "abcd",
        "iVBORw0KGgo" + "a" * 4000,
    ):
        assert not is_thumbnail(bad_thumbnail)


def row(index: int) -> dict[str, Any]:
    rng = np.random.default_rng(index)
    numbers = {key: rng.normal() for key in compared_numbers()}
    columns = {
        "name": f"organisation/model-{index}",
        "reference": f"organisation/model-{index}@{index:040d}",
    }
    sizes = {"positions": 512, "dim": 768, "family": "bert", "scheme": "learned"}
    answers = {
        f"answers.{name}": "cannot tell" for name in ("order", "smooth", "rotations")
    }
    return (
        columns
        | sizes
        | answers
        | numbers
        | {"thumbnail": thumbnail(cosines(100, seed=index))}
    )


def test_a_thousand_tables_stay_under_three_megabytes() -> None:
    user_columns: dict[str, Any] = {"user.size": "double", "user.note": "string"}
    rows: list[dict[str, Any]] = [
        row(index % 50)
        | {"user.size": index / 7, "user.note": f"a note of some length {index}"}
        for index in range(1000)
    ]
    counts = {"rows": 1000, "references": 1000, "failures": 0}
    assert len("".join(atlas(rows, user_columns, METADATA, counts)).encode()) < 3_000_000
    all_rows: list[dict[str, Any]] = [
        *rows,
        *[{"reference": "x", "dim": 3}] * MAX_ATLAS_ROWS,
    ]
    assert (
        f"The first {MAX_ATLAS_ROWS:,} of {MAX_ATLAS_ROWS + 1000:,} rows are shown"
        in "".join(atlas(all_rows, user_columns, METADATA, counts))
    )


def test_a_page_is_never_in_memory_as_a_whole() -> None:
    rows, counts = (
        [row(index % 10) for index in range(400)],
        {"rows": 0, "references": 0, "failures": 0},
    )
    for _ in atlas(
        rows, {}, METADATA, counts
    ):  # templates are kept once they were needed
        pass
    pieces = atlas(rows, {}, METADATA, counts)
    tracemalloc.start()
    try:
        size = sum(map(len, pieces))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < size


def test_a_sweep_ends_with_its_atlas(tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)> `x`"
    references = [
        {"reference": "sinusoidal:30x8", hostile: hostile},
        {"reference": "sinusoidal:20x6", hostile: "=x"},
        {"reference": "./nowhere"},
    ]
    options: dict[str, Any] = {"nulls": 0, "jobs": 1, "out": tmp_path / "s"}
    swept = pp.sweep(
        references, only=["similarity"], bundles=True, command=hostile, **options
    ).run()
    page = (tmp_path / "s" / "atlas.html").read_text(encoding="utf-8")
    assert "<img src=x" not in page
    assert page.count("</script>") == page.count("<script") == 1
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
    assert page.count("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;") >= 2
    # What is kept beside a row is no column.
    assert "thumbnail" not in swept.to_arrow().column_names


def test_an_atlas_without_matrices_or_rows_is_a_page(tmp_path: Path) -> None:
    for name, references in (
        ("none", ["./nowhere"]),
        ("few", ["rotary:64x8", "alibi:32x4"]),
    ):
        swept = pp.sweep(references, out=tmp_path / name, jobs=1, nulls=0).run()
        page = (swept.folder / "atlas.html").read_text(encoding="utf-8")
        assert f"{len(swept.to_arrow())} position tables and encodings of" in page


def test_the_headline_counts_what_tables_do() -> None:
    rows: list[dict[str, Any]] = [
        {"reference": "a", "lineage": "a", "answers.order": "yes", "answers.seams": "yes"},
        {"reference": "b", "lineage": "a", "answers.order": "yes", "answers.rotations": "yes"},
        {"reference": "c", "lineage": "c", "answers.order": "no", "answers.axis_rotations": "yes"},
        {"reference": "d", "answers.order": "yes", "budget.untrained": 0.2},
        {"reference": "e", "answers.rotary_turns": "no"},
    ]  # fmt: skip
    headline = sweep_headline(rows)
    assert headline == (
        "Of 4 tables, 2 rotate, 1 breaks, 1 has untrained rows and 1 comes from another. "
        "1 encoding has no table."
    )
    assert sweep_headline([{"reference": "a", "pca.top3": 0.5}]) == ""


def test_answers_come_first_and_rotary_numbers_have_columns() -> None:
    rows: list[dict[str, Any]] = [
        row(0) | {"bundle": "bundles/x"},
        {"reference": "r", "scheme": "rotary", "base": 1e4, "rotation.pairs": 8,
         "answers.rotary_turns": "no"},
    ]  # fmt: skip
    counts = {"rows": 2, "references": 2, "failures": 0}
    page = "".join(atlas(rows, {}, METADATA, counts))
    headings = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', page)
    assert headings.index("Order matters?") < headings.index("positions")
    assert headings.index("base of the frequencies") < headings.index("family")
    assert headings[-1] == "kind"
    assert 'href="bundles/x/report.html"' in page
