"""Files of PyTorch by their content: extras beside the weights, whole models, TorchScript."""

from __future__ import annotations

import argparse
import collections
import datetime as dt
import os
import pathlib
import pickle
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from made_files import VALUES, save_legacy, save_zip, write

import posprobe as pp
from posprobe.checkpoints import open_local
from posprobe.checkpoints.pickles import StandIn, check_pickle_cost
from posprobe.errors import InvalidCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JIT: Any = torch.jit
STATE = {"transformer.wpe.weight": torch.from_numpy(VALUES)}
both_formats = pytest.mark.parametrize("save", [save_zip, save_legacy])


class Meter:
    """A class of a training script: reading the file must not build it."""

    built = 0

    def __init__(self, value: float) -> None:
        self.value = value

    def __setstate__(self, state: dict[str, Any]) -> None:
        Meter.built += 1
        self.__dict__.update(state)


class Attributes(dict):  # type: ignore[type-arg]
    """A dictionary of a training framework, such as Lightning's AttributeDict."""


class Wrapped:
    """An object that hides weights."""

    def __init__(self, weights: object) -> None:
        self.weights = weights


EXTRAS: dict[str, tuple[Any, str]] = {
    "NumPy scalar": (np.float64(0.3), "numpy"),
    "NumPy array": (np.zeros(3), "numpy"),
    "path": (argparse.Namespace(out=pathlib.PurePosixPath("/x")), "pathlib"),
    "date": (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "datetime"),
    "large numbers": (dt.timedelta(seconds=1), "timedelta"),
    "defaultdict": (collections.defaultdict(list, a=[1]), "collections.defaultdict"),
    "deque": (collections.deque([1, 2]), "collections.deque"),
    "attributes": (Attributes(lr=1, seed=2**62), "Attributes"),
    "class of a script": (Meter(0.5), "Meter"),
}


@both_formats
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_beside_the_weights_is_skipped_and_named(
    extra: str, save: Callable[[object, Path], Path], tmp_path: Path
) -> None:
    value, name = EXTRAS[extra]
    path = save(
        {"model": STATE, "extra": value, "args": {"extra": value}}, tmp_path / "m.pt"
    )
    built = Meter.built
    checkpoint = open_local(path)
    read = checkpoint.read("transformer.wpe.weight")
    np.testing.assert_array_equal(read.values, VALUES)
    assert Meter.built == built
    (note,) = checkpoint.notes
    assert name in note
    assert note in pp.load(str(path)).notes


def test_no_module_that_a_pickle_names_is_imported(tmp_path: Path) -> None:
    (tmp_path / "leaves_a_trace.py").write_text("raise SystemExit('imported')")
    code = b"\x80\x02}(X\x01\0\0\0acleaves_a_trace\nThing\n)\x81X\x01\0\0\0bK\x01u."
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", code)
        archive.writestr("m/version", "3\n")
        archive.writestr("m/byteorder", "little")
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(InvalidCheckpoint, match="contains no tensors"):
            open_local(path)
    finally:
        sys.path.remove(str(tmp_path))
    assert "leaves_a_trace" not in sys.modules


def test_weights_in_a_dictionary_of_another_class_are_read(tmp_path: Path) -> None:
    path = save_zip({"state_dict": Attributes(STATE)}, tmp_path / "m.pt")
    assert set(open_local(path).tensors) == set(STATE)


@both_formats
@pytest.mark.parametrize(
    "content",
    [
        {"model": Wrapped(STATE)},
        {"model": torch.nn.Linear(2, 2)},
        Wrapped([({"a": STATE},)]),
        {"model": Wrapped(STATE), "optimizer": {"state": {0: torch.ones(3, 2)}}},
    ],
)
def test_weights_inside_an_object_are_refused_by_its_class(
    content: object, save: Callable[[object, Path], Path], tmp_path: Path
) -> None:
    path = save(content, tmp_path / "m.pt")
    with pytest.raises(InvalidCheckpoint, match=r"class .*(Wrapped|Linear).*state_dict"):
        open_local(path)


def test_an_object_with_weights_beside_a_state_dict_costs_nothing(tmp_path: Path) -> None:
    path = save_zip({"state_dict": STATE, "ema": Wrapped(STATE)}, tmp_path / "m.ckpt")
    assert set(open_local(path).tensors) == set(STATE)
    assert "Wrapped" in open_local(path).notes[0]


@pytest.mark.parametrize("function", [os.system, eval, os.mkdir])
def test_a_call_that_acts_is_named_in_the_refusal(
    function: Callable[..., object], tmp_path: Path
) -> None:
    class Act:
        def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
            return function, ("canary",)

    path = save_zip({**STATE, "x": Act()}, tmp_path / "m.pt")
    with pytest.raises(InvalidCheckpoint, match=rf"run code.*{function.__name__}"):
        open_local(path)


@pytest.mark.parametrize(
    "name",
    ["last.ckpt", "model_best.pth.tar", "vit.th", "dump.model", "weights", "x.bin"],
)
@both_formats
def test_the_first_bytes_tell_a_torch_file_by_any_name(
    name: str, save: Callable[[object, Path], Path], tmp_path: Path
) -> None:
    path = save({"state_dict": STATE}, tmp_path / name)
    checkpoint = open_local(path)
    assert checkpoint.format == "PyTorch"
    np.testing.assert_array_equal(
        checkpoint.read("transformer.wpe.weight").values, VALUES
    )


