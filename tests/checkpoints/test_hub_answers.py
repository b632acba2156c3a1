"""Answers of the Hub that cannot be used as they came."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hub_server import Hub, Sparse
from huggingface_hub import hf_hub_download
from made_hub import WPE, entries, gpt2, read, server, small, waits, weights

from posprobe.checkpoints import hub
from posprobe.checkpoints.hub import open_hub
from posprobe.errors import InvalidCheckpoint, Unreachable

__all__ = ["server", "waits"]


def test_a_server_that_ignores_ranges(server: Hub) -> None:
    gpt2(server)
    server.fail("whole", "/cdn/")
    checkpoint = open_hub("gpt2", None, offline=False)  # what is needed comes first in the file
    assert checkpoint.tensors[WPE].shape == (1024, 768)
    says = r"gpt2/model.safetensors.*only whole files.*`hf download gpt2 model.safetensors`"
    with pytest.raises(Unreachable, match=says):
        checkpoint.read(WPE)
    assert server.sent() < 50_000_000  # of 550 MB: what the sockets held when they were closed


def test_a_file_that_was_downloaded_as_told_is_used(server: Hub) -> None:
    values = small(server)
    server.fail("whole", "/cdn/")
    with pytest.raises(Unreachable, match=r"hf download someone/small model.safetensors"):
        read()
    hf_hub_download("someone/small", "model.safetensors")
    np.testing.assert_array_equal(read(), values)


def test_a_small_file_from_a_server_that_ignores_ranges_and_breaks_off(server: Hub) -> None:
    values = small(server)
    server.fail("cut", "config.json", after=5, times=1)
    server.fail("whole", "config.json")
    checkpoint = open_hub("someone/small", None, offline=False)
    assert checkpoint.config == {"model_type": "gpt2"}
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)


@pytest.mark.parametrize(
    "told",
    ["bytes 0-{count}/{size}", "bytes {before}-{last}/{size}", "bytes {start}-{size}/{size}",
     "bytes {start}-{before}/{size}", "bytes {start}-{last}/{last}", "bytes {start}-{last}/*",
     "bytes {start}-{last}/99999999999999999999", "items {start}-{last}/{size}", None],
)  # fmt: skip
def test_a_range_that_was_not_asked_for_is_never_used(server: Hub, told: str | None) -> None:
    small(server)
    checkpoint = open_hub("someone/small", None, offline=False)
    start, stop = checkpoint.tensors[WPE].start, checkpoint.tensors[WPE].stop
    places = {
        "start": start, "before": start - 1, "last": stop - 1, "count": stop - start,
        "size": server.repos["someone/small"].files["model.safetensors"].size,
    }  # fmt: skip
    right = told.format(**places) if told else None
    server.forget()
    server.fail("headers", "/cdn/", headers={"Content-Range": right})
    with pytest.raises(Unreachable, match=r"someone/small/model.*asked for.*hf download"):
        checkpoint.read(WPE)
    assert len(server.paths("/cdn/")) == 1


def test_a_range_that_ends_early_is_completed(server: Hub) -> None:
    values = small(server)
    checkpoint = open_hub("someone/small", None, offline=False)
    server.fail("short", "/cdn/", after=100, times=2)
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)


def test_a_compressed_answer_is_refused(server: Hub) -> None:
    small(server)
    server.fail("headers", "/cdn/", headers={"Content-Encoding": "gzip"})
    with pytest.raises(Unreachable, match=r"someone/small/model.safetensors.*compresses"):
        read()


def test_a_length_that_is_not_told(server: Hub) -> None:
    values = small(server)
    server.fail("whole", "config.json", headers={"Content-Length": None})
    np.testing.assert_array_equal(read(), values)
    server.fail("whole", "/cdn/", headers={"Content-Length": None})
    small(server)
    with pytest.raises(Unreachable, match=r"does not say how long.*hf download"):
        read()


@pytest.mark.parametrize(
    "page",
    [b"<html>Sign in to the network</html>", b"[]", b'{"sha": "0"}', b'"text"', b"",
     b'{"id": "x", "siblings": []}', b'{"id": "x", "sha": "../../../../tmp/x", "siblings": []}',
     b'{"id": "x", "sha": "' + b"a" * 40 + b'", "siblings": [1]}'],
)  # fmt: skip
def test_a_page_that_is_none(server: Hub, tmp_path: Path, page: bytes) -> None:
    server.fail("body", "/api/models", body=page)
    with pytest.raises(Unreachable, match=r"someone/small.*not a model's page.*sign-in page"):
        read()
    assert entries(tmp_path) == []


def test_a_configuration_that_is_none(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    file = weights({WPE: (32, 16)}, {})
    server.add("someone/odd", {"model.safetensors": file, "config.json": b"[1, 2]"})
    with pytest.raises(InvalidCheckpoint, match=r"someone/odd/config.json.*JSON object"):
        read("someone/odd")
    server.add("someone/odd", {"model.safetensors": file, "config.json": b"{}" + b" " * 100})
    monkeypatch.setattr(hub, "MAX_JSON", 50)
    with pytest.raises(InvalidCheckpoint, match=r"someone/odd/config.json.*longer than 50 bytes"):
        read("someone/odd")


def test_a_repository_without_weights(server: Hub) -> None:
    server.add("someone/words", {"README.md": b"", "rust_model.ot": b""})
    with pytest.raises(InvalidCheckpoint, match=r"someone/words: contains no weights.*rust_model"):
        read("someone/words")


def test_file_names_from_the_hub_are_not_trusted(server: Hub, tmp_path: Path) -> None:
    values = small(server)
    files = server.repos["someone/small"].files
    for name in ("../../evil.npz", "/etc/evil.npz", "..\\evil.npz", "\x1b[2Jevil.npz", ".."):
        files[name] = Sparse(4, {})
    np.testing.assert_array_equal(read(), values)
    stored = b"".join(path.read_bytes() for path in entries(tmp_path / "own"))
    assert b"config.json" in stored
    assert b"evil" not in stored
