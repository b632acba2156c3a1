"""Principal components."""

from __future__ import annotations

from collections.abc import Mapping

from posprobe import analyses
from posprobe.analyses import PCA
from posprobe.layouts import Grid
from posprobe.measurements.base import (
    Drawing,
    Measurement,
    TableInputs,
    sentence,
    undefined,
)
from posprobe.text import Block, show

#: Components that a figure draws against position.
DRAWN = 6


def _leading(block: Block) -> tuple[str, ...]:
    """Say how many components there are where they are not all."""
    ratios = block["explained_variance_ratio"]
    if block.get("method", "exact") == "exact" or ratios is None:
        return ()
    return (
        (
            f"Of so large a table the {len(ratios)} leading components are computed, by a "
            "randomised singular value decomposition (Halko, Martinsson & Tropp 2011). Their "
            "shares are of the whole variance."
        ),
    )


def _needed(result: PCA, share: float) -> str:
    count = result.components_for(share)
    beyond = "undefined" if result.undefined else f"more than {len(result.singular_values)}"
    return beyond if count is None else str(count)


def _variance_caption(results: Mapping[str, PCA]) -> str:
    text = (
        "Share of the variance by principal component and its running sum"
        if len(results) == 1
        else "Running sum of the share of variance over principal components"
    )
    numbers = "; ".join(
        f"{name} stable rank {show(result.stable_rank)}, {_needed(result, 0.90)} "
        f"components for 90 % and {_needed(result, 0.99)} for 99 %"
        for name, result in results.items()
    )
    return f"{text}, columns centred: {numbers}."


def _components_caption(results: Mapping[str, PCA]) -> str:
    (result,) = results.values()
    where = "maps of the grid" if isinstance(result.layout, Grid) else "functions of position"
    drawn = min(DRAWN, result.count)
    top = float(result.explained_variance_ratio[:drawn].sum())
    return (
        f"The first {drawn} principal components of the position embeddings (columns centred; "
        f"together {top:.1%} of the variance) as {where}; titles give each one's share. The "
        "components of a random walk are sinusoids, too."
    )


def _trajectory_caption(results: Mapping[str, PCA]) -> str:
    (result,) = results.values()
    drawn = min(3, result.count)
    top = float(result.explained_variance_ratio[:drawn].sum())
    text = f"Path of the positions through their first {drawn} principal components"
    if isinstance(result.layout, Grid):
        text = f"The patches in their first {drawn} principal components, one path per row"
    return (
        f"{text} (columns centred; {top:.1%} of the variance). White and black dots mark the "
        "first and the last. The plane is drawn to scale, the three axes are not."
    )


def _no_path(result: PCA) -> str:
    short = result.count < 2
    return result.undefined or ("a path needs two components, and there is one" if short else "")


PRINCIPAL = Measurement[TableInputs, PCA](
    name="pca",
    compute=lambda given: analyses.pca(given.positions),
    record=PCA,
    drawings=(
        Drawing(
            "variance",
            sentence(
                "Explained variance: {} components hold 90 % and {} hold 99 %.",
                "components_90", "components_99",
            ),
            _variance_caption,
            lacks=undefined,
            several=True,
            band="variance",
        ),
        Drawing(
            "components",
            sentence("Scores of the first components; three hold {} of the variance.", "top3"),
            _components_caption,
            lacks=undefined,
            columns=True,
        ),
        Drawing(
            "trajectory",
            sentence("Path through the first components; three hold {} of the variance.", "top3"),
            _trajectory_caption,
            lacks=_no_path,
        ),
    ),
    facts=_leading,
)  # fmt: skip
