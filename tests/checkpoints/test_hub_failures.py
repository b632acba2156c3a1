"""What the Hub refuses is one clear error; what passes is waited for; what misleads is not used."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hub_server import Hub, Sparse, serve
from huggingface_hub import constants
from made_hub import (
    CREDENTIAL,
    WPE,
    entries,
    gpt2,
    read,
    server,
    small,
    table,
    waits,
    weights,
)

from posprobe.checkpoints import hub_local, transfer
from posprobe.checkpoints.hub import open_hub
from posprobe.errors import (
    InvalidCheckpoint,
    PosprobeError,
    UnknownReference,
    Unreachable,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["server", "waits"]


def test_a_private_repository_asks_for_a_token(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(server, token=CREDENTIAL)
    with pytest.raises(
        UnknownReference, match=r"someone/small.*private.*HF_TOKEN.*hf auth login"
    ):
        read()
    monkeypatch.setenv("HF_TOKEN", "hf_of-somebody-else")
    for name in ("someone/small", "no/where"):
        with pytest.raises(
            UnknownReference, match=rf"{name}.*no such model.*404.*spelling"
        ):
            read(name)
    assert len(server.requests) == 3  # a refusal is not asked again


@pytest.mark.parametrize("token", [None, "hf_of-somebody-else"])
def test_a_gated_repository_says_where_to_accept_its_licence(
    server: Hub, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    small(server, token=CREDENTIAL, gated=True)
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(
        Unreachable, match=r"someone/small/config.json.*Accept.*model's page"
    ):
        read()


def test_a_missing_revision(server: Hub) -> None:
    small(server)
    with pytest.raises(UnknownReference, match=r"someone/small@v9.*no such revision"):
        read(revision="v9")


@pytest.mark.parametrize(
    ("url_path", "status", "headers", "error", "says"),
    [
        ("/cdn/", 401, {"X-Error-Message": "Invalid credentials in Authorization header"},
         Unreachable, r"does not accept your token.*hf auth login"),
        ("/resolve", 403, {"X-Error-Message": "You lack the scope"}, Unreachable,
         r"forbidden \(You lack the"),
        ("/cdn/", 403, {}, Unreachable, r"forbidden.*HF_TOKEN"),
        ("/resolve", 404, {}, UnknownReference, r"status 404.*spelling"),
        ("/cdn/", 404, {"X-Error-Code": "EntryNotFound"}, UnknownReference, r"no such file"),
        ("/cdn/", 416, {"Content-Range": "bytes */12"}, Unreachable,
         r"no such range.*bytes \*/12"),
        ("/resolve", 451, {}, Unreachable, r"status 451"),
        ("/cdn/", 304, {}, Unreachable, r"status 304"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_clear_error(
    server: Hub,
    url_path: str,
    status: int,
    headers: dict[str, str | None],
    error: type[PosprobeError],
    says: str,
) -> None:
    small(server)
    checkpoint = open_hub("someone/small", None, offline=False)
    server.forget()
    server.fail("status", url_path, status=status, headers=headers)
    with pytest.raises(error, match=rf"someone/small/model.safetensors.*{says}"):
        checkpoint.read(WPE)
    assert len(server.requests) == (
        2 if url_path == "/cdn/" else 1
    )  # a refusal is not asked again


@pytest.mark.parametrize("repo_id", ["a/b/c", "a--b", "me/a--b", "-a", "a b", ".."])
def test_an_impossible_id_sends_no_request(server: Hub, repo_id: str) -> None:
    with pytest.raises(UnknownReference, match=f"^{repo_id}: not a valid Hub id"):
        read(repo_id)
    with pytest.raises((UnknownReference, Unreachable), match=f"^{repo_id}: "):
        open_hub(repo_id, None, offline=True)
    assert server.requests == []


# --- what passes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url_path", "statuses"),
    [("/cdn/", (408, 429, 500)), ("/cdn/", (502, 503, 504)), ("/someone/small/res", (503,) * 3),
     ("config.json", (503,) * 3), ("/api/models", (503,) * 3)],
)  # fmt: skip
def test_a_server_that_recovers_is_waited_for(
    server: Hub, waits: list[float], url_path: str, statuses: tuple[int, ...]
) -> None:
    values = small(server)
    for status in statuses:
        server.fail("status", url_path, status=status, times=1)
    np.testing.assert_array_equal(read(), values)
    assert waits == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(
    "url_path", ["/api/models", "config.json", "/someone/small/res", "/cdn/"]
)
def test_a_server_that_does_not_recover_is_given_up(
    server: Hub, waits: list[float], url_path: str
) -> None:
    small(server)
    server.fail("status", url_path, status=503)
    with pytest.raises(Unreachable, match=r"someone/small.*status 503\. .*HF_ENDPOINT"):
        read()
    assert len(server.paths(url_path)) == 4
    assert waits == [0.5, 1.0, 2.0]


def test_a_short_wait_that_is_asked_for_is_kept(server: Hub, waits: list[float]) -> None:
    values = small(server)
    server.fail("status", "/cdn/", status=429, times=1, headers={"Retry-After": "7"})
    server.fail("status", "/cdn/", status=503, times=1, headers={"Retry-After": "0"})
    server.fail(
        "status", "/cdn/", status=429, times=1, headers={"RateLimit": '"api";r=0;t=9'}
    )
    np.testing.assert_array_equal(read(), values)
    assert waits == [7.0, 1.0, 9.0]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3600"}, r"3600"),
        (
            {
                "RateLimit": '"resolvers";r=0;t=280',
                "RateLimit-Policy": '"w";"api";q=5;w=300',
            },
            r"280",
        ),
    ],
)
@pytest.mark.parametrize("url_path", ["/api/models", "/cdn/"])
def test_a_long_retry_after_is_reported_and_not_waited_for(
    server: Hub,
    waits: list[float],
    headers: dict[str, str | None],
    seconds: str,
    url_path: str,
) -> None:
    small(server)
    server.fail("status", url_path, status=429, headers=headers)
    with pytest.raises(
        Unreachable, match=rf"status 429.*wait {seconds} seconds.*HF_TOKEN"
    ):
        read()
    assert waits == []
    assert len(server.paths(url_path)) == 1


@pytest.mark.parametrize(
    "header_values", [("soon", "-5", "nan"), ("9" * 5000, "\xb2", "Fri, 31 Dec 9999")]
)
def test_an_invalid_retry_after_uses_the_default_wait(
    server: Hub, waits: list[float], header_values: tuple[str, ...]
) -> None:
    values = small(server)
    for text in header_values:
        headers = {"Retry-After": text, "RateLimit": "r=5;t=9"}
        server.fail("status", "/cdn/", status=429, times=1, headers=headers)
    np.testing.assert_array_equal(read(), values)
    assert waits == [0.5, 1.0, 2.0]


def test_a_body_cut_short_is_resumed_where_it_stopped(
    server: Hub, waits: list[float]
) -> None:
    values = gpt2(server)
    checkpoint = open_hub("gpt2", None, offline=False)
    info = checkpoint.tensors[WPE]
    server.forget()
    server.fail("cut", "/cdn/", after=1_000_000, times=3)
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)
    starts = [
        r.headers["range"].split("-")[0] for r in server.requests if r.server == "cdn"
    ]
    assert starts == [f"bytes={info.start + n * 1_000_000}" for n in range(4)]
    assert server.sent() < values.nbytes + 10_000
    assert waits == [0.5, 1.0, 2.0]


def test_a_server_that_falls_silent(
    server: Hub, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    values = small(server)
    monkeypatch.setattr(
        constants, "HF_HUB_DOWNLOAD_TIMEOUT", 2.0
    )  # a busy machine answers later
    for url_path in ("/api/models", "/cdn/"):
        server.fail("hang", url_path, after=7, times=1)
    np.testing.assert_array_equal(read(), values)
    assert waits == [0.5, 0.5]


def test_a_closed_port_is_one_clear_error(
    server: Hub, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    with serve() as second_server:
        gone = second_server.url
    monkeypatch.setattr(constants, "ENDPOINT", gone)
    with pytest.raises(
        Unreachable,
        match=r"gpt2: the Hugging Face Hub cannot be reached.*network.*`offline=True`",
    ):
        read("gpt2")
    assert len(waits) == 3
    assert server.requests == []


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
@pytest.mark.parametrize("cached", [False, True])
def test_a_file_replaced_between_its_header_and_a_tensor_is_refused(
    large: int, cached: bool, server: Hub
) -> None:
    small(server)
    server.large = large
    checkpoint = open_hub(ID, None, offline=False)
    replaced(server, other_weights())
    if cached:
        checkpoint = open_hub(ID, None, offline=False)
    with pytest.raises(Unreachable, match="was replaced since its beginning was read"):
        checkpoint.read(WPE)
    # Nothing of the old header is kept, so that the next run reads one version of both.
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
    headers = {"Content-Range": f"bytes {info.start}-{info.stop - 1}/{size + 8}"}
    server.fail("headers", "/cdn/", times=1, headers=headers)
    with pytest.raises(Unreachable, match="replaced"):
        checkpoint.read(WPE)
    server.fail("headers", "/resolve/", times=1, headers={"X-Repo-Commit": "f" * 40})
    with pytest.raises(
        Unreachable, match=r"commit .* was asked for and 'ffffffffffff' came"
    ):
        checkpoint.read(WPE)
    assert hub_local.load(ID, server.repos[ID].commit, "files") is not None


def test_a_file_without_version_headers_is_read(server: Hub) -> None:
    values = small(server)
    no_headers: dict[str, str | None] = dict.fromkeys(
        ("X-Repo-Commit", "ETag", "X-Linked-Etag", "X-Linked-Size")
    )
    server.fail("headers", "/resolve/", headers=no_headers)
    np.testing.assert_array_equal(read(), values)


def test_an_entry_of_the_cache_that_holds_another_tensor_is_not_believed(
    server: Hub, tmp_path: Path
) -> None:
    # Both lie behind the beginning of the file, which is an entry of its own.
    names = {"first": (100, 100), WPE: (32, 16), "b": (32, 16)}
    values, other_values = table(32, 16, 0), table(32, 16, 1)
    server.add(
        ID, {"model.safetensors": weights(names, {WPE: values, "b": other_values})}
    )
    checkpoint = open_hub(ID, None, offline=False)
    begun = set(entries(tmp_path / "own"))
    np.testing.assert_array_equal(checkpoint.read("b").values, other_values)
    (second_entry,) = set(entries(tmp_path / "own")) - begun
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)
    (ours,) = set(entries(tmp_path / "own")) - begun - {second_entry}
    shutil.copy(second_entry, ours)
    server.forget()
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)
    assert server.sent() > values.nbytes  # it was read again


@pytest.mark.parametrize(
    ("kind", "part"),
    [("drip", "/api/models"), ("drip-head", "config.json"), ("drip", "/cdn/")],
)
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(
    kind: str, part: str, server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(server)
    monkeypatch.setattr("posprobe.checkpoints.transfer.MAX_REQUEST_SECONDS", 0.4)
    monkeypatch.setattr("posprobe.checkpoints.transfer.BODY_GRACE_SECONDS", 0.4)
    server.fail(kind, part)
    with pytest.raises(Unreachable, match=r"is too slow|is not a model's page"):
        read()


def test_a_slow_server_that_keeps_the_least_rate_is_waited_for(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = small(server)
    monkeypatch.setattr("posprobe.checkpoints.transfer.BODY_GRACE_SECONDS", 0.4)
    monkeypatch.setattr("posprobe.checkpoints.transfer.MIN_BYTES_PER_SECOND", 1.0)
    server.fail("drip", "config.json")
    np.testing.assert_array_equal(read(), values)


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
