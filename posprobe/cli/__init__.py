"""The command line: each command reads its arguments, calls the library and prints."""

from __future__ import annotations

import errno
import gc
import logging
import sys
import warnings

import typer

from posprobe.cli.analyze import analyze
from posprobe.cli.compare import compare
from posprobe.cli.extract import extract
from posprobe.cli.figure import figure
from posprobe.cli.forward import forward
from posprobe.cli.inspect import inspect
from posprobe.cli.lists import families, samples
from posprobe.cli.report import report
from posprobe.errors import PosprobeError

_EPILOG = (
    "REF is SOURCE[@REVISION][#TABLE]: a path, a Hub id such as gpt2, sample:NAME, or a formula "
    "such as sinusoidal:512x768. Exit codes: 0 done, 2 wrong usage, 3 reference not found or not "
    "reached, 4 checkpoint not readable, 5 no position table, 1 a bug."
)

#: What stdout says when there is no room for it; any other unforeseen OSError is a bug.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

app = typer.Typer(
    name="posprobe",
    help="Show what a trained transformer has learned about position.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help starts in half the time that rich needs.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (analyze, compare, figure, forward, inspect, extract, report, samples, families):
    app.command()(command)


def _version(asked: bool) -> None:
    if asked:
        import posprobe

        typer.echo(posprobe.__version__)
        raise typer.Exit


@app.callback()
def _posprobe(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    """Show what a trained transformer has learned about position."""


def main() -> None:
    """Run the command line and turn failures into a message and an exit code."""
    # A command is over before garbage could fill memory, and drawing makes a great many objects.
    gc.set_threshold(100_000)
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    if not debug:
        # Libraries warn of what our own messages explain, or of what no user can change.
        warnings.simplefilter("ignore")
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        app([part for part in arguments if part != "--debug"], prog_name="posprobe")
    except PosprobeError as error:
        _fail(str(error), error.exit_code, debug)
    except SystemExit as ended:
        # Whoever read our output has seen enough; typer calls that a failure.
        if isinstance(ended.__context__, BrokenPipeError):
            sys.exit(0)
        raise
    except MemoryError as error:
        _fail(f"out of memory ({error}). Analyse fewer positions with --rows A:B.", 1, debug)
    except Exception as error:  # noqa: BLE001 - a bug must not look like a result
        if isinstance(error, OSError) and error.errno in _FULL:
            _fail(f"the output cannot be written ({error.strerror}). Make room.", 2, debug)
        hint = "" if debug else " Run again with --debug and report the traceback."
        _fail(f"a bug: {type(error).__name__}: {error}.{hint}", 1, debug)


def _fail(message: str, code: int, debug: bool) -> None:
    if debug:
        import traceback

        traceback.print_exc()
    print(f"posprobe: {message}", file=sys.stderr)
    sys.exit(code)
