"""The public names, each once: type checkers and the lazy loader read them here."""

from .check import (
    Check as Check,
    check as check,
)
from .comparison import (
    Comparison as Comparison,
    compare as compare,
)
from .figure import (
    PaperFigure as PaperFigure,
    paper_figure as paper_figure,
)
from .kernels import (
    compare_kernels as compare_kernels,
    measured_heads as measured_heads,
)
from .model import (
    ForwardAnalysis as ForwardAnalysis,
    analyze_model as analyze_model,
)
from .schemes import (
    SchemeAnalysis as SchemeAnalysis,
    analyze_schemes as analyze_schemes,
)
from .series import (
    Series as Series,
)
from .table import (
    Analysis as Analysis,
    analyze as analyze,
    check_table_request as check_table_request,
)
