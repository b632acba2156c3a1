"""What the pages about encodings without a table show: sections, their numbers and their texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from posprobe.analyses.facts import Number
from posprobe.figures.schemes import ALONE
from posprobe.number_format import Block, between, cell, lookup, show
from posprobe.page import (
    Column,
    Fact,
    Page,
    Picture,
    Section,
    Table,
    columns,
)
from posprobe.readings import Explanation, readings
from posprobe.report.table_page import answers_table, origin, tensor, versions

#: Numbers of a rotary encoding, from its block.
ROTARY: Mapping[str, Number] = {
    "base": Number("base", "of the geometric series of frequencies", form="g"),
    "head_dim": Number("width of a head", "numbers", form="d"),
    "rotated": Number("rotated", "of these numbers", form="d"),
    "axes": Number("axes", "2 for patches: rows and columns", form="d"),
    "step": Number("step", "of the coordinate that turns the pairs, per position"),
    "window": Number("window", "positions that a query sees", form="d"),
    "rule": Number("rule", "that stretches the wavelengths"),
    "rotation.attention_factor": Number("attention factor", "on cosines and sines"),
    "rotation.pairs": Number("pairs", "along an axis", form="d"),
    "rotation.shortest_wavelength": Number("shortest wavelength", "positions per turn"),
    "rotation.longest_wavelength": Number("longest wavelength", "positions per turn"),
    "rotation.training": Number("training length", "positions", form="d"),
    "rotation.target": Number("target length", "positions", form="d"),
    "rotation.never_turn_training": Number(
        "never turn, training", "share of pairs, before scaling"
    ),
    "rotation.never_turn_target": Number("never turn, target", "share of pairs, as used"),
    "rotation.first_negative": Number("first negative", "distance, mean rotation", form="d"),
    "rotation.searched": Number("looked for up to", "distance, first negative", form="d"),
}

#: Rows beyond which a table is folded.
FOLDED = 64


def scheme_page(document: Block) -> Page:
    """Lay out the page of encodings without a table."""
    schemes = document["schemes"]
    kinds: dict[str, list[Block]] = {}
    for scheme in schemes:
        kinds.setdefault(_kind(scheme), []).append(scheme)
    what = ", and ".join(what_it_is(found) for found in kinds.values())
    several = len(schemes) > 1
    notes = [(scheme["name"], note) for scheme in schemes for note in scheme["notes"]]
    return Page(
        title=document["name"],
        subject="how attention knows position",
        lead=f"This model uses {what}, so there is no position table. Below: what attention is "
        "told about distance.",
        notes=tuple(f"{note}." for note in _gathered(notes, len(schemes))),
        sections=(
            _verdict(document),
            *(_section(key, found, kinds) for key, found in kinds.items()),
            *_kernels(schemes),
        ),
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


def _verdict(document: Block) -> Section:
    """Say what the encodings amount to; bundles of earlier versions have findings alone."""
    if "verdict" not in document:
        bullets = tuple(finding["text"] for finding in document["findings"])
        return Section("findings", "Findings", bullets=bullets)
    told = document["verdict"]
    caption = (
        "Answers about the configuration are exact. Answers about learned values are significant "
        "at the 2 % level."
    )
    return Section(
        "verdict",
        "What attention is told about position",
        bullets=(told["summary"],),
        tables=(answers_table(told, caption),),
    )


def _section(key: str, schemes: Sequence[Block], kinds: Mapping[str, object]) -> Section:
    texts = readings("report")[key]
    said = _said(key, schemes)
    tables = [_rotary(schemes)] if key == "rotary" else [_overview(schemes), _heads(schemes)]
    return Section(
        key,
        texts.title,
        paragraphs=(texts.shows, *(f"{fact}." for fact in _facts(schemes))),
        pictures=tuple(Picture(n, f"{label} {said}.") for n, label in _figures(key, texts, kinds)),
        notes=tuple(_reasons(schemes)),
        tables=tuple(tables),
        reading=texts.reading,
    )


def _kernels(schemes: Sequence[Block]) -> tuple[Section, ...]:
    if len(schemes) > ALONE:
        return ()
    names = ", ".join(scheme["name"] for scheme in schemes)
    return (
        Section(
            "kernel",
            "Between positions",
            paragraphs=(
                (
                    "What each query (down) and key (across) get, the mean over heads; keys that a "
                    "causal model hides are left empty."
                ),
            ),
            pictures=(
                Picture(
                    "kernels",
                    f"What each pair of positions gets, a matrix for each encoding: {names}.",
                ),
            ),
        ),
    )


def _kind(scheme: Block) -> str:
    return str(scheme["quantity"] if scheme["scheme"] == "relative" else scheme["scheme"])


def what_it_is(schemes: Sequence[Block]) -> str:
    """Say in words what encodings of one kind are."""
    several = f", in {len(schemes)} places" if len(schemes) > 1 else ""
    match _kind(schemes[0]):
        case "rotary":
            return f"rotary embeddings (RoPE){several}"
        case "alibi":
            return f"linear biases (ALiBi) with a fixed slope per head{several}"
        case "cosine":
            return f"a learned vector per distance{several}"
    layouts = [scheme["layout"] for scheme in schemes]
    if layouts[0]["type"] == "grid":
        sizes = dict.fromkeys(f"{layout['height']} × {layout['width']}" for layout in layouts)
        where = f"displacement in windows of {' and '.join(sizes)} patches"
    else:
        where = "distance"
    return f"a learned bias per head and {where}{several}"


def _figures(
    key: str, texts: Explanation, kinds: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    """Name the drawings that a bundle may hold of a kind of encoding, with their texts."""
    ending = "_cosine" if key == "cosine" else ""
    learned = next((kind for kind in kinds if kind in ("bias", "cosine")), None)
    for stem, label in texts.drawings.items():
        if stem == "depth":
            if key == learned:
                yield stem, label
            continue
        for number in ("", *(f"_{k + 1}" for k in range(1, ALONE))):
            yield f"{stem}{number}{ending}", label


def _said(key: str, schemes: Sequence[Block]) -> str:
    """State what drawings of encodings of one kind show, for those who do not see them."""
    if key == "rotary":
        shortest, longest = (
            between([scheme["rotation"][f"{end}_wavelength"] for scheme in schemes])
            for end in ("shortest", "longest")
        )
        return f"Wavelengths reach from {shortest} to {longest} positions"
    if key == "alibi":
        slopes = [slope for scheme in schemes for slope in scheme["slopes"]]
        return f"Slopes of {len(slopes)} heads: {between(slopes)}"
    numbers: dict[str, list[float]] = {"windows, in keys": [], "correlations of neighbours": []}
    for scheme in schemes:
        for label, found in zip(
            numbers, (scheme["heads"]["window"], scheme["smoothness"]["correlation"]), strict=True
        ):
            numbers[label] += [value for value in found or () if value is not None]
    parts = [f"{label}: {between(values)}" for label, values in numbers.items() if values]
    return f"Heads: {sum(scheme['head_count'] for scheme in schemes)}; {'; '.join(parts)}"


def _overview(schemes: Sequence[Block]) -> Table:
    """Tabulate one row per encoding."""
    rows = tuple(
        (
            scheme["name"],
            str(scheme["head_count"]),
            between(scheme["heads"]["window"]),
            between(scheme["heads"]["half_width"]),
            cell(lookup(scheme, "smoothness.structured")),
        )
        for scheme in schemes
    )
    return Table(
        f"Each encoding; windows and half widths in {_units(schemes)}, smallest to largest over "
        "heads; "
        "smooth heads are those whose neighbouring distances correlate more than 95 % of "
        "permutations.",
        columns("encoding", "=heads", "=window", "=half width", "=smooth heads"),
        rows,
        brief=True,
    )


def _heads(schemes: Sequence[Block]) -> Table:
    """Tabulate one row per encoding and head."""
    found = [
        ("slope", [scheme.get("slopes") for scheme in schemes]),
        *(
            (label, [scheme["heads"][key] for scheme in schemes])
            for label, key in (
                ("window", "window"),
                ("half width", "half_width"),
                ("asymmetry", "asymmetry"),
                ("falling", "monotone_fraction"),
            )
        ),
        ("peak", [_peaks(scheme["heads"]) for scheme in schemes]),
        *(
            (label, [lookup(scheme, f"smoothness.{key}") for scheme in schemes])
            for label, key in (("correlation", "correlation"), ("95 % of chance", "p95"))
        ),
    ]
    # What no encoding here has a number for is no column.
    shown = [
        (label, lists)
        for label, lists in found
        if any(value is not None for values in lists for value in values or ())
    ]
    several = len(schemes) > 1
    rows = tuple(
        (
            *((scheme["name"],) if several else ()),
            str(head),
            *(_entry(lists[k][head]) for _, lists in shown),
        )
        for k, scheme in enumerate(schemes)
        for head in range(len(scheme["heads"]["peak"]))
    )
    headings = (
        *(columns("encoding") if several else ()),
        *columns("=head", *(f"={label}" for label, _ in shown)),
    )
    return Table(
        f"Every head ({len(rows)}); distances in {_units(schemes)}.",
        headings,
        rows,
        folded=len(rows) > FOLDED,
    )


def _peaks(heads: Block) -> list[object]:
    """Return the offset of each head's largest value; None where all values are equal."""
    return [
        None if near is None else peak
        for peak, near in zip(heads["peak"], heads.get("near", heads["peak"]), strict=True)
    ]


