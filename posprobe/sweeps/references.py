"""References to sweep, from arguments, lists, folders of checkpoints, and revisions.

The other columns of a list are kept with its references.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from posprobe.errors import UnknownReference, UsageError
from posprobe.opening import open_regular
from posprobe.readers import READER_SUFFIXES, WEIGHT_FILES
from posprobe.reference import local_path, parse_reference

#: The column of a list that holds the references.
REFERENCE_COLUMN = "reference"
#: Size limit of a file of references, in bytes.
MAX_LIST_BYTES = 2**26
#: Number of bytes of a configuration that are searched for its model type.
MAX_SEARCHED_CONFIG_BYTES = 2**20
#: Files of a training run that have the suffix of a checkpoint but hold no weights.
_NO_WEIGHTS = re.compile(
    r"^(training_args|optimizer|scheduler|scaler|rng_state|random_states)"
)
#: Words before the number of a training step in the name of a revision.
_STEP_PATTERN = re.compile(
    r"(?:step|iter|iteration|checkpoint|ckpt|epoch)s?[-_ ]?(\d{1,15})", re.IGNORECASE
)
_NUMBER_PATTERN = re.compile(r"\d{1,15}")


@dataclass(frozen=True)
class Entry:
    """A reference of a sweep, with the columns of the user's list.

    ``location`` names the line of the list, for error messages.
    """

    reference: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    location: str = field(default="", compare=False)


def drop_repeated(entries: Iterable[Entry]) -> list[Entry]:
    """Keep the first of several entries with the same reference.

    Raises
    ------
    UsageError
        If their columns differ, as a reference has one value per column.
    """
    entries_by_reference: dict[str, Entry] = {}
    for entry in entries:
        first_entry = entries_by_reference.setdefault(entry.reference, entry)
        if first_entry.columns != entry.columns:
            differences = first_entry.columns.items() ^ entry.columns.items()
            names = sorted({name for name, _ in differences})
            raise UsageError(
                f"{first_entry.location} and {entry.location}: both are "
                f"{entry.reference!r}, and their columns differ: "
                f"{', '.join(map(repr, names[:8]))}. Keep one of them: a "
                "reference is analysed once, and has one set of columns."
            )
    return list(entries_by_reference.values())


# --- files ------------------------------------------------------------------------------------


def read_list(content: bytes, name: str) -> list[Entry]:
    """Read a list of references: text with one on each line, or CSV with a header.

    The suffix of the name decides between them, or else the first line. In text, empty lines and
    lines that begin with ``#`` are skipped.

    Parameters
    ----------
    content
        Content of the file, in UTF-8.
    name
        Name of the file, for its suffix and for messages.

    Raises
    ------
    UsageError
        If it cannot be read as such a list; the message names the line.
    """
    if len(content) > MAX_LIST_BYTES:
        raise UsageError(
            f"{name}: it has more than {MAX_LIST_BYTES} bytes. Split the list."
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UsageError(
            f"{name}, line {line}: not UTF-8 text. Save it as UTF-8."
        ) from error
    lines = [line.strip() for line in text.splitlines()]
    first_line = next(filter(None, lines), "")
    header = [cell.strip(' "') for cell in first_line.split(",")]
    if name.lower().endswith(".csv") or REFERENCE_COLUMN in header:
        entries = list(_parse_csv(text, name))
    else:
        entries = [
            Entry(line, location=f"{name}, line {number}")
            for number, line in enumerate(lines, 1)
            if line and not line.startswith("#")
        ]
    if not entries:
        raise UsageError(f"{name}: contains no references.")
    return [expanded for entry in entries for expanded in expand_folder(entry)]


def _parse_csv(text: str, name: str) -> Iterator[Entry]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [cell.strip() for cell in next(rows, [])]
        if (
            REFERENCE_COLUMN not in header
            or "" in header
            or len(set(header)) < len(header)
        ):
            names = ", ".join(map(repr, header[:8])) or "nothing"
            raise UsageError(
                f"{name}: its first line names {names}. Name each column "
                f"once, and one of them {REFERENCE_COLUMN!r}, with commas "
                "between them."
            )
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            location = f"{name}, line {rows.line_num}"
            if len(row) != len(header):
                raise UsageError(
                    f"{location}: it has {len(row)} fields, the header {len(header)}."
                )
            # An empty cell is a missing value, whatever the type of its column.
            cells = zip(header, row, strict=True)
            yield _make_entry(
                {column: cell for column, cell in cells if cell.strip()}, location
            )
    except csv.Error as error:
        raise UsageError(
            f"{name}, line {rows.line_num}: not valid CSV ({error})."
        ) from error


def _make_entry(record: Mapping[str, Any], location: str) -> Entry:
    reference = record.get(REFERENCE_COLUMN)
    if isinstance(reference, os.PathLike):
        reference = os.fspath(reference)
    if not isinstance(reference, str) or not reference.strip():
        raise UsageError(f"{location}: it has no {REFERENCE_COLUMN!r}.")
    columns = {}
    for name, value in record.items():
        if (
            name == REFERENCE_COLUMN or value is None or value != value
        ):  # NaN is missing, too
            continue
        is_number = isinstance(value, float) or (
            isinstance(value, int) and abs(value) < 2**63
        )
        if not isinstance(name, str) or not (is_number or isinstance(value, str)):
            raise UsageError(
                f"{location}: {name!r} is {value!r:.40}. A column holds "
                "text, or numbers of at most 18 digits: write it as one of "
                "them, or leave it out."
            )
        columns[name] = value
    return Entry(reference.strip(), columns, location)


# --- folders ----------------------------------------------------------------------------------


def expand_folder(entry: Entry) -> list[Entry]:
    """Replace a folder by the checkpoints in it and below it, in the order of their numbers.

    A folder without checkpoints and any other reference stay as they are.
    """
    try:
        folder = local_path(entry.reference)
        if not folder.is_dir():
            return [entry]
        checkpoints = sorted(_find_checkpoints(folder), key=_natural_key)
    except (OSError, ValueError):
        return [entry]
    return [replace(entry, reference=str(path)) for path in checkpoints] or [entry]


def _iterate_folders(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield folder, subfolders and files like `os.walk`; linked folders come last, each once."""
    visited_folders: set[str] = set()
    pending_folders = [str(root)]
    while pending_folders:
        start = pending_folders.pop(0)
        for directory, folders, files in os.walk(start):
            resolved_path = os.path.realpath(directory)
            if (
                resolved_path in visited_folders
            ):  # a link that leads back, or a second one
                folders.clear()
                continue
            visited_folders.add(resolved_path)
            folders.sort()
            paths = (Path(directory, name) for name in folders)
            pending_folders += [str(path) for path in paths if path.is_symlink()]
            yield directory, folders, files


