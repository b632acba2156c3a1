"""Pictures, texts and token ids may be anything: none starts a program, hangs or fills memory."""

from __future__ import annotations

import base64
import io
import json
import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, PngImagePlugin

from posprobe.errors import InvalidCheckpoint, PosprobeError, UnknownReference, UsageError
from posprobe.forward import file_tokens, files, image_files, load_tokenizer, text_windows

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n%%EOF\n"


def prepared(picture: Any) -> Any:
    return np.asarray(picture.resize((2, 2)), dtype=np.float32).transpose(2, 0, 1)


def encoded(picture: Image.Image, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()


def chunk(kind: bytes, content: bytes) -> bytes:
    crc = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc)


def png(wide: int, high: int, *chunks: bytes) -> bytes:
    """A grey picture of one bit per pixel, all zero, with chunks before its pixels."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", wide, high, 1, 0, 0, 0, 0))
    pixels = zlib.compress(bytes(((wide + 7) // 8 + 1) * high), 9)
    parts = (head, *chunks, chunk(b"IDAT", pixels), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def many_scans() -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    content = encoded(Image.new("RGB", (64, 64)), "JPEG", progressive=True)
    end_marker = content.rindex(b"\xff\xda")
    return content[:end_marker] + 200 * content[end_marker:-2] + content[-2:]


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a program": lambda: EPS,
    "another format": lambda: encoded(Image.new("RGB", (4, 4)), "GIF"),
    "nothing": lambda: b"",
    "144 megapixels": lambda: png(12_000, 12_000),
    "a webp of 268 megapixels": lambda: (
        b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4)
        + (16_383).to_bytes(3, "little") + (16_382).to_bytes(3, "little")
    ),
    "a text that unpacks": lambda: png(
        4, 4, chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(2**28)))
    ),
    "many texts": lambda: png(
        4, 4, *128 * [chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(2**20 - 1)))]
    ),
    "a colour profile that unpacks": lambda: png(
        4, 4, chunk(b"iCCP", b"k\0\0" + zlib.compress(bytes(2**28)))
    ),
    "many scans": many_scans,
    "half a picture": lambda: encoded(Image.effect_noise((64, 64), 9), "PNG")[:900],
}  # fmt: skip


@pytest.mark.parametrize("fault", HOSTILE)
def test_a_hostile_picture_is_one_sentence_and_the_next_picture(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "0.png").write_bytes(HOSTILE[fault]())
    Image.new("RGB", (4, 4), "red").save(tmp_path / "1.png")
    with caplog.at_level("WARNING", "posprobe"):
        tracemalloc.start()
        images = list(image_files(tmp_path, prepared, count=1))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert np.concatenate(images)[:, 0].min() == 255
    assert peak < 2**27
    (warning,) = caplog.messages
    assert warning.startswith(f"{tmp_path / '0.png'}: the picture cannot be used (")
    (tmp_path / "1.png").unlink()
    with pytest.raises(InvalidCheckpoint, match="nor can any other"):
        next(image_files(tmp_path, prepared))


def test_no_picture_starts_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # what was found before
    (tmp_path / "a.png").write_bytes(EPS)
    with pytest.raises(InvalidCheckpoint):
        next(image_files(tmp_path, prepared))
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "TIFF", "BMP"])
def test_images_are_recognised_by_content_and_give_one_frame(
    form: str, tmp_path: Path
) -> None:
    extra_frames = [Image.new("RGB", (8, 8), "blue")] * 20
    frames = (
        {}
        if form in ("JPEG", "BMP")
        else {"save_all": True, "append_images": extra_frames}
    )
    content = encoded(Image.new("RGB", (8, 8), "red"), form, **frames)
    (tmp_path / "picture.jpg").write_bytes(content)
    (image,) = image_files(tmp_path, prepared)
    assert image.shape == (1, 3, 2, 2)
    assert image[0, 0].min() > 250 > 9 > image[0, 2].max()


def test_texts_of_a_sound_picture_do_not_matter(tmp_path: Path) -> None:
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Comment", "red " * 9, zip=True)
    Image.new("RGB", (4, 4), "red").save(tmp_path / "a.png", pnginfo=texts)
    assert next(image_files(tmp_path, prepared)).shape == (1, 3, 2, 2)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, endless])
def test_special_files_are_refused_without_waiting(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    from posprobe import check, nearest
    from posprobe.sweeps.references import read_file

    for name in (
        "a.png",
        "text.txt",
        "ids.npy",
        "dump.npz",
        "list.txt",
        "fingerprints.jsonl",
    ):
        make(tmp_path / name)
    reads: dict[type[PosprobeError], tuple[Callable[[], Any], ...]] = {
        InvalidCheckpoint: (
            lambda: next(image_files(tmp_path, prepared)),
            lambda: check(tmp_path / "dump.npz", "rotary:64x8"),
            lambda: nearest("sinusoidal:64x8", sweep=tmp_path),
        ),
        UnknownReference: (
            lambda: next(text_windows(tmp_path / "text.txt", split, 4)),
            lambda: file_tokens(tmp_path / "ids.npy"),
        ),
        UsageError: (lambda: read_file(tmp_path / "list.txt"),),
    }
    for kind, calls in reads.items():
        for call in calls:
            with pytest.raises(kind, match="not a regular file"):
                call()


def split(text: str, **_: Any) -> dict[str, list[int]]:
    """Stand for a tokenizer of words that counts what it is given."""
    split.given += len(text)  # type: ignore[attr-defined]
    return {"input_ids": [sum(map(ord, word)) for word in text.split()]}


@pytest.mark.parametrize("count", [1, 3, None])
def test_a_text_is_read_until_enough_tokens_are_there(
    count: int | None, tmp_path: Path
) -> None:
    text = "\n".join(f"line {number} says what its number is" for number in range(30_000))
    (tmp_path / "a.txt").write_text(text)
    split.given = 0  # type: ignore[attr-defined]
    (window,) = text_windows(tmp_path / "a.txt", split, 16, count=count, batch_size=2**20)
    ids = np.array(split(text)["input_ids"])
    assert window.ravel().tolist() == ids[: 16 * (count or len(ids) // 16)].tolist()
    n_extra = split.given - len(text)  # type: ignore[attr-defined]
    assert n_extra == len(text) if count is None else n_extra <= files.TEXT_CHUNK_LETTERS


def test_pieces_of_a_text_are_tokens_as_the_whole_is(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    rng = np.random.default_rng(0)
    letters = "abcdefghij   \n"
    text = "".join(
        letters[place] for place in rng.integers(0, len(letters), 300_000)
    ).strip()
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([text[:20_000]], vocab_size=500, show_progress=False)

    def tokens(text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": tokenizer.encode(text).ids}

    (tmp_path / "a.txt").write_text(text)
    windows = np.concatenate(list(text_windows(tmp_path / "a.txt", tokens, 8)))
    ids = tokenizer.encode(text).ids
    assert windows.ravel().tolist() == ids[: len(ids) // 8 * 8]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("letter", ["a", "\n", " ", "字", "\0"])
def test_a_text_of_one_letter_is_cut_too(letter: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(letter * 10**6)
    pieces = list(files._read_chunks(tmp_path / "a.txt"))
    assert "".join(pieces) == letter * 10**6
    assert max(map(len, pieces)) <= 2 * files.TEXT_CHUNK_LETTERS


def regex(pattern: str, content: str = "b") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def table(announced: int, length: int) -> dict[str, Any]:
    content = base64.b64encode(struct.pack("<I", announced) + bytes(length)).decode()
    return {"type": "Precompiled", "precompiled_charsmap": content}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("normalizer", "phrase"),
    [
        (regex("(a|aa)+$"), "breaks off .*retry-limit"),
        (regex("a", "a" * 1000), "64 times as long"),
        (
            {"type": "Sequence", "normalizers": 3 * [regex("a", "aaaaa")]},
            "64 times as long",
        ),
        ({"type": "Prepend", "prepend": "a" * 10**6}, "64 times as long"),
        (table(2**32 - 1, 0), "says that 4294967295 of them"),
        (table(0, 2), "says that 0 of them"),
        (table(2**31, 64), "says that 2147483648 of them"),
        (regex("("), "parenthesis"),
        (regex("a"), None),
    ],
)
def test_a_tokenizer_that_would_take_all_memory_or_break_off_is_refused(
    normalizer: dict[str, Any], phrase: str | None, tmp_path: Path
) -> None:
    words = {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "b": 1}}
    tokenizer_json = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": normalizer,
        "model": words,
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_json))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(kind))
    (tmp_path / "a.txt").write_text("a" * 60 + "!")
    refused = pytest.raises((UsageError, InvalidCheckpoint), match=phrase)
    with refused if phrase else nullcontext():
        tokenizer = load_tokenizer(str(tmp_path))
        assert next(text_windows(tmp_path / "a.txt", tokenizer, 1)).tolist() == [[0]]


def test_a_text_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\xff" * 9)
    with pytest.raises(UnknownReference, match="UTF-8"):
        next(text_windows(tmp_path / "a.txt", split, 4))
