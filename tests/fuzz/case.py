"""A case: what lies in a folder, and the command that is run there. All of it is data."""

from __future__ import annotations

import base64
import json
import os
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

#: What must come of a case; ``any`` leaves it to what the case's other fields ask for.
Expected: TypeAlias = Literal["any", "accepted", "error"]


@dataclass(frozen=True)
class Case:
    """One hostile input.

    Parameters
    ----------
    what
        What is hostile about it.
    argv
        The words after ``posprobe``.
    files
        What lies in the working folder beforehand, by path.
    special
        What is no plain file: path to ``folder``, ``fifo``, ``absent``, ``link TARGET`` or
        ``sparse SIZE``.
    base
        ``bundle`` puts a small sound bundle at ``bundle/`` before the files.
    read
        File and tensor that the format's own package reads as well; its numbers are expected in
        ``out.npy``. Of several files, named ``a|b``, those of any one.
    block
        Whether posprobe may leave out rows at either end of what the package reads.
    outputs
        What a command that succeeds may write or replace.
    expected
        Whether it must be accepted or refused.
    hub
        Repositories and faults of a hub that the command talks to.
    env
        Changes of the environment.
    """

    what: str
    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    special: Mapping[str, str] = field(default_factory=dict)
    base: str = ""
    read: tuple[str, str] | None = None
    block: bool = False
    outputs: tuple[str, ...] = ()
    expected: Expected = "any"
    hub: Mapping[str, Any] | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def lay_out(self, folder: Path, bundle: Path) -> None:
        """Write the files into an empty folder."""
        if self.base == "bundle":
            copy(bundle, folder / "bundle")
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for name, kind in self.special.items():
            _make_special(folder / name, kind)

    def to_json(self) -> dict[str, Any]:
        """Describe the case by what is not as usual; `from_json` makes it again."""
        files = {name: _pack(content) for name, content in self.files.items()}
        fields = {name: _plain(value) for name, value in vars(self).items()} | {
            "files": files
        }
        non_empty = {
            name: value for name, value in fields.items() if value and value != "any"
        }
        return {"what": self.what, **non_empty}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Case:
        """Make a case from its description."""
        fields: dict[str, Any] = {**document, "hub": _bytes(document.get("hub"))}
        for name in {"argv", "outputs", "read"} & set(document):
            fields[name] = tuple(document[name])
        fields["files"] = {
            name: _unpack(text) for name, text in document.get("files", {}).items()
        }
        return cls(**fields)


def copy(source: Path, target: Path) -> None:
    """Copy a folder of plain files."""
    for path in source.rglob("*"):
        place = target / path.relative_to(source)
        if path.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())


def _make_special(path: Path, kind: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    word, _, arguments = kind.partition(" ")
    if word in ("absent", "folder", "fifo", "link") and (
        path.exists() or path.is_symlink()
    ):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if word == "folder":
        path.mkdir()
    elif word == "fifo":
        os.mkfifo(path)
    elif word == "link":
        path.symlink_to(arguments)
    elif word == "sparse":
        with path.open("ab") as stream:
            stream.truncate(int(arguments))


def _pack(content: bytes) -> str:
    try:
        text = content.decode("utf-8")
    except ValueError:
        text = "\0"
    if len(text) < 4000 and all(c.isprintable() or c in "\n\t" for c in text):
        return f"text:{text}"
    return "zlib:" + base64.b85encode(zlib.compress(content, 9)).decode()


def _unpack(text: str) -> bytes:
    kind, _, content = text.partition(":")
    return (
        content.encode() if kind == "text" else zlib.decompress(base64.b85decode(content))
    )


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": _pack(value)}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _bytes(value: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"bytes"}:
            return _unpack(value["bytes"])
        return {key: _bytes(part) for key, part in value.items()}
    return [_bytes(part) for part in value] if isinstance(value, list) else value


def save(case: Case, kind: str, path: Path, **details: object) -> None:
    """Write a case as a file that reproduces it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"class": kind, **details, **case.to_json()}
    path.write_text(json.dumps(document, indent=1) + "\n", "ascii")


def load(path: Path) -> tuple[str, Case]:
    """Read a file that `save` wrote: the class and the case."""
    document = json.loads(path.read_text("ascii"))
    kind = document.pop("class")
    for key in ("reason", "seed"):
        document.pop(key, None)
    return kind, Case.from_json(document)