def _find_checkpoints(folder: Path) -> Iterator[Path]:
    for directory, folders, files in _iterate_folders(folder):
        weights = [
            name
            for name in files
            if name in WEIGHT_FILES
            or (name.endswith(READER_SUFFIXES) and not _NO_WEIGHTS.match(name))
        ]
        if not weights:
            # By itself this folder would be a failure with a reason, so it is not skipped here.
            if not folders and "config.json" in files and _states_model(Path(directory)):
                yield Path(directory)
            continue
        if len(weights) == 1 or any(
            weights_name in files for weights_name in WEIGHT_FILES
        ):
            yield Path(directory)
        else:
            yield from (Path(directory, name) for name in weights)


def _states_model(folder: Path) -> bool:
    """Tell whether a configuration is that of a model, not of a module such as a pooling."""
    path = folder / "config.json"
    try:
        with open_regular(path) as file:
            return b'"model_type"' in file.read(MAX_SEARCHED_CONFIG_BYTES)
    except OSError:
        return False


def _natural_key(path: Path) -> list[tuple[int, str]]:
    """Return a sort key that puts checkpoint-500 before checkpoint-1000."""
    chunks = re.split(r"(\d{1,15}|/)", path.as_posix())
    return [(int(chunk), "") if chunk.isdecimal() else (-1, chunk) for chunk in chunks]


# --- revisions --------------------------------------------------------------------------------


def parse_step(name: str) -> int | None:
    """Parse the training step in a name: the number after "step" and the like, or the last one."""
    step = parse_counted_step(name)
    numbers = _NUMBER_PATTERN.findall(name)
    return step if step is not None else int(numbers[-1]) if numbers else None


