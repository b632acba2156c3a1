"""Questions about places: whether all weigh alike, whether positions cause it, and the reach."""

from __future__ import annotations

import math
from dataclasses import dataclass

from posprobe.analyses.facts import MAX_YES_P, Answer, Test, Verdict
from posprobe.analyses.models.places import (
    MIN_ADDITIVE_R2,
    N_PLACE_PERMUTATIONS,
    Places,
    PlacesAtLength,
    PlacesOutput,
    ReversedPositions,
)
from posprobe.questions.rank_tests import value_property

#: Smallest root mean square deviation of the weights from 1 that matters: a tenth.
MIN_PLACE_SPREAD = 0.1
#: A larger deviation would matter, so that one which permuted slots reach hides an effect.
MAX_HIDING_SPREAD = 0.25
#: Below this mean weight of the last half of a text, shorter chunks are advised.
MIN_LAST_HALF_WEIGHT = 0.8
#: A grid with fewer rows or columns of cells has only a border.
MIN_CELL_ROWS = 3
#: A reach is below its range by chance with so many standard errors added.
N_REACH_ERRORS = 2.0
#: Smallest share of a preference that is said to move with positions.
MIN_MOVED_SHARE = 0.1
#: A larger share by chance would hide one that matters.
MAX_HIDING_MOVED_SHARE = 0.25
#: Smallest p-value that permutations or swaps allow.
_LEAST_PLACE_P = 1 / (1 + N_PLACE_PERMUTATIONS)


@dataclass(frozen=True)
class PlaceWeights:
    """Weights of the places of the longest documents.

    Parameters
    ----------
    output
        Output that they are about.
    tokens, documents
        Tokens, or patches, of a document, and number of documents.
    ends
        Weight of the first quarter over that of the last; None of an image.
    spread, spread_chance
        Root mean square deviation of the weights from 1, and the one that permuted slots exceed in
        2 % of draws.
    last_half
        Mean weight of the last half.
    chunk_tokens
        Longest measured documents whose last half weighs enough, if that of the longest does not;
        else None.
    r2
        Share of an embedding that the additive model explains; None where nothing was added.
    border
        Mean weight of an image's cells at the border over that of the others; None of text.
    """

    output: PlacesOutput
    tokens: int
    documents: int
    ends: float | None
    spread: float
    spread_chance: float
    last_half: float
    chunk_tokens: int | None
    r2: float | None
    border: float | None

    value = value_property("ends", "spread", "tokens")

    @property
    def first_weighs_more(self) -> bool:
        """Whether the first quarter weighs more than the last."""
        return self.ends is not None and self.ends > 1

    @property
    def factor(self) -> float | None:
        """How many times as much the heavier end weighs."""
        return self.ends and max(self.ends, 1 / self.ends)


def _longest_key(places: Places, name: str) -> str:
    return f"places.lengths.{len(places.lengths) - 1}.{name}"


def _advised_tokens(places: Places) -> int | None:
    """Return the longest measured length that is advised, if the longest is not."""
    weights = {length.tokens: length.last_half for length in places.lengths}
    is_text = places.output == "embedding" and places.grid is None
    if not is_text or weights[places.full_length.tokens] >= MIN_LAST_HALF_WEIGHT:
        return None
    light = [tokens for tokens, half in weights.items() if half < MIN_LAST_HALF_WEIGHT]
    return max((tokens for tokens in weights if tokens < min(light)), default=None)


def _border_weight(places: Places) -> float | None:
    """Return the mean weight of the cells at the border over that of the others."""
    if places.grid is None or min(places.grid) < MIN_CELL_ROWS:
        return None
    cells = places.full_length.weights.reshape(places.grid)
    middle = cells[1:-1, 1:-1]
    border = (cells.sum() - middle.sum()) / (cells.size - middle.size)
    return float(border / middle.mean())


def ask_weigh_alike(places: Places | None) -> Answer | None:
    """Ask whether all places weigh alike in an embedding, or in the choice of a class."""
    if places is None or places.output == "next_token":
        return None
    full_length = places.full_length
    facts = PlaceWeights(
        output=places.output,
        tokens=full_length.tokens,
        documents=full_length.documents,
        ends=full_length.first_over_last,
        spread=full_length.spread,
        spread_chance=full_length.spread_chance,
        last_half=full_length.last_half,
        chunk_tokens=_advised_tokens(places),
        r2=full_length.r2,
        border=_border_weight(places),
    )
    keys = tuple(_longest_key(places, name) for name in ("weights", "first_over_last"))
    if full_length.r2 is not None and full_length.r2 < MIN_ADDITIVE_R2:
        keys = (_longest_key(places, "r2"), *keys)
        return Answer("weigh_alike", "cannot tell", "not_additive", facts, keys=keys)
    verdict, reason = _judge_weights(full_length)
    if reason == "ends" and full_length.first_over_last and full_length.ends_chance:
        value, null, interval = full_length.first_over_last, 1.0, full_length.ends_chance
    else:
        value, null, interval = full_length.spread, None, (0.0, full_length.spread_chance)
    # A yes rejects no null here, so that it has no p-value.
    p, least = (math.nan, 0.0) if verdict == "yes" else (full_length.p, _LEAST_PLACE_P)
    test = Test(value, p, null, interval, "places", N_PLACE_PERMUTATIONS, least)
    return Answer("weigh_alike", verdict, reason, facts, test, keys)


