"""Checkpoints on disk: every format against its own library, damage, and what stays unread."""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import pickle
import random
import subprocess
import sys
import tempfile
import textwrap
import tracemalloc
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from posprobe.checkpoints import Checkpoint, TensorInfo, open_local
from posprobe.errors import (
    InvalidCheckpoint,
    InvalidTable,
    MissingExtra,
    PosprobeError,
    UnknownReference,
    UsageError,
)
from posprobe.families import find_encodings, load, read_table
from posprobe.reference import Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: A property is tried on few examples, always the same ones: the file runs in seconds.
quick = settings(
    max_examples=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip

VALUES = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


def header_of(tensors: Mapping[str, Any]) -> bytes:
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


def entry(shape: Any, begin: Any, end: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# --- safetensors ---

FLOATS: dict[np.dtype[Any], str] = {
    np.dtype("f8"): "F64", np.dtype("f4"): "F32", np.dtype("f2"): "F16",
}  # fmt: skip
arrays = hnp.arrays(
    st.sampled_from(list(FLOATS)),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    elements={"allow_nan": True, "allow_infinity": True},
)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(
    lambda name: name != "__metadata__"
)


@quick
@given(st.dictionaries(names, arrays, min_size=1, max_size=5), st.booleans())
def test_safetensors_reads_what_the_safetensors_package_wrote(
    tmp_path: Path, tensors: dict[str, np.ndarray[Any, Any]], metadata: bool
) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(tensors, path, {"format": "np"} if metadata else None)
    checkpoint = open_local(path)
    with safetensors.safe_open(path, "np") as reference:
        assert set(checkpoint.tensors) == set(reference.keys())
        for name, info in checkpoint.tensors.items():
            stored = reference.get_slice(name)
            assert list(info.shape) == stored.get_shape()
            assert info.dtype == stored.get_dtype() == FLOATS[tensors[name].dtype]
            assert info.file == path.name
    for name, expected in tensors.items():
        read = checkpoint.read(name)
        assert read.values.dtype == expected.dtype
        assert read.values.shape == expected.shape
        assert read.values.tobytes() == expected.tobytes()
        assert read.sha256 == sha256(expected.tobytes()).hexdigest()


def test_safetensors_bfloat16_is_widened_exactly(tmp_path: Path) -> None:
    bits = torch.arange(2**16).to(torch.uint16)  # every bfloat16 there is
    table = bits.view(torch.bfloat16).reshape(256, 256)
    safetensors.torch.save_file({"table": table}, tmp_path / "model.safetensors")
    read = open_local(tmp_path).read("table")
    assert read.info.dtype == "BF16"
    np.testing.assert_array_equal(
        read.values.view(np.uint32), table.float().numpy().view(np.uint32)
    )


@pytest.mark.parametrize(
    "dtype",
    [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
     torch.float8_e4m3fn, torch.float8_e5m2],
)  # fmt: skip
def test_a_quantised_or_integer_tensor_is_listed_and_not_read(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file({"pos_embed": torch.zeros(6, 4).to(dtype)}, path)
    checkpoint = open_local(path)
    assert checkpoint.tensors["pos_embed"].shape == (6, 4)
    name = checkpoint.tensors["pos_embed"].dtype
    with pytest.raises(InvalidTable, match=rf"pos_embed.*\[6, 4\].*{name}.*quantised"):
        checkpoint.read("pos_embed")


def test_safetensors_reads_one_tensor_of_a_huge_file_and_nothing_else(tmp_path: Path) -> None:
    huge, path = 2**34, tmp_path / "model.safetensors"
    header = header_of({
        "before": entry([2**32], 0, huge),
        "wpe.weight": entry([6, 4], huge, huge + 96),
        "after": entry([2**32], huge + 96, 2 * huge + 96),
    })  # fmt: skip
    with path.open("wb") as stream:
        stream.write(header)
        stream.seek(len(header) + huge)
        stream.write(VALUES.tobytes())
        stream.truncate(len(header) + 2 * huge + 96)
    tracemalloc.start()
    try:
        table = load(str(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(table.values, VALUES)
    assert peak < 10_000_000
    assert path.stat().st_blocks * 512 < 1_000_000  # the file has stayed the hole that it is


def test_safetensors_values_are_mapped_and_not_copied(tmp_path: Path) -> None:
    safetensors.numpy.save_file({"table": VALUES}, tmp_path / "model.safetensors")
    read = open_local(tmp_path).read("table")
    assert not read.values.flags.owndata
    assert not read.values.flags.writeable


def good(**changes: Any) -> bytes:
    tensors = {"a": entry([6, 4], 0, 96), "b": entry([6, 4], 96, 192)}
    return header_of(tensors | changes) + 2 * VALUES.tobytes()


def test_the_sound_file_that_the_damaged_ones_are_made_of(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors", good())
    np.testing.assert_array_equal(open_local(path).read("b").values, VALUES)


DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "0 bytes"),
    "seven bytes": (b"\0" * 7, "7 bytes"),
    "header of 2^60 bytes": ((2**60).to_bytes(8, "little") + b"{}", str(2**60)),
    "header of 2^64 - 1 bytes": (b"\xff" * 8 + b"{}", str(2**64 - 1)),
    "header cut": (good()[:40], "truncated"),
    "data cut": (good()[:-1], "truncated"),
    "all data cut": (good()[:-192], "truncated"),
    "bytes behind": (good() + b"\0", "end at byte"),
    "html": (b"<!DOCTYPE html><html>" * 9, "truncated or no"),
    "header is no JSON": ((4).to_bytes(8, "little") + b"{no}", "no JSON"),
    "header is no UTF-8": ((4).to_bytes(8, "little") + b"\xff\xfe\xfd\xfc", "no JSON"),
    "header is a list": ((2).to_bytes(8, "little") + b"[]", "no JSON object"),
    "header is null": ((4).to_bytes(8, "little") + b"null", "no JSON object"),
    "header is nested deeply": (
        (200_000).to_bytes(8, "little") + b"[" * 100_000 + b"]" * 100_000, "no JSON"
    ),
    "entry is a list": (good(a=[]), "'a' has no valid entry"),
    "entry is null": (good(a=None), "'a' has no valid entry"),
    "entry without shape": (good(a={"dtype": "F32", "data_offsets": [0, 96]}), "no valid entry"),
    "entry with one offset": (good(a=entry([6, 4], 0, 96) | {"data_offsets": [0]}), "no valid"),
    "shape is a number": (good(a=entry(24, 0, 96)), "no valid entry"),
    "dtype is a number": (good(a=entry([6, 4], 0, 96, 32)), "no valid entry"),
    "shape is negative": (good(a=entry([-6, -4], 0, 96)), "impossible shape"),
    "shape is boolean": (good(a=entry([True, 24], 0, 96)), "impossible shape"),
    "shape is a fraction": (good(a=entry([1.5, 16], 0, 96)), "impossible shape"),
    "shape is text": (good(a=entry(["6", 4], 0, 96)), "impossible shape"),
    "shape beyond memory": (good(a=entry([2**40, 2**40], 0, 96)), "does not fit"),
    "shape and size differ": (good(a=entry([6, 5], 0, 96)), "does not fit"),
    "dtype and size differ": (good(a=entry([6, 4], 0, 96, "F64")), "does not fit"),
    "offsets are text": (good(a=entry([6, 4], "0", "96")), "no valid entry"),
    "offsets are boolean": (good(a=entry([], False, True, "U8")), "impossible place"),
    "offsets are negative": (good(a=entry([6, 4], -96, 0)), "impossible place"),
    "offsets are swapped": (good(a=entry([6, 4], 96, 0)), "impossible place"),
    "offsets beyond the file": (good(a=entry([6, 4], 960, 1056)), "truncated"),
    "offsets of 2^64": (good(a=entry([2**62], 0, 2**64)), "truncated"),
    "tensors overlap": (good(b=entry([6, 4], 48, 144)), "starts at byte"),
    "tensors share bytes": (good(b=entry([6, 4], 0, 96)), "starts at byte"),
    "bytes between tensors": (good(b=entry([5, 4], 112, 192)), "starts at byte"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_safetensors_is_one_clear_error(case: str, tmp_path: Path) -> None:
    content, says = DAMAGED[case]
    path = write(tmp_path / "model.safetensors", content)
    with pytest.raises(InvalidCheckpoint, match=rf"model\.safetensors.*{says}") as caught:
        open_local(path)
    assert caught.value.exit_code == 4
    with pytest.raises(safetensors.SafetensorError):  # its own package refuses all of them too
        safetensors.numpy.load_file(path)


# --- torch ---


def save_zip(content: object, path: Path) -> Path:
    torch.save(content, path)
    return path


def save_legacy(content: object, path: Path) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=False)
    return path


both_formats = pytest.mark.parametrize("save", [save_zip, save_legacy])


@both_formats
@pytest.mark.parametrize("suffix", [".bin", ".pt", ".pth"])
def test_a_torch_file_reads_back(
    save: Callable[[object, Path], Path], suffix: str, tmp_path: Path
) -> None:
    wide = torch.randn(8, 6)
    state = {
        "plain": torch.randn(6, 4),
        "transposed": wide.T,
        "slice": wide[2:5, ::2],
        "expanded": torch.randn(1, 4).expand(3, 4),
        "scalar": torch.tensor(2.0),
        "none": torch.zeros(0, 4),
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
        "sparse": torch.eye(3).to_sparse(),
    }
    with no_beta_warnings():
        path = save(state, tmp_path / f"model{suffix}")
        checkpoint = open_local(path)
    assert set(checkpoint.tensors) == set(state)
    for name, tensor in state.items():
        expected = tensor.detach().to_dense().numpy()
        read = checkpoint.read(name)
        np.testing.assert_array_equal(read.values, expected)
        assert read.sha256 == sha256(np.ascontiguousarray(expected).tobytes()).hexdigest()


@contextlib.contextmanager
def no_beta_warnings() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Ss]parse.*")
        yield


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_torch_zip_is_mapped(tmp_path: Path) -> None:
    path = save_zip({"big": torch.zeros(2**25), "pos_embed": torch.ones(6, 4)}, tmp_path / "m.pt")
    script = r"""
        import re, sys, torch
        from pathlib import Path
        from posprobe.checkpoints import open_local
        def peak():
            return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])
        before = peak()
        assert open_local(Path(sys.argv[1])).read("pos_embed").values.sum() == 24
        print(peak() - before)
    """
    grown = run_python(script, str(path)).stdout
    assert int(grown) < 60_000  # KiB; the file has 131 072


@both_formats
def test_nested_state_dicts_lose_their_wrapping(
    save: Callable[[object, Path], Path], tmp_path: Path
) -> None:
    state = {"wpe.weight": torch.ones(3, 2)}
    wrapped = {f"module.{name}": tensor for name, tensor in state.items()}
    contents: tuple[Any, ...] = (
        state, wrapped, {"model": state, "epoch": 1}, {"state_dict": wrapped}, [], {},
        {"model": {"state_dict": state}}, {"model_state_dict": state, "optimizer": {"state": {}}},
    )  # fmt: skip
    for content in contents:
        path = save(content, tmp_path / "model.pt")
        if not content:
            with pytest.raises(InvalidCheckpoint, match="no tensors"):
                open_local(path)
        else:
            assert set(open_local(path).tensors) == {"wpe.weight"}


@both_formats
def test_a_tensor_alone_is_named_after_its_file(
    save: Callable[[object, Path], Path], tmp_path: Path
) -> None:
    path = save(torch.ones(3, 2), tmp_path / "table.pt")
    assert open_local(path).read("table").values.shape == (3, 2)


@both_formats
def test_a_checkpoint_that_holds_itself_is_read_once(
    save: Callable[[object, Path], Path], tmp_path: Path
) -> None:
    content: dict[str, Any] = {"weights": {"wpe.weight": torch.ones(3, 2)}}
    content["again"] = content["model"] = content["weights"]["back"] = content
    checkpoint = open_local(save(content, tmp_path / "model.pt"))
    assert set(checkpoint.tensors) == {"weights.wpe.weight"}


class Payload:
    """What a malicious checkpoint holds: a call that unpickling would make."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.trace}",)


@both_formats
def test_a_malicious_pickle_runs_nothing(
    save: Callable[[object, Path], Path], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    path = save({"wpe.weight": torch.ones(3, 2), "x": Payload(trace)}, tmp_path / "model.bin")
    with pytest.raises(InvalidCheckpoint, match=r"model\.bin: .*run code") as caught:
        load(str(path))
    assert caught.value.exit_code == 4
    assert not trace.exists()
    torch.load(path, weights_only=False)  # the payload is a live one
    assert trace.exists()


def test_a_bare_malicious_pickle_runs_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    path = write(tmp_path / "model.pt", pickle.dumps(Payload(trace)))
    with pytest.raises(InvalidCheckpoint):
        load(str(path))
    assert not trace.exists()


@both_formats
@pytest.mark.parametrize("keep", [0, 1, 30, 100, -100, -1])
def test_a_truncated_torch_file_is_one_clear_error(
    save: Callable[[object, Path], Path], keep: int, tmp_path: Path
) -> None:
    path = save({"wpe.weight": torch.ones(30, 20)}, tmp_path / "model.bin")
    write(path, path.read_bytes()[:keep])
    with pytest.raises(InvalidCheckpoint, match=r"model\.bin: .*(cannot read|no plain)") as caught:
        load(str(path))
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn, torch.complex64])
def test_a_torch_tensor_that_is_no_float_is_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    path = save_zip({"wpe.weight": torch.ones(3, 2).to(dtype)}, tmp_path / "model.pt")
    with pytest.raises(InvalidTable, match=r"wpe\.weight.*\[3, 2\]"):
        load(str(path))


def test_a_torch_tensor_without_values_is_refused(tmp_path: Path) -> None:
    path = save_zip({"wpe.weight": torch.ones(3, 2, device="meta")}, tmp_path / "model.pt")
    with pytest.raises(InvalidCheckpoint, match="has no values"):
        load(str(path))


def test_without_torch_the_message_names_the_command(tmp_path: Path) -> None:
    path = save_zip({"wpe.weight": torch.ones(3, 2)}, tmp_path / "pytorch_model.bin")
    script = """
        import sys
        class Blocker:
            def find_spec(self, name, *_):
                assert name != "torch", "torch was imported"
        if sys.argv[2] == "absent":
            sys.modules["torch"] = None
        else:
            sys.meta_path.insert(0, Blocker())
        from posprobe.errors import MissingExtra
        from posprobe.families import load
        try:
            print(len(load(sys.argv[1])))
        except MissingExtra as error:
            print(error.exit_code, error)
    """
    message = run_python(script, str(tmp_path), "absent").stdout
    assert message.startswith("4 pytorch_model.bin: ")
    assert "uv sync --extra models" in message
    assert "pip install 'posprobe[models]'" in message
    path.unlink()
    safetensors.numpy.save_file({"wpe.weight": VALUES}, tmp_path / "model.safetensors")
    for how in ("absent", "blocked"):  # safetensors needs no torch, and does not look for it
        assert run_python(script, str(tmp_path), how).stdout == "6\n"
    assert issubclass(MissingExtra, PosprobeError)


def run_python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": root},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


# --- NumPy ---


@quick
@given(arrays, st.booleans(), st.booleans())
def test_npy_and_npz_read_back(
    tmp_path: Path, array: np.ndarray[Any, Any], fortran: bool, compressed: bool
) -> None:
    array = np.asfortranarray(array) if fortran else array
    np.save(tmp_path / "table.npy", array)
    save = np.savez_compressed if compressed else np.savez
    save(tmp_path / "all.npz", table=array, other=VALUES)
    for file in ("table.npy", "all.npz"):
        checkpoint = open_local(tmp_path / file)
        info = checkpoint.tensors["table"]
        assert info.shape == array.shape
        assert info.dtype == FLOATS[array.dtype]
        read = checkpoint.read("table")
        assert read.values.shape == array.shape
        assert read.values.tobytes() == array.tobytes()
        assert read.sha256 == sha256(array.tobytes()).hexdigest()
    np.testing.assert_array_equal(open_local(tmp_path / "all.npz").read("other").values, VALUES)


@pytest.mark.parametrize("code", [">f8", ">f4", ">f2"])
@pytest.mark.parametrize("file", ["table.npy", "all.npz"])
def test_numpy_files_of_the_other_byte_order(code: str, file: str, tmp_path: Path) -> None:
    array = VALUES.astype(code)
    np.save(tmp_path / "table.npy", array)
    np.savez(tmp_path / "all.npz", table=array)
    read = open_local(tmp_path / file).read("table")
    np.testing.assert_array_equal(read.values, array)
    assert read.sha256 == sha256(array.astype(code.replace(">", "<")).tobytes()).hexdigest()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_numpy_files_of_every_format_version(version: tuple[int, int], tmp_path: Path) -> None:
    with (tmp_path / "table.npy").open("wb") as stream:
        np.lib.format.write_array(stream, VALUES, version=version)
    with zipfile.ZipFile(tmp_path / "all.npz", "w") as archive:
        archive.write(tmp_path / "table.npy", "table.npy")
        archive.writestr("README.txt", "not an array")
    for file in ("table.npy", "all.npz"):
        np.testing.assert_array_equal(open_local(tmp_path / file).read("table").values, VALUES)


def test_a_large_npy_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "table.npy"
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(
            stream, {"descr": "<f4", "fortran_order": False, "shape": (2**20, 2**12)}
        )
        stream.truncate(stream.tell() + 2**34)
    tracemalloc.start()
    try:
        checkpoint = open_local(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert checkpoint.tensors["table"].shape == (2**20, 2**12)
    assert peak < 10_000_000


def test_numpy_object_arrays_are_refused_without_unpickling(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    array = np.array([[Payload(trace)]], dtype=object)
    np.save(tmp_path / "table.npy", array, allow_pickle=True)
    np.savez(tmp_path / "all.npz", table=array, allow_pickle=True)
    with pytest.raises(InvalidCheckpoint, match="Python objects"):
        open_local(tmp_path / "table.npy")
    with pytest.raises(InvalidTable, match="object"):
        open_local(tmp_path / "all.npz").read("table")
    assert not trace.exists()


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_, np.complex64])
def test_a_numpy_array_that_is_no_float_is_refused(dtype: type[np.generic], tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", table=np.ones((3, 2), dtype))
    with pytest.raises(InvalidTable, match=r"table.*\[3, 2\]"):
        open_local(tmp_path / "all.npz").read("table")


def npy(shape: str, descr: str = "<f4", data: bytes = b"\0" * 96) -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


BAD_NPY = {
    "empty": b"",
    "magic alone": b"\x93NUMPY",
    "a pickle": pickle.dumps([1, 2]),
    "header cut": npy("(6, 4)")[:30],
    "data cut": npy("(6, 4)", data=b"\0" * 95),
    "shape of 2^60": npy(f"({2**60},)"),
    "shape beyond an index": npy(f"({2**70},)"),
    "shape overflows": npy(f"({2**32}, {2**32}, 16)"),
    "shape is negative": npy("(-6, -4)"),
    "shape is no tuple": npy("6"),
    "shape is code": npy("(__import__('os').getpid(),)"),
    "header is nested deeply": npy("(" * 5000 + ")" * 5000),
    "header without shape": npy("(6, 4)").replace(b"shape", b"shale"),
    "dtype is none": npy("(6, 4)", "<f3"),
    "dtype is void": npy("(6, 4)", "|O"),
    "version 9": npy("(6, 4)").replace(b"\x01\x00", b"\x09\x00", 1),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_NPY)
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_a_damaged_numpy_file_is_one_clear_error(case: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.{kind}"
    if kind == "npy":
        write(path, BAD_NPY[case])
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("table.npy", BAD_NPY[case])
    with pytest.raises((InvalidCheckpoint, InvalidTable), match=path.name) as caught:
        open_local(path).read("table")
    assert caught.value.exit_code == 4


def test_an_archive_of_no_arrays_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.npz", "w") as archive:
        archive.writestr("README.txt", "nothing here")
    with pytest.raises(InvalidCheckpoint, match="holds no arrays"):
        open_local(tmp_path / "all.npz")


# --- some rows of a tensor ---


def row_files(folder: Path, values: np.ndarray[Any, Any]) -> list[tuple[Path, str]]:
    """Save one array in every format; pairs of a file and the tensor's name in it."""
    tensor = torch.from_numpy(values)
    safetensors.torch.save_file({"before": torch.ones(3), "t": tensor}, folder / "a.safetensors")
    bfloat = {"t": tensor.to(torch.bfloat16)}
    safetensors.torch.save_file(bfloat, folder / "bfloat.safetensors")
    save_zip({"t": tensor}, folder / "zip.pt")
    save_zip(bfloat, folder / "bfloat.pt")
    save_legacy({"t": tensor}, folder / "legacy.pt")
    np.save(folder / "t.npy", np.asfortranarray(values))
    np.savez_compressed(folder / "a.npz", t=values.astype(">f4"))
    return [(path, "t") for path in sorted(folder.iterdir())]


@pytest.mark.parametrize("shape", [(40, 3), (40,), (40, 2, 3), (40, 0), (1, 4)])
def test_some_rows_are_those_of_the_whole_tensor_in_every_format(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    choices: list[list[int]] = [[], [0], list(range(shape[0]))]
    if shape[0] == 40:
        choices += [[39], [0, 1, 2, 17, 30, 31, 39], [5, 7, 9]]
    files = row_files(tmp_path, values)
    assert len(files) == 7
    for path, name in files:
        checkpoint = open_local(path)
        whole = checkpoint.read(name).values
        for rows in choices:
            read = checkpoint.read_rows(name, rows)
            assert read.dtype == whole.dtype
            assert read.shape == (len(rows), *shape[1:])
            np.testing.assert_array_equal(read, whole[np.array(rows, dtype=int)])


def test_some_rows_of_a_huge_file_cost_their_own_size(tmp_path: Path) -> None:
    rows, width, path = 2**22, 1024, tmp_path / "model.safetensors"
    header = header_of({"wte.weight": entry([rows, width], 0, 4 * rows * width)})
    planted = np.arange(2 * width, dtype=np.float32).reshape(2, width)
    with path.open("wb") as stream:
        stream.write(header)
        stream.seek(len(header) + 4 * width * 1_000_000)
        stream.write(planted.tobytes())
        stream.truncate(len(header) + 4 * rows * width)
    tracemalloc.start()
    try:
        checkpoint = open_local(path)
        read = checkpoint.read_rows("wte.weight", [0, 1_000_000, 1_000_001, rows - 1])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(read[1:3], planted)
    assert not read[[0, 3]].any()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    "rows",
    [[40], [-1], [3, 2], [3, 3], [0.5], [True], [[0, 1]], [2**63], [2**70], "0", [float("nan")]],
)
def test_rows_that_are_not_there_are_one_clear_error(rows: Any, tmp_path: Path) -> None:
    for path, name in row_files(tmp_path, np.ones((40, 3), np.float32)):
        with pytest.raises(UsageError, match=rf"{path.name}.*\[40, 3\].*from 0 to 39"):
            open_local(path).read_rows(name, rows)


def test_a_number_alone_has_no_rows(tmp_path: Path) -> None:
    safetensors.torch.save_file({"t": torch.tensor(1.0)}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=r"shape \[\]"):
        open_local(tmp_path).read_rows("t", [0])


def test_rows_of_a_quantised_tensor_are_not_read(tmp_path: Path) -> None:
    state = {"t": torch.zeros(6, 4, dtype=torch.int8)}
    safetensors.torch.save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(InvalidTable, match=r"t, shape \[6, 4\], is stored as I8.*quantised"):
        open_local(tmp_path).read_rows("t", [0])


def test_rows_that_come_short_are_one_clear_error() -> None:
    info = TensorInfo("t", (6, 4), "F32", "model.safetensors", 100, 196)
    checkpoint = Checkpoint("here", {"t": info}, lambda part: bytes(part.stop - part.start - 1))
    with pytest.raises(InvalidCheckpoint, match=r"t\[2:4\], shape \[2, 4\] F32, needs 32 bytes"):
        checkpoint.read_rows("t", [2, 3])


# --- folders, shards and configurations ---


def shards(folder: Path, weight_map: object) -> Path:
    safetensors.numpy.save_file({"a": VALUES}, folder / "model-1.safetensors")
    safetensors.numpy.save_file({"b": 2 * VALUES}, folder / "model-2.safetensors")
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    folder = shards(tmp_path, {"a": "model-1.safetensors", "b": "model-2.safetensors"})
    for reference in (folder, folder / "model.safetensors.index.json"):
        checkpoint = open_local(reference)
        assert {name: info.file for name, info in checkpoint.tensors.items()} == {
            "a": "model-1.safetensors", "b": "model-2.safetensors",
        }  # fmt: skip
        np.testing.assert_array_equal(checkpoint.read("b").values, 2 * VALUES)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = shards(tmp_path, {"a": "model-1.safetensors", "c": "model-3.safetensors"})
    with pytest.raises(UnknownReference, match=r"model-3\.safetensors.*shards") as caught:
        open_local(folder)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    "shard",
    ["../model.safetensors", "/etc/passwd", "sub/model.safetensors", "..", ".", "", 7, None,
     ["model-1.safetensors"], "a\0.safetensors", "~/model.safetensors"],
)  # fmt: skip
def test_an_index_that_points_elsewhere_is_refused(shard: object, tmp_path: Path) -> None:
    folder = shards(tmp_path, {"a": "model-1.safetensors", "b": shard})
    with pytest.raises(InvalidCheckpoint, match=r"index\.json"):
        open_local(folder)


@pytest.mark.parametrize("weight_map", [{}, [], None, "model-1.safetensors", 3])
def test_an_index_without_a_map_is_refused(weight_map: object, tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match="weight_map"):
        open_local(shards(tmp_path, weight_map))


def test_a_shard_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").mkdir()
    with pytest.raises(InvalidCheckpoint, match=r"x\.safetensors"):
        open_local(shards(tmp_path, {"a": "x.safetensors"}))


NO_JSON = {
    "empty": b"", "text": b"hello", "a list": b"[1, 2]", "a number": b"3", "null": b"null",
    "cut": b'{"model_type": "bert"', "no UTF-8": b'{"model_type": "\xff\xff"}',
    "nested deeply": b"[" * 100_000, "a long number": b'{"a": ' + b"9" * 5000 + b"}",
}  # fmt: skip


@pytest.mark.parametrize("case", NO_JSON)
@pytest.mark.parametrize("file", ["config.json", "model.safetensors.index.json"])
def test_a_json_that_is_none_is_refused(case: str, file: str, tmp_path: Path) -> None:
    if file == "config.json":
        safetensors.numpy.save_file({"a": VALUES}, tmp_path / "model.safetensors")
    write(tmp_path / file, NO_JSON[case])
    with pytest.raises(InvalidCheckpoint, match=file.replace(".", r"\.")) as caught:
        open_local(tmp_path)
    assert caught.value.exit_code == 4


def test_a_folder_is_opened_by_its_lazy_format(tmp_path: Path) -> None:
    save_zip({"wpe.weight": torch.zeros(3, 2)}, tmp_path / "pytorch_model.bin")
    save_zip([1], tmp_path / "training_args.bin")
    assert open_local(tmp_path).tensors["wpe.weight"].file == "pytorch_model.bin"
    safetensors.numpy.save_file({"wpe.weight": VALUES}, tmp_path / "model.safetensors")
    assert open_local(tmp_path).tensors["wpe.weight"].file == "model.safetensors"


def test_the_only_weights_of_a_folder_need_no_usual_name(tmp_path: Path) -> None:
    save_zip({"wpe.weight": torch.zeros(3, 2)}, tmp_path / "best.pt")
    assert open_local(tmp_path).tensors["wpe.weight"].file == "best.pt"
    safetensors.numpy.save_file({"wpe.weight": VALUES}, tmp_path / "weights.fp16.safetensors")
    assert open_local(tmp_path).tensors["wpe.weight"].file == "weights.fp16.safetensors"


def test_several_weights_are_listed(tmp_path: Path) -> None:
    for name in ("last.pt", "best.pt"):
        save_zip({"wpe.weight": torch.zeros(3, 2)}, tmp_path / name)
    with pytest.raises(InvalidCheckpoint, match=r"best\.pt, last\.pt.*path"):
        open_local(tmp_path)


@pytest.mark.parametrize("files", [[], ["rust_model.ot"], ["model.onnx", "README.md"]])
def test_a_folder_without_weights_says_what_it_has(files: list[str], tmp_path: Path) -> None:
    for name in files:
        write(tmp_path / name, b"x")
    (tmp_path / "sub.safetensors").mkdir()
    with pytest.raises(InvalidCheckpoint, match=files[0] if files else "no files") as caught:
        open_local(tmp_path)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("name", ["model.onnx", "model", "model.ot", "config.json"])
def test_a_file_of_no_checkpoint_format_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match=name):
        open_local(write(tmp_path / name, b"{}"))


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("missing.safetensors", "missing.bin", "missing.npy", "missing.npz", "missing"):
        with pytest.raises(UnknownReference, match=name) as caught:
            open_local(tmp_path / name)
        assert caught.value.exit_code == 3


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(InvalidCheckpoint, match="no regular file"):
        open_local(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    "file", ["model.safetensors", "model.bin", "model.npy", "model.npz", "config.json"]
)
def test_what_may_not_be_read_is_refused(file: str, unprivileged: Path) -> None:
    weights = unprivileged / (file if file != "config.json" else "model.npy")
    saved: dict[str, Callable[[], object]] = {
        ".safetensors": lambda: safetensors.numpy.save_file({"a": VALUES}, weights),
        ".bin": lambda: save_zip({"a": torch.ones(3, 2)}, weights),
        ".npy": lambda: np.save(weights, VALUES),
        ".npz": lambda: np.savez(weights, a=VALUES),
    }
    saved[weights.suffix]()
    (unprivileged / "config.json").write_text("{}")
    open_local(weights)
    (unprivileged / file).chmod(0)
    with pytest.raises(UnknownReference, match=rf"{file}: you may not read it") as caught:
        open_local(weights)
    assert caught.value.exit_code == 3


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """Return a folder, and become nobody where the tests run as root, whom nothing stops."""
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if user == 0:
            os.chown(folder, 65534, -1)
            os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(user)


# --- anything at all ---


def sound_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state = {"wpe.weight": torch.from_numpy(VALUES), "ids": torch.arange(3)}
        safetensors.torch.save_file(state, folder / "a.safetensors")
        save_zip(state, folder / "a.pt")
        save_legacy(state, folder / "legacy.pt")
        arrays: dict[str, Any] = {"wpe.weight": VALUES, "ids": np.arange(3)}
        np.savez(folder / "a.npz", **arrays)
        np.savez_compressed(folder / "compressed.npz", **arrays)
        np.save(folder / "wpe.weight.npy", VALUES)
        return {path.name: path.read_bytes() for path in folder.iterdir()}


SOUND = sound_files()


@pytest.mark.parametrize("suffix", ["npy", "npz", "bin", "pt", "safetensors"])
@pytest.mark.parametrize("name", SOUND)
def test_a_file_of_another_format_is_one_clear_error(
    suffix: str, name: str, tmp_path: Path
) -> None:
    path = write(tmp_path / f"model.{suffix}", SOUND[name])
    kind = name.rpartition(".")[2]
    if {kind, suffix} in ({suffix}, {"pt", "bin"}):
        assert open_local(path).tensors
        return
    with pytest.raises(InvalidCheckpoint, match=path.name) as caught:
        open_local(path)
    assert caught.value.exit_code == 4


def read_everything(path: Path) -> None:
    """Open and read; anything but a success or an explained failure passes through."""
    with contextlib.suppress(PosprobeError):
        checkpoint: Checkpoint = open_local(path)
        for name in checkpoint.tensors:
            with contextlib.suppress(PosprobeError):
                checkpoint.read(name)
        load(str(path))


@quick
@given(st.sampled_from(["safetensors", "pt", "npz", "npy"]), st.binary(max_size=200))
def test_random_bytes_never_end_in_a_traceback(tmp_path: Path, suffix: str, content: bytes) -> None:
    read_everything(write(tmp_path / f"model.{suffix}", content))


@quick
@given(st.binary(max_size=120))
def test_random_headers_never_end_in_a_traceback(tmp_path: Path, content: bytes) -> None:
    length = len(content).to_bytes(8, "little")
    read_everything(write(tmp_path / "model.safetensors", length + content))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    | st.sampled_from(["F32", "BF16", "I64", "U8"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["dtype", "shape", "data_offsets", "wpe.weight", "__metadata__"]), inner
    ),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.slow
@quick
@given(st.dictionaries(st.sampled_from(["wpe.weight", "x"]), json_values), st.binary(max_size=16))
def test_random_json_headers_never_end_in_a_traceback(
    tmp_path: Path, header: dict[str, Any], data: bytes
) -> None:
    read_everything(write(tmp_path / "model.safetensors", header_of(header) + data))


@pytest.mark.slow
@pytest.mark.parametrize("family", [None, "vit", "roberta", "whisper", "clip"])
@quick
@given(json_values, json_values, json_values)
def test_random_configurations_never_end_in_a_traceback(
    family: str | None, tmp_path: Path, one: Any, two: Any, three: Any
) -> None:
    shapes = {
        "vit.embeddings.position_embeddings": (1, 5, 4),
        "bert.embeddings.position_embeddings.weight": (6, 4),
        "pos_embed": (1, 4, 4),
        "decoder.embed_positions.weight": (6, 4),
        "vision_model.embeddings.position_embedding.weight": (5, 4),
        "sentence_encoder.embed_positions.weight": (6, 4),
    }
    path = tmp_path / "model.safetensors"
    if not path.exists():
        safetensors.numpy.save_file({name: np.ones(shapes[name]) for name in shapes}, path)
    config = {
        "model_type": family or one, "image_size": two, "patch_size": three, "pad_token_id": two,
        "padding_idx": one, "pretrained_cfg": three, "model_args": two, "vision_config": one,
        "text_config": two, "attn_config": three, "architecture": one, "max_positions": three,
    }  # fmt: skip
    for more in ({}, {"position_embedding_type": one}, {"pretrained_cfg": {"input_size": one}}):
        (tmp_path / "config.json").write_text(json.dumps(config | more))
        read_everything(tmp_path)
        checkpoint = open_local(tmp_path)
        for encoding in find_encodings(checkpoint):
            with contextlib.suppress(PosprobeError):
                read_table(checkpoint, encoding, Reference("it", "it"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_a_file_with_some_bytes_changed_never_ends_in_a_traceback(
    name: str, tmp_path: Path
) -> None:
    chance = random.Random(name)  # noqa: S311 - a fixed sequence of damages
    path = write(tmp_path / name, SOUND[name])
    assert "wpe.weight" in open_local(path).tensors
    for _ in range(250):
        content = bytearray(SOUND[name])
        match chance.randrange(4):
            case 0:
                for _ in range(chance.randint(1, 4)):
                    content[chance.randrange(len(content))] = chance.randrange(256)
            case 1:
                at = chance.randrange(len(content))
                content[at] ^= 1 << chance.randrange(8)
            case 2:
                del content[chance.randrange(len(content)) :]
            case 3:
                at = chance.randrange(len(content))
                content[at : at + chance.randrange(20)] = chance.randbytes(chance.randrange(20))
        read_everything(write(path, bytes(content)))


def test_a_file_that_cannot_be_mapped_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    safetensors.numpy.save_file({"a": VALUES}, tmp_path / "model.safetensors")
    monkeypatch.setattr(mmap, "mmap", fail)
    with pytest.raises(InvalidCheckpoint, match=os.strerror(errno.EIO)):
        open_local(tmp_path)
