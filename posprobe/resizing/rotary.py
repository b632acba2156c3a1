"""Rotary positions at another length: the effect of each scaling rule on the wavelengths.

A pair of columns that completed a turn within the training length has shown the model every angle.
Any other pair shows new angles beyond that length, unless a rule slows it down: then its angles are
those of training, but closer together (interpolated), so that the pair separates neighbouring
positions less well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses.models.rotary import MAX_SEARCHED_DISTANCE
from posprobe.analyses.result import HIDDEN, as_block
from posprobe.arrays import Floats
from posprobe.blocks import EnvironmentBlock, describe_environment
from posprobe.encodings.rotary import (
    first_negative,
    rotary_frequencies,
    rotary_kernel,
    wavelengths,
)
from posprobe.errors import InvalidCheckpoint, UsageError
from posprobe.number_types import Natural, Text, limits
from posprobe.relations.resized import Rule, Run
from posprobe.report.files import RESIZING_SCHEMA
from posprobe.report.saved import Saveable
from posprobe.schemes import Rotary
from posprobe.sources import Source
from posprobe.words import resizing as words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Largest number of positions that the user may request.
MAX_TARGET_LENGTH = 2**31
#: Relative difference of frequencies, or of largest angles, that counts as rounding.
FREQUENCY_TOLERANCE = 1e-9
#: Distance up to which the first negative mean rotation is searched, over the new length.
NEGATIVE_SEARCH_FACTOR = 2


@dataclass(frozen=True)
class ToldRule(Rule):
    """One rule of scaling, at the new length, and that in words."""

    @property
    def sentence(self) -> Text:
        """Sentence on the pairs that the rule slows down, and those with new angles."""
        return words.rule_sentences(self)


@dataclass(frozen=True, eq=False)
class ToldRun(Run):
    """The model run with each table, or by each rule, and that in words."""

    @property
    def sentence(self) -> Text:
        """Sentence on the way or rule with the least loss."""
        return words.cost_sentences(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class RulesCompared(Saveable):
    """Rules of scaling of rotary positions.

    Parameters
    ----------
    name, source, base, pairs
        Name, source, base and number of pairs of the encoding.
    training, to
        Training length and new length, in positions.
    rules
        Rules that apply to the encoding.
    missing
        Reasons why other rules are left out.
    run
        Losses of the model with each rule; None if it was not run.
    environment
        Versions, command and time.
    record
        Rotary scheme.
    ladders
        Frequencies ``[pairs]`` by rule, in radians per position at the new length.
    scalings
        Content of ``rope_parameters`` in a configuration, by rule.
    """

    schema: Literal["posprobe.resizing/1"] = RESIZING_SCHEMA
    name: str
    source: Source
    base: float
    pairs: Natural
    training: Annotated[Natural, "Positions that the model was trained with."]
    to: Natural
    rules: Annotated[tuple[ToldRule, ...], limits(minItems=1)]
    missing: Annotated[dict[str, Text], "By rule, why it is left out."]
    run: Annotated[
        ToldRun | None, "The model run by each rule; null where it was not."
    ] = None
    environment: EnvironmentBlock
    record: Annotated[Rotary, HIDDEN]
    ladders: Annotated[Mapping[str, Floats], HIDDEN]
    scalings: Annotated[Mapping[str, Mapping[str, Any]], HIDDEN]

    def to_dict(self) -> dict[str, Any]:
        """Return the document (schema `posprobe.resizing/1`)."""
        return as_block(self)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: frequencies and losses by rule."""
        losses = {} if self.run is None else self.run.losses
        return {
            **{f"{name}_frequencies": omega for name, omega in self.ladders.items()},
            **{f"{name}_losses": array for name, array in losses.items()},
        }

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return the builders of the bundle's figures by name."""
        from posprobe.figures.comparison import rotary_scaling_figures

        losses = {} if self.run is None else self.run.losses
        return rotary_scaling_figures(self.ladders, self.training, self.to, losses)


