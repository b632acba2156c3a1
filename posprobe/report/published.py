"""Values that others have published, to stand beside ours with their source.

All of them are in ``published.json``; this module says which belong to the table at hand. A number
is a model's only where the table is known to be the model's, in one of four ways:

* its stored bytes have a known SHA-256, whatever the file is called;
* it came from the model's repository on the Hub, under one of its ids;
* it is a formula;
* it came from a local folder with the model's name that holds a tensor of the model's name and
  shape. That is the weakest sign, since a fine-tuned copy looks the same, and `Published.matched`
  says so. Where the model's bytes are known in that format and these differ, there is no match.

Nor is a number of other rows the same number: `Published.differs` says where rows differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

from posprobe.analyses.probes_published import PUBLISHED_ROWS
from posprobe.table import PositionTable

Match: TypeAlias = Literal["bytes", "hub", "formula", "name"]


@dataclass(frozen=True)
class Published:
    """One published value.

    Parameters
    ----------
    model, title
        The model's short and full name.
    key
        Where posprobe's own value stands in ``analysis.json``, as a dotted path.
    quantity
        What it is, in words.
    value, unit
        In posprobe's unit: shares rather than percentages; None for a bare number.
    stated
        As printed in the source.
    tolerance
        By how much a sound repetition may differ: what rounding hides, or for a single unseeded run
        three standard deviations of ours over 100 seeds. None where we have not measured it.
    rows
        First row and one past the last; None where they do not matter.
    takes
        ``"all"``: the table must be cut to these rows. ``"first"``: the analysis cuts it itself.
    stored
        Whether rows count as stored, those that are no positions included.
    citation, where, url
        The source, and where in it.
    evidence
        How the value was read: first hand or not, and what limits it.
    matched
        How the table at hand was recognised; None in `published`.
    differs
        Why ours is not the same quantity, or empty.
    """

    model: str
    title: str
    key: str
    quantity: str
    value: float
    unit: str | None
    stated: str
    tolerance: float | None
    rows: tuple[int, int] | None
    takes: Literal["all", "first"]
    stored: bool
    citation: str
    where: str
    url: str
    evidence: str
    matched: Match | None = None
    differs: str = ""

    def beside(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value with posprobe's own from an ``analysis.json``, ready for JSON.

        ``ours`` is None where the document does not hold the quantity.
        """
        ours = _lookup(document, self.key)
        return asdict(self) | {
            "rows": list(self.rows) if self.rows else None,
            "ours": ours if isinstance(ours, int | float) else None,
        }


@cache
def published() -> tuple[Published, ...]:
    """Return every published value, in the order of the file."""
    data = _data()
    found = []
    for entry in data["values"]:
        source, rows = data["sources"][entry["source"]], entry["rows"]
        evidence = "; ".join(part for part in (source["evidence"], entry["note"]) if part)
        found.append(
            Published(
                model=entry["model"],
                title=data["models"][entry["model"]]["title"],
                key=entry["key"],
                quantity=entry["quantity"],
                value=entry["value"],
                unit=entry["unit"],
                stated=entry["stated"],
                tolerance=entry["tolerance"],
                rows=(rows[0], rows[1]) if rows else None,
                takes=entry["takes"],
                stored=entry["stored"],
                citation=source["citation"],
                where=entry["where"],
                url=source["url"],
                evidence=evidence,
            )
        )
    return tuple(found)


def published_for(analysed: PositionTable | Mapping[str, Any]) -> tuple[Published, ...]:
    """Return the published values of the model that a table belongs to.

    Parameters
    ----------
    analysed
        A table, or the content of an ``analysis.json``.

    Returns
    -------
    tuple
        With `Published.matched` and `Published.differs` filled in; empty for any other table.
    """
    facts = _facts(analysed)
    matches = {name: _match(model, facts) for name, model in _data()["models"].items()}
    document = analysed if isinstance(analysed, Mapping) else {}
    return tuple(
        replace(value, matched=matches[value.model], differs=_differs(value, facts, document))
        for value in published()
        if matches[value.model]
    )


@cache
def _data() -> dict[str, Any]:
    text = files("posprobe.report").joinpath("published.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


@dataclass(frozen=True)
class _Facts:
    resolved: str
    local: bool
    formula: bool
    tensor: str
    shape: tuple[int, ...]
    dtype: str | None
    sha256: str | None
    rows: tuple[int, int]
    left_out: int


def _facts(analysed: PositionTable | Mapping[str, Any]) -> _Facts:
    if isinstance(analysed, PositionTable):
        family, rows, left_out = analysed.family, analysed.rows, len(analysed.dropped)
        source = vars(analysed.source)
    else:
        block = analysed["table"]
        family, source = block["family"], block["source"]
        rows, left_out = (block["rows"][0], block["rows"][1]), len(block["dropped_rows"])
    formula = family == "formula"
    return _Facts(
        resolved=source["resolved"],
        # Only what was read from the Hub has a commit.
        local=not formula and source["revision"] is None,
        formula=formula,
        tensor=source["tensor"] or "",
        shape=tuple(source["shape"] or ()),
        dtype=source["dtype"],
        sha256=source["sha256"],
        rows=rows,
        left_out=left_out,
    )


def _match(model: Mapping[str, Any], facts: _Facts) -> Match | None:
    if "formula" in model:
        named = re.fullmatch(rf"{model['formula']}:(\d+)x(\d+)", facts.resolved)
        fits = facts.formula and named and int(named[2]) == model["width"]
        return "formula" if fits else None
    if "hub" not in model or facts.formula:
        return None
    if facts.sha256 in model["sha256"]:
        return "bytes"
    same_tensor = facts.tensor.endswith(model["tensor"]) and facts.shape == tuple(model["shape"])
    if not same_tensor:
        return None
    if not facts.local:
        return "hub" if facts.resolved in model["hub"] else None
    known = model["sha256"] and facts.dtype == "F32" and facts.sha256 is not None
    name = PurePath(facts.resolved).name
    called = name in {hub.rpartition("/")[2] for hub in model["hub"]}
    return "name" if called and not known else None


def _differs(value: Published, facts: _Facts, document: Mapping[str, Any]) -> str:
    if value.rows is None:
        return ""
    if value.stored and facts.left_out:
        return (
            f"published with all stored rows, of which {facts.left_out} are no positions "
            "and are left out here"
        )
    first, stop = facts.rows
    if value.takes == "first":
        taken = _lookup(document, f"{value.key.rpartition('.')[0]}.rows")
        stop = first + (taken or min(stop - first, PUBLISHED_ROWS))
    if (first, stop) == value.rows:
        return ""
    return f"published for rows {value.rows[0]} to {value.rows[1] - 1}, here {first} to {stop - 1}"


def _lookup(document: Mapping[str, Any], key: str) -> Any:
    found: Any = document
    for part in key.split("."):
        if isinstance(found, Mapping):
            found = found.get(part)
        elif isinstance(found, list) and part.isdigit() and int(part) < len(found):
            found = found[int(part)]
        else:
            return None
    return found
