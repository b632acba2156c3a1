"""The questions that are asked, as a reader would ask them."""

from __future__ import annotations

from collections.abc import Mapping

#: Questions of a table, in the order of the page, as a reader would ask it.
QUESTIONS: Mapping[str, str] = {
    "closed_form": "Is it a known formula?",
    "special_rows": "Are single positions unlike their neighbours?",
    "seams": "Does it break into parts?",
    "order": "Does the order of positions matter?",
    "rows_and_columns": "Is it a row code plus a column code?",
    "axis_rotations": "Do the row and column codes contain rotations?",
    "smooth": "Is it a smooth curve?",
    "stationary": "Does distance alone decide how alike positions are?",
    "low_dimensional": "Does it use unusually few directions?",
    "rotations": "Does it contain rotations of fixed period?",
    "winding": "Do two components wind around a centre?",
    "ladder": "Do its frequencies form a geometric series?",
}
#: Questions of encodings without a table.
SCHEME_QUESTIONS: Mapping[str, str] = {
    "rotary_turns": "Does every pair complete a turn within the context?",
    "rotary_positive": "Does the mean rotation stay positive over the context?",
    "rotary_stretched": "Were the wavelengths changed for a longer context?",
    "alibi_near": "Do heads favour near positions?",
    "alibi_reach": "Does any head pay the far end of the context half of the near one?",
    "bias_smooth": "Are biases of neighbouring distances alike?",
    "bias_near": "Do most heads favour near positions?",
    "bias_sides": "Do heads prefer one side of the query?",
    "bias_limit": "Do far distances share one bias?",
    "cosine_smooth": "Are vectors of neighbouring distances alike?",
    "cosine_near": "Are vectors of near distances most like that of distance 0?",
    "cosine_limit": "Do far distances share one vector?",
}
#: Questions of encodings of any scheme, side by side.
KERNEL_QUESTIONS: Mapping[str, str] = {
    "kernel_falls": "Do nearer positions always count for more?",
    "kernel_offset": "Does the offset alone decide what two positions are to each other?",
    "kernel_sides": "Do positions before and after count alike?",
}
#: Why a question has no answer on a grid.
ON_A_LINE = (
    "Cannot be told: this is asked of positions on a line, and these are patches on a grid; for "
    "their rows and columns see whether the row and column codes contain rotations."
)
