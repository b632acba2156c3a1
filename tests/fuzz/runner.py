"""Runs a case in a forked child of a warm parent: bounded, watched, and with nobody to ask."""

from __future__ import annotations

import gc
import hashlib
import io
import os
import pkgutil
import resource
import select
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from limits import Limits
from made_workers import workers_in_this_process

import posprobe
from fuzz.case import Case

#: What one case may use, and seconds in which it may do nothing at all.
LIMITS = Limits()
IDLE = 15
#: What hostile code of a checkpoint would leave in the working folder.
CANARY = "canary"


@dataclass(frozen=True)
class Seen:
    """What a case did: ``code`` is negative where a signal ended it.

    ``before`` and ``after`` describe every file in reach by path; ``cache`` is left out.
    ``seconds`` are those of the processor.
    """

    code: int
    out: bytes
    err: bytes
    before: Mapping[str, str]
    after: Mapping[str, str]
    seconds: float
    folder: Path


@dataclass
class Runner:
    """A warm parent. ``warm`` are commands that are run once beforehand, to import what they do."""

    root: Path
    bundle: Path
    count: int = 0
    warmed: set[str] = field(default_factory=set)

    @contextmanager
    def run(self, case: Case) -> Iterator[Seen]:
        """Run a case in a fresh folder, which is removed afterwards."""
        self.count += 1
        scratch = self.root / f"{os.getpid()}-{self.count}"
        folder = scratch / "work"
        for part in ("work", "home", "tmp"):
            (scratch / part).mkdir(parents=True)
        try:
            case.lay_out(folder, self.bundle)
            files_before = manifest(scratch)
            started = _used()
            code = in_child(lambda: _command(case, scratch), scratch)
            seconds = _used() - started
            yield Seen(
                code,
                _tail(self.root / f"{scratch.name}.out"),
                _tail(self.root / f"{scratch.name}.err"),
                files_before,
                manifest(scratch),
                seconds,
                folder,
            )
        finally:
            _remove(scratch)
            for end in ("out", "err"):
                (self.root / f"{scratch.name}.{end}").unlink(missing_ok=True)

    def warm(self, *commands: tuple[str, ...]) -> None:
        """Run commands in this process, so that forks find everything imported."""
        import posprobe.cli

        working_folder = Path.cwd()
        for words in commands:
            key = " ".join(words)
            if key in self.warmed:
                continue
            self.warmed.add(key)
            folder = self.root / "warm"
            folder.mkdir(exist_ok=True)
            os.chdir(folder)
            stream = io.TextIOWrapper(io.BytesIO())
            arguments, sys.argv = sys.argv, ["posprobe", *words]
            try:
                with (
                    redirect_stdout(stream),
                    redirect_stderr(stream),
                    workers_in_this_process(),
                    suppress(SystemExit),
                ):
                    posprobe.cli.main()
            finally:
                sys.argv = arguments
                os.chdir(working_folder)


