"""Checkpoints on the Hub: what is read of them, and how often."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hub_server import Hub, Sparse
from made_hub import CREDENTIAL, WPE, gpt2, read, server, small, table, waits, weights
from safetensors.numpy import load_file, save

import posprobe as pp
from posprobe.checkpoints import hub
from posprobe.checkpoints.hub import open_hub
from posprobe.errors import InvalidCheckpoint, UnknownReference, Unreachable
from posprobe.families.tokens import N_SAMPLE_RUNS, sample_tokens
from posprobe.resizing.checkpoint import write_checkpoint

__all__ = ["server", "waits"]


# --- what is read ----------------------------------------------------------------------------


def test_gpt2_sized_repository_costs_its_table_once(server: Hub) -> None:
    values = gpt2(server)
    assert server.repos["gpt2"].files["model.safetensors"].size > 500e6

    first = open_hub("gpt2", None, offline=False)
    assert first.tensors[WPE].shape == (1024, 768)
    assert first.tensors[WPE].dtype == "F32"
    assert len(first.tensors) == 160
    assert (
        server.sent() < 64_000
    )  # names, shapes and dtypes are known before any table is read
    stored = first.read(WPE)
    np.testing.assert_array_equal(stored.values, values)
    assert stored.sha256 == hashlib.sha256(values.tobytes()).hexdigest()
    assert first.location == "gpt2"
    assert first.revision == server.repos["gpt2"].commit
    assert first.config == {"model_type": "gpt2", "n_positions": 1024}
    total = server.sent()
    assert values.nbytes < total <= 3_400_000

    server.forget()
    second = open_hub("gpt2", None, offline=False)
    np.testing.assert_array_equal(second.read(WPE).values, values)
    assert server.paths() == ["/api/models/gpt2"]

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
    headers = [request.headers for request in server.requests]
    assert {headers["range"] for headers in headers} == {
        f"bytes={info.start}-{info.stop - 1}"
    }
    assert {headers["accept-encoding"] for headers in headers} == {"identity"}


def test_a_header_longer_than_the_guess_is_read_once(server: Hub) -> None:
    values = table(32, 16)
    pad = 5 * hub.FIRST_READ_BYTES
    file = weights(
        {WPE: (32, 16), "none": (0, 16), "rest": (1000, 1000)}, {WPE: values}, pad
    )
    server.add("someone/long", {"model.safetensors": file})
    checkpoint = open_hub("someone/long", None, offline=False)
    assert checkpoint.read("none").values.shape == (0, 16)
    assert pad < server.sent("/cdn/") < pad + 4096
    np.testing.assert_array_equal(checkpoint.read(WPE).values, values)
    np.testing.assert_array_equal(
        read("someone/long"), values
    )  # now from the stored header


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


def test_revisions(server: Hub) -> None:
    old_values = small(server, seed=1)
    old = server.repos["someone/small"]
    np.testing.assert_array_equal(read(), old_values)
    new_values = small(server, seed=2)
    new = server.repos["someone/small"]
    new.revisions["v1"] = new.commit

    np.testing.assert_array_equal(
        read(), new_values
    )  # the branch moved, and that is noticed
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
    ranges = {request.headers["range"] for request in server.requests}
    expected = ((0, 3), (500, 502), (1023, 1024))
    assert ranges == {
        f"bytes={start + 3072 * a}-{start + 3072 * b - 1}" for a, b in expected
    }
    assert len(server.paths("/cdn/")) == 3
    assert 6 * 3072 <= server.sent() < 6 * 3072 + 6 * 1024  # the rest is headers

    server.forget()
    for offline in (False, True):
        reopened = open_hub("gpt2", None, offline=offline)
        np.testing.assert_array_equal(reopened.read_rows(WPE, rows), values[rows])
    assert server.paths() == ["/api/models/gpt2"]
    with pytest.raises(Unreachable, match="offline"):
        open_hub("gpt2", None, offline=True).read_rows(WPE, [7])


def test_a_sample_of_gpt2_tokens_is_a_megabyte_in_few_requests(server: Hub) -> None:
    gpt2(server)
    checkpoint = open_hub("gpt2", None, offline=False)
    tokens = checkpoint.tensors["wte.weight"]
    assert tokens.stop - tokens.start > 150e6
    server.forget()
    sample = sample_tokens(checkpoint, checkpoint.tensors[WPE])
    assert len(server.paths("/cdn/")) == len(sample.blocks) == N_SAMPLE_RUNS == 16
    assert sample.tensor == tokens
    assert server.sent() < 1_100_000
    assert len(sample.values) * 3072 < server.sent()
    server.forget()
    repeated = sample_tokens(
        open_hub("gpt2", None, offline=True), checkpoint.tensors[WPE]
    )
    np.testing.assert_array_equal(repeated.values, sample.values)
    assert server.requests == []


# --- shards ----------------------------------------------------------------------------------


def test_a_sharded_repository_reads_only_the_shard_that_is_needed(server: Hub) -> None:
    server.large = 1000
    values = table(32, 16)
    places = {name: f"{name[0]}-of-3.safetensors" for name in ("a", WPE, "c")}
    files: dict[str, bytes | Sparse] = {
        file: weights({name: (32, 16), f"{name}.pad": (999, 999)}, {WPE: values})
        for name, file in places.items()
    }
    index = places | {"stray": "a-of-3.safetensors", "lost": "z-of-3.safetensors"}
    files["model.safetensors.index.json"] = json.dumps({"weight_map": index}).encode()
    server.add("someone/large", files)
    checkpoint = open_hub("someone/large", None, offline=False)
    assert set(checkpoint.tensors) == set(index)
    assert "b" not in checkpoint.tensors
    assert server.paths("of-3") == []
    stored = checkpoint.read(WPE)
    np.testing.assert_array_equal(stored.values, values)
    assert stored.info.file == "w-of-3.safetensors"
    assert {path.rpartition("/")[2] for path in server.paths("of-3")} == {
        "w-of-3.safetensors"
    }
    with pytest.raises(InvalidCheckpoint, match=r"a-of-3.*'stray'"):
        checkpoint.read("stray")
    with pytest.raises(UnknownReference, match=r"someone/large/z-of-3.*no such file"):
        checkpoint.read("lost")
    server.forget()
    np.testing.assert_array_equal(read("someone/large"), values)
    assert server.paths() == ["/api/models/someone/large"]


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
    completed = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT], capture_output=True, text=True, check=True,
        env=inherited | {"PYTHONPATH": os.pathsep.join(sys.path)} | quiet | settings,
    )  # fmt: skip
    assert completed.stderr == ""
    return completed.stdout.strip()


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
    assert all(
        request.target.startswith("http://hub.invalid/") for request in server.requests
    )


def test_a_checkpoint_of_the_hub_is_copied_at_another_size(
    server: Hub, tmp_path: Path
) -> None:
    rows = table(16, 8)
    unchanged_tensors = {"embeddings.word_embeddings.weight": table(5, 8, seed=1)}
    server.add(
        "someone/bert",
        {
            "config.json": b'{"model_type": "bert", "max_position_embeddings": 16}',
            "vocab.txt": b"a",
            "model.safetensors": save(
                {"embeddings.position_embeddings.weight": rows, **unchanged_tensors}
            ),
            "pytorch_model.bin": b"never asked for",
        },
    )
    resized = pp.resize(pp.load("someone/bert"), to=24, how="linear")
    write_checkpoint("someone/bert", resized, tmp_path / "copy")
    copied = load_file(tmp_path / "copy" / "model.safetensors")
    assert np.array_equal(copied["embeddings.position_embeddings.weight"], resized.values)
    assert np.array_equal(
        copied["embeddings.word_embeddings.weight"], table(5, 8, seed=1)
    )
    assert (tmp_path / "copy" / "vocab.txt").read_bytes() == b"a"
    assert not any("pytorch_model" in request.path for request in server.requests)
    with pytest.raises(UnknownReference):
        write_checkpoint("someone/else", resized, tmp_path / "other")
    assert not (tmp_path / "other").exists()
