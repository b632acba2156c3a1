"""Checkpoints on the Hub: the real client against a hub on this machine that counts and fails."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hub_server import Hub, Sparse, serve
from huggingface_hub import close_session, constants, hf_hub_download
from safetensors.numpy import load_file, save

import posprobe as pp
from posprobe.checkpoints import cache, hub, shared, transfer
from posprobe.checkpoints.hub import open_hub
from posprobe.errors import (
    AmbiguousTable,
    InvalidCheckpoint,
    MissingExtra,
    NoPositionTable,
    PosprobeError,
    UnknownReference,
    Unreachable,
)
from posprobe.families import load
from posprobe.families.tokens import RUNS, TokenSample, sample_tokens
from posprobe.resizing.checkpoint import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

WPE = "wpe.weight"
CREDENTIAL = "hf_of-the-user"
FORMATS = Path(__file__).parent / "data" / "formats"


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the client meant to wait; it does not wait in tests."""
    asked: list[float] = []
    monkeypatch.setattr(transfer, "pause", asked.append)
    return asked


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]) -> Iterator[Hub]:
    assert waits == []
    for name in ("HF_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POSPROBE_CACHE", str(tmp_path / "own"))
    with serve() as started:
        url = f"{started.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", started.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        # Otherwise newer clients ask the Hub for a list of agents first, once per process.
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        close_session()
        try:
            yield started
        finally:
            close_session()


def table(rows: int = 1024, dim: int = 768, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)


def weights(
    shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, NDArray[np.float32]], pad: int = 0
) -> Sparse:
    """A safetensors file of float32 tensors, zero where no values are given."""
    header, pieces, offset = {}, {}, 0
    for name, shape in shapes.items():
        stop = offset + 4 * int(np.prod(shape, dtype=np.int64))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, stop]}
        if name in values:
            pieces[offset] = values[name].tobytes()
        offset = stop
    text = json.dumps(header).encode() + b" " * pad
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    content = {0: len(text).to_bytes(8, "little") + text}
    return Sparse(start + offset, content | {start + at: piece for at, piece in pieces.items()})


def gpt2_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (50257, 768), WPE: (1024, 768)}
    for block in range(12):
        for name, shape in {
            "attn.bias": (1, 1, 1024, 1024), "attn.c_attn.bias": (2304,),
            "attn.c_attn.weight": (768, 2304), "attn.c_proj.bias": (768,),
            "attn.c_proj.weight": (768, 768), "ln_1.bias": (768,), "ln_1.weight": (768,),
            "ln_2.bias": (768,), "ln_2.weight": (768,), "mlp.c_fc.bias": (3072,),
            "mlp.c_fc.weight": (768, 3072), "mlp.c_proj.bias": (768,),
            "mlp.c_proj.weight": (3072, 768),
        }.items():  # fmt: skip
            shapes[f"h.{block}.{name}"] = shape
    return shapes | {"ln_f.bias": (768,), "ln_f.weight": (768,)}


def gpt2(server: Hub, **options: Any) -> NDArray[np.float32]:
    """Publish a repository of GPT-2's size; returns its position table."""
    values = table()
    files: dict[str, bytes | Sparse] = {
        "config.json": b'{"model_type": "gpt2", "n_positions": 1024}',
        "model.safetensors": weights(gpt2_shapes(), {WPE: values}),
        "pytorch_model.bin": b"never looked at",
        "README.md": b"# A model",
    }
    server.add("gpt2", files, **options)
    return values


def small(server: Hub, repo_id: str = "someone/small", seed: int = 0, **options: Any) -> Any:
    """Publish a small repository whose weights all the same come from the second port."""
    server.large = 1000
    values = table(32, 16, seed)
    file = weights({"other": (100, 100), WPE: (32, 16)}, {WPE: values})
    config = b'{"model_type": "gpt2"}'
    server.add(repo_id, {"config.json": config, "model.safetensors": file}, **options)
    return values


def read(repo_id: str = "someone/small", revision: str | None = None) -> NDArray[Any]:
    return open_hub(repo_id, revision, offline=False).read(WPE).values


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# --- what is read ----------------------------------------------------------------------------


