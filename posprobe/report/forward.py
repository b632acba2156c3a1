"""What was measured inside a model, with what is needed to repeat it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from posprobe.analyses.attention_by_offset import AttentionByOffset
from posprobe.analyses.head_logits import HeadLogits
from posprobe.analyses.mean_decomposition import MeanDecomposition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Of the document.
FORWARD = "posprobe.forward/1"


@dataclass(frozen=True, eq=False)
class ForwardAnalysis:
    """Positions inside one model: in its hidden states, its weights and its attention.

    Parameters
    ----------
    states
        What positions add to the hidden states.
    heads
        By layer, what heads make of positions by their weights alone; empty where the architecture
        is not known.
    heads_missing
        Why there are none, or empty.
    attention
        Measured attention by offset; None where it was not asked for.
    contexts
        What the model was run on: ``kind``, ``length`` or ``shape``, ``seed`` …
    environment
        Versions, seed, command and time.
    """

    states: MeanDecomposition
    heads: Mapping[int, HeadLogits]
    heads_missing: str
    attention: AttentionByOffset | None
    contexts: Mapping[str, Any]
    environment: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the document (schema `posprobe.forward/1`)."""
        return {
            "schema": FORWARD,
            "name": self.states.name,
            "contexts": dict(self.contexts) | {"used": self.states.contexts},
            "hidden_states": self.states.summary(),
            "heads": [{"layer": n, **found.summary()} for n, found in self.heads.items()],
            "heads_missing": self.heads_missing or None,
            "attention": self.attention.summary() if self.attention else None,
            "notes": list(self.states.notes),
            "environment": dict(self.environment),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays: by layer what positions add, its error, and curves by offset."""
        found: dict[str, NDArray[Any]] = {}
        for number, layer in self.states.layers.items():
            found |= {f"{number}_pos": layer.pos, f"{number}_error": layer.error}
            found[f"{number}_mean"] = layer.mean
        for number, heads in self.heads.items():
            found[f"{number}_logits"] = heads.curves
        for number, seen in self.attention.layers.items() if self.attention else ():
            found[f"{number}_attention"] = seen.curves
        return found

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Return how to make each figure."""
        from posprobe.figures import draw_forward as drawing

        figures: dict[str, Callable[[], Figure]] = {
            "layers": partial(_alone, partial(drawing.through_layers, found=self.states), 3.4)
        }
        if self.heads:
            height = 1.2 + 0.09 * sum(len(found.peak) for found in self.heads.values())
            shown = partial(drawing.head_profiles, layers=self.heads)
            figures["heads"] = partial(
                _with_bar, shown, min(height, 9.0), "mean logit, centred, over the head's largest"
            )
            figures["peaks"] = partial(
                _alone, partial(drawing.peak_histogram, layers=self.heads), 3.0
            )
        if self.attention:
            count = sum(len(layer.peak) for layer in self.attention.layers.values())
            shown = partial(drawing.attention_profiles, found=self.attention)
            figures["attention"] = partial(
                _with_bar, shown, min(1.2 + 0.09 * count, 9.0), "mean attention"
            )
        return figures


def _alone(draw: Callable[[Axes], object], height: float) -> Figure:
    from posprobe.figures.styles import new_figure

    figure = new_figure(6.5, height)
    draw(figure.subplots())
    return figure


def _with_bar(draw: Callable[[Axes], Any], height: float, label: str) -> Figure:
    from posprobe.figures.styles import new_figure

    figure = new_figure(6.5, height)
    ax = figure.subplots()
    figure.colorbar(draw(ax), ax=ax, label=label)
    return figure
