"""Measurements inside a running model: what they take, and all of them by name."""

from posprobe.measurements.model.contexts import (
    Contexts as Contexts,
    ModelInputs as ModelInputs,
    ModelMeasurement as ModelMeasurement,
)
from posprobe.measurements.model.registry import MODEL as MODEL
