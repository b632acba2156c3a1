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
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from posprobe import analyses
from posprobe.analyses import PCA, Norms, Patches, Result, Similarity, Spectrum
from posprobe.analyses.headline import HEADLINES
from posprobe.analyses.similarity import within_reach
from posprobe.arrays import Device, positions
from posprobe.errors import InvalidTable, UsageError
from posprobe.nulls import NULLS, bands
from posprobe.report.bundle import ANALYSIS
from posprobe.report.findings import Finding, findings
from posprobe.table import Grid, PositionTable, describe_layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The analyses in the order of the report.
NAMES = (
    "norms",
    "similarity",
    "pca",
    "spectrum",
    "spectrogram",
    "dct",
    "shift",
    "seams",
    "sinusoid",
    "grid",
    "scale",
    "probes",
)
#: Left out unless asked for: scikit-learn alone takes longer to start than all the rest to run.
SLOW = ("probes",)
#: Between these lies the largest number of a table whose sums of squares are defined.
SMALLEST, LARGEST = 1e-140, 1e140
#: Draws of every null model unless stated otherwise.
DRAWS = 9


class Tokens(Protocol):
    """Embeddings that positions are added to: `posprobe.families.TokenSample`."""

    @property
    def values(self) -> NDArray[np.floating[Any]]:
        """``[k, d]``."""

    def summary(self) -> dict[str, Any]:
        """Return where they come from."""


@dataclass(frozen=True, eq=False)
class Analysis:
    """A table and the results of its analyses.

    Parameters
    ----------
    table
        The table that was analysed.
    results
        Frozen results by name; ``grid`` is there for patches only.
    nulls
        Draws, seed, models and, by number, the values of the sinusoid and of the null models.
    environment
        Versions, device, seed, command and time.
    tokens
        What the positions are added to, where ``scale`` was measured.

    Examples
    --------
    >>> import posprobe as pp
    >>> analysis = pp.analyze(pp.sinusoidal(64, 16), only=("pca",), nulls=0)
    >>> analysis.results["pca"].explained_variance_ratio.shape
    (16,)
    >>> analysis.to_dict()["pca"].keys() >= {"stable_rank"}
    True
    """

    table: PositionTable
    results: Mapping[str, Result]
    nulls: Mapping[str, Any]
    environment: Mapping[str, Any]
    tokens: Tokens | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``analysis.json`` (schema `posprobe.analysis/1`)."""
        document: dict[str, Any] = {
            "schema": ANALYSIS,
            "table": describe(self.table),
            "environment": dict(self.environment),
            **_summaries(self.table, self.results),
            "nulls": dict(self.nulls),
        }
        if self.tokens is not None and "scale" in document:
            document["scale"]["sample"] = self.tokens.summary()
        document["findings"] = [asdict(finding) for finding in findings(document)]
        return document

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

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What can be said of the table: sentences with the keys of the numbers they rest on."""
        return findings(self.to_dict())

    def _repr_html_(self) -> str:
        from posprobe.report.notebook import verdict_html

        parts = "".join(result._repr_html_() for result in self.results.values())
        said = "".join(f"<li>{escape(finding.text)}</li>" for finding in self.findings)
        return (
            f"<h3>{escape(self.table.name)}</h3><ul>{said}</ul>{verdict_html(self.nulls)}"
            f"<details><summary>The table and every result</summary>{self.table._repr_html_()}"
            f"{parts}</details>"
        )


