"""The page of encodings without a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posprobe.data import read_data
from posprobe.figures.schemes import MAX_SINGLE_FIGURES
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
    first_kind, *other_kinds = kinds
    notes = [(scheme["name"], f"{note}.") for scheme in schemes for note in scheme["notes"]]
    learned = dict.fromkeys(kind in ("bias", "cosine") for kind in kinds)
    return Page(
        title=document["name"],
        subject="how attention knows position",
        lead=f"{', '.join(map(what_it_is, kinds.values()))} · no position table",
        headline=headline(document),
        notes=tuple(_gathered(notes, len(schemes))),
        pictures=tuple(_of_kind(first_kind)),
        evidence=tuple(_evidence(document, other_kinds)),
        key=" ".join(KEYS[is_learned] for is_learned in learned),
        numbers=_all_numbers(schemes),
        provenance=(
            *origin(schemes[0]["source"]),
            *(fact for scheme in schemes for fact in _whence(scheme, is_plural=len(schemes) > 1)),
            *versions(document["environment"]),
        ),
    )


def _whence(scheme: Block, *, is_plural: bool) -> Iterator[Fact]:
    prefix = f"{scheme['name']}: " if is_plural else ""
    if scheme["family"]:
        yield Fact(f"{prefix}family", scheme["family"])
    yield from tensor(scheme["source"], prefix)


def _pictures(texts: Mapping[str, str], ending: str = "") -> tuple[Picture, ...]:
    """Name the drawings that a bundle may hold: of each stem one, or several with numbers."""
    numbers = ("", *(f"_{k + 1}" for k in range(1, MAX_SINGLE_FIGURES)))
    return tuple(
        Picture(f"{stem}{number}{ending}", text)
        for stem, text in texts.items()
        for number in numbers
    )


def _of_kind(kind: str) -> tuple[Picture, ...]:
    return _pictures(PICTURES[kind], "_cosine" if kind == "cosine" else "")


def _evidence(document: Block, other_kinds: Sequence[str]) -> Iterator[Evidence]:
    """Yield the answers; drawings of ``other_kinds`` are not those of the first screen."""
    drawings = {kind: _of_kind(kind) for kind in other_kinds}
    depth = pictures("encodings", ("depth",))
    for answer in document.get("verdict", {}).get("answers", ()):
        kind, _, property_name = answer["question"].partition("_")
        pictures_of_kind = drawings.pop(kind, ())
        if property_name == "smooth":
            # Of both kinds there is one drawing over all encodings.
            pictures_of_kind, depth = (*pictures_of_kind, *depth), ()
        yield Evidence((line(answer),), sentences=(claim(answer),), pictures=pictures_of_kind)
    yield from _of_weights(document["schemes"])


def _of_weights(schemes: Sequence[Block]) -> Iterator[Evidence]:
    """Yield what query and key weights say, and how far arithmetic carries angles."""
    is_plural = len(schemes) > 1
    with_weights = [scheme for scheme in schemes if scheme.get("weights")]
    if with_weights:
        sentences = [
            f"{scheme['name']}: {entry}" if is_plural else entry
            for scheme in with_weights
            for entry in weights.sentences(scheme["weights"])
        ]
        first_line = weights.line(with_weights[0]["weights"])
        yield Evidence(
            (first_line,), sentences=tuple(sentences), pictures=_pictures(PICTURES["weights"])
        )
    ladders = [entry for scheme in schemes for entry in lookup(scheme, "rotation.along") or ()]
    if ladders:
        yield Evidence((weights.axes_line(ladders),), sentences=tuple(map(weights.axis, ladders)))
    horizons = [entry for scheme in schemes if (entry := lookup(scheme, "rotation.horizon"))]
    if horizons:
        unlike = {tuple(entry.items()): entry for entry in horizons}.values()
        horizon_sentences = tuple(map(weights.horizon, unlike))
        yield Evidence((weights.horizon_line(horizons),), sentences=horizon_sentences)


def _all_numbers(schemes: Sequence[Block]) -> Table:
    """Tabulate all numbers: a column for each encoding, and of its heads the range."""
    rows: list[Row] = []
    labels = read_data("report/numbers.toml")
    for key, number in labels["encodings"].items():
        values = [lookup(scheme, key) for scheme in schemes]
        if any(value is not None for value in values):
            rows.append(
                (number["label"], *(cell(value, number.get("form", ".3g")) for value in values))
            )
    if any(scheme.get("causal") for scheme in schemes):
        flag_texts = {True: "yes", False: "no", None: "–"}
        rows.append(
            ("later keys hidden", *(flag_texts[scheme.get("causal")] for scheme in schemes))
        )
    if any(scheme.get("special") for scheme in schemes):
        tokens = (", ".join(scheme.get("special") or ()) or "–" for scheme in schemes)
        rows.append(("tokens with biases of their own", *tokens))
    for key in sorted({key for scheme in schemes for key in scheme.get("scaling") or ()}):
        if key not in ("rope_type", "type", "rope_theta"):
            values = [(scheme.get("scaling") or {}).get(key) for scheme in schemes]
            rows.append((f"rule: {key}", *map(_parameter, values)))
    for key, label in labels["heads"].items():
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
    values = lookup(scheme, key) or []
    if key == "heads.peak":
        # Where all values of a head are equal, none is the largest.
        preferences = scheme["heads"].get("near", values)
        values = [
            None if no is None else peak for peak, no in zip(values, preferences, strict=True)
        ]
    return list(values)


def _over_heads(values: list[Any]) -> str:
    """Write the range of a number over heads; of offsets on a grid the most common."""
    defined = [value for value in values if value is not None]
    if any(isinstance(value, list) for value in defined):
        texts = (", ".join(map(str, value)) for value in defined)
        ((common, count),) = Counter(texts).most_common(1)
        return f"{common} ({count} of {len(values)} heads)"
    return between(defined) if defined else "–"


def _gathered(named_notes: Sequence[tuple[str, str]], count: int) -> list[str]:
    """Return every text once, with the names that it holds for unless it does for all."""
    names: dict[str, list[str]] = {}
    for name, text in named_notes:
        names.setdefault(text, []).append(name)
    return [
        text
        if len(owners) == count
        else f"{', '.join(owners[:4])}{' and others' if len(owners) > 4 else ''}: {text}"
        for text, owners in names.items()
    ]
