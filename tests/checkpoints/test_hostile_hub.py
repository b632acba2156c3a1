"""A Hub that misleads, or never ends: each test is named after a fault that once held."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hub_server import Hub, Sparse
from made_hub import WPE, entries, read, server, small, table, waits, weights

from posprobe.checkpoints import hub_local, transfer
from posprobe.checkpoints.hub import open_hub
from posprobe.errors import InvalidCheckpoint, UnknownReference, Unreachable

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["server", "waits"]

ID = "someone/small"


def replaced(server: Hub, content: bytes | Sparse) -> None:
    """Put another file into the place of the weights; the commit stays."""
    file = content if isinstance(content, Sparse) else Sparse(len(content), {0: content})
    server.repos[ID].files["model.safetensors"] = file


def other_weights(rows: int = 32) -> Sparse:
    """Make weights with other numbers, laid out as in `small`."""
    shapes = {"other": (100, 100), WPE: (rows, 16)}
    return weights(shapes, {WPE: table(rows, 16, seed=1)})


@pytest.mark.parametrize("large", [1000, 10**9])
def test_a_file_replaced_between_its_header_and_a_tensor_is_refused(
    large: int, server: Hub
) -> None:
    small(server)
    server.large = large
    checkpoint = open_hub(ID, None, offline=False)
    replaced(server, other_weights())
    with pytest.raises(Unreachable, match="was replaced since its beginning was read"):
        checkpoint.read(WPE)
    # Nothing of the old header is kept, so that the next run reads one version of both.
    np.testing.assert_array_equal(read(), table(32, 16, seed=1))


def test_a_file_replaced_since_its_header_was_cached_is_refused(server: Hub) -> None:
    small(server)
    open_hub(ID, None, offline=False)
    replaced(server, other_weights())
    with pytest.raises(Unreachable, match="was replaced"):
        read()
    np.testing.assert_array_equal(read(), table(32, 16, seed=1))


def test_a_file_replaced_while_a_tensor_arrives_is_refused(server: Hub) -> None:
    small(server)
    checkpoint = open_hub(ID, None, offline=False)
    fault = server.fail("cut", "/cdn/", after=700, times=1)
    take = transfer.pause

    def exchange(seconds: float) -> None:
        replaced(server, other_weights())
        take(seconds)

    transfer.pause = exchange  # the fixture puts it back
    with pytest.raises(Unreachable, match="was replaced"):
        checkpoint.read(WPE)
    assert fault.times == 0


def test_a_file_of_another_length_or_commit_is_refused(server: Hub) -> None:
    small(server)
    checkpoint = open_hub(ID, None, offline=False)
    size = server.repos[ID].files["model.safetensors"].size
    info = checkpoint.tensors[WPE]
    told = {"Content-Range": f"bytes {info.start}-{info.stop - 1}/{size + 8}"}
    server.fail("headers", "/cdn/", times=1, headers=told)
    with pytest.raises(Unreachable, match="replaced"):
        checkpoint.read(WPE)
    server.fail("headers", "/resolve/", times=1, headers={"X-Repo-Commit": "f" * 40})
    with pytest.raises(Unreachable, match=r"commit .* was asked for and 'ffffffffffff' came"):
        checkpoint.read(WPE)
    assert hub_local.load(ID, server.repos[ID].commit, "files") is not None


def test_a_file_that_says_nothing_of_its_version_is_read(server: Hub) -> None:
    values = small(server)
    nothing: dict[str, str | None] = dict.fromkeys(
        ("X-Repo-Commit", "ETag", "X-Linked-Etag", "X-Linked-Size")
    )
    server.fail("headers", "/resolve/", headers=nothing)
    np.testing.assert_array_equal(read(), values)


def test_an_entry_of_the_cache_that_holds_another_tensor_is_not_believed(
    server: Hub, tmp_path: Path
) -> None:
    # Both lie behind the beginning of the file, which is an entry of its own.
    names = {"first": (100, 100), WPE: (32, 16), "b": (32, 16)}
    values, other = table(32, 16, 0), table(32, 16, 1)
    server.add(ID, {"model.safetensors": weights(names, {WPE: values, "b": other})})
    checkpoint = open_hub(ID, None, offline=False)
    begun = set(entries(tmp_path / "own"))
    np.testing.assert_array_equal(checkpoint.read("b").values, other)
    (theirs,) = set(entries(tmp_path / "own")) - begun
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)
    (ours,) = set(entries(tmp_path / "own")) - begun - {theirs}
    shutil.copy(theirs, ours)
    server.forget()
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)
    assert server.sent() > values.nbytes  # it was read again


def test_an_entry_of_the_cache_of_another_place_is_not_believed(server: Hub) -> None:
    values = small(server)
    checkpoint = open_hub(ID, None, offline=False)
    checkpoint.read(WPE)
    info = checkpoint.tensors[WPE]
    server.forget()
    before = replace(info, start=info.start - 16, stop=info.stop - 16)
    assert bytes(checkpoint.fetch(before)) == bytes(16) + values.tobytes()[:-16]
    assert server.sent() > values.nbytes


def test_a_list_of_files_in_the_cache_that_is_none_is_asked_for_again(server: Hub) -> None:
    values = small(server)
    commit = server.repos[ID].commit
    for content in (b"5", b"[5]", b'["../x"]', b"[" * 100_000, b"\xff"):
        hub_local.store(content, ID, commit, "files")
        np.testing.assert_array_equal(read(revision=commit), values)


@pytest.mark.parametrize("kind", ["drip", "drip-head"])
@pytest.mark.parametrize("part", ["/api/models", "config.json", "/cdn/"])
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(
    kind: str, part: str, server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(server)
    monkeypatch.setattr("posprobe.checkpoints.transfer.LONGEST_REQUEST", 0.4)
    monkeypatch.setattr("posprobe.checkpoints.transfer.GRACE", 0.4)
    server.fail(kind, part)
    with pytest.raises(Unreachable, match=r"is too slow|is not a model's page"):
        read()


def test_a_slow_server_that_keeps_the_least_rate_is_waited_for(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = small(server)
    monkeypatch.setattr("posprobe.checkpoints.transfer.GRACE", 0.4)
    monkeypatch.setattr("posprobe.checkpoints.transfer.LEAST_RATE", 1.0)
    server.fail("drip", "config.json")
    np.testing.assert_array_equal(read(), values)


@pytest.mark.parametrize(
    "told",
    [
        "Fri, 31 Dec 9999 23:59:59 -2359", "Fri, 99 Dec 99999 23:59:59 GMT", "9" * 5000, "\xb2",
        "Mon, 01 Jan 0001 00:00:00 +2359", "-5", "nan", "1e400",
    ],
)  # fmt: skip
def test_an_absurd_date_to_come_back_at_is_no_traceback(
    told: str, server: Hub, waits: list[float]
) -> None:
    small(server)
    server.fail("status", "/api/models", status=429, headers={"Retry-After": told})
    with pytest.raises(Unreachable):
        read()
    assert all(0 <= wait <= transfer.LONGEST_WAIT for wait in waits)


@pytest.mark.parametrize("content", [b"[" * 200_000, b'{"a":' * 200_000])
def test_deeply_nested_answers_are_no_traceback(content: bytes, server: Hub) -> None:
    small(server)
    fault = server.fail("body", "/api/models", body=content)
    with pytest.raises(Unreachable, match="not a model's page"):
        read()
    fault.times = 0
    server.repos[ID].files["config.json"] = Sparse(len(content), {0: content})
    with pytest.raises(InvalidCheckpoint, match=r"not JSON|not valid JSON"):
        read()


@pytest.mark.usefixtures("server")
def test_an_id_with_two_dashes_is_one_clear_error() -> None:
    for repo_id in ("me--model", "me/a--b", "a..b"):
        for offline in (False, True):
            with pytest.raises((UnknownReference, Unreachable)) as caught:
                open_hub(repo_id, None, offline=offline)
            assert re.match(rf"{re.escape(repo_id)}: ", str(caught.value))
