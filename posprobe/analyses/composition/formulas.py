"""What a table is made of that follows a formula: its frequencies say it, and no fit does.

Most rotations of a sinusoid are too close in period to stand out of each other, so that the
additive model takes them for smooth and rough curves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from posprobe.analyses.composition.planes import (
    FormulaRotations,
    RotationFit,
    find_rotations,
)
from posprobe.analyses.composition.wave_scores import MIN_LINE_TURNS
from posprobe.analyses.descriptive.closeness import prepare_cloud
from posprobe.analyses.descriptive.sinusoid import BaseFit, fit_base
from posprobe.analyses.linear import scaled_points
from posprobe.arrays import Floats
from posprobe.encodings.recognise import Formula, find_formula
from posprobe.encodings.tables import frequencies
from posprobe.layouts import Sequence

#: Smallest CKA with a formula at which a table follows it, up to a rotation.
MIN_FORMULA_CKA = 0.99


def fit_sequence(values: Floats, seed: int) -> RotationFit:
    """Fit the additive model to rows ``[n, d]``, or take the formula that they follow."""
    points = scaled_points(values)
    n, dim = points.shape
    return apply_formula(
        find_rotations(points, seed),
        find_formula(values, Sequence(n), "F32"),
        fit_base(prepare_cloud(points), dim // 2 * 2) if n >= 4 and dim >= 2 else None,
        points.shape,
    )


def apply_formula(
    fit: RotationFit,
    formula: Formula | None,
    base_fit: BaseFit | None,
    shape: tuple[int, int],
) -> RotationFit:
    """Return a fit with the shares of the formula that the rows follow, if they do.

    Parameters
    ----------
    fit
        Fit of the rows.
    formula
        Formula whose columns they have.
    base_fit
        Sinusoid that they follow up to a rotation, maybe.
    shape
        Number of rows and of columns.
    """
    n_rows, dim = shape
    if formula is not None:
        omega = formula.frequencies
        return fit if omega is None else _compose(fit, omega, n_rows, noise_share=0.0)
    if base_fit is None or base_fit.best is None or base_fit.base is None:
        return fit
    if base_fit.best < MIN_FORMULA_CKA:
        return fit
    omega = frequencies(dim // 2 * 2, base=base_fit.base)
    return _compose(fit, omega, n_rows, noise_share=fit.families.get("noise", 0.0))


def _compose(
    fit: RotationFit, omega: Floats, n_rows: int, *, noise_share: float
) -> RotationFit:
    """Share out what is not noise among the frequencies of a formula, radians per position.

    Each is a cosine and a sine, which vary by ``n`` minus the squared size of their sum over ``n``.
    Those that make too few turns to be told from a curve are the smooth part.
    """
    phases = np.exp(1j * omega[:, None] * np.arange(n_rows))
    amounts = n_rows * (1 - np.square(np.abs(phases.mean(axis=1))))
    is_rotation = omega * n_rows >= 2 * np.pi * MIN_LINE_TURNS
    rotation_share = float(amounts[is_rotation].sum() / amounts.sum())
    if not is_rotation.any():
        return fit
    periods = 2 * np.pi / omega[is_rotation]
    families = {
        "smooth": (1 - noise_share) * (1 - rotation_share),
        "noise": noise_share,
    }
    rotations = FormulaRotations(
        len(periods),
        float(periods.min()),
        float(periods.max()),
        (1 - noise_share) * rotation_share,
    )
    return replace(
        fit,
        humps=(),
        families={name: share for name, share in families.items() if share > 0},
        slow_ranges={},
        misfit=None,
        formula=rotations,
    )
