"""Files of PyTorch: read back, mapped, and never run, and archives made to mislead."""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import textwrap
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from made_files import VALUES, Payload, save_legacy, save_zip, write

import posprobe as pp
from posprobe.checkpoints import open_local
from posprobe.checkpoints.pickles import check_pickle_cost
from posprobe.errors import InvalidCheckpoint, InvalidTable
from posprobe.families import load
from posprobe.forward import load_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


@both_formats
def test_nested_state_dicts_lose_their_wrapping(
    save: Callable[[object, Path], Path], tmp_path: Path
) -> None:
    assert set(open_local(save(torch.ones(3, 2), tmp_path / "table.pt")).tensors) == {
        "table"
    }
    state = {"wpe.weight": torch.ones(3, 2)}
    round_: dict[str, Any] = {"model": dict(state)}
    round_["model"]["again"] = round_
    wrapped = {f"module.{name}": tensor for name, tensor in state.items()}
    contents: tuple[Any, ...] = (
        state, wrapped, {"model": state, "epoch": 1}, {"state_dict": wrapped}, [], {},
        {"model": {"state_dict": state}}, {"model_state_dict": state, "optimizer": {"state": {}}},
        round_,
    )  # fmt: skip
    for content in contents:
        path = save(content, tmp_path / "model.pt")
        if not content:
            with pytest.raises(InvalidCheckpoint, match="no tensors"):
                open_local(path)
        else:
            assert set(open_local(path).tensors) == {"wpe.weight"}


@both_formats
def test_a_malicious_pickle_runs_nothing(
    save: Callable[[object, Path], Path], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    path = save(
        {"wpe.weight": torch.ones(3, 2), "x": Payload(trace)}, tmp_path / "model.bin"
    )
    with pytest.raises(InvalidCheckpoint, match=r"model\.bin: .*run code"):
        load(str(path))
    assert not trace.exists()
    torch.load(path, weights_only=False)  # the payload is a live one
    assert trace.exists()


@both_formats
@pytest.mark.parametrize("keep", [0, 1, 30, 100, -100, -1])
def test_a_truncated_torch_file_is_one_clear_error(
    save: Callable[[object, Path], Path], keep: int, tmp_path: Path
) -> None:
    path = save({"wpe.weight": torch.ones(30, 20)}, tmp_path / "model.bin")
    write(path, path.read_bytes()[:keep])
    with pytest.raises(
        InvalidCheckpoint, match=r"model\.bin: .*(cannot read|not a plain)"
    ):
        load(str(path))


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (torch.ones(3, 2, dtype=torch.int8), r"\[3, 2\], is stored as I8"),
        (torch.ones(3, 2).to(torch.float8_e4m3fn), r"\[3, 2\]"),
        (torch.ones(3, 2, dtype=torch.complex64), r"\[3, 2\]"),
        (torch.ones(3, 2, device="meta"), "has no values"),
    ],
)
def test_a_tensor_without_floats_is_refused(
    tensor: torch.Tensor, says: str, tmp_path: Path
) -> None:
    path = save_zip({"wpe.weight": tensor}, tmp_path / "model.pt")
    with pytest.raises((InvalidTable, InvalidCheckpoint), match=rf"wpe\.weight.*{says}"):
        load(str(path))


def test_safetensors_needs_no_torch_and_does_not_look_for_it(tmp_path: Path) -> None:
    safetensors.numpy.save_file({"wpe.weight": VALUES}, tmp_path / "model.safetensors")
    script = """
        import sys
        class Blocker:
            def find_spec(self, name, *_):
                assert name != "torch", "torch was imported"
        sys.meta_path.insert(0, Blocker())
        from posprobe.families import load
        print(len(load(sys.argv[1])))
    """
    assert run_python(script, str(tmp_path)).stdout == "6\n"


def run_python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).resolve().parents[2])
    completed = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": root},
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    return completed


def deflated(source: Path, target: Path) -> None:
    """Pack an archive again, compressed."""
    with (
        zipfile.ZipFile(source) as old,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for member in old.namelist():
            new.writestr(member, old.read(member))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_with_a_member_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"wpe.weight": torch.from_numpy(VALUES)}, path)
    with zipfile.ZipFile(path, "a") as archive:
        name = next(n for n in archive.namelist() if n.endswith("data/0"))
        archive.writestr(name, bytes(VALUES.nbytes))
    with pytest.raises(InvalidCheckpoint, match=r"model\.pt.*twice"):
        open_local(path)
    arrays = tmp_path / "arrays.npz"
    np.savez(arrays, t=VALUES)
    with zipfile.ZipFile(arrays, "a") as archive:
        archive.writestr("t.npy", archive.read("t.npy"))
    with pytest.raises(InvalidCheckpoint, match=r"arrays\.npz.*twice"):
        open_local(arrays)


