"""Published values of models' tables, and the recognition of these tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeAlias

from posprobe.analyses.descriptive.probes import N_PUBLISHED_ROWS
from posprobe.analyses.result import JsonType, as_block
from posprobe.data import read_data
from posprobe.number_types import PAIR_LIMITS, Count, Text
from posprobe.tables import PositionTable
from posprobe.text import lookup

#: Evidence that a table belongs to a model; see `find_published`.
Match: TypeAlias = Literal["bytes", "hub", "formula", "name"]


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published value of a model's table.

    Parameters
    ----------
    model, title
        Short and full name of the model.
    key
        Key path of posprobe's own value in ``analysis.json``, with dots.
    quantity
        Name of the quantity in words.
    value, unit
        Value in posprobe's unit (shares rather than percentages); the unit is None for a number
        without one.
    stated
        Value as printed in the source.
    tolerance
        Largest difference of a correct replication: the rounding of the source, or for a single
        unseeded run three standard deviations of ours over 100 seeds. None if it was not measured.
    rows
        First row and one past the last; None if they do not matter.
    takes
        ``"all"``: the table must be cut to these rows. ``"first"``: the analysis cuts it itself.
    stored
        Whether rows are counted as stored, including those that are not positions.
    citation, where, url
        Source, the section or table in it, and its address.
    evidence
        Quality of the value: first hand or not, and its limits.
    matched
        Evidence by which the table was recognised; None in `published_values`.
    differs
        Reason why posprobe's number is another quantity; empty if it is the same.
    """

    model: str
    title: str
    key: Annotated[str, "Where our value stands in the table's entry, as a dotted path."]
    quantity: str
    value: float
    unit: str | None = None
    stated: Annotated[str, "As printed in the source."]
    tolerance: float | None = None
    rows: Annotated[tuple[int, int] | None, JsonType(list[Count] | None), PAIR_LIMITS] = (
        None
    )
    takes: Literal["all", "first"]
    stored: bool = False
    citation: Text
    where: Text
    url: str
    evidence: Text
    matched: Annotated[Match | None, JsonType(Match)] = None
    differs: Annotated[str, "Why ours is not the same quantity, or empty."] = ""

    def compared(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a JSON object with the value and posprobe's own from an ``analysis.json``.

        ``ours`` is None if the document lacks the quantity.
        """
        path, _, key = self.key.rpartition(".")
        ours = lookup(document, self.key)
        if key.isdecimal():  # an index in a list
            ours = next(iter((lookup(document, path) or ())[int(key) :]), None)
        ours = ours if isinstance(ours, int | float) else None
        return as_block(PublishedBlock(**vars(self), ours=ours))


@dataclass(frozen=True, kw_only=True)
class PublishedBlock(Published):
    """A value from the literature and ours."""

    ours: Annotated[float | None, "Null where the quantity was not measured."]


@dataclass(frozen=True)
class _Model:
    """Features by which a model's table is recognised: its tensor, or a formula."""

    title: str
    hub: tuple[str, ...] = ()
    tensor: str = ""
    shape: tuple[int, int] = (0, 0)
    sha256: tuple[str, ...] = ()  # checksums of the tensor in single precision
    formula: str = ""  # pattern that matches all lengths of it


@cache
def _load_data() -> dict[str, Any]:
    return read_data("studies/published.toml")


@cache
def _models() -> dict[str, _Model]:
    return {name: _Model(**entry) for name, entry in _load_data()["models"].items()}


@cache
def published_values() -> tuple[Published, ...]:
    """Return every published value, as ``published_values.toml`` has them.

    Raises
    ------
    TypeError
        If an entry has a key that is not a field of `Published`, or lacks one without a default.
    """
    return tuple(_make_published(**entry) for entry in _load_data()["values"])


def _make_published(
    *, model: str, quantity: str, source: str, note: str = "", **entry: Any
) -> Published:
    field_values = (
        _load_data()["sources"][source] | _load_data()["quantities"][quantity] | entry
    )
    if note:
        field_values["evidence"] += f"; {note}"
    return Published(model=model, title=_models()[model].title, **field_values)


def find_published(table: PositionTable) -> tuple[Published, ...]:
    """Return the published values of the model that a table belongs to.

    A table is recognised in one of four ways: its stored bytes have a known SHA-256, whatever the
    name of the file; it came from the model's repository on the Hub, under one of its ids; it is a
    formula; or it came from a local folder with the model's name that holds a tensor of the model's
    name and shape. That is the weakest evidence, since a fine-tuned copy looks the same; if the
    model's bytes are known in that format and these differ, there is no match.

    Returns
    -------
    tuple
        Values with `Published.matched` and `Published.differs`; empty for any other table.
    """
    matches = {name: _match_model(model, table) for name, model in _models().items()}
    return tuple(
        replace(
            value,
            matched=matches[value.model],
            differs=_describe_difference(value, table),
        )
        for value in published_values()
        if matches[value.model]
    )


def _match_model(model: _Model, table: PositionTable) -> Match | None:
    source = table.source
    if table.family == "formula" or not model.hub:
        follows = model.formula and re.fullmatch(model.formula, source.resolved)
        return "formula" if follows and table.family == "formula" else None
    if source.sha256 in model.sha256:
        return "bytes"
    if not (source.tensor or "").endswith(model.tensor) or source.shape != model.shape:
        return None
    if source.revision is not None:  # only tables from the Hub have a commit
        return "hub" if source.resolved in model.hub else None
    has_checksum = model.sha256 and source.dtype == "F32" and source.sha256 is not None
    has_hub_name = PurePath(source.resolved).name in {
        hub.rpartition("/")[2] for hub in model.hub
    }
    return "name" if has_hub_name and not has_checksum else None


def _describe_difference(value: Published, table: PositionTable) -> str:
    if value.rows is None:
        return ""
    if value.stored and table.dropped:
        return (
            f"published with all stored rows, of which {len(table.dropped)} "
            "are not positions and are left out here"
        )
    first_row, stop = table.rows
    if value.takes == "first":
        stop = min(stop, first_row + N_PUBLISHED_ROWS)
    if (first_row, stop) == value.rows:
        return ""
    first, last = value.rows[0], value.rows[1] - 1
    return f"published for rows {first} to {last}, here {first_row} to {stop - 1}"
