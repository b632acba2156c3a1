"""The command line: each command reads its arguments, calls the library and prints."""

from __future__ import annotations

import errno
import gc
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from posprobe.cli.analyze import (
    analyze,
    extract,
    families,
    inspect,
    list_names,
    report,
    samples,
)
from posprobe.cli.compare import check, compare, nearest
from posprobe.cli.figure import figure
from posprobe.cli.models import forward, resize
from posprobe.cli.options import Command, Group, add_options
from posprobe.cli.process import (
    discard_output,
    guard_streams,
    print_message,
    received_signals,
    stop_on_signals,
)
from posprobe.cli.sweep import sweep, table
from posprobe.errors import OUT_OF_MEMORY_EXIT_CODE, PosprobeError, UsageError
from posprobe.progress import show_stages
from posprobe.text import escape_invisible, shorten_message

_EPILOG = (
    "REF is SOURCE[@REVISION][#TABLE]: a path, a Hub id such as gpt2, "
    "sample:NAME, or a formula such as sinusoidal:512x768. Exit codes: 0 "
    "done, 2 wrong usage, 3 reference not found or not reached, 4 "
    "checkpoint not readable, 5 no position table or encoding, 6 and 7 of "
    "check: different, cannot tell; 8 out of memory, 1 a bug, 130 and 143 "
    "stopped by SIGINT and SIGTERM."
)

#: Errors of a full disk, quota or file size limit on stdout; other unforeseen OSErrors are bugs.
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: Base class of usage errors; found by name, since typer may bundle click under another module.
_WrongUsage: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

app = typer.Typer(
    name="posprobe",
    cls=Group,
    help="Show what a trained transformer has learned about position.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
#: Commands by purpose, in the order of the help.
PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "Look": {
        "analyze": analyze,
        "inspect": inspect,
        "figure": figure,
        "list": list_names,
    },
    "Compare": {
        "compare": compare,
        "check": check,
        "nearest": nearest,
        "sweep": sweep,
        "table": table,
    },
    "Models": {"forward": forward, "resize": resize},
    "Files": {"extract": extract, "report": report},
}
for panel, commands in PANELS.items():
    for name, command in commands.items():
        app.command(name, cls=Command, rich_help_panel=panel)(add_options(name, command))
# Former names of `list`.
for hidden_command in (samples, families):
    app.command(hidden=True)(add_options(hidden_command.__name__, hidden_command))


def _version(is_requested: bool) -> None:
    if is_requested:
        import posprobe

        typer.echo(posprobe.__version__)
        raise typer.Exit


@app.callback()
def _posprobe(
    version: bool = typer.Option(  # noqa: ARG001 - its callback answers it
        False,
        "--version",
        callback=_version,
        is_eager=True,
        help="Print the version and exit.",
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    """Show what a trained transformer has learned about position."""
    if debug:
        return
    import logging

    # Warnings of libraries repeat our own messages or concern what no user can change.
    warnings.simplefilter("ignore")
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    logging.raiseExceptions = False


def main() -> None:
    """Run the command line and turn failures into a message and an exit code."""
    # A command ends before garbage fills memory, and drawing creates a great many objects.
    gc.set_threshold(100_000)
    with guard_streams(), stop_on_signals():
        try:
            code = _run(sys.argv[1:])
        except (KeyboardInterrupt, SystemExit):
            # The signal arrived while a failure was printed.
            code = 130
    # A library may turn a signal's exception into another error, or lose it in a callback.
    code = 128 + received_signals[0] if received_signals else code
    if code in (130, 143):
        print_message("posprobe: stopped.")
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    debug = "--debug" in arguments
    # The option may also stand after the command's name.
    ordered_arguments = ["--debug"] * debug + [
        argument for argument in arguments if argument != "--debug"
    ]
    try:
        with show_stages("--quiet" not in ordered_arguments):
            code: int | None = app(
                ordered_arguments, prog_name="posprobe", standalone_mode=False
            )
        sys.stdout.flush()
    except PosprobeError as error:
        return _print_failure(str(error), error.exit_code, debug)
    except KeyboardInterrupt:
        return 130
    except SystemExit as exit_error:
        # The reader of our output closed the pipe, which typer calls a failure.
        if isinstance(exit_error.__context__, BrokenPipeError):
            return 0
        return exit_error.code if isinstance(exit_error.code, int) else 1
    except BrokenPipeError:
        discard_output(sys.stdout)
        return 0
    except _WrongUsage as error:
        return _print_usage_error(error)
    except Exception as error:  # noqa: BLE001 - a bug must not look like a result
        if received_signals:
            return 130
        if isinstance(error, OSError) and error.errno in _DISK_FULL_ERRNOS:
            discard_output(sys.stdout)
            return _print_failure(
                f"the output cannot be written ({error.strerror}). Make room.", 2, debug
            )
        if _is_out_of_memory(error):
            cause = error or type(error).__name__
            message = f"out of memory ({cause}). Analyse fewer positions with"
            return _print_failure(
                f"{message} --rows A:B.", OUT_OF_MEMORY_EXIT_CODE, debug
            )
        if isinstance(error, FileNotFoundError) and not _has_working_directory():
            message = "the working directory was deleted. Run it in one that exists."
            return _print_failure(message, UsageError.exit_code, debug)
        hint = "" if debug else " Run again with --debug and report the traceback."
        return _print_failure(f"a bug: {type(error).__name__}: {error}.{hint}", 1, debug)
    return code or 0


def _is_out_of_memory(error: Exception) -> bool:
    """Tell whether an error of Python, NumPy or PyTorch means that memory ran out."""
    if isinstance(error, MemoryError):
        return True
    from posprobe.forward.running import is_out_of_memory

    return isinstance(error, RuntimeError) and is_out_of_memory(error)


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _print_usage_error(error: Any) -> int:
    """Print a usage error as click does, with control characters of the arguments escaped."""
    context = getattr(error, "ctx", None)
    if context is None or type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return int(error.exit_code)
    for line in context.get_usage().split("\n"):
        print_message(escape_invisible(line))
    print_message(f"Try '{context.command_path} -h' for help.\n")
    print_message(f"Error: {shorten_message(error.format_message())}")
    return int(error.exit_code)


def _print_failure(message: str, code: int, debug: bool) -> int:
    if debug:
        import traceback

        for line in traceback.format_exc().rstrip("\n").split("\n"):
            print_message(escape_invisible(line))
    print_message(f"posprobe: {shorten_message(message)}")
    return code
