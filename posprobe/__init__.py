"""Show what a trained transformer has learned about position.

`load` reads a position table out of a checkpoint, the analyses measure it, `analyze` does all of
them and `Analysis.save` writes the bundle. Everything is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posprobe.analyses import (
        against_sinusoid,
        axis_codes,
        bridging,
        gram_dct,
        grid,
        head_logits,
        heads,
        norms,
        pca,
        probes,
        rotation,
        scale,
        seams,
        shift,
        similarity,
        smoothness,
        spectrogram,
        spectrum,
        subspace_overlap,
        winding,
    )
    from posprobe.encodings import (
        alibi_slopes,
        binary,
        continuous_binary,
        counting,
        normalised_counting,
        rotary_frequencies,
        sincos2d,
        sine_ladder,
        sinusoidal,
        t5_buckets,
        translation_matrix,
    )
    from posprobe.errors import (
        PosprobeError,
    )
    from posprobe.families import (
        effective_table,
        load,
        load_heads,
        load_schemes,
        load_tokens,
    )
    from posprobe.figures import (
        style,
    )
    from posprobe.forward import (
        blank_images,
        explanations,
        load_model,
        measure_heads,
        permutation_effect,
        phase_shift,
        random_images,
        random_tokens,
        substitution_effect,
    )

    # Their modules have the same names, and mypy takes one for the other in a cycle of imports.
    from posprobe.forward.attend import attend
    from posprobe.forward.decompose import decompose
    from posprobe.layouts import Grid, Sequence
    from posprobe.measure import (
        analyze_model,
    )
    from posprobe.measurements.model import (
        Contexts,
    )
    from posprobe.report import (
        Analysis,
        Comparison,
        ForwardAnalysis,
        PaperFigure,
        SchemeAnalysis,
        Series,
        analyze,
        analyze_schemes,
        compare,
        compare_kernels,
        paper_figure,
    )
    from posprobe.resizing.tables import (
        resize,
    )
    from posprobe.schemes import (
        LinearBias,
        RelativeBias,
        Rotary,
    )
    from posprobe.sources import Source
    from posprobe.sweeps import (
        Likeness,
        Match,
        Nearest,
        Sweep,
        nearest,
        read_sweep,
        research_table,
        series,
        sweep,
    )
    from posprobe.tables import PositionTable, product, table

_HOMES = {
    "Analysis": "report",
    "Comparison": "report",
    "Contexts": "measurements.model",
    "ForwardAnalysis": "report",
    "Grid": "layouts",
    "Likeness": "sweeps",
    "LinearBias": "schemes",
    "Match": "sweeps",
    "Nearest": "sweeps",
    "PaperFigure": "report",
    "PositionTable": "tables",
    "PosprobeError": "errors",
    "RelativeBias": "schemes",
    "Rotary": "schemes",
    "SchemeAnalysis": "report",
    "Sequence": "layouts",
    "Series": "report",
    "Source": "sources",
    "Sweep": "sweeps",
    "against_sinusoid": "analyses",
    "alibi_slopes": "encodings",
    "analyze": "report",
    "analyze_model": "measure",
    "analyze_schemes": "report",
    "attend": "forward",
    "axis_codes": "analyses",
    "binary": "encodings",
    "blank_images": "forward",
    "bridging": "analyses",
    "compare": "report",
    "compare_kernels": "report",
    "continuous_binary": "encodings",
    "counting": "encodings",
    "decompose": "forward",
    "effective_table": "families",
    "explanations": "forward",
    "gram_dct": "analyses",
    "grid": "analyses",
    "head_logits": "analyses",
    "heads": "analyses",
    "load": "families",
    "load_heads": "families",
    "load_model": "forward",
    "load_schemes": "families",
    "load_tokens": "families",
    "measure_heads": "forward",
    "nearest": "sweeps",
    "normalised_counting": "encodings",
    "norms": "analyses",
    "paper_figure": "report",
    "pca": "analyses",
    "permutation_effect": "forward",
    "phase_shift": "forward",
    "probes": "analyses",
    "product": "tables",
    "random_images": "forward",
    "random_tokens": "forward",
    "read_sweep": "sweeps",
    "research_table": "sweeps",
    "resize": "resizing.tables",
    "rotary_frequencies": "encodings",
    "rotation": "analyses",
    "scale": "analyses",
    "seams": "analyses",
    "series": "sweeps",
    "shift": "analyses",
    "similarity": "analyses",
    "sincos2d": "encodings",
    "sine_ladder": "encodings",
    "sinusoidal": "encodings",
    "smoothness": "analyses",
    "spectrogram": "analyses",
    "spectrum": "analyses",
    "style": "figures",
    "subspace_overlap": "analyses",
    "substitution_effect": "forward",
    "sweep": "sweeps",
    "t5_buckets": "encodings",
    "table": "tables",
    "translation_matrix": "encodings",
    "winding": "analyses",
}

__all__ = [
    "Analysis",
    "Comparison",
    "Contexts",
    "ForwardAnalysis",
    "Grid",
    "Likeness",
    "LinearBias",
    "Match",
    "Nearest",
    "PaperFigure",
    "PositionTable",
    "PosprobeError",
    "RelativeBias",
    "Rotary",
    "SchemeAnalysis",
    "Sequence",
    "Series",
    "Source",
    "Sweep",
    "against_sinusoid",
    "alibi_slopes",
    "analyze",
    "analyze_model",
    "analyze_schemes",
    "attend",
    "axis_codes",
    "binary",
    "blank_images",
    "bridging",
    "compare",
    "compare_kernels",
    "continuous_binary",
    "counting",
    "decompose",
    "effective_table",
    "explanations",
    "gram_dct",
    "grid",
    "head_logits",
    "heads",
    "load",
    "load_heads",
    "load_model",
    "load_schemes",
    "load_tokens",
    "measure_heads",
    "nearest",
    "normalised_counting",
    "norms",
    "paper_figure",
    "pca",
    "permutation_effect",
    "phase_shift",
    "probes",
    "product",
    "random_images",
    "random_tokens",
    "read_sweep",
    "research_table",
    "resize",
    "rotary_frequencies",
    "rotation",
    "scale",
    "seams",
    "series",
    "shift",
    "similarity",
    "sincos2d",
    "sine_ladder",
    "sinusoidal",
    "smoothness",
    "spectrogram",
    "spectrum",
    "style",
    "subspace_overlap",
    "substitution_effect",
    "sweep",
    "t5_buckets",
    "table",
    "translation_matrix",
    "winding",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("posprobe")
    if name not in _HOMES:
        raise AttributeError(f"module 'posprobe' has no attribute {name!r}")
    return getattr(import_module(f"posprobe.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
