"""What was read of the Hub is kept: our cache, that of its client, and work offline."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from hub_server import Hub
from huggingface_hub import constants, hf_hub_download
from made_hub import WPE, entries, no_file_longer_than, read, server, small, waits

from posprobe.checkpoints import hub_local
from posprobe.checkpoints.hub import open_hub
from posprobe.errors import Unreachable

__all__ = ["server", "waits"]


# --- the two caches --------------------------------------------------------------------------


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
    kept = sum(path.stat().st_size for path in entries(tmp_path / "own"))
    assert kept < 1000  # revision and file list: what is here is not kept twice


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_entry_is_read_again(server: Hub, tmp_path: Path, damage: str) -> None:
    values = small(server)
    read()
    server.forget()
    found = entries(tmp_path / "own")
    assert len(found) == 5  # revision, file list, configuration, header, tensor
    for path in found:
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
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    values = small(server)
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("POSPROBE_CACHE", str(blocked / "below"))
    with caplog.at_level(logging.DEBUG, "posprobe"):
        np.testing.assert_array_equal(read(), values)
    assert "was not stored" in caplog.text
    assert {record.levelno for record in caplog.records if record.name == "posprobe"} == {
        logging.DEBUG
    }


def test_a_disk_that_is_full(server: Hub, tmp_path: Path) -> None:
    values = small(server)
    with no_file_longer_than(1000):  # the kernel refuses to write on, as on a full disk
        np.testing.assert_array_equal(read(), values)
    assert all(path.stat().st_size < 1000 for path in entries(tmp_path / "own"))
    assert not [path for path in entries(tmp_path / "own") if path.name.startswith(".")]
    np.testing.assert_array_equal(read(), values)


@pytest.mark.parametrize(
    "key",
    [("..", "..", "..", "evil"), ("/etc/passwd",), ("a/../../b",), ("", ""), ("x" * 5000,),
     ("NUL", "con", "a:b"), ("\x00", "\ud800"), ("C:\\evil",), ("~root",)],
)  # fmt: skip
def test_no_key_leaves_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...]
) -> None:
    monkeypatch.setenv("POSPROBE_CACHE", str(tmp_path / "own"))
    hub_local.store(b"content", *key)
    (path,) = entries(tmp_path)
    assert path.is_relative_to(tmp_path / "own")
    assert len(path.relative_to(tmp_path / "own").parts) == len(key)
    assert hub_local.load(*key) == b"content"


def test_keys_that_a_file_system_may_fold_stay_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSPROBE_CACHE", str(tmp_path))
    keys = ["GPT2", "gpt2", "gpt/2", "gpt-2", "gpt_2", "gpt.2", "gpt\\2", "é", "e\u0301", "x" * 90]
    keys += ["x" * 91]
    for key in keys:
        hub_local.store(key.encode(), key)
    assert len({path.name.casefold() for path in entries(tmp_path)}) == len(keys)
    assert [hub_local.load(key) for key in keys] == [key.encode() for key in keys]


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_offline_with_nothing_here(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    small(server)
    says = r"someone/small: not in the local cache.*without --offline"
    with pytest.raises(Unreachable, match=says) as caught:
        open_hub("someone/small", None, offline=True)
    assert caught.value.exit_code == 3
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(Unreachable, match=says):
        open_hub("someone/small", None, offline=False)
    assert server.requests == []


def test_offline_with_what_the_client_of_the_hub_downloaded(server: Hub, tmp_path: Path) -> None:
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


def test_offline_falls_back_on_another_commit_that_is_whole(server: Hub, tmp_path: Path) -> None:
    small(server, seed=1)
    read()
    values = small(server, seed=2)
    hf_hub_download("someone/small", "model.safetensors")
    for path in entries(tmp_path / "own"):
        if path.stat().st_size > 100:  # header and tensor of the first commit
            path.unlink()
    np.testing.assert_array_equal(
        open_hub("someone/small", None, offline=True).read(WPE).values, values
    )
