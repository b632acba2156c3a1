"""TensorFlow's checkpoints, read without TensorFlow: a real one that it wrote, and damaged ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import posprobe as pp
from posprobe.checkpoints import open_local
from posprobe.errors import InvalidCheckpoint

REAL = Path(__file__).parents[1] / "data" / "tensorflow-bert"
#: What its script wrote, in its order.
SHAPES = {
    "bert/embeddings/LayerNorm/beta": (8,),
    "bert/embeddings/LayerNorm/gamma": (8,),
    "bert/embeddings/position_embeddings": (16, 8),
    "bert/embeddings/token_type_embeddings": (2, 8),
    "bert/embeddings/word_embeddings": (30, 8),
    "bert/encoder/layer_0/attention/self/query/kernel": (8, 8),
    "bert/pooler/dense/bias": (8,),
}


def copy(folder: Path) -> Path:
    shutil.copytree(REAL, folder)
    return folder / "bert_model.ckpt.index"


def test_every_tensor_that_tensorflow_wrote_is_read_bit_for_bit() -> None:
    checkpoint = open_local(REAL)
    rng = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        expected = rng.standard_normal(shape).astype(np.float32)
        assert checkpoint.read(name).values.tobytes() == expected.tobytes()
    assert (
        checkpoint.read("half").values.tobytes()
        == np.arange(6, dtype=np.float16).tobytes()
    )
    assert checkpoint.tensors["global_step"].dtype == "I64"
    assert set(checkpoint.tensors) == {*SHAPES, "half", "global_step"}


def test_the_table_is_berts(tmp_path: Path) -> None:
    index = copy(tmp_path / "model")
    bare = pp.load(str(index.parent))
    (index.parent / "bert_config.json").write_text(
        json.dumps({"max_position_embeddings": 16})
    )
    for table in (bare, pp.load(str(index))):
        assert table.family == "bert"
        assert len(table) == 16
        assert table.source.format == "TensorFlow checkpoint"
        assert table.source.file == "bert_model.ckpt.data-00000-of-00001"


# --- hostile files ---


def test_a_cut_index_is_refused_and_cut_data_too(tmp_path: Path) -> None:
    index = copy(tmp_path / "model")
    content = index.read_bytes()
    for length in (0, 10, 47, 60, len(content) - 1):
        index.write_bytes(content[:length])
        with pytest.raises(InvalidCheckpoint):
            open_local(index)
    index.write_bytes(content)
    data = index.with_name("bert_model.ckpt.data-00000-of-00001")
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(InvalidCheckpoint, match="has 36"):
        pp.load(str(index))
    data.unlink()
    with pytest.raises(InvalidCheckpoint, match="Download the whole checkpoint"):
        pp.load(str(index))


def number(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def block(entries: list[tuple[int, bytes, bytes]]) -> bytes:
    """Write a block of entries: bytes shared with the key before, the rest of it, the value."""
    body = b"".join(
        number(shared) + number(len(key)) + number(len(value)) + key + value
        for shared, key, value in entries
    )
    return body + bytes(4) + (1).to_bytes(4, "little")


def table(
    entries: list[tuple[int, bytes, bytes]], handles: int = 1, compressed: int = 0
) -> bytes:
    """Write a table of one block, which the index of blocks may name several times."""
    data = block(entries)
    handle = number(0) + number(len(data))
    index = block([(0, b"%06d" % place, handle) for place in range(handles)])
    footer = 2 * number(0) + number(len(data) + 5) + number(len(index))
    tail = footer.ljust(40, b"\0") + 0xDB4775248B80FB57.to_bytes(8, "little")
    return data + bytes([compressed]) + bytes(4) + index + bytes(5) + tail


def entry(shape: tuple[int, ...], size: int, shard: int = 0, kind: int = 1) -> bytes:
    axes = b"".join(
        b"\x12" + number(len(axis)) + axis
        for axis in (b"\x08" + number(n) for n in shape)
    )
    return (
        b"\x08" + number(kind) + b"\x12" + number(len(axes)) + axes
        + b"\x18" + number(shard) + b"\x28" + number(size)
    )  # fmt: skip


HEADER = (0, b"", b"\x08\x01")


def test_a_table_made_by_hand_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.index"
    path.write_bytes(
        table([HEADER, (0, b"a/b", entry((2, 3), 24)), (2, b"c", entry((6,), 24))])
    )
    assert {n: i.shape for n, i in open_local(path).tensors.items()} == {
        "a/b": (2, 3), "a/c": (6,),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (table([HEADER])[:-1] + b"\0", "end as such a table does"),
        (table([HEADER], handles=50), "overlap"),
        (table([HEADER], compressed=1), "compressed"),
        (table([HEADER, (0, b"a", entry((2**31, 2**31), 24))]), "does not fit"),
        (table([HEADER, (0, b"a", entry((2**64 - 1,), 24))]), "does not fit"),
        (table([HEADER, (0, b"a", entry((6,), 24, shard=5))]), "sound shape or file"),
        (table([HEADER, (0, b"b", b""), (0, b"a", b"")]), "out of order"),
        (table([HEADER, (9, b"b", b"")]), "beyond its block"),
        (table([HEADER, (0, bytes(2000), b"")]), "too long a name"),
        (table([(0, b"", b"\x08\x01\x10\x01")]), "other way round"),
        (table([HEADER, (0, b"\xff", entry((6,), 24))]), "index of a TensorFlow"),
    ],
)
def test_a_false_index_is_one_clear_error(
    content: bytes, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "ckpt.index"
    path.write_bytes(content)
    with pytest.raises(InvalidCheckpoint, match=says) as caught:
        open_local(path)
    assert "\n" not in str(caught.value)
