"""Every analysis of one table, with what is needed to repeat it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe import analyses
from posprobe.analyses import PCA, Norms, Patches, Result, Similarity, Spectrum
from posprobe.arrays import Device, positions
from posprobe.errors import InvalidTable, UsageError
from posprobe.table import Grid, PositionTable, describe_layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = "posprobe.analysis/1"
#: The analyses in the order of the report.
NAMES = ("norms", "similarity", "pca", "spectrum", "grid")


@dataclass(frozen=True, eq=False)
class Analysis:
    """A table and the results of its analyses.

    Parameters
    ----------
    table
        The table that was analysed.
    results
        Frozen results by name; ``grid`` is there for patches only.
    environment
        Versions, device, seed, command and time.
    """

    table: PositionTable
    results: Mapping[str, Result]
    environment: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``analysis.json`` (schema `posprobe.analysis/1`)."""
        return {
            "schema": SCHEMA,
            "table": describe(self.table),
            "environment": dict(self.environment),
            **{
                name: _positions(result.summary(), self.table)
                for name, result in self.results.items()
            },
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``."""
        arrays: dict[str, NDArray[Any]] = {"values": self.table.values}
        for result in self.results.values():
            match result:
                case Norms():
                    arrays["norms"] = result.norms
                case Similarity():
                    arrays["similarity"] = result.raw.matrix
                    arrays["similarity_centered"] = result.centered.matrix
                    arrays["offset_profile"] = result.raw.offset_mean
                    arrays["offset_profile_centered"] = result.centered.offset_mean
                case PCA():
                    arrays["pca_scores"] = result.scores
                    arrays["pca_components"] = result.components
                    arrays["pca_explained_variance_ratio"] = result.explained_variance_ratio
                case Spectrum():
                    arrays["spectrum_frequency"] = result.frequency
                    arrays["spectrum_power"] = result.power
                    arrays["spectrum_power_by_dim"] = result.power_by_dim
                case Patches():
                    arrays["grid_power"] = result.power
        return arrays

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure of the bundle."""
        from posprobe.figures import bundle_figures

        return bundle_figures(self.table, self.results)

    def save(self, folder: str | Path) -> Path:
        """Write the bundle: data, figures and report. Return its folder.

        Raises
        ------
        OutputError
            If the folder cannot be written, or holds something else.
        """
        from posprobe.report.bundle import write_bundle

        return write_bundle(self, Path(folder))

    def _repr_html_(self) -> str:
        parts = "".join(result._repr_html_() for result in self.results.values())
        return f"<h3>{escape(self.table.name)}</h3>{self.table._repr_html_()}{parts}"


def analyze(
    table: PositionTable,
    *,
    only: Iterable[str] | None = None,
    device: Device = "auto",
    seed: int = 0,
    command: str | None = None,
) -> Analysis:
    """Run the analyses on a table.

    Parameters
    ----------
    table
        ``[n, d]``, at least two rows.
    only
        Names out of `NAMES`; all that apply where None.
    device
        Where to compute; ``"auto"`` takes a GPU only for tables large enough to gain.
    seed
        Recorded, and used by whatever draws random numbers.
    command
        The command line, for the record.

    Raises
    ------
    InvalidTable
        If the table has a single row.
    UsageError
        If a name is unknown, an analysis does not apply, or the device is not there.
    """
    names = _chosen(table, only)
    if len(table) < 2:
        raise InvalidTable(
            f"{table.name}: a table of one position has nothing to compare. Keep at least two rows."
        )
    given = positions(table, device)
    results: dict[str, Result] = {}
    steps: dict[str, Callable[[], Result]] = {
        "norms": partial(analyses.norms, given),
        "similarity": partial(analyses.similarity, given),
        "pca": partial(analyses.pca, given),
        "spectrum": partial(analyses.spectrum, given),
        "grid": lambda: analyses.grid(given, cosines=_as_similarity(results.get("similarity"))),
    }
    for name in names:
        results[name] = steps[name]()
    return Analysis(table, results, environment(given.device, seed, command))


def _as_similarity(result: Result | None) -> Similarity | None:
    return result if isinstance(result, Similarity) else None


def _chosen(table: PositionTable, only: Iterable[str] | None) -> tuple[str, ...]:
    on_grid = isinstance(table.layout, Grid)
    applicable = tuple(name for name in NAMES if name != "grid" or on_grid)
    if only is None:
        return applicable
    wanted = list(only)
    for name in wanted:
        if name not in NAMES:
            raise UsageError(f"no analysis is called {name!r}. There are {', '.join(NAMES)}.")
        if name not in applicable:
            raise UsageError(
                f"{table.name}: {name} needs positions on a grid; this is a {table.layout}."
            )
    if not wanted:
        raise UsageError(f"no analysis is chosen. There are {', '.join(applicable)}.")
    return tuple(name for name in applicable if name in wanted)


def describe(table: PositionTable) -> dict[str, Any]:
    """Return the ``table`` block of ``analysis.json``."""
    source = table.source
    return {
        "name": table.name,
        "kind": table.kind,
        "family": table.family,
        "positions": len(table),
        "dim": table.dim,
        "rows": list(table.rows),
        "layout": describe_layout(table.layout),
        "prefix_rows": [asdict(row) for row in table.prefix_rows],
        "dropped_rows": [asdict(row) for row in table.dropped],
        "notes": list(table.notes),
        "source": asdict(source) | {"shape": list(source.shape) if source.shape else None},
    }


def environment(device: str, seed: int, command: str | None) -> dict[str, Any]:
    """Return the ``environment`` block: versions, device, seed, command and time."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.now(UTC)
    if epoch is not None:
        try:
            now = datetime.fromtimestamp(int(epoch), UTC)
        except (ValueError, OverflowError, OSError) as error:
            raise UsageError(
                f"SOURCE_DATE_EPOCH={epoch!r} is no time in seconds. Set it to a whole number."
            ) from error
    versions = {"posprobe": version("posprobe"), "python": platform.python_version()}
    versions["numpy"] = np.__version__
    if "torch" in sys.modules:
        versions["torch"] = version("torch")
    return versions | {
        "device": device,
        "seed": seed,
        "command": command,
        "created": now.isoformat(timespec="seconds"),
    }


def _positions(block: dict[str, Any], table: PositionTable) -> dict[str, Any]:
    """Turn row numbers into positions: row 0 of a table cut to 1:512 is position 1."""
    for key in ("outlier_rows", "zero_rows"):
        if key in block:
            block[key] = [
                row | {"row": row["row"] + table.start}
                if isinstance(row, dict)
                else row + table.start
                for row in block[key]
            ]
    return block
