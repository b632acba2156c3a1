"""Records as ``analysis.json`` has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from posprobe.analyses.facts import Cause
from posprobe.analyses.seams import SpecialRow
from posprobe.report.narrator import cause, together


def plain(record: Any) -> Any:
    """Turn a record, or what holds records, into types of JSON.

    A dataclass becomes a dictionary without its arrays, a cause its words, a tuple a list, and an
    enumeration or a number of NumPy its value.

    Examples
    --------
    >>> plain({"norm": np.float32(0.5), "why": (Cause("norm", (2.0, 0.4)),)})
    {'norm': 0.5, 'why': ['norm 2, usually 0.4']}
    """
    match record:
        case Cause():
            return cause(record)
        case SpecialRow():
            return {"row": record.row, "reason": together(record.causes)}
        case Enum():
            return record.value
        case np.generic():
            return record.item()
        case Mapping():
            return {
                name: plain(value)
                for name, value in record.items()
                if not isinstance(value, np.ndarray)
            }
        case list() | tuple():
            return [plain(value) for value in record]
    if is_dataclass(record):
        return plain({field.name: getattr(record, field.name) for field in fields(record)})
    return record
