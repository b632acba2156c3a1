"""Repositories of a local hub, and the real client set up to use it."""

from __future__ import annotations

import json
import resource
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hub_server import CLIENT_VARIABLES, Hub, Sparse, client_constants, serve
from huggingface_hub import close_session, constants

from posprobe.checkpoints.hub import open_hub

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray


WPE = "wpe.weight"
CREDENTIAL = "hf_of-the-user"
FORMATS = Path(__file__).parents[1] / "data" / "formats"


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of requested waits in seconds; tests do not wait."""
    requested_waits: list[float] = []
    monkeypatch.setattr("posprobe.checkpoints.transfer.pause", requested_waits.append)
    return requested_waits


@contextmanager
def local_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Start a hub and point the client at it, with a cache in the folder."""
    for name in CLIENT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POSPROBE_CACHE", str(folder / "own"))
    with serve() as started:
        for name, value in client_constants(started, folder).items():
            monkeypatch.setattr(constants, name, value)
        close_session()
        try:
            yield started
        finally:
            close_session()


@pytest.fixture
def server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> Iterator[Hub]:
    assert waits == []
    with local_hub(tmp_path, monkeypatch) as started:
        yield started


def table(rows: int = 1024, dim: int = 768, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)


def weights(
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, NDArray[np.float32]],
    pad: int = 0,
) -> Sparse:
    """Return a safetensors file of float32 tensors, zero without given values."""
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
    return Sparse(
        start + offset,
        content | {start + piece_offset: piece for piece_offset, piece in pieces.items()},
    )


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
    """Publish a repository of GPT-2's size, and return its position table."""
    values = table()
    files: dict[str, bytes | Sparse] = {
        "config.json": b'{"model_type": "gpt2", "n_positions": 1024}',
        "model.safetensors": weights(gpt2_shapes(), {WPE: values}),
        "pytorch_model.bin": b"never looked at",
        "README.md": b"# A model",
    }
    server.add("gpt2", files, **options)
    return values


def small(
    server: Hub, repo_id: str = "someone/small", seed: int = 0, **options: Any
) -> Any:
    """Publish a small repository whose weights still come from the second port."""
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


@contextmanager
def limit_file_size(size: int) -> Iterator[None]:
    limits_before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits_before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits_before)
