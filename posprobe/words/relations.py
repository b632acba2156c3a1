"""What is said of two copies of a model, and of two tables of which one may come from the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from posprobe.data import read_data
from posprobe.layouts import Grid
from posprobe.relations.fingerprints import (
    BLOCKS_PER_AXIS,
    MAX_RELATED_DISTANCE,
    N_BLOCKS,
    Likeness,
)
from posprobe.relations.rules import Finding
from posprobe.relations.values import MAX_RELATED_CHANCE, MAX_SKETCH_ROUNDING
from posprobe.words.formats import Template, Words, number, some, two_figures

#: Most lines that the terminal gets.
MOST = 12


@cache
def _texts() -> Mapping[str, Any]:
    return read_data("words/checks.toml")


def subjects() -> tuple[str, ...]:
    """Return what of two copies is compared, in the order in which it is told."""
    return tuple(_texts()["what"])


def _size(value: float | None) -> str:
    return "less than 0.00001" if value is not None and value < 1e-5 else two_figures(value or 0.0)


def _layers(f: Finding) -> str:
    layers = f.more.get("layers")
    read = f", {f.more['read']}" if "read" in f.more else ""
    if not layers:
        return ""
    noun = "layer" if len(layers) == 1 else "layers"
    return f"{noun} {', '.join(map(str, layers[:6]))}{read}: "


def _cap(value: float | None) -> str:
    return f"capped at {number(value)}" if value else "not capped"


def _angles(f: Finding) -> str:
    way: str = f.more["way"]
    return way if way in {"positions", "product"} else "all_angles"


#: Parts of lines that must choose.
PARTS: Mapping[str, Template] = {
    "again": lambda f: (
        f", rounded to {f.more['type']} in {f.more['side'].upper()}" if "type" in f.more else ""
    ),
    "angles": _angles,
    "apart": lambda f: number(max(f.more["last"], 1 / f.more["last"])),
    "base": lambda f: f"base {number(f.a)} in both" if f.a else "equal",
    "between": lambda f: str(f.more["pairs"] - f.more["kept"]),
    "blocks": lambda f: f.more.get("type") or f"{f.more['bits']} bits in blocks",
    "caps": lambda f: f"{_cap(f.a)} in A, {_cap(f.b)} in B",
    "count": lambda f: some(int(f.value or 0), "row"),
    "inverse": lambda f: number(1 / (f.value or 1)),
    "layers": _layers,
    "lone": lambda f: f"{f.a or f.b} in {'A' if f.a else 'B'}",
    "method": lambda f: f.more["method"].replace("_antialias", ", antialiased"),
    "of_heads": lambda f: "heads of " if "of" in f.more else "",
    "pairing": lambda f: f.a or "in the same order",
    "pairings": lambda f: f"{f.a or 'not stated'} in A, {f.b or 'not stated'} in B",
    "scaled": lambda f: "divided" if (f.value or 0) >= 1 else "multiplied",
    "side": lambda f: f.more["side"].upper(),
    "size": lambda f: _size(f.value),
}


def _line(f: Finding) -> str:
    words = Words({**_texts()["parts"], **PARTS}, f=f)
    return words.format(_texts()["causes"][f.cause]["line"])


def not_compared(reason: str, details: str = "") -> str:
    """Say why something was not compared; a reason that is no key is a message already."""
    text: str | None = _texts()["not_compared"].get(reason)
    return text.format(*details.split(" | "), about=details) if text else reason


def told(f: Finding) -> str:
    """Say one finding in a sentence."""
    part_text = f" of {f.part}" if f.part else ""
    text = f"{_texts()['what'][f.what].capitalize()}{part_text}: {_line(f)}."
    if f.first_distance is None:
        return text
    return f"{text} {_harm(f)}."


def _harm(f: Finding) -> str:
    if not math.isfinite(f.first_distance or math.inf):
        return "No pair is 0.1 rad off within what was compared"
    first_distance = max(math.ceil(f.first_distance or 1), 1)
    size = _size(f.rotation) if f.rotation is not None else ""
    up_to = "" if size.startswith("less") else "up to "
    mean = f"; mean rotation off by {up_to}{size}" if size else ""
    return f"Off by 0.1 rad from distance {first_distance:,}{mean}"


def subject(kind: str, part: str) -> str:
    """Name what was compared, and of which encoding where there are several."""
    name: str = _texts()["what"][kind]
    return f"{name} {part}".rstrip()


def copies(a: str, b: str) -> str:
    """Say what a check is about."""
    return f"Do A ({a}) and B ({b}) encode position alike?"


def left_out(reason: str) -> str:
    """Say that something was not compared."""
    return f"Not compared: {reason}."


def verdict(is_alike: bool | None, causes: Sequence[str], compared: Sequence[str]) -> list[str]:
    """Return the verdict and, of a difference, the likely cause, from the names of relations."""
    texts = _texts()["causes"]
    if is_alike is None:
        return ["Cannot tell."]
    if is_alike:
        side_causes = {"moved", "other_weights"} & {*compared}
        return [f"Alike{': other weights, same positions' if side_causes else ''}."]
    hints = [texts[cause]["likely"] for cause in causes if "likely" in texts[cause]][:1]
    return [f"Different: {texts[causes[0]].get('head')}", *(f"Likely: {hint}" for hint in hints)]


def lines(
    is_alike: bool | None,
    causes: Sequence[Finding],
    compared: Sequence[Finding],
    missing: Iterable[str],
    context: int | None,
) -> list[str]:
    """Return the verdict, what differs, what is alike, and the likely cause."""
    names = ([finding.cause for finding in findings] for findings in (causes, compared))
    head, *hints = verdict(is_alike, *names)
    body = [line for finding in causes for line in _rows(finding, "differs", context)]
    alike_lines = [line for finding in compared for line in _rows(finding, "alike", context)]
    alike_lines += [f"  not compared: {text}." for text in missing]
    all_lines = [*body, *alike_lines]
    room = MOST - 1 - len(hints)
    if len(all_lines) > room:
        all_lines = [
            *all_lines[: room - 1],
            f"  … {len(all_lines) - room + 1} more lines: --json has all.",
        ]
    return [head, *all_lines, *hints]


def _rows(f: Finding, verdict: str, context: int | None) -> Iterator[str]:
    yield f"  {subject(f.what, f.part):<16}{_line(f):<56}  {verdict}"
    if f.first_distance is not None:
        length = f"; the context is {context:,}" if context else ""
        yield f"  {'':<16}{_harm(f)[:1].lower()}{_harm(f)[1:]}{length}"


#: Probability above which as small a distance is what chance makes.
USUAL_DISTANCE = 0.05
_LIMIT = f"{MAX_RELATED_CHANCE:.0e}".replace("-0", "-")
_FORMATS: Mapping[str | None, str] = {
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
}  # fmt: skip


def relation(f: Likeness) -> str:
    """Say what a table is to another, whose name follows."""
    if f.distance is None:
        return "not comparable with"
    if f.shift:
        rows = some(f.shift, "row")
        cut = f"first {rows} cut off from"
        return cut if f.relation == "rows_cut" else f"{rows} put in front of"
    return f"{f.relation} {'to' if f.relation in ('identical', 'unrelated') else 'from'}"


def evidence(f: Likeness) -> str:
    """Say what is known of the distance of two tables."""
    if f.distance is None or f.chance is None:
        width_a, width_b = f.widths
        if width_a != width_b:
            return f"Tables of width {width_a} and {width_b} cannot be compared."
        return "They have no positions in common, or one is zero."
    if f.relation == "identical" and f.whole:
        return f"All {f.rows} rows are equal (same SHA-256)."
    sentence = f"Relative distance {_distance(f.distance)} {_between(f)}"
    if f.relation == "identical":
        return f"{sentence}: equal, as far as fingerprints can tell."
    if f.relation == "rounded":
        return f"{sentence}: within rounding to {_FORMATS[f.rounded_to]}."
    if not f.related:
        if f.chance > USUAL_DISTANCE:
            return f"{sentence}: no closer than chance (p = {f.chance:.2g})."
        return f"{sentence}: chance is not excluded (p = {f.chance:.2g}, required {_LIMIT})."
    sentence = f"{sentence}: closer than chance (p < {_LIMIT})."
    if f.distance > MAX_RELATED_DISTANCE:
        sentence += " This far apart, they may share only their initial values."
    return f"{sentence} Which came first is not known."


def _distance(value: float) -> str:
    if value < MAX_SKETCH_ROUNDING:
        return f"below {MAX_SKETCH_ROUNDING:g}"
    return f"{value:.1f}" if 1 <= value < 100 else two_figures(value)


def _between(f: Likeness) -> str:
    """Say what the distance is about."""
    if f.rows:
        return f"over all {f.rows} positions" if f.whole else f"over {f.rows} shared positions"
    name_a, name_b = (
        f"{size.height} × {size.width}" if isinstance(size, Grid) else f"{size.length}"
        for size in f.sizes
    )
    grid = isinstance(f.sizes[0], Grid)
    parts = f"{BLOCKS_PER_AXIS} × {BLOCKS_PER_AXIS}" if grid else str(N_BLOCKS)
    cells = "patches" if grid else "positions"
    return f"between means of {parts} equal parts ({name_a} and {name_b} {cells})"
