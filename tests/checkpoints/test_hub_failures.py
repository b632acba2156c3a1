"""What the Hub refuses is one clear error; what passes is waited for, and read to its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest
from hub_server import Hub, serve
from huggingface_hub import constants
from made_hub import CREDENTIAL, WPE, gpt2, read, server, small, waits

from posprobe.checkpoints.hub import open_hub
from posprobe.errors import PosprobeError, UnknownReference, Unreachable

__all__ = ["server", "waits"]


# --- refusals --------------------------------------------------------------------------------


def test_a_private_repository_asks_for_a_token(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(server, token=CREDENTIAL)
    with pytest.raises(UnknownReference, match=r"someone/small.*private.*HF_TOKEN.*hf auth login"):
        read()
    monkeypatch.setenv("HF_TOKEN", "hf_of-somebody-else")
    with pytest.raises(UnknownReference, match=r"someone/small.*status 404.*spelling"):
        read()
    assert len(server.requests) == 2  # a refusal is not asked again


def test_a_missing_repository(server: Hub) -> None:
    with pytest.raises(UnknownReference, match=r"no/where.*no such model.*spelling") as caught:
        read("no/where")
    assert caught.value.exit_code == 3
    assert server.paths() == ["/api/models/no/where"]


@pytest.mark.parametrize("token", [None, "hf_of-somebody-else"])
def test_a_gated_repository_says_where_to_accept_its_licence(
    server: Hub, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    small(server, token=CREDENTIAL, gated=True)
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(Unreachable, match=r"someone/small/config.json.*Accept.*model's page"):
        read()


def test_a_missing_revision(server: Hub) -> None:
    small(server)
    with pytest.raises(UnknownReference, match=r"someone/small@v9.*no such revision"):
        read(revision="v9")


@pytest.mark.parametrize(
    ("status", "headers", "error", "says"),
    [
        (401, {"X-Error-Message": "Invalid credentials in Authorization header"}, Unreachable,
         r"does not accept your token.*hf auth login"),
        (403, {"X-Error-Message": "You lack the scope"}, Unreachable, r"forbidden \(You lack the"),
        (403, {}, Unreachable, r"forbidden.*HF_TOKEN"),
        (404, {}, UnknownReference, r"status 404.*spelling"),
        (404, {"X-Error-Code": "EntryNotFound"}, UnknownReference, r"no such file"),
        (416, {"Content-Range": "bytes */12"}, Unreachable, r"no such range.*bytes \*/12"),
        (451, {}, Unreachable, r"status 451"),
        (304, {}, Unreachable, r"status 304"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("at", ["/someone/small/resolve", "/cdn/"])
def test_a_refusal_is_one_clear_error(
    server: Hub,
    status: int,
    headers: dict[str, str | None],
    error: type[PosprobeError],
    says: str,
    at: str,
) -> None:
    small(server)
    checkpoint = open_hub("someone/small", None, offline=False)
    server.forget()
    server.fail("status", at, status=status, headers=headers)
    with pytest.raises(error, match=rf"someone/small/model.safetensors.*{says}") as caught:
        checkpoint.read(WPE)
    assert caught.value.exit_code == 3
    assert len(server.requests) == (2 if at == "/cdn/" else 1)  # a refusal is not asked again


@pytest.mark.parametrize("repo_id", ["a/b/c", "a--b", "-a", "a b", ".."])
def test_an_impossible_id_reaches_nobody(server: Hub, repo_id: str) -> None:
    with pytest.raises(UnknownReference, match="not a valid Hub id"):
        read(repo_id)
    assert server.requests == []


# --- what passes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "at"),
    [(408, "/cdn/"), (429, "/cdn/"), (500, "/cdn/"), (502, "/cdn/"), (503, "/cdn/"),
     (504, "/cdn/"), (503, "/someone/small/res"), (503, "config.json"), (503, "/api/models")],
)  # fmt: skip
def test_a_server_that_recovers_is_waited_for(
    server: Hub, waits: list[float], status: int, at: str
) -> None:
    values = small(server)
    server.fail("status", at, status=status, times=3)
    np.testing.assert_array_equal(read(), values)
    assert waits == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("at", ["/api/models", "config.json", "/someone/small/res", "/cdn/"])
def test_a_server_that_does_not_recover_is_given_up(
    server: Hub, waits: list[float], at: str
) -> None:
    small(server)
    server.fail("status", at, status=503)
    with pytest.raises(Unreachable, match=r"someone/small.*status 503\. .*HF_ENDPOINT"):
        read()
    assert len(server.paths(at)) == 4
    assert waits == [0.5, 1.0, 2.0]


def in_a_while(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


def test_a_short_wait_that_is_asked_for_is_kept(server: Hub, waits: list[float]) -> None:
    values = small(server)
    server.fail("status", "/cdn/", status=429, times=1, headers={"Retry-After": "7"})
    server.fail("status", "/cdn/", status=503, times=1, headers={"Retry-After": "0"})
    server.fail("status", "/cdn/", status=429, times=1, headers={"RateLimit": '"api";r=0;t=9'})
    np.testing.assert_array_equal(read(), values)
    assert waits == [7.0, 1.0, 9.0]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3600"}, r"3600"),
        ({"RateLimit": '"resolvers";r=0;t=280', "RateLimit-Policy": '"w";"api";q=5;w=300'}, r"280"),
        # Made when tests are collected: it may lie half a day back when this one runs.
        ({"Retry-After": in_a_while(950_000)}, r"9[0-4]\d{4}"),
    ],
)
@pytest.mark.parametrize("at", ["/api/models", "/cdn/"])
def test_a_long_wait_is_told_and_not_kept(
    server: Hub, waits: list[float], headers: dict[str, str | None], seconds: str, at: str
) -> None:
    small(server)
    server.fail("status", at, status=429, headers=headers)
    with pytest.raises(Unreachable, match=rf"status 429.*wait {seconds} seconds.*HF_TOKEN"):
        read()
    assert waits == []
    assert len(server.paths(at)) == 1


@pytest.mark.parametrize(
    "headers", [{"Retry-After": "soon"}, {"Retry-After": in_a_while(-99)}, {"RateLimit": "r=5;t=9"}]
)
def test_a_wait_that_means_nothing_is_ours(
    server: Hub, waits: list[float], headers: dict[str, str | None]
) -> None:
    values = small(server)
    server.fail("status", "/cdn/", status=429, times=1, headers=headers)
    np.testing.assert_array_equal(read(), values)
    assert waits == [0.5]


def test_a_body_cut_short_is_resumed_where_it_stopped(server: Hub, waits: list[float]) -> None:
    values = gpt2(server)
    checkpoint = open_hub("gpt2", None, offline=False)
    info = checkpoint.tensors[WPE]
    server.forget()
    server.fail("cut", "/cdn/", after=1_000_000, times=3)
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)
    starts = [r.headers["range"].split("-")[0] for r in server.requests if r.server == "cdn"]
    assert starts == [f"bytes={info.start + n * 1_000_000}" for n in range(4)]
    assert server.sent() < values.nbytes + 10_000
    assert waits == [0.5, 1.0, 2.0]


def test_a_page_a_header_and_a_config_cut_short(server: Hub) -> None:
    values = small(server)
    server.fail("cut", "/api/models", after=20, times=2)
    server.fail("cut", "/cdn/", after=20, times=1)
    server.fail("cut", "config.json", after=3, times=2)
    np.testing.assert_array_equal(read(), values)


def test_a_body_that_is_always_cut_short(server: Hub) -> None:
    small(server)
    checkpoint = open_hub("someone/small", None, offline=False)
    server.fail("cut", "/cdn/", after=0)
    with pytest.raises(Unreachable, match=r"someone/small/model.safetensors: .* cannot be reached"):
        checkpoint.read(WPE)


@pytest.mark.parametrize("at", ["/api/models", "/cdn/"])
def test_a_server_that_falls_silent(
    server: Hub, monkeypatch: pytest.MonkeyPatch, waits: list[float], at: str
) -> None:
    values = small(server)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 2.0)  # a busy machine answers later
    server.fail("hang", at, after=7, times=2)
    np.testing.assert_array_equal(read(), values)
    assert waits == [0.5, 1.0]


def test_a_server_that_stays_silent(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    small(server)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    server.fail("hang", "/cdn/")
    with pytest.raises(Unreachable, match=r"cannot be reached.*Check the network"):
        read()


def test_nobody_listens(server: Hub, monkeypatch: pytest.MonkeyPatch, waits: list[float]) -> None:
    with serve() as other:
        gone = other.url
    monkeypatch.setattr(constants, "ENDPOINT", gone)
    with pytest.raises(
        Unreachable, match=r"gpt2: the Hugging Face Hub cannot be reached.*network.*--offline"
    ):
        read("gpt2")
    assert len(waits) == 3
    assert server.requests == []
