"""Pickles of PyTorch files, followed without making what they describe.

PyTorch's ``weights_only`` keeps a pickle from running code, not from taking all time or memory: a
key of nested tuples that share their parts takes 2^40 steps to hash, and ``bytearray(n)`` takes n
bytes. So the instructions are followed first. The same pass names the classes that PyTorch does not
read: `make_stand_in` makes a class for each, which keeps its arguments and does nothing, so that a
date or a path beside the weights does not cost the weights.
"""

from __future__ import annotations

import mmap
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO, Any, ClassVar, cast

from posprobe.checkpoints.checkpoint import MAX_UNPACKED_BYTES
from posprobe.errors import InvalidCheckpoint

#: First bytes of an archive of PyTorch.
ARCHIVE_MAGIC = b"PK\x03\x04"
#: Number of pickles at the beginning of PyTorch's legacy files.
_N_LEGACY_PICKLES = 5
#: Largest number of values that a pickle may hash, copy or compare; a state dict of 100,000 tensors
#: needs a million.
_MAX_PICKLE_STEPS = 50_000_000
#: Largest number of nested tuples.
_MAX_TUPLE_DEPTH = 100
#: Numbers that a pickle may leave out when it stores values by number: readers make a list of as
#: many, and writers leave out none.
_MAX_UNUSED_NUMBERS = 2**20
#: Encodings whose output is not much longer than the text.
_PLAIN_ENCODINGS = {"latin1", "latin-1", "ascii", "utf-8", "utf8"}
#: Instructions that store a value in the memo, and that read one.
_PUT_OPCODES = {"PUT", "BINPUT", "LONG_BINPUT"}
_GET_OPCODES = {"GET", "BINGET", "LONG_BINGET"}
#: Instructions that fill an object on the stack, by the kind of object that can be filled so.
_FILLING_OPCODES = {
    "APPEND": "list",
    "APPENDS": "list",
    "SETITEM": "mapping",
    "SETITEMS": "mapping",
    "BUILD": "object",
}
#: Modules whose classes and functions PyTorch reads itself, or refuses.
_TORCH_MODULES = {
    "torch",
    "torch._tensor",
    "torch._utils",
    "torch.cuda",
    "torch.cuda.sparse",
    "torch.nn.parameter",
    "torch.serialization",
    "torch.sparse",
    "torch.storage",
}
#: Names elsewhere that are made as they are: plain containers and the options of argparse.
_PLAIN_NAMES = {
    "_codecs.encode",
    "argparse.Namespace",
    "builtins.bytearray",
    "builtins.complex",
    "builtins.set",
    "collections.Counter",
    "collections.OrderedDict",
}
#: Types of Python that a pickle may name without meaning to act.
_HARMLESS_BUILTINS = {
    "bool", "bytes", "dict", "float", "frozenset", "int", "list", "object", "range", "slice",
    "str", "tuple",
}  # fmt: skip
#: Modules by which a pickle runs programs or code, changes files, or opens connections. Nothing of
#: them would run here; a file that asks for it is refused, since it runs elsewhere.
_ACTING_MODULES = {
    "_pickle", "asyncio", "builtins", "code", "codeop", "commands", "ctypes", "importlib",
    "marshal", "nt", "os", "pickle", "pip", "posix", "pty", "runpy", "shutil", "socket",
    "subprocess", "sys", "webbrowser",
}  # fmt: skip
#: Names of modules in Python 2.
_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}


class StandIn:
    """An object of a class that is not imported: it keeps what it was made of, and does nothing."""

    name: ClassVar[str] = ""
    content: list[Any]

    def __new__(cls, *arguments: Any) -> Any:
        """Keep the arguments."""
        stand_in = object.__new__(cls)
        stand_in.content = [*arguments]
        return stand_in

    def __init__(self, *_: Any) -> None:
        """Take the arguments, which `__new__` keeps."""

    def __setstate__(self, state: Any) -> None:
        """Keep the state."""
        self.content.append(state)


class _MappingStandIn(StandIn):
    """Stands for a class of mappings, whose items are read as those of a dictionary."""

    def __new__(cls, *_: Any) -> Any:
        return OrderedDict()


class _ListStandIn(StandIn):
    """Stands for a class of lists."""

    def __new__(cls, *_: Any) -> Any:
        return []


_STAND_IN_CLASSES: dict[str, type[StandIn]] = {
    "object": StandIn,
    "mapping": _MappingStandIn,
    "list": _ListStandIn,
}