def parse_counted_step(name: str) -> int | None:
    """Parse the step in a name that counts steps, such as checkpoint-400; None for other names."""
    matched = _STEP_PATTERN.search(name)
    return int(matched[1]) if matched else None


def list_revisions(reference: str, pattern: str) -> list[Entry]:
    """List a repository's revisions as references, in the order of their steps.

    Parameters
    ----------
    reference
        ``NAME`` or ``OWNER/NAME``, with ``#TABLE`` where it holds several.
    pattern
        Pattern with ``*`` and ``?`` of the names of branches and tags, and of the first line of
        commit messages on the main branch (such as ``Training in progress, step 500``).

    Returns
    -------
    list
        Entries with the columns ``revision`` and, if the name has a number, ``step``; each commit
        is listed once.

    Raises
    ------
    UsageError
        If the reference is not a repository, names a revision, or nothing matches.
    UnknownReference, Unreachable
        As `posprobe.checkpoints.transfer.request_patiently`.
    """
    parsed = parse_reference(reference)
    if parsed.is_path or ":" in parsed.source or parsed.revision:
        raise UsageError(
            f"{reference}: `revisions` lists those of one Hub repository: OWNER/NAME."
        )
    from posprobe.checkpoints.transfer import list_revisions

    names = list_revisions(parsed.source)
    names_by_commit: dict[str, str] = {}
    for name, commit in names:
        if fnmatchcase(name, pattern):
            names_by_commit.setdefault(commit, name)
    if not names_by_commit:
        examples = ", ".join(repr(name) for name, _ in names[:8])
        raise UsageError(
            f"{parsed.source}: no revision matches {pattern!r}. It has {examples}."
        )
    table = f"#{parsed.table}" if parsed.table else ""
    entries = []
    for commit, name in names_by_commit.items():
        step = parse_step(name)
        columns = {"revision": name} | ({} if step is None else {"step": step})
        entries.append(
            Entry(f"{parsed.source}@{commit}{table}", columns, f"revision {name!r}")
        )
    # A name without a number, such as the main branch, is the end of the training.
    final_step = max((entry.columns.get("step", 0) for entry in entries), default=0) + 1
    return sorted(entries, key=lambda entry: entry.columns.get("step", final_step))


def gather(
    references: Sequence[str | os.PathLike[str] | Mapping[str, Any] | Entry],
    revisions: str | None,
    *,
    offline: bool,
) -> list[Entry]:
    """Turn references, mappings and folders into entries, without removing repeated ones.

    Folders stand for the checkpoints below them; entries are kept as they are.

    Raises
    ------
    UsageError
        If there are none, a mapping has no reference, or a column is neither text nor a number.
    PosprobeError
        As `list_revisions`.
    """
    if not references:
        raise UsageError(
            "there is nothing to sweep. Name references, a folder, or a file that lists them."
        )
    if revisions is None:
        return [
            entry
            for numbered in enumerate(references, 1)
            for entry in _expand_reference(*numbered)
        ]
    if len(references) != 1 or not isinstance(references[0], str):
        raise UsageError("`revisions` takes exactly one reference: a Hub repository.")
    if offline:
        raise UsageError(
            "`revisions` asks the Hub, and `offline` forbids it. Leave one out."
        )
    return list_revisions(references[0], revisions)


def _expand_reference(
    number: int, reference: str | os.PathLike[str] | Mapping[str, Any] | Entry
) -> list[Entry]:
    if isinstance(reference, Entry):
        return [reference]
    if isinstance(reference, Mapping):
        return expand_folder(_make_entry(reference, f"record {number}"))
    return expand_folder(Entry(os.fspath(reference), location=f"reference {number}"))


def read_file(path: Path) -> list[Entry]:
    """Read a list of references from a file, as `read_list` does.

    Raises
    ------
    UnknownReference
        If there is no such file.
    UsageError
        As `read_list`; also if it is not a file or cannot be read.
    """
    try:
        with open_regular(path, MAX_LIST_BYTES) as file:
            return read_list(file.read(), str(path))
    except FileNotFoundError as error:
        raise UnknownReference(f"{path}: no such file. Check the path.") from error
    except OSError as error:
        raise UsageError(
            f"{path}: it cannot be read ({error.strerror}). A text file or "
            "CSV that lists references is expected."
        ) from error
