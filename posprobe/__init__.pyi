"""The public names, each once: type checkers and the lazy loader read them here."""

from ._version import __version__ as __version__
from .analyses import (
    against_sinusoid as against_sinusoid,
)
from .analyses import (
    axis_codes as axis_codes,
)
from .analyses import (
    bridging as bridging,
)
from .analyses import (
    gram_dct as gram_dct,
)
from .analyses import (
    grid as grid,
)
from .analyses import (
    head_logits as head_logits,
)
from .analyses import (
    heads as heads,
)
from .analyses import (
    norms as norms,
)
from .analyses import (
    pca as pca,
)
from .analyses import (
    probes as probes,
)
from .analyses import (
    rotation as rotation,
)
from .analyses import (
    scale as scale,
)
from .analyses import (
    seams as seams,
)
from .analyses import (
    shift as shift,
)
from .analyses import (
    similarity as similarity,
)
from .analyses import (
    smoothness as smoothness,
)
from .analyses import (
    spectrogram as spectrogram,
)
from .analyses import (
    spectrum as spectrum,
)
from .analyses import (
    subspace_overlap as subspace_overlap,
)
from .analyses import (
    winding as winding,
)
from .encodings import (
    alibi_slopes as alibi_slopes,
)
from .encodings import (
    binary as binary,
)
from .encodings import (
    continuous_binary as continuous_binary,
)
from .encodings import (
    counting as counting,
)
from .encodings import (
    normalised_counting as normalised_counting,
)
from .encodings import (
    rotary_frequencies as rotary_frequencies,
)
from .encodings import (
    sincos2d as sincos2d,
)
from .encodings import (
    sine_ladder as sine_ladder,
)
from .encodings import (
    sinusoidal as sinusoidal,
)
from .encodings import (
    t5_buckets as t5_buckets,
)
from .encodings import (
    translation_matrix as translation_matrix,
)
from .errors import (
    PosprobeError as PosprobeError,
)
from .families import (
    effective_table as effective_table,
)
from .families import (
    load as load,
)
from .families import (
    load_heads as load_heads,
)
from .families import (
    load_schemes as load_schemes,
)
from .families import (
    load_tokens as load_tokens,
)
from .figures import (
    style as style,
)
from .forward import (
    blank_images as blank_images,
)
from .forward import (
    explanations as explanations,
)
from .forward import (
    load_model as load_model,
)
from .forward import (
    measure_heads as measure_heads,
)
from .forward import (
    permutation_effect as permutation_effect,
)
from .forward import (
    phase_shift as phase_shift,
)
from .forward import (
    random_images as random_images,
)
from .forward import (
    random_tokens as random_tokens,
)
from .forward import (
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
)
from .layouts import (
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
)
from .report import (
    Comparison as Comparison,
)
from .report import (
    ForwardAnalysis as ForwardAnalysis,
)
from .report import (
    PaperFigure as PaperFigure,
)
from .report import (
    SchemeAnalysis as SchemeAnalysis,
)
from .report import (
    Series as Series,
)
from .report import (
    analyze as analyze,
)
from .report import (
    analyze_schemes as analyze_schemes,
)
from .report import (
    compare as compare,
)
from .report import (
    compare_kernels as compare_kernels,
)
from .report import (
    paper_figure as paper_figure,
)
from .resizing.tables import (
    resize as resize,
)
from .schemes import (
    LinearBias as LinearBias,
)
from .schemes import (
    RelativeBias as RelativeBias,
)
from .schemes import (
    Rotary as Rotary,
)
from .sources import (
    Source as Source,
)
from .sweeps import (
    Likeness as Likeness,
)
from .sweeps import (
    Match as Match,
)
from .sweeps import (
    Nearest as Nearest,
)
from .sweeps import (
    Sweep as Sweep,
)
from .sweeps import (
    nearest as nearest,
)
from .sweeps import (
    read_sweep as read_sweep,
)
from .sweeps import (
    research_table as research_table,
)
from .sweeps import (
    series as series,
)
from .sweeps import (
    sweep as sweep,
)
from .tables import (
    PositionTable as PositionTable,
)
from .tables import (
    product as product,
)
from .tables import (
    table as table,
)

__all__: list[str]