@contextmanager
def runner() -> Iterator[Runner]:
    """Set up a parent in a folder of its own, with one small sound bundle."""
    with tempfile.TemporaryDirectory(prefix="posprobe-fuzz-") as name:
        root = Path(name).resolve()
        _build_commands_once()
        for module in pkgutil.walk_packages(posprobe.__path__, "posprobe."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
        instance = Runner(root, root / "warm" / "bundle")
        instance.warm(
            ("inspect", "sample:digits-vit"),
            ("extract", "sinusoidal:8x4", "-o", "x.npy"),
            (
                "analyze",
                "sinusoidal:8x4",
                "--only",
                "norms",
                "--nulls",
                "0",
                "--out",
                "bundle",
            ),
            ("report", "bundle"),
            ("extract", "sinusoidal:8x4", "-o", "x.safetensors"),
            ("inspect", "x.safetensors"),
        )
        if not (instance.bundle / "report.html").is_file():
            raise RuntimeError("a plain analysis fails: there is nothing to fuzz")
        yield instance


def _build_commands_once() -> None:
    """Keep the parser of options, which would take most of a short case's time to build."""
    import typer

    from posprobe.cli import app

    library: Any = typer.main
    command = library.get_command(app)
    library.get_command = lambda _: command


def in_child(act: Callable[[], int], scratch: Path) -> int:
    """Run something in a forked child within the limits; return how it ended."""
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()  # what is there already is not looked through, and copied, in every child
    child = os.fork()
    if child == 0:
        code = 70
        try:
            _confine(scratch)
            code = act()
        except BaseException:  # noqa: BLE001 - whatever it is must not reach the parent's code
            import traceback

            with suppress(BaseException):
                traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(BaseException):
                    stream.flush()
            os._exit(code & 0xFF)
    return _watched(child)


def _watched(child: int) -> int:
    """Wait for a child, and end it once it has done nothing for too long; a busy machine is not
    taken for a hang.
    """
    begun = since = time.monotonic()
    memory, end = 0, os.pidfd_open(child)
    ended = select.poll()
    ended.register(end, select.POLLIN)
    while True:
        if ended.poll(500):
            os.close(end)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        current = sum(
            map(
                int,
                Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:13],
            )
        )
        clock = time.monotonic()
        if current != memory:
            memory, since = current, clock
        if clock - since > IDLE or clock - begun > LIMITS.wall:
            os.kill(child, signal.SIGKILL)


def _confine(scratch: Path) -> None:
    base = scratch.parent / scratch.name
    answers = os.memfd_create("answers")
    os.write(answers, b"y\n" * 64)  # whoever asks whether to run code is told yes
    os.lseek(answers, 0, os.SEEK_SET)
    os.dup2(answers, 0)
    for number, end in ((1, "out"), (2, "err")):
        opened = os.open(f"{base}.{end}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - these are the process's own streams
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", encoding="utf-8", errors="backslashreplace", closefd=False
    )
    LIMITS.confine()
    os.chdir(scratch / "work")
    os.environ.update(
        HOME=str(scratch / "home"),
        TMPDIR=str(scratch / "tmp"),
        POSPROBE_CACHE=str(scratch / "cache"),
        HF_HUB_OFFLINE="1",
    )
    tempfile.tempdir = str(scratch / "tmp")


def _used() -> float:
    """Return the seconds of processor that ended children have used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _command(case: Case, scratch: Path) -> int:
    import posprobe.cli

    os.environ.update(case.env)
    sys.argv = ["posprobe", *case.argv]
    if case.hub is not None:
        from fuzz.hub import served

        with served(case.hub, scratch):
            return _main(posprobe.cli.main)
    return _main(posprobe.cli.main)


def _main(main: Callable[[], Any]) -> int:
    try:
        with workers_in_this_process():
            main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def manifest(scratch: Path) -> dict[str, str]:
    """Describe every file below a folder; the cache is left out."""
    entries = {}
    for parent, folders, files in os.walk(scratch):
        if Path(parent) == scratch:
            folders[:] = [name for name in folders if name not in ("cache", "hub")]
        for name in (*folders, *files):
            path = Path(parent, name)
            entries[os.fsdecode(os.fsencode(path.relative_to(scratch)))] = _describe(path)
    return entries


def _describe(path: Path) -> str:
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode):
        return f"link {path.readlink()}"
    if stat.S_ISDIR(info.st_mode):
        return "folder"
    if not stat.S_ISREG(info.st_mode):
        return f"special {info.st_mode:o}"
    if info.st_blocks * 512 < info.st_size // 2 or not os.access(path, os.R_OK):
        return f"file {info.st_mode:o} {info.st_size} {info.st_mtime_ns}"
    return f"file {info.st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def _tail(path: Path) -> bytes:
    try:
        return path.read_bytes()[: 4 * 2**20]
    except FileNotFoundError:
        return b""


def _remove(folder: Path) -> None:
    def mend(_: object, path: str, __: object) -> None:
        with suppress(OSError):
            Path(path).parent.chmod(0o700)
            Path(path).chmod(0o700)
            Path(path).unlink()

    shutil.rmtree(folder, onerror=mend)
