"""What a command frees goes back to the system, in the main thread and in others."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Arrays below the size that the C library maps one by one, freed in the thread that made them.
PROGRAM = """
import threading
import numpy as np
from posprobe.cli.process import trim_freed_memory

def resident():
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) / 256

def work():
    np.ones((5 << 20) // 8).sum()
    held = [np.ones((5 << 20) // 8) for _ in range(20)]
    held.clear()

trim_freed_memory()
# The C library learns from what is freed from which size on to keep it.
large = np.ones((30 << 20) // 8)
del large
before = resident()
for _ in range(2):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
work()
print(resident() - before)
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="the limits are those of glibc, on Linux"
)
def test_freed_memory_returns_to_the_system() -> None:
    """Of 100 MiB freed in each of three threads, less than a fifth of one is kept."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert float(ended.stdout) < 20