def compare_rules(
    record: Rotary, *, to: int, command: str | None = None
) -> RulesCompared:
    """Compare the rules that scale rotary positions to another length.

    The rules are those of `posprobe.encodings.rotary_frequencies` with the factor ``to /
    training``: none, linear (Chen et al. 2023), dynamic (NTK-aware), yarn (Peng et al. 2023),
    llama3 with its published factors 1 and 4, longrope (Ding et al. 2024) if the configuration has
    its factors, and the checkpoint's own rule if it names one.

    Parameters
    ----------
    record
        Rotary scheme along one axis, with a known training length.
    to
        New length in positions, larger than in training.
    command
        Command line to record.

    Raises
    ------
    UsageError
        If the training length is unknown, the new one is not larger, there are several axes, or the
        layers have a shorter window.
    """
    training = _check_training_length(record, to)
    ladders: dict[str, Floats] = {}
    factors: dict[str, float] = {}
    missing: dict[str, str] = {}
    scalings = _scaling_rules(record, training, to)
    for name, scaling in scalings.items():
        try:
            frequencies, factor = rotary_frequencies(
                record.head_dim,
                base=record.base,
                partial=record.partial,
                scaling=scaling,
                max_positions=record.max_positions if name == "its own" else training,
                length=to,
            )
            # Pairs that do not turn under a rule are left out.
            ladders[name], factors[name] = frequencies[frequencies > 0], factor
        except (InvalidCheckpoint, UsageError) as error:
            missing[name] = str(error)
    if record.rule == "proportional":
        reason = "it has no form for a ladder whose slow pairs stand still (proportional)"
        missing |= dict.fromkeys(("dynamic", "yarn", "llama3"), reason)
    if "longrope" not in ladders:
        missing["longrope"] = (
            "it divides each pair by a factor that was searched for a "
            "model, and this configuration has none"
        )
    training_frequencies = ladders["none"]
    return RulesCompared(
        name=record.name,
        source=record.source,
        base=record.base,
        pairs=len(training_frequencies),
        training=training,
        to=to,
        rules=tuple(
            _measure_rule(
                name, frequencies, factors[name], training_frequencies, training, to
            )
            for name, frequencies in ladders.items()
        ),
        missing=missing,
        environment=describe_environment("cpu", 0, command),
        record=record,
        ladders=ladders,
        scalings=scalings,
    )


def _check_training_length(record: Rotary, target: int) -> int:
    """Return the training length, after checks that scaling rules apply to the model."""
    training = record.training_length or record.max_positions
    if record.window is not None and record.window < target:
        raise UsageError(
            f"{record.name}: its layers see {record.window} positions of a "
            "text of any length, so that no rule is needed for a longer "
            "one."
        )
    if record.axes != 1:
        raise UsageError(
            f"{record.name}: it turns along {record.axes} axes of a "
            "picture, and rules of scaling are for the one axis of a text."
        )
    if training is None:
        raise UsageError(
            f"{record.name}: its configuration states no length, so that nothing can be longer "
            'than in training. Add "max_position_embeddings" to config.json.'
        )
    if not training < target <= MAX_TARGET_LENGTH:
        raise UsageError(
            f"{record.name}: it was trained with {training} positions, and "
            f"rules of scaling are for more, up to {MAX_TARGET_LENGTH}. "
            f"Choose `to` above {training}."
        )
    return training


def _scaling_rules(
    record: Rotary, training: int, target: int
) -> dict[str, Mapping[str, Any]]:
    factor = target / training
    original = {"original_max_position_embeddings": training}
    if record.rule == "proportional":
        plain = {**record.scaling, "factor": 1.0}
        own_rule = {"its own": record.scaling} if record.scaling.get("factor") else {}
        return {"none": plain, "linear": {**plain, "factor": factor}, **own_rule}
    rules: dict[str, Mapping[str, Any]] = {
        "none": {},
        "linear": {"rope_type": "linear", "factor": factor},
        "dynamic": {"rope_type": "dynamic", "factor": 1.0},
        "yarn": {"rope_type": "yarn", "factor": factor, **original},
        "llama3": {
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            **original,
        },
    }
    if "long_factor" in record.scaling:
        rules["longrope"] = {**record.scaling, "factor": factor, **original}
    elif record.scaling:
        rules["its own"] = record.scaling
    return rules


def _measure_rule(
    name: str,
    frequencies: Floats,
    factor: float,
    training_frequencies: Floats,
    training: int,
    target: int,
) -> ToldRule:
    """Compare the frequencies of a rule at the new length with those of training."""
    slowdown = np.divide(
        training_frequencies,
        frequencies,
        out=np.ones_like(frequencies),
        where=frequencies > 0,
    )
    turns_fully = training * training_frequencies >= 2 * np.pi * (1 - FREQUENCY_TOLERANCE)
    is_extrapolated = target * frequencies > training * training_frequencies * (
        1 + FREQUENCY_TOLERANCE
    )
    is_slowed = slowdown > 1 + FREQUENCY_TOLERANCE
    longest_wavelength = float(wavelengths(frequencies).max())
    limit = min(NEGATIVE_SEARCH_FACTOR * target, MAX_SEARCHED_DISTANCE)
    negative_distance = first_negative(frequencies, limit)
    kernel = rotary_kernel(frequencies, np.array([1, training, target])).tolist()
    reasons = {"first_negative": f"the mean rotation is not negative up to {limit}"}
    return ToldRule(
        rule=name,
        kept=int(np.count_nonzero(~is_slowed)),
        slowed=int(np.count_nonzero(is_slowed)),
        slowest=float(slowdown.max()),
        whole_turn=int(np.count_nonzero(turns_fully)),
        interpolated=int(np.count_nonzero(~turns_fully & ~is_extrapolated)),
        extrapolated=int(np.count_nonzero(~turns_fully & is_extrapolated)),
        longest_wavelength=longest_wavelength
        if np.isfinite(longest_wavelength)
        else None,
        kernel_at_1=kernel[0],
        kernel_at_training=kernel[1],
        kernel_at_to=kernel[2],
        first_negative=negative_distance,
        attention_factor=factor,
        undefined=reasons if negative_distance is None else {},
        pairs=len(frequencies),
    )
