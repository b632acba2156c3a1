"""Small analyses, their bundles, and helpers to compare folders and documents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from made_tables import as_table, gaussian, patches, walk

import posprobe as pp
from posprobe.layouts import Grid
from posprobe.report import to_json
from posprobe.samples import tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from posprobe.studies import Analysis
    from posprobe.tables import PositionTable


BUNDLE_FILES = {"analysis.json", "arrays.npz", "figures", "report.html"}
MAIN_COMMAND = [sys.executable, "-m", "posprobe"]


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return the content of a folder: bytes of files, None for folders."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def run(
    *arguments: str, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MAIN_COMMAND, *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def strict_json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def with_zero_row() -> PositionTable:
    values = gaussian(6, 3)
    values[0] = 0
    return as_table(values)


TABLES: dict[str, Callable[[], PositionTable]] = {
    **{
        sample.name: (lambda name=sample.name: pp.load(f"sample:{name}"))  # type: ignore[misc]
        for sample in tables()
        if sample.name != "whisper-tiny-decoder"  # the largest
    },
    "grid": lambda: patches(8, 6, 12),
    "small grid": lambda: patches(2, 3, 5),
    "constant": lambda: as_table(np.ones((16, 3))),
    "constant grid": lambda: as_table(np.full((64, 3), 0.1), Grid(8, 8)),
    "zeros": lambda: as_table(np.zeros((9, 2))),
    "zero row": with_zero_row,
    "two rows": lambda: as_table(gaussian(2, 3)),
    "seven rows": lambda: as_table(gaussian(7, 1)),
    "cut": lambda: as_table(walk(30, 4))[10:20],
}


@cache
def analysis_of(name: str) -> Analysis:
    return pp.analyze(TABLES[name](), nulls=1, device="cpu")


@cache
def document_of(name: str) -> str:
    return to_json(analysis_of(name).to_dict())


def remove(*path: str) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        del document[path[-1]]

    return change


def put(value: Any, *path: str) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change
