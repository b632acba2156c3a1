"""The public names, each once: type checkers and the lazy loader read them here."""

from .many import (
    Sweep as Sweep,
    read_sweep as read_sweep,
    series as series,
    sweep as sweep,
)
from .research import (
    research_table as research_table,
)
from .search import (
    Likeness as Likeness,
    Match as Match,
    Nearest as Nearest,
    nearest as nearest,
)
