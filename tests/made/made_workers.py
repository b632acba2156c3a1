"""Workers of sweeps for tests that fork or count the steps of one process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from unittest.mock import patch

from joblib.externals import loky


@contextmanager
def workers_in_this_process() -> Iterator[None]:
    """Run the tasks of sweeps in a thread: a fork cannot use the processes of its parent."""
    executor = ThreadPoolExecutor(1)
    with executor, patch.object(loky, "get_reusable_executor", lambda *_, **__: executor):
        yield
