"""The public names, each once: type checkers and the lazy loader read them here."""

from .analysis import (
    Analysis as Analysis,
)
from .analysis import (
    analyze as analyze,
)
from .analysis import (
    check_request as check_request,
)
from .analysis import (
    describe as describe,
)
from .bundle import (
    bundle_name as bundle_name,
)
from .bundle import (
    check_place as check_place,
)
from .bundle import (
    default_place as default_place,
)
from .bundle import (
    forward_name as forward_name,
)
from .bundle import (
    render_bundle as render_bundle,
)
from .bundle import (
    sources_of as sources_of,
)
from .bundle import (
    to_json as to_json,
)
from .bundle import (
    write_bundle as write_bundle,
)
from .comparison import (
    Comparison as Comparison,
)
from .comparison import (
    compare as compare,
)
from .export import (
    table_path as table_path,
)
from .export import (
    write_table as write_table,
)
from .forward import (
    ForwardAnalysis as ForwardAnalysis,
)
from .kernels import (
    compare_kernels as compare_kernels,
)
from .paper import (
    PaperFigure as PaperFigure,
)
from .paper import (
    paper_figure as paper_figure,
)
from .schemes import (
    SchemeAnalysis as SchemeAnalysis,
)
from .schemes import (
    analyze_schemes as analyze_schemes,
)
from .series import (
    Series as Series,
)
from .stored import (
    read_bundle as read_bundle,
)