def analyze(
    table: PositionTable,
    *,
    only: Iterable[str] | None = None,
    nulls: int = DRAWS,
    device: Device = "auto",
    seed: int = 0,
    command: str | None = None,
    tokens: Tokens | None = None,
) -> Analysis:
    """Run the analyses on a table.

    Parameters
    ----------
    table
        ``[n, d]``, at least two rows.
    only
        Names out of `NAMES`, or ``all``; where None, all that apply but for the slow `SLOW`.
    nulls
        Draws of every null model; 0 leaves the sinusoid as the only comparison.
    device
        Where to compute; ``"auto"`` takes a GPU only for tables large enough to gain.
    seed
        Of the null models and of the probes.
    command
        The command line, for the record.
    tokens
        What the positions are added to, as `posprobe.load_tokens` samples it; ``scale`` needs it.

    Raises
    ------
    InvalidTable
        If the table has a single row, or too many for an analysis.
    UsageError
        If a name is unknown, an analysis does not apply, or the device is not there.

    Examples
    --------
    >>> import posprobe as pp
    >>> analysis = pp.analyze(pp.sinusoidal(64, 16), only=("pca", "norms"), nulls=0)
    >>> sorted(analysis.results)
    ['norms', 'pca']
    >>> print(f"{analysis.results['pca'].stable_rank:.2f}")
    4.53
    """
    names = _chosen(table, only, tokens)
    if len(table) < 2:
        raise InvalidTable(
            f"{table.name}: a table of one position has nothing to compare. Keep at least two rows."
        )
    largest = float(np.abs(table.values).max())
    if largest and not SMALLEST < largest < LARGEST:
        raise InvalidTable(
            f"{table.name}: its numbers reach {largest:.1e}, and sums of their squares leave the "
            "range of the arithmetic. Scale the table first: only the norms depend on its units."
        )
    if {"similarity", "grid"} & set(names):
        within_reach(len(table))
    given = positions(table, device)
    results: dict[str, Result] = {}
    steps: dict[str, Callable[[], Result]] = {
        "norms": partial(analyses.norms, given),
        "similarity": partial(analyses.similarity, given),
        "pca": partial(analyses.pca, given),
        "spectrum": partial(analyses.spectrum, given),
        "spectrogram": partial(analyses.spectrogram, given),
        "dct": lambda: analyses.gram_dct(given, cosines=_cosines(results.get("similarity"))),
        "shift": lambda: analyses.shift(given, pca=_as_pca(results.get("pca"))),
        "seams": partial(analyses.seams, given),
        "sinusoid": lambda: analyses.against_sinusoid(
            given, decomposition=_as_pca(results.get("pca"))
        ),
        "probes": lambda: analyses.probes(given, seed=seed),
        "grid": lambda: analyses.grid(given, cosines=_as_similarity(results.get("similarity"))),
    }

    if tokens is not None:
        steps["scale"] = partial(analyses.scale, given, tokens.values)

    def measure() -> dict[str, float | None]:
        for name in names:
            results[name] = steps[name]()
        return headline_numbers(_summaries(table, results))

    numbers = bands(table, measure, nulls, seed)
    beside = {"draws": nulls, "seed": seed, "models": dict(NULLS), "numbers": numbers}
    return Analysis(table, results, beside, environment(given.device, seed, command), tokens)


def _summaries(table: PositionTable, results: Mapping[str, Result]) -> dict[str, dict[str, Any]]:
    return {name: _positions(result.summary(), table) for name, result in results.items()}


def headline_numbers(document: Mapping[str, Any]) -> dict[str, float | None]:
    """Pick out of a document the numbers that stand beside the null models, by key path."""
    found: dict[str, float | None] = {}
    for key in HEADLINES:
        value: Any = document
        for part in key.split("."):
            value = value.get(part, {}) if isinstance(value, Mapping) else {}
        if value != {}:
            found[key] = value
    return found


def _cosines(result: Result | None) -> NDArray[np.float64] | None:
    if not isinstance(result, Similarity) or result.centered.pooled > 1:
        return None
    matrix = result.centered.matrix
    return None if np.isnan(matrix).any() else matrix


def _as_pca(result: Result | None) -> PCA | None:
    return result if isinstance(result, PCA) else None


def _as_similarity(result: Result | None) -> Similarity | None:
    return result if isinstance(result, Similarity) else None


def _chosen(
    table: PositionTable, only: Iterable[str] | None, tokens: Tokens | None
) -> tuple[str, ...]:
    needs = {"grid": isinstance(table.layout, Grid), "scale": tokens is not None}
    applicable = tuple(name for name in NAMES if needs.get(name, True))
    if only is None:
        return tuple(name for name in applicable if name not in SLOW)
    wanted = list(only)
    if "all" in wanted:
        return applicable
    for name in wanted:
        if name not in NAMES:
            raise UsageError(f"no analysis is called {name!r}. There are {', '.join(NAMES)}.")
        if name not in applicable:
            missing = {
                "grid": f"positions on a grid; this is a {table.layout}",
                "scale": "the embeddings that positions are added to: tokens=load_tokens(table)",
            }
            raise UsageError(f"{table.name}: {name} needs {missing[name]}.")
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
    used = [name for name in ("torch", "transformers", "timm") if name in sys.modules]
    versions |= {name: version(name) for name in used}
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
