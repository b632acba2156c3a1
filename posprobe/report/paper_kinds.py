"""What each kind of figure for a paper draws, of which records, and what its caption says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from posprobe.analyses import Heads, Rotation
from posprobe.arrays import Device
from posprobe.errors import UsageError
from posprobe.layouts import Grid
from posprobe.measurements import TABLE, Drawing, TableMeasurement
from posprobe.report import captions
from posprobe.report.analysis import Analysis, analyze
from posprobe.report.comparison import distinct
from posprobe.report.narrator.captions import CAPTIONS
from posprobe.report.schemes import analyze_schemes
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.figures.common import Sheet

Record: TypeAlias = PositionTable | Scheme
#: A figure and what its caption says of it.
Drawn: TypeAlias = "tuple[Figure, str]"
#: The same with where it comes from, in sentences of their own.
Told: TypeAlias = "tuple[Figure, tuple[str, ...]]"

#: Kinds that are not the figure of one measurement.
OTHERS: Mapping[str, str] = {
    "table": "the table itself",
    "heads": "relative, rotary and ALiBi encodings",
    "comparison": "similarity, profiles and spectra together",
}
#: Kinds that a run of a model is drawn for, by the measurement that they show.
OF_RUNS: Mapping[str, tuple[str, str]] = {
    "rotary-curves": ("rotary_use", "what each head of a rotary model makes of distance"),
    "rotary-usage": ("rotary_use", "pairs that each head uses, and those that make its curve"),
}
#: Lines that can be told apart in one figure.
MOST = 6
#: Rotations that one figure holds.
ROTATIONS = 3


def drawings() -> dict[str, tuple[TableMeasurement, Drawing]]:
    """Return the figures of measurements that papers can have, with their measurements."""
    return {
        drawing.name: (measurement, drawing)
        for measurement in TABLE.values()
        for drawing in measurement.drawings
        if drawing.draws
    }


def kinds() -> dict[str, str]:
    """Return every kind of figure and what it draws."""
    return {**{name: drawing.draws for name, (_, drawing) in drawings().items()}, **OTHERS}


def kinds_of_several() -> list[str]:
    """Return the kinds that take several tables."""
    return _kinds_with("several")


def _kinds_with(what: str) -> list[str]:
    return [name for name, (_, d) in drawings().items() if getattr(d, what)] + ["comparison"]


def check_look(kind: str, centred: bool | None, columns: int | None) -> None:
    """Refuse what a kind of figure has not.

    Raises
    ------
    UsageError
        If rows cannot be drawn as stored and centred, or there are no panels to arrange.
    """
    if centred is not None and kind not in (able := _kinds_with("centring")):
        raise UsageError(f"{kind}: --raw and --centred apply only to {', '.join(able)}.")
    if columns is not None and kind not in (able := _kinds_with("columns")):
        raise UsageError(f"{kind}: --columns applies only to {', '.join(able)}.")
    if columns is not None and not 1 <= columns <= MOST:
        raise UsageError(f"--columns {columns}: 1 to {MOST} panels fit into a row.")


def tables_for(kind: str, records: Sequence[Record]) -> list[PositionTable]:
    """Return the tables that a kind draws; those that share axes are cut to the shortest.

    Raises
    ------
    UsageError
        If there are too few or too many, or one of the records is not a table.
    """
    for record in records:
        if not isinstance(record, PositionTable):
            raise UsageError(
                f"{record.name}: {kind} draws tables of positions, and this is a "
                f"{record.scheme} encoding without one. Draw it with the kind heads."
            )
    tables = [record for record in records if isinstance(record, PositionTable)]
    many = kinds_of_several()
    fewest, most = (2 if kind == "comparison" else 1), (MOST if kind in many else 1)
    if not fewest <= len(tables) <= most:
        wanted = {(1, 1): "one table", (1, MOST): f"one to {MOST} tables"}
        raise UsageError(
            f"{kind} draws {wanted.get((fewest, most), f'two to {MOST} tables')}, and "
            f"{len(tables)} are given."
            + ("" if most > 1 else f" Several are drawn by {', '.join(many)}.")
        )
    if len(tables) == 1 or kind in {"similarity", "budget"}:
        return tables
    return common(tables)


def common(tables: Sequence[PositionTable]) -> list[PositionTable]:
    """Cut tables to the positions that all of them have, from their first row.

    Raises
    ------
    UsageError
        If there are grids that differ, or grids beside sequences.
    """
    layouts = {table.layout for table in tables if isinstance(table.layout, Grid)}
    if layouts and (len(layouts) > 1 or any(t.layout not in layouts for t in tables)):
        shapes = ", ".join(f"{table.name} is a {table.layout}" for table in tables)
        raise UsageError(
            f"{shapes}: positions on a grid share axes only with the same grid. Nothing is "
            "resampled."
        )
    length = min(len(table) for table in tables)
    return [table if len(table) == length else table[:length] for table in tables]


def of_tables(
    kind: str,
    tables: list[PositionTable],
    sheet: Sheet,
    seed: int,
    device: Device,
    *,
    centred: bool | None,
) -> Told:
    """Draw a kind of figure of tables, and write the sentences of its caption.

    Raises
    ------
    UsageError
        If the kind does not apply to the tables, or what it shows is undefined.
    """
    names = distinct([table.name for table in tables])
    run = {"seed": seed, "device": device}
    match kind:
        case "table":
            figure, text = _table(tables[0], sheet)
        case "comparison":
            if sheet.low and sheet.narrow:
                raise UsageError("comparison: it does not fit half a slide. Use --span page.")
            only = ("similarity", "spectrum")
            found = [analyze(table, only=only, nulls=0, **run) for table in tables]  # type: ignore[call-overload]
            figure, text = _comparison(dict(zip(names, found, strict=True)), sheet, centred)
        case _:
            measurement, drawing = drawings()[kind]
            results = {}
            for name, table in zip(names, tables, strict=True):
                one = analyze(table, only=(measurement.name,), nulls=0, **run)  # type: ignore[call-overload]
                results[name] = one.results[measurement.name]
                if why := drawing.lacks(results[name]):
                    raise UsageError(f"{name}: {kind} cannot be drawn: {why}.")
            figure, text = _measured(drawing, results, sheet, centred)
    return figure, (text, captions.provenance(names, tables))


def _measured(
    drawing: Drawing,
    results: Mapping[str, Any],
    sheet: Sheet,
    centred: bool | None,
) -> Drawn:
    from posprobe.figures import builder
    from posprobe.figures.styles import printable

    build = builder(next(iter(results.values())), drawing.name)
    figure = build(sheet, printable(results), {"centred": centred})
    asked = {"centred": centred} if drawing.centring else {}
    return figure, CAPTIONS[drawing.name](results, **asked)


def _comparison(
    analyses: Mapping[str, Analysis],
    sheet: Sheet,
    centred: bool | None,
) -> Drawn:
    from posprobe.figures.comparison import comparison_figure
    from posprobe.figures.styles import printable

    alike: dict[str, Any] = {
        name: analysis.results["similarity"] for name, analysis in analyses.items()
    }
    spectra = {name: analysis.results["spectrum"] for name, analysis in analyses.items()}
    references = {"spectra": printable(spectra), "centred": centred}
    figure = comparison_figure(sheet, printable(alike), references)
    return figure, CAPTIONS["comparison"](alike, centred)


def _table(table: PositionTable, sheet: Sheet) -> Drawn:
    from posprobe.figures import builder
    from posprobe.figures.common import MAX_CELLS
    from posprobe.figures.styles import printable

    limit = float(np.percentile(np.abs(table.values), 99))
    figure = builder(table, "table")(sheet, printable({table.name: table}), {})
    return figure, captions.table(table, limit, MAX_CELLS)


def schemes_for(records: Sequence[Record]) -> list[Scheme]:
    """Return the encodings without a table that share a figure.

    Raises
    ------
    UsageError
        If there is none, one of the records is a table, or they are of different schemes.
    """
    if not records:
        raise UsageError("there is no encoding to draw.")
    for record in records:
        if isinstance(record, PositionTable):
            raise UsageError(
                f"{record.name}: heads draws relative, rotary and linear encodings, and this is a "
                "table of positions. similarity, profile and the other kinds draw it."
            )
    schemes = [record for record in records if not isinstance(record, PositionTable)]
    kinds = {
        (s.scheme, s.quantity, isinstance(s.layout, Grid))
        if isinstance(s, RelativeBias)
        else (s.scheme,)
        for s in schemes
    }
    if len(kinds) > 1:
        raise UsageError(
            f"{schemes[0].name} and others: encodings of {len(kinds)} kinds "
            f"({', '.join(sorted({s.scheme for s in schemes}))}) do not share a figure. "
            "Pick one with REF#NAME; `posprobe inspect REF` lists them: "
            f"{', '.join(s.name for s in schemes[:8])}{' …' if len(schemes) > 8 else ''}."
        )
    return schemes


def of_schemes(schemes: list[Scheme], sheet: Sheet, length: int | None, seed: int) -> Told:
    """Draw encodings of one scheme, and write the sentences of their caption.

    Raises
    ------
    UsageError
        If more rotations differ than fit, or the length is too small.
    """
    from posprobe.figures.relative import HEAD_FIGURES, suited
    from posprobe.figures.schemes import rotation_figure, slopes_figure
    from posprobe.figures.styles import printable

    analysis = analyze_schemes(*schemes, length=length, seed=seed)
    found: dict[str, Heads] = {}
    rotations: dict[str, Rotation] = {}
    names = distinct([record.name for record in schemes])
    for name, results in zip(names, analysis.results, strict=True):
        if isinstance(curves_of := results.get("heads"), Heads):
            found[name] = curves_of
        if isinstance(ladder := results.get("rotation"), Rotation):
            rotations[name] = ladder
    shown = schemes
    first = schemes[0]
    if isinstance(first, Rotary):
        unique = _unlike(rotations)
        if len(unique) > ROTATIONS:
            raise UsageError(
                f"{len(unique)} rotations differ and {ROTATIONS} share a figure. Pick one with "
                f"REF#NAME out of {', '.join(unique)}."
            )
        shown = [record for name, record in zip(names, schemes, strict=True) if name in unique]
        figure = rotation_figure(sheet, printable(unique), {})
        text = captions.rotation(unique)
    elif isinstance(first, LinearBias):
        shown = [first]
        figure = slopes_figure(sheet, printable({names[0]: first}), {})
        text = captions.slopes(first)
    else:
        build = HEAD_FIGURES[suited(found, sheet)]
        figure, text = build(sheet, printable(found), {}), captions.heads(found)
    whence = captions.provenance(distinct([r.name for r in shown[:3]]), shown[:3])
    more = f"And {len(shown) - 3} more of the same checkpoint." if len(shown) > 3 else ""
    return figure, (text, whence, more)


def _unlike(rotations: Mapping[str, Rotation]) -> dict[str, Rotation]:
    unique: dict[str, Rotation] = {}
    for name, rotation in rotations.items():
        if not any(
            np.array_equal(rotation.wavelength, other.wavelength) for other in unique.values()
        ):
            unique[name] = rotation
    return unique
