"""Commands of the documentation run in this process, with few null draws."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from posprobe.cli import main


def run(
    words: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run a command in this process; it must end well."""
    extra_options = (
        ["--nulls", "1"] if words[0] == "forward" and "--nulls" not in words else []
    )
    monkeypatch.setattr(sys, "argv", ["posprobe", *words, *extra_options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code, (words, capsys.readouterr().err)
