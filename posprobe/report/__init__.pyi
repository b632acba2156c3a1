"""The public names, each once: type checkers and the lazy loader read them here."""

from .analysis import (
    Analysis as Analysis,
    analyze as analyze,
    check_request as check_request,
)
from .bundle import (
    bundle_name as bundle_name,
    check_place as check_place,
    default_place as default_place,
    forward_name as forward_name,
    render_bundle as render_bundle,
    sources_of as sources_of,
    table_path as table_path,
    to_json as to_json,
    write_bundle as write_bundle,
    write_table as write_table,
)
from .comparison import (
    Comparison as Comparison,
    compare as compare,
)
from .files import (
    read_bundle as read_bundle,
)
from .forward import (
    ForwardAnalysis as ForwardAnalysis,
)
from .kernels import (
    compare_kernels as compare_kernels,
    measured_heads as measured_heads,
)
from .paper import (
    PaperFigure as PaperFigure,
    paper_figure as paper_figure,
)
from .schemes import (
    SchemeAnalysis as SchemeAnalysis,
    analyze_schemes as analyze_schemes,
)
from .series import (
    Series as Series,
)