def test_a_member_without_suffix_does_not_stand_for_the_array_beside_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "arrays.npz"
    np.savez(path, t=VALUES)
    other_path = tmp_path / "other.npy"
    np.save(other_path, VALUES[::-1])
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("t", other_path.read_bytes())
    np.testing.assert_array_equal(open_local(path).read("t").values, VALUES)


def test_a_small_archive_is_not_unpacked_into_more_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 2**20
    monkeypatch.setattr("posprobe.checkpoints.checkpoint.MAX_UNPACKED_BYTES", limit)
    zeros = np.zeros(limit // 4 + 1, np.float32)
    np.savez_compressed(tmp_path / "bomb.npz", t=zeros, small=VALUES)
    torch.save({"t": torch.from_numpy(zeros)}, tmp_path / "stored.pt")
    deflated(tmp_path / "stored.pt", tmp_path / "bomb.pt")
    assert (tmp_path / "bomb.npz").stat().st_size < 10_000
    torch.save({"wpe.weight": torch.from_numpy(VALUES)}, tmp_path / "small.pt")
    deflated(tmp_path / "small.pt", tmp_path / "packed.pt")
    load, mapped = torch.load, []

    def seen(*arguments: Any, **options: Any) -> Any:
        mapped.append(options["mmap"])
        return load(*arguments, **options)

    monkeypatch.setattr(torch, "load", seen)
    for name in ("small.pt", "packed.pt"):
        values = open_local(tmp_path / name).read("wpe.weight").values
        np.testing.assert_array_equal(values, VALUES)
    assert mapped == [True, False]
    checkpoint = open_local(tmp_path / "bomb.npz")
    np.testing.assert_array_equal(checkpoint.read("small").values, VALUES)
    with pytest.raises(InvalidCheckpoint, match="up to 1048576 are unpacked"):
        checkpoint.read("t")
    with pytest.raises(InvalidCheckpoint, match="up to 1048576 are unpacked"):
        open_local(tmp_path / "bomb.pt")
    assert open_local(tmp_path / "stored.pt").read("t").values.shape == zeros.shape


@pytest.mark.parametrize("kind", ["expanded", "sparse"])
def test_a_few_numbers_do_not_stand_for_more_than_fits(kind: str, tmp_path: Path) -> None:
    shape = (2**20, 2**12)
    tensor = torch.ones(1, 1).expand(shape)
    if kind == "sparse":
        nowhere = torch.zeros(2, 0, dtype=torch.int64)
        tensor = torch.sparse_coo_tensor(
            nowhere, torch.zeros(0), shape, check_invariants=True
        )
    torch.save(
        {"wpe.weight": tensor, "small": torch.ones(1, 4).expand(3, 4)}, tmp_path / "m.pt"
    )
    checkpoint = open_local(tmp_path / "m.pt")
    with pytest.raises(InvalidCheckpoint, match="up to 1073741824 are unpacked"):
        checkpoint.read("wpe.weight")
    np.testing.assert_array_equal(checkpoint.read("small").values, np.ones((3, 4)))


@pytest.mark.parametrize("bounds", [(0, 3), (2, 9), (11, 12), (0, 12)])
def test_rows_of_a_long_table_are_those_of_the_whole(
    bounds: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(1).standard_normal((1, 15, 4)).astype(np.float32)
    safetensors.numpy.save_file(
        {"embeddings.position_embeddings": values, "embeddings.cls_token": values[:, :1]},
        tmp_path / "model.safetensors",
    )
    config = {"model_type": "yolos", "image_size": [3, 4], "patch_size": 1}
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"num_detection_tokens": 2})
    )
    table = pp.load(str(tmp_path), rows=slice(*bounds))
    monkeypatch.setattr("posprobe.families.rows.MAX_WHOLE_READ_NUMBERS", 10)
    part = pp.load(str(tmp_path), rows=slice(*bounds))
    np.testing.assert_array_equal(part.values, table.values)
    assert part.layout == table.layout
    assert part.prefix_rows == table.prefix_rows
    assert len(part.prefix_rows) == 3
    np.testing.assert_array_equal(part.prefix, table.prefix)
    assert table.source.sha256 is not None
    assert part.source.sha256 is None
    assert any("digest was not taken" in note for note in part.notes)


