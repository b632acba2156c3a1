"""Parameters of Python, which the library's messages name, as options of a command."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from posprobe.errors import PosprobeError

#: Parameters whose option has another name.
_OPTIONS_BY_PARAMETER = {
    "all_layers": "--all",
    "most": "--limit",
    "positions": "--rows",
}

#: Values of Python, and what separates their items after an option.
_SEPARATORS_BY_FORM = {
    r"slice\((.*)\)": ":",
    r"\((.*)\)": "x",
    r"\[(.*)\]": ",",
}

#: A parameter in a message, alone or with its value; or the rows that are kept of a table.
_PARAMETER = re.compile(r"`(\w+)(?:=([^`]+)|\[([^`]+)\])?`")


#: Options of the command that runs, such as ``--grid``.
_command_flags: set[str] = set()


@contextmanager
def command_options(flags: Iterable[str]) -> Iterator[None]:
    """Run a command whose options are ``flags``, and name them in its errors."""
    _command_flags.clear()
    # ``--on/--off`` are two.
    _command_flags.update(name for flag in flags for name in flag.split("/"))
    try:
        yield
    except PosprobeError as error:
        error.args = (name_options(str(error)),)
        raise
    finally:
        _command_flags.clear()


def name_options(message: str) -> str:
    """Name the command's options where a message of the library names parameters.

    Parameters stand in backticks, such as ``grid=(14, 14)`` or ``table[1:]``; those that are no
    option of the command stay as they are.
    """

    def name_option(match: re.Match[str]) -> str:
        name, value, rows = match.groups()
        if rows is not None:
            flag, text = "--rows" if name == "table" else "", rows
        else:
            flag = _OPTIONS_BY_PARAMETER.get(name, f"--{name.replace('_', '-')}")
            text = _format_value(value or "")
        return f"{flag} {text}".rstrip() if flag in _command_flags else match[0]

    return _PARAMETER.sub(name_option, message)


def _format_value(value: str) -> str:
    """Write a value of Python as it is typed after an option; True is the option alone."""
    if value == "True":
        return ""
    if value[:1] in "'\"":
        return value[1:-1]
    for form, separator in _SEPARATORS_BY_FORM.items():
        if match := re.fullmatch(form, value):
            return str(match[1]).replace("None", "").replace(", ", separator)
    return value
