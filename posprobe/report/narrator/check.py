"""What is said of two copies of a model, and of two tables of which one may come from the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from posprobe.data import read_data
from posprobe.relations.rules import Finding
from posprobe.report.narrator.words import Template, Words, number, some, two_figures

#: Most lines that the terminal gets.
MOST = 12


@cache
def _texts() -> Mapping[str, Any]:
    return read_data("report/narrator/checks.toml")


def _size(value: float | None) -> str:
    return "less than 0.00001" if value is not None and value < 1e-5 else two_figures(value or 0.0)


def _layers(f: Finding) -> str:
    layers = f.more.get("layers")
    read = f", {f.more['read']}" if "read" in f.more else ""
    return f"layers {', '.join(map(str, layers[:6]))}{read}: " if layers else ""


def _cap(value: float | None) -> str:
    return f"capped at {number(value)}" if value else "not capped"


def _angles(f: Finding) -> str:
    way: str = f.more["way"]
    return way if way in {"positions", "product"} else "all_angles"


#: Parts of lines that must choose.
PARTS: Mapping[str, Template] = {
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


def not_compared(reason: str, about: str = "") -> str:
    """Say why something was not compared; a reason that is no key is a message already."""
    text: str | None = _texts()["not_compared"].get(reason)
    return text.format(*about.split(" | "), about=about) if text else reason


def told(f: Finding) -> str:
    """Say one finding in a sentence."""
    where = f" of {f.part}" if f.part else ""
    text = f"{_texts()['what'][f.what].capitalize()}{where}: {_line(f)}."
    if f.first_distance is None:
        return text
    return f"{text} {_harm(f)}."


def _harm(f: Finding) -> str:
    if not math.isfinite(f.first_distance or math.inf):
        return "No pair is 0.1 rad off within what was compared"
    first = max(math.ceil(f.first_distance or 1), 1)
    size = _size(f.rotation) if f.rotation is not None else ""
    up_to = "" if size.startswith("less") else "up to "
    mean = f"; mean rotation off by {up_to}{size}" if size else ""
    return f"Off by 0.1 rad from distance {first:,}{mean}"


def lines(
    alike: bool | None,
    causes: Sequence[Finding],
    compared: Sequence[Finding],
    missing: Iterable[str],
    context: int | None,
) -> list[str]:
    """Return the verdict, what differs, what is alike, and the likely cause."""
    if alike is False:
        head = f"Different: {_texts()['causes'][causes[0].cause].get('head')}"
    elif alike is None:
        head = "Cannot tell."
    else:
        others = {found.cause for found in compared} & {"moved", "other_weights"}
        head = f"Alike{': other weights, same positions' if others else ''}."
    body = [line for found in causes for line in _rows(found, "differs", context)]
    rest = [line for found in compared for line in _rows(found, "alike", context)]
    rest += [f"  not compared: {text}." for text in missing]
    known = (_texts()["causes"][found.cause] for found in causes)
    hints = [each["likely"] for each in known if "likely" in each][:1]
    said = [*body, *rest]
    room = MOST - 1 - len(hints)
    if len(said) > room:
        said = [*said[: room - 1], f"  … {len(said) - room + 1} more lines: --json has all."]
    return [head, *said, *(f"Likely: {hint}" for hint in hints)]


def _rows(f: Finding, verdict: str, context: int | None) -> Iterator[str]:
    what = _texts()["what"][f.what] + (f" {f.part}" if f.part else "")
    yield f"  {what:<16}{_line(f):<56}  {verdict}"
    if f.first_distance is not None:
        length = f"; the context is {context:,}" if context else ""
        yield f"  {'':<16}{_harm(f)[:1].lower()}{_harm(f)[1:]}{length}"
