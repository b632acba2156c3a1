"""Files of the Hub that can be read whole alone are downloaded."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hub_server import Hub
from made_hub import FORMATS, WPE, entries, no_file_longer_than, read, server, table, waits, weights

from posprobe.checkpoints.hub import open_hub
from posprobe.errors import MissingExtra, Unreachable
from posprobe.families import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["server", "waits"]


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
    with pytest.raises(
        Unreachable, match=r"pytorch_model.bin: the download is not the file that the Hub an"
    ):
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
    with pytest.raises(MissingExtra, match=r"pytorch_model.bin.*uv sync --extra models"):
        read("someone/old")
    assert server.paths("pytorch_model") == []


def test_safetensors_are_preferred_to_another_library_s_file(server: Hub) -> None:
    values = table(32, 16)
    stored = weights({WPE: values.shape}, {WPE: values})
    other = (FORMATS / "bert.msgpack").read_bytes()
    server.add("someone/both", {"flax_model.msgpack": other, "model.safetensors": stored})
    assert load("someone/both").source.file == "model.safetensors"
    assert not server.paths("flax_model")