def make_stand_in(name: str, kind: str = "object") -> type[StandIn]:
    """Make the class that stands for another, ``module.name``, in one file."""
    return type("StandIn", (_STAND_IN_CLASSES[kind],), {"name": name})


@dataclass
class PickledNames:
    """The classes and functions that the pickles of a file name.

    Parameters
    ----------
    kinds
        Names that PyTorch does not read, with the kind of object that the instructions fill:
        ``object``, ``mapping`` or ``list``.
    called
        Those of them of which objects are made.
    acting
        Names in modules that act.
    saved_module
        Class of a whole model that the legacy format saved with its source; empty for none.
    """

    kinds: dict[str, str] = field(default_factory=dict)
    called: dict[str, None] = field(default_factory=dict)
    acting: dict[str, None] = field(default_factory=dict)
    saved_module: str = ""

    def stand_ins(self) -> list[tuple[type[StandIn], str]]:
        """Make a stand-in for every name, in pairs as PyTorch's ``safe_globals`` takes them."""
        return [(make_stand_in(name, kind), name) for name, kind in self.kinds.items()]


@dataclass(frozen=True)
class _PickledTuple:
    """A tuple; ``leaves`` counts the values in it as if none were shared."""

    items: tuple[Any, ...]
    leaves: int
    depth: int


@dataclass(frozen=True)
class _PickledGlobal:
    """A class or function by its name."""

    module: str
    function: str

    @property
    def name(self) -> str:
        return f"{self.module}.{self.function}"

    @property
    def is_read(self) -> bool:
        """Whether PyTorch makes or refuses it itself."""
        return self.module in _TORCH_MODULES or self.name in _PLAIN_NAMES

    @property
    def acts(self) -> bool:
        """Whether its module runs code or programs, or changes files."""
        if self.module == "builtins":
            return self.function not in _HARMLESS_BUILTINS
        return self.module.partition(".")[0] in _ACTING_MODULES


@dataclass(frozen=True)
class _PickledObject:
    """A list, mapping or result of a call, whose content is not followed.

    ``name`` is that of the class if a stand-in is made for it.
    """

    name: str = ""


def check_pickle_cost(path: Path) -> PickledNames:
    """Refuse a PyTorch file whose pickle would take all time or memory.

    A damaged pickle is ignored here: PyTorch refuses it at the same instruction.

    Returns
    -------
    PickledNames
        What its pickles name.

    Raises
    ------
    InvalidCheckpoint
        If it hashes, copies or allocates more than any checkpoint does.
    """
    names = PickledNames()
    for content in _iter_pickles(path):
        try:
            excess = _find_excess(content, names)
        except (ValueError, LookupError):
            return names
        if excess:
            raise InvalidCheckpoint(
                f"{path.name}: its pickle {excess}, which could take all "
                "time or memory. It was not loaded: use the checkpoint in "
                "safetensors, or from elsewhere."
            )
    return names


def _iter_pickles(path: Path) -> Iterator[IO[bytes]]:
    """Yield the pickles of a file, by PyTorch's own rules to recognise its formats."""
    with path.open("rb") as stream:
        is_archive = stream.read(4) == ARCHIVE_MAGIC
        if is_archive and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    # PyTorch ignores the case of this name.
                    if member.filename.lower().endswith("data.pkl"):
                        with archive.open(member) as content:
                            yield BytesIO(content.read(MAX_UNPACKED_BYTES))
        elif not is_archive and path.stat().st_size:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped_file:
                for _ in range(_N_LEGACY_PICKLES):
                    yield cast("IO[bytes]", mapped_file)


