"""Every analysis of one table, with what is needed to repeat it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses import PCA, Result, VideoCodes
from posprobe.analyses.descriptive.similarity import check_row_count
from posprobe.analyses.facts import Answers, Verdicts
from posprobe.analyses.result import as_block, collect_arrays, quantisation_floor, to_json
from posprobe.arrays import (
    Array,
    Device,
    Positions,
    check_device,
    positions,
    run_concurrently,
)
from posprobe.blocks import (
    EnvironmentBlock,
    creation_time,
    describe_environment,
    table_block,
)
from posprobe.drawable import DrawPicture
from posprobe.encodings.tables import check_integer
from posprobe.errors import InvalidTable, UsageError
from posprobe.families.read import load_any
from posprobe.layouts import Video
from posprobe.measurements import (
    TABLE_MEASUREMENTS,
    TableInputs,
    TableMeasurement,
    Tokens,
    compared_numbers,
)
from posprobe.measurements.baselines import (
    MIN_PARALLEL_PRODUCT_SIZE,
    compare_with_baselines,
    measure_formula,
)
from posprobe.measurements.table import VIDEO_MEASUREMENT, explain_unmet_need
from posprobe.nulls import MAX_DRAWS, NULL_MODELS
from posprobe.progress import stage
from posprobe.report.document import (
    FindingBlock,
    answer_table_questions,
    list_findings,
    verdict_block,
)
from posprobe.report.files import ANALYSIS_SCHEMA
from posprobe.report.saved import Plottable
from posprobe.schemes import LinearBias, RelativeBias, Rotary, Scheme
from posprobe.tables import PositionTable, table as as_table
from posprobe.text import lookup
from posprobe.words import cause_clause
from posprobe.words.lines import video_note

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.studies.schemes import SchemeAnalysis

R = TypeVar("R", bound=Result)

#: Figures on the card of an analysis: what the table is made of, and how similar its rows are.
CARD_FIGURES = ("budget", "similarity")


@dataclass(frozen=True, eq=False, repr=False)
class Analysis(Plottable):
    """A table and the results of its analyses.

    Parameters
    ----------
    table
        The table that was analysed.
    results
        Frozen results by name; only tables of patches have ``grid``.
    nulls
        Number of draws, seed, null models, and the baselines of each headline number.
    environment
        Versions, device, seed, command and time.
    verdicts
        Answers and the rows that they are about; None if single measurements were requested.

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
    environment: EnvironmentBlock
    verdicts: Verdicts | None = None

    @property
    def answers(self) -> Answers:
        """Every question with its answer; empty if single measurements were requested."""
        return Answers(self.verdicts.answers.values() if self.verdicts else ())

    @property
    def verdict(self) -> dict[str, Any] | None:
        """The answers as ``analysis.json`` has them, with the headline."""
        return verdict_block(self.verdicts) if self.verdicts else None

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``analysis.json`` (schema `posprobe.analysis/2`)."""
        document: dict[str, Any] = {
            "schema": ANALYSIS_SCHEMA,
            "table": table_block(self.table),
            "environment": dict(self.environment),
            **({"verdict": self.verdict} if self.verdicts else {}),
            **_summaries(self.results),
            "nulls": dict(self.nulls),
        }
        document["findings"] = to_json(self.findings)
        return document

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``."""
        arrays: dict[str, NDArray[Any]] = {"values": self.table.values}
        for name, result in self.results.items():
            arrays |= collect_arrays(result, name)
        return arrays

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return the builders of the bundle's figures by name."""
        from posprobe.figures import report_figures

        figures = report_figures({self.table.name: self.table}, ("table",))
        for name, result in self.results.items():
            figures |= TABLE_MEASUREMENTS[name].prepare_figures({self.table.name: result})
        if "winding" in figures:
            # The figure of `winding` draws the path in space already, without outlier rows.
            figures.pop("trajectory", None)
        return figures

    @property
    def numbers(self) -> dict[str, Any]:
        """Every number by its key path in ``analysis.json``, such as ``pca.stable_rank``.

        None marks an undefined number; lists are those of the document.
        """
        blocks = _summaries(self.results)
        return {
            f"{name}.{key}": lookup(blocks[name], key)
            for name in self.results
            for key in TABLE_MEASUREMENTS[name].numbers
        }

    def _drawable(self) -> Mapping[str, Result]:
        return self.results

    def _pictures(self) -> tuple[DrawPicture, ...]:
        figures = self.figures()
        names = [name for name in CARD_FIGURES if name in figures]
        return tuple(figures[name] for name in names or list(figures)[:1])

    def _locations(self) -> Mapping[str, str]:
        inputs = TableInputs(
            self.table,
            Positions(self.table.values, self.table.layout, self.table.start, "cpu"),
            0,
            None,
            {},
        )
        unmeasured = {
            name: f"posprobe.analyze(table, only=[{name!r}]).results[{name!r}]"
            for name in TABLE_MEASUREMENTS
            if not explain_unmet_need(name, inputs)
        }
        return {**unmeasured, **super()._locations()}

    @property
    def findings(self) -> tuple[FindingBlock, ...]:
        """Sentences about the table, with the keys of the numbers that support them."""
        return list_findings(self.answers)

    def _subject_name(self) -> str:
        return f"{self.table.name!r} ({self.table.layout}, dim={self.table.dim})"


