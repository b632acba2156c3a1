"""Commands under limits of memory, open files, file size and time."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from made_cli import CommandRun

ROOT = Path(__file__).parents[2]
#: Bytes that an interpreter with the modules of a command holds.
INTERPRETER_BYTES = 128 * 2**20


@dataclass(frozen=True)
class Limits:
    """Resource limits of a process.

    Parameters
    ----------
    memory
        Bytes beyond those already held. Mapped files do not count, so that a sparse file of
        gigabytes can be read.
    files
        Largest number of open files.
    file
        Largest size of a written file in bytes.
    cpu, wall
        Seconds of processor time, and of elapsed time until the process is killed.
    """

    memory: int = 768 * 2**20
    files: int = 256
    file: int = 64 * 2**20
    cpu: int = 20
    wall: int = 120

    def confine(self, held_bytes: int | None = None) -> None:
        """Confine this process and its children for good.

        ``held_bytes`` is the memory of the program that the process goes on to run; without it,
        the memory that the process holds now counts.
        """
        for resource_id, limit in (
            (
                resource.RLIMIT_DATA,
                (_held_bytes() if held_bytes is None else held_bytes) + self.memory,
            ),
            (resource.RLIMIT_NOFILE, self.files),
            (resource.RLIMIT_FSIZE, self.file),
            (resource.RLIMIT_CPU, self.cpu),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(resource_id, (limit, limit))


def posprobe(
    *words: str | Path, cwd: Path, limits: Limits | None = None, text: str = ""
) -> CommandRun:
    """Run the command line in a process of its own within limits; a signal has a code below 0."""
    process = subprocess.Popen(
        [sys.executable, "-m", "posprobe", *map(str, words)],
        cwd=cwd, text=True,
        preexec_fn=partial((limits or Limits()).confine, held_bytes=INTERPRETER_BYTES),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {
            "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        },
    )  # fmt: skip
    try:
        out, err = process.communicate(text, timeout=(limits or Limits()).wall)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return CommandRun(-signal.SIGKILL, out, err)
    return CommandRun(process.returncode, out, err)


def _held_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0