#: A pair of twice the same, 40 times: a tree of 2^40 leaves out of 200 bytes.
NESTED = b")" + b"q\0h\0\x86" * 40
LARGE = b"\x8a\5" + struct.pack("<q", 6 << 30)[:5]
DOUBLED = b"c_codecs\nencode\nh\0X\3\0\0\0hex\x86Rq\0"
COSTLY = {
    "a key of nested tuples": b"}" + NESTED + b"K\1s.",
    "a set of nested tuples": b"cbuiltins\nset\n" + NESTED + b"\x85R.",
    "a storage called by nested tuples": b"(X\7\0\0\0storage" + NESTED + b"tQ.",
    "a call of nested tuples": NESTED + b")R.",
    "tuples of 100,000 levels": b"})" + b"\x85" * 100_000 + b"K\1s.",
    "6 GiB of zeros": b"cbuiltins\nbytearray\n" + LARGE + b"\x85R.",
    "6 GiB of zeros in pieces": b"]("
    + b"cbuiltins\nbytearray\nJ\0\0\0\x10\x85R" * 24
    + b"e.",
    "text that doubles": b"U\4aaaaq\0" + DOUBLED * 30 + b".",
    "a long list that is copied often": (
        b"](" + b"K\1" * 30_000 + b"eq\0" + b"cbuiltins\nset\nh\0\x85R\x86" * 3000 + b"."
    ),
}


def as_archive(path: Path, code: bytes, name: str = "data.pkl") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"model/{name}", b"\x80\2" + code)
        archive.writestr("model/version", "3\n")
        archive.writestr("model/byteorder", "little")
    return path


def as_old_file(path: Path, code: bytes) -> Path:
    stream = io.BytesIO()
    serialization = torch.serialization
    begin: tuple[object, ...] = (
        serialization.MAGIC_NUMBER,
        serialization.PROTOCOL_VERSION,
        {},
    )
    for part in begin:
        pickle.dump(part, stream, protocol=2)
    path.write_bytes(stream.getvalue() + b"\x80\2" + code + pickle.dumps([], protocol=2))
    return path


@pytest.mark.parametrize("save", [as_archive, as_old_file])
@pytest.mark.parametrize("case", COSTLY)
def test_a_pickle_that_would_take_all_time_or_memory_is_refused(
    case: str, save: Callable[[Path, bytes], Path], tmp_path: Path
) -> None:
    with pytest.raises(
        InvalidCheckpoint, match=r"model\.pt: its pickle .* It was not loaded"
    ):
        open_local(save(tmp_path / "model.pt", COSTLY[case]))


def test_an_archive_is_recognised_and_searched_as_by_pytorch(tmp_path: Path) -> None:
    code = COSTLY["6 GiB of zeros"]
    with pytest.raises(InvalidCheckpoint, match="asks for 6442450944 bytes"):
        check_pickle_cost(as_archive(tmp_path / "model.pt", code, "DATA.PKL"))
    # A pickle that an archive follows is a pickle.
    hybrid_file = as_old_file(tmp_path / "both.pt", code)
    hybrid_file.write_bytes(
        hybrid_file.read_bytes() + as_archive(tmp_path / "model.pt", b"}.").read_bytes()
    )
    with pytest.raises(InvalidCheckpoint, match="asks for 6442450944 bytes"):
        check_pickle_cost(hybrid_file)


@pytest.mark.parametrize("save", [save_zip, save_legacy])
def test_content_beside_weights_costs_little_time(
    save: Callable[[object, Path], Path], tmp_path: Path
) -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(1, 8)).sum().backward()
    optimizer.step()
    content = {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(),
        "args": argparse.Namespace(shape=[1, (2, 3)], names=tuple(map(str, range(20_000)))),
        "more": [b"abc", bytearray(b"123"), torch.Size([2, 3]), {1, 2}, 2**70, torch.eye(3)],
        "counts": collections.Counter("abca"), "random": torch.get_rng_state(),
        "many": collections.OrderedDict((f"{n}", torch.zeros(1)) for n in range(3000)),
        ("a", ("b", 1)): torch.nn.Parameter(torch.ones(2)),
    }  # fmt: skip
    check_pickle_cost(save(content, tmp_path / "model.pt"))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["a key of nested tuples", "6 GiB of zeros"])
def test_a_library_that_builds_a_model_reads_no_such_pickle_either(
    case: str, tmp_path: Path
) -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=12,
    )  # fmt: skip
    model = BertModel(config)
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    assert type(load_model(str(tmp_path), device="cpu")) is BertModel
    as_archive(tmp_path / "pytorch_model.bin", COSTLY[case])
    load = torch.load
    with pytest.raises(InvalidCheckpoint, match=r"pytorch_model\.bin: its pickle"):
        load_model(str(tmp_path), device="cpu")
    assert torch.load is load