@overload
def analyze(
    table: Scheme | tuple[Scheme, ...], *, seed: int = 0, command: str | None = None
) -> SchemeAnalysis: ...


@overload
def analyze(
    table: str | PathLike[str],
    *,
    only: Iterable[str] | None = None,
    nulls: int = 0,
    device: Device = "auto",
    seed: int = 0,
    command: str | None = None,
    tokens: Tokens | None = None,
    all_rows: bool = False,
) -> Analysis | SchemeAnalysis: ...


@overload
def analyze(
    table: PositionTable | Array,
    *,
    only: Iterable[str] | None = None,
    nulls: int = 0,
    device: Device = "auto",
    seed: int = 0,
    command: str | None = None,
    tokens: Tokens | None = None,
    all_rows: bool = False,
) -> Analysis: ...


def analyze(
    table: PositionTable | Array | Scheme | tuple[Scheme, ...] | str | PathLike[str],
    *,
    only: Iterable[str] | None = None,
    nulls: int = 0,
    device: Device = "auto",
    seed: int = 0,
    command: str | None = None,
    tokens: Tokens | None = None,
    all_rows: bool = False,
) -> Analysis | SchemeAnalysis:
    """Run the analyses on a table, or on schemes.

    Parameters
    ----------
    table
        Table ``[n, d]`` of at least two rows, or an array or torch parameter, as `posprobe.table`
        takes it. Or a reference, of which as much is measured as `posprobe analyze` does. Or a
        rotary, relative or linear scheme, or several of one checkpoint, as `posprobe.load_schemes`
        returns them; of the options below they only take ``seed``.
    only
        Names of measurements of tables, or ``all``; None for all that apply but for the slow ones.
    nulls
        Number of draws per null model for the baselines of numbers; answers have draws of their
        own.
    device
        Device of the computation; ``"auto"`` takes a GPU only for tables large enough to gain.
    seed
        Seed of the null models and of the probes.
    command
        Command line to record.
    tokens
        Sample of the token embeddings that positions are added to, from `posprobe.load_tokens`;
        ``scale`` needs it.
    all_rows
        Whether to ask the questions of all rows, not of the longest stretch without seams and
        outlier rows.

    Raises
    ------
    InvalidTable
        If the table has a single row, or too many for an analysis.
    UsageError
        If a name is unknown, an analysis does not apply, or the device does not exist.

    Examples
    --------
    >>> import posprobe as pp
    >>> analysis = pp.analyze(pp.sinusoidal(64, 16), only=("pca", "norms"), nulls=0)
    >>> sorted(analysis.results)
    ['norms', 'pca']
    >>> print(f"{analysis.results['pca'].stable_rank:.2f}")
    4.53
    """
    if isinstance(table, str | PathLike):
        from posprobe.studies.checkpoint import analyze_any

        names = check_table_request(only, nulls, device, seed)
        return analyze_any(
            load_any(fspath(table)),
            only=names,
            nulls=nulls,
            device=device,
            seed=seed,
            command=command,
            all_rows=all_rows,
            tokens=tokens,
        )
    records = table if isinstance(table, tuple) else (table,)
    if records and all(
        isinstance(record, RelativeBias | Rotary | LinearBias) for record in records
    ):
        from posprobe.studies.schemes import analyze_schemes

        if only is not None or nulls or tokens is not None or all_rows:
            refused = "only, nulls, tokens and all_rows apply to position tables, and it has none."
            raise UsageError(f"{records[0].name}: {refused}")
        return analyze_schemes(*records, seed=seed, command=command)
    names = check_table_request(only, nulls, device, seed)
    table = as_table(table)
    if len(table) < 2:
        raise InvalidTable(
            f"{table.name}: a table of one position has nothing to compare. Keep at least two rows."
        )
    if isinstance(table.layout, Video):
        return _analyze_video(table, names, seed, command)
    # A table that is too large is refused before its numbers are converted to float64.
    stored_positions = Positions(table.values, table.layout, table.start, "cpu")
    inputs = TableInputs(table, stored_positions, seed, tokens, {})
    measurements = _select_measurements(inputs, names)
    if {"similarity", "grid"} & set(measurements):
        check_row_count(len(table))
    device_positions = positions(table, device, sums_squares=True)
    inputs = TableInputs(table, device_positions, seed, tokens, measurements, all_rows)
    table_verdicts = _measure(inputs, ask=names is None or "all" in names)
    return _build_analysis(inputs, table_verdicts, nulls, command)


