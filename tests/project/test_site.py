"""The pages of the documentation site run, and the reference lists every public name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typed
from safetensors.numpy import save_file

import posprobe as pp

DOCS = Path(__file__).parents[2] / "docs"
# `extend.md` needs a separate package, which `test_readers.py` makes.
HOW_TO_PAGES = [
    page for page in sorted((DOCS / "how-to").glob("*.md")) if page.stem != "extend"
]
PAGES = [DOCS / "tutorial.md", *HOW_TO_PAGES]
CODE_BLOCK = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_code_of_the_pages_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "path" / "to" / "checkpoint"
    folder.mkdir(parents=True)
    walk = np.cumsum(np.random.default_rng(0).normal(size=(26, 8)), axis=0)
    save_file({"wpe.weight": walk.astype(np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    names: dict[str, object] = {}
    try:
        for language, text in CODE_BLOCK.findall(page.read_text(encoding="utf-8")):
            if language == "python":
                exec(compile(text, page.name, "exec"), names)  # noqa: S102 - what a reader types
                continue
            for line in text.replace("\\\n", "").splitlines():
                words = shlex.split(line)
                if words[0] != "posprobe":
                    continue
                typed.run(words[1:], monkeypatch, capsys)
    finally:
        plt.close("all")


def test_the_reference_lists_every_public_name_once() -> None:
    documented = re.findall(
        r"^   ([\w.]+)$", (DOCS / "api.md").read_text("utf-8"), re.MULTILINE
    )
    moved_names = [
        f"{submodule}.{name}" for name, submodule in pp._SUBMODULES_BY_NAME.items()
    ]
    # What pytest needs is not imported with the package.
    names = [*pp.__all__, *moved_names, "testing.assert_positions_alike"]
    assert sorted(documented) == sorted(names)
