"""The page of encodings without a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posprobe.data import read_data
from posprobe.figures.schemes import ALONE
from posprobe.page import Evidence, Fact, Page, Picture, Row, Table, columns
from posprobe.questions.schemes import kind_of
from posprobe.report.pages.parts import headline, origin, tensor, versions
from posprobe.text import Block, between, cell, lookup
from posprobe.words import PICTURES, claim, pictures, weights
from posprobe.words.schemes import KEYS, line, what_it_is


def scheme_page(document: Block) -> Page:
    """Lay out the page of encodings without a table."""
    schemes = document["schemes"]
    kinds: dict[str, list[Block]] = {}
    for scheme in schemes:
        kinds.setdefault(kind_of(scheme), []).append(scheme)
    first, *others = kinds
    notes = [(scheme["name"], f"{note}.") for scheme in schemes for note in scheme["notes"]]
    learned = dict.fromkeys(kind in ("bias", "cosine") for kind in kinds)
    return Page(
        title=document["name"],
        subject="how attention knows position",
        lead=f"{', '.join(map(what_it_is, kinds.values()))} · no position table",
        headline=headline(document),
        notes=tuple(_gathered(notes, len(schemes))),
        pictures=tuple(_of_kind(first)),
        evidence=tuple(_evidence(document, others)),
        key=" ".join(KEYS[each] for each in learned),
        numbers=_all_numbers(schemes),
        provenance=(
            *origin(schemes[0]["source"]),
            *(fact for scheme in schemes for fact in _whence(scheme, several=len(schemes) > 1)),
            *versions(document["environment"]),
        ),
    )


def _whence(scheme: Block, *, several: bool) -> Iterator[Fact]:
    whose = f"{scheme['name']}: " if several else ""
    if scheme["family"]:
        yield Fact(f"{whose}family", scheme["family"])
    yield from tensor(scheme["source"], whose)


def _pictures(texts: Mapping[str, str], ending: str = "") -> tuple[Picture, ...]:
    """Name the drawings that a bundle may hold: of each stem one, or several with numbers."""
    numbers = ("", *(f"_{k + 1}" for k in range(1, ALONE)))
    return tuple(
        Picture(f"{stem}{number}{ending}", text)
        for stem, text in texts.items()
        for number in numbers
    )


def _of_kind(kind: str) -> tuple[Picture, ...]:
    return _pictures(PICTURES[kind], "_cosine" if kind == "cosine" else "")


def _evidence(document: Block, others: Sequence[str]) -> Iterator[Evidence]:
    """Yield the answers; drawings of ``others`` are not those of the first screen."""
    drawings = {kind: _of_kind(kind) for kind in others}
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
        first = weights.line(known[0]["weights"])
        yield Evidence((first,), sentences=tuple(said), pictures=_pictures(PICTURES["weights"]))
    ladders = [each for scheme in schemes for each in lookup(scheme, "rotation.along") or ()]
    if ladders:
        yield Evidence((weights.axes_line(ladders),), sentences=tuple(map(weights.axis, ladders)))
    found = [each for scheme in schemes if (each := lookup(scheme, "rotation.horizon"))]
    if found:
        unlike = {tuple(each.items()): each for each in found}.values()
        told = tuple(map(weights.horizon, unlike))
        yield Evidence((weights.horizon_line(found),), sentences=told)


def _all_numbers(schemes: Sequence[Block]) -> Table:
    """Tabulate all numbers: a column for each encoding, and of its heads the range."""
    rows: list[Row] = []
    known = read_data("report/numbers.toml")
    for key, number in known["encodings"].items():
        found = [lookup(scheme, key) for scheme in schemes]
        if any(value is not None for value in found):
            rows.append(
                (number["label"], *(cell(value, number.get("form", ".3g")) for value in found))
            )
    if any(scheme.get("causal") for scheme in schemes):
        said = {True: "yes", False: "no", None: "–"}
        rows.append(("later keys hidden", *(said[scheme.get("causal")] for scheme in schemes)))
    if any(scheme.get("special") for scheme in schemes):
        tokens = (", ".join(scheme.get("special") or ()) or "–" for scheme in schemes)
        rows.append(("tokens with biases of their own", *tokens))
    for key in sorted({key for scheme in schemes for key in scheme.get("scaling") or ()}):
        if key not in ("rope_type", "type", "rope_theta"):
            found = [(scheme.get("scaling") or {}).get(key) for scheme in schemes]
            rows.append((f"rule: {key}", *map(_parameter, found)))
    for key, label in known["heads"].items():
        lists = [_of_heads(scheme, key) for scheme in schemes]
        if any(value is not None for values in lists for value in values):
            rows.append((label, *map(_over_heads, lists)))
    unit = " or ".join(dict.fromkeys(scheme.get("unit", "positions") for scheme in schemes))
    headings = columns("number", *(f"={scheme['name']}" for scheme in schemes))
    return Table(f"All numbers; distances in {unit}.", headings, tuple(rows))


def _parameter(value: object) -> str:
    if not isinstance(value, list):
        return cell(value)
    return f"{', '.join(map(cell, value[:4]))}{', …' if len(value) > 4 else ''}"


def _of_heads(scheme: Block, key: str) -> list[Any]:
    """Return a number of every head; none of a rotary encoding, whose heads are all alike."""
    if kind_of(scheme) == "rotary":
        return []
    found = lookup(scheme, key) or []
    if key == "heads.peak":
        # Where all values of a head are equal, none is the largest.
        near = scheme["heads"].get("near", found)
        found = [None if no is None else peak for peak, no in zip(found, near, strict=True)]
    return list(found)


def _over_heads(values: list[Any]) -> str:
    """Write the range of a number over heads; of offsets on a grid the most common."""
    known = [value for value in values if value is not None]
    if any(isinstance(value, list) for value in known):
        texts = (", ".join(map(str, value)) for value in known)
        ((common, count),) = Counter(texts).most_common(1)
        return f"{common} ({count} of {len(values)} heads)"
    return between(known) if known else "–"


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
