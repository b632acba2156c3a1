"""Measurements of a table: the record that registers one, and all of them by name."""

from posprobe.measurements.table import (
    STRETCH_MEASUREMENTS as STRETCH_MEASUREMENTS,
    TABLE_MEASUREMENTS as TABLE_MEASUREMENTS,
    Drawing as Drawing,
    Measurement as Measurement,
    TableInputs as TableInputs,
    TableMeasurement as TableMeasurement,
    Tokens as Tokens,
    compared_numbers as compared_numbers,
)
