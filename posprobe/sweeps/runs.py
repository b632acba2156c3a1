"""Which rows of a sweep are steps of one training run, and what became of its table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from posprobe.measurements import compared_numbers
from posprobe.report.questions import QUESTIONS
from posprobe.report.series import BAND, PATH, Series
from posprobe.sweeps.columns import OWN, SEAMS
from posprobe.sweeps.fingerprints import Fingerprint, likeness
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
        Of the sweep.

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
    wanted = {at for steps in found.values() for at in steps.values()}
    rows = _rows(place, sorted(wanted))
    prints = {
        known["reference"]: each
        for known, each in read_fingerprints(place)
        if known.get("reference") in {row["reference"] for row in rows.values()}
    }
    return tuple(
        _series(
            _called(key, list(found)), [(step, rows[steps[step]]) for step in sorted(steps)], prints
        )
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


def _rows(place: Path, wanted: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Read what a series shows of some rows, by their place in the table."""
    numbers = compared_numbers()
    keys = ["reference", SEAMS, *(f"answers.{name}" for name in QUESTIONS)]
    for key in numbers:
        keys += [key, f"{key}.sinusoid", f"{key}.{BAND}.p5", f"{key}.{BAND}.p95"]
    table = read_columns(place, keys).take(list(wanted))
    return dict(zip(wanted, table.to_pylist(), strict=True))


def _series(
    name: str, steps: Sequence[tuple[int, Mapping[str, Any]]], prints: Mapping[str, Fingerprint]
) -> Series:
    def column(key: str) -> tuple[Any, ...]:
        return tuple(row.get(key) for _, row in steps)

    def there(found: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        return {
            key: values
            for key, values in found.items()
            if any(value is not None for value in values)
        }

    keys = list(compared_numbers())
    numbers = there({key: column(key) for key in keys})
    tables = [prints.get(row["reference"]) for _, row in steps]
    path = {
        "first": tuple(_distance(each, tables[0]) for each in tables),
        "last": tuple(_distance(each, tables[-1]) for each in tables),
        "sinusoid": tuple(None if cka is None else 1 - cka for cka in column("sinusoid.cka")),
    }
    return Series(
        name=name,
        steps=tuple(step for step, _ in steps),
        numbers=numbers,
        sinusoid=there({key: column(f"{key}.sinusoid") for key in numbers}),
        bands=there({key: _band(steps, f"{key}.{BAND}") for key in numbers}),
        answers=there({question: column(f"answers.{question}") for question in QUESTIONS}),
        seams=column(SEAMS),
        path={key: path[key] for key in PATH},
    )


def _band(
    steps: Sequence[tuple[int, Mapping[str, Any]]], key: str
) -> tuple[tuple[float, float] | None, ...]:
    ends = [(row.get(f"{key}.p5"), row.get(f"{key}.p95")) for _, row in steps]
    return tuple(None if None in pair else pair for pair in ends)  # type: ignore[misc]


def _distance(one: Fingerprint | None, other: Fingerprint | None) -> float | None:
    return None if one is None or other is None else likeness(one, other).distance