def test_gpt2_sized_repository_costs_its_table_once(server: Hub) -> None:
    values = gpt2(server)
    assert server.repos["gpt2"].files["model.safetensors"].size > 500e6

    first = open_hub("gpt2", None, offline=False)
    assert first.tensors[WPE].shape == (1024, 768)
    assert first.tensors[WPE].dtype == "F32"
    assert len(first.tensors) == 160
    assert server.sent() < 64_000  # names, shapes and dtypes are known before any table is read
    stored = first.read(WPE)
    np.testing.assert_array_equal(stored.values, values)
    assert stored.sha256 == hashlib.sha256(values.tobytes()).hexdigest()
    assert first.location == "gpt2"
    assert first.revision == server.repos["gpt2"].commit
    assert first.config == {"model_type": "gpt2", "n_positions": 1024}
    total = server.sent()
    assert values.nbytes < total <= 3_400_000
    print(f"first run: {total} bytes in {len(server.requests)} requests")

    server.forget()
    second = open_hub("gpt2", None, offline=False)
    np.testing.assert_array_equal(second.read(WPE).values, values)
    assert server.paths() == ["/api/models/gpt2"]
    print(f"second run: {server.sent()} bytes in {len(server.requests)} requests")

    server.forget()
    offline = open_hub("gpt2", None, offline=True)
    np.testing.assert_array_equal(offline.read(WPE).values, values)
    assert offline.config == first.config
    assert offline.revision == first.revision
    assert server.requests == []


def test_a_request_asks_for_uncompressed_bytes_and_only_those_needed(server: Hub) -> None:
    small(server)
    checkpoint = open_hub("someone/small", None, offline=False)
    info = checkpoint.tensors[WPE]
    server.forget()
    checkpoint.read(WPE)
    asked = [request.headers for request in server.requests]
    assert {headers["range"] for headers in asked} == {f"bytes={info.start}-{info.stop - 1}"}
    assert {headers["accept-encoding"] for headers in asked} == {"identity"}


def test_an_empty_tensor_needs_no_request(server: Hub) -> None:
    server.add("someone/empty", {"model.safetensors": weights({"none": (0, 16)}, {})})
    checkpoint = open_hub("someone/empty", None, offline=False)
    server.forget()
    assert checkpoint.read("none").values.shape == (0, 16)
    assert server.requests == []


def test_a_header_longer_than_the_guess_is_read_once(server: Hub) -> None:
    values = table(32, 16)
    pad = 5 * hub.HEADER_GUESS
    file = weights({WPE: (32, 16), "rest": (1000, 1000)}, {WPE: values}, pad)
    server.add("someone/long", {"model.safetensors": file})
    checkpoint = open_hub("someone/long", None, offline=False)
    assert pad < server.sent("/cdn/") < pad + 4096
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)
    np.testing.assert_array_equal(read("someone/long"), values)  # now from the stored header


