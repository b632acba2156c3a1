"""The page of schemes, encodings without a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posprobe.data import read_data
from posprobe.figures.schemes import MAX_SINGLE_FIGURES
from posprobe.page import Cell, Evidence, Fact, Page, Picture, Row, Table, make_columns
from posprobe.questions.schemes import scheme_kind
from posprobe.report.pages.parts import (
    document_headline,
    origin_facts,
    tensor_facts,
    version_facts,
)
from posprobe.text import Block, format_cell, format_range, lookup
from posprobe.words import (
    PICTURE_TEXTS,
    claim_sentence,
    define_line,
    describe_pictures,
    weights,
)
from posprobe.words.schemes import describe_schemes, key_sentence, scheme_line

#: Stem of the figure of how strong the pairs of each head are.
USAGE_PICTURE = "weights_usage"


def scheme_page(document: Block) -> Page:
    """Build the page of schemes, encodings without a table."""
    schemes = document["schemes"]
    schemes_by_kind: dict[str, list[Block]] = {}
    for scheme in schemes:
        schemes_by_kind.setdefault(scheme_kind(scheme), []).append(scheme)
    first_kind, *other_kinds = schemes_by_kind
    notes = [
        (scheme["name"], f"{note}.") for scheme in schemes for note in scheme["notes"]
    ]
    return Page(
        title=document["name"],
        subject="how attention knows position",
        lead=f"{', '.join(map(describe_schemes, schemes_by_kind.values()))} · no position table",
        headline=_headline(document),
        notes=tuple(_gather_notes(notes, len(schemes))),
        pictures=(*_usage_pictures(schemes), *_kind_pictures(first_kind)),
        evidence=tuple(_evidence(document, other_kinds)),
        key=" ".join(dict.fromkeys(map(key_sentence, schemes_by_kind.values()))),
        numbers=_number_table(schemes),
        provenance=(
            *origin_facts(schemes[0]["source"]),
            *(
                fact
                for scheme in schemes
                for fact in _scheme_facts(scheme, is_plural=len(schemes) > 1)
            ),
            *version_facts(document["environment"]),
        ),
    )


def _usage_pictures(schemes: Sequence[Block]) -> tuple[Picture, ...]:
    """Return the pictures of what heads use of the rotation, where their weights were read."""
    if not any(scheme.get("weights") for scheme in schemes):
        return ()
    return _pictures({USAGE_PICTURE: PICTURE_TEXTS["weights"][USAGE_PICTURE]})


def _headline(document: Block) -> str:
    """Say what was measured of heads first, then the leading answer; without it all answers."""
    schemes, summary = document["schemes"], document_headline(document)
    blocks = [scheme["weights"] for scheme in schemes if scheme.get("weights")]
    measured = (
        weights.usage_headline(blocks[0]) if len(blocks) == len(schemes) == 1 else ""
    )
    return (
        f"{measured} {summary.partition('. ')[0].rstrip('.')}." if measured else summary
    )


def _scheme_facts(scheme: Block, *, is_plural: bool) -> Iterator[Fact]:
    prefix = f"{scheme['name']}: " if is_plural else ""
    if scheme["family"]:
        yield Fact(f"{prefix}family", scheme["family"])
    yield from tensor_facts(scheme["source"], prefix)


def _pictures(texts: Mapping[str, str], ending: str = "") -> tuple[Picture, ...]:
    """Return the pictures that a bundle may hold: for each stem one, or several numbered ones."""
    numbers = ("", *(f"_{k + 1}" for k in range(1, MAX_SINGLE_FIGURES)))
    return tuple(
        Picture(f"{stem}{number}{ending}", text)
        for stem, text in texts.items()
        for number in numbers
    )


def _kind_pictures(kind: str) -> tuple[Picture, ...]:
    return _pictures(PICTURE_TEXTS[kind], "_cosine" if kind == "cosine" else "")


def _evidence(document: Block, other_kinds: Sequence[str]) -> Iterator[Evidence]:
    """Yield the answers; drawings of ``other_kinds`` are not those of the first screen."""
    # What was measured of heads comes before what the configuration says.
    yield from _weight_evidence(document["schemes"])
    drawings = {kind: _kind_pictures(kind) for kind in other_kinds}
    depth_pictures = describe_pictures("encodings", ("depth",))
    for answer in document.get("verdict", {}).get("answers", ()):
        kind, _, property_name = answer["question"].partition("_")
        pictures_of_kind = drawings.pop(kind, ())
        if property_name == "smooth":
            # Biases and cosines share one drawing over all encodings.
            pictures_of_kind, depth_pictures = (*pictures_of_kind, *depth_pictures), ()
        yield Evidence(
            (scheme_line(answer),),
            sentences=(claim_sentence(answer),),
            pictures=pictures_of_kind,
        )
    yield from _angle_evidence(document["schemes"])


def _weight_evidence(schemes: Sequence[Block]) -> Iterator[Evidence]:
    """Yield the evidence of query and key weights."""
    is_plural = len(schemes) > 1
    with_weights = [scheme for scheme in schemes if scheme.get("weights")]
    if with_weights:
        sentences = [
            f"{scheme['name']}: {sentence}" if is_plural else sentence
            for scheme in with_weights
            for sentence in weights.weights_sentences(scheme["weights"])
        ]
        first_line = weights.weights_line(with_weights[0]["weights"])
        yield Evidence(
            (first_line,),
            sentences=tuple(sentences),
            pictures=_pictures(
                {
                    stem: text
                    for stem, text in PICTURE_TEXTS["weights"].items()
                    if stem != USAGE_PICTURE
                }
            ),
        )
    tested = [scheme for scheme in with_weights if lookup(scheme, "weights.rotations")]
    if tested:
        yield Evidence(
            (weights.rotating_line([scheme["weights"] for scheme in tested]),),
            sentences=tuple(
                f"{scheme['name']}: {sentence}" if is_plural else sentence
                for scheme in tested
                for sentence in weights.rotation_sentences(scheme["weights"])
            ),
        )


def _angle_evidence(schemes: Sequence[Block]) -> Iterator[Evidence]:
    """Yield the evidence of the axes of images, and of the precision of the angles."""
    ladders = [
        ladder for scheme in schemes for ladder in lookup(scheme, "rotation.along") or ()
    ]
    if ladders:
        yield Evidence(
            (weights.axes_line(ladders),),
            sentences=tuple(map(weights.axis_sentence, ladders)),
        )
    horizons = [
        horizon for scheme in schemes if (horizon := lookup(scheme, "rotation.horizon"))
    ]
    if horizons:
        distinct_horizons = {
            tuple(horizon.items()): horizon for horizon in horizons
        }.values()
        horizon_sentences = tuple(map(weights.precision_sentence, distinct_horizons))
        yield Evidence((weights.precision_line(horizons),), sentences=horizon_sentences)


def _number_table(schemes: Sequence[Block]) -> Table:
    """Tabulate all numbers in a column for each encoding, with ranges over its heads."""
    rows: list[Row] = []
    labels = read_data("report/numbers.toml")
    for key, number in labels["encodings"].items():
        values = [lookup(scheme, key) for scheme in schemes]
        if any(value is not None for value in values):
            number_format = number.get("form", ".3g")
            texts = (format_cell(value, number_format) for value in values)
            block = key.partition(".")[0] if "." in key else "encoding"
            name = Cell(number["label"], definition=define_line(block))
            rows.append((name, *texts))
    if any(scheme.get("causal") for scheme in schemes):
        flag_texts = {True: "yes", False: "no", None: "–"}
        flags = (flag_texts[scheme.get("causal")] for scheme in schemes)
        rows.append(("later keys hidden", *flags))
    if any(scheme.get("special") for scheme in schemes):
        tokens = (", ".join(scheme.get("special") or ()) or "–" for scheme in schemes)
        rows.append(("tokens with biases of their own", *tokens))
    for key in sorted({key for scheme in schemes for key in scheme.get("scaling") or ()}):
        if key not in ("rope_type", "type", "rope_theta"):
            values = [(scheme.get("scaling") or {}).get(key) for scheme in schemes]
            rows.append((f"rule: {key}", *map(_format_parameter, values)))
    for key, label in labels["heads"].items():
        values_by_scheme = [_head_values(scheme, key) for scheme in schemes]
        if any(value is not None for values in values_by_scheme for value in values):
            name = Cell(label, definition=define_line("heads"))
            rows.append((name, *map(_format_over_heads, values_by_scheme)))
    unit = " or ".join(
        dict.fromkeys(scheme.get("unit", "positions") for scheme in schemes)
    )
    headings = make_columns("number", *(f"={scheme['name']}" for scheme in schemes))
    return Table(f"All numbers; distances in {unit}.", headings, tuple(rows))


def _format_parameter(value: object) -> str:
    if not isinstance(value, list):
        return format_cell(value)
    return f"{', '.join(map(format_cell, value[:4]))}{', …' if len(value) > 4 else ''}"


def _head_values(scheme: Block, key: str) -> list[Any]:
    """Return a number of every head; none for a rotary encoding, whose heads are all equal."""
    if scheme_kind(scheme) == "rotary":
        return []
    values = lookup(scheme, key) or []
    if key == "heads.peak":
        # A head whose values are all equal has no peak.
        preferences = scheme["heads"].get("near", values)
        values = [
            None if preference is None else peak
            for peak, preference in zip(values, preferences, strict=True)
        ]
    return list(values)


def _format_over_heads(values: list[Any]) -> str:
    """Format the range of a number over heads; for displacements, the most common one."""
    defined = [value for value in values if value is not None]
    if any(isinstance(value, list) for value in defined):
        texts = (", ".join(map(str, value)) for value in defined)
        ((most_common, count),) = Counter(texts).most_common(1)
        return f"{most_common} ({count} of {len(values)} heads)"
    return format_range(defined) if defined else "–"


def _gather_notes(named_notes: Sequence[tuple[str, str]], count: int) -> list[str]:
    """Return every note once, preceded by the encodings that it holds for unless all."""
    names: dict[str, list[str]] = {}
    for name, text in named_notes:
        names.setdefault(text, []).append(name)
    return [
        text
        if len(owners) == count
        else f"{', '.join(owners[:4])}{' and others' if len(owners) > 4 else ''}: {text}"
        for text, owners in names.items()
    ]
