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
from posprobe.cli.options import Command, Group, declared
from posprobe.cli.process import drop, received, say, signals, streams
from posprobe.cli.sweep import sweep, table
from posprobe.errors import OUT_OF_MEMORY_EXIT_CODE, PosprobeError, UsageError
from posprobe.progress import show_stages
from posprobe.text import brief, plain

_EPILOG = (
    "REF is SOURCE[@REVISION][#TABLE]: a path, a Hub id such as gpt2, sample:NAME, or a formula "
    "such as sinusoidal:512x768. Exit codes: 0 done, 2 wrong usage, 3 reference not found or not "
    "reached, 4 checkpoint not readable, 5 no position table or encoding, 6 and 7 of check: "
    "different, cannot tell; 8 out of memory, 1 a bug, 130 and 143 stopped by SIGINT and SIGTERM."
)

#: What stdout says when there is no room for it; any other unforeseen OSError is a bug.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: Of the package that typer is made of, by whatever name it has there.
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
#: Commands by what they are for, in the order of the help.
PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "Look": {"analyze": analyze, "inspect": inspect, "figure": figure, "list": list_names},
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
        app.command(name, cls=Command, rich_help_panel=panel)(declared(name, command))
# What `list` was called before.
for old in (samples, families):
    app.command(hidden=True)(declared(old.__name__, old))


def _version(asked: bool) -> None:
    if asked:
        import posprobe

        typer.echo(posprobe.__version__)
        raise typer.Exit


@app.callback()
def _posprobe(
    version: bool = typer.Option(  # noqa: ARG001 - its callback answers it
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    """Show what a trained transformer has learned about position."""
    if debug:
        return
    import logging

    # Libraries warn of what our own messages explain, or of what no user can change.
    warnings.simplefilter("ignore")
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    logging.raiseExceptions = False


def main() -> None:
    """Run the command line and turn failures into a message and an exit code."""
    # A command is over before garbage could fill memory, and drawing makes a great many objects.
    gc.set_threshold(100_000)
    with streams(), signals():
        try:
            code = _run(sys.argv[1:])
        except (KeyboardInterrupt, SystemExit):
            # The signal came while a failure was told.
            code = 130
    # A signal may come as another error, where a library was at work, or be lost in a callback.
    code = 128 + received[0] if received else code
    if code in (130, 143):
        say("posprobe: stopped.")
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    debug = "--debug" in arguments
    # It may stand behind the command's name too.
    given = ["--debug"] * debug + [part for part in arguments if part != "--debug"]
    try:
        with show_stages("--quiet" not in given):
            code: int | None = app(given, prog_name="posprobe", standalone_mode=False)
        sys.stdout.flush()
    except PosprobeError as error:
        return _failed(str(error), error.exit_code, debug)
    except KeyboardInterrupt:
        return 130
    except SystemExit as ended:
        # Whoever read our output has seen enough; typer calls that a failure.
        if isinstance(ended.__context__, BrokenPipeError):
            return 0
        return ended.code if isinstance(ended.code, int) else 1
    except BrokenPipeError:
        drop(sys.stdout)
        return 0
    except _WrongUsage as error:
        return _usage(error)
    except Exception as error:  # noqa: BLE001 - a bug must not look like a result
        if received:
            return 130
        if isinstance(error, OSError) and error.errno in _FULL:
            drop(sys.stdout)
            return _failed(f"the output cannot be written ({error.strerror}). Make room.", 2, debug)
        if _is_out_of_memory(error):
            said = f"out of memory ({error or type(error).__name__}). Analyse fewer positions with"
            return _failed(f"{said} --rows A:B.", OUT_OF_MEMORY_EXIT_CODE, debug)
        if isinstance(error, FileNotFoundError) and not _is_somewhere():
            said = "the working directory was deleted. Run it in one that exists."
            return _failed(said, UsageError.exit_code, debug)
        hint = "" if debug else " Run again with --debug and report the traceback."
        return _failed(f"a bug: {type(error).__name__}: {error}.{hint}", 1, debug)
    return code or 0


def _is_out_of_memory(error: Exception) -> bool:
    """Tell whether memory ran out, as Python, NumPy or PyTorch say it."""
    if isinstance(error, MemoryError):
        return True
    from posprobe.forward.running import is_out_of_memory

    return isinstance(error, RuntimeError) and is_out_of_memory(error)


def _is_somewhere() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _usage(error: Any) -> int:
    """Say what is wrong with the arguments, which may hold anything."""
    context = getattr(error, "ctx", None)
    if context is None or type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return int(error.exit_code)
    for line in context.get_usage().split("\n"):
        say(plain(line))
    say(f"Try '{context.command_path} -h' for help.\n")
    say(f"Error: {brief(error.format_message())}")
    return int(error.exit_code)


def _failed(message: str, code: int, debug: bool) -> int:
    if debug:
        import traceback

        for line in traceback.format_exc().rstrip("\n").split("\n"):
            say(plain(line))
    say(f"posprobe: {brief(message)}")
    return code
