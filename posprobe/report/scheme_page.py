"""What the pages about encodings without a table show: sections, their numbers and their texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posprobe.report.sections import Block, Number, lookup, show
from posprobe.report.svg import inline


@dataclass(frozen=True)
class SchemeSection:
    """A kind of encoding on the page.

    Parameters
    ----------
    key
        Name of the section.
    title
        Heading.
    shows, reading, limits, source
        What it is, how to read it, what it does not show, and where it was published.
    figures
        Texts that stand for the drawings, by what their names begin with.
    """

    key: str
    title: str
    shows: str
    reading: str
    limits: str
    source: str
    figures: Mapping[str, str]


_NO_CONTENT = (
    "The bias is one of two summands: what the content of queries and keys adds can outweigh it, "
    "and no content was looked at. "
)

SECTIONS: Mapping[str, SchemeSection] = {
    "bias": SchemeSection(
        key="bias",
        title="Relative biases",
        shows="A learned number per head and distance, added to the attention logit of every "
        "query and key that are so far apart.",
        reading="Offsets and displacements run from the query to the key: negative is earlier, "
        "left, up. A constant that a head adds to all logits changes no attention, so colours show "
        "the bias less its mean over the head. The window is the number of keys that the bias "
        "alone would spread a query's attention over. Asymmetry is the share of variance that "
        "differs between before and after. A head whose neighbouring distances correlate more than "
        "95 % of permutations is smooth; of heads without structure one in twenty is. Heads count "
        "from 0.",
        limits=_NO_CONTENT + "Biases of distances that training never showed keep their initial "
        "value. Distances in one bucket share a number by construction, and are counted once in "
        "the correlation.",
        source="T5: Raffel et al. 2020, section 2.1; Swin: Liu et al. 2021, section 3.2, and 2022, "
        "section 3.3; BEiT: Bao et al. 2022; LeViT: Graham et al. 2021, section 4.2. Window: "
        "perplexity of the softmax; correlation: Moran 1950.",
        figures={
            "maps": "Maps of the bias by displacement, one for each head, on one range around 0.",
            "mosaic": "Maps of the bias by displacement, a row for each encoding and a column for "
            "each head, on one range around 0.",
            "curves": "Bias by offset, one panel for each head, on shared axes.",
            "stripes": "Bias by offset as colour, one stripe for each head, on one range around 0.",
            "depth": "Window and correlation of neighbouring distances of every head, by encoding.",
        },
    ),
    "cosine": SchemeSection(
        key="cosine",
        title="Relative position vectors",
        shows="A learned vector per distance that is multiplied with the query, or with the key. "
        "Without one it has no value: what is shown is its cosine with the vector of distance 0.",
        reading="A high cosine means that attention can hardly tell the distance from 0. Offsets "
        "run from the query to the key. Correlation above 95 % of permutations means that "
        "neighbouring distances have vectors alike.",
        limits="A cosine ignores lengths, and what queries make of a vector: two vectors alike can "
        "still differ in the one direction that queries use.",
        source="Shaw et al. 2018, section 3.2; on grids Bello et al. 2019 and Li et al. 2022 "
        "(ViTDet, SAM); DeBERTa: He et al. 2021, section 3.1. Correlation: Moran 1950.",
        figures={
            "maps": "Maps of the cosine by displacement on a range from -1 to 1.",
            "mosaic": "Maps of the cosine by displacement, a row for each encoding, from -1 to 1.",
            "curves": "Cosine with distance 0 by offset.",
            "stripes": "Cosine with distance 0 by offset as colour, one stripe for each encoding.",
            "depth": "Correlation of neighbouring distances, by encoding.",
        },
    ),
    "rotary": SchemeSection(
        key="rotary",
        title="Rotary position embedding",
        shows="Queries and keys turn with their position, each pair of numbers at a speed of its "
        "own. Nothing is learned here: the configuration decides.",
        reading="Left: the positions that each pair needs for a full turn. Pairs that need more "
        "than the context (shaded) never complete one, and beyond the training length they meet "
        "angles that training never showed. Right: the mean rotation, which a query equal to the "
        "key would see, and the shape of the published bound.",
        limits="Decay with distance is a property of equal queries and keys. Real ones put their "
        "weight on few pairs and can be made to favour any distance (Barbero et al. 2024), so the "
        "curve does not explain why rotary encodings work. The bound is on another quantity, and "
        "only its shape is drawn. Whether the model uses its whole context is not shown.",
        source="Su et al. 2021, sections 3.2 and 3.4.3; wavelengths and lengths: Peng et al. 2024 "
        "(YaRN), section 3; first negative value: Men et al. 2024; limits: Barbero et al. 2024.",
        figures={
            "rotation": "Wavelength of every pair beside context lengths, and the mean rotation "
            "by distance."
        },
    ),
    "alibi": SchemeSection(
        key="alibi",
        title="Linear biases (ALiBi)",
        shows="Each head subtracts its slope times the distance from the attention logits. The "
        "slopes are fixed, nothing is learned.",
        reading="On logarithmic axes every head is a line; where it crosses one logit, at one over "
        "its slope, distance begins to matter. The window is the number of keys that the bias "
        "alone would spread a query's attention over. Heads count from 0.",
        limits=_NO_CONTENT + "The same slopes for all layers say nothing about what a layer does.",
        source="Press et al. 2022, section 3. Window: perplexity of the softmax.",
        figures={"slopes": "Penalty of each head by distance on logarithmic axes."},
    ),
}

#: Numbers of a rotary encoding, from its block.
ROTARY: tuple[Number, ...] = (
    Number("base", "base", "of the ladder of frequencies", "g"),
    Number("width of a head", "head_dim", "numbers", "d"),
    Number("rotated", "rotated", "of these numbers", "d"),
    Number("axes", "axes", "2 for patches: rows and columns", "d"),
    Number("rule", "rule", "that stretches the ladder"),
    Number("attention factor", "rotation.attention_factor", "on cosines and sines"),
    Number("pairs", "rotation.pairs", "along an axis", "d"),
    Number("shortest wavelength", "rotation.shortest_wavelength", "positions per turn"),
    Number("longest wavelength", "rotation.longest_wavelength", "positions per turn"),
    Number("training length", "rotation.training", "positions", "d"),
    Number("target length", "rotation.target", "positions", "d"),
    Number(
        "never turn, training", "rotation.never_turn_training", "share of pairs, before scaling"
    ),
    Number("never turn, target", "rotation.never_turn_target", "share of pairs, as used"),
    Number("first negative", "rotation.first_negative", "distance, mean rotation", "d"),
)

#: Rows beyond which a table is folded.
FOLDED = 64


def scheme_context(document: Block, drawings: Mapping[str, str]) -> dict[str, Any]:
    """Return what the template of a page about encodings without a table shows."""
    kinds: dict[str, list[Block]] = {}
    for scheme in document["schemes"]:
        kinds.setdefault(_kind(scheme), []).append(scheme)
    sections = []
    for key, schemes in kinds.items():
        text = SECTIONS[key]
        said = _said(key, schemes)
        sections.append(
            {
                "text": text,
                "figures": [
                    inline(drawings[name], name, f"{label} {said}.")
                    for name, label in _figures(text, drawings, kinds)
                ],
                "table": _rotary(schemes) if key == "rotary" else _heads(schemes),
                "facts": _facts(schemes),
                "several": len(schemes) > 1,
                "undefined": _reasons(schemes),
            }
        )
    return {
        "name": document["name"],
        "what": [what_it_is(schemes) for schemes in kinds.values()],
        "notes": _gathered(
            [(scheme["name"], note) for scheme in document["schemes"] for note in scheme["notes"]],
            len(document["schemes"]),
        ),
        "findings": document["findings"],
        "sections": sections,
        "kernels": "kernels" in drawings
        and inline(
            drawings["kernels"],
            "kernels",
            "What each pair of positions gets, a matrix for each encoding: "
            f"{', '.join(scheme['name'] for scheme in document['schemes'])}.",
        ),
        "schemes": document["schemes"],
        "source": document["schemes"][0]["source"],
        "folded": FOLDED,
    }


def _kind(scheme: Block) -> str:
    return str(scheme["quantity"] if scheme["scheme"] == "relative" else scheme["scheme"])


def what_it_is(schemes: Sequence[Block]) -> str:
    """Say in words what encodings of one kind are."""
    several = f", in {len(schemes)} places" if len(schemes) > 1 else ""
    match _kind(schemes[0]):
        case "rotary":
            return f"rotary position embedding, by which queries and keys turn{several}"
        case "alibi":
            return f"linear biases (ALiBi), a fixed slope per head{several}"
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
    text: SchemeSection, drawings: Mapping[str, str], kinds: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    for stem, label in text.figures.items():
        for name in drawings:
            first, *rest = name.split("_")
            if first == "depth":
                ours = text.key == next((k for k in kinds if k in ("bias", "cosine")), None)
            else:
                ours = ("cosine" in rest) == (text.key == "cosine")
            if first == stem and ours:
                yield name, label


def _said(key: str, schemes: Sequence[Block]) -> str:
    """State what drawings of encodings of one kind show, for those who do not see them."""
    if key == "rotary":
        shortest, longest = (
            _between([scheme["rotation"][f"{end}_wavelength"] for scheme in schemes])
            for end in ("shortest", "longest")
        )
        return f"Wavelengths reach from {shortest} to {longest} positions"
    if key == "alibi":
        slopes = [slope for scheme in schemes for slope in scheme["slopes"]]
        return f"Slopes of {len(slopes)} heads: {_between(slopes)}"
    numbers: dict[str, list[float]] = {"windows, in keys": [], "correlations of neighbours": []}
    for scheme in schemes:
        for label, found in zip(
            numbers, (scheme["heads"]["window"], scheme["smoothness"]["correlation"]), strict=True
        ):
            numbers[label] += [value for value in found or () if value is not None]
    parts = [f"{label}: {_between(values)}" for label, values in numbers.items() if values]
    return f"Heads: {sum(scheme['head_count'] for scheme in schemes)}; {'; '.join(parts)}"


def _between(values: Sequence[float]) -> str:
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


def _heads(schemes: Sequence[Block]) -> dict[str, Any]:
    """Tabulate one row per encoding and head."""
    columns = [
        ("slope", [scheme.get("slopes") for scheme in schemes]),
        *(
            (label, [scheme["heads"][key] for scheme in schemes])
            for label, key in (
                ("window", "window"),
                ("half width", "half_width"),
                ("asymmetry", "asymmetry"),
                ("peak", "peak"),
                ("falling", "monotone_fraction"),
            )
        ),
        *(
            (label, [lookup(scheme, f"smoothness.{key}") for scheme in schemes])
            for label, key in (("correlation", "correlation"), ("95 % of chance", "p95"))
        ),
    ]
    # What no encoding here has a number for is no column.
    shown = [
        (label, lists)
        for label, lists in columns
        if any(value is not None for values in lists for value in values or ())
    ]
    rows = [
        {
            "name": scheme["name"],
            "head": head,
            "values": [_entry(lists[k][head]) for _, lists in shown],
        }
        for k, scheme in enumerate(schemes)
        for head in range(len(scheme["heads"]["peak"]))
    ]
    return {"columns": [label for label, _ in shown], "rows": rows}


def _entry(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "–" if value is None else show(value)


def _rotary(schemes: Sequence[Block]) -> dict[str, Any]:
    """Tabulate one row per number, one column per encoding."""
    rows = []
    for number in ROTARY:
        found = [lookup(scheme, number.key) for scheme in schemes]
        if any(value is not None for value in found):
            texts = ["–" if value is None else show(value, number.form) for value in found]
            rows.append({"label": number.label, "meaning": number.meaning, "values": texts})
    for key in sorted({key for scheme in schemes for key in scheme["scaling"]}):
        if key not in ("rope_type", "type", "rope_theta"):
            texts = [_parameter(scheme["scaling"].get(key)) for scheme in schemes]
            rows.append({"label": key, "meaning": "parameter of the rule", "values": texts})
    return {"names": [scheme["name"] for scheme in schemes], "rows": rows}


def _parameter(value: object) -> str:
    if isinstance(value, list) and len(value) > 4:
        return f"{len(value)} numbers from {show(value[0])} to {show(value[-1])}"
    return "–" if value is None else show(value)


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


#: Alternative texts of the figures of kernels side by side.
_COMPARED = {
    "curves": "Standardised mean over heads by distance, of all encodings.",
    "kernels": "Standardised kernels between positions on one range from -3 to 3.",
    "distances": "Matrices of correlation and alignment.",
}
#: Rows of the table of a comparison of kernels.
KERNEL_NUMBERS: tuple[Number, ...] = (
    Number("half width", "half_width", "distance at which half of the fall is done"),
    Number("monotone fraction", "monotone_fraction", "share of steps that do not rise"),
    Number("asymmetry", "asymmetry", "share of variance that tells before from after"),
    Number("translation invariance", "translation_invariance", "share of variance by offset"),
)
#: What a kernel holds, for people.
KERNEL_OF = {"cosine": "cosine", "bias": "bias, in logits", "rotation": "mean rotation"}


def kernel_context(document: Block, drawings: Mapping[str, str]) -> dict[str, Any]:
    """Return what the template of a page about kernels side by side shows."""
    records = document["records"]
    found = [pair["correlation"] for pair in document["pairs"] if pair["correlation"] is not None]
    said = (
        f"Correlations of the curves: {_between(found)}." if found else "No correlation is defined."
    )
    rows = [
        {
            "label": number.label,
            "meaning": number.meaning,
            "values": [_entry(record[number.key]) for record in records],
        }
        for number in KERNEL_NUMBERS
    ]
    return {
        "labels": [record["label"] for record in records],
        "records": [dict(record) | {"holds": KERNEL_OF[record["quantity"]]} for record in records],
        "length": document["length"],
        "layout": document["layout"],
        "others": [
            f"{record['label']} has {record['positions']}"
            for record in records
            if record["positions"] not in (None, document["length"])
        ],
        "rows": rows,
        "pairs": document["pairs"],
        "walk": document["walk"],
        "figures": [
            inline(drawings[name], name, f"{text} {said}")
            for name, text in _COMPARED.items()
            if name in drawings
        ],
    }
