"""Sweeps in processes of their own: killed, interrupted, on Dask, and from a hub that counts."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hub_server import Hub
from made_hub import local_hub
from safetensors.numpy import save as to_bytes
from test_sweep import QUICK, parts, run, save, without_times

import posprobe as pp
from posprobe.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow
MAIN = [sys.executable, "-m", "posprobe"]


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    for seed in range(8):
        save(tmp_path / "c" / str(seed), seed)
    return tmp_path / "c"


@contextmanager
def started(*command: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a process, and see to it that it ends."""
    process = subprocess.Popen(command, text=True, stderr=subprocess.PIPE, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def wait_for(condition: Any) -> None:
    patience = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.002)


def test_a_killed_sweep_resumes_without_repeating_work(
    checkpoints: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "s"
    command = [*MAIN, "sweep", str(checkpoints), "--only", "norms,pca", "--nulls", "0",
               "--jobs", "1", "--out", str(folder)]  # fmt: skip
    times_before: dict[Path, int] = {}
    for sign, min_parts in ((signal.SIGKILL, 1), (signal.SIGINT, 2), (signal.SIGKILL, 4)):
        # At work at least: the run before may have recorded more than was waited for.
        parts_needed = max(min_parts, len(times_before) + 1)
        with started(*command) as process:
            wait_for(
                lambda: (
                    len(parts(folder)) >= parts_needed  # noqa: B023
                    or process.poll() is not None
                )
            )
            process.send_signal(sign)
            stderr = process.communicate()[1]
        if sign == signal.SIGINT and process.returncode:
            assert process.returncode == 128 + sign
            assert "Run the same command again to resume" in stderr
            assert "Traceback" not in stderr
        part_times = {path: path.stat().st_mtime_ns for path in parts(folder)}
        assert times_before.items() <= part_times.items()  # nothing was recorded again
        times_before = part_times
    final_run = run(str(checkpoints), folder)
    assert (final_run["recorded"], final_run["computed"]) == (
        len(times_before),
        8 - len(times_before),
    )
    run(str(checkpoints), tmp_path / "undisturbed")
    assert without_times(pp.read_sweep(folder)) == without_times(
        pp.read_sweep(tmp_path / "undisturbed")
    )


@pytest.mark.skipif(
    sys.platform != "linux", reason="signals of other processes are in /proc"
)
def test_ctrl_c_reaches_no_worker_that_starts_and_would_tell_of_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "list.txt").write_text(
        "\n".join(f"sinusoidal:{n}x8" for n in range(9, 99))
    )
    command = [*MAIN, "sweep", "--from", str(tmp_path / "list.txt"), "--only", "norms", "--nulls",
               "0", "--out", str(tmp_path / "s")]  # fmt: skip

    def blocked() -> list[bool]:
        """Tell of each worker that there is whether it blocks SIGINT."""
        masks = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                status = (place / "status").read_text()
                ours = f"\nPPid:\t{process.pid}\n" in status
                if ours and b"popen_loky" in (place / "cmdline").read_bytes():
                    mask = int(status.partition("\nSigBlk:\t")[2].split()[0], 16)
                    masks.append(bool(mask >> signal.SIGINT - 1 & 1))
        return masks

    with started(*command, start_new_session=True) as process:
        wait_for(lambda: blocked() or process.poll() is not None)
        assert all(blocked())
        os.killpg(process.pid, signal.SIGINT)
        stderr = process.communicate()[1]
    assert process.returncode == 128 + signal.SIGINT
    assert stderr.endswith("Run the same command again to resume.\n")
    assert "Traceback" not in stderr


def end_workers() -> None:
    """End the worker processes, so that the next sweep starts some in the environment of then."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)


def test_relative_references_follow_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers are kept for the next sweep, which may start in another folder."""
    for seed, folder in enumerate(("first", "second")):
        save(tmp_path / folder / "c" / folder, seed)
        monkeypatch.chdir(tmp_path / folder)
        swept = pp.sweep("c", out=tmp_path / f"sweep-of-{folder}", **QUICK).run()
        assert swept.failures() == []
        assert swept.to_arrow()["reference"].to_pylist() == [f"c/{folder}"]


#: Read by every Python that starts: one reference ends its worker.
DEADLY = """
import sys
if "loky" in " ".join(sys.orig_argv):
    import os, posprobe.sweeps.workers as task
    load = task.load_any
    def load_any(reference, **options):
        if reference.endswith("deadly"):
            os.kill(os.getpid(), 9)
        return load(reference, **options)
    task.load_any = load_any
"""


