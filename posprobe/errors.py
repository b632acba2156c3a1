"""One exception class per failure that a user can meet.

Every message says what went wrong, where (file, tensor, shape) and what to do next. The command
line prints the message and exits with ``exit_code``; anything else that is raised is a bug.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from posprobe.text import plain

#: The exit code where memory ran out, which is nobody's error.
OUT_OF_MEMORY = 8


class PosprobeError(Exception):
    """Base class of all errors that posprobe explains.

    Examples
    --------
    >>> import posprobe as pp
    >>> try:
    ...     pp.load("sample:no-such-sample")
    ... except pp.PosprobeError as error:
    ...     print(str(error).partition(".")[0])
    sample:no-such-sample: no such sample
    """

    exit_code = 1

    def __str__(self) -> str:
        """Return the message; what it quotes is shown by `posprobe.text.plain`."""
        return plain(super().__str__())


class UsageError(PosprobeError):
    """An argument or option cannot mean anything, such as ``--rows 9:3``."""

    exit_code = 2


class AmbiguousTable(UsageError):
    """The checkpoint holds several position tables and the reference picks none of them."""


class OutputError(UsageError):
    """The results cannot be written to where the user asked for them."""


class UnknownReference(PosprobeError):
    """The reference names nothing that exists: no path, no sample, no Hub repository."""

    exit_code = 3


class Unreachable(PosprobeError):
    """The Hub did not deliver: no network, no access, a limit, or an answer that cannot be used."""

    exit_code = 3


class InvalidCheckpoint(PosprobeError):
    """A file of the checkpoint is damaged, unsafe, or not what its name says."""

    exit_code = 4


class MissingExtra(PosprobeError):
    """The file can be read only with packages that the light core does not install."""

    exit_code = 4


class InvalidTable(PosprobeError):
    """The tensor was read, and it is not a table of positions that can be measured."""

    exit_code = 4


class NoPositionTable(PosprobeError):
    """The checkpoint has no table of positions; the message says what it has instead."""

    exit_code = 5


def need(package: str, extra: str, who: str) -> None:
    """Refuse what needs a package that is not installed.

    Raises
    ------
    MissingExtra
        Saying which extra of posprobe installs it.
    """
    if find_spec(package) is None:
        raise MissingExtra(
            f"{who} needs {package}, which is not installed. Run `uv sync --extra {extra}`."
        )


def first_line(error: BaseException) -> str:
    """Return the first 300 letters of what an error says, or its kind where it says nothing."""
    said = str(getattr(error, "strerror", None) or error).strip() or type(error).__name__
    return said.splitlines()[0][:300]


@contextmanager
def explained(
    kind: type[PosprobeError], what: str, advice: str = "", *expected: type[Exception]
) -> Iterator[None]:
    """Tell what others' code raises as one clear error of ours.

    Parameters
    ----------
    kind
        Of the error.
    what
        The file or model, and what went wrong.
    advice
        What to do next.
    expected
        Errors that mean this; without any all that are not ours, those of Rust included.

    Raises
    ------
    PosprobeError
        Of that kind, in place of one of them.
    """
    kinds = expected or (Exception,)
    try:
        yield
    except PosprobeError:
        raise
    except BaseException as error:
        if isinstance(error, kinds) or (is_panic(error) and not expected):
            raise kind(f"{what} ({first_line(error)}). {advice}".rstrip()) from error
        raise


def is_panic(error: BaseException) -> bool:
    """Tell whether a library written in Rust broke off, which is no `Exception` in Python."""
    return type(error).__module__ == "pyo3_runtime"
