"""Which rows of a sweep are steps of one training run, and what became of its table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from posprobe import questions
from posprobe.measurements import compared_numbers
from posprobe.report.series import PATH, Series
from posprobe.sweeps.columns import OWN, SEAMS
from posprobe.sweeps.fingerprints import likeness
from posprobe.sweeps.references import counted_step
from posprobe.sweeps.search import read_fingerprints
from posprobe.sweeps.store import read_columns

#: Steps of a run: fewer make no series.
FEWEST = 3
#: Columns that tell runs and steps apart.
_WHERE = (
    "reference", "resolved", "commit", "tensor", "scheme", "positions", "dim", f"{OWN}step",
    f"{OWN}run",
)  # fmt: skip


#: Where a run lies or what it is called, whether the list calls it so, its tensor and size.
_Key: TypeAlias = tuple[str, bool, str | None, int, int]


def series(folder: str | os.PathLike[str]) -> tuple[Series, ...]:
    """Find the training runs in a sweep.

    Rows are steps of one run where their references lie in one folder or repository (or the column
    ``run`` of the user's list says so), and the tensor and its size are the same. The step is that
    of the column ``step``, or of the reference's last part, such as ``checkpoint-400``. Of several
    rows with one step the first counts. Fewer than three steps are no run.

    Parameters
    ----------
    folder
        Folder of the sweep.

    Returns
    -------
    tuple
        Of `Series`, in the order of the sweep; empty where there is none.

    Raises
    ------
    PosprobeError
        As `posprobe.read_sweep`.

    Examples
    --------
    >>> import posprobe as pp
    >>> sweep = pp.sweep(["sinusoidal:32x8", "sinusoidal:64x8"], nulls=0, engine="threads").run()
    >>> pp.series(sweep.folder)
    ()
    """
    place = Path(folder)
    runs: dict[_Key, dict[int, int]] = {}
    for at, row in enumerate(read_columns(place, _WHERE).to_pylist()):
        step = _step(row)
        if step is not None and row["scheme"] in ("learned", "fixed"):
            where, name = _parts(row)
            # The tensor of a file that holds nothing else is called after the file.
            tensor = None if row["tensor"] == Path(name).stem else row["tensor"]
            given = row.get(f"{OWN}run")
            key = (str(given or where), given is not None, tensor, row["positions"], row["dim"])
            runs.setdefault(key, {}).setdefault(step, at)
    found = {key: steps for key, steps in runs.items() if len(steps) >= FEWEST}
    if not found:
        return ()
    table = read_columns(place, _shown())
    rows = {
        key: table.take([steps[step] for step in sorted(steps)]).to_pylist()
        for key, steps in found.items()
    }
    apart = _from_ends(place, [[row["reference"] for row in run] for run in rows.values()])
    return tuple(
        _series(_called(key, list(found)), sorted(steps), rows[key], apart)
        for key, steps in found.items()
    )


def _step(row: Mapping[str, Any]) -> int | None:
    step = row.get(f"{OWN}step")
    if step is None:
        return counted_step(_parts(row)[1])
    try:
        return int(step) if int(step) == float(step) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _parts(row: Mapping[str, Any]) -> tuple[str, str]:
    """Split a reference into what it lies in, and its own name."""
    if row["commit"]:
        name = row["reference"].partition("#")[0].partition("@")[2]
        return row["resolved"], name
    path = Path(row["resolved"] or row["reference"])
    return str(path.parent), path.name


def _called(key: _Key, keys: Sequence[_Key]) -> str:
    """Name a run: as the list does, or the last part of its folder; more where that is several."""
    where, _, tensor, positions, dim = key
    short = {other: other if own else Path(other).name or other for other, own, *_ in keys}
    name = short[where] if list(short.values()).count(short[where]) == 1 else where
    if [other for other, *_ in keys].count(where) == 1:
        return name
    return f"{name}, {tensor or 'table'}, {positions} x {dim}"


def _shown() -> list[str]:
    """Name the columns that a series shows."""
    keys = ["reference", SEAMS, *(f"answers.{name}" for name in questions.TABLE)]
    return [*keys, *(f"{key}{end}" for key in compared_numbers() for end in ("", ".sinusoid"))]


def _from_ends(place: Path, runs: Sequence[Sequence[str]]) -> dict[str, tuple[float | None, ...]]:
    """Return the distances of each table of some runs from the first and the last of its run."""
    ends = {reference: (run[0], run[-1]) for run in runs for reference in run}
    wanted = {end for both in ends.values() for end in both}
    kept = {
        known["reference"]: each
        for known, each in read_fingerprints(place)
        if known.get("reference") in wanted
    }
    return {
        known["reference"]: tuple(
            likeness(each, kept[end]).distance if end in kept else None
            for end in ends[known["reference"]]
        )
        for known, each in read_fingerprints(place)
        if known.get("reference") in ends
    }


def _series(
    name: str,
    steps: Sequence[int],
    rows: Sequence[Mapping[str, Any]],
    apart: Mapping[str, tuple[float | None, ...]],
) -> Series:
    def column(key: str) -> tuple[Any, ...]:
        return tuple(row.get(key) for row in rows)

    def there(keys: Iterable[str], before: str = "", after: str = "") -> dict[str, tuple[Any, ...]]:
        found = {key: column(f"{before}{key}{after}") for key in keys}
        return {key: values for key, values in found.items() if set(values) != {None}}

    ends = [apart.get(reference, (None, None)) for reference in column("reference")]
    first, last = zip(*ends, strict=True)
    sinusoid = tuple(None if cka is None else 1 - cka for cka in column("sinusoid.cka"))
    numbers = there(compared_numbers())
    return Series(
        name=name,
        steps=tuple(steps),
        numbers=numbers,
        sinusoid=there(numbers, after=".sinusoid"),
        answers=there(questions.TABLE, before="answers."),
        seams=column(SEAMS),
        path=dict(zip(PATH, (first, last, sinusoid), strict=True)),
    )
