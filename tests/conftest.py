"""Two tiers of tests; in CI, a skip is a failure unless hardware is missing."""

from __future__ import annotations

import codecs
import os
import re
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

# Small products gain nothing from threads, and lose much where workers share the cores.
os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1"))

# Archives need this codec. A first look-up while a test makes files unreadable would fail, and
# Python would remember the failure.
codecs.lookup("cp437")

# Properties are tried on few fixed examples without a deadline, so that slow machines pass.
settings.register_profile(
    "tests", max_examples=25, deadline=None, derandomize=True, database=None
)
settings.load_profile("tests")

#: Modules of tests that import these, or helpers that do, belong to the slow tier as a whole.
MODEL_IMPORTS = re.compile(
    r"^(?:import|from) (?:timm|transformers|onnx|nbclient|registry|tiny_models|made_models"
    r"|made_family_checks|made_forward)\b",
    re.MULTILINE,
)
#: Modules that analyse and draw whole bundles or large tables, wait for servers, or draw many
#: tables: they belong to the slow tier too, so that the quick one takes less than a minute.
SLOW_MODULES = {
    "test_additive_model", "test_analyses_identities", "test_answers", "test_atlas",
    "test_bridging", "test_budget", "test_bundle",
    "test_bundle_replacement", "test_cli", "test_cli_errors",
    "test_cli_figure", "test_cli_processes", "test_comparison", "test_devices",
    "test_environments", "test_examples", "test_figures",
    "test_first_screen", "test_foreign_text", "test_frame",
    "test_grids", "test_hostile_contexts", "test_hub", "test_hub_failures", "test_large_tables",
    "test_nulls", "test_paper_figures", "test_platforms", "test_probes",
    "test_relations", "test_report_page", "test_research_table", "test_resizing_effects",
    "test_rotary_weights", "test_scheme_report", "test_scheme_verdict",
    "test_series", "test_stretches", "test_sweep",
}  # fmt: skip
#: Modules of tests that use these are left out where the system is not POSIX.
POSIX_NAMES = re.compile(
    r"\b(?:import (?:fcntl|resource)|os\.mkfifo|os\.geteuid|signal\.SIGKILL"
    r"|(?:import|from) (?:made_hub|hub_server|limits))\b"
)
#: Skips whose reason contains this word are allowed in CI.
HARDWARE_REASON = "CUDA"


def _no_skip_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not (report.skipped and os.environ.get("CI")) or hasattr(report, "wasxfail"):
        return
    reason = (
        report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    )
    if HARDWARE_REASON not in reason:
        report.outcome = "failed"
        report.longrepr = f"Nothing is skipped in CI, and this was: {reason}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the slow tests as well")


def pytest_configure(config: pytest.Config) -> None:
    # Shells start background jobs with Ctrl-C ignored, which child processes would inherit.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Naming files or tests selects both tiers; xdist passes the option to its workers.
    if not hasattr(config, "workerinput"):
        config.option.all |= config.args_source is not config.ArgsSource.TESTPATHS


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave whole modules out of the fast tier, before they import anything."""
    if collection_path.suffix != ".py":
        return None
    source = collection_path.read_text("utf-8")
    if not hasattr(os, "mkfifo") and POSIX_NAMES.search(source):
        return True
    slow = collection_path.stem in SLOW_MODULES or MODEL_IMPORTS.search(source)
    return True if slow and not config.option.all else None


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    excluded_marks = {"slow"} if not config.option.all else set()
    excluded_marks |= set() if os.environ.get("POSPROBE_REAL") else {"real"}
    deselected = [
        item
        for item in items
        if excluded_marks & {marker.name for marker in item.iter_markers()}
    ]
    items[:] = [item for item in items if item not in deselected]
    config.hook.pytest_deselected(items=deselected)


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """Run a test on the CPU, and on a GPU where there is one."""
    import torch

    name: str = request.param
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device is there")
    return name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _no_skip_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[
    None, pytest.CollectReport, pytest.CollectReport
]:
    report = yield
    _no_skip_in_ci(report)
    return report
