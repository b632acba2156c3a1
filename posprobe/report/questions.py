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
#: Questions of a run of a model.
MODEL_QUESTIONS: Mapping[str, str] = {
    "kept": "Do positions still show in the last hidden states?",
    "order": "Does the order of its input matter to the model?",
    "order_without": "Does it know order without its position table?",
    "absolute": "Does it matter where a text begins, not distances alone?",
    "apart": "Are position directions kept apart from those of tokens?",
    "heads": "Do positions alone make heads look mainly at one offset?",
    "first": "Does most attention of some layer go to the first position?",
    "blank": "Do positions alone tell patches apart at the end?",
    "needed": "Does the model lose something when its positions are taken away?",
    "few": "Do ten directions of the table, or fewer, do its work?",
    "random": "Does a random table do its work?",
}
#: Why a question has no answer on a grid.
ON_A_LINE = (
    "Cannot be told: this is asked of positions on a line, and these are patches on a grid; for "
    "their rows and columns see whether the row and column codes contain rotations."
)