def test_the_token_goes_to_the_hub_and_not_to_the_cdn(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = small(server, token=CREDENTIAL)
    monkeypatch.setenv("HF_TOKEN", CREDENTIAL)
    np.testing.assert_array_equal(read(), values)
    sent: dict[str, set[str | None]] = {"hub": set(), "cdn": set()}
    for request in server.requests:
        sent[request.server].add(request.headers.get("authorization"))
    assert sent == {"hub": {f"Bearer {CREDENTIAL}"}, "cdn": {None}}


def test_a_renamed_repository_is_followed(server: Hub) -> None:
    values = small(server, "new/name")
    server.renamed["old-name"] = "new/name"
    np.testing.assert_array_equal(read("old-name"), values)


def test_revisions(server: Hub) -> None:
    old_values = small(server, seed=1)
    old = server.repos["someone/small"]
    np.testing.assert_array_equal(read(), old_values)
    new_values = small(server, seed=2)
    new = server.repos["someone/small"]
    new.revisions["v1"] = new.commit

    np.testing.assert_array_equal(read(), new_values)  # the branch moved, and that is noticed
    assert open_hub("someone/small", "v1", offline=False).revision == new.commit
    server.forget()
    np.testing.assert_array_equal(read(revision=old.commit), old_values)
    assert server.requests == []  # a commit never changes
    assert open_hub("someone/small", "v1", offline=True).revision == new.commit
    with pytest.raises(Unreachable, match="offline"):
        open_hub("someone/small", "v2", offline=True)


# --- some rows of a tensor -------------------------------------------------------------------


def test_some_rows_cost_these_rows_once(server: Hub) -> None:
    values = gpt2(server)
    checkpoint = open_hub("gpt2", None, offline=False)
    server.forget()
    rows = [0, 1, 2, 500, 501, 1023]
    np.testing.assert_array_equal(checkpoint.read_rows(WPE, rows), values[rows])
    start = checkpoint.tensors[WPE].start
    asked = {request.headers["range"] for request in server.requests}
    expected = ((0, 3), (500, 502), (1023, 1024))
    assert asked == {f"bytes={start + 3072 * a}-{start + 3072 * b - 1}" for a, b in expected}
    assert len(server.paths("/cdn/")) == 3
    assert 6 * 3072 <= server.sent() < 6 * 3072 + 6 * 1024  # the rest is headers

    server.forget()
    for offline in (False, True):
        again = open_hub("gpt2", None, offline=offline)
        np.testing.assert_array_equal(again.read_rows(WPE, rows), values[rows])
    assert server.paths() == ["/api/models/gpt2"]
    with pytest.raises(Unreachable, match="offline"):
        open_hub("gpt2", None, offline=True).read_rows(WPE, [7])


def test_a_row_that_breaks_off_is_read_to_its_end(server: Hub, waits: list[float]) -> None:
    values = small(server)
    checkpoint = open_hub("someone/small", None, offline=False)
    server.fail("cut", "/cdn/", times=2, after=10)
    np.testing.assert_array_equal(checkpoint.read_rows(WPE, [3, 9, 10]), values[[3, 9, 10]])
    assert len(waits) == 2


def test_a_sample_of_gpt2_tokens_is_a_megabyte_in_few_requests(server: Hub) -> None:
    gpt2(server)
    checkpoint = open_hub("gpt2", None, offline=False)
    tokens = checkpoint.tensors["wte.weight"]
    assert tokens.stop - tokens.start > 150e6
    server.forget()
    sample = sample_tokens(checkpoint, checkpoint.tensors[WPE])
    assert isinstance(sample, TokenSample)
    assert len(server.paths("/cdn/")) == len(sample.blocks) == RUNS == 16
    assert sample.tensor == tokens
    assert server.sent() < 1_100_000
    assert len(sample.values) * 3072 < server.sent()
    server.forget()
    again = sample_tokens(open_hub("gpt2", None, offline=True), checkpoint.tensors[WPE])
    assert isinstance(again, TokenSample)
    np.testing.assert_array_equal(again.values, sample.values)
    assert server.requests == []


def test_tokens_that_cannot_be_had_are_a_reason_and_no_failure(server: Hub) -> None:
    gpt2(server)
    open_hub("gpt2", None, offline=False)
    checkpoint = open_hub("gpt2", None, offline=True)
    reason = sample_tokens(checkpoint, checkpoint.tensors[WPE])
    assert isinstance(reason, str)
    assert "gpt2/model.safetensors: offline" in reason


# --- shards ----------------------------------------------------------------------------------


def sharded(server: Hub, index: Mapping[str, object] | None = None) -> NDArray[np.float32]:
    server.large = 1000
    values = table(32, 16)
    places = {
        "a": "one-of-3.safetensors",
        WPE: "two-of-3.safetensors",
        "c": "three-of-3.safetensors",
    }
    files: dict[str, bytes | Sparse] = {
        file: weights({name: (32, 16), f"{name}.pad": (999, 999)}, {WPE: values})
        for name, file in places.items()
    }
    weight_map = places | {f"{name}.pad": file for name, file in places.items()}
    content = {"metadata": {}, "weight_map": weight_map | dict(index or {})}
    files["model.safetensors.index.json"] = json.dumps(content).encode()
    server.add("someone/large", files)
    return values


def test_a_sharded_repository_reads_only_the_shard_that_is_needed(server: Hub) -> None:
    values = sharded(server)
    checkpoint = open_hub("someone/large", None, offline=False)
    assert sorted(checkpoint.tensors) == sorted(["a", WPE, "c", "a.pad", f"{WPE}.pad", "c.pad"])
    assert "b" not in checkpoint.tensors
    assert len(checkpoint.tensors) == 6
    assert server.paths("of-3") == []
    stored = checkpoint.read(WPE)
    np.testing.assert_array_equal(stored.values, values)
    assert stored.info.file == "two-of-3.safetensors"
    assert {path.rpartition("/")[2] for path in server.paths("of-3")} == {"two-of-3.safetensors"}
    assert {info.shape for info in checkpoint.tensors.values()} == {(32, 16), (999, 999)}
    assert checkpoint.tensors.get("b") is None

    server.forget()
    np.testing.assert_array_equal(read("someone/large"), values)
    assert server.paths() == ["/api/models/someone/large"]


@pytest.mark.parametrize(
    "shard", ["../two.safetensors", "..", "/etc/passwd", "a\x1b[2J.safetensors"]
)
def test_an_index_that_points_elsewhere_is_refused(server: Hub, shard: str) -> None:
    sharded(server, {"stray": shard})
    with pytest.raises(InvalidCheckpoint, match=r"someone/large/model.*outside") as caught:
        open_hub("someone/large", None, offline=False)
    assert "\x1b" not in str(caught.value)
    assert server.paths("passwd") == []


def test_an_index_that_is_wrong_about_a_shard(server: Hub) -> None:
    sharded(server, {"stray": "one-of-3.safetensors", "lost": "four-of-3.safetensors"})
    tensors = open_hub("someone/large", None, offline=False).tensors
    with pytest.raises(InvalidCheckpoint, match=r"one-of-3.*'stray'"):
        tensors["stray"]
    with pytest.raises(UnknownReference, match=r"someone/large/four-of-3.*no such file"):
        tensors["lost"]


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
    with pytest.raises(UnknownReference, match="no Hub id"):
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
    with pytest.raises(Unreachable, match=r"someone/small.*status 503, 4 times.*HF_ENDPOINT"):
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


def test_a_header_and_a_config_cut_short(server: Hub) -> None:
    values = small(server)
    server.fail("cut", "/cdn/", after=20, times=1)
    server.fail("cut", "config.json", after=3, times=2)
    np.testing.assert_array_equal(read(), values)


def test_a_page_cut_short(server: Hub) -> None:
    values = small(server)
    server.fail("cut", "/api/models", after=20, times=2)
    np.testing.assert_array_equal(read(), values)


def test_a_body_that_is_always_cut_short(server: Hub) -> None:
    small(server)
    checkpoint = open_hub("someone/small", None, offline=False)
    server.fail("cut", "/cdn/", after=0)
    with pytest.raises(Unreachable, match=r"someone/small/model.safetensors.*4 times in a row"):
        checkpoint.read(WPE)


@pytest.mark.parametrize("at", ["/api/models", "/cdn/"])
def test_a_server_that_falls_silent(
    server: Hub, monkeypatch: pytest.MonkeyPatch, waits: list[float], at: str
) -> None:
    values = small(server)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    server.fail("hang", at, after=7, times=2)
    np.testing.assert_array_equal(read(), values)
    assert waits == [0.5, 1.0]


def test_a_server_that_stays_silent(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    small(server)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    server.fail("hang", "/cdn/")
    with pytest.raises(Unreachable, match=r"connection failed.*4 times in a row.*network"):
        read()


def test_nobody_listens(server: Hub, monkeypatch: pytest.MonkeyPatch, waits: list[float]) -> None:
    with serve() as other:
        gone = other.url
    monkeypatch.setattr(constants, "ENDPOINT", gone)
    with pytest.raises(Unreachable, match=r"gpt2: the connection failed.*network.*--offline"):
        read("gpt2")
    assert len(waits) == 3
    assert server.requests == []


# --- answers that cannot be used -------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", r"0 bytes are no safetensors file"),
        (b"1234", r"4 bytes are no safetensors file"),
        ((2**60).to_bytes(8, "little") + b"{}" * 2000, r"header claims 1152921504606846976 bytes"),
        ((50_000).to_bytes(8, "little") + b"{}" * 2000, r"header claims 50000 bytes"),
        ((8).to_bytes(8, "little") + b"not JSON" * 2000, r"header is no JSON"),
        (weights({WPE: (32, 16)}, {}).read(0, 2000), r"ends at byte 2\d{3} of a file of 2000"),
    ],
)
def test_a_header_that_lies(server: Hub, content: bytes, says: str) -> None:
    server.add("someone/broken", {"model.safetensors": content})
    with pytest.raises(InvalidCheckpoint, match=rf"someone/broken/model.safetensors.*{says}"):
        read("someone/broken")


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
    with pytest.raises(InvalidCheckpoint, match=r"someone/words: it holds no weights.*rust_model"):
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


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


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
    cache.store(b"content", *key)
    (path,) = entries(tmp_path)
    assert path.is_relative_to(tmp_path / "own")
    assert len(path.relative_to(tmp_path / "own").parts) == len(key)
    assert cache.load(*key) == b"content"


