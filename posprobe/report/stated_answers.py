"""What a configuration decides of rotary and linear positions: known, so without a p-value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from posprobe.analyses.answer import Answer
from posprobe.report.numbered import Numbered, few, keys_of, show_distance, whose
from posprobe.text import Block, between

NO_LENGTH = "Cannot be told: the configuration states no length."


def rotary(found: Numbered, answers: Mapping[str, Answer]) -> str:
    """Sum up rotary positions."""
    del answers
    parts = []
    for _, scheme in found:
        block = scheme["rotation"]
        longest = block["longest_wavelength"]
        far = "beyond any length" if longest is None else f"{show_distance(longest)} positions"
        one = block["pairs"] == 1
        text = f"{whose(found, scheme)}{block['pairs']} pair{'' if one else 's'} of numbers "
        text += f"rotate{'s' if one else ''} with periods from {_near(block)} to {far}"
        if block["target"] is not None:
            turn = block["pairs"] - round(block["never_turn_target"] * block["pairs"])
            verb = "completes" if turn == 1 else "complete"
            text += f"; {turn} of {block['pairs']} {verb} a turn within the {_length(scheme)} "
            text += "positions"
        parts.append(f"{text}; {_mean(scheme)} {_sign(scheme)}")
    return few(parts)


def _length(scheme: Block) -> str:
    """Name the length that a query sees: the context, or the window of these layers."""
    target = scheme["rotation"]["target"]
    return f"{'window' if scheme['window'] == target else 'context'} of {target:,}"


def _mean(scheme: Block) -> str:
    along = ", along one axis," if scheme["axes"] > 1 else ""
    return f"the mean rotation{along}"


def _near(block: Block) -> str:
    shortest = block["shortest_wavelength"]
    return "infinity" if shortest is None else show_distance(shortest)


def _sign(scheme: Block) -> str:
    """Say where the mean rotation falls below 0, or how far that was looked for."""
    block = scheme["rotation"]
    first, target = block["first_negative"], block["target"]
    if first is not None:
        place = "within" if target is not None and first < target else "beyond"
        where = "" if target is None else f", {place} the {_length(scheme)}"
        return f"first falls below 0 at distance {first:,}{where}"
    if scheme["axes"] > 1:
        return "never falls below 0, as the pairs of the other axes stand still"
    return f"does not fall below 0 within {block['searched']:,} positions"


def _stated(found: Numbered) -> list[Block]:
    """Return the rotary encodings whose configuration states a length."""
    return [scheme for _, scheme in found if scheme["rotation"]["target"] is not None]


def turns(found: Numbered) -> Iterator[Answer]:
    """Answer whether every pair completes a turn within the stated length."""
    keys = keys_of(found, "rotation.never_turn_target", "rotation.longest_wavelength")
    stated = _stated(found)
    if not stated:
        yield Answer("rotary_turns", "cannot tell", NO_LENGTH, keys=keys)
        return
    parts, never = [], 0
    for scheme in stated:
        block = scheme["rotation"]
        slow = round(block["never_turn_target"] * block["pairs"])
        never += slow
        longest = block["longest_wavelength"]
        need = "" if longest is None else f"; the slowest needs {show_distance(longest)} positions"
        count = slow or "all"
        verb = "complete a turn" if not slow else "never complete a turn"
        parts.append(
            f"{whose(found, scheme)}{count} of {block['pairs']} pairs {verb} within "
            f"the {_length(scheme)} positions{need}"
        )
    yield Answer(
        "rotary_turns", "no" if never else "yes", f"{'No' if never else 'Yes'}: {few(parts)}.",
        [s["rotation"]["never_turn_target"] for s in stated], keys=keys,
    )  # fmt: skip


def positive(found: Numbered) -> Iterator[Answer]:
    """Answer whether the mean rotation stays above 0 within the stated length."""
    keys = keys_of(found, "rotation.first_negative", "rotation.target")
    # Along one of several axes it is known of every length.
    stated = [s for _, s in found if s["axes"] > 1 or s["rotation"]["target"] is not None]
    if not stated:
        yield Answer("rotary_positive", "cannot tell", NO_LENGTH, keys=keys)
        return
    parts, inside, unknown = [], False, False
    for scheme in stated:
        block = scheme["rotation"]
        first, target = block["first_negative"], block["target"]
        inside |= first is not None and first < target
        short = scheme["axes"] == 1 and block["searched"] < target
        unknown |= first is None and short
        parts.append(f"{whose(found, scheme)}{_mean(scheme)} {_sign(scheme)}")
    values = [s["rotation"]["first_negative"] for s in stated]
    told = f"of a query equal to its key, {few(parts)}."
    if unknown and not inside:
        text = f"Cannot be told, as no farther was looked: {told}"
        yield Answer("rotary_positive", "cannot tell", text, values, keys=keys)
        return
    yield Answer(
        "rotary_positive", "no" if inside else "yes",
        f"{'No' if inside else 'Yes'}: {told}", values, keys=keys,
    )  # fmt: skip


def stretched(found: Numbered) -> Iterator[Answer]:
    """Answer whether a rule for longer contexts changes the wavelengths."""
    named = [scheme for _, scheme in found if scheme["rule"] != "default"]
    changed = [scheme for scheme in named if scheme["rotation"]["rescaled"]]
    keys = keys_of(found, "rule", "rotation.rescaled", "rotation.length")
    if not named:
        text = "No: no rule for longer contexts is stated, so that the wavelengths are those of "
        text += "training."
        yield Answer("rotary_stretched", "no", text, keys=keys)
        return
    parts = [
        f"{whose(found, scheme)}the rule {scheme['rule']} changes "
        + (_changed(scheme) if scheme in changed else _unchanged(scheme))
        for scheme in (changed or named)
    ]
    yield Answer(
        "rotary_stretched", "yes" if changed else "no",
        f"{'Yes' if changed else 'No'}: {few(parts)}.",
        [scheme["rule"] for scheme in named], keys=keys,
    )  # fmt: skip


def _changed(scheme: Block) -> str:
    length, training = scheme["rotation"]["length"], scheme["training_length"]
    if length is None:
        return "them"
    more = training is not None and length > training
    return f"them for {length:,} positions" + (
        f", for more than the {training:,} of training" if more else ""
    )


def _unchanged(scheme: Block) -> str:
    length = scheme["rotation"]["length"]
    return "no wavelength" + ("" if length is None else f" up to {length:,} positions")


def _halving(slope: float) -> float:
    """Return the distance over which attention falls by half, contents being equal."""
    return math.log(2) / slope


def _slopes(found: Numbered) -> list[float]:
    return [float(slope) for _, scheme in found for slope in scheme["slopes"]]


def linear(found: Numbered, answers: Mapping[str, Answer]) -> str:
    """Sum up linear biases."""
    del answers
    slopes = _slopes(found)
    fast, slow = show_distance(_halving(max(slopes))), show_distance(_halving(min(slopes)))
    where = f"in the fastest of {len(slopes)} heads and every {slow} in the slowest"
    if fast == slow:
        where = "in every head" if len(slopes) > 1 else "in the only head"
    return f"where contents are equal, attention falls by half every {fast} positions {where}"


def linear_near(found: Numbered) -> Iterator[Answer]:
    """Answer whether near keys get more attention, as they do by definition."""
    slopes = _slopes(found)
    windows = [w for _, s in found for w in s["heads"]["window"] if w is not None]
    keys = keys_of(found, "slopes", "heads.window")
    heads = "the only head" if len(slopes) == 1 else f"all {len(slopes)} heads"
    seen = f"; the bias alone spreads attention over {between(windows)} keys" if windows else ""
    yield Answer(
        "alibi_near", "yes",
        f"Yes: {heads} subtract{'s' if len(slopes) == 1 else ''} a slope times the distance, "
        f"{between(slopes)} logits per position{seen}.",
        {"halving": [_halving(slope) for slope in slopes]}, keys=keys,
    )  # fmt: skip


def linear_reach(found: Numbered) -> Iterator[Answer]:
    """Answer whether half of the attention is left at the stated length."""
    keys = keys_of(found, "slopes", "max_positions")
    lengths = [s["max_positions"] for _, s in found if s["max_positions"] is not None]
    if not lengths:
        yield Answer("alibi_reach", "cannot tell", NO_LENGTH, keys=keys)
        return
    slowest = min(_slopes(found))
    length, half = max(lengths), _halving(slowest)
    left = math.exp(-slowest * length)
    reaches = half >= length
    kept = f"{left:.0%}" if left >= 0.01 else "less than 1%"
    yield Answer(
        "alibi_reach", "yes" if reaches else "no",
        f"{'Yes' if reaches else 'No'}: where contents are equal, the slowest head pays a key "
        f"{length:,} positions away {kept} of what it pays the nearest; half is left at "
        f"{show_distance(half)}.",
        left, keys=keys,
    )  # fmt: skip
