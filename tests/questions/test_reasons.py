"""Every reason of a question about a line is reached by a planted table, and has its words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import test_absolute_position
import test_ask_closed_form
import test_ask_ladder
import test_ask_rotations
import test_ask_winding
import test_low_dimensional
import test_smooth

from posprobe.analyses.tables.cached import View, view
from posprobe.questions.base import SHARED
from posprobe.report.narrator import sentence

if TYPE_CHECKING:
    from types import ModuleType

#: Modules that test one question each, with a table for each reason.
MODULES = (
    test_absolute_position, test_ask_closed_form, test_ask_ladder, test_ask_rotations,
    test_ask_winding, test_low_dimensional, test_smooth,
)  # fmt: skip


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        pytest.param(module, reason, id=f"{module.QUESTION.name}-{reason}")
        for module in MODULES
        for reason in module.TABLES
    ],
)
def test_each_planted_table_has_its_reason(module: ModuleType, reason: str) -> None:
    table = module.TABLES[reason]
    seen = table if isinstance(table, View) else view(np.asarray(table, dtype=np.float64))
    answer = module.QUESTION.ask(seen)
    assert answer.reason == reason
    expected = "yes" if reason in module.YES else "no" if reason in module.NO else "cannot tell"
    assert answer.answer == expected
    assert sentence(answer).endswith(".")


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.QUESTION.name)
def test_every_reason_is_reached_or_comes_from_a_correction(module: ModuleType) -> None:
    found = {*module.TABLES} | module.CORRECTED
    assert found - set(SHARED) == set(module.QUESTION.reasons) - set(SHARED)
