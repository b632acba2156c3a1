"""``posprobe compare``: a formula takes the first table's shape, and what was cut is said."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from made_cli import Cli, cli

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["cli"]


def test_the_shape_is_that_of_the_rows_that_are_kept(cli: Cli) -> None:
    words = "compare sample:rxnmapper-albert sinusoidal --rows 8:60 --only norms --json"
    done = cli(*words.split())
    assert done.code == 0
    document = json.loads(done.out)
    assert document["length"] == 52
    assert [entry["table"]["positions"] for entry in document["tables"]] == [52, 52]
    assert document["tables"][0]["table"]["rows"] == [8, 60]


def test_sincos2d_takes_the_first_grid_s_shape(cli: Cli) -> None:
    done = cli("compare", "sincos2d:4x5x12", "sincos2d", "--only", "norms", "--json")
    assert done.code == 0
    document = json.loads(done.out)
    assert document["tables"][1]["table"]["layout"] == {"type": "grid", "height": 4, "width": 5}


@pytest.mark.parametrize(
    ("references", "message"),
    [
        (("sincos2d:4x5x12", "sinusoidal"), "no table in the shape of"),
        (("sinusoidal:40x12", "sincos2d"), "no table in the shape of"),
        (("sinusoidal", "sinusoidal:40x12"), "cannot be the first"),
        (("sinusoidal:40x12",), "at least two tables"),
        (("sinusoidal:40x12", "sinusoidal", "--nulls", "-1"), "--nulls -1"),
        (("t5:8x2", "sinusoidal:14x4", "--nulls", "-1"), "--nulls -1"),
    ],
)
def test_what_cannot_be_compared_is_wrong_usage(
    cli: Cli, tmp_path: Path, references: tuple[str, ...], message: str
) -> None:
    done = cli("compare", *references, "--quiet")
    assert done.code == 2
    assert message in done.err
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_terminal_says_what_was_cut_and_what_was_found(cli: Cli) -> None:
    done = cli("compare", "sinusoidal:80x16", "sinusoidal:50x16", "--nulls", "3", "--out", "here")
    assert done.code == 0
    assert "Distances use the first 50" in " ".join(done.out.split())
    assert "sinusoidal:80x16 and sinusoidal:50x16 " in done.out
    assert re.search(r"\n +sinusoidal:80x16 +sinusoidal:50x16\n", done.out)
