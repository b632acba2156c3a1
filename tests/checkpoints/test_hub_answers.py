"""What is kept of the Hub, what is downloaded whole, and answers that cannot be used."""

from __future__ import annotations

import hashlib
import io
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hub_server import Hub, Sparse
from huggingface_hub import constants, hf_hub_download
from made_hub import (
    WPE,
    entries,
    gpt2,
    limit_file_size,
    read,
    server,
    small,
    table,
    waits,
)

from posprobe.checkpoints import hub, hub_local
from posprobe.checkpoints.hub import open_hub
from posprobe.errors import MissingExtra, Unreachable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["server", "waits"]


def test_files_in_the_local_cache_of_the_hub_are_used_from_there(
    server: Hub, tmp_path: Path
) -> None:
    values = small(server)
    for name in ("config.json", "model.safetensors"):
        hf_hub_download("someone/small", name)
    server.forget()
    checkpoint = open_hub("someone/small", None, offline=False)
    data = checkpoint.fetch(checkpoint.tensors[WPE])
    assert isinstance(data, memoryview)  # mapped, not read
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)
    assert checkpoint.config == {"model_type": "gpt2"}
    assert (checkpoint.location, checkpoint.revision) == (
        "someone/small", server.repos["someone/small"].commit,
    )  # fmt: skip
    assert server.paths() == ["/api/models/someone/small"]
    cached_bytes = sum(path.stat().st_size for path in entries(tmp_path / "own"))
    assert cached_bytes < 1000  # revision and file list: what is here is not kept twice


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_entry_is_read_again(server: Hub, tmp_path: Path, damage: str) -> None:
    values = small(server)
    read()
    server.forget()
    cache_entries = entries(tmp_path / "own")
    assert len(cache_entries) == 5  # revision, file list, configuration, header, tensor
    for path in cache_entries:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        damaged = {"flip": bytes(content), "cut": bytes(content[:-1]), "empty": b""}
        path.write_bytes(damaged[damage])
    with pytest.raises(Unreachable, match="offline"):
        open_hub("someone/small", None, offline=True)
    np.testing.assert_array_equal(read(), values)
    assert len(server.paths("config.json")) == 1
    assert len(server.paths("/cdn/")) == 2
    server.forget()
    np.testing.assert_array_equal(read(), values)  # and they are mended
    assert len(server.requests) == 1


