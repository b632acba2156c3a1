"""An answer as ``analysis.json`` has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from posprobe.analyses.facts import Answer
from posprobe.report.narrator import sentence


def answer_block(answer: Answer) -> dict[str, Any]:
    """Return an answer with its sentence, what was tested and the facts."""
    test, change = answer.test, answer.change
    return {
        "question": answer.question,
        "answer": answer.answer,
        "reason": answer.reason,
        "sentence": sentence(answer),
        "value": answer.value,
        "null": test.null if test else None,
        "interval": list(test.interval) if test and test.interval else None,
        "p": answer.p,
        "least": test.least or None if test else None,
        "of": test.of or None if test else None,
        "draws": test.draws if test else 0,
        "facts": plain(answer.facts) or {},
        "keys": list(answer.keys),
        "change": plain(change),
    }


def plain(record: Any) -> Any:
    """Return a record as JSON has it: records as objects, tuples as lists; arrays are left out."""
    if is_dataclass(record):
        return {
            field.name: plain(value)
            for field in fields(record)
            if not isinstance(value := getattr(record, field.name), np.ndarray)
        }
    if isinstance(record, Mapping):
        return {str(key): plain(value) for key, value in record.items()}
    if isinstance(record, tuple | list):
        return [plain(value) for value in record]
    return record.item() if isinstance(record, np.generic) else record
