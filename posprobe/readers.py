"""The file formats that can be read, from ``readers.toml``.

This module imports no reader. Local files, folders, repositories of the Hub, error messages and the
documentation use its records. Another package adds a format through the entry point group
`READER_GROUP`; its `Reader` is loaded only if none of these reads a file.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from posprobe.data import read_data

#: Entry points of other packages that name a `Reader`.
READER_GROUP = "posprobe.readers"
#: Number of bytes at the start of a file that determine its format.
N_MAGIC_BYTES = 16

_log = logging.getLogger("posprobe")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Reader:
    """A file format: how its files are recognised and opened.

    Parameters
    ----------
    name
        Common name of the format.
    suffixes
        Endings of file names; none for a format that is known by the names under ``weights``.
    opener
        ``module:function`` of what opens one file: it takes `posprobe.checkpoints.files.Files`,
        which give its bytes on disk and on the Hub, and the file's name, and returns a
        `posprobe.checkpoints.Checkpoint`. The module is imported when a file is opened.
    weights
        Names that libraries save a whole model under, best first.
    magic
        Possible first bytes of such a file. They decide between readers of one suffix, and without
        a suffix that is one format's alone.
    magic_offset
        Number of bytes before them.
    packages
        Modules that the reader imports and the core does not install.
    extra
        Extra of posprobe that installs them; empty for a reader of another package.
    own_name_only
        Whether such a file is read only if the user names it: a ``.csv`` in a folder need not hold
        weights.
    shares_suffixes
        Whether its suffixes are in use for other formats too, so that the first bytes decide.
    """

    name: str
    suffixes: tuple[str, ...]
    opener: str
    weights: tuple[str, ...] = ()
    magic: tuple[bytes, ...] = ()
    packages: tuple[str, ...] = ()
    extra: str = ""
    own_name_only: bool = False
    magic_offset: int = 0
    shares_suffixes: bool = False

    def __post_init__(self) -> None:
        has_names = self.suffixes or self.weights
        if not has_names or not all(suffix.startswith(".") for suffix in self.suffixes):
            raise ValueError(
                f"{self.name}: suffixes begin with a dot, such as .safetensors."
            )
        module, _, function = self.opener.partition(":")
        if not all(map(str.isidentifier, (*module.split("."), function))):
            raise ValueError(
                f"{self.name}: the opener {self.opener!r} is not a module:function."
            )


def _build_reader(*, magic: tuple[str, ...] = (), **entry: Any) -> Reader:
    return Reader(magic=tuple(text.encode("latin-1") for text in magic), **entry)


#: Formats in order of preference: a folder's weights are read in the first format that it has.
READERS = tuple(_build_reader(**entry) for entry in read_data("readers.toml")["readers"])
#: File names that libraries save a model under.
WEIGHT_FILES = tuple(name for reader in READERS for name in reader.weights)
#: Endings of all files that can be read; a shard index lists several files of one format.
READER_SUFFIXES = (
    *(suffix for reader in READERS for suffix in reader.suffixes),
    ".index.json",
)


def choose_reader(name: str, first_bytes: bytes = b"") -> Reader | None:
    """Choose the reader of a file by its name and first bytes.

    Parameters
    ----------
    name
        Name of the file.
    first_bytes
        First `N_MAGIC_BYTES` bytes of the file; empty if they were not read.
    """
    for readers in iter_readers():
        matching = [
            reader
            for reader in readers
            if name.endswith(reader.suffixes) or name in reader.weights
        ]
        are_decisive = matching and not any(reader.shares_suffixes for reader in matching)
        for reader in matching if are_decisive else readers:
            if _has_magic(first_bytes, reader):
                return reader
        if (
            matching
        ):  # a long suffix such as .weights.h5 is more specific than a short one
            return max(matching, key=lambda reader: len(_longest_suffix(name, reader)))
    return None


def _has_magic(first_bytes: bytes, reader: Reader) -> bool:
    start = first_bytes[reader.magic_offset :]
    return bool(start) and any(map(start.startswith, reader.magic))


def needs_start(name: str) -> bool:
    """Tell whether a file's first bytes are needed to choose its reader."""
    matching = [reader for reader in READERS if name.endswith(reader.suffixes)]
    is_one = len(matching) == 1 and not matching[0].shares_suffixes
    return not is_one and name not in WEIGHT_FILES


def iter_readers() -> Iterator[tuple[Reader, ...]]:
    """Yield the readers of this package, then those of other packages, loaded on demand."""
    yield READERS
    yield load_added_readers()


def list_suffixes(readers: Iterable[Reader]) -> tuple[str, ...]:
    """Return the endings of files that hold a model's weights."""
    return tuple(
        s for reader in readers if not reader.own_name_only for s in reader.suffixes
    )


def _longest_suffix(name: str, reader: Reader) -> str:
    return max((s for s in reader.suffixes if name.endswith(s)), key=len, default=name)


@functools.cache
def load_added_readers() -> tuple[Reader, ...]:
    """Load the readers of other installed packages; this searches all packages."""
    return tuple(load_entry_points(READER_GROUP, Reader))


def load_entry_points(group: str, expected_type: type[_T]) -> Iterator[_T]:
    """Load the objects of other installed packages in an entry point group, in order of names.

    An object that cannot be loaded or has another type is skipped with a warning: one broken
    package must not prevent everything else from being read.
    """
    points = importlib.metadata.entry_points(group=group)
    for point in sorted(points, key=lambda point: (point.name, point.value)):
        try:
            loaded = point.load()
        except Exception as error:  # noqa: BLE001 - any code of another package
            _log.warning(
                "%s: the entry point %s = %s cannot be loaded and was left out (%s: %s)",
                group,
                point.name,
                point.value,
                type(error).__name__,
                error,
            )
            continue
        if isinstance(loaded, expected_type):
            yield loaded
        else:
            _log.warning(
                "%s: the entry point %s = %s is a %s and no %s, and was left out",
                group,
                point.name,
                point.value,
                type(loaded).__name__,
                expected_type.__name__,
            )


def load_opener(opener: str) -> Callable[..., Any]:
    """Import the function that opens a reader's files.

    Raises
    ------
    ImportError, AttributeError
        If a reader of another package names a module or function that does not exist.
    """
    module, _, function = opener.partition(":")
    opener_function: Callable[..., Any] = getattr(
        importlib.import_module(module), function
    )
    return opener_function
