"""Text of others does nothing and hides nothing: in the terminal, on the page, in captions."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_cli import Cli, cli
from made_tables import as_table, walk

import posprobe as pp
from posprobe.cli.process import set_up_logging
from posprobe.errors import PosprobeError
from posprobe.report import to_json
from posprobe.report.screen import render_text as terminal
from posprobe.text import escape_invisible, escape_invisible_json

#: Clears the screen, sets the title, goes back in the line, ends it, turns the direction, hides.
NASTY = "a\x1b[2J\x1b]0;title\x07b\rc\nd\u202ee\u200bf\x9b31mg\x7f\u2028h"
CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
#: A fixture that pytest finds by name.
__all__ = ["cli"]


def test_invisible_characters_are_escaped() -> None:
    assert escape_invisible(NASTY) == (
        r"a\x1b[2J\x1b]0;title\x07b\rc\nd\u202ee\u200bf\x9b31mg\x7f\u2028h"
    )
    for visible in (
        "wpe.weight",
        "größe 7 × 3",
        "位置",
        "a\u00a0b",
        "n\u0303",
        "1,5 °",
        "\udce9",
    ):
        assert escape_invisible(visible) == visible


def test_json_stays_the_same_document() -> None:
    document = {"name": NASTY, "list": ["\U000e0001", "×", "\ud800", 'a"b\\']}
    text = escape_invisible_json(json.dumps(document, indent=2, ensure_ascii=False))
    assert json.loads(text) == document
    assert not CONTROLS.search(text)
    assert "×" in text
    assert not CONTROLS.search(to_json(document))


def test_errors_show_what_they_quote() -> None:
    assert (
        str(PosprobeError(f"{NASTY}: no such tensor"))
        == f"{escape_invisible(NASTY)}: no such tensor"
    )


def test_messages_of_the_log_show_what_they_quote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    err = io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    set_up_logging(quiet=False)
    logging.getLogger("posprobe.checkpoints").warning("the hub says %s", NASTY)
    set_up_logging(quiet=True)
    assert err.getvalue() == f"the hub says {escape_invisible(NASTY)}\n"


def test_page_terminal_notebook_captions_and_drawings_show_names(tmp_path: Path) -> None:
    table = as_table(walk(12, 4))
    table = replace(
        table,
        name=NASTY,
        notes=(NASTY,),
        source=replace(table.source, tensor=NASTY, file=NASTY),
    )
    analysis = pp.analyze(table, only=["norms"], nulls=0, command=NASTY)
    folder = analysis.save(tmp_path / "b")
    document = analysis.to_dict()
    page = (folder / "report.html").read_text(encoding="utf-8")
    texts = [page, terminal(document), analysis._repr_html_()]
    texts += [
        path.read_text(encoding="utf-8") for path in (folder / "figures").glob("*.svg")
    ]
    figure = pp.paper_figure("norms", table)
    figure.save(tmp_path / "f.svg")
    texts += [figure.caption, (tmp_path / "f.svg").read_text(encoding="utf-8")]
    for text in texts:
        assert not CONTROLS.search(text)
    assert r"\x1b[2J" in page
    assert r"\u202e" in texts[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["analyze", "sinusoidal:12x4", f"--{NASTY}"],
        ["analyze", "sinusoidal:12x4", "--device", NASTY],
        ["--debug", "analyze", NASTY],
        ["extract", "sinusoidal:12x4", "-o", f"{NASTY}.npy"],
    ],
    ids=["option", "choice", "traceback", "path"],
)
def test_hostile_words_are_shown_as_escapes(arguments: list[str], cli: Cli) -> None:
    completed = cli(*arguments)
    assert completed.code in (0, 2, 3)
    assert r"\x1b[2J" in completed.out + completed.err
    assert not CONTROLS.search(completed.out + completed.err)