def test_a_dead_worker_costs_only_its_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, name in enumerate(("a", "deadly", "m", "z")):
        save(tmp_path / "c" / name, seed)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(DEADLY)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), *sys.path]))
    end_workers()
    swept = pp.sweep(str(tmp_path / "c"), out=tmp_path / "s", **QUICK)
    try:
        (failure,) = swept.failures()
    finally:
        end_workers()
    assert failure["reference"] == str(tmp_path / "c" / "deadly")
    assert failure["exit_code"] == 1
    assert "its worker ended twice" in failure["message"]

    surviving = [str(tmp_path / "c" / name) for name in ("a", "m", "z")]
    run(surviving, tmp_path / "undisturbed")
    assert without_times(swept.to_arrow()) == without_times(
        pp.read_sweep(tmp_path / "undisturbed")
    )


@contextmanager
def cluster(
    folder: Path, workers: int
) -> Iterator[tuple[str, list[subprocess.Popen[str]]]]:
    """Start a Dask scheduler and workers; give its address, and all processes, it first."""
    place = ["--scheduler-file", str(folder / "scheduler.json"), "--no-dashboard"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", *place, "--nthreads", "1",
              "--no-nanny", "--local-directory", str(folder / "w")]  # fmt: skip
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", *place, "--port", "0",
                 "--host", "127.0.0.1"]  # fmt: skip
    with ExitStack() as stack:
        commands = [scheduler, *[worker] * workers]
        processes = [stack.enter_context(started(*command)) for command in commands]
        scheduler_file = folder / "scheduler.json"
        wait_for(lambda: scheduler_file.exists() and scheduler_file.stat().st_size > 0)
        yield json.loads(scheduler_file.read_text())["address"], processes


def test_dask_gives_equal_results_after_a_killed_worker(
    checkpoints: Path, tmp_path: Path
) -> None:
    run(str(checkpoints), tmp_path / "undisturbed")
    with cluster(tmp_path, workers=2) as (address, (_, first_worker, _)):
        swept = pp.sweep(str(checkpoints), out=tmp_path / "s",
                         **QUICK, scheduler=address)  # fmt: skip
        swept.run(lambda _: first_worker.kill())
    assert swept.failures() == []
    assert without_times(swept.to_arrow()) == without_times(
        pp.read_sweep(tmp_path / "undisturbed")
    )


def test_a_scheduler_that_is_lost_ends_a_sweep_that_can_go_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # Enough of them that the first is told long before the last is computed.
    references = [f"sinusoidal:{n}x64" for n in range(100, 200)]
    with cluster(tmp_path, workers=1) as (address, (scheduler, _)):
        swept = pp.sweep(references, out=tmp_path / "s", scheduler=address)
        with pytest.raises(
            Unreachable, match=r"the scheduler was lost.*goes on from there"
        ):
            swept.run(lambda _: scheduler.kill())
    assert "Traceback" not in capfd.readouterr().err
    (first_part, *_) = (json.loads(part.read_text()) for part in parts(tmp_path / "s"))
    resumed = pp.sweep(first_part["reference"], out=tmp_path / "s", jobs=1).run()
    assert (resumed.about or {})["run"]["computed"] == 0


@pytest.mark.parametrize(
    ("address", "kind", "message"),
    [
        ("tcp://127.0.0.1:1", Unreachable, "no Dask scheduler answers there"),
        ("tcp://x", UsageError, "missing port.*tcp://HOST:8786"),
        ("x://y:1", UsageError, "unknown address scheme"),
    ],
)
def test_a_scheduler_that_is_not_there_is_one_clear_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    kind: type[Exception],
    message: str,
) -> None:
    monkeypatch.setattr("posprobe.sweeps.workers.SCHEDULER_TIMEOUT_SECONDS", 0.3)
    swept = pp.sweep("alibi:8x2", out=tmp_path / "s", scheduler=address)
    with pytest.raises(kind, match=message):
        swept.run()
    gc.collect()  # a client that was left half made would warn of it now


def test_workers_that_do_not_start_are_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("joblib.externals.loky.get_reusable_executor", refused)
    swept = pp.sweep("alibi:8x2", out=tmp_path / "s")
    with pytest.raises(Unreachable, match=r"no worker starts .*no more processes"):
        swept.run()


