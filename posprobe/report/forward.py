"""What was measured inside a model, with what is needed to repeat it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posprobe.analyses import Result
from posprobe.analyses.attention_by_offset import AttentionByOffset
from posprobe.analyses.effective import EffectiveTable
from posprobe.analyses.experiments import BlankImages, PermutationEffect, PhaseShift
from posprobe.analyses.head_logits import HeadsByLayer
from posprobe.analyses.mean_decomposition import MeanDecomposition
from posprobe.analyses.subspaces import SubspaceOverlap
from posprobe.report.bundle import FORWARD
from posprobe.report.findings import Finding
from posprobe.report.forward_findings import forward_findings
from posprobe.table import Grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What can be measured, in the order of the report.
NAMES = (
    "states", "heads", "effective", "subspaces", "attention", "words", "permutation", "shift",
    "blank",
)  # fmt: skip
#: Why numbers of permutations are unknown.
_UNKNOWN = {
    "special": "all tokens are permuted, none stays",
    "accuracy": "the contexts have no labels",
    "scrambled_accuracy": "the contexts have no labels",
}
#: Headline numbers that only a sequence has.
_ON_A_LINE = ("shift.skill", "sinusoid.ladder_share")


@dataclass(frozen=True, eq=False)
class ForwardAnalysis:
    """Positions inside one model: in its hidden states, its weights and its attention.

    Parameters
    ----------
    name
        The reference as typed.
    model
        ``class``, ``parameters``, ``dtype`` and ``device``.
    contexts
        What the model was run on: ``kind`` in words, ``length`` in tokens or ``shape`` of an image,
        and ``seed``, None where nothing was drawn.
    results
        Frozen results by name, any of `NAMES`.
    missing
        By name, why something that was asked for was not measured.
    layers
        By layer, the headline numbers of the table of what positions add, keyed as in
        `posprobe.analyses.headline.HEADLINES`; None where a number is undefined.
    beside
        The same numbers for the ``sinusoid`` of that shape and, as ``p5``, ``p50`` and ``p95``, for
        random walks (``walk``), with their ``draws`` and ``seed``; empty without ``states``.
    environment
        Versions, device, seed, command and time.
    notes
        What a reader must know, such as that the run was stopped early.

    Examples
    --------
    This needs the extra `models`:

    >>> import posprobe as pp
    >>> contexts = pp.Contexts(count=4)
    >>> analysis = pp.analyze_model("sample:digits-vit", contexts, only=("blank",), nulls=0)
    >>> sorted(analysis.results), analysis.missing
    (['blank'], {})
    """

    name: str
    model: Mapping[str, Any]
    contexts: Mapping[str, Any]
    results: Mapping[str, Result]
    missing: Mapping[str, str]
    layers: Mapping[int, Mapping[str, float | None]]
    beside: Mapping[str, Any]
    environment: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``analysis.json`` (schema `posprobe.forward/1`)."""
        document: dict[str, Any] = {
            "schema": FORWARD,
            "name": self.name,
            "model": dict(self.model),
            "contexts": {**self.contexts, "used": self._used()},
            "beside": dict(self.beside) or None,
            **{name: self._block(name) for name in NAMES},
            "missing": dict(self.missing),
            "notes": list(self.notes),
            "environment": dict(self.environment),
        }
        document["findings"] = [asdict(finding) for finding in forward_findings(document)]
        return document

    def _result(self, name: str) -> Result | None:
        """Return a result as it is reported: of repeated words only the first layer."""
        result = self.results.get(name)
        if name == "words" and isinstance(result, AttentionByOffset):
            first = min(result.layers)
            return replace(result, layers={first: result.layers[first]})
        return result

    def _used(self) -> int:
        """Return how many contexts were run at most; 0 where weights were enough."""
        return max((getattr(found, "contexts", 0) for found in self.results.values()), default=0)

    def _block(self, name: str) -> dict[str, Any] | None:
        result = self._result(name)
        if result is None:
            return None
        block = result.summary()
        match result:
            case MeanDecomposition():
                for layer in block["layers"]:
                    layer["analyses"] = dict(self.layers.get(layer["layer"], {}))
                on_grid = isinstance(result.layout, Grid)
                block["undefined"] |= _lacking(block["layers"], on_grid=on_grid)
            case PermutationEffect(with_positions=change):
                block["undefined"] = {
                    name: why for name, why in _UNKNOWN.items() if getattr(change, name) is None
                }
        return block

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: a layer's arrays under its number.

        ``N_pos`` ``[t, d]`` and ``N_mean`` ``[d]`` in float32, ``N_error`` ``[t]``, the norm of a
        position's standard error; curves by offset as ``N_logits``, ``N_attention``, ``N_words``.
        """
        return {
            key: values
            for name in NAMES
            if (result := self._result(name)) is not None
            for key, values in _arrays(name, result)
        }

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure of the bundle."""
        from posprobe.figures import forward_figures

        found = {name: result for name in NAMES if (result := self._result(name)) is not None}
        return forward_figures(found, self.beside)

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
        """What can be said: sentences with the keys of the numbers they rest on."""
        return forward_findings(self.to_dict())

    def _repr_html_(self) -> str:
        from posprobe.report.forward_page import layers_table
        from posprobe.report.notebook import table_html

        document = self.to_dict()
        said = "".join(f"<li>{escape(finding['text'])}</li>" for finding in document["findings"])
        table = ""
        if document["states"]:
            shown = layers_table(document)
            labels = [column["label"] for column in shown["columns"]]
            table = table_html(labels, [*shown["rows"], *shown["foot"]])
        return f"<h3>{escape(self.name)}</h3><ul>{said}</ul>{table}"


def _lacking(layers: list[dict[str, Any]], *, on_grid: bool) -> dict[str, str]:
    """Say at which layers a headline number is undefined, and why."""
    where: dict[str, list[int]] = {}
    for layer in layers:
        for key, value in layer["analyses"].items():
            if value is None:
                where.setdefault(key, []).append(layer["layer"])
    return {
        key: "patches are not on a line"
        if on_grid and key in _ON_A_LINE
        else f"too few positions, or positions add nothing, at the layers {found}"
        for key, found in where.items()
    }


def _arrays(name: str, result: Result) -> Iterator[tuple[str, NDArray[Any]]]:
    match result:
        case MeanDecomposition():
            for number, layer in result.layers.items():
                yield f"{number}_pos", layer.pos.astype(np.float32)
                yield f"{number}_mean", layer.mean.astype(np.float32)
                yield f"{number}_error", np.linalg.norm(layer.error, axis=1)
        case HeadsByLayer():
            for number, heads in result.layers.items():
                yield f"{number}_logits", heads.curves
        case AttentionByOffset():
            for number, seen in result.layers.items():
                yield f"{number}_{name}", seen.curves
        case EffectiveTable():
            yield "effective", result.table.values
        case SubspaceOverlap():
            yield "overlap", result.overlap
            yield "overlap_matrix", result.matrix
        case PhaseShift():
            yield "shifts", result.shifts
            yield "shift_change", result.change
        case BlankImages():
            for number, pattern in result.constant.items():
                yield f"{number}_blank_constant", pattern.norms
                yield f"{number}_blank_noise", result.noise[number].norms
