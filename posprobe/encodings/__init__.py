"""Closed forms of position: tables, rotations, biases and buckets that follow a formula.

A formula with a table can stand wherever a checkpoint can, such as ``sinusoidal:512x768,halves``.
"""

from posprobe.encodings.alibi import alibi_slopes
from posprobe.encodings.buckets import (
    deberta_buckets,
    log_spaced_offsets,
    t5_buckets,
)
from posprobe.encodings.formulas import (
    FORMULAS,
    Formula,
    Option,
    from_reference,
    of_shape,
    parse_formula,
)
from posprobe.encodings.guesses import (
    binary,
    continuous_binary,
    counting,
    normalised_counting,
    sine_ladder,
)
from posprobe.encodings.recognise import fixed_formula
from posprobe.encodings.rope_rules import yarn_correction_range
from posprobe.encodings.rotary import (
    first_negative,
    rotary_bound,
    rotary_frequencies,
    rotary_kernel,
    wavelengths,
)
from posprobe.encodings.sinusoidal import frequencies, sincos2d, sinusoidal, translation_matrix

__all__ = [
    "FORMULAS",
    "Formula",
    "Option",
    "alibi_slopes",
    "binary",
    "continuous_binary",
    "counting",
    "deberta_buckets",
    "first_negative",
    "fixed_formula",
    "frequencies",
    "from_reference",
    "log_spaced_offsets",
    "normalised_counting",
    "of_shape",
    "parse_formula",
    "rotary_bound",
    "rotary_frequencies",
    "rotary_kernel",
    "sincos2d",
    "sine_ladder",
    "sinusoidal",
    "t5_buckets",
    "translation_matrix",
    "wavelengths",
    "yarn_correction_range",
]
