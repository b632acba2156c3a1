"""Two sides compared: positions, layers and rows, for `posprobe.studies.check`."""

from importlib import import_module as _import_module
from typing import Any as _Any
from warnings import warn as _warn


def __getattr__(name: str) -> _Any:
    if name not in {"Check", "check"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _warn(
        f"posprobe.checks.{name} is now posprobe.studies.{name}; the old "
        "name leaves with version 0.3.",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(_import_module("posprobe.studies"), name)