def _build_analysis(
    inputs: TableInputs, table_verdicts: Verdicts | None, nulls: int, command: str | None
) -> Analysis:
    """Compare the numbers of a measured table with baselines, and return all of it."""
    table, seed = inputs.table, inputs.seed
    headlines = headline_numbers(_summaries(inputs.results))
    numbers = compare_with_baselines(table, headlines, nulls, seed)
    results = {name: inputs.results[name] for name in inputs.measurements}
    null_block = {
        "draws": nulls,
        "seed": seed,
        "models": dict(NULL_MODELS),
        "numbers": numbers,
    }
    if note := quantisation_note(table, results):
        table = replace(table, notes=(*table.notes, note))
    environment = describe_environment(inputs.positions.device, seed, command)
    return Analysis(table, results, null_block, environment, table_verdicts)


def _analyze_video(
    table: PositionTable, names: tuple[str, ...] | None, seed: int, command: str | None
) -> Analysis:
    """Measure the codes of a video; questions are asked of lines and grids."""
    inputs = TableInputs(
        table, Positions(table.values, table.layout, table.start, "cpu"), seed, None, {}
    )
    measurements = _select_measurements(inputs, names)
    results: dict[str, Result] = {
        name: measurement.compute(inputs) for name, measurement in measurements.items()
    }
    codes = results[VIDEO_MEASUREMENT]
    assert isinstance(codes, VideoCodes)  # noqa: S101 - no other applies to a video
    assert isinstance(table.layout, Video)  # noqa: S101
    note = video_note(codes, table.layout)
    null_block = {"draws": 0, "seed": seed, "models": dict(NULL_MODELS), "numbers": {}}
    return Analysis(
        replace(table, notes=(*table.notes, note)),
        results,
        null_block,
        describe_environment("cpu", seed, command),
    )


def _measure(inputs: TableInputs, *, ask: bool) -> Verdicts | None:
    """Take the measurements and answer the questions, concurrently if the table is small."""
    is_small = (
        inputs.positions.xp is np and inputs.table.values.size < MIN_PARALLEL_PRODUCT_SIZE
    )

    def measure(names: Iterable[str]) -> dict[str, Result]:
        results = {}
        for name in names:
            with stage(f"{inputs.table.name}: {inputs.measurements[name].title}"):
                results[name] = inputs.result(name)
        return results

    def measure_first() -> None:
        """Take the measurements that the questions use, as far as they use them."""
        for name, attribute in (("pca", "scores"), ("sinusoid", "base")):
            for result in measure(
                measurement_name
                for measurement_name in inputs.measurements
                if measurement_name == name
            ).values():
                if ask:  # singular values computed with vectors differ in the last digit
                    getattr(result, attribute)

    def measure_whole() -> None:
        whole_table_names = (
            name
            for name, measurement in inputs.measurements.items()
            if measurement.uses_all_rows
        )
        _summaries(measure(whole_table_names))  # some numbers are computed on first use
        if is_small:  # for a large table they wait until its own values are freed
            compared = {key.partition(".")[0] for key in compared_numbers()}
            names = frozenset(inputs.measurements) & compared
            measure_formula(inputs.table.layout, inputs.table.dim, names)

    with run_concurrently(measure_first, is_small=is_small):
        if ask and "budget" in inputs.measurements:
            measure(("budget",))
    with run_concurrently(measure_whole, is_small=is_small):
        measure(
            name
            for name, measurement in inputs.measurements.items()
            if not measurement.uses_all_rows
        )
        if not ask:
            return None
        with stage(f"{inputs.table.name}: questions and answers"):
            return answer_table_questions(inputs)


