"""``posprobe compare``: a formula takes the first table's shape, and what was cut is said."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from posprobe.cli import main

if TYPE_CHECKING:
    from pathlib import Path


def command(*arguments: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["posprobe", "compare", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


@pytest.fixture
def run(capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: command(*arguments, capsys=capsys, monkeypatch=monkeypatch)


def test_sinusoidal_takes_the_first_table_s_shape(run: Any, tmp_path: Path) -> None:
    code, out, err = run("sinusoidal:40x12", "sinusoidal", "--nulls", "1", "--json")
    assert code == 0
    document = json.loads(out)
    assert [entry["table"]["dim"] for entry in document["tables"]] == [12, 12]
    assert document["length"] == 40
    assert document["pairs"][0]["cka"] == pytest.approx(1)
    assert (tmp_path / "reports").is_dir()
    assert "report.html" in err


def test_the_shape_is_that_of_the_rows_that_are_kept(run: Any) -> None:
    code, out, _ = run(
        "sample:rxnmapper-albert", "sinusoidal", "--rows", "8:60", "--only", "norms", "--json"
    )
    assert code == 0
    document = json.loads(out)
    assert document["length"] == 52
    assert [entry["table"]["positions"] for entry in document["tables"]] == [52, 52]
    assert document["tables"][0]["table"]["rows"] == [8, 60]


def test_sincos2d_takes_the_first_grid_s_shape(run: Any) -> None:
    code, out, _ = run("sincos2d:4x5x12", "sincos2d", "--only", "norms", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["tables"][1]["table"]["layout"] == {"type": "grid", "height": 4, "width": 5}


@pytest.mark.parametrize(
    ("references", "message"),
    [
        (("sincos2d:4x5x12", "sinusoidal"), "no table in the shape of"),
        (("sinusoidal:40x12", "sincos2d"), "no table in the shape of"),
        (("sinusoidal", "sinusoidal:40x12"), "cannot be the first"),
        (("sinusoidal:40x12",), "at least two tables"),
        (("sinusoidal:40x12", "sinusoidal", "--nulls", "-1"), "--nulls -1"),
    ],
)
def test_what_cannot_be_compared_is_wrong_usage(
    run: Any, tmp_path: Path, references: tuple[str, ...], message: str
) -> None:
    code, out, err = run(*references, "--quiet")
    assert code == 2
    assert message in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_terminal_says_what_was_cut_and_what_was_found(run: Any) -> None:
    code, out, _ = run("sinusoidal:80x16", "sinusoidal:50x16", "--nulls", "3", "--out", "here")
    assert code == 0
    assert "Distances use the first 50" in " ".join(out.split())
    assert "sinusoidal:80x16 and sinusoidal:50x16 " in out
    assert re.search(r"\n +sinusoidal:80x16 +sinusoidal:50x16\n", out)
