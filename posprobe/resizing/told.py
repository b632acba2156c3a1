"""The blocks of the documents: what is known, and that in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from posprobe.report.narrator import resizing as narrator
from posprobe.resizing.facts import Rule, Run, Way
from posprobe.schema import Text


@dataclass(frozen=True)
class ToldWay(Way):
    """One way of resizing, what it does to the table, and that in words."""

    @property
    def sentences(self) -> Annotated[tuple[Text, ...], ""]:
        """What it keeps, and what it changes."""
        return narrator.way(self)


@dataclass(frozen=True)
class ToldRule(Rule):
    """One rule of scaling, at the new length, and that in words."""

    @property
    def sentence(self) -> Text:
        """What it slows down, and what it leaves to new angles."""
        return narrator.rule(self)


@dataclass(frozen=True, eq=False)
class ToldRun(Run):
    """The model run with each table, or by each rule, and that in words."""

    @property
    def sentence(self) -> Text:
        """Which way or rule costs least."""
        return narrator.costs(self)