def test_no_code_of_the_working_directory_is_run(
    tmp_path: Path,
) -> None:
    for name in ("here", "bin", "temporary"):
        (tmp_path / name).mkdir()
    for name in (
        "joblib",
        "numpy",
        "contextlib",
        "multiprocessing",
        "json",
        "distributed",
    ):
        text = f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\n"
        (tmp_path / "here" / f"{name}.py").write_text(text)
    # As an installed command starts, which looks in its own folder and not in the working one.
    command = tmp_path / "bin" / "posprobe"
    command.write_text(
        "if __name__ == '__main__':\n    from posprobe.cli import main\n    main()\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary"),
                   "PYTHONPATH": str(Path(pp.__file__).parents[1])}  # fmt: skip
    environment.pop("PYTHONSAFEPATH", None)
    options = ["--jobs", "2", "--only", "norms", "--out", str(tmp_path / "s")]
    completed = subprocess.run(
        [sys.executable, str(command), "sweep", "sinusoidal:20x8", "sinusoidal:30x8", *options],
        cwd=tmp_path / "here", env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert completed.stdout == "2 references: 2 rows, 0 failures\n", completed.stderr
    assert not (tmp_path / "ran").exists()
    assert not list((tmp_path / "s").rglob(".*"))


# A hub.


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with local_hub(tmp_path, monkeypatch) as server:
        # Workers read from the environment what is patched in this process.
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
        end_workers()
        yield server
        end_workers()


def publish(hub: Hub, name: str, seed: int = 0, **options: Any) -> Any:
    table = np.cumsum(np.random.default_rng(seed).normal(size=(12, 6)), axis=0).astype(
        np.float32
    )
    files = {"config.json": b'{"model_type": "gpt2"}',
             "model.safetensors": to_bytes({"wpe.weight": table})}  # fmt: skip
    return hub.add(name, files, **options)


def test_requests_are_bounded_and_a_second_sweep_asks_for_revisions_only(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import joblib

    monkeypatch.setattr(joblib, "cpu_count", lambda: 3)
    names = [f"someone/m{seed}" for seed in range(8)]
    for seed, name in enumerate(names):
        publish(hub, name, seed)
    publish(hub, "someone/gated", gated=True)
    references = [*names, "someone/gated", "someone/none"]
    hub.slow = 0.02
    first_run = run(references, tmp_path / "s", jobs=3, requests=2)
    assert max(request.n_concurrent for request in hub.requests) == 2
    assert (first_run["rows"], first_run["failures"]) == (8, 2)
    rows = pp.read_sweep(tmp_path / "s").to_pylist()
    assert [row["commit"] for row in rows] == [hub.repos[name].commit for name in names]

    # Bytes are those that `analyze` reads, and all that came: of files so short each byte once.
    sizes = {row["bytes_read"] for row in rows}
    assert sizes == {sum(file.size for file in hub.repos[names[0]].files.values())}
    requested_files = [path.rpartition("/")[2] for path in hub.paths("/m1")]
    hub.forget()
    monkeypatch.setenv("POSPROBE_CACHE", str(tmp_path / "another"))
    pp.load(names[1])
    assert sorted(requested_files) == sorted(
        path.rpartition("/")[2] for path in hub.paths()
    )
    monkeypatch.setenv("POSPROBE_CACHE", str(tmp_path / "own"))

    hub.forget()
    second_run = run(references, tmp_path / "s")
    assert (second_run["recorded"], second_run["computed"]) == (10, 0)
    assert sorted(hub.paths()) == [
        f"/api/models/{name}" for name in ("someone/gated", *names)
    ]
    publish(hub, names[0], 99)
    assert run(references, tmp_path / "s")["computed"] == 1
    commits = pp.read_sweep(tmp_path / "s")["commit"].to_pylist()
    assert commits == [hub.repos[name].commit for name in names]
    hub.forget()
    assert run(references[:8], tmp_path / "s", offline=True)["computed"] == 0
    assert hub.paths() == []


def test_a_hub_that_asks_to_wait_is_obeyed_by_all(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import joblib

    monkeypatch.setattr(joblib, "cpu_count", lambda: 3)
    monkeypatch.setattr("posprobe.checkpoints.transfer.FIRST_WAIT_SECONDS", 0.01)
    names = [f"someone/m{seed}" for seed in range(6)]
    for seed, name in enumerate(names):
        publish(hub, name, seed)
    hub.fail("status", "m2", status=429, times=1, headers={"Retry-After": "1"})
    assert run(names, tmp_path / "s", jobs=3)["failures"] == 0
    refusal = next(request for request in hub.requests if request.status == 429)
    # Those that were under way at that moment were not stopped; nobody began another.
    delays = [
        request.arrived - refusal.arrived
        for request in hub.requests
        if request.arrived > refusal.arrived
    ]
    assert delays
    assert not [gap for gap in delays if 0.3 < gap < 0.9]
    assert max(delays) >= 0.9


def test_revisions_of_a_repository_are_listed_in_the_order_of_steps(
    hub: Hub, tmp_path: Path
) -> None:
    repo = publish(hub, "someone/run")
    steps = {f"step{step}": f"{step:040x}" for step in (1000, 20, 300)}
    repo.revisions |= {**steps, "other": "f" * 40}
    repo.commits[f"{77:040x}"] = "Training in progress, step 77"
    swept = pp.sweep("someone/run", revisions="step*", out=tmp_path / "s", **QUICK)
    assert [dict(entry.columns) for entry in swept.entries] == [
        {"revision": f"step{step}", "step": step} for step in (20, 300, 1000)
    ]
    assert swept.entries[0].reference == f"someone/run@{steps['step20']}"
    (title,) = pp.sweep("someone/run", revisions="Training*", **QUICK).entries
    assert title.columns["step"] == 77
    with pytest.raises(UsageError, match=r"no revision matches 'x'.*'main'"):
        pp.sweep("someone/run", revisions="x", **QUICK)
