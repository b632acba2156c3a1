"""Quantiles far out in the tail: of Student's t and of chi squared.

SciPy has them, but importing its special functions takes longer than most analyses here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

#: Steps of Newton's method, and terms of a continued fraction, after which rounding is left.
STEPS, TERMS = 100, 10_000
#: Where both end.
PRECISION = 1e-15
_TINY = 1e-300


def student_quantile(degrees: float, tail: float) -> float:
    """Return what Student's t exceeds with a probability below a quarter.

    Parameters
    ----------
    degrees
        Of freedom; above 0, and not necessarily whole.
    tail
        The probability.
    """
    a, b = degrees / 2, 0.5
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)

    def far(log_t: float) -> tuple[float, float]:
        # Half the incomplete beta function of this, DLMF 8.17.22; its complement is square / (...).
        square = math.exp(2 * log_t)
        x, rest = degrees / (degrees + square), square / (degrees + square)
        front = scale + a * math.log(x) + b * math.log(rest)
        logarithm = front - math.log(2 * a) + math.log(_fraction(_beta_terms(a, b, x)))
        return logarithm, -math.exp(front - logarithm)

    return math.exp(_newton(far, math.log(tail), 0.0))


def chi_squared_quantile(degrees: float, tail: float) -> float:
    """Return what chi squared exceeds with a probability below a tenth.

    Parameters
    ----------
    degrees
        Of freedom; above 0, and not necessarily whole.
    tail
        The probability.
    """
    a = degrees / 2

    def far(x: float) -> tuple[float, float]:
        # The incomplete gamma function, DLMF 8.9.2.
        density = (a - 1) * math.log(x) - x - math.lgamma(a)
        logarithm = density + math.log(x * _fraction(_gamma_terms(a, x)) / (x + 1 - a))
        return logarithm, -math.exp(density - logarithm)

    return 2 * _newton(far, math.log(tail), a + 1)


def _newton(far: Callable[[float], tuple[float, float]], wanted: float, start: float) -> float:
    """Solve for the argument; the logarithm of the tail is concave, so that no step goes astray."""
    at = start
    for _ in range(STEPS):
        value, slope = far(at)
        step = (wanted - value) / slope
        at += step
        if abs(step) <= PRECISION * max(abs(at), 1.0):
            break
    return at


def _fraction(terms: Iterator[float]) -> float:
    """Return ``1 / (1 + c1 / (1 + c2 / (1 + ...)))`` (Lentz 1976)."""
    value, above, below = 1.0, 1.0, 0.0
    for _ in range(TERMS):
        term = next(terms)
        below = 1 / (1 + term * below or _TINY)
        above = 1 + term / above or _TINY
        value *= above * below
        if abs(above * below - 1) < PRECISION:
            break
    return 1 / value


def _beta_terms(a: float, b: float, x: float) -> Iterator[float]:
    m = 0
    while True:
        yield -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        m += 1
        yield m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))


def _gamma_terms(a: float, x: float) -> Iterator[float]:
    """Of ``x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (...))``, each divided by its first."""
    m = 1
    while True:
        yield -m * (m - a) / ((x + 2 * m - 1 - a) * (x + 2 * m + 1 - a))
        m += 1