def _find_excess(content: IO[bytes], names: PickledNames) -> str:
    """Follow the instructions of a pickle; return a phrase for its excess, or an empty text."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}
    n_steps = n_stored = n_requested = 0
    opcode: pickletools.OpcodeInfo
    argument: Any
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in _PUT_OPCODES:
            if argument > len(memo) + _MAX_UNUSED_NUMBERS:
                return f"stores a value under number {argument}"
            memo[argument] = stack[-1]
            continue
        if opcode.name == "MARK":
            marks.append(len(stack))
            continue
        operands = _pop_operands(opcode, stack, marks)
        value = argument if opcode.arg else _PickledObject()
        match opcode.name:
            case name if name in _GET_OPCODES:
                value = memo[argument]
            case "GLOBAL":
                value = _read_global(argument, names)
            case "EMPTY_TUPLE" | "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                value = _make_tuple(operands)
                if value.depth > _MAX_TUPLE_DEPTH:
                    return f"nests tuples deeper than {_MAX_TUPLE_DEPTH} levels"
            case "APPEND" | "APPENDS" | "SETITEM" | "SETITEMS":
                value = _fill_object(opcode.name, operands, names)
                n_stored += sum(map(_count_leaves, operands))
                n_steps += sum(map(_count_leaves, operands))
            case "BINPERSID":
                n_steps += _count_leaves(operands[0])
                value = _read_saved_module(operands[0], names) or value
            case "BUILD":
                n_steps += n_stored if isinstance(operands[1], _PickledObject) else 0
                value = _fill_object(opcode.name, operands, names)
            case "REDUCE" | "NEWOBJ":
                function, arguments = operands
                if not isinstance(function, _PickledGlobal) or not isinstance(
                    arguments, _PickledTuple
                ):
                    return "calls what has no name"
                n_steps += arguments.leaves
                if _encodes_oddly(function, arguments):
                    return "encodes text in an unusual way"
                value = _call_global(function, names)
                # A stand-in allocates nothing, and every tensor needs calls of ``_rebuild``.
                if function.is_read and not function.function.startswith("_rebuild"):
                    n_requested += _sum_integers(arguments)
                    n_steps += n_stored if _has_containers(arguments) else 0
        if n_steps > _MAX_PICKLE_STEPS:
            return "hashes or copies too much"
        if n_requested > MAX_UNPACKED_BYTES:
            return f"asks for {n_requested} bytes by their number alone"
        stack += [value] * len(opcode.stack_after)
    return ""


def _read_global(argument: str, names: PickledNames) -> _PickledGlobal:
    """Read a class or function, and note it if PyTorch does not read it."""
    module, _, function = argument.partition(" ")
    pickled = _PickledGlobal(_OLD_MODULES.get(module, module), function)
    if not pickled.is_read:
        if pickled.acts:
            names.acting[pickled.name] = None
        else:
            names.kinds.setdefault(pickled.name, "object")
    return pickled


def _read_saved_module(persistent_id: Any, names: PickledNames) -> _PickledGlobal | None:
    """Return the class that the legacy format saves with its source; None for a storage."""
    match persistent_id:
        case _PickledTuple(("module", _PickledGlobal() as saved_class, *_)):
            names.saved_module = saved_class.name
            return saved_class
    return None


def _call_global(function: _PickledGlobal, names: PickledNames) -> _PickledObject:
    """Return the object that a call makes, and note the call of a stand-in."""
    if function.name not in names.kinds:
        return _PickledObject()
    names.called[function.name] = None
    return _PickledObject(function.name)


def _fill_object(opcode: str, operands: list[Any], names: PickledNames) -> Any:
    """Return the object that an instruction fills, and note its kind if it is a stand-in."""
    target = operands[0]
    kind = _FILLING_OPCODES[opcode]
    if isinstance(target, _PickledObject) and target.name and kind != "object":
        names.kinds[target.name] = kind
    return target if isinstance(target, _PickledObject) else _PickledObject()


def _encodes_oddly(function: _PickledGlobal, arguments: _PickledTuple) -> bool:
    encodings = arguments.items[1:]
    return function.function == "encode" and not _PLAIN_ENCODINGS.issuperset(encodings)


def _sum_integers(arguments: _PickledTuple) -> int:
    """Add up the positive integers among the arguments of a call: it may allocate as many bytes."""
    return sum(item for item in arguments.items if type(item) is int and item > 0)


def _has_containers(arguments: _PickledTuple) -> bool:
    """Tell whether a call may copy a list, mapping or tuple among its arguments."""
    return any(
        isinstance(item, _PickledObject | _PickledTuple) for item in arguments.items
    )


def _pop_operands(
    opcode: pickletools.OpcodeInfo, stack: list[Any], marks: list[int]
) -> list[Any]:
    """Remove the operands of an instruction from the stack."""
    needed = opcode.stack_before
    if pickletools.markobject in needed:  # all values above the mark
        start = marks.pop() - needed.index(pickletools.markobject)
    else:
        start = len(stack) - len(needed)
    if start < 0:
        raise IndexError
    operands = stack[start:]
    del stack[start:]
    return operands


def _make_tuple(items: list[Any]) -> _PickledTuple:
    leaves = sum(map(_count_leaves, items))
    depth = max(
        (item.depth for item in items if isinstance(item, _PickledTuple)), default=0
    )
    return _PickledTuple(tuple(items), leaves, depth + 1)


def _count_leaves(item: Any) -> int:
    return item.leaves + 1 if isinstance(item, _PickledTuple) else 1
