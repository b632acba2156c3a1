"""All analyses of schemes, that is of encodings without a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from posprobe.analyses import Result
from posprobe.analyses.facts import Answers
from posprobe.analyses.models.head_biases import heads, smoothness
from posprobe.analyses.models.rotary import axis_ladders, rotation
from posprobe.analyses.models.rotary_weights import WeightUse
from posprobe.analyses.result import as_block, collect_arrays, to_json
from posprobe.blocks import describe_environment
from posprobe.encodings.tables import check_integer
from posprobe.errors import UsageError
from posprobe.layouts import Grid
from posprobe.progress import stage
from posprobe.questions.schemes import answer_schemes
from posprobe.report.document import answer_block, list_findings
from posprobe.report.files import ANALYSIS_SCHEMA
from posprobe.report.saved import Plottable
from posprobe.schemes import (
    LinearBias,
    RelativeBias,
    Rotary,
    Scheme,
    declared_length,
    describe_scheme,
)
from posprobe.sources import describe_source
from posprobe.tables import PositionTable
from posprobe.words.schemes import summarise_schemes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posprobe.blocks import EnvironmentBlock


#: Number of positions of curves if neither the user nor the checkpoint states a length.
DEFAULT_CURVE_LENGTH = 512
#: Length limit of curves by default; a page could not show more positions.
MAX_CURVE_LENGTH = 4096
#: Largest number of positions that the user may request.
MAX_REQUESTED_LENGTH = 2**17


@dataclass(frozen=True, eq=False, repr=False)
class SchemeAnalysis(Plottable):
    """Schemes and the results of their analyses.

    Parameters
    ----------
    records
        Schemes, all of one checkpoint.
    results
        Frozen results of each scheme by name: ``heads``, with ``smoothness`` for learned ones and
        ``rotation`` for rotary ones, and ``weights`` if query and key weights were read.
    environment
        Versions, seed, command and time.

    Examples
    --------
    >>> import posprobe as pp
    >>> (rotary,) = pp.load_schemes("rotary:2048x64")
    >>> analysis = pp.studies.analyze_schemes(rotary)
    >>> analysis.records == (rotary,)
    True
    >>> print(f"{analysis.results[0]['rotation'].wavelength[0]:.2f}")
    6.28
    """

    records: tuple[Scheme, ...]
    results: tuple[Mapping[str, Result], ...]
    environment: EnvironmentBlock

    @property
    def name(self) -> str:
        """The name of the checkpoint, or of the only encoding."""
        if len(self.records) == 1:
            return self.records[0].name
        return (
            Path(self.records[0].source.reference).name
            or self.records[0].source.reference
        )

    def _schemes(self) -> list[dict[str, Any]]:
        return [
            {
                "name": record.name,
                "family": record.family,
                **describe_scheme(record),
                "notes": list(record.notes),
                "source": describe_source(record.source),
                **{name: as_block(result) for name, result in results.items()},
            }
            for record, results in zip(self.records, self.results, strict=True)
        ]

    @property
    def answers(self) -> Answers:
        """Every question with its answer."""
        return Answers(answer_schemes(self._schemes()).values())

    @property
    def numbers(self) -> dict[str, Any]:
        """Every number by its key path, such as ``rotation.never_turn_training``.

        With several schemes, the path begins with the name of each. Lists hold a number per head.
        """
        return {
            f"{prefix}{name}.{key}": value
            for prefix, results in self._prefixed_results()
            for name, result in results.items()
            for key, value in _numbers(as_block(result))
        }

    def _drawable(self) -> Mapping[str, Result]:
        results_by_name = {
            f"{prefix}{name}": result
            for prefix, scheme_results in self._prefixed_results()
            for name, result in scheme_results.items()
        }
        return dict(
            sorted(
                results_by_name.items(), key=lambda item: not item[0].endswith("heads")
            )
        )

    def _prefixed_results(self) -> Iterator[tuple[str, Mapping[str, Result]]]:
        """Yield the key prefix and the results of each scheme."""
        for record, results in zip(self.records, self.results, strict=True):
            yield f"{record.name}." if len(self.records) > 1 else "", results

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``analysis.json`` (schema `posprobe.analysis/2`)."""
        schemes = self._schemes()
        answers = answer_schemes(schemes)
        answer_blocks = [answer_block(answer) for answer in answers.values()]
        return {
            "schema": ANALYSIS_SCHEMA,
            "name": self.name,
            "verdict": {"summary": summarise_schemes(answers), "answers": answer_blocks},
            "schemes": schemes,
            "environment": dict(self.environment),
            "findings": to_json(list_findings(answers.values())),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: the arrays of each scheme under its number."""
        arrays: dict[str, NDArray[Any]] = {}
        for number, results in enumerate(self.results):
            for result in results.values():
                arrays |= {
                    f"{number}_{name}": values
                    for name, values in collect_arrays(result).items()
                }
        return arrays

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return the builders of the bundle's figures by name."""
        from posprobe.figures.schemes import scheme_figures

        return scheme_figures(self.records, self.results)


def _numbers(block: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the numbers of a block, and lists of them, with their key paths."""
    for key, value in block.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{key}.")
        elif not isinstance(value, str | bool):
            yield f"{prefix}{key}", value


def analyze_schemes(
    *records: Scheme,
    length: int | None = None,
    seed: int = 0,
    command: str | None = None,
    weights: Mapping[int, WeightUse] | None = None,
) -> SchemeAnalysis:
    """Analyse schemes, that is encodings without a table.

    Parameters
    ----------
    records
        One or more schemes, as `load_schemes` returns them.
    length
        Number of positions of the curves; None for the configured length up to 4,096. Windows of
        patches have a size of their own.
    seed
        Random seed of the permutations that learned biases are compared with.
    command
        Command line to record.
    weights
        Results of reading the weights of queries and keys, by the number of the record.

    Raises
    ------
    UsageError
        If there is no record or one is not a scheme, or the length is not an integer from 2 to
        131,072.

    Examples
    --------
    >>> import posprobe as pp
    >>> analysis = pp.studies.analyze_schemes(*pp.load_schemes("rotary:2048x64"))
    >>> sorted(analysis.results[0])
    ['heads', 'rotation']
    """
    if not records:
        raise UsageError(
            "there is no encoding to analyse. Pass those that posprobe.load_schemes returns."
        )
    objects: tuple[object, ...] = records
    for candidate in objects:
        check_record(candidate)
        if isinstance(candidate, PositionTable):
            raise UsageError(
                f"{candidate.name} is a table: analyse it with posprobe.analyze."
            )
    if (
        length is not None
        and not 2 <= check_integer("the length", length) <= MAX_REQUESTED_LENGTH
    ):
        raise UsageError(
            f"a length of {length}: from 2 to {MAX_REQUESTED_LENGTH} positions are looked at."
        )
    with stage("Measuring encodings", len(records)) as advance:
        results = []
        for number, record in enumerate(records):
            scheme_results = _measure(record, length, seed)
            if weights and number in weights:
                scheme_results["weights"] = weights[number]
            results.append(scheme_results)
            advance(1)
    return SchemeAnalysis(
        tuple(records), tuple(results), describe_environment("cpu", seed, command)
    )


def check_record(record: object) -> None:
    """Refuse an object that is not an encoding.

    Raises
    ------
    UsageError
        If it is neither a table nor a scheme.
    """
    if not isinstance(record, PositionTable | Scheme):
        raise UsageError(
            f"{type(record).__name__} is not an encoding of positions. Pass "
            "what posprobe.load_schemes or posprobe.load returns, one by "
            "one."
        )


def _measure(record: Scheme, length: int | None, seed: int) -> dict[str, Result]:
    match record:
        case RelativeBias():
            curves = record.curves(_curve_length(record, length))
            return {
                "heads": heads(
                    curves,
                    quantity=record.quantity,
                    causal=record.causal,
                    unit=record.unit,
                ),
                "smoothness": smoothness(record.values, seed=seed),
            }
        case LinearBias():
            return {
                "heads": heads(
                    record.curves(_curve_length(record, length)), causal=record.causal
                )
            }
        case Rotary():
            # The scaling rule depends on the context length, even in layers with a window.
            context_length = length or record.max_positions
            rotation_result = rotation(
                record.frequencies(context_length),
                unscaled=record.unscaled(),
                training=record.seen(record.training_length),
                target=record.seen(context_length),
                attention_factor=record.attention_factor(context_length),
                axes=record.axes,
                length=context_length,
                along=axis_ladders(record.along_axes(), record.extent),
            )
            curves = record.curves(_curve_length(record, length))
            return {
                "rotation": rotation_result,
                "heads": heads(curves, quantity="cosine"),
            }


def _curve_length(record: Scheme, length: int | None) -> int:
    if isinstance(record, RelativeBias) and isinstance(record.layout, Grid):
        return record.layout.size
    return length or min(
        declared_length(record) or DEFAULT_CURVE_LENGTH, MAX_CURVE_LENGTH
    )
