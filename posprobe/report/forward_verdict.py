"""What a run of a model amounts to, as answers and in one sentence.

Each answer follows from numbers of the document: beside sampling noise, beside random subspaces, or
beside what the model's own rounding does. Where a question needs a random model to compare with,
there is none, and it is not asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from posprobe.analyses.answer import Answer, Verdict
from posprobe.analyses.mean_decomposition import NOISY
from posprobe.analyses.substitution import is_gain
from posprobe.measurements.model.sentences import (
    ENOUGH,
    below,
    counted,
    kept,
    percent,
    random_contexts,
    removal,
    rounding,
    worth,
)
from posprobe.report.questions import MODEL_QUESTIONS
from posprobe.report.verdict import answer_block, capital
from posprobe.text import Block, listed, show

if TYPE_CHECKING:
    from posprobe.documents import ToldBlock

#: Share of a head's, or a layer's, attention that is most of it.
MOST = 0.5
#: Share of the variance up to which sampling noise hides nothing to speak of.
HIDES_LITTLE = 0.05
#: Share of the tokens' variance in random subspaces from which no other directions are left.
ALL = 0.99
#: Most components that are few, and standard errors by which a share must be above, or below, what
#: is enough.
FEW, SURE = 10, 2.0
#: Cost below which taking positions away costs nothing to speak of: nats, or a share of the norm of
#: the states. 0.01 nats are 1 % of the perplexity.
SMALL = 0.01
_ONE_POSITION = "there is one position, and no other that it could"
#: Steps in which sentences write a share.
_WRITTEN = 1e-3
_BEGIN: Mapping[Verdict, str] = {"yes": "Yes", "no": "No", "cannot tell": "Cannot be told"}


def forward_verdict(document: Block) -> ToldBlock:
    """Answer what can be asked of a run of a model.

    Parameters
    ----------
    document
        The content of ``analysis.json``; measurements that were not made are None.

    Returns
    -------
    dict
        ``summary`` and ``answers``: one for each question whose measurement was made.
    """
    answers: dict[str, Answer] = {}
    for name, asks in _ASKED.items():
        if document.get(name) is not None:
            answers |= {answer.question: answer for answer in asks(document)}
    ordered = [answers[name] for name in MODEL_QUESTIONS if name in answers]
    return {
        "summary": _summary(document, answers),
        "answers": [answer_block(answer) for answer in ordered],
    }


def _made(
    question: str, answer: Verdict, told: str, value: object, keys: tuple[str, ...],
    null: float | None = None,
) -> Answer:  # fmt: skip
    return Answer(question, answer, f"{_BEGIN[answer]}: {told}.", value, null, keys=keys)


def _parts(document: Block) -> str:
    return "patches" if "shape" in document["contexts"] else "tokens"


def _states(document: Block) -> Iterator[Answer]:
    """Ask whether positions show in the last hidden states, beside sampling noise."""
    block = document["states"]
    layers = block["layers"]
    known = [(place, layer) for place, layer in enumerate(layers) if layer["shares"]]
    name = "kept"
    if _positions(block["layout"]) == 1:
        why = f"{_ONE_POSITION} differ from"
        yield _made(name, "cannot tell", why, None, ("states.layout",))
        return
    if not layers[-1]["shares"]:
        yield _wiped_out(block, known)
        return
    if block["contexts"] == 1:
        why = "from one context what positions add cannot be told from what its content adds"
        yield _made(name, "cannot tell", why, None, ("states.contexts",))
        return
    (first, start), (last, end) = known[0], known[-1]
    keys = tuple(
        f"states.layers.{place}.{key}"
        for place in dict.fromkeys((first, last))
        for key in ("shares.position", "noise_share", "rank")
    )
    share, noise, rank = end["shares"]["position"], end["noise_share"], end["rank"]
    value = {
        "first": start["shares"]["position"], "last": share,
        "layers": [start["layer"], end["layer"]],
    }  # fmt: skip
    at = f"positions account for {percent(share)} of the variance at layer {end['layer']}"
    if first != last:
        at += f", the last looked at, and for {percent(value['first'])} at layer {start['layer']}"
    chance = None if noise is None else noise * share
    told = at + ("" if chance is None else f"; sampling noise alone gives {percent(chance)}")
    answer: Verdict = "cannot tell"
    if rank is None:
        answer = "no"
        told += ", which is rounding"
    elif rank == 0:
        # Little noise hides little: that nothing is seen is no evidence where there is much.
        answer = "no" if chance is not None and chance <= HIDES_LITTLE else "cannot tell"
        told += ", and no direction of what they add stands above it"
        told += "" if answer == "no" else ": take more contexts"
    elif noise is not None and noise <= NOISY:
        answer = "yes"
    else:
        told += ": take more contexts"
    yield _made(name, answer, f"{told} ({counted(block['contexts'])})", value, keys, chance)


def _wiped_out(block: Block, known: list[tuple[int, Block]]) -> Answer:
    """Answer for a model whose last hidden states are all equal: nothing is left of positions."""
    last = len(block["layers"]) - 1
    told = f"all hidden states at layer {block['layers'][last]['layer']}, the last looked at, are "
    told += "equal, so that nothing of positions is left"
    keys = [f"states.layers.{last}.shares"]
    if known and block["contexts"] > 1:
        place, layer = known[0]
        told += f"; at layer {layer['layer']} they account for "
        told += f"{percent(layer['shares']['position'])} of the variance"
        keys.insert(0, f"states.layers.{place}.shares.position")
    return _made("kept", "no", f"{told} ({counted(block['contexts'])})", None, tuple(keys))


def _positions(layout: Block) -> int:
    if layout["type"] == "sequence":
        return int(layout["length"])
    return int(layout["height"]) * int(layout["width"])


def _subspaces(document: Block) -> Iterator[Answer]:
    """Ask whether positions avoid the directions of tokens, beside random subspaces."""
    block, keys = document["subspaces"], ("subspaces.variance",)
    share = block["variance"]
    if share["value"] is None:
        why = block["undefined"]["variance"]
        yield _made("apart", "cannot tell", why, None, keys)
        return
    value, expected = share["value"], share["expected"]
    low, high = share["band"]
    if expected > ALL:
        told = f"{block['rank']} position directions of {block['width']} leave none to avoid"
        yield _made("apart", "cannot tell", told, value, keys, expected)
        return
    # One random subspace in ten lies outside its band: a claim needs more.
    margin = max(high - low, _WRITTEN)
    answer: Verdict = "no"
    if value < low - margin:
        answer = "yes"
    elif value < low:
        answer = "cannot tell"
    told = (
        f"the {block['rank']} leading position directions hold {percent(value)} of the tokens' "
        f"variance, random ones {percent(expected)} (5 to 95 %: {percent(low)} to {percent(high)})"
    )
    yield _made("apart", answer, told, value, keys, expected)


def _heads(document: Block) -> Iterator[Answer]:
    """Ask whether positions alone make a head look mainly at one offset."""
    layers = document["heads"]["layers"]
    found: Counter[str] = Counter()
    total, sharpest = 0, 0.0
    for layer in layers:
        for name, paid in zip(layer["peak_name"], layer["attention"], strict=True):
            total += 1
            sharpest = max(sharpest, paid or 0.0)
            if (paid or 0.0) > MOST:
                found[name] += 1
    keys = tuple(f"heads.layers.{place}.attention" for place in range(len(layers)))
    if _positions(layers[0]["layout"]) == 1:
        yield _made("heads", "cannot tell", f"{_ONE_POSITION} look at", None, keys)
        return
    count = found.total()
    direct = " along the direct path" if len(layers) > 1 else ""
    if not count:
        told = f"with positions as its only input{direct}, no head of {total} "
        told += (
            f"pays more than {percent(sharpest, 0)} of its attention at one offset"
            if sharpest
            else "prefers an offset"
        )
    else:
        where = listed([f"{name} ({number})" for name, number in found.most_common(3)])
        more = " most often" if len(found) > 3 else ""
        told = f"with positions as their only input{direct}, {count} of {total} heads pay more "
        told += f"than half of their attention at one offset,{more} {where}"
    value = {"heads": count, "of": total, "sharpest": sharpest}
    yield _made("heads", "yes" if count else "no", told, value, keys)


def _attention(document: Block) -> Iterator[Answer]:
    """Ask whether most attention of a layer goes to the first position."""
    block = document["attention"]
    if block["uniform_first"] is None:
        return  # patches have no first position
    means = [
        (sum(layer["first"]) / len(layer["first"]), place)
        for place, layer in enumerate(block["layers"])
        if layer["first"] and None not in layer["first"]
    ]
    keys: tuple[str, ...] = ("attention.uniform_first",)
    if not means:
        yield _made("first", "cannot tell", "no layer attends to it", None, keys)
        return
    most, place = max(means)
    keys = (f"attention.layers.{place}.first", *keys)
    told = (
        f"at layer {block['layers'][place]['layer']}, where it is most, the first position "
        f"receives {percent(most, 0)} of the others' attention, on average over heads; even "
        f"attention would give it {percent(block['uniform_first'])}"
    )
    yield _made("first", "yes" if most > MOST else "no", told, most, keys, block["uniform_first"])


def _permutation(document: Block) -> Iterator[Answer]:
    """Ask whether order changes the outputs, with the table and with zeros in its place."""
    block, least, parts = document["permutation"], rounding(document), _parts(document)
    for name, kind, how in (
        ("order", "with_positions", ""),
        ("order_without", "without_positions", " with the table set to 0"),
    ):
        change = block[kind]["tokens"]
        answer: Verdict = "yes" if change >= least else "no"
        but = "" if answer == "yes" else ", which is rounding"
        told = f"permuting the {parts}{how} changes the last hidden states by {show(change)} times "
        told += f"their norm{but} ({counted(block['contexts'])})"
        yield _made(name, answer, told, change, (f"permutation.{kind}.tokens",), least)


def _shift(document: Block) -> Iterator[Answer]:
    """Ask whether outputs change when all positions are counted from a later one."""
    block, least = document["shift"], rounding(document)
    keys = ("shift.change", "shift.shifts")
    moved = [
        (change, shift)
        for change, shift in zip(block["change"], block["shifts"], strict=True)
        if shift
    ]
    if not moved:
        yield _made("absolute", "cannot tell", "there is no room for a shift", None, keys)
        return
    most, shift = max(moved)
    told = f"counting positions from {shift} changes the last hidden states by {show(most)} times "
    told += "their norm"
    if most < least:
        told += ", which is rounding: where a text begins makes no difference"
    yield _made("absolute", "yes" if most >= least else "no", told, most, keys, least)


def _blank(document: Block) -> Iterator[Answer]:
    """Ask whether patches of an image of one grey still differ at the end."""
    layers = document["blank"]["layers"]
    known = [p for p, layer in enumerate(layers) if layer["constant"]["share"] is not None]
    if not known:
        told = "hidden states are 0"
        yield _made("blank", "cannot tell", told, None, ("blank.layers",))
        return
    place = known[-1]
    pattern, least = layers[place]["constant"], rounding(document) ** 2
    share, alike = pattern["share"], pattern["alignment"]
    told = (
        f"in an image of one grey patches differ by {percent(share)} of the squared norm at layer "
        f"{layers[place]['layer']}"
    )
    if alike is not None:
        told += f", and their mean cosine with the position table is {show(alike)} (0: unrelated)"
    keys = tuple(f"blank.layers.{place}.constant.{key}" for key in ("share", "alignment"))
    yield _made("blank", "yes" if share >= least else "no", told, share, keys, least)


def _substitution(document: Block) -> Iterator[Answer]:
    """Ask what the table is worth, and whether less than the table is enough."""
    block = document["substitution"]
    main, places = block["measure"], range(len(block["substitutes"]))
    by_name = {block["substitutes"][place]["name"]: place for place in places}

    def key(place: int) -> str:
        return f"substitution.substitutes.{place}.{main}"

    removed = by_name[block["removed"]]
    cost = block["substitutes"][removed][main]
    told = removal(block)
    answer: Verdict = "yes"
    # A divergence is above 0 by any change: what is next to nothing is no loss, however certain.
    if cost["kept"] is not None and cost["value"] + SURE * cost["error"] < SMALL:
        answer = "no"
        told += f": {SURE:.0f} standard errors more would be below {_small(block)}"
    elif cost["kept"] is None:
        # That no loss was seen is no evidence that there is none: few contexts see nothing.
        answer, why = "cannot tell", block["undefined"]["kept"]
        if is_gain(cost["value"], cost["error"]):
            answer = "no"
        elif cost["error"] is not None and cost["value"] is not None:
            most = cost["value"] + SURE * cost["error"]
            answer = "no" if most < SMALL else "cannot tell"
            than = f"{SURE:.0f} standard errors more would be"
            why += f"; {than} {'below' if answer == 'no' else show(most, '.2g') + ', not below'} "
            why += _small(block)
        told += f": {why}"
    yield _made("needed", answer, told, cost["value"], (key(removed),), 0.0)
    if answer != "yes":
        return
    for name, kinds, most in (("few", ("components",), FEW), ("random", ("null",), None)):
        some = [
            place
            for place in places
            if block["substitutes"][place]["kind"] in kinds
            and block["substitutes"][place][main]["kept"] is not None
            and (most is None or block["substitutes"][place]["size"] <= most)
        ]
        if some:
            yield _sufficient(block, name, some, tuple(map(key, some)))


def _small(block: Block) -> str:
    """Write `SMALL` in the unit of the cost."""
    of_norm = block["measure"] == "states"
    return f"{show(SMALL)} {'times their norm' if of_norm else 'nats'}"


def _gains(block: Block) -> bool:
    """Tell whether a model does better without positions, certainly and by more than `SMALL`."""
    main, removed = block["measure"], block["removed"]
    cost = next(each for each in block["substitutes"] if each["name"] == removed)[main]
    return is_gain(cost["value"], cost["error"]) and cost["value"] < -SMALL


def _sufficient(block: Block, name: str, some: list[int], keys: tuple[str, ...]) -> Answer:
    """Ask whether one of some substitutes keeps `ENOUGH` of what the table is worth."""
    main = block["measure"]
    each = [(block["substitutes"][place], block["substitutes"][place][main]) for place in some]
    sure = [one for one, cost in each if cost["kept"] - SURE * cost["kept_error"] >= ENOUGH]
    open_ = any(cost["kept"] + SURE * cost["kept_error"] >= ENOUGH for _, cost in each)
    answer: Verdict = "yes" if sure else ("cannot tell" if open_ else "no")
    best = sure[0] if sure else max(each, key=lambda pair: float(pair[1]["kept"]))[0]
    of = "" if sure or len(some) == 1 else f", the most that one of {len(some)} keeps"
    told = f"{kept(best[main])} of {worth(block)} is kept by {best['label']}{of}"
    if name == "few":
        told = f"{best['label']} {'keeps' if best['size'] == 1 else 'keep'} {kept(best[main])} of "
        told += f"{worth(block)}{of}"
    told += below([best[main]["kept"]])
    return _made(name, answer, told, best[main]["kept"], keys, ENOUGH)


_ASKED = {
    "states": _states,
    "subspaces": _subspaces,
    "heads": _heads,
    "attention": _attention,
    "permutation": _permutation,
    "shift": _shift,
    "blank": _blank,
    "substitution": _substitution,
}


def _summary(document: Block, answers: Mapping[str, Answer]) -> str:
    """Sum the answers up in one sentence."""

    def says(name: str, answer: Verdict) -> bool:
        return name in answers and answers[name].answer == answer

    parts = []
    if says("kept", "yes"):
        value = answers["kept"].value
        first, last = value["layers"]
        also = "" if first == last else f" and for {percent(value['last'])} at layer {last}"
        parts.append(
            f"positions account for {percent(value['first'])} of the variance of the hidden states "
            f"at layer {first}{also}"
        )
    elif says("kept", "no"):
        parts.append("positions leave no trace above sampling noise in the last hidden states")
    if says("order", "yes"):
        tail = ""
        if says("order_without", "no"):
            tail = ", and the position table is all that tells it"
        elif says("order_without", "yes"):
            tail = ", and something else than the position table tells it as well"
        parts.append(f"the order of {_parts(document)} matters{tail}")
    elif says("order", "no"):
        parts.append(f"the order of {_parts(document)} makes no difference")
    if says("absolute", "yes"):
        parts.append("where the text begins matters, not distances alone")
    elif says("absolute", "no"):
        parts.append("where the text begins makes no difference")
    if says("apart", "yes"):
        parts.append("position directions are kept apart from those of tokens")
    if says("heads", "yes"):
        value = answers["heads"].value
        parts.append(f"{value['heads']} of {value['of']} heads look mainly at one offset")
    if says("first", "yes"):
        parts.append("at some layer most attention goes to the first position")
    if says("blank", "yes") and not parts:
        parts.append("positions alone tell patches apart")
    if says("few", "yes"):
        parts.append(answers["few"].sentence.removeprefix(f"{_BEGIN['yes']}: ").rstrip("."))
    elif says("needed", "yes"):
        parts.append("the model loses something when its positions are taken away")
    elif says("needed", "no") and _gains(document["substitution"]):
        parts.append("the model does better without its positions")
    elif says("needed", "no"):
        less = _small(document["substitution"]).replace("their", "the states'")
        parts.append(f"without its positions the model loses less than {less}")
    if not parts:
        return "Nothing that was measured gives a clear answer."
    note = random_contexts(document)
    real = f" ({note})" if note and document["contexts"]["used"] else ""
    return capital("; ".join(parts)) + f"{real}."
