"""Measurements of a table: what is known of each, and all of them by name."""

from posprobe.measurements.table import (
    TABLE as TABLE,
    Drawing as Drawing,
    Measurement as Measurement,
    TableInputs as TableInputs,
    TableMeasurement as TableMeasurement,
    Tokens as Tokens,
    compared_numbers as compared_numbers,
)
