"""Closed forms of position: tables, rotations, biases and buckets that follow a formula.

A formula with a table can stand wherever a checkpoint can, such as ``sinusoidal:512x768,halves``.
"""

from posprobe.encodings.offsets import (
    alibi_slopes as alibi_slopes,
    continuous_bias as continuous_bias,
    deberta_buckets as deberta_buckets,
    log_spaced_offsets as log_spaced_offsets,
    t5_buckets as t5_buckets,
)
from posprobe.encodings.recognise import fixed_formula as fixed_formula
from posprobe.encodings.rotary import (
    first_negative as first_negative,
    rotary_bound as rotary_bound,
    rotary_frequencies as rotary_frequencies,
    rotary_kernel as rotary_kernel,
    wavelengths as wavelengths,
    yarn_correction_range as yarn_correction_range,
)
from posprobe.encodings.tables import (
    FORMULAS as FORMULAS,
    binary as binary,
    build_formula as build_formula,
    build_formula_in_shape as build_formula_in_shape,
    continuous_binary as continuous_binary,
    counting as counting,
    frequencies as frequencies,
    normalised_counting as normalised_counting,
    parse_formula as parse_formula,
    sincos2d as sincos2d,
    sine_ladder as sine_ladder,
    sinusoidal as sinusoidal,
    translation_matrix as translation_matrix,
)
