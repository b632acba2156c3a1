"""One exception class per failure that a user can meet.

Every message says what went wrong, where (file, tensor, shape) and what to do next. The command
line prints the message and exits with ``exit_code``; anything else that is raised is a bug.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from posprobe.text import escape_invisible

#: Exit code when memory ran out, which has no error class of its own.
OUT_OF_MEMORY_EXIT_CODE = 8


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
        """Return the message; quoted names are printable (`posprobe.text.escape_invisible`)."""
        return escape_invisible(super().__str__())


class UsageError(PosprobeError):
    """An argument or option cannot mean anything, such as ``--rows 9:3``."""

    exit_code = 2


class AmbiguousTable(UsageError):
    """The checkpoint holds several position tables and the reference picks none of them."""


class OutputError(UsageError):
    """The results cannot be written to the requested path."""


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


def check_installed(package: str, extra: str, subject: str) -> None:
    """Refuse to continue without a package.

    Raises
    ------
    MissingExtra
        If it is not installed; the message names the extra of posprobe that installs it.
    """
    if find_spec(package) is None:
        raise MissingExtra(
            f"{subject} needs {package}, which is not installed. Run `uv sync --extra {extra}`."
        )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, at most 300 letters, or else its class."""
    message = (
        str(getattr(error, "strerror", None) or error).strip() or type(error).__name__
    )
    return message.splitlines()[0][:300]


@contextmanager
def explain_errors(
    error_class: type[PosprobeError],
    subject: str,
    advice: str = "",
    *expected: type[Exception],
) -> Iterator[None]:
    """Turn errors of other libraries into one clear error of posprobe.

    Parameters
    ----------
    error_class
        Class of the error to raise.
    subject
        The file or model, and the failure.
    advice
        Next step for the user.
    expected
        Errors to replace; without any, all that are not `PosprobeError`, Rust panics included.

    Raises
    ------
    PosprobeError
        Instance of ``error_class`` in place of an expected error.
    """
    caught_classes = expected or (Exception,)
    try:
        yield
    except PosprobeError:
        raise
    except BaseException as error:
        if isinstance(error, caught_classes) or (is_panic(error) and not expected):
            raise error_class(
                f"{subject} ({first_line(error)}). {advice}".rstrip()
            ) from error
        raise


def is_panic(error: BaseException) -> bool:
    """Tell whether an error is a panic of a Rust library, which is no `Exception` in Python."""
    return type(error).__module__ == "pyo3_runtime"
