"""Measurements of a table: what is known of each, and all of them by name."""

from posprobe.measurements.base import (
    Drawing as Drawing,
    Measurement as Measurement,
    TableInputs as TableInputs,
    Tokens as Tokens,
)
from posprobe.measurements.table import (
    TABLE as TABLE,
    TableMeasurement as TableMeasurement,
    compared_numbers as compared_numbers,
)
