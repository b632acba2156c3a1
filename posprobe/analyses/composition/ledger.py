"""Sums of squares of a table by part, and the shares that they add up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, cast, get_args

import numpy as np

from posprobe.analyses.composition.planes import MAX_PERIOD_RATIO, Rotation, RotationFit

PartName: TypeAlias = Literal[
    "rows",
    "columns",
    "rotation",
    "sway",
    "preferred",
    "line",
    "smooth",
    "slow",
    "walk",
    "rough",
    "alternating",
    "special",
    "breaks",
    "noise",
    "untrained",
    "other",
    "mean",
]
#: Terms in the order of a bar, where waves of equal kind are sorted with the fastest first.
BUDGET_TERMS: tuple[PartName, ...] = get_args(PartName)


@dataclass(frozen=True)
class Share:
    """A part of a table and its share of the sum of squares.

    Parameters
    ----------
    part
        Name of the part.
    share
        Share of the sum of squares of all numbers of the table.
    period
        Period of a wave, in positions; None of other parts, and of the rotations of a formula,
        which are one part.
    error
        Half the width of an interval that held 95 % of planted shares or more, given that the table
        has this part; None where no such interval is known, or the model does not explain it.
    ranges
        Smallest and largest share of each family of slow changes that cannot be told apart; None
        for other parts.
    """

    part: PartName
    share: float
    period: float | None = None
    error: float | None = None
    ranges: Mapping[str, tuple[float, float]] | None = None

    def scale(self, factor: float) -> Share:
        """Return the part with its shares, without error, times a factor."""
        ranges = self.ranges and {
            name: (low * factor, high * factor)
            for name, (low, high) in self.ranges.items()
        }
        return replace(self, share=self.share * factor, ranges=ranges)


def stretch_parts(fit: RotationFit) -> tuple[Share, ...]:
    """Return the parts of a stretch as shares of its variance, in the order of `BUDGET_TERMS`."""
    ledger = Ledger(1.0)
    ledger.add_model(1.0, fit, fit)
    return ledger.parts()


@dataclass(frozen=True, eq=False)
class Ledger:
    """Sums of squares by term and period, and squared errors of the shares by term.

    Parameters
    ----------
    total
        Sum of squares of the table.
    amounts
        Sum of squares of each term, by its name and period.
    squared_errors
        Squares of the errors of the shares, by term.
    slow_ranges
        Smallest and largest share of the families of slow changes.
    """

    total: float
    amounts: dict[tuple[PartName, float | None], float] = field(default_factory=dict)
    squared_errors: dict[str, float] = field(default_factory=dict)
    slow_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, part: PartName, amount: float, period: float | None = None) -> None:
        """Add a sum of squares to a term."""
        if amount > 0:
            self.amounts[part, period] = self.amounts.get((part, period), 0.0) + amount

    def add_shares(self, amount: float, shares: Mapping[str, float]) -> None:
        """Share out a sum of squares among families."""
        for name, share in shares.items():
            self.add(cast(PartName, name), share * amount)

    def add_model(self, amount: float, fit: RotationFit, main_fit: RotationFit) -> None:
        """Share out what one stretch varies by, with the errors of its shares.

        Its rotations count with those of like period in the main fit.
        """
        if fit.model is None:
            self.add("other", amount)
        else:
            if fit.formula is not None:
                self.add("rotation", fit.formula.share * amount)
            for rotation in fit.rotations if fit.formula is None else ():
                period = _nearest_period(rotation, main_fit)
                name: PartName = "rotation" if rotation.is_circular else "sway"
                self.add(name, rotation.share * amount, period)
            for hump in fit.humps:
                self.add("preferred", hump.share * amount, hump.period)
            self.add_shares(amount, fit.families)
        for term, error in _share_errors(fit).items():
            squared_error = (error * amount / self.total) ** 2
            self.squared_errors[term] = self.squared_errors.get(term, 0.0) + squared_error
        for family, (low, high) in fit.slow_ranges.items():
            total_low, total_high = self.slow_ranges.get(family, (0.0, 0.0))
            share = amount / self.total
            self.slow_ranges[family] = total_low + low * share, total_high + high * share

    def parts(self) -> tuple[Share, ...]:
        """Return every part with its share, in the order of `BUDGET_TERMS`."""
        errors = {
            term: float(np.sqrt(square)) for term, square in self.squared_errors.items()
        }
        terms = [
            Share(
                name,
                amount / self.total,
                period,
                errors.get(name),
                dict(self.slow_ranges) if name == "slow" else None,
            )
            for (name, period), amount in self.amounts.items()
        ]
        terms.sort(key=lambda term: (BUDGET_TERMS.index(term.part), term.period or 0.0))
        return tuple(terms)


def _nearest_period(rotation: Rotation, main_fit: RotationFit) -> float:
    """Return the period of the main fit that is nearest to a rotation's, or its own."""
    ratios = {line.period: line.period / rotation.period for line in main_fit.rotations}
    similar = [
        period
        for period, ratio in ratios.items()
        if 1 / MAX_PERIOD_RATIO < ratio < MAX_PERIOD_RATIO
    ]
    return min(
        similar, key=lambda period: abs(np.log(ratios[period])), default=rotation.period
    )


def _share_errors(fit: RotationFit) -> Mapping[str, float]:
    """Return the errors of shares, where planted tables show that they cover the truth.

    There are none beside circles of changing pace, nor for a fit that does not explain the table.
    """
    misfit = fit.misfit
    if misfit is None or not misfit.is_explained:
        return {}
    if any(rotation.pace != "fixed" for rotation in fit.rotations):
        return {}
    return {
        name: error
        for name, error in misfit.errors.items()
        if name not in fit.slow_ranges
    }