def quantisation_note(table: PositionTable, results: Mapping[str, Result]) -> str:
    """Return a note on components of a quantised table that may be rounding; else empty."""
    quantised, components = table.source.quantisation, results.get("pca")
    if quantised is None or not quantised.step or not isinstance(components, PCA):
        return ""
    values = components.singular_values
    floor = quantisation_floor(quantised.step, *table.shape)
    n_above = int((values > floor).sum())
    return (
        f"the numbers were dequantised from {quantised.name}, in steps of "
        f"{quantised.step:.3g}: rounding to them makes singular values up "
        f"to {floor:.3g}, and {n_above} of {len(values)} principal "
        "components lie above that"
    )


def check_table_request(
    only: Iterable[str] | None, nulls: int, device: Device, seed: int = 0
) -> tuple[str, ...] | None:
    """Check a request before any table is read, and return the names of the analyses.

    Raises
    ------
    UsageError
        If a name is unknown or none is given, there are too many draws, the seed is negative, or no
        such device exists.
    MissingExtra
        If the device needs PyTorch, which is not installed.
    """
    names = None if only is None else (only,) if isinstance(only, str) else tuple(only)
    for name in names or ():
        if name != "all" and name not in TABLE_MEASUREMENTS:
            raise UsageError(
                f"unknown analysis {name!r}. Choose from {', '.join(TABLE_MEASUREMENTS)}."
            )
    if names == ():
        raise UsageError(
            f"no analysis is chosen. Choose from {', '.join(TABLE_MEASUREMENTS)}."
        )
    if not 0 <= check_integer("nulls", nulls) <= MAX_DRAWS:
        raise UsageError(
            f"`nulls={nulls}`: between 0 and {MAX_DRAWS} draws of each null model can be made."
        )
    if check_integer("seed", seed) < 0:
        raise UsageError(f"`seed={seed}`: it must be 0 or more.")
    check_device(device)
    creation_time()
    return names


def _summaries(results: Mapping[str, Result]) -> dict[str, dict[str, Any]]:
    return {name: as_block(result, cause_clause) for name, result in results.items()}


def headline_numbers(document: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the numbers of a document that have baselines, by key path."""
    return {
        key: lookup(document, key)
        for key in compared_numbers()
        if key.partition(".")[0] in document
    }


def _select_measurements(
    inputs: TableInputs, requested: tuple[str, ...] | None
) -> dict[str, TableMeasurement]:
    unmet_needs = {name: explain_unmet_need(name, inputs) for name in TABLE_MEASUREMENTS}
    applicable = {
        name: TABLE_MEASUREMENTS[name]
        for name, unmet_need in unmet_needs.items()
        if not unmet_need
    }
    if requested is None:
        return {
            name: measurement
            for name, measurement in applicable.items()
            if measurement.is_default
        }
    for name in requested:
        if unmet_needs.get(name):
            raise UsageError(f"{inputs.table.name}: {name} needs {unmet_needs[name]}.")
    if "all" in requested:
        return applicable
    return {
        name: measurement for name, measurement in applicable.items() if name in requested
    }


def select_results(
    results_by_label: Mapping[str, Mapping[str, Result]], name: str, result_class: type[R]
) -> dict[str, R]:
    """Return the result of this name and class of each subject that has it."""
    results = {label: results.get(name) for label, results in results_by_label.items()}
    return {
        label: result
        for label, result in results.items()
        if isinstance(result, result_class)
    }
