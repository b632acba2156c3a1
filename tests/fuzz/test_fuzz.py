"""Hostile input in the test run: the corpus of all failures, and of two seeds 1,500 new cases."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzz.__main__ import CLASSES, CORPUS
from fuzz.case import Case, load, save
from fuzz.oracle import foreign_characters, judge
from fuzz.runner import Seen, runner

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_hostile_input_is_refused_or_read_as_by_its_package() -> None:
    words = ["--corpus", "--seed", "0", "1", "--part", "0.4"]
    command = [sys.executable, "-m", "tests.fuzz", *words]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (run,) = re.findall(r"^all +(\d+)", ended.stdout, re.MULTILINE)
    assert int(run) - len([*CORPUS.glob("*.json")]) >= 1_500


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind != "models"])
def test_a_seed_makes_the_same_case_again_and_a_file_keeps_it(
    kind: str, tmp_path: Path
) -> None:
    make = import_module(f"fuzz.{kind}").make
    for seed in range(8):
        first, second = (make(random.Random(seed)) for _ in "ab")
        assert first == second
        save(first, kind, tmp_path / "case.json", reason="why")
        assert load(tmp_path / "case.json") == (kind, first)


@pytest.mark.parametrize(
    "path", sorted(CORPUS.glob("*.json")), ids=lambda path: path.stem
)
def test_the_corpus_is_small(path: Path) -> None:
    assert path.stat().st_size < 16_000
    assert json.loads(path.read_text("ascii"))["class"] in CLASSES


def test_the_oracle_detects_every_broken_promise() -> None:
    # Each of these did something wrong once, and is done here to a file that is sound.
    values = np.arange(8, dtype="<f4").reshape(4, 2)
    with runner() as parent:
        from fuzz.arrays import saved

        argv = ("extract", "a.npy", "-o", "out.npy")
        sound = Case(
            "", argv, {"a.npy": saved(values)}, read=("a.npy", "a"), outputs=("out.npy",)
        )
        for case, reason in (
            (sound, ""),
            (
                Case(
                    "",
                    argv,
                    {**sound.files, "b.npy": saved(values + 1)},
                    read=("b.npy", "b"),
                    outputs=("out.npy",),
                ),
                "other numbers",
            ),
            (Case("", argv, sound.files), "work/out.npy is new"),
            (
                Case("", argv, sound.files, outputs=("out.npy",), expected="error"),
                "accepted",
            ),
            (Case("", ("inspect", "nope.npy"), expected="accepted"), "refused"),
        ):
            with parent.run(case) as observation:
                outcome = judge(case, observation)
            assert (outcome.verdict == "wrong") == bool(reason)
            assert reason in outcome.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"after": {"work/canary": "file"}}, "code of the checkpoint ran"),
        ({"after": {"home/x": "file"}}, "home/x is new"),
        ({"out": b"Run it? [y/N]"}, "asks whether to run code"),
        ({"out": b"a" * 500_000}, "bytes are printed"),
        ({"out": b"\xff"}, "stdout holds bytes"),
        ({"code": -9}, "signal 9"),
        ({"code": 1}, "exit code 1"),
        ({"seconds": 60.0}, "60 s of processor"),
        ({"err": b"Traceback (most recent call last):\n"}, "a traceback"),
        ({"err": b"posprobe: \x1b[2J\n"}, "stderr holds"),
        ({"err": b""}, "0 error messages"),
        ({"err": b"posprobe: no.\nposprobe: no.\n"}, "2 error messages"),
    ],
)
def test_the_oracle_names_the_promise_that_is_broken(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    refused = Seen(4, b"", b"posprobe: no.\n", {}, {}, 0.1, tmp_path)
    case = Case("", ("inspect", "a"))
    assert judge(case, refused).verdict == "clear error"
    assert reason in judge(case, replace(refused, **changes)).reason


@pytest.mark.parametrize(
    "markup",
    [
        "",
        "<iframe>",
        "<img src=http://x/>",
        "<p onclick=x>",
        "<script>FOREIGN",
        "\u202e",
        "&#x202e;",
    ],
)
def test_the_oracle_detects_forbidden_markup(markup: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.html").write_text(f"<p>sound</p>{markup}", "utf-8")
    observation = Seen(0, b"", b"", {}, {"work/a.html": "file"}, 0.1, tmp_path / "work")
    outcome = judge(Case("", ("report", "a"), outputs=("a.html",)), observation)
    assert ("the page a.html holds" in outcome.reason) == bool(markup)


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "a\rb", "\x9b", "\u202e", "\u2028", "\ufeff", "\udc80"]
)
def test_the_oracle_names_characters_that_no_terminal_should_get(text: str) -> None:
    assert foreign_characters(f"before {text} after") is not None
    assert foreign_characters("plain\ttext\n") is None
