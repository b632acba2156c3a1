"""Many references at once, on joblib or Dask: ``sweep.parquet`` and what is made of it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posprobe.sweeps.fingerprints import Likeness
    from posprobe.sweeps.many import Sweep, sweep
    from posprobe.sweeps.research import research_table
    from posprobe.sweeps.runs import series
    from posprobe.sweeps.search import Match, Nearest, nearest
    from posprobe.sweeps.store import read_sweep

_HOMES = {
    "Likeness": "fingerprints",
    "Match": "search",
    "Nearest": "search",
    "Sweep": "many",
    "nearest": "search",
    "read_sweep": "store",
    "research_table": "research",
    "series": "runs",
    "sweep": "many",
}

__all__ = [
    "Likeness",
    "Match",
    "Nearest",
    "Sweep",
    "nearest",
    "read_sweep",
    "research_table",
    "series",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
