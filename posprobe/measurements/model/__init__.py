"""The registry of measurements inside a running model, in the order of the page."""

from __future__ import annotations

from typing import Any

from posprobe.measurements.model.attention import ATTENTION
from posprobe.measurements.model.base import (
    Contexts as Contexts,
    ModelInputs as ModelInputs,
    ModelMeasurement as ModelMeasurement,
)
from posprobe.measurements.model.blank import BLANK
from posprobe.measurements.model.effective import EFFECTIVE
from posprobe.measurements.model.heads import HEADS
from posprobe.measurements.model.permutation import PERMUTATION
from posprobe.measurements.model.rotary_use import ROTARY_USE
from posprobe.measurements.model.shift import SHIFT
from posprobe.measurements.model.states import STATES
from posprobe.measurements.model.subspaces import SUBSPACES
from posprobe.measurements.model.substitution import SUBSTITUTION
from posprobe.measurements.model.words import WORDS

#: Measurements inside a model by name. Adding one is adding it here.
MODEL: dict[str, ModelMeasurement[Any]] = {
    measurement.name: measurement
    for measurement in (
        STATES,
        HEADS,
        ROTARY_USE,
        EFFECTIVE,
        SUBSPACES,
        ATTENTION,
        WORDS,
        PERMUTATION,
        SHIFT,
        BLANK,
        SUBSTITUTION,
    )
}
