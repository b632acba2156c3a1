"""Being written."""

from typing import Any


def shift_plane(ax: Any, result: Any) -> None: ...
def seam_profile(ax: Any, result: Any) -> None: ...