def _units(schemes: Sequence[Block]) -> str:
    return " or ".join(dict.fromkeys(scheme.get("unit", "positions") for scheme in schemes))


def _entry(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return cell(value)


def _rotary(schemes: Sequence[Block]) -> Table:
    """Tabulate one row per number, one column per encoding."""
    rows = []
    for key, number in ROTARY.items():
        found = [lookup(scheme, key) for scheme in schemes]
        if any(value is not None for value in found):
            texts = [cell(value, number.form) for value in found]
            rows.append((number.label, *texts, number.meaning))
    for key in sorted({key for scheme in schemes for key in scheme["scaling"]}):
        if key not in ("rope_type", "type", "rope_theta"):
            texts = [_parameter(scheme["scaling"].get(key)) for scheme in schemes]
            rows.append((key, *texts, "parameter of the rule"))
    headings = (
        Column("number"),
        *(Column(scheme["name"], numeric=True) for scheme in schemes),
        Column("meaning"),
    )
    return Table("Rotary position embedding: numbers", headings, tuple(rows))


def _parameter(value: object) -> str:
    if isinstance(value, list) and len(value) > 4:
        return f"{len(value)} numbers from {show(value[0])} to {show(value[-1])}"
    return cell(value)


def _facts(schemes: Sequence[Block]) -> list[str]:
    """Return what holds for encodings of a kind and is no number of a head."""
    found: list[tuple[str, str]] = []
    for scheme in schemes:
        name = scheme["name"]
        if scheme.get("causal"):
            found.append((name, "later keys are hidden, and their offsets take part in no number"))
        if scheme.get("special"):
            tokens = ", ".join(scheme["special"])
            found.append((name, f"special tokens have biases of their own, kept apart: {tokens}"))
        if scheme["scheme"] == "relative" and scheme["reach"] is not None:
            reach = scheme["reach"]
            found.append((name, f"distances beyond {reach} share the value of {reach}"))
    plain = {text for _, text in found}
    # A text that begins with a name keeps it as it is.
    return [
        text[0].upper() + text[1:] if text in plain else text
        for text in _gathered(found, len(schemes))
    ]


def _reasons(schemes: Sequence[Block]) -> list[str]:
    found = []
    for scheme in schemes:
        blocks = ("rotation",) if scheme["scheme"] == "rotary" else ("heads", "smoothness")
        for block in blocks:
            for number, reason in (lookup(scheme, f"{block}.undefined") or {}).items():
                found.append((scheme["name"], f"{number.replace('_', ' ')}: {reason}"))
    return _gathered(found, len(schemes))


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
