"""References, ``SOURCE[@REVISION][#TABLE]``, with which users name tables."""

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
from posprobe.readers import READER_SUFFIXES

#: Owner or name, as the Hub's client checks it: it neither begins nor ends with a dot or hyphen,
#: and has no doubled ones.
_HUB_NAME = r"(?![\w.-]*(?:--|\.\.))(?=[^/]{1,96}(?:/|$))\w(?:[\w.-]*\w)?"
_HUB_ID = re.compile(rf"(?!.*\.git$){_HUB_NAME}(/{_HUB_NAME})?", re.ASCII)


#: A path of Windows: from a drive, or with a backslash, which no name on the Hub has.
_WINDOWS_PATH = re.compile(r"[A-Za-z]:[\\/].*|[^:]*\\.*", re.DOTALL)


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
        return _path_exists(self.source)

    @property
    def path(self) -> Path:
        """Path of the source, if it is a file or folder."""
        return local_path(self.source)


def parse_reference(reference: str | os.PathLike[str]) -> Reference:
    """Split a reference into source, revision and table name.

    An existing path takes precedence over every other interpretation, even with ``@`` and ``#`` in
    its name.

    Raises
    ------
    UnknownReference
        If the text is neither an existing path, nor a sample, a formula or a Hub id.
    UsageError
        If it is neither a string nor a path.
    """
    text = os.fspath(reference) if isinstance(reference, os.PathLike) else reference
    if not isinstance(text, str):
        raise UsageError(
            "a reference is text or a path, not "
            f"{type(reference).__name__}: a name such as 'gpt2', or the "
            "path of a file or folder. For an array in memory use "
            "posprobe.table(x)."
        )
    if not text.strip():
        raise UnknownReference(
            "The reference is empty. Give a path, a Hub id or sample:NAME."
        )
    if _path_exists(text):
        return Reference(text, text)
    head, hash_sign, table = text.rpartition("#")
    if not hash_sign:
        head, table = text, ""
    source, at_sign, revision = head.partition("@")
    if _path_exists(head):
        source, at_sign, revision = head, "", ""
    if (hash_sign and not table) or (at_sign and not revision):
        raise UnknownReference(
            f"{text}: nothing follows "
            f"{'#' if hash_sign and not table else '@'}. Write "
            "SOURCE[@REVISION][#TABLE], such as "
            "openai/whisper-tiny#decoder."
        )
    if "://" in source:
        raise UnknownReference(
            f"{text}: a web address is not a reference. For a model on the "
            "Hub give its name, NAME or OWNER/NAME; download any other "
            "file first."
        )
    parsed = Reference(text, source, revision or None, table or None)
    if parsed.is_path or (":" in source and not _WINDOWS_PATH.fullmatch(source)):
        if revision:
            raise UnknownReference(
                f"{text}: only Hub repositories have revisions. Leave out @{revision}."
            )
        return parsed
    _check_hub_id(text, source)
    return parsed


#: Hint for a reference that resembles no sample and no formula.
_NO_DOWNLOAD_HINT = " `posprobe list samples` lists what needs no download."


def _check_hub_id(text: str, source: str) -> None:
    """Refuse what can be neither a Hub id nor the path of something that exists."""
    if (
        source.endswith(READER_SUFFIXES)
        or source.startswith((".", "/", "~"))
        or source.count("/") > 1
        or _WINDOWS_PATH.fullmatch(source)
    ):
        raise UnknownReference(
            f"{source}: no such file or folder.{did_you_mean(source) or ' Check the path.'}"
        )
    if not _HUB_ID.fullmatch(source):
        raise UnknownReference(
            f"{text}: neither a path that exists nor a Hub id (NAME or OWNER/NAME)."
            f"{did_you_mean(source) or _NO_DOWNLOAD_HINT}"
        )


def local_path(text: str) -> Path:
    """Return the path that a text names, with a leading ``~`` expanded as in shells.

    The ``~`` in ``./~t.npy`` is not expanded, although `Path` would drop the ``./`` before it.
    """
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - `Path` has dropped the ./ already
    return path.absolute() if str(path).startswith("~") else path


def did_you_mean(source: str, candidates: Iterable[str] = ()) -> str:
    """Suggest files or ``candidates`` with names similar to one that does not exist.

    Returns
    -------
    str
        Question to end a message with; empty if nothing is similar.
    """
    similar = get_close_matches(source, candidates)
    with suppress(
        OSError, ValueError, RuntimeError
    ):  # unreadable, a NUL byte, no such home
        path = Path(source)
        while not path.parent.expanduser().is_dir():
            path = path.parent
        siblings = [entry.name for entry in path.parent.expanduser().iterdir()]
        similar += [
            str(path.with_name(name)) for name in get_close_matches(path.name, siblings)
        ]
    suggestions = " or ".join(f"`{name}`" for name in similar if name != source)
    return f" Did you mean {suggestions}?" if suggestions else ""


@contextmanager
def name_source_in_errors(source: str) -> Iterator[None]:
    """Begin error messages with the reference, as files of many checkpoints share a name."""
    try:
        yield
    except (InvalidCheckpoint, InvalidTable, MissingExtra, NoPositionTable) as error:
        message, path = str(error.args[0]), local_path(source)
        names = {source, str(path), str(path.absolute())}
        prefixes = tuple(f"{name}{delimiter}" for name in names for delimiter in ":/@# ")
        if not message.startswith(prefixes):
            error.args = (f"{source}: {message.removeprefix(f'{path.name}: ')}",)
        raise


def _path_exists(text: str) -> bool:
    try:
        return text != "" and local_path(text).exists()
    except (OSError, ValueError):  # too long, a NUL byte
        return False
