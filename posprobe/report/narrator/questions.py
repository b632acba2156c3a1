"""Every question in at most five words, by its name, in the order of a page."""

from __future__ import annotations

from collections.abc import Mapping

ASKS: Mapping[str, str] = {
    # Of a table.
    "rows_and_columns": "Row code + column code?",
    "axis_rotations": "Are both codes circles?",
    "order": "Order matters?",
    "rotations": "Rotations?",
    "ladder": "Geometric series?",
    "smooth": "Smooth?",
    "winding": "Traces a circle?",
    "low_dimensional": "Few dimensions?",
    "seams": "Breaks?",
    "special_rows": "Outlier rows?",
    "absolute_position": "Absolute position matters?",
    "closed_form": "Known formula?",
    # Of encodings without a table.
    "rotary_turns": "Every pair turns once?",
    "rotary_positive": "RoPE score stays positive?",
    "rotary_stretched": "Stretched for longer contexts?",
    "alibi_near": "Near positions favoured?",
    "alibi_reach": "Far end keeps half?",
    "bias_smooth": "Neighbouring biases similar?",
    "bias_near": "Near positions favoured?",
    "bias_sides": "One side preferred?",
    "bias_limit": "Far biases all equal?",
    "cosine_smooth": "Neighbouring vectors similar?",
    "cosine_near": "Near vectors most similar?",
    "cosine_limit": "Far vectors all equal?",
    # Of kernels side by side.
    "kernel_falls": "Nearer always counts more?",
    "kernel_offset": "Offset alone decides?",
    "kernel_sides": "Before and after equal?",
    # Of a run of a model.
    "kept": "Position in last states?",
    "order_without": "Order without positions?",
    "absolute": "Absolute position matters?",
    "apart": "Positions apart from tokens?",
    "distance": "Heads prefer a distance?",
    "heads": "Heads fixed on one offset?",
    "first": "Most attention to first?",
    "blank": "Patches differ when grey?",
    "needed": "Positions needed?",
    "few": "Ten components enough?",
    "random": "Random table enough?",
}