def _judge_weights(full_length: PlacesAtLength) -> tuple[Verdict, str]:
    """Return whether weights are alike, and the reason."""
    is_significant = full_length.p <= MAX_YES_P
    if is_significant and full_length.spread >= MIN_PLACE_SPREAD:
        ends, chance = full_length.first_over_last, full_length.ends_chance
        is_by_ends = ends and chance and not chance[0] <= ends <= chance[1]
        return "no", "ends" if is_by_ends else "uneven"
    if is_significant:
        return "yes", "slight"
    if full_length.spread_chance <= MAX_HIDING_SPREAD:
        return "yes", "alike"
    return "cannot tell", "open"


@dataclass(frozen=True)
class MovedPreference:
    """Share of a preference for places that moves when positions are reversed.

    Parameters
    ----------
    share, error
        The share and its standard error.
    positions
        What was reversed.
    """

    share: float
    error: float | None
    positions: ReversedPositions

    value = value_property("share")


def ask_by_table(places: Places | None) -> Answer | None:
    """Ask whether a preference for places moves with positions, where one was found."""
    if places is None or places.reversed_positions is None:
        return None
    full_length = places.full_length
    share, p, chance = full_length.caused, full_length.caused_p, full_length.caused_chance
    if share is None or p is None or chance is None:
        return None
    facts = MovedPreference(share, full_length.caused_error, places.reversed_positions)
    keys = tuple(_longest_key(places, name) for name in ("caused", "reversed"))
    test = Test(share, p, 0.0, chance, "swapped", N_PLACE_PERMUTATIONS, _LEAST_PLACE_P)
    if p <= MAX_YES_P and share >= MIN_MOVED_SHARE:
        return Answer("by_table", "yes", "moves", facts, test, keys)
    if chance[1] <= MAX_HIDING_MOVED_SHARE:
        return Answer("by_table", "no", "stays", facts, test, keys)
    return Answer("by_table", "cannot tell", "open", facts, test, keys)


@dataclass(frozen=True)
class ReachAtLength:
    """Reach at one length, both in tokens."""

    tokens: int
    reach: float


@dataclass(frozen=True)
class Reach:
    """Number of last tokens that hold 90 % of the influence on the next.

    Parameters
    ----------
    reach, error
        Number of tokens, and its standard error.
    tokens, contexts
        Tokens of a context, and number of contexts.
    shorter
        The reach in shorter contexts.
    last_share
        Share of the influence in the last eighth of the context.
    """

    reach: float
    error: float
    tokens: int
    contexts: int
    shorter: tuple[ReachAtLength, ...]
    last_share: float

    value = value_property("reach", "tokens")


def ask_reach(places: Places | None) -> Answer | None:
    """Ask whether the nearest tokens hold most of the influence on the next one."""
    if places is None or places.full_length.reach is None:
        return None
    full_length = places.full_length
    chance = full_length.reach_chance or (0.0, float(full_length.tokens))
    facts = Reach(
        reach=full_length.reach or 0.0,
        error=full_length.reach_error or 0.0,
        tokens=full_length.tokens,
        contexts=full_length.documents,
        shorter=tuple(
            ReachAtLength(length.tokens, length.reach)
            for length in places.lengths[:-1]
            if length.reach is not None
        ),
        last_share=float(full_length.weights[-1] / full_length.weights.sum()),
    )
    keys = tuple(_longest_key(places, name) for name in ("reach", "weights"))
    # A reach within its range by chance is no evidence, however uneven influences are.
    is_near = facts.reach < chance[0]
    test = Test(
        facts.reach,
        full_length.p if is_near else math.nan,
        None,
        chance,
        "places",
        N_PLACE_PERMUTATIONS,
        _LEAST_PLACE_P if is_near else 0.0,
    )
    is_sure = facts.reach + N_REACH_ERRORS * facts.error < chance[0]
    if is_near and full_length.p <= MAX_YES_P and not is_sure:
        return Answer("reach", "cannot tell", "vague", facts, test, keys)
    if is_near and full_length.p <= MAX_YES_P:
        return Answer("reach", "yes", "near", facts, test, keys)
    if is_near or chance[0] < full_length.tokens / 2:
        return Answer("reach", "cannot tell", "open", facts, test, keys)
    return Answer("reach", "no", "far", facts, test, keys)
