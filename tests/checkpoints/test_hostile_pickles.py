"""Pickles that run nothing and take all time or memory: PyTorch's own reader carries them out."""

from __future__ import annotations

import argparse
import collections
import io
import pickle
import struct
import zipfile
from typing import TYPE_CHECKING

import pytest
import torch
from made_files import save_legacy, save_zip
from transformers import BertConfig, BertModel

from posprobe.checkpoints import open_local
from posprobe.checkpoints.torchfile import refuse_costly
from posprobe.errors import InvalidCheckpoint
from posprobe.forward import load_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
    "6 GiB of zeros in pieces": b"](" + b"cbuiltins\nbytearray\nJ\0\0\0\x10\x85R" * 24 + b"e.",
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
    known = torch.serialization
    begin: tuple[object, ...] = (known.MAGIC_NUMBER, known.PROTOCOL_VERSION, {})
    for part in begin:
        pickle.dump(part, stream, protocol=2)
    path.write_bytes(stream.getvalue() + b"\x80\2" + code + pickle.dumps([], protocol=2))
    return path


@pytest.mark.parametrize("save", [as_archive, as_old_file])
@pytest.mark.parametrize("case", COSTLY)
def test_a_pickle_that_would_take_all_time_or_memory_is_refused(
    case: str, save: Callable[[Path, bytes], Path], tmp_path: Path
) -> None:
    with pytest.raises(InvalidCheckpoint, match=r"model\.pt: its pickle .* It was not loaded"):
        open_local(save(tmp_path / "model.pt", COSTLY[case]))


def test_an_archive_is_told_and_searched_as_pytorch_does(tmp_path: Path) -> None:
    code = COSTLY["6 GiB of zeros"]
    with pytest.raises(InvalidCheckpoint, match="asks for 6442450944 bytes"):
        refuse_costly(as_archive(tmp_path / "model.pt", code, "DATA.PKL"))
    # A pickle that an archive follows is a pickle.
    both = as_old_file(tmp_path / "both.pt", code)
    both.write_bytes(both.read_bytes() + as_archive(tmp_path / "model.pt", b"}.").read_bytes())
    with pytest.raises(InvalidCheckpoint, match="asks for 6442450944 bytes"):
        refuse_costly(both)


@pytest.mark.parametrize("save", [save_zip, save_legacy])
def test_what_checkpoints_hold_beside_weights_costs_little(
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
    refuse_costly(save(content, tmp_path / "model.pt"))


@pytest.mark.parametrize("case", ["a key of nested tuples", "6 GiB of zeros"])
def test_a_library_that_builds_a_model_reads_no_such_pickle_either(
    case: str, tmp_path: Path
) -> None:
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
