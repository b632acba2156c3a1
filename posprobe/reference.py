"""``SOURCE[@REVISION][#TABLE]``: how a user names a table."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from posprobe.errors import (
    InvalidCheckpoint,
    InvalidTable,
    MissingExtra,
    NoPositionTable,
    UnknownReference,
    UsageError,
)
from posprobe.readers import SUFFIXES

#: As the Hub's client checks it: no part begins or ends with a dot or hyphen, none is doubled.
_PART = r"(?![\w.-]*(?:--|\.\.))(?=[^/]{1,96}(?:/|$))\w(?:[\w.-]*\w)?"
_HUB_ID = re.compile(rf"(?!.*\.git$){_PART}(/{_PART})?", re.ASCII)


@dataclass(frozen=True)
class Reference:
    """A parsed reference; ``text`` is what the user typed."""

    text: str
    source: str
    revision: str | None = None
    table: str | None = None

    @property
    def is_path(self) -> bool:
        """Whether the source is a file or folder that exists."""
        return _exists(self.source)

    @property
    def path(self) -> Path:
        """Where the source lies, if it is a file or folder."""
        return local_path(self.source)


def parse_reference(given: str | os.PathLike[str]) -> Reference:
    """Split a reference into source, revision and table name.

    A path that exists wins over every other reading, ``@`` and ``#`` in its name included.

    Raises
    ------
    UnknownReference
        If the text is neither a path that exists, nor a sample, a formula or a Hub id.
    UsageError
        If it is not text and no path.
    """
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(text, str):
        raise UsageError(
            f"a reference is text or a path, not {type(given).__name__}: a name such as 'gpt2', or "
            "the path of a file or folder. For an array in memory use posprobe.table(x)."
        )
    if not text.strip():
        raise UnknownReference("The reference is empty. Give a path, a Hub id or sample:NAME.")
    if _exists(text):
        return Reference(text, text)
    head, mark, table = text.rpartition("#")
    if not mark:
        head, table = text, ""
    source, at, revision = head.partition("@")
    if _exists(head):
        source, at, revision = head, "", ""
    if (mark and not table) or (at and not revision):
        raise UnknownReference(
            f"{text}: nothing follows {'#' if mark and not table else '@'}. "
            "Write SOURCE[@REVISION][#TABLE], such as openai/whisper-tiny#decoder."
        )
    if "://" in source:
        raise UnknownReference(
            f"{text}: a web address is not a reference. For a model on the Hub give its name, "
            "NAME or OWNER/NAME; download any other file first."
        )
    reference = Reference(text, source, revision or None, table or None)
    if reference.is_path or ":" in source:
        if revision:
            raise UnknownReference(
                f"{text}: only Hub repositories have revisions. Leave out @{revision}."
            )
        return reference
    if source.endswith(SUFFIXES) or source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise UnknownReference(
            f"{source}: no such file or folder.{did_you_mean(source) or ' Check the path.'}"
        )
    if not _HUB_ID.fullmatch(source):
        raise UnknownReference(
            f"{text}: neither a path that exists nor a Hub id (NAME or OWNER/NAME)."
            f"{did_you_mean(source) or ' `posprobe list samples` lists what needs no download.'}"
        )
    return reference


def local_path(text: str) -> Path:
    """Return the path that a text names; as in shells a home stands where ``~`` comes first.

    In ``./~t.npy`` it does not, and `Path` would forget what stood before it.
    """
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - of a text, for that reason
    return path.absolute() if str(path).startswith("~") else path


def did_you_mean(source: str, others: Iterable[str] = ()) -> str:
    """Ask whether a name that leads nowhere means a file beside it or one of ``others``.

    Returns
    -------
    str
        A question to end a message with; empty where nothing is similar.
    """
    near = get_close_matches(source, others)
    with suppress(OSError, ValueError, RuntimeError):  # unreadable, a NUL byte, no such home
        path = Path(source)
        while not path.parent.expanduser().is_dir():
            path = path.parent
        there = [entry.name for entry in path.parent.expanduser().iterdir()]
        near += [str(path.with_name(name)) for name in get_close_matches(path.name, there)]
    asked = " or ".join(f"`{name}`" for name in near if name != source)
    return f" Did you mean {asked}?" if asked else ""


@contextmanager
def named_in_errors(source: str) -> Iterator[None]:
    """Begin what is said of a checkpoint with its reference: files of many have the same name."""
    try:
        yield
    except (InvalidCheckpoint, InvalidTable, MissingExtra, NoPositionTable) as error:
        said, path = str(error.args[0]), local_path(source)
        names = {source, str(path), str(path.absolute())}
        if not said.startswith(tuple(f"{name}{mark}" for name in names for mark in ":/@# ")):
            error.args = (f"{source}: {said.removeprefix(f'{path.name}: ')}",)
        raise


def _exists(text: str) -> bool:
    try:
        return text != "" and local_path(text).exists()
    except (OSError, ValueError):  # too long, a NUL byte
        return False
