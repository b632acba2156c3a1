"""Influence of each place of an input on a model's output: weights, errors, nulls and causes.

A document is cut into slots of equal size. The additive measure regresses the embedding of a
document on those of its chunks alone; the other replaces the content of one slot and measures how
far the output moves. Both give numbers by slot whose mean is 1. Their units, within which a null
permutes slots, are Latin squares of documents, or single documents. `posprobe.forward.places` runs
the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.facts import MAX_YES_P, summarise_result
from posprobe.analyses.models.rotary_use import Origin
from posprobe.analyses.resampling import jackknife_error, rank_p_value
from posprobe.analyses.result import (
    HIDDEN,
    Result,
    StoredArray,
    WithGaps,
)
from posprobe.arrays import Floats, Sums
from posprobe.drawable import Card
from posprobe.number_types import (
    PAIR_LIMITS,
    Natural,
    NonNegative,
    Reasons,
    Share,
    limits,
)
from posprobe.text import format_percent

#: Output whose dependence on places is measured.
PlacesOutput: TypeAlias = Literal["embedding", "next_token", "classes"]
#: How the last states of all tokens become one embedding.
Pooling: TypeAlias = Literal["mean", "cls", "last"]
#: A weight in the sum of chunk embeddings, or an influence by replacement.
PlacesMeasure: TypeAlias = Literal["weight", "influence"]
#: What an intervention reverses: rows of a position table, or position ids of rotary embeddings.
ReversedPositions: TypeAlias = Literal["table", "rotary"]
#: Low and high end of a range.
Range: TypeAlias = Annotated[tuple[float, float], PAIR_LIMITS]

#: Permutations, or swaps, of a test: the smallest p-value is .001.
N_PLACE_PERMUTATIONS = 999
#: An additive model explains this share of an embedding at least, or weights mean little.
MIN_ADDITIVE_R2 = 0.5
#: Share of the influence that lies within the reach.
REACH_SHARE = 0.9
#: Slots at each end that the ratio of first to last compares: a quarter of them.
END_SLOT_SHARE = 0.25
#: Fewest units of which a spread can be computed.
MIN_PLACE_UNITS = 2

#: Weights are divided by their mean, which is to be so many standard errors above 0: the error of a
#: quotient is then at most a tenth.
MIN_SCALE_ERRORS = 10.0

_StatisticT = TypeVar("_StatisticT", float, Floats)


def latin_square(slots: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw a Latin square: each chunk stands in each slot of one document.

    For an even number of slots each chunk also follows each other one once (Williams 1949), so
    that neighbours are balanced too.

    Parameters
    ----------
    slots
        Number of slots, chunks and documents.
    rng
        Generator of the order of chunks and documents.

    Returns
    -------
    NDArray
        ``[slots, slots]``: number of the chunk, by document and slot.

    Examples
    --------
    >>> import numpy as np
    >>> square = latin_square(4, np.random.default_rng(0))
    >>> [sorted(column.tolist()) for column in square.T]
    [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]
    """
    index = np.arange(slots)
    zigzag = np.where(index % 2, (index + 1) // 2, slots - index // 2) % slots
    first_row = zigzag if slots % 2 == 0 else rng.permutation(slots)
    square = (first_row[None, :] + index[:, None]) % slots
    return np.asarray(rng.permutation(slots)[square][rng.permutation(slots)])


def fit_chunk_weights(documents: Floats, chunks: Floats) -> tuple[Floats, Floats]:
    """Fit the embedding of each document by a weighted sum of those of its chunks.

    Parameters
    ----------
    documents
        ``[documents, d]``.
    chunks
        ``[documents, slots, d]``: embedding of the chunk in each slot, alone.

    Returns
    -------
    tuple
        Weights of least squares, ``[documents, slots]``, and the share of each document's squared
        norm that they explain, ``[documents]``.
    """
    pairs = zip(documents, chunks, strict=True)
    weights = np.stack([np.linalg.lstsq(rows.T, total)[0] for total, rows in pairs])
    residuals = documents - np.einsum("ns,nsd->nd", weights, chunks)
    power = np.square(documents).sum(axis=1)
    unexplained = np.square(residuals).sum(axis=1)
    return weights, 1 - unexplained / np.where(power > 0, power, 1.0)


def scale_to_mean_one(values: Floats) -> Floats:
    """Divide numbers by slot, ``[..., slots]``, by the mean of all."""
    return np.asarray(values / values.mean())


def has_scale(values: Floats, unit_size: int) -> bool:
    """Tell whether weights ``[documents, slots]`` have a mean by which they can be divided.

    The sum of weights of one sign is at least their norm.
    """
    curve = values.mean(axis=0)
    n_units = len(values) // unit_size
    means = values[: n_units * unit_size].reshape(n_units, -1).mean(axis=1)
    error = means.std(ddof=1) / np.sqrt(n_units)
    has_clear_mean = means.mean() > MIN_SCALE_ERRORS * error
    return bool(has_clear_mean and curve.sum() >= np.linalg.norm(curve))


def place_curve(units: Floats) -> Floats:
    """Return the mean over units ``[units, slots]``, divided by its own mean."""
    return scale_to_mean_one(units.mean(axis=0))


def error_over_units(units: Floats, statistic: Callable[[Floats], _StatisticT]) -> Floats:
    """Return the standard error of a statistic of units ``[units, ...]`` by the jackknife."""
    values = [statistic(np.delete(units, unit, axis=0)) for unit in range(len(units))]
    return jackknife_error(np.stack([np.asarray(value) for value in values]))


def permute_slots(units: Floats, rng: np.random.Generator) -> Floats:
    """Return mean curves ``[draws, slots]`` of units whose slots are permuted independently.

    If all places weigh alike, each order of a unit's slots is equally likely: the null is exact.
    """
    draws = np.repeat(units[None], N_PLACE_PERMUTATIONS, axis=0)
    curves = rng.permuted(draws, axis=2).mean(axis=1)
    return np.asarray(curves / units.mean())


def spread_of_weights(curves: Floats) -> Floats:
    """Return the root mean square deviation from 1 of curves ``[..., slots]``."""
    return np.asarray(np.sqrt(np.square(curves - 1).mean(axis=-1)))


def compare_ends(curves: Floats) -> Floats:
    """Return the mean of the first quarter over that of the last, of curves ``[..., slots]``."""
    k = max(1, int(curves.shape[-1] * END_SLOT_SHARE))
    last = curves[..., -k:].mean(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(curves[..., :k].mean(axis=-1) / last)


def measure_reach(segments: Sequence[int], influences: Floats) -> float:
    """Return the number of last tokens that hold `REACH_SHARE` of the influence.

    Parameters
    ----------
    segments
        Tokens of each segment, the nearest to the end first.
    influences
        Influence of each, spread evenly within it.

    Examples
    --------
    >>> import numpy as np
    >>> measure_reach([10, 10, 10], np.array([8.0, 2.0, 0.0]))
    15.0
    """
    cumulative = np.concatenate([[0.0], np.cumsum(influences)])
    ends = np.concatenate([[0], np.cumsum(segments)])
    return float(np.interp(REACH_SHARE * cumulative[-1], cumulative, ends))


@dataclass(frozen=True)
class ReachLayout:
    """Segments of a document, from its end, by which the reach is measured.

    Parameters
    ----------
    slot_tokens
        Tokens of a slot.
    blocks
        Tokens of the blocks that make up the last slot, the last block first.
    """

    slot_tokens: int
    blocks: tuple[int, ...]

    def reach(self, units: Floats) -> float:
        """Return the reach of ``[documents, slots + blocks]``: influences of slots, then blocks.

        Blocks share out the influence of the last slot, so that the reach may be less than a slot.
        """
        n_slots = units.shape[1] - len(self.blocks)
        mean = units.mean(axis=0)
        slots, blocks = mean[:n_slots][::-1], mean[n_slots:]
        total = blocks.sum()
        even = np.array(self.blocks) / self.slot_tokens
        blocks = slots[0] * (blocks / total if total > 0 else even)
        segments = (*self.blocks, *[self.slot_tokens] * (n_slots - 1))
        return measure_reach(segments, np.concatenate([blocks, slots[1:]]))

    def slot_reaches(self, curves: Floats) -> Floats:
        """Return the reaches of curves ``[draws, slots]`` by slots alone."""
        segments = [self.slot_tokens] * curves.shape[1]
        return np.array([measure_reach(segments, curve[::-1]) for curve in curves])


def divide_last_slot(slot_tokens: int) -> ReachLayout:
    """Divide the last slot into blocks of 1, 1, 2, 4 ... tokens, the last block first."""
    blocks: list[int] = []
    while (remaining := slot_tokens - sum(blocks)) > 0:
        blocks.append(min(max(1, sum(blocks)), remaining))
    return ReachLayout(slot_tokens, tuple(blocks))


def antisymmetric_part(curves: Floats) -> Floats:
    """Return what changes sign when the places of curves ``[..., slots]`` are reversed."""
    return np.asarray((curves - curves[..., ::-1]) / 2)


def moved_share(units: Floats) -> float:
    """Return the share of a preference that moves when positions are reversed.

    A preference that belongs to places stays, and one that belongs to positions is mirrored. So of
    the antisymmetric parts a of the curve and b of that with reversed positions, the share is
    ``(1 - a·b / a·a) / 2``. Products are of different units, so that noise does not add to them.

    Parameters
    ----------
    units
        ``[units, 2, slots]``: curves as the model is, and with reversed positions.

    Returns
    -------
    float
        Not finite where no preference differs from its mirror image.
    """
    parts = antisymmetric_part(units)
    stored, mirrored = parts[:, 0], parts[:, 1]
    total = stored.sum(axis=0)
    power = total @ total - np.sum(stored * stored)
    product = total @ mirrored.sum(axis=0) - np.sum(stored * mirrored)
    return float((1 - product / power) / 2) if power > 0 else float("nan")


def rank_moved_share(documents: Floats, rng: np.random.Generator) -> tuple[float, Range]:
    """Test whether a preference moves: by chance, both conditions are exchangeable.

    Parameters
    ----------
    documents
        ``[documents, 2, slots]``, as for `moved_share`.
    rng
        Generator of the documents whose conditions are swapped.

    Returns
    -------
    tuple
        P-value, and the range of the share by chance.
    """
    parts = antisymmetric_part(documents)
    signs = rng.choice([-1.0, 1.0], (N_PLACE_PERMUTATIONS, len(parts)))
    half_sums = parts.sum(axis=1).mean(axis=0) / 2
    differences = parts[:, 0] - parts[:, 1]
    swapped = signs @ differences / len(parts)

    def products(difference: Floats) -> Floats:
        return np.asarray((difference * (half_sums + difference / 2)).sum(axis=-1))

    observed = float(products(differences.mean(axis=0)))
    stored = parts[:, 0].mean(axis=0)
    draws = products(swapped)
    return rank_p_value(observed, draws), _null_range(draws / (2 * stored @ stored))


@dataclass(frozen=True, eq=False)
class PlacesAtLength:
    """Influence of each slot of documents of one length.

    Parameters
    ----------
    tokens
        Tokens of a document, with special ones; patches of an image.
    slots
        Number of slots, or of cells of an image in reading order.
    documents
        Number of documents.
    measure
        Kind of the numbers.
    weights, error
        ``[slots]``: mean over documents from the start, of mean 1, and its standard error
        (jackknife over Latin squares, or documents).
    weights_chance
        Range of a weight when slots are permuted.
    spread
        Root mean square deviation of the weights from 1.
    p
        P-value of the spread when slots are permuted.
    spread_chance
        Spread that permuted slots exceed in 2 % of draws.
    r2
        Share of the documents' squared norm that the additive model explains; None of influences.
    reach, reach_error
        Number of last tokens that hold 90 % of the influence, and its standard error (jackknife
        over documents); None unless the output is the next token.
    reach_chance
        Range of the reach by chance.
    first_over_last
        Weight of the first quarter of the slots over that of the last; None of an image.
    ends_chance
        Range of this ratio by chance.
    caused, caused_error
        Share of the preference that moves when positions are reversed, and its standard error;
        None where no intervention applies, or no preference was found.
    caused_p, caused_chance
        P-value of the share and its range when conditions are swapped.
    reversed
        ``[slots]``: weights with reversed positions; None where no intervention applies.
    averaged
        ``[slots]``: weights with the mean row at every position; None without a table.
    caused_reason
        Reason why ``caused`` is None; empty where it is not.
    """

    tokens: Natural
    slots: Natural
    documents: Natural
    measure: PlacesMeasure
    weights: Annotated[Floats, "By slot from the start, mean 1."]
    error: Annotated[Floats, "Standard error of each weight."]
    weights_chance: Range
    spread: NonNegative
    p: Share
    spread_chance: NonNegative
    r2: float | None
    reach: float | None
    reach_error: float | None
    reach_chance: Range | None
    first_over_last: float | None
    ends_chance: Range | None
    caused: float | None
    caused_error: float | None
    caused_p: float | None
    caused_chance: Range | None
    reversed: WithGaps | None
    averaged: WithGaps | None
    caused_reason: Annotated[str, HIDDEN] = ""

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for each number that is None."""
        reasons = {}
        if self.r2 is None:
            reasons["r2"] = "nothing is summed: content is replaced"
        if self.reach is None:
            reasons["reach"] = "only the next token has a reach"
        if self.first_over_last is None:
            reasons["first_over_last"] = (
                "a picture has no ends, and an end no weight below 0"
            )
        if self.caused is None:
            reasons["caused"] = self.caused_reason
        return reasons

    @property
    def last_half(self) -> float:
        """Mean weight of the last half of the slots."""
        return float(self.weights[self.slots // 2 :].mean())


@dataclass(frozen=True, eq=False, repr=False)
class Places(Result):
    """Influence of each place of an input on a model's output, at several lengths.

    Parameters
    ----------
    output
        Output that was measured.
    pooling
        Pooling of an embedding; None of other outputs.
    reversed_positions
        What the intervention reverses; None where none applies.
    grid
        Rows and columns of an image's cells; None of text.
    lengths
        Results by length, the shortest first.
    contexts
        Number of contexts that content was taken from.
    source
        Kind of the contexts.
    name
        Name of the model.
    notes
        Remarks for the reader.
    stopped
        Whether the run was interrupted, so that there are fewer documents than were asked for.
    """

    figures: ClassVar[str] = "places.plot_places"

    output: PlacesOutput
    pooling: Pooling | None
    reversed_positions: ReversedPositions | None
    grid: Annotated[tuple[Natural, Natural] | None, PAIR_LIMITS]
    lengths: Annotated[tuple[PlacesAtLength, ...], limits(minItems=1)]
    contexts: Natural
    source: Origin
    name: Annotated[str, HIDDEN]
    notes: Annotated[tuple[str, ...], HIDDEN] = ()
    stopped: Annotated[bool, HIDDEN] = False

    def _card(self) -> Card:
        full_length = self.full_length
        noun, unit = ("pictures", "patches") if self.grid else ("documents", "tokens")
        facts = {
            "output": self.output.replace("_", " "),
            noun: f"{full_length.documents} of {full_length.tokens} {unit}",
            "deviation of weights": f"{format_percent(full_length.spread)} of their mean",
        }
        if full_length.first_over_last is not None:
            ratio = f"{full_length.first_over_last:.2g} × the last quarter"
            facts["weight of the first quarter"] = ratio
        if full_length.reach is not None:
            facts["reach"] = (
                f"last {full_length.reach:,.0f} tokens hold 90 % of the influence"
            )
        if full_length.caused is not None:
            moved = f"{format_percent(full_length.caused)} of the preference"
            facts["moves with reversed positions"] = moved
        text = summarise_result("places", self)
        return Card(self.name, facts, text, pictures=self._pictures())

    @property
    def full_length(self) -> PlacesAtLength:
        """Result of the longest documents."""
        return self.lengths[-1]

    @property
    def first_over_last(
        self,
    ) -> Annotated[float | None, "First quarter over last, of the longest documents."]:
        """Weight of the first quarter over that of the last, of the longest documents."""
        return self.full_length.first_over_last

    @property
    def reach(
        self,
    ) -> Annotated[float | None, "In tokens, of the longest documents."]:
        """Number of last tokens that hold 90 % of the influence, of the longest documents."""
        return self.full_length.reach

    @property
    def caused(
        self,
    ) -> Annotated[float | None, "Of the longest documents."]:
        """Share of the preference that moves with positions, of the longest documents."""
        return self.full_length.caused

    @property
    def place_weights(
        self,
    ) -> Annotated[NDArray[np.float64], StoredArray("place_weights")]:
        """``[lengths, slots]``: weights by length and slot."""
        return np.stack([length.weights for length in self.lengths])

    @property
    def undefined(self) -> Annotated[Reasons, ""]:
        """Reason for each number that is None."""
        reasons = self.full_length.undefined
        keys = ("first_over_last", "reach", "caused")
        undefined = {key: reasons[key] for key in keys if key in reasons}
        if self.pooling is None:
            undefined["pooling"] = "the output is no embedding of a text"
        if self.reversed_positions is None:
            undefined["reversed_positions"] = self.full_length.caused_reason
        if self.grid is None:
            undefined["grid"] = "the input is text"
        return undefined


@dataclass(frozen=True, eq=False)
class PlaceNumbers(Sums):
    """Numbers by document of one length; ``+`` joins those of different documents.

    Parameters
    ----------
    contexts
        Number of documents.
    values
        ``[documents, slots]``: weights or influences.
    r2
        ``[documents]``; None of influences.
    blocks
        ``[documents, blocks]``: influences of the blocks of the last slot; None without a reach.
    reversed, averaged
        ``[documents, slots]``: values of the interventions; None without them.
    """

    context_axes: ClassVar = {
        "values": 0,
        "r2": 0,
        "blocks": 0,
        "reversed": 0,
        "averaged": 0,
    }

    contexts: int
    values: Floats
    r2: Floats | None = None
    blocks: Floats | None = None
    reversed: Floats | None = None
    averaged: Floats | None = None


def summarise_places(
    numbers: PlaceNumbers,
    *,
    tokens: int,
    unit_size: int,
    layout: ReachLayout | None,
    caused_reason: str,
    is_line: bool,
    seed: int,
) -> PlacesAtLength:
    """Summarise the numbers of one length.

    Parameters
    ----------
    numbers
        Numbers by document.
    tokens
        Tokens of a document.
    unit_size
        Documents of a unit: those of a Latin square, else 1.
    layout
        Segments of the reach; None where it is not measured.
    caused_reason
        Reason why there is no intervention; empty if there is.
    is_line
        Whether places have a first and a last.
    seed
        Random seed of permutations and swaps.
    """
    slots = numbers.values.shape[1]
    values = scale_to_mean_one(numbers.values)
    units = values.reshape(-1, unit_size, slots).mean(axis=1)
    curve = place_curve(units)
    draws = permute_slots(units, np.random.default_rng([seed, 0]))
    spreads, spread = spread_of_weights(draws), float(spread_of_weights(curve))
    p = rank_p_value(spread, spreads)
    ends = float(compare_ends(curve))
    has_ends = is_line and 0 < ends < np.inf
    return PlacesAtLength(
        tokens=tokens,
        slots=slots,
        documents=len(values),
        measure="influence" if numbers.r2 is None else "weight",
        weights=curve,
        error=error_over_units(units, place_curve),
        weights_chance=_null_range(draws),
        spread=spread,
        p=p,
        spread_chance=float(np.quantile(spreads, 1 - MAX_YES_P)),
        r2=None if numbers.r2 is None else float(numbers.r2.mean()),
        first_over_last=ends if has_ends else None,
        ends_chance=_null_range(compare_ends(draws)) if has_ends else None,
        **_summarise_reach(values, numbers.blocks, layout, draws),
        **_summarise_cause(numbers, values, unit_size, p, caused_reason, seed),
    )


def _null_range(draws: Floats) -> Range:
    """Return the range of null draws between their 2 and 98 % quantiles."""
    low, high = np.quantile(draws, (MAX_YES_P, 1 - MAX_YES_P))
    return float(low), float(high)


def _summarise_reach(
    values: Floats, blocks: Floats | None, layout: ReachLayout | None, draws: Floats
) -> dict[str, Any]:
    """Return the fields of the reach."""
    if layout is None or blocks is None:
        return dict.fromkeys(("reach", "reach_error", "reach_chance"))
    documents = np.concatenate([values, blocks], axis=1)
    return {
        "reach": layout.reach(documents),
        "reach_error": float(error_over_units(documents, layout.reach)),
        "reach_chance": _null_range(layout.slot_reaches(draws)),
    }


def _summarise_cause(
    numbers: PlaceNumbers,
    values: Floats,
    unit_size: int,
    p: float,
    caused_reason: str,
    seed: int,
) -> dict[str, Any]:
    """Return the fields of the interventions."""
    keys = ("caused", "caused_error", "caused_p", "caused_chance", "reversed", "averaged")
    fields: dict[str, Any] = {**dict.fromkeys(keys), "caused_reason": caused_reason}
    slots = values.shape[1]
    if numbers.averaged is not None:
        fields["averaged"] = place_curve(numbers.averaged)
    if numbers.reversed is None:
        return fields
    fields["reversed"] = place_curve(numbers.reversed)
    documents = np.stack([values, scale_to_mean_one(numbers.reversed)], axis=1)
    units = documents.reshape(-1, unit_size, 2, slots).mean(axis=1)
    share = moved_share(units)
    if p > MAX_YES_P or not np.isfinite(share):
        reason = "no preference was found that reversed positions could move"
        return fields | {"caused_reason": reason}
    rng = np.random.default_rng([seed, 1])
    caused_p, chance = rank_moved_share(documents, rng)
    fields |= {"caused": share, "caused_p": caused_p, "caused_chance": chance}
    fields["caused_error"] = float(error_over_units(units, moved_share))
    return fields
