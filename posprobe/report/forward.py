"""What was measured inside a model, with what is needed to repeat it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from posprobe.analyses import Result
from posprobe.analyses.mean_decomposition import MeanDecomposition
from posprobe.analyses.result import as_block, stored
from posprobe.measurements import Finding
from posprobe.measurements.model import MODEL
from posprobe.report.forward_page import forward_page
from posprobe.report.forward_verdict import forward_verdict
from posprobe.report.notebook import fragment
from posprobe.report.saved import Saved
from posprobe.report.stored import FORWARD

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class ForwardAnalysis(Saved):
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
        Frozen results by name, any of `posprobe.measurements.model.MODEL`, in its order.
    missing
        By name, why something that was asked for was not measured.
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
    environment: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def baselines(self) -> Mapping[str, Any]:
        """What the numbers of layers are compared with; empty without ``states``."""
        states = self.results.get("states")
        return states.baselines if isinstance(states, MeanDecomposition) else {}

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``analysis.json`` (schema `posprobe.forward/1`)."""
        # How many contexts were run at most; 0 where weights were enough.
        used = max((getattr(found, "contexts", 0) for found in self.results.values()), default=0)
        document: dict[str, Any] = {
            "schema": FORWARD,
            "name": self.name,
            "model": dict(self.model),
            "contexts": {**self.contexts, "used": used},
            "beside": dict(self.baselines) or None,
            **dict.fromkeys(MODEL),
            **{name: as_block(result) for name, result in self.results.items()},
            "missing": dict(self.missing),
            "notes": list(self.notes),
            "environment": dict(self.environment),
        }
        document["verdict"] = forward_verdict(document)
        document["findings"] = [
            asdict(finding)
            for name, measurement in MODEL.items()
            if document[name] is not None
            for finding in measurement.findings(document)
        ]
        return document

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the content of ``arrays.npz``: a layer's arrays under its number.

        ``N_pos`` ``[t, d]`` and ``N_mean`` ``[d]`` in float32, ``N_error`` ``[t]``, the norm of a
        position's standard error; curves by offset as ``N_logits``, ``N_attention``, ``N_words``.
        """
        arrays: dict[str, NDArray[Any]] = {}
        for name, result in self.results.items():
            arrays |= stored(result, name)
        return arrays

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure of the bundle."""
        figures: dict[str, Callable[[], Figure]] = {}
        for name, result in self.results.items():
            figures |= MODEL[name].figures({self.name: result})
        return figures

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What can be said: sentences with the keys of the numbers they rest on."""
        return tuple(Finding(**finding) for finding in self.to_dict()["findings"])

    def _repr_html_(self) -> str:
        return fragment(forward_page(self.to_dict()))