def test_a_folder_with_a_single_ckpt_is_that_checkpoint(tmp_path: Path) -> None:
    save_zip({"state_dict": STATE}, tmp_path / "epoch=1.ckpt")
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a\x0e\x0a\x05")
    assert set(open_local(tmp_path).tensors) == set(STATE)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (pickle.dumps({"a": 1}, protocol=2), "it is a pickle, and torch.save did not"),
        (b"<html>not found</html>", "of another format"),
    ],
)
def test_a_file_that_torch_did_not_write_is_said_to_be_what_it_is(
    content: bytes, says: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidCheckpoint, match=says):
        open_local(write(tmp_path / "m.pt", content))


def test_an_archive_of_something_else_is_named_by_its_first_member(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<w/>")
    with pytest.raises(InvalidCheckpoint, match=r"word/document\.xml"):
        open_local(path)


def test_a_refusal_does_not_pass_on_the_text_of_pytorch(tmp_path: Path) -> None:
    code = b"\x80\x02}X\x01\0\0\0actorch\nload\n)Rs."
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", code)
        archive.writestr("m/version", "3\n")
        archive.writestr("m/byteorder", "little")
    with pytest.raises(InvalidCheckpoint, match=r"torch\.load") as refusal:
        open_local(path)
    assert "weights_only" not in str(refusal.value)
    assert "safe_globals" not in str(refusal.value)


def test_a_memo_number_that_would_take_memory_is_refused(tmp_path: Path) -> None:
    code = b"\x80\x02}r\xff\xff\xff\x7f."
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", code)
    with pytest.raises(InvalidCheckpoint, match="under number 2147483647"):
        check_pickle_cost(path)


# TorchScript.


class Inner(torch.nn.Module):
    """A part whose weights are in half precision and stored transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4).half())
        self.register_buffer("turned", torch.arange(6.0).reshape(2, 3).T)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow.sum() + self.turned.sum()  # type: ignore[operator]


class Outer(torch.nn.Module):
    """A text encoder as CLIP's archive has it."""

    def __init__(self) -> None:
        super().__init__()
        self.positional_embedding = torch.nn.Parameter(torch.from_numpy(VALUES.copy()))
        self.token_embedding = torch.nn.Embedding(5, 4)
        self.parts = torch.nn.ModuleList([Inner(), Inner()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.token_embedding(x) + self.positional_embedding
        for part in self.parts:
            y = part(y)
        return y


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "ViT-B-32.pt"
    with pytest.warns(FutureWarning, match="deprecated"):
        JIT.script(Outer()).save(str(path))
    return path


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_torchscript_archive_gives_the_tensors_of_its_state_dict(script: Path) -> None:
    expected = JIT.load(str(script)).state_dict()
    checkpoint = open_local(script)
    assert set(checkpoint.tensors) == set(expected)
    for name, tensor in expected.items():
        np.testing.assert_array_equal(checkpoint.read(name).values, tensor.numpy())
    assert pp.load(str(script)).values.shape == VALUES.shape
    assert "its code was not run" in checkpoint.notes[0]


def repack(path: Path, changes: dict[str, bytes | None]) -> Path:
    """Change members of an archive by the end of their name; None leaves one out."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            ending = next((end for end in changes if name.endswith(end)), None)
            new = content if ending is None else changes[ending]
            if new is not None:
                archive.writestr(name, new)
    return path


def test_code_of_a_torchscript_archive_is_not_even_looked_at(script: Path) -> None:
    repack(script, {"__torch__.py": b"import os\nos.abort()", "constants.pkl": b"junk"})
    np.testing.assert_array_equal(
        open_local(script).read("positional_embedding").values, VALUES
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data/0": b"\0" * 8}, "needs 96 bytes"),
        ({"data/0": None}, "needs 96 bytes"),
        ({"data.pkl": None}, "torch.jit.load"),
        ({"data.pkl": b"\x80\x02}."}, "torch.jit.load"),
        ({"data.pkl": b"\x80\x02cos\nsystem\nX\x01\0\0\0a\x85R."}, "torch.jit.load"),
        ({"data.pkl": b"\x80\x02cos\nsystem\n."}, "torch.jit.load"),
        ({"data.pkl": b"\x80\x02cos"}, "cannot read it"),
    ],
)
def test_a_damaged_torchscript_archive_is_one_clear_error(
    changes: dict[str, bytes | None], says: str, script: Path
) -> None:
    with pytest.raises(InvalidCheckpoint, match=says):
        open_local(repack(script, changes))


#: Dictionaries whose key is 2^45 shared tuples, by instructions that TorchScript never uses.
SHARED_TUPLES = {
    "MEMOIZE": b"\x80\x04})\x940"
    + b"".join(b"h%ch%c\x86\x940" % (k, k) for k in range(45))
    + b"h\x2dK\x01s.",
    "DUP": b"\x80\x02})" + 45 * b"2\x86" + b"K\x01s.",
}


@pytest.mark.parametrize("opcode", SHARED_TUPLES)
def test_a_script_with_instructions_of_others_is_refused(
    opcode: str, script: Path
) -> None:
    """Python would follow them, and hash the tuples for years."""
    repack(script, {"/data.pkl": SHARED_TUPLES[opcode]})
    with pytest.raises(InvalidCheckpoint, match="Convert it where you trust it"):
        open_local(script)


def test_stand_ins_of_two_files_share_nothing(tmp_path: Path) -> None:
    path = save_zip({"m": Meter(0.5), **STATE}, tmp_path / "m.pt")
    first, second = (check_pickle_cost(path).stand_ins() for _ in "ab")
    assert not {cls for cls, _ in first} & {cls for cls, _ in second}
    assert StandIn.name == ""
