"""The public names, each once: type checkers and the lazy loader read them here."""

from .analysis import (
    Analysis as Analysis,
    analyze as analyze,
    check_request as check_request,
    describe as describe,
)
from .bundle import (
    bundle_name as bundle_name,
    check_place as check_place,
    default_place as default_place,
    forward_name as forward_name,
    render_bundle as render_bundle,
    sources_of as sources_of,
    to_json as to_json,
    write_bundle as write_bundle,
)
from .comparison import (
    Comparison as Comparison,
    compare as compare,
    compare_kernels as compare_kernels,
)
from .export import (
    table_path as table_path,
    write_table as write_table,
)
from .forward import (
    ForwardAnalysis as ForwardAnalysis,
)
from .paper import (
    PaperFigure as PaperFigure,
    paper_figure as paper_figure,
)
from .runs import (
    measured_heads as measured_heads,
)
from .schemes import (
    SchemeAnalysis as SchemeAnalysis,
    analyze_schemes as analyze_schemes,
)
from .series import (
    Series as Series,
)
from .stored import (
    read_bundle as read_bundle,
)
