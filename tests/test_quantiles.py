"""Quantiles against SciPy's."""

import pytest
from scipy.special import chdtri, stdtrit

from posprobe.analyses.quantiles import chi_squared_quantile, student_quantile


@pytest.mark.parametrize("degrees", [0.37, 1.0, 2.96, 7.4, 30.0, 400.0, 5000.0])
@pytest.mark.parametrize("tail", [0.2, 1e-3, 1e-6, 2e-8])
def test_student_is_exceeded_as_often_as_scipy_says(degrees: float, tail: float) -> None:
    assert student_quantile(degrees, tail) == pytest.approx(-stdtrit(degrees, tail), rel=1e-11)


@pytest.mark.parametrize("degrees", [0.5, 1.0, 2.0, 7.3, 100.0, 1536.0, 1e5])
@pytest.mark.parametrize("tail", [0.1, 1e-3, 1e-6, 2e-8])
def test_chi_squared_is_exceeded_as_often_as_scipy_says(degrees: float, tail: float) -> None:
    assert chi_squared_quantile(degrees, tail) == pytest.approx(chdtri(degrees, tail), rel=1e-12)
