"""What a pickle would cost to read, told from its instructions before any of them is carried out.

PyTorch's ``weights_only`` keeps a pickle from running code, not from taking all time or memory: a
key of nested tuples that share their parts takes 2^40 steps to hash, and ``bytearray(n)`` takes n
bytes. So the instructions are followed here without making what they describe.
"""

from __future__ import annotations

import mmap
import pickletools
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any, cast

from posprobe.checkpoints.base import MAX_UNPACKED
from posprobe.errors import InvalidCheckpoint

#: How an archive of PyTorch begins, and how many pickles stand at the beginning of older files.
_ZIP, _OLD_PICKLES = b"PK\x03\x04", 5
#: Values that are hashed, copied or compared in all, and levels of tuples, at most; a state dict
#: of 100,000 tensors needs a million.
_MOST_STEPS, _DEPTH = 50_000_000, 100
#: Encodings that make no more of a text than it is.
_ENCODINGS = {"latin1", "latin-1", "ascii", "utf-8", "utf8"}
_PUT, _GET = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}
#: What else pickles can hold: lists, mappings and whatever calls return.
_OTHER = object()


@dataclass(frozen=True)
class _Tuple:
    """A tuple; ``leaves`` counts what is in it as if nothing were shared."""

    items: tuple[Any, ...]
    leaves: int
    depth: int


def refuse_costly(path: Path) -> None:
    """Refuse a PyTorch file whose pickle would take all time or memory.

    What is no sound pickle is passed over: PyTorch refuses it where this stops.

    Raises
    ------
    InvalidCheckpoint
        If it hashes, copies or asks for more than any checkpoint does.
    """
    for content in _pickles(path):
        try:
            why = _excess(content)
        except (ValueError, LookupError):
            return
        if why:
            raise InvalidCheckpoint(
                f"{path.name}: its pickle {why}, which no state dict does and which could take all "
                "time or memory. It was not loaded: use the checkpoint in safetensors, or from "
                "elsewhere."
            )


def _pickles(path: Path) -> Iterator[IO[bytes]]:
    """Yield the pickles of a file, told from other formats as PyTorch does."""
    with path.open("rb") as stream:
        archive = stream.read(4) == _ZIP
        if archive and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as members:
                for member in members.infolist():
                    # PyTorch looks for this name whatever its case.
                    if member.filename.lower().endswith("data.pkl"):
                        with members.open(member) as content:
                            yield BytesIO(content.read(MAX_UNPACKED))
        elif not archive and path.stat().st_size:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                for _ in range(_OLD_PICKLES):
                    yield cast("IO[bytes]", mapped)


def _excess(pickle: IO[bytes]) -> str:
    """Follow the instructions of a pickle; say what it does in excess, or nothing."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}
    steps = held = asked = 0
    for opcode, argument, _ in pickletools.genops(pickle):
        if opcode.name in _PUT:
            memo[argument] = stack[-1]
            continue
        if opcode.name == "MARK":
            marks.append(len(stack))
            continue
        taken = _take(opcode, stack, marks)
        made = argument if opcode.arg else _OTHER
        match opcode.name:
            case name if name in _GET:
                made = memo[argument]
            case "EMPTY_TUPLE" | "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                made = _tuple(taken)
                if made.depth > _DEPTH:
                    return f"nests tuples deeper than {_DEPTH} levels"
            case "APPEND" | "APPENDS" | "SETITEM" | "SETITEMS":
                held += sum(map(_leaves, taken))
                steps += sum(map(_leaves, taken))
            case "BINPERSID":
                steps += _leaves(taken[0])
            case "BUILD":
                steps += held if taken[1] is _OTHER else 0
            case "REDUCE" | "NEWOBJ":
                called, made = taken
                if not isinstance(called, str) or not isinstance(made, _Tuple):
                    return "calls what has no name"
                function = called.rpartition(" ")[2]
                steps += made.leaves
                if function == "encode" and not _ENCODINGS.issuperset(made.items[1:]):
                    return "encodes text in an unusual way"
                if not function.startswith("_rebuild"):  # of which each tensor needs some
                    asked += sum(item for item in made.items if type(item) is int and item > 0)
                    if any(item is _OTHER or isinstance(item, _Tuple) for item in made.items):
                        steps += held
        if steps > _MOST_STEPS:
            return "hashes or copies too much"
        if asked > MAX_UNPACKED:
            return f"asks for {asked} bytes by their number alone"
        stack += [made] * len(opcode.stack_after)
    return ""


def _take(opcode: pickletools.OpcodeInfo, stack: list[Any], marks: list[int]) -> list[Any]:
    """Take what an instruction consumes off the stack."""
    before = opcode.stack_before
    if pickletools.markobject in before:  # and what lies on it
        start = marks.pop() - before.index(pickletools.markobject)
    else:
        start = len(stack) - len(before)
    if start < 0:
        raise IndexError
    taken = stack[start:]
    del stack[start:]
    return taken


def _tuple(items: list[Any]) -> _Tuple:
    leaves = sum(map(_leaves, items))
    depth = max((item.depth for item in items if isinstance(item, _Tuple)), default=0)
    return _Tuple(tuple(items), leaves, depth + 1)


def _leaves(item: Any) -> int:
    return item.leaves + 1 if isinstance(item, _Tuple) else 1
