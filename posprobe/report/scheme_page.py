"""The page of encodings without a table, from its document alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from posprobe.data import read_data
from posprobe.figures.schemes import ALONE
from posprobe.page import Evidence, Fact, Page, Picture, Row, Table, columns
from posprobe.questions.schemes import kind_of
from posprobe.report.narrator import PICTURES, claim, pictures, weights
from posprobe.report.narrator.schemes import KEYS, line, what_it_is
from posprobe.report.table_page import origin, tensor, versions
from posprobe.text import Block, between, cell, lookup, show

#: Heads that have a column each where there is one encoding.
MOST = 32


def scheme_page(document: Block) -> Page:
    """Lay out the page of encodings without a table."""
    schemes, told = document["schemes"], document.get("verdict")
    kinds: dict[str, list[Block]] = {}
    for scheme in schemes:
        kinds.setdefault(kind_of(scheme), []).append(scheme)
    first, *others = kinds
    several = len(schemes) > 1
    notes = [(scheme["name"], f"{note}.") for scheme in schemes for note in scheme["notes"]]
    return Page(
        title=document["name"],
        subject="how attention knows position",
        lead=f"{', '.join(map(what_it_is, kinds.values()))} · no position table",
        # Bundles of earlier versions have findings alone.
        headline=told["summary"] if told else _found(document),
        notes=tuple(_gathered(notes, len(schemes))),
        pictures=(
            *_pictures(first),
            *(pictures("encodings", ("kernels",)) if len(schemes) <= ALONE else ()),
        ),
        evidence=tuple(_evidence(document, others)),
        key=" ".join(KEYS[learned] for learned in dict.fromkeys(map(_learned, kinds))),
        numbers=_all_numbers(schemes),
        provenance=(
            *origin(schemes[0]["source"]),
            *(
                fact
                for scheme in schemes
                for whose in (f"{scheme['name']}: " if several else "",)
                for fact in (
                    *((Fact(f"{whose}family", scheme["family"]),) if scheme["family"] else ()),
                    *tensor(scheme["source"], whose),
                )
            ),
            *versions(document["environment"]),
        ),
    )


def _found(document: Block) -> str:
    return " ".join(finding["text"] for finding in document["findings"])


def _learned(kind: str) -> bool:
    return kind in ("bias", "cosine")


def _pictures(kind: str) -> Iterator[Picture]:
    """Name the drawings that a bundle may hold of a kind of encoding."""
    ending = "_cosine" if kind == "cosine" else ""
    for stem, text in PICTURES[kind].items():
        for number in ("", *(f"_{k + 1}" for k in range(1, ALONE))):
            yield Picture(f"{stem}{number}{ending}", text)


def _evidence(document: Block, others: Sequence[str]) -> Iterator[Evidence]:
    """Yield the answers; drawings of ``others`` are not those of the first screen."""
    drawings = {kind: tuple(_pictures(kind)) for kind in others}
    depth = pictures("encodings", ("depth",))
    for answer in document.get("verdict", {}).get("answers", ()):
        kind, _, what = answer["question"].partition("_")
        drawn = drawings.pop(kind, ())
        if what == "smooth":
            # Of both kinds there is one drawing over all encodings.
            drawn, depth = (*drawn, *depth), ()
        yield Evidence((line(answer),), sentences=(claim(answer),), pictures=drawn)
    yield from _of_weights(document["schemes"])


def _of_weights(schemes: Sequence[Block]) -> Iterator[Evidence]:
    """Yield what query and key weights say, and how far arithmetic carries angles."""
    several = len(schemes) > 1
    known = [scheme for scheme in schemes if scheme.get("weights")]
    if known:
        said = [
            f"{scheme['name']}: {each}" if several else each
            for scheme in known
            for each in weights.sentences(scheme["weights"])
        ]
        drawn = [
            Picture(f"{stem}{number}", text)
            for number in ("", *(f"_{k + 1}" for k in range(1, ALONE)))
            for stem, text in weights.PICTURES.items()
        ]
        first = weights.line(known[0]["weights"])
        yield Evidence((first,), sentences=tuple(said), pictures=tuple(drawn))
    ladders = [each for scheme in schemes for each in lookup(scheme, "rotation.along") or ()]
    if ladders:
        yield Evidence((weights.axes_line(ladders),), sentences=tuple(map(weights.axis, ladders)))
    found = [each for scheme in schemes if (each := lookup(scheme, "rotation.horizon"))]
    if found:
        unlike = {tuple(each.items()): each for each in found}.values()
        told = tuple(map(weights.horizon, unlike))
        yield Evidence((weights.horizon_line(found),), sentences=told)


def _all_numbers(schemes: Sequence[Block]) -> Table:
    """Tabulate all numbers: a column for each encoding, or for each head of the only one."""
    rows: list[Row] = []
    known = read_data("report/numbers.toml")
    for key, number in known["encodings"].items():
        found = [lookup(scheme, key) for scheme in schemes]
        if any(value is not None for value in found):
            rows.append(
                (number["label"], *(cell(value, number.get("form", ".3g")) for value in found))
            )
    if any(scheme.get("causal") for scheme in schemes):
        hidden = (_yes_or_no(scheme.get("causal")) for scheme in schemes)
        rows.append(("later keys hidden", *hidden))
    if any(scheme.get("special") for scheme in schemes):
        tokens = (", ".join(scheme.get("special") or ()) or "–" for scheme in schemes)
        rows.append(("tokens with biases of their own", *tokens))
    for key in sorted({key for scheme in schemes for key in scheme.get("scaling") or ()}):
        if key not in ("rope_type", "type", "rope_theta"):
            found = [(scheme.get("scaling") or {}).get(key) for scheme in schemes]
            rows.append((f"rule: {key}", *map(_parameter, found)))
    names = [scheme["name"] for scheme in schemes]
    heads = schemes[0]["head_count"]
    apart = len(schemes) == 1 and kind_of(schemes[0]) != "rotary" and 1 < heads <= MOST
    if apart:
        names = ["all heads", *(f"head {head}" for head in range(heads))]
        rows = [(*row, *["–"] * heads) for row in rows]
    for key, label in known["heads"].items():
        lists = [_of_heads(scheme, key) for scheme in schemes]
        if any(value is not None for values in lists for value in values):
            each = map(_entry, lists[0]) if apart else ()
            rows.append((label, *map(_over_heads, lists), *each))
    unit = " or ".join(dict.fromkeys(scheme.get("unit", "positions") for scheme in schemes))
    headings = columns("number", *(f"={name}" for name in names))
    return Table(f"All numbers; distances in {unit}.", headings, tuple(rows))


def _yes_or_no(value: bool | None) -> str:
    return "–" if value is None else "yes" if value else "no"


def _of_heads(scheme: Block, key: str) -> list[object]:
    """Return a number of every head; none of a rotary encoding, whose heads are all alike."""
    if kind_of(scheme) == "rotary":
        return []
    heads, name = scheme["heads"], key.removeprefix("heads.")
    found = lookup(scheme, key) if name == key else heads[name]
    if key == "heads.peak":
        # Where all values of a head are equal, none is the largest.
        near = heads.get("near", found)
        found = [None if no is None else peak for peak, no in zip(found, near, strict=True)]
    return found or []


def _over_heads(values: list[object]) -> str:
    """Write the range of a number over heads; of offsets on a grid the most common."""
    known: list[Any] = [value for value in values if value is not None]
    if any(isinstance(value, list) for value in known):
        ((common, count),) = Counter(map(_entry, known)).most_common(1)
        return f"{common} ({count} of {len(values)} heads)"
    return between(known) if known else "–"


def _entry(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else cell(value)


def _parameter(value: object) -> str:
    if isinstance(value, list) and len(value) > 4:
        return f"{len(value)} numbers from {show(value[0])} to {show(value[-1])}"
    return cell(value)


def _gathered(found: Sequence[tuple[str, str]], count: int) -> list[str]:
    """Return every text once, with the names that it holds for unless it does for all."""
    names: dict[str, list[str]] = {}
    for name, text in found:
        names.setdefault(text, []).append(name)
    return [
        text
        if len(whose) == count
        else f"{', '.join(whose[:4])}{' and others' if len(whose) > 4 else ''}: {text}"
        for text, whose in names.items()
    ]
