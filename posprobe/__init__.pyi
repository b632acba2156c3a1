"""The public names, each once: type checkers and the lazy loader read them here."""

from . import (
    analyses as analyses,
    encodings as encodings,
    families as families,
    forward as forward,
    layouts as layouts,
    report as report,
    schemes as schemes,
    sources as sources,
    studies as studies,
    sweeps as sweeps,
)
from ._version import __version__ as __version__
from .analyses import (
    axis_codes as axis_codes,
    bridging as bridging,
    budget as budget,
    clock as clock,
    grid as grid,
    norms as norms,
    pca as pca,
    seams as seams,
    shift as shift,
    similarity as similarity,
    spectrogram as spectrogram,
    spectrum as spectrum,
    winding as winding,
)
from .encodings import (
    sincos2d as sincos2d,
    sinusoidal as sinusoidal,
)
from .errors import (
    PosprobeError as PosprobeError,
)
from .families import (
    load as load,
    load_schemes as load_schemes,
    load_tokens as load_tokens,
)
from .figures import (
    style as style,
)
from .forward import (
    attention_budget as attention_budget,
    load_model as load_model,
    places as places,
    positions_of as positions_of,
    random_images as random_images,
    rotary_use as rotary_use,
    sampled_tokens as sampled_tokens,
    substitution_effect as substitution_effect,
)
from .forward.averages import attend as attend, decompose as decompose
from .measurements.model import (
    Contexts as Contexts,
)
from .nulls import (
    surrogate as surrogate,
)
from .resizing.tables import (
    resize as resize,
)
from .studies import (
    Check as Check,
    analyze as analyze,
    analyze_model as analyze_model,
    check as check,
    compare as compare,
    compare_kernels as compare_kernels,
    paper_figure as paper_figure,
)
from .sweeps import (
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
_SUBMODULES_BY_NAME: dict[str, str]
_NAMES_BY_SUBMODULE: dict[str, str]
