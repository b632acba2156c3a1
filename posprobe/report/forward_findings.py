"""Sentences about positions inside a model: each with its chance level and with what it leaves out.

None of them says that positions cause what they go along with: these are means over contexts, and
weights seen by themselves. The experiments, which change positions, say so in their sentences.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posprobe.analyses.mean_decomposition import NOISY
from posprobe.formatting import lookup, show
from posprobe.measurements import Finding
from posprobe.report.findings import unexplained

Block = Mapping[str, Any]

#: Relative change up to which a model's own rounding can account for it, by what it computes in.
_ROUNDING = {"float16": 4e-3, "bfloat16": 3e-2}
#: What random contexts are not, by the word that their description begins with.
_NOT = {"random tokens": "no text", "random pixels": "no pictures"}


def forward_findings(document: Block) -> tuple[Finding, ...]:
    """Return what can be said of a run: of each result that is there, in the order of the page."""
    return tuple(
        finding for name, rule in _RULES.items() if document.get(name) for finding in rule(document)
    )


def random_contexts(document: Block) -> str:
    """Say what random contexts are not; empty where contexts are real."""
    kind = str(document["contexts"]["kind"])
    return next((f"{word} are {it}" for word, it in _NOT.items() if kind.startswith(word)), "")


def clear_layers(document: Block) -> list[tuple[int, Block]]:
    """Return the layers, with their places, where noise is less than half of what positions add."""
    return [
        (place, layer)
        for place, layer in enumerate(document["states"]["layers"])
        if layer["shares"] and not _is_noisy(layer)
    ]


def _is_noisy(layer: Block) -> bool:
    return layer["noise_share"] is None or layer["noise_share"] > NOISY


def percent(value: float, digits: int = 1) -> str:
    """Write a share for reading."""
    return f"{100 * value:.{digits}f} %"


def _states(document: Block) -> Iterator[Finding]:
    layers = document["states"]["layers"]
    used = document["states"]["contexts"]
    note = random_contexts(document)
    if used == 1:
        yield Finding(
            "From one context what positions add cannot be told from what its content adds: take "
            "more.",
            ("states.contexts",),
        )
        return
    known = [(place, layer) for place, layer in enumerate(layers) if layer["shares"]]
    clear = clear_layers(document)
    if known:
        ends = dict([known[0], known[-1]])
        said = [
            f"{percent(layer['shares']['position'])} at layer {layer['layer']}{_of_it(layer)}"
            for layer in ends.values()
        ]
        yield Finding(
            f"Of the variance of the hidden states, positions account for {' and '.join(said)}, "
            f"over {_counted(used)}{f'; {note}' if note else ''}.",
            tuple(
                f"states.layers.{place}.{key}"
                for place in ends
                for key in ("shares.position", "noise_share")
            ),
        )
    norms = [(layer["relative_norm"], place) for place, layer in clear if layer["relative_norm"]]
    if len(norms) > 1:
        (most, top), (least, bottom) = max(norms), min(norms)
        yield Finding(
            "The relative norm of what positions add, where it is not mostly noise, is largest at "
            "layer "
            f"{layers[top]['layer']} ({show(most)}) and smallest at layer "
            f"{layers[bottom]['layer']} ({show(least)}).",
            (f"states.layers.{top}.relative_norm", f"states.layers.{bottom}.relative_norm"),
        )
    ranks = [(layer["rank"], place) for place, layer in known if layer["rank"] is not None]
    if ranks:
        counts = _range([rank for rank, _ in ranks])
        yield Finding(
            f"Of what positions add, {counts} directions{' by layer' if len(ranks) > 1 else ''} "
            "are above sampling noise; with more contexts weaker ones can be.",
            tuple(f"states.layers.{place}.rank" for _, place in ranks),
        )
    noisy = [place for place, layer in known if _is_noisy(layer)]
    if noisy:
        named = _listed([str(layers[place]["layer"]) for place in noisy])
        yield Finding(
            f"At {len(noisy)} of {len(layers)} layers ({named}) more than half of what positions "
            "seem to add is sampling noise: these need more contexts.",
            tuple(f"states.layers.{place}.noise_share" for place in noisy),
        )
    for key, what in (
        (
            "sinusoid.cka",
            "what positions add is closer to the sinusoid than random walks are (debiased CKA",
        ),
        (
            "similarity.centered.translation_invariance",
            "the offset explains more of its cosines than of a random walk's (share",
        ),
    ):
        yield from _beyond_walks(document, key, what)


def _of_it(layer: Block) -> str:
    noise = layer["noise_share"]
    return (
        ""
        if noise is None
        else f" ({percent(noise * layer['shares']['position'])} by sampling noise)"
    )


def _beyond_walks(document: Block, key: str, what: str) -> Iterator[Finding]:
    """Count the layers whose number lies above that of 95 % of random walks of the same shape."""
    walk = (lookup(document, "beside.walk") or {}).get(key)
    sinusoid = (lookup(document, "beside.sinusoid") or {}).get(key)
    values = [
        (place, layer["analyses"][key])
        for place, layer in clear_layers(document)
        if layer["analyses"].get(key) is not None
    ]
    if walk is None or not values:
        return
    # A band from few draws is itself uncertain, by about its width.
    low, high = (unexplained(walk[name]) for name in ("p5", "p95"))
    beyond = [(place, value) for place, value in values if unexplained(value) > 2 * high - low]
    # Of walks up to one in eighty lies beyond, and a model has many layers.
    if len(beyond) <= 0.1 * len(values):
        return
    reach = _range([value for _, value in beyond])
    beside = f"95 % of walks stay below {show(walk['p95'])}"
    if sinusoid is not None and key != "sinusoid.cka":
        beside += f", the sinusoid has {show(sinusoid)}"
    yield Finding(
        f"At {len(beyond)} of {len(values)} layers {what} {reach}; {beside}).",
        (*(f"states.layers.{place}.analyses" for place, _ in beyond), "beside.walk"),
    )


def _heads(document: Block) -> Iterator[Finding]:
    block = document["heads"]
    layers = block["layers"]
    direct = " (above layer 0 along the direct path alone)" if len(layers) > 1 else ""
    preferred = _preferred(block, layers[0])
    yield Finding(
        f"By weights alone{direct}, {preferred}. Positions that change smoothly make neighbouring "
        "offsets alike, so that a near one is no surprise by itself.",
        tuple(f"heads.layers.{place}.peak" for place in range(len(layers))),
    )
    place, head = max(
        ((p, h) for p, layer in enumerate(layers) for h in range(layer["heads"])),
        key=lambda pair: layers[pair[0]]["attention"][pair[1]],
    )
    layer = layers[place]
    if layer["attention"][head] > 2 * layer["uniform"][head]:
        paid, even = percent(layer["attention"][head], 0), percent(layer["uniform"][head])
        yield Finding(
            f"The sharpest by its weights is head {head} of layer {layer['layer']}: with positions "
            f"as its only input it pays {paid} of its attention at its preferred offset, "
            f"{layer['peak_name'][head]} (equal logits: {even}).",
            (f"heads.layers.{place}.attention", f"heads.layers.{place}.uniform"),
        )


def _effective(document: Block) -> Iterator[Finding]:
    block = document["effective"]
    said, keys = [], []
    for key, name in (
        ("similarity.raw.neighbour_mean", "mean cosine of neighbours"),
        ("pca.stable_rank", "stable rank"),
    ):
        before, after = block["raw"].get(key), block["effective"].get(key)
        if before is not None and after is not None:
            said.append(f"{name} {show(after)} (as stored {show(before)})")
            keys += ["effective.raw", "effective.effective"]
    if said:
        yield Finding(
            f"As the first layer's attention sees it, the table has {' and '.join(said)}.",
            tuple(dict.fromkeys(keys)),
        )


def _subspaces(document: Block) -> Iterator[Finding]:
    block = document["subspaces"]
    positions = f"the subspace of the {block['rank']} leading position directions"
    for key, text in (
        ("variance", f"{positions} holds {{}} of the variance of the tokens"),
        ("bottom", f"{{}} of {positions} lies in the tenth of directions that tokens use least"),
    ):
        share = block[key]
        if share["value"] is None:
            continue
        low, high = share["band"]
        beside = (
            "less than" if share["value"] < low else "more than" if share["value"] > high else "as"
        )
        said = text.format(percent(share["value"]))
        chance = f"{percent(share['expected'])}, 5 to 95 % of random subspaces"
        yield Finding(
            f"{said[0].upper()}{said[1:]}, {beside} by chance ({chance} {percent(low)} to "
            f"{percent(high)}).",
            (f"subspaces.{key}.value", f"subspaces.{key}.expected", f"subspaces.{key}.band"),
        )


def _attention(document: Block) -> Iterator[Finding]:
    block = document["attention"]
    note = random_contexts(document)
    yield Finding(
        f"In attention measured on contexts{f' ({note})' if note else ''}, "
        f"{_preferred(block, block)}.",
        tuple(f"attention.layers.{place}.peak" for place in range(len(block["layers"]))),
    )
    if block["uniform_first"] is not None:
        means = [
            (sum(layer["first"]) / len(layer["first"]), place)
            for place, layer in enumerate(block["layers"])
            if None not in layer["first"]
        ]
        if means:
            most, place = max(means)
            yield Finding(
                f"The first position receives {percent(most, 0)} of the others' attention at layer "
                f"{block['layers'][place]['layer']}, the most of all layers, on average over its "
                f"heads; uniform attention would give it {percent(block['uniform_first'])}.",
                (f"attention.layers.{place}.first", "attention.uniform_first"),
            )
    special = [
        (sum(layer["special"]) / len(layer["special"]), place)
        for place, layer in enumerate(block["layers"])
        if None not in layer["special"] and any(layer["special"])
    ]
    if special:
        most, place = max(special)
        yield Finding(
            f"Tokens that are no positions receive {percent(most, 0)} of the attention at layer "
            f"{block['layers'][place]['layer']}, the most of all layers.",
            (f"attention.layers.{place}.special",),
        )


def _words(document: Block) -> Iterator[Finding]:
    block = document["words"]
    yield Finding(
        f"On {block['contexts']} single tokens, each repeated, so that positions alone differ, "
        f"{_preferred(block, block)} (layer {block['layers'][0]['layer']}).",
        ("words.layers.0.peak",),
    )


def _permutation(document: Block) -> Iterator[Finding]:
    block = document["permutation"]
    known, zero = block["with_positions"], block["without_positions"]
    rounding = _rounding(document)
    if known["tokens"] < rounding:
        still = "order makes no difference with its table either"
    elif zero["tokens"] < rounding:
        still = "without its table order makes no difference but for rounding"
    else:
        still = "order makes a difference without its table, too"
    parts = "patches" if "shape" in document["contexts"] else "tokens"
    yield Finding(
        f"Permuting the {parts} of {_counted(block['contexts'])} changes the last hidden states by "
        f"{show(known['tokens'])} times their norm, and by {show(zero['tokens'])} with the table "
        f"set to 0: {still}.",
        ("permutation.with_positions.tokens", "permutation.without_positions.tokens"),
    )
    if known["accuracy"] is not None:
        yield Finding(
            f"It classifies {percent(known['accuracy'])} right, of permuted contexts "
            f"{percent(known['scrambled_accuracy'])}, and with the table set to 0 "
            f"{percent(zero['accuracy'])}.",
            (
                "permutation.with_positions.accuracy",
                "permutation.with_positions.scrambled_accuracy",
                "permutation.without_positions.accuracy",
            ),
        )


def _shift(document: Block) -> Iterator[Finding]:
    block = document["shift"]
    change, last = block["change"], block["shifts"][-1]
    only = "that is rounding: only distances count" if max(change) < _rounding(document) else ""
    yield Finding(
        f"Counting positions from {last} changes the last hidden states by {show(change[-1])} "
        f"times their norm{f'; {only}' if only else ''}.",
        ("shift.change", "shift.shifts"),
    )
    if block["loss"] is not None:
        loss, note = block["loss"], random_contexts(document)
        yield Finding(
            f"The loss of the {block['task']} is {show(loss[0])} nats at shift 0 and "
            f"{show(loss[-1])} at shift {last} (perplexity {math.exp(loss[0]):.3g} and "
            f"{math.exp(loss[-1]):.3g})" + (f"; {note}, whose loss says little." if note else "."),
            ("shift.loss",),
        )


def _blank(document: Block) -> Iterator[Finding]:
    layers = document["blank"]["layers"]
    places = [p for p, layer in enumerate(layers) if layer["constant"]["alignment"] is not None]
    if not places:
        return
    said = [
        f"{show(layers[place]['constant']['alignment'])} at layer {layers[place]['layer']}"
        for place in dict.fromkeys((places[0], places[-1]))
    ]
    last = layers[places[-1]]
    share = percent(last["constant"]["share"] or 0.0)
    yield Finding(
        "An image of one grey makes a pattern over patches whose mean cosine with the position "
        f"table is {' and '.join(said)} (0 where unrelated); patches differ by "
        f"{share} of the squared norm at layer {last['layer']}.",
        tuple(
            f"blank.layers.{place}.constant.{key}"
            for place in dict.fromkeys((places[0], places[-1]))
            for key in ("alignment", "share")
        ),
    )


def _preferred(block: Block, where: Block) -> str:
    """Say which offsets heads prefer most, and what an even choice would give."""
    names = [name for layer in block["layers"] for name in layer["peak_name"]]
    common = Counter(names).most_common(3)
    shown = [f"{name} ({count})" for name, count in common if count > 1] or [common[0][0]]
    if len(names) == common[0][1]:
        return f"all {len(names)} heads prefer {common[0][0]}"
    chance = show(len(names) * _even_choice(where), ".2g")
    return (
        f"the offsets that {len(names)} heads prefer most often are {'; '.join(shown)}, where an "
        f"even choice would give each {chance}"
    )


def _counted(contexts: int) -> str:
    return "1 context" if contexts == 1 else f"{contexts} contexts"


def _rounding(document: Block) -> float:
    return _ROUNDING.get(str(document["model"]["dtype"]), 1e-3)


def _even_choice(block: Block) -> float:
    """Return one over the number of offsets that at least half of the positions have."""
    layout = block["layout"]
    if layout["type"] == "sequence":
        half = int(layout["length"]) // 2
        # Of measured attention the first position is left out as a key.
        before = half - 1 if "uniform_first" in block else half
        return 1 / max(1, before + 1 if block["causal"] else before + 1 + half)
    height, width = int(layout["height"]), int(layout["width"])
    count = sum(
        2 * (height - abs(down)) * (width - abs(right)) >= height * width
        for down in range(1 - height, height)
        for right in range(1 - width, width)
    )
    return 1 / count


def _listed(parts: Sequence[str]) -> str:
    shown = list(parts) if len(parts) <= 6 else [*parts[:5], f"{len(parts) - 5} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


def _range(values: Sequence[float]) -> str:
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


_RULES = {
    "states": _states,
    "heads": _heads,
    "effective": _effective,
    "subspaces": _subspaces,
    "attention": _attention,
    "words": _words,
    "permutation": _permutation,
    "shift": _shift,
    "blank": _blank,
}