def test_keys_that_a_file_system_may_fold_stay_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSPROBE_CACHE", str(tmp_path))
    keys = ["GPT2", "gpt2", "gpt/2", "gpt-2", "gpt_2", "gpt.2", "gpt\\2", "é", "e\u0301", "x" * 90]
    keys += ["x" * 91]
    for key in keys:
        cache.store(key.encode(), key)
    assert len({path.name.casefold() for path in entries(tmp_path)}) == len(keys)
    assert [cache.load(key) for key in keys] == [key.encode() for key in keys]


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("POSPROBE_CACHE", "~/own")
    cache.store(b"1", "key")
    monkeypatch.delenv("POSPROBE_CACHE")
    cache.store(b"2", "key")
    monkeypatch.delenv("XDG_CACHE_HOME")
    cache.store(b"3", "key")
    folders = {path.relative_to(tmp_path).parent.as_posix() for path in entries(tmp_path)}
    assert folders == {"home/own", "xdg/posprobe", "home/.cache/posprobe"}


# --- offline ---------------------------------------------------------------------------------


def test_offline_with_nothing_here(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    small(server)
    says = r"someone/small: offline, and nothing of this revision.*without --offline"
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


# --- whole downloads -------------------------------------------------------------------------


def torch_file(values: Mapping[str, NDArray[np.float32]]) -> bytes:
    import torch

    stream = io.BytesIO()
    torch.save({name: torch.from_numpy(value.copy()) for name, value in values.items()}, stream)
    return stream.getvalue()


def test_a_torch_repository_is_downloaded_after_saying_how_large_it_is(
    server: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    values = table(512, 768)
    file = torch_file({WPE: values})
    server.add("someone/old", {"pytorch_model.bin": file, "config.json": b'{"a": 1}'})
    checkpoint = open_hub("someone/old", None, offline=False)
    assert "pytorch_model.bin cannot be read in parts and must be downloaded whole" in caplog.text
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


def test_a_sharded_torch_repository(server: Hub, caplog: pytest.LogCaptureFixture) -> None:
    values = table(32, 16)
    index = {"weight_map": {WPE: "pytorch_model-2.bin", "other": "pytorch_model-1.bin"}}
    server.add("someone/old", {
        "pytorch_model.bin.index.json": json.dumps(index).encode(),
        "pytorch_model-1.bin": torch_file({"other": table(8, 8)}),
        "pytorch_model-2.bin": torch_file({WPE: values}),
    })  # fmt: skip
    checkpoint = open_hub("someone/old", None, offline=False)
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)
    assert set(checkpoint.tensors) == {WPE, "other"}
    assert "2 files" in caplog.text


def test_a_download_that_fails_at_first(server: Hub, waits: list[float]) -> None:
    values = table(32, 16)
    server.add("someone/old", {"pytorch_model.bin": torch_file({WPE: values})})
    server.fail("status", "pytorch_model.bin", status=503, times=2)
    np.testing.assert_array_equal(read("someone/old"), values)
    assert waits == [0.5, 1.0]


def test_a_download_that_is_cut_short(server: Hub) -> None:
    values = table(32, 16)
    server.add("someone/old", {"pytorch_model.bin": torch_file({WPE: values})})
    # The first byte and the metadata come, then the file breaks off.
    server.fail("cut", "pytorch_model.bin", after=1000, times=3)
    np.testing.assert_array_equal(read("someone/old"), values)


@pytest.mark.parametrize(
    ("status", "headers", "says"),
    [(503, {}, r"status 503, 4 times"), (429, {"Retry-After": "900"}, r"wait 900 seconds"),
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


@pytest.mark.parametrize("damaged", [True, False])
def test_a_download_is_compared_with_its_checksum(
    damaged: bool, server: Hub, tmp_path: Path
) -> None:
    values = table(32, 16)
    content = torch_file({WPE: values})
    announced = hashlib.sha256(b"another file" if damaged else content).hexdigest()
    server.add("someone/old", {"pytorch_model.bin": content})
    server.fail("headers", "pytorch_model.bin", headers={"ETag": f'"{announced}"'})
    if not damaged:
        np.testing.assert_array_equal(read("someone/old"), values)
        return
    with pytest.raises(Unreachable, match=r"pytorch_model.bin: what came is not what the Hub an"):
        read("someone/old")
    assert not list((tmp_path / "hub").rglob("blobs/*"))
    assert not list((tmp_path / "hub").rglob("pytorch_model.bin"))


def test_a_download_that_does_not_fit_on_the_disk(server: Hub, tmp_path: Path) -> None:
    server.add("someone/old", {"pytorch_model.bin": torch_file({WPE: table(512, 768)})})
    with (
        no_file_longer_than(100_000),
        pytest.raises(Unreachable, match=r"pytorch_model.bin: the download failed.*space left"),
    ):
        read("someone/old")
    assert not [path for path in entries(tmp_path / "hub") if path.stat().st_size > 200_000]


def test_without_torch_nothing_is_downloaded(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    server.add("someone/old", {"pytorch_model.bin": b"x" * 2_000_000})
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    with pytest.raises(MissingExtra, match=r"pytorch_model.bin.*posprobe\[models\]"):
        read("someone/old")
    assert server.paths("pytorch_model") == []


def test_safetensors_are_preferred_to_another_library_s_file(server: Hub) -> None:
    values = table(32, 16)
    stored = weights({WPE: values.shape}, {WPE: values})
    other = (FORMATS / "bert.msgpack").read_bytes()
    server.add("someone/both", {"flax_model.msgpack": other, "model.safetensors": stored})
    assert load("someone/both").source.file == "model.safetensors"
    assert not server.paths("flax_model")


@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_a_numpy_repository(server: Hub, suffix: str) -> None:
    values = table(32, 16)
    stream = io.BytesIO()
    if suffix == "npz":
        np.savez(stream, allow_pickle=False, **{WPE: values})
    else:
        np.save(stream, values)
    server.add("someone/numpy", {f"{WPE}.{suffix}": stream.getvalue(), "config.json": b'{"a": 1}'})
    checkpoint = open_hub("someone/numpy", None, offline=False)
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)
    assert checkpoint.location == "someone/numpy"
    assert checkpoint.revision == server.repos["someone/numpy"].commit
    assert checkpoint.config == {"a": 1}


# --- the settings of the client, in a process of their own -------------------------------------

SCRIPT = """
import sys
from posprobe.checkpoints.hub import open_hub
from posprobe.errors import PosprobeError
try:
    print(open_hub("gpt2", None, offline=False).read("wpe.weight").sha256)
except PosprobeError as error:
    print(f"{type(error).__name__}: {error}")
"""


def run(tmp_path: Path, **settings: str) -> str:
    quiet = {"HF_HOME": str(tmp_path / "home"), "POSPROBE_CACHE": str(tmp_path / "own")}
    inherited = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT], capture_output=True, text=True, check=True,
        env=inherited | {"PYTHONPATH": os.pathsep.join(sys.path)} | quiet | settings,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.strip()


def test_endpoint_token_and_offline_switch_come_from_the_environment(
    server: Hub, tmp_path: Path
) -> None:
    digest = hashlib.sha256(gpt2(server, token=CREDENTIAL).tobytes()).hexdigest()
    assert run(tmp_path, HF_ENDPOINT=server.url).startswith("UnknownReference: gpt2: ")
    assert run(tmp_path, HF_ENDPOINT=server.url, HF_TOKEN=CREDENTIAL) == digest
    assert digest.isalnum()
    assert server.sent() <= 3_400_000
    server.forget()
    assert run(tmp_path, HF_ENDPOINT=server.url, HF_HUB_OFFLINE="1") == digest
    assert server.requests == []


def test_a_proxy_is_used(server: Hub, tmp_path: Path) -> None:
    server.large = 10**12  # a proxy would be asked for the second port as well
    digest = hashlib.sha256(gpt2(server).tobytes()).hexdigest()
    settings = {"HF_ENDPOINT": "http://hub.invalid", "HTTP_PROXY": server.url}
    assert run(tmp_path, **settings) == digest
    assert all(request.target.startswith("http://hub.invalid/") for request in server.requests)


def test_a_checkpoint_of_the_hub_is_copied_at_another_size(server: Hub, tmp_path: Path) -> None:
    rows = table(16, 8)
    kept = {"embeddings.word_embeddings.weight": table(5, 8, seed=1)}
    server.add(
        "someone/bert",
        {
            "config.json": b'{"model_type": "bert", "max_position_embeddings": 16}',
            "vocab.txt": b"a",
            "model.safetensors": save({"embeddings.position_embeddings.weight": rows, **kept}),
            "pytorch_model.bin": b"never asked for",
        },
    )
    new = pp.resize(pp.load("someone/bert"), to=24, how="linear")
    write_checkpoint("someone/bert", new, tmp_path / "copy")
    copied = load_file(tmp_path / "copy" / "model.safetensors")
    assert np.array_equal(copied["embeddings.position_embeddings.weight"], new.values)
    assert np.array_equal(copied["embeddings.word_embeddings.weight"], table(5, 8, seed=1))
    assert (tmp_path / "copy" / "vocab.txt").read_bytes() == b"a"
    assert not any("pytorch_model" in request.path for request in server.requests)
    with pytest.raises(UnknownReference):
        write_checkpoint("someone/else", new, tmp_path / "other")
    assert not (tmp_path / "other").exists()


# --- other formats by range ---


def test_a_gguf_model_costs_its_header_and_the_table(server: Hub, tmp_path: Path) -> None:
    from made_gguf import write

    values = table(64, 256)
    path = tmp_path / "model.gguf"
    write(path, "gpt2", {"position_embd.weight": values}, lambda w: w.add_context_length(64))
    content = path.read_bytes()
    server.add("me/model", {"model.gguf": Sparse(10**9, {0: content})})
    found = open_hub("me/model", None, offline=False)
    assert found.config["gpt2.context_length"] == 64
    assert found.read("position_embd.weight").values.tobytes() == values.tobytes()
    header = len(content) - values.nbytes
    assert server.sent("model.gguf") < 2 * header + 2**16 + values.nbytes
    server.forget()
    again = open_hub("me/model", None, offline=True)
    assert again.read("position_embd.weight").values.tobytes() == values.tobytes()
    assert server.sent() == 0


def test_external_data_of_onnx_are_read_by_range(server: Hub, tmp_path: Path) -> None:
    import onnx
    from onnx import helper, numpy_helper

    values = table(64, 32)
    graph = helper.make_graph([], "g", [], [], [numpy_helper.from_array(values, "wpe.weight")])
    onnx.save(
        helper.make_model(graph), tmp_path / "model.onnx", save_as_external_data=True,
        location="model.onnx_data", size_threshold=0,
    )  # fmt: skip
    files: dict[str, bytes | Sparse] = {
        "config.json": b'{"model_type": "gpt2"}',
        "onnx/model.onnx": (tmp_path / "model.onnx").read_bytes(),
        "onnx/model.onnx_data": Sparse(10**9, {0: (tmp_path / "model.onnx_data").read_bytes()}),
    }
    server.add("me/model", files)
    found = open_hub("me/model", None, offline=False)
    assert found.format == "ONNX"
    assert found.read("wpe.weight").values.tobytes() == values.tobytes()
    assert server.sent("model.onnx_data") < values.nbytes + 2**17
    assert found.config["model_type"] == "gpt2"
    server.add("me/partial", {"model.onnx": files["onnx/model.onnx"]})
    with pytest.raises(InvalidCheckpoint, match="not in the repository"):
        open_hub("me/partial", None, offline=False).read("wpe.weight")


def test_a_tensorflow_checkpoint_is_read_by_range(server: Hub) -> None:
    from pathlib import Path as Folder

    real = Folder(__file__).parent / "data" / "tensorflow-bert"
    data = "bert_model.ckpt.data-00000-of-00001"
    files: dict[str, bytes | Sparse] = {
        "bert_model.ckpt.index": (real / "bert_model.ckpt.index").read_bytes(),
        data: Sparse(10**9, {0: (real / data).read_bytes()}),
    }
    server.add("me/bert", files)
    found = open_hub("me/bert", None, offline=False)
    assert found.read("bert/embeddings/position_embeddings").values.shape == (16, 8)
    assert server.sent(data) < 2**17


def test_one_of_several_models_costs_its_own_header_and_table(server: Hub) -> None:
    folder = FORMATS / "diffusers"
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    files["v1.ckpt"] = b"a single file beside the folders"
    server.add("me/diffusion", files)
    found = load("me/diffusion#text_encoder_2")
    expected = load(f"{folder}#text_encoder_2")
    assert found.values.tobytes() == expected.values.tobytes()
    assert found.source.file == expected.source.file == "text_encoder_2/model.safetensors"
    assert found.source.revision == server.repos["me/diffusion"].commit
    paths = server.paths("/resolve/")
    assert {path.partition("/resolve/")[2].partition("/")[2] for path in paths} == {
        "model_index.json", "text_encoder_2/config.json", "text_encoder_2/model.safetensors",
    }  # fmt: skip
    with pytest.raises(NoPositionTable, match=r"unet .*time step"):
        load("me/diffusion#unet")
    with pytest.raises(AmbiguousTable, match=r"me/diffusion#text_encoder_2"):
        load("me/diffusion")
    assert not server.paths("v1.ckpt")
    server.forget()
    again = open_hub("me/diffusion", None, offline=True, part="text_encoder_2")
    assert list(again.models) == ["text_encoder_2"]
    assert server.sent() == 0


def pieces_of(path: Path) -> Sparse:
    """Take a file with holes as the server's: what is between the holes."""
    found, place, size = {}, 0, path.stat().st_size
    with path.open("rb") as file:
        while place < size:
            try:
                start = os.lseek(file.fileno(), place, os.SEEK_DATA)
            except OSError:  # a hole up to the end
                break
            place = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            file.seek(start)
            found[start] = file.read(place - start)
    return Sparse(size, found)


@pytest.mark.skipif(sys.platform != "linux", reason="holes in files are found as on Linux")
@pytest.mark.parametrize(
    ("file", "name", "tensor"),
    [
        ("x.weights.h5", "HDF5", "layers/position_embedding_1/vars/0"),
        ("x.keras", "HDF5", "layers/position_embedding_1/vars/0"),
        ("flax_model.msgpack", "Flax", "wpe/embedding"),
        ("ggml-tiny.bin", "ggml", "decoder.positional_embedding"),
        ("ViT.npz", "NumPy archive", "Transformer/posembed_input/pos_embedding"),
    ],
)
def test_of_500_mb_on_the_hub_only_names_and_the_table_come(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, name: str, tensor: str
) -> None:
    from made_large import LARGE

    values = table(12, 8)
    LARGE[file.partition(".")[2]](tmp_path / file, values)
    server.add("me/large", {file: pieces_of(tmp_path / file)})
    assert server.repos["me/large"].files[file].size > 500e6
    monkeypatch.setitem(sys.modules, "torch", None)  # whisper.cpp's .bin is not PyTorch's
    found = open_hub("me/large", None, offline=False)
    assert (found.format, found.location) == (name, "me/large")
    assert found.read(tensor).values.tobytes() == values.tobytes()
    assert server.sent(file) < 300_000
    server.forget()
    again = open_hub("me/large", None, offline=True)
    assert again.read(tensor).values.tobytes() == values.tobytes()
    assert server.sent() == 0


def test_a_file_on_the_hub_that_is_cut_short_is_one_clear_error(server: Hub) -> None:
    for name in ("gpt2.weights.h5", "layers.keras", "bert.msgpack"):
        content = (FORMATS / name).read_bytes()
        server.add("me/cut", {name: content[: len(content) // 2]})
        with pytest.raises(InvalidCheckpoint, match=name):
            open_hub("me/cut", None, offline=False)
    # What goes wrong on the way is no damage of the file.
    server.add("me/cut", {"bert.weights.h5": (FORMATS / "gpt2.weights.h5").read_bytes()})
    server.fail("status", "bert.weights.h5", status=403)
    with pytest.raises(Unreachable):
        open_hub("me/cut", None, offline=False)


def test_shards_of_hdf5_are_opened_when_they_are_needed(server: Hub) -> None:
    import h5py

    files: dict[str, bytes] = {}
    shards = {}
    for number, tensor in enumerate(("wpe/embeddings:0", "wte/embeddings:0")):
        name = f"tf_model-0000{number + 1}-of-00002.h5"
        stream = io.BytesIO()
        with h5py.File(stream, "w") as file:
            file[tensor] = table(12, 8, seed=number)
        files[name], shards[tensor] = stream.getvalue(), name
    files["tf_model.h5.index.json"] = json.dumps({"weight_map": shards}).encode()
    server.add("me/shards", files)
    assert load("me/shards").values.tobytes() == table(12, 8).tobytes()
    assert not server.paths("tf_model-00002")
    parts = {file.name: file.read_bytes() for file in (FORMATS / "keras_shards").iterdir()}
    server.add("me/keras", parts)
    expected = load(str(FORMATS / "keras_shards"))
    assert load("me/keras").values.tobytes() == expected.values.tobytes()


def orbax(folder: Path, arrays: Mapping[str, NDArray[np.float32]], *, together: bool) -> None:
    """Write arrays with TensorStore as Orbax does, in one OCDBT store or each in a folder."""
    import tensorstore

    folder.mkdir()
    tree = {}
    for name, values in arrays.items():
        place: dict[str, Any] = {"driver": "file", "path": f"{folder}/"}
        if together:
            place = {"driver": "ocdbt", "base": place, "path": f"{name}/"}
        else:
            place["path"] += f"{name}/"
        metadata = {"compressor": None, "shape": [*values.shape], "chunks": [*values.shape]}
        spec = {"driver": "zarr", "kvstore": place, "metadata": metadata}
        array = tensorstore.open(spec, create=True, dtype="float32").result()
        array.write(values).result()
        keys = [{"key": key, "key_type": 2} for key in name.split(".")]
        about = {"value_type": "jax.Array", "skip_deserialize": False}
        tree[name] = {"key_metadata": keys, "value_metadata": about}
    (folder / "_METADATA").write_text(json.dumps({"tree_metadata": tree}))


@pytest.mark.parametrize("together", [True, False], ids=["OCDBT", "zarr"])
def test_of_an_orbax_folder_the_table_alone_comes(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    big, values = table(1024, 1024, seed=1), table(12, 8)
    arrays = {"params.big.kernel": big, "params.wpe.embedding": values}
    orbax(tmp_path / "saved", arrays, together=together)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # what is here is asked of no proxy
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    files = {
        str(path.relative_to(tmp_path / "saved")): path.read_bytes()
        for path in (tmp_path / "saved").rglob("*")
        if path.is_file()
    }
    server.add("me/orbax", files)
    count = shared.bytes_read.set(0)
    found = open_hub("me/orbax", None, offline=False)
    assert found.format == "Orbax"
    assert found.read("params/wpe/embedding").values.tobytes() == values.tobytes()
    assert 0 < shared.bytes_read.get() < 300_000
    shared.bytes_read.reset(count)
    assert server.sent("/resolve/") < 300_000 < big.nbytes
    assert os.environ["no_proxy"] == "127.0.0.1"
    server.forget()
    again = open_hub("me/orbax", None, offline=True)
    assert again.read("params/wpe/embedding").values.tobytes() == values.tobytes()
    assert server.sent() == 0
    with pytest.raises(Unreachable, match="offline"):
        again.read("params/big/kernel")
    assert found.read("params/big/kernel").values.tobytes() == big.tobytes()


def test_an_orbax_folder_that_fails_on_the_way_or_is_damaged(server: Hub) -> None:
    folder = FORMATS / "orbax"
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    server.add("me/orbax", files)
    assert load("me/orbax").values.shape == (12, 8)
    server.add("me/cut", {name: content[:300] if name.startswith("d/") else content
                          for name, content in files.items()})  # fmt: skip
    with pytest.raises(InvalidCheckpoint, match="cannot be read"):
        load("me/cut")
    server.add("me/refused", files)
    server.fail("status", "/d/", status=403)
    with pytest.raises(Unreachable):
        load("me/refused")
