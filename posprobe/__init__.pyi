"""The public names, each once: type checkers and the lazy loader read them here."""

from ._version import __version__ as __version__
from .analyses import (
    against_sinusoid as against_sinusoid,
    axis_codes as axis_codes,
    bridging as bridging,
    budget as budget,
    clock as clock,
    gram_dct as gram_dct,
    grid as grid,
    head_logits as head_logits,
    heads as heads,
    norms as norms,
    pca as pca,
    probes as probes,
    rotation as rotation,
    scale as scale,
    seams as seams,
    shift as shift,
    similarity as similarity,
    smoothness as smoothness,
    spectrogram as spectrogram,
    spectrum as spectrum,
    subspace_overlap as subspace_overlap,
    winding as winding,
)
from .encodings import (
    alibi_slopes as alibi_slopes,
    binary as binary,
    continuous_binary as continuous_binary,
    counting as counting,
    normalised_counting as normalised_counting,
    rotary_frequencies as rotary_frequencies,
    sincos2d as sincos2d,
    sine_ladder as sine_ladder,
    sinusoidal as sinusoidal,
    t5_buckets as t5_buckets,
    translation_matrix as translation_matrix,
)
from .errors import (
    PosprobeError as PosprobeError,
)
from .families import (
    effective_table as effective_table,
    load as load,
    load_heads as load_heads,
    load_schemes as load_schemes,
    load_tokens as load_tokens,
)
from .figures import (
    style as style,
)
from .forward import (
    blank_images as blank_images,
    explanations as explanations,
    load_model as load_model,
    measure_heads as measure_heads,
    permutation_effect as permutation_effect,
    phase_shift as phase_shift,
    random_images as random_images,
    random_tokens as random_tokens,
    rotary_use as rotary_use,
    sampled_tokens as sampled_tokens,
    substitution_effect as substitution_effect,
)
from .forward.attend import (
    attend as attend,
)
from .forward.decompose import (
    decompose as decompose,
)
from .layouts import (
    Grid as Grid,
    Sequence as Sequence,
)
from .measure import (
    analyze_model as analyze_model,
)
from .measurements.model import (
    Contexts as Contexts,
)
from .report import (
    Analysis as Analysis,
    Comparison as Comparison,
    ForwardAnalysis as ForwardAnalysis,
    PaperFigure as PaperFigure,
    SchemeAnalysis as SchemeAnalysis,
    Series as Series,
    analyze as analyze,
    analyze_schemes as analyze_schemes,
    compare as compare,
    compare_kernels as compare_kernels,
    paper_figure as paper_figure,
)
from .resizing.tables import (
    resize as resize,
)
from .schemes import (
    LinearBias as LinearBias,
    RelativeBias as RelativeBias,
    Rotary as Rotary,
)
from .sources import (
    Source as Source,
)
from .sweeps import (
    Likeness as Likeness,
    Match as Match,
    Nearest as Nearest,
    Sweep as Sweep,
    nearest as nearest,
    read_sweep as read_sweep,
    research_table as research_table,
    series as series,
    sweep as sweep,
)
from .tables import (
    PositionTable as PositionTable,
    product as product,
    table as table,
)

__all__: list[str]
