"""The table of a paper: its numbers, its formats, and text that could do something in them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from made_cli import Cli, cli

import posprobe as pp
from posprobe.errors import UsageError
from posprobe.text import format_cell, lookup

__all__ = ["cli"]

NUMBERS = ["positions", "dim", "pca.stable_rank"]
HOSTILE = "a|b&<script>x</script> \\input{x} $1$ _*[k](u) 50% --# \x1b[2J"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep over a random walk whose name is hostile, and a sinusoid."""
    place = tmp_path_factory.mktemp("sweep")
    walk = np.cumsum(np.random.default_rng(0).normal(size=(24, 6)), axis=0)
    hostile = place / f"=1+1 {HOSTILE.replace('/', '')}.npy"
    np.save(hostile, walk)
    references = [
        {"reference": str(hostile), "note": "=cmd|' /C calc'!A0"},
        {"reference": "sinusoidal:32x8", "note": "-1.5"},
    ]
    return pp.sweep(references, out=place / "s", only=["pca"], jobs=1).run().folder


@pytest.mark.parametrize("form", ["markdown", "latex"])
def test_numbers_and_bands_are_those_of_the_analysis(sweep: Path, form: str) -> None:
    reference = pp.read_sweep(sweep)["reference"][0].as_py()
    entry = pp.analyze(pp.load(reference), only=["pca"], nulls=3).to_dict()["nulls"][
        "numbers"
    ]
    band = entry["pca.stable_rank"]["walk"]
    text = pp.research_table(reference, numbers=NUMBERS, format=form, nulls=3)
    for number in (24, 6, entry["pca.stable_rank"]["value"], band["p5"], band["p95"]):
        assert format_cell(number) in text
    assert "5 to 95" in text
    assert "3 draws (seed 0)" in text
    assert "stable rank (sum of squared singular values over the largest)" in text
    assert f"Made with posprobe {pp.__version__}" in text
    # A sweep has the same numbers and no baselines.
    swept = pp.research_table(sweep, numbers=NUMBERS, format=form)
    assert format_cell(entry["pca.stable_rank"]["value"]) in swept
    assert "5 to 95" not in swept


def test_references_are_measured_as_far_as_needed_and_named() -> None:
    text = pp.research_table(
        ["sample:digits-vit", "sinusoidal:64x16", "rotary:64x16"],
        numbers=["dim", "pca.stable_rank", "grid.row_share", "rotation.pairs"],
        band="gaussian", nulls=2, rows=slice(0, 40),
    ).splitlines()  # fmt: skip
    table = pp.load("sinusoidal:64x16")[:40]
    rank = lookup(pp.analyze(table, only=["pca"], nulls=0).to_dict(), "pca.stable_rank")
    assert text[3].startswith(f"| sinusoidal:64x16 | 16 | {format_cell(rank)} <sub>")
    assert text[3].endswith("| – | – |")
    assert text[4] == "| rotary:64x16 | – | – | – | 8 |"
    assert ", positions 0 to 39: " in text[-3]
    assert re.search(r"sample:digits-vit, SHA-256 [0-9a-f]{12}\.", text[-1])


def test_foreign_text_does_nothing_in_any_format(sweep: Path) -> None:
    columns = [*NUMBERS, "user.note"]
    texts = {
        form: pp.research_table(sweep, numbers=columns, format=form)
        for form in ("markdown", "latex")
    }
    assert not any("\x1b" in text for text in texts.values())
    # A row of Markdown has as many cells as its head, and no tag.
    rows = [
        re.split(r"(?<!\\)\|", line)
        for line in texts["markdown"].splitlines()
        if "|" in line
    ]
    assert {len(row) for row in rows[:4]} == {len(columns) + 3}
    assert not re.findall(r"<[^>]*>", texts["markdown"])
    # Nothing of the name is a command, mathematics, a comment or another column of LaTeX.
    body = next(line for line in texts["latex"].splitlines() if line.startswith("=1+1"))
    assert len(re.findall(r"(?<!\\)&", body)) == len(columns)
    assert r"\input" not in texts["latex"]
    assert r"\textbackslash{}input\{x\} \$1\$ \_*{[}k{]}(u) 50\% -{}-\#" in body


def test_latex_writes_numbers_as_mathematics(tmp_path: Path) -> None:
    rows = [{"reference": "sinusoidal:8x4", "x": -2.5, "y": 1.2e-7}]
    swept = pp.sweep(rows, out=tmp_path / "s", only=["norms"], nulls=0, jobs=1).run()
    text = pp.research_table(swept.folder, numbers=["user.x", "user.y"], format="latex")
    assert r"sinusoidal:8x4 & $-2.5$ & $1.2\times 10^{-7}$ \\" in text
    for part in (r"\toprule", r"\midrule", r"\bottomrule", r"\caption{"):
        assert text.count(part) == 1


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        (
            {"numbers": ["pca.nonsense"]},
            r"'pca\.nonsense'\. Choose from pca\.stable_rank.*pca\.top3",
        ),
        ({"numbers": []}, "no number is chosen"),
        ({"format": "word"}, "markdown, latex"),
        ({"band": "sinusoid"}, "gaussian, permuted, walk, stationary"),
    ],
    ids=str,
)
def test_unknown_numbers_are_refused_with_the_known_ones(
    options: dict[str, list[str]], phrase: str, sweep: Path
) -> None:
    for source in (sweep, "sinusoidal:8x4"):
        with pytest.raises(UsageError, match=phrase):
            pp.research_table(source, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("participation", "Did you mean pca.participation_ratio?"),
        ("pca.top_3", "Did you mean pca.top3?"),
        ("dims", "Did you mean dim?"),
    ],
)
def test_an_unknown_number_is_met_with_near_names(name: str, near: str) -> None:
    with pytest.raises(UsageError, match=re.escape(near)):
        pp.research_table("sinusoidal:8x4", numbers=[name])


def test_a_sweep_table_needs_only_its_folder(sweep: Path) -> None:
    with pytest.raises(
        UsageError, match=r"'similarity\.raw\.far_mean'\. Choose from reference"
    ):
        pp.research_table(sweep, numbers=["similarity.raw.far_mean"])
    with pytest.raises(UsageError, match="a sweep stands alone"):
        pp.research_table([str(sweep), "sinusoidal:8x4"])
    # Without a choice the usual ones, as far as they are there.
    assert pp.research_table(sweep).startswith(
        "| table | positions | dim | participation ratio |"
    )


def test_the_command_prints_what_the_function_returns(sweep: Path, cli: Cli) -> None:
    options = ["--format", "latex", "--numbers", "dim,pca.top3", "--band", "none"]
    completed = cli("table", str(sweep), *options)
    expected = pp.research_table(
        sweep, numbers=["dim", "pca.top3"], format="latex", band=None
    )
    assert (completed.code, completed.out) == (0, expected)


@pytest.mark.parametrize(
    ("references", "band", "has_ranges", "says_why"),
    [
        (["sample:digits-vit"], "walk", False, True),
        (["sample:digits-vit", "sinusoidal:64x16"], "walk", True, True),
        (["sample:digits-vit"], "stationary", True, False),
        (["sinusoidal:64x16"], "walk", True, False),
    ],
)
def test_a_table_says_why_patches_have_no_range_by_walks(
    references: list[str], band: str, has_ranges: bool, says_why: bool
) -> None:
    table = pp.research_table(references, numbers=["pca.stable_rank"], band=band, nulls=2)
    assert ("5 to 95 %" in table.caption) == has_ranges
    why = "No walk is drawn of patches on a grid (digits-vit)"
    assert (why in table.caption) == says_why
