"""What each kind of figure for a paper draws, of which records, and what its caption says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from posprobe.analyses import (
    PCA,
    Heads,
    Rotation,
    Shift,
    Spectrogram,
    Spectrum,
)
from posprobe.arrays import Device
from posprobe.errors import UsageError
from posprobe.nulls import NULLS, curves
from posprobe.report import captions
from posprobe.report.analysis import Analysis, analyze
from posprobe.report.comparison import common, distinct
from posprobe.report.schemes import analyze_schemes
from posprobe.report.sections import VERDICT
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme
from posprobe.table import Grid, PositionTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.figures.sheet import Sheet

Record: TypeAlias = PositionTable | Scheme
Drawn: TypeAlias = "tuple[Figure, str]"

#: What each kind of figure is, in the order of the help.
KINDS: Mapping[str, str] = {
    "similarity": "cosine matrices, a panel per table",
    "mosaic": "similarity of patches, a tile for each",
    "profile": "cosine by offset",
    "variance": "explained variance by component",
    "components": "scores of the first components against position",
    "trajectory": "the path through the first components",
    "spectrum": "power by frequency",
    "spectrogram": "power by position and frequency",
    "table": "the table itself",
    "norms": "the length of every row",
    "nulls": "headline numbers beside their null bands",
    "shift": "eigenvalues of the step to the next position",
    "heads": "relative, rotary and linear encodings",
    "comparison": "matrices, profiles and spectra together",
}
#: Kinds that take several tables, and how many lines can be told apart.
MANY, MOST = ("similarity", "profile", "variance", "spectrum", "comparison"), 6
#: The analyses that a kind draws.
NEEDS: Mapping[str, tuple[str, ...]] = {
    "similarity": ("similarity",),
    "mosaic": ("grid",),
    "profile": ("similarity",),
    "variance": ("pca",),
    "components": ("pca",),
    "trajectory": ("pca",),
    "spectrum": ("spectrum",),
    "spectrogram": ("spectrogram",),
    "table": ("norms",),
    "norms": ("norms",),
    "shift": ("shift",),
    "comparison": ("similarity", "spectrum"),
}
#: Rotations that one figure holds.
ROTATIONS = 3


def tables_for(kind: str, records: Sequence[Record]) -> list[PositionTable]:
    """Return the tables that a kind draws; those that share axes are cut to the shortest.

    Raises
    ------
    UsageError
        If there are too few or too many, or one of the records is no table.
    """
    for record in records:
        if not isinstance(record, PositionTable):
            raise UsageError(
                f"{record.name}: {kind} draws tables of positions, and this is a "
                f"{record.scheme} encoding without one. Draw it with the kind heads."
            )
    tables = [record for record in records if isinstance(record, PositionTable)]
    fewest, most = (2 if kind == "comparison" else 1), (MOST if kind in MANY else 1)
    if not fewest <= len(tables) <= most:
        wanted = {(1, 1): "one table", (1, MOST): f"one to {MOST} tables"}
        raise UsageError(
            f"{kind} draws {wanted.get((fewest, most), f'two to {MOST} tables')}, and "
            f"{len(tables)} are given."
            + ("" if most > 1 else f" Several are drawn by {', '.join(MANY)}.")
        )
    if len(tables) == 1 or kind == "similarity":
        return tables
    return list(common(tables))


def of_tables(
    kind: str, tables: list[PositionTable], sheet: Sheet, nulls: int, seed: int, device: Device
) -> Drawn:
    """Draw a kind of figure of tables, and write its caption.

    Raises
    ------
    UsageError
        If the kind does not apply to the tables, or what it shows is undefined.
    """
    first = tables[0]
    if kind == "mosaic" and not isinstance(first.layout, Grid):
        raise UsageError(
            f"{first.name}: mosaic draws patches on a grid, and this is a {first.layout}. "
            "similarity draws any table."
        )
    if kind == "comparison" and sheet.low and sheet.narrow:
        raise UsageError("comparison has no room in half a slide: ask for --span page.")
    if kind == "nulls" and nulls < 1:
        raise UsageError("nulls draws the bands of null models: ask for --nulls 1 or more.")
    names = distinct([table.name for table in tables])
    # Bands of numbers are drawn by one kind alone.
    draws = nulls if kind == "nulls" else 0
    analyses = {
        name: analyze(table, only=NEEDS.get(kind), nulls=draws, seed=seed, device=device)
        for name, table in zip(names, tables, strict=True)
    }
    for name, analysis in analyses.items():
        _check_defined(kind, name, analysis)
    curve = {"profile": "profile", "variance": "variance", "spectrum": "spectrum"}
    banded = (kind in curve and len(tables) > 1) or kind == "comparison"
    bands = curves(first, nulls, seed) if banded and nulls else {}
    figure, text = _draw(kind, analyses, bands, sheet)
    about = captions.walk_band(names[0], nulls, seed) if bands else ""
    return figure, captions.caption(text, about, captions.provenance(names, tables))


def _check_defined(kind: str, name: str, analysis: Analysis) -> None:
    """Refuse to draw what is undefined."""
    for result in analysis.results.values():
        why = ""
        match result:
            case PCA() | Spectrum() | Shift() if kind != "nulls":
                why = result.undefined
            case Spectrogram() if kind != "nulls" and not result.length:
                why = result.undefined.get("length", "the table is too short")
        if not why and kind == "trajectory" and isinstance(result, PCA):
            short = result.scores.shape[1] < 2
            why = "a path needs two components, and there is one" if short else ""
        if why:
            raise UsageError(f"{name}: {kind} cannot be drawn: {why}.")


def _draw(
    kind: str, analyses: Mapping[str, Analysis], bands: Mapping[str, Any], sheet: Sheet
) -> Drawn:
    """Draw a kind of figure of one or more tables."""
    from posprobe.figures import builders, comparison, nulls
    from posprobe.figures.common import MAX_CELLS
    from posprobe.figures.styles import printable

    first = next(iter(analyses.values()))
    if kind == "nulls":
        entries = _defined(first)
        beyond = [label for label, entry in entries.items() if _outside(entry)]
        text = captions.nulls(first.nulls["draws"], first.nulls["seed"], beyond)
        return nulls.FIGURES[kind](sheet, {}, {"numbers": entries}), text
    if kind == "table":
        name, table = first.table.name, first.table
        limit = float(np.percentile(np.abs(table.values), 99))
        figure = builders(table)[kind](sheet, printable({name: table}), {})
        return figure, captions.table(table, limit, MAX_CELLS)
    results = {label: a.results[NEEDS[kind][0]] for label, a in analyses.items()}
    beside: dict[str, Any] = {"bands": bands}
    build = comparison.FIGURES.get(kind) or builders(next(iter(results.values())))[kind]
    if kind == "comparison":
        spectra = {label: a.results["spectrum"] for label, a in analyses.items()}
        beside["spectra"] = printable(spectra)
    return build(sheet, printable(results), beside), _caption(kind, results)


def _caption(kind: str, results: Mapping[str, Any]) -> str:
    """Write what a caption says of results: how to read them."""
    from posprobe.figures.common import MAX_CELLS
    from posprobe.figures.grid import MAX_TILES
    from posprobe.figures.pca import COMPONENTS

    first = next(iter(results.values()))
    match kind:
        case "similarity" | "comparison":
            blocks = {name: -(-len(r.raw.matrix) // MAX_CELLS) for name, r in results.items()}
            write = captions.similarity if kind == "similarity" else captions.comparison
            return write(results, blocks)
        case "mosaic":
            longer = max(first.layout.height, first.layout.width)
            return captions.mosaic(first, -(-longer // MAX_TILES))
        case "components":
            return captions.scores(first, min(COMPONENTS, first.scores.shape[1]))
        case "norms":
            low, high = float(first.norms.min()), float(first.norms.max())
            return captions.norms(float(first.norms.mean()), low, high, len(first.outliers))
        case "trajectory" | "spectrogram" | "shift":
            of_one: Any = getattr(captions, kind)
            return str(of_one(first))
    of_all: Any = getattr(captions, kind)
    return str(of_all(results))


def _defined(analysis: Analysis) -> dict[str, Any]:
    """Return the numbers that stand beside null models, by label, where they are defined."""
    numbers = analysis.nulls["numbers"]
    return {
        number.label: numbers[number.key]
        for number in VERDICT
        if number.key in numbers and numbers[number.key]["value"] is not None
    }


def _outside(entry: Mapping[str, Any]) -> bool:
    bands = [entry[name] for name in NULLS if entry[name] is not None]
    return bool(bands) and not any(b["p5"] <= entry["value"] <= b["p95"] for b in bands)


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


def of_schemes(schemes: list[Scheme], sheet: Sheet, length: int | None, seed: int) -> Drawn:
    """Draw encodings of one scheme, and write their caption.

    Raises
    ------
    UsageError
        If more rotations differ than fit, or the length is too small.
    """
    from posprobe.figures import alibi, relative, rotary
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
        figure = rotary.FIGURES["rotation"](sheet, printable(unique), {})
        text = captions.rotation(unique)
    elif isinstance(first, LinearBias):
        shown = [first]
        figure = alibi.FIGURES["slopes"](sheet, printable({names[0]: first}), {})
        text = captions.slopes(first)
    else:
        build = relative.FIGURES[relative.suited(found, sheet)]
        figure, text = build(sheet, printable(found), {}), captions.heads(found)
    whence = captions.provenance(distinct([r.name for r in shown[:3]]), shown[:3])
    more = f"And {len(shown) - 3} more of the same checkpoint." if len(shown) > 3 else ""
    return figure, captions.caption(text, whence, more)


def _unlike(rotations: Mapping[str, Rotation]) -> dict[str, Rotation]:
    unique: dict[str, Rotation] = {}
    for name, rotation in rotations.items():
        if not any(
            np.array_equal(rotation.wavelength, other.wavelength) for other in unique.values()
        ):
            unique[name] = rotation
    return unique