def test_a_cache_that_cannot_be_written(
    server: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    values = small(server)
    with limit_file_size(1000):  # the kernel refuses to write on, as on a full disk
        np.testing.assert_array_equal(read(), values)
    assert all(path.stat().st_size < 1000 for path in entries(tmp_path / "own"))
    assert not [path for path in entries(tmp_path / "own") if path.name.startswith(".")]
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("POSPROBE_CACHE", str(blocked / "below"))
    with caplog.at_level(logging.DEBUG, "posprobe"):
        np.testing.assert_array_equal(read(), values)
    assert "was not stored" in caplog.text
    assert {record.levelno for record in caplog.records if record.name == "posprobe"} == {
        logging.DEBUG
    }


def test_any_text_is_a_key_of_its_own_and_none_leaves_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSPROBE_CACHE", str(tmp_path / "own"))
    keys = [
        ("..", "..", "..", "evil"), ("/etc/passwd",), ("a/../../b",), ("", ""), ("x" * 5000,),
        ("NUL", "con", "a:b"), ("\x00", "\ud800"), ("C:\\evil",), ("~root",), ("GPT2",), ("gpt2",),
        ("gpt/2",), ("gpt-2",), ("gpt.2",), ("gpt\\2",), ("é",), ("e\u0301",), ("x" * 90,),
    ]  # fmt: skip
    for key in keys:
        hub_local.store(repr(key).encode(), *key)
    assert [hub_local.load(*key) for key in keys] == [repr(key).encode() for key in keys]
    cache_entries = entries(tmp_path)
    assert all(path.is_relative_to(tmp_path / "own") for path in cache_entries)
    assert len({str(path).casefold() for path in cache_entries}) == len(keys)


def test_cache_folder_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("POSPROBE_CACHE", "~/own")
    hub_local.store(b"1", "key")
    monkeypatch.delenv("POSPROBE_CACHE")
    hub_local.store(b"2", "key")
    monkeypatch.delenv("XDG_CACHE_HOME")
    hub_local.store(b"3", "key")
    folders = {path.relative_to(tmp_path).parent.as_posix() for path in entries(tmp_path)}
    assert folders == {"home/own", "xdg/posprobe", "home/.cache/posprobe"}


# --- offline ---------------------------------------------------------------------------------


def test_offline_without_cache_is_refused(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(server)
    says = r"someone/small: not in the local cache.*without `offline`"
    with pytest.raises(Unreachable, match=says):
        open_hub("someone/small", None, offline=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(Unreachable, match=says):
        open_hub("someone/small", None, offline=False)
    assert server.requests == []


def test_offline_reads_the_cache_of_the_hub_client(server: Hub, tmp_path: Path) -> None:
    values = small(server)
    hf_hub_download("someone/small", "config.json")
    with pytest.raises(Unreachable, match="offline"):  # a configuration alone is no model
        open_hub("someone/small", None, offline=True)
    hf_hub_download("someone/small", "model.safetensors")
    server.forget()
    commit = server.repos["someone/small"].commit
    for revision in (None, "main", commit):
        checkpoint = open_hub("someone/small", revision, offline=True)
        np.testing.assert_array_equal(checkpoint.read(WPE).values, values)
        assert checkpoint.config == {"model_type": "gpt2"}
        assert checkpoint.revision == commit
    assert server.requests == []
    assert entries(tmp_path / "own") == []


def test_offline_with_a_header_but_not_the_tensor(server: Hub) -> None:
    small(server)
    commit = open_hub("someone/small", None, offline=False).revision
    server.forget()
    checkpoint = open_hub("someone/small", None, offline=True)
    assert checkpoint.tensors[WPE].shape == (32, 16)
    says = f"hf download someone/small model.safetensors --revision {commit}"
    with pytest.raises(Unreachable, match=says):
        checkpoint.read(WPE)
    assert server.requests == []


def torch_file(values: Mapping[str, NDArray[np.float32]]) -> bytes:
    import torch

    stream = io.BytesIO()
    torch.save(
        {name: torch.from_numpy(value.copy()) for name, value in values.items()}, stream
    )
    return stream.getvalue()


def test_a_torch_repository_is_downloaded_after_saying_how_large_it_is(
    server: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    values = table(512, 768)
    file = torch_file({WPE: values})
    server.add("someone/old", {"pytorch_model.bin": file, "config.json": b'{"a": 1}'})
    checkpoint = open_hub("someone/old", None, offline=False)
    assert (
        "pytorch_model.bin: cannot be read in parts and must be downloaded whole"
        in caplog.text
    )
    assert f"{len(file) / 1e6:.1f} MB" in caplog.text
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)
    assert checkpoint.config == {"a": 1}
    assert checkpoint.location == "someone/old"
    assert checkpoint.revision == server.repos["someone/old"].commit

    server.forget()
    caplog.clear()
    np.testing.assert_array_equal(read("someone/old"), values)
    assert server.paths() == ["/api/models/someone/old"]
    assert caplog.text == ""
    offline = open_hub("someone/old", None, offline=True)
    np.testing.assert_array_equal(offline.read(WPE).values, values)


def test_offline_a_file_that_must_come_whole_is_not_asked_for(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> str:
        raise OSError("the disk is full")

    server.add("someone/old", {"pytorch_model.bin": torch_file({WPE: table(32, 16)})})
    with monkeypatch.context() as patch:
        patch.setattr(hub, "hf_hub_download", broken)
        with pytest.raises(Unreachable, match="the disk is full"):
            open_hub("someone/old", None, offline=False)
    server.forget()
    with pytest.raises(Unreachable, match=r"pytorch_model\.bin: not in the local cache"):
        open_hub("someone/old", None, offline=True)
    assert server.requests == []


def test_a_download_that_fails_at_first_and_is_cut_short(
    server: Hub, waits: list[float]
) -> None:
    values = table(32, 16)
    server.add("someone/old", {"pytorch_model.bin": torch_file({WPE: values})})
    server.fail("status", "pytorch_model.bin", status=503, times=1)
    # The first byte and the metadata come, then the file breaks off.
    server.fail("cut", "pytorch_model.bin", after=1000, times=2)
    np.testing.assert_array_equal(read("someone/old"), values)
    assert waits[0] == 0.5


@pytest.mark.parametrize(
    ("status", "headers", "says"),
    [(503, {}, r"status 503"), (429, {"Retry-After": "900"}, r"wait 900 seconds"),
     (403, {"X-Error-Code": "GatedRepo"}, r"Accept them"),
     (200, {"ETag": None}, r"the download failed.*hf download someone/old pytorch_model.bin")],
)  # fmt: skip
def test_a_download_that_fails(
    server: Hub, status: int, headers: dict[str, str | None], says: str
) -> None:
    server.add("someone/old", {"pytorch_model.bin": torch_file({WPE: table(32, 16)})})
    kind = "status" if status != 200 else "headers"
    server.fail(kind, "pytorch_model.bin", status=status, headers=headers)
    with pytest.raises(Unreachable, match=rf"someone/old/pytorch_model.bin.*{says}"):
        read("someone/old")


def test_a_download_is_compared_with_its_checksum(server: Hub, tmp_path: Path) -> None:
    content = torch_file({WPE: table(32, 16)})
    server.add("someone/old", {"pytorch_model.bin": content})
    announced = hashlib.sha256(b"another file").hexdigest()
    fault = server.fail(
        "headers", "pytorch_model.bin", headers={"ETag": f'"{announced}"'}
    )
    with pytest.raises(
        Unreachable, match=r"the download is not the file that the Hub announced"
    ):
        read("someone/old")
    assert not list((tmp_path / "hub").rglob("blobs/*"))
    assert not list((tmp_path / "hub").rglob("pytorch_model.bin"))
    fault.headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
    assert read("someone/old").shape == (32, 16)


def test_a_download_that_does_not_fit_on_the_disk(server: Hub, tmp_path: Path) -> None:
    server.add("someone/old", {"pytorch_model.bin": torch_file({WPE: table(512, 768)})})
    with (
        limit_file_size(100_000),
        pytest.raises(
            Unreachable, match=r"pytorch_model.bin: the download failed.*space left"
        ),
    ):
        read("someone/old")
    assert not [
        path for path in entries(tmp_path / "hub") if path.stat().st_size > 200_000
    ]


def test_without_torch_nothing_is_downloaded(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add("someone/old", {"pytorch_model.bin": b"x" * 2_000_000})
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    with pytest.raises(MissingExtra, match=r"pytorch_model.bin.*uv sync --extra models"):
        read("someone/old")
    assert server.paths("pytorch_model") == []


def test_a_server_that_ignores_ranges(server: Hub) -> None:
    gpt2(server)
    server.fail("whole", "/cdn/")
    checkpoint = open_hub(
        "gpt2", None, offline=False
    )  # what is needed comes first in the file
    assert checkpoint.tensors[WPE].shape == (1024, 768)
    says = (
        r"gpt2/model.safetensors.*only whole files.*`hf download gpt2 model.safetensors`"
    )
    with pytest.raises(Unreachable, match=says):
        checkpoint.read(WPE)
    assert (
        server.sent() < 50_000_000
    )  # of 550 MB: what the sockets held when they were closed
    values = small(server)
    with pytest.raises(Unreachable, match=r"hf download someone/small model.safetensors"):
        read()
    hf_hub_download("someone/small", "model.safetensors")
    np.testing.assert_array_equal(read(), values)


def test_a_small_file_from_a_server_that_ignores_ranges_and_breaks_off(
    server: Hub,
) -> None:
    values = small(server)
    server.fail("cut", "config.json", after=5, times=1)
    server.fail("whole", "config.json")
    checkpoint = open_hub("someone/small", None, offline=False)
    assert checkpoint.config == {"model_type": "gpt2"}
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)


@pytest.mark.parametrize(
    "content_range",
    ["bytes 0-{count}/{size}", "bytes {before}-{last}/{size}", "bytes {start}-{size}/{size}",
     "bytes {start}-{before}/{size}", "bytes {start}-{last}/{last}", "bytes {start}-{last}/*",
     "bytes {start}-{last}/99999999999999999999", "items {start}-{last}/{size}", None],
)  # fmt: skip
def test_a_range_that_was_not_asked_for_is_never_used(
    server: Hub, content_range: str | None
) -> None:
    small(server)
    checkpoint = open_hub("someone/small", None, offline=False)
    start, stop = checkpoint.tensors[WPE].start, checkpoint.tensors[WPE].stop
    places = {
        "start": start, "before": start - 1, "last": stop - 1, "count": stop - start,
        "size": server.repos["someone/small"].files["model.safetensors"].size,
    }  # fmt: skip
    header = content_range.format(**places) if content_range else None
    server.forget()
    server.fail("headers", "/cdn/", headers={"Content-Range": header})
    with pytest.raises(Unreachable, match=r"someone/small/model.*asked for.*hf download"):
        checkpoint.read(WPE)
    assert len(server.paths("/cdn/")) == 1


def test_a_compressed_answer_is_refused(server: Hub) -> None:
    small(server)
    server.fail("headers", "/cdn/", headers={"Content-Encoding": "gzip"})
    with pytest.raises(Unreachable, match=r"someone/small/model.safetensors.*compresses"):
        read()


def test_a_response_without_length_is_refused(server: Hub) -> None:
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
    with pytest.raises(
        Unreachable, match=r"someone/small.*not a model's page.*sign-in page"
    ):
        read()
    assert entries(tmp_path) == []


def test_file_names_from_the_hub_are_not_trusted(server: Hub, tmp_path: Path) -> None:
    values = small(server)
    files = server.repos["someone/small"].files
    for name in (
        "../../evil.npz",
        "/etc/evil.npz",
        "..\\evil.npz",
        "\x1b[2Jevil.npz",
        "..",
    ):
        files[name] = Sparse(4, {})
    np.testing.assert_array_equal(read(), values)
    stored = b"".join(path.read_bytes() for path in entries(tmp_path / "own"))
    assert b"config.json" in stored
    assert b"evil" not in stored
