"""Commands under limits: of memory, open files, the size of a file, and time."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from made_cli import Done

ROOT = Path(__file__).parents[2]
#: Bytes that an interpreter with the modules of a command holds.
INTERPRETER = 128 * 2**20


@dataclass(frozen=True)
class Limits:
    """What a process may use.

    Parameters
    ----------
    memory
        Bytes beyond those it holds when it is confined. Files that are mapped do not count, so
        that a sparse file of gigabytes may be looked at.
    files
        Open at a time.
    file
        Bytes of one written file.
    cpu, wall
        Seconds of processor, and until it is ended on any machine.
    """

    memory: int = 768 * 2**20
    files: int = 256
    file: int = 64 * 2**20
    cpu: int = 20
    wall: int = 120

    def confine(self, held: int | None = None) -> None:
        """Confine this process, and those that it starts, for good.

        What it holds is not what is ``held`` by the program that it goes on to run.
        """
        for kind, most in (
            (resource.RLIMIT_DATA, (_held() if held is None else held) + self.memory),
            (resource.RLIMIT_NOFILE, self.files),
            (resource.RLIMIT_FSIZE, self.file),
            (resource.RLIMIT_CPU, self.cpu),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(kind, (most, most))


def posprobe(*words: str | Path, cwd: Path, limits: Limits | None = None, text: str = "") -> Done:
    """Run the command line in a process of its own within limits; a signal has a code below 0."""
    started = subprocess.Popen(
        [sys.executable, "-m", "posprobe", *map(str, words)],
        cwd=cwd, text=True, preexec_fn=partial((limits or Limits()).confine, held=INTERPRETER),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {
            "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        },
    )  # fmt: skip
    try:
        out, err = started.communicate(text, timeout=(limits or Limits()).wall)
    except subprocess.TimeoutExpired:
        started.kill()
        out, err = started.communicate()
        return Done(-signal.SIGKILL, out, err)
    return Done(started.returncode, out, err)


def _held() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0
