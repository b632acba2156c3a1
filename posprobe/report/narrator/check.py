"""What is said of two copies of a model: the verdict, what differs, and where to look."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from posprobe.relations.rules import Finding
from posprobe.report.narrator.words import some, two_figures

#: Most lines that the terminal gets.
MOST = 12
_WHAT: Mapping[str, str] = {
    "rows": "rows", "values": "values", "ladder": "rotary ladder", "factor": "cosine factor",
    "columns": "rotated columns", "pairs": "pairs", "sections": "axes", "heads": "heads",
    "slopes": "slopes", "buckets": "buckets", "window": "window", "logits": "logit scale",
    "encoding": "encoding", "weights": "weights",
}  # fmt: skip
_BETWEEN = {"a": "A", "b": "B"}


def number(value: Any) -> str:
    """Write a number as a configuration would: whole where it is, with commas."""
    if isinstance(value, list | tuple):
        return " × ".join(map(number, value))
    if not isinstance(value, int | float):
        return str(value)
    if abs(value - round(value)) < 1e-4 * max(abs(value), 1e-9) and abs(value) < 1e15:
        return f"{round(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _size(value: float | None) -> str:
    return "less than 0.00001" if value is not None and value < 1e-5 else two_figures(value or 0.0)


def _both(f: Finding) -> str:
    return f"{number(f.a)} in A, {number(f.b)} in B"


def _layers(f: Finding) -> str:
    layers = f.more.get("layers")
    read = f", {f.more['read']}" if "read" in f.more else ""
    return f"layers {', '.join(map(str, layers[:6]))}{read}: " if layers else ""


def _parts(f: Finding) -> str:
    kept, pairs, last = f.more["kept"], f.more["pairs"], f.more["last"]
    return f"{kept} of {pairs} pairs equal, the slowest {number(max(last, 1 / last))} times apart"


#: Of each cause the headline, None where it is no difference, and what a line says of it.
WORDS: Mapping[str, tuple[str | None, Callable[[Finding], str]]] = {
    "identical": (None, lambda f: f"{_layers(f)}identical"),
    "rounded": (
        None,
        lambda f: f"{_layers(f)}rounded to {f.more['type']} in {_BETWEEN[f.more['side']]}",
    ),
    "quantised": (
        None,
        lambda f: (
            f"{_layers(f)}rounded to "
            + (f.more.get("type") or f"{f.more['bits']} bits in blocks")
            + f" in {_BETWEEN[f.more['side']]}"
        ),
    ),
    "moved": (
        "B has other weights.",
        lambda f: f"{_layers(f)}moved by {_size(f.value)} of their size: fine-tuned or merged",
    ),
    "unrelated": (
        "B has an unrelated table.",
        lambda f: f"unrelated (relative distance {_size(f.value)})",
    ),
    "width": ("B has rows of another width.", _both),
    "rows_cut": (
        "B lacks the first rows.",
        lambda f: f"first {some(int(f.value or 0), 'row')} cut off in B",
    ),
    "rows_before": (
        "B has rows in front.",
        lambda f: f"{some(int(f.value or 0), 'row')} put in front in B",
    ),
    "truncated": ("B is truncated.", _both),
    "longer": ("B has more rows.", _both),
    "repeated": ("B repeats its first rows.", lambda f: f"{_both(f)}: the first rows again"),
    "retrained": (
        "Some rows of B were trained again.",
        lambda f: (
            f"{some(f.more['count'], 'row')} between {f.more['first']} and "
            f"{f.more['last']} retrained"
        ),
    ),
    "scaled": ("B is scaled.", lambda f: f"times {number(f.more['factor'])} in B"),
    "constant_row": (
        "One row is added to every row of B.",
        lambda f: f"a constant row added, {two_figures(f.more['size'])} times as long as a row",
    ),
    "reversed": ("B is in reverse order.", lambda _: "in reverse order"),
    "transposed": ("B is transposed.", lambda _: "transposed"),
    "exchanged": ("B has rows and columns exchanged.", lambda _: "rows and columns exchanged"),
    "permuted": (
        "B has its rows in another order.",
        lambda f: f"{some(int(f.value or 0), 'row')} elsewhere",
    ),
    "resized": (
        "B is resized.",
        lambda f: (
            f"{_both(f)}: {f.more['method'].replace('_antialias', ', antialiased')}, corners "
            f"{'' if f.more['corners'] else 'not '}aligned"
        ),
    ),
    "turned": ("B has its columns rotated.", lambda _: "columns rotated, inner products kept"),
    "same_ladder": (
        None,
        lambda f: f"base {number(f.a)} in both" if f.a else "equal",
    ),
    "cosines_rounded": (None, lambda _: "equal; cosines rounded to half precision"),
    "ladder_rounded": (
        "The ladder is rounded.",
        lambda f: f"frequencies rounded to {f.more['type']} in {_BETWEEN[f.more['side']]}",
    ),
    "angles_rounded": (
        "B computes angles in half precision.",
        lambda f: {
            "positions": f"positions rounded to {f.more['type']} in B",
            "product": f"angles rounded to {f.more['type']} in B",
        }.get(f.more["way"], f"positions, frequencies and angles in {f.more['type']} in B"),
    ),
    "base": ("B rotates with another base.", lambda f: f"base {_both(f)}"),
    "ntk": (
        "B rotates with another base.",
        lambda f: f"base {_both(f)}: NTK by {number(f.value)}",
    ),
    "spread": (
        "B spreads the ladder over the head.",
        lambda f: f"spread over {number(f.a)} columns in A, {number(f.b)} in B",
    ),
    "last_pair": (
        "B ends the ladder at its base.",
        lambda f: f"steps of 2 / (d - 2) in B: base {number(f.a)} as if {number(f.b)}",
    ),
    "positions_scaled": (
        "B scales positions.",
        lambda f: (
            f"frequencies divided by {number(f.value)} in B"
            if (f.value or 0) >= 1
            else f"frequencies times {number(1 / (f.value or 1))} in B"
        ),
    ),
    "parts_lost": (
        "B lost the scaling by parts.",
        lambda f: f"scaling by parts in A only: {_parts(f)}",
    ),
    "parts_added": (
        "B scales by parts.",
        lambda f: f"scaling by parts in B only: {_parts(f)}",
    ),
    "parts_factor": ("B scales by parts with another factor.", _parts),
    "ramp": (
        "B scales by parts with another ramp.",
        lambda f: (
            f"equal at both ends, {f.more['pairs'] - f.more['kept']} of {f.more['pairs']} "
            "pairs between them differ"
        ),
    ),
    "pair_order": (
        "B has its frequencies in another order.",
        lambda _: "same frequencies, reordered",
    ),
    "frequencies": ("B has other frequencies.", lambda _: "other frequencies"),
    "columns": (
        "B rotates another number of columns.",
        lambda f: f"heads of {_both(f)}" if "of" in f.more else _both(f),
    ),
    "same_columns": (None, lambda f: f"{number(f.a)} of {number(f.b)} in both"),
    "factor": ("B multiplies cosines by another factor.", _both),
    "axes": ("B rotates along another number of axes.", _both),
    "sections": ("B gives its pairs to axes otherwise.", _both),
    "window": ("B sees another window.", _both),
    "logit_scale": (
        "B scales logits otherwise.",
        lambda f: f"{number(f.a)} / √d in A, {number(f.b)} / √d in B, for heads of width d",
    ),
    "soft_cap": (
        "B caps logits otherwise.",
        lambda f: (
            f"{f'capped at {number(f.a)}' if f.a else 'not capped'} in A, "
            f"{f'capped at {number(f.b)}' if f.b else 'not capped'} in B"
        ),
    ),
    "missing": (
        "One copy lacks an encoding.",
        lambda f: f"{f.a or f.b} in {'A' if f.a else 'B'} only",
    ),
    "same_pairs": (None, lambda f: f"{f.a or 'in the same order'} in both"),
    "pairs_reordered": (None, lambda f: f"{f.a} in A, {f.b} in B, rows reordered to match"),
    "pairs_mixed_up": (
        "The rows of B do not fit the pairs it rotates.",
        lambda f: (
            f"{f.a or 'not stated'} in A, {f.b or 'not stated'} in B, "
            + {
                "same": "rows not reordered",
                "to_neighbours": "rows put as neighbours",
                "to_halves": "rows put as halves",
                "to_neighbours_twice": "rows put as neighbours twice",
                "to_halves_twice": "rows put as halves twice",
            }[f.more["order"]]
        ),
    ),
    "pairs_wrong": ("B rotates other pairs of columns.", lambda f: f"{f.a} in A, {f.b} in B"),
    "gain_folded": (
        None,
        lambda f: f"{_layers(f)}gain folded in ({two_figures(f.a)} to {two_figures(f.b)})",
    ),
    "scale_folded": (
        None,
        lambda f: f"{_layers(f)}queries times {number(f.a)}, keys times {number(f.b)}",
    ),
    "heads_order": (None, lambda f: f"{_layers(f)}heads in another order"),
    "weights_transposed": ("B has weights transposed.", lambda f: f"{_layers(f)}transposed"),
    "gauge": (None, lambda f: f"{_layers(f)}pairs of queries and keys turned together"),
    "other_weights": (
        "B has other weights.",
        lambda f: f"{_layers(f)}another model's",
    ),
    "same_slopes": (None, lambda _: "equal"),
    "slopes_scaled": ("B has other slopes.", lambda f: f"times {number(f.value)} in B"),
    "slopes": ("B has other slopes.", lambda _: "no common factor"),
    "heads": ("B has another number of heads.", _both),
    "buckets": ("B sorts distances into other buckets.", lambda _: "same values, other distances"),
    "reach": ("B tells other distances apart.", _both),
}
_DEFAULT = "look for rope_theta, or rope_theta inside rope_parameters"
#: The likely cause of a difference and where to look.
LIKELY: Mapping[str, str] = {
    "base": f"one side fell back to a default base; {_DEFAULT}.",
    "ntk": "one side applies NTK scaling; look for rope_scaling or rope_parameters.",
    "spread": "the ladder uses the head's width in place of its rotated part; look for "
    "partial_rotary_factor.",
    "last_pair": "the exponent divides by d - 2 in place of d; look where frequencies are made.",
    "positions_scaled": "linear scaling was dropped or added; look for rope_scaling.factor.",
    "parts_lost": "llama3 or YaRN scaling was dropped; look for rope_scaling, or rope_freqs.weight "
    "in GGUF.",
    "parts_added": "one side applies llama3 or YaRN scaling; look for rope_scaling.",
    "parts_factor": "another factor; look for rope_scaling.factor.",
    "ramp": "another ramp between kept and scaled pairs; look for beta_fast, beta_slow, truncate.",
    "factor": "look for attention_factor, mscale and their YaRN defaults.",
    "ladder_rounded": "frequencies were cast with the weights; keep inv_freq in float32.",
    "angles_rounded": "positions or angles were cast with the weights; compute them in float32.",
    "columns": "look for partial_rotary_factor, rotary_dim or rope.dimension_count.",
    "pairs_mixed_up": "the rows were reordered for the other pairing, twice or not at all; look at "
    "the converter's permutation of q and k.",
    "pairs_wrong": "the pairing is fixed in the engine; look for interleaved or is_neox_style.",
    "rows_cut": "reserved rows were cut off twice; look for padding_idx and the position offset.",
    "rows_before": "reserved rows were kept; look for padding_idx and the position offset.",
    "truncated": "look for max_position_embeddings.",
    "resized": "the table was interpolated and stored; look for image_size or max length.",
    "exchanged": "the grid was flattened column by column; look at the reshape.",
    "sections": "look for mrope_section and its order.",
    "logit_scale": "look for query_pre_attn_scalar, attention_multiplier or mscale_all_dim.",
    "soft_cap": "look for attn_logit_softcapping.",
    "buckets": "look for relative_attention_max_distance and the number of buckets.",
}
_REASONS: Mapping[str, str] = {
    "no_numbers": "the checkpoints state the scheme and no numbers",
    "no_weights": "one side has no weights",
    "no_projections": "query and key weights were not found under names known here, or do not "
    "match in layers and heads",
    "no_cosines": "the dump has no cos and sin, which carry the factor",
    "no_scale": "one side multiplies logits by a factor, the other does not state whether it does",
    "no_sections": "the dump does not say which pairs turn along which axis. Add sections",
    "many_axes": "of pairs that turn along several axes a query does not tell which they are",
    "no_query": "the dump does not show which columns are pairs. Add q and q_rotated",
    "query_tells_not": "q and q_rotated fit both pairings or neither. Write a query at a "
    "position above 0, all columns, and the checkpoint's config.json",
    "pairs_unknown": "which columns are pairs is not stated, or the weights that would tell could "
    "not be compared",
    "no_rotation": "A has no rotary encoding that a dump could be held against",
}


def not_compared(reason: str, about: str = "") -> str:
    """Say why something was not compared; a reason that is no key is a message already."""
    if reason == "other_kinds":
        one, other = about.split(" | ")
        if not one or not other:
            return (
                f"{'B' if one else 'A'} has no encoding of position that is known here. Add its "
                "config.json; a dump has inv_freq, or cos and sin"
            )
        return f"A has {one}, B has {other}: there is nothing that both have"
    if reason == "several":
        one, other = about.split(" | ")
        return f"A has {one} and B {other} of them. Choose one with #NAME"
    if reason == "many_ladders":
        return f"A has several ladders. Write one dump for each, and choose it: {about}"
    return _REASONS.get(reason, reason)


def told(f: Finding) -> str:
    """Say one finding in a sentence."""
    where = f" of {f.part}" if f.part else ""
    text = f"{_WHAT[f.what].capitalize()}{where}: {WORDS[f.cause][1](f)}."
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
        head = f"Different: {WORDS[causes[0].cause][0]}"
    elif alike is None:
        head = "Cannot tell."
    else:
        others = {found.cause for found in compared} & {"moved", "other_weights"}
        head = f"Alike{': other weights, same positions' if others else ''}."
    body = [line for found in causes for line in _rows(found, "differs", context)]
    rest = [line for found in compared for line in _rows(found, "alike", context)]
    rest += [f"  not compared: {text}." for text in missing]
    hints = [LIKELY[found.cause] for found in causes if found.cause in LIKELY][:1]
    said = [*body, *rest]
    room = MOST - 1 - len(hints)
    if len(said) > room:
        said = [*said[: room - 1], f"  … {len(said) - room + 1} more lines: --json has all."]
    return [head, *said, *(f"Likely: {hint}" for hint in hints)]


def _rows(f: Finding, verdict: str, context: int | None) -> Iterator[str]:
    what = _WHAT[f.what] + (f" {f.part}" if f.part else "")
    yield f"  {what:<16}{WORDS[f.cause][1](f):<56}  {verdict}"
    if f.first_distance is not None:
        length = f"; the context is {context:,}" if context else ""
        yield f"  {'':<16}{_harm(f)[:1].lower()}{_harm(f)[1:]}{length}"
