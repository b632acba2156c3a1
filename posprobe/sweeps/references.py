"""What to sweep: references from arguments, lists, folders of checkpoints, and revisions.

A list may have columns of the user's own, which its references keep.
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
from posprobe.readers import SUFFIXES, WEIGHTS
from posprobe.reference import local_path, parse_reference

#: The column of a list that holds the references.
REFERENCE = "reference"
#: Longest file of references, in bytes.
LONGEST_LIST = 2**26
#: Bytes of a configuration in which its model is looked for.
LONGEST_CONFIG = 2**20
#: Files beside a training run's weights that have a checkpoint's suffix and are none.
_NO_WEIGHTS = re.compile(r"^(training_args|optimizer|scheduler|scaler|rng_state|random_states)")
#: How the names of revisions count steps.
_STEP = re.compile(
    r"(?:step|iter|iteration|checkpoint|ckpt|epoch)s?[-_ ]?(\d{1,15})", re.IGNORECASE
)
_NUMBER = re.compile(r"\d{1,15}")


@dataclass(frozen=True)
class Entry:
    """A reference of a sweep, with what the user's own list says of it.

    ``where`` names the place of the list that says so.
    """

    reference: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    where: str = field(default="", compare=False)


def once(entries: Iterable[Entry]) -> list[Entry]:
    """Keep the first of entries with the same reference.

    Raises
    ------
    UsageError
        If their columns differ: a reference has one row of them.
    """
    found: dict[str, Entry] = {}
    for entry in entries:
        first = found.setdefault(entry.reference, entry)
        if first.columns != entry.columns:
            names = sorted({name for name, _ in first.columns.items() ^ entry.columns.items()})
            raise UsageError(
                f"{first.where} and {entry.where}: both are {entry.reference!r}, and their columns "
                f"differ: {', '.join(map(repr, names[:8]))}. Keep one of them: a reference is "
                "analysed once, and has one set of columns."
            )
    return list(found.values())


# --- files ------------------------------------------------------------------------------------


def read_list(content: bytes, name: str) -> list[Entry]:
    """Read a list of references: text with one on each line, or CSV with a header.

    Which of them it is follows from the ending of the name, or else from the first line. In text,
    empty lines and lines that begin with ``#`` are left out.

    Parameters
    ----------
    content
        UTF-8.
    name
        Of the file, for messages and its ending.

    Raises
    ------
    UsageError
        If it cannot be read as such a list; the message names the line.
    """
    if len(content) > LONGEST_LIST:
        raise UsageError(f"{name}: it has more than {LONGEST_LIST} bytes. Split the list.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UsageError(f"{name}, line {line}: not UTF-8 text. Save it as UTF-8.") from error
    lines = [line.strip() for line in text.splitlines()]
    first = next(filter(None, lines), "")
    if name.lower().endswith(".csv") or REFERENCE in (
        part.strip(' "') for part in first.split(",")
    ):
        found = list(_csv(text, name))
    else:
        found = [
            Entry(line, where=f"{name}, line {number}")
            for number, line in enumerate(lines, 1)
            if line and not line.startswith("#")
        ]
    if not found:
        raise UsageError(f"{name}: contains no references.")
    return [below_one for entry in found for below_one in below(entry)]


def _csv(text: str, name: str) -> Iterator[Entry]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [part.strip() for part in next(rows, [])]
        if REFERENCE not in header or "" in header or len(set(header)) < len(header):
            names = ", ".join(map(repr, header[:8])) or "nothing"
            raise UsageError(
                f"{name}: its first line names {names}. Name each column once, and one of them "
                f"{REFERENCE!r}, with commas between them."
            )
        for row in rows:
            if not any(part.strip() for part in row):
                continue
            where = f"{name}, line {rows.line_num}"
            if len(row) != len(header):
                raise UsageError(f"{where}: it has {len(row)} fields, the header {len(header)}.")
            # A field without content says nothing, of whichever type its column is.
            yield _entry({k: v for k, v in zip(header, row, strict=True) if v.strip()}, where)
    except csv.Error as error:
        raise UsageError(f"{name}, line {rows.line_num}: not valid CSV ({error}).") from error


def _entry(record: Mapping[str, Any], where: str) -> Entry:
    reference = record.get(REFERENCE)
    if isinstance(reference, os.PathLike):
        reference = os.fspath(reference)
    if not isinstance(reference, str) or not reference.strip():
        raise UsageError(f"{where}: it has no {REFERENCE!r}.")
    columns = {}
    for name, value in record.items():
        if name == REFERENCE or value is None or value != value:  # NaN says nothing, too
            continue
        number = isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)
        if not isinstance(name, str) or not (number or isinstance(value, str)):
            raise UsageError(
                f"{where}: {name!r} is {value!r:.40}. A column holds text, or numbers of at most "
                "18 digits: write it as one of them, or leave it out."
            )
        columns[name] = value
    return Entry(reference.strip(), columns, where)


# --- folders ----------------------------------------------------------------------------------


def below(entry: Entry) -> list[Entry]:
    """Replace a folder by the checkpoints in it and below it, in the order of their numbers.

    A folder that holds none, and whatever is not a folder, stays what it is.
    """
    try:
        folder = local_path(entry.reference)
        if not folder.is_dir():
            return [entry]
        found = sorted(_checkpoints(folder), key=_natural)
    except (OSError, ValueError):
        return [entry]
    return [replace(entry, reference=str(path)) for path in found] or [entry]


def _checkpoints(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders.sort()
        weights = [
            name
            for name in files
            if name in WEIGHTS or (name.endswith(SUFFIXES) and not _NO_WEIGHTS.match(name))
        ]
        if not weights:
            # Named alone it would be a failure that says why: it must not be passed over here.
            if not folders and "config.json" in files and _states_model(Path(place)):
                yield Path(place)
            continue
        if len(weights) == 1 or any(known in files for known in WEIGHTS):
            yield Path(place)
        else:
            yield from (Path(place, name) for name in weights)


def _states_model(folder: Path) -> bool:
    """Tell whether a configuration is that of a model, and not of a part such as a pooling."""
    path = folder / "config.json"
    try:
        with open_regular(path) as file:
            return b'"model_type"' in file.read(LONGEST_CONFIG)
    except OSError:
        return False


def _natural(path: Path) -> list[tuple[int, str]]:
    """Order by numbers in names: checkpoint-500 before checkpoint-1000."""
    parts = re.split(r"(\d{1,15}|/)", path.as_posix())
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


# --- revisions --------------------------------------------------------------------------------


def step_of(name: str) -> int | None:
    """Read the step of training off a name: the number after "step" and the like, or the last."""
    counted = counted_step(name)
    numbers = _NUMBER.findall(name)
    return counted if counted is not None else int(numbers[-1]) if numbers else None


def counted_step(name: str) -> int | None:
    """Read the step off a name that says that it counts steps, such as checkpoint-400."""
    counted = _STEP.search(name)
    return int(counted[1]) if counted else None


def revisions_of(reference: str, pattern: str) -> list[Entry]:
    """List a repository's revisions as references, in the order of their steps.

    Parameters
    ----------
    reference
        ``NAME`` or ``OWNER/NAME``, with ``#TABLE`` where it holds several.
    pattern
        With ``*`` and ``?``: which branches and tags, by name, and which commits of the main
        branch, by the first line of their message (such as ``Training in progress, step 500``).

    Returns
    -------
    list
        Entries with the columns ``revision`` and, where the name has a number, ``step``. What leads
        to the same commit is listed once.

    Raises
    ------
    UsageError
        If the reference is not a repository, names a revision, or nothing matches.
    UnknownReference, Unreachable
        As `posprobe.checkpoints.transfer.patiently`.
    """
    parsed = parse_reference(reference)
    if parsed.is_path or ":" in parsed.source or parsed.revision:
        raise UsageError(f"{reference}: --revisions lists those of one Hub repository: OWNER/NAME.")
    from posprobe.checkpoints.transfer import all_revisions

    names = all_revisions(parsed.source)
    chosen: dict[str, str] = {}
    for name, commit in names:
        if fnmatchcase(name, pattern):
            chosen.setdefault(commit, name)
    if not chosen:
        shown = ", ".join(repr(name) for name, _ in names[:8])
        raise UsageError(f"{parsed.source}: no revision matches {pattern!r}. It has {shown}.")
    table = f"#{parsed.table}" if parsed.table else ""
    found = []
    for commit, name in chosen.items():
        step = step_of(name)
        columns = {"revision": name} | ({} if step is None else {"step": step})
        found.append(Entry(f"{parsed.source}@{commit}{table}", columns, f"revision {name!r}"))
    # What has no number, such as the main branch, is where training ended.
    last = max((entry.columns.get("step", 0) for entry in found), default=0) + 1
    return sorted(found, key=lambda entry: entry.columns.get("step", last))


def gather(
    references: Sequence[str | os.PathLike[str] | Mapping[str, Any] | Entry],
    revisions: str | None,
    *,
    offline: bool,
) -> list[Entry]:
    """Read what was asked for, each reference as often as it was named.

    Folders stand for the checkpoints below them; what was read already is kept.

    Raises
    ------
    UsageError
        If there is nothing, a mapping has no reference, or a column is not text and no number.
    PosprobeError
        As `revisions_of`.
    """
    if not references:
        raise UsageError("there is nothing to sweep. Name references, a folder, or --from FILE.")
    if revisions is None:
        return [one for each in enumerate(references, 1) for one in _entries(*each)]
    if len(references) != 1 or not isinstance(references[0], str):
        raise UsageError("--revisions takes exactly one reference: a Hub repository.")
    if offline:
        raise UsageError("--revisions asks the Hub, and --offline forbids it. Leave one out.")
    return revisions_of(references[0], revisions)


def _entries(number: int, given: str | os.PathLike[str] | Mapping[str, Any] | Entry) -> list[Entry]:
    if isinstance(given, Entry):
        return [given]
    if isinstance(given, Mapping):
        return below(_entry(given, f"record {number}"))
    return below(Entry(os.fspath(given), where=f"reference {number}"))


def read_file(path: Path) -> list[Entry]:
    """Read a list of references from a file, as `read_list` does.

    Raises
    ------
    UnknownReference
        If there is no such file.
    UsageError
        As `read_list`; also where it is not a file or cannot be read.
    """
    try:
        with open_regular(path, LONGEST_LIST) as file:
            return read_list(file.read(), str(path))
    except FileNotFoundError as error:
        raise UnknownReference(f"{path}: no such file. Check the path after --from.") from error
    except OSError as error:
        raise UsageError(
            f"{path}: it cannot be read ({error.strerror}). --from takes a list of references; `-` "
            "is standard input."
        ) from error
