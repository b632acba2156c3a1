"""Files of PyTorch: read back, mapped, and never run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from made_files import VALUES, Payload, save_legacy, save_zip, write

from posprobe.checkpoints import open_local
from posprobe.errors import InvalidCheckpoint, InvalidTable
from posprobe.families import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


both_formats = pytest.mark.parametrize("save", [save_zip, save_legacy])


@both_formats
@pytest.mark.parametrize("suffix", [".bin", ".pt", ".pth"])
def test_a_torch_file_reads_back(
    save: Callable[[object, Path], Path], suffix: str, tmp_path: Path
) -> None:
    wide = torch.randn(8, 6)
    state = {
        "plain": torch.randn(6, 4),
        "transposed": wide.T,
        "slice": wide[2:5, ::2],
        "expanded": torch.randn(1, 4).expand(3, 4),
        "scalar": torch.tensor(2.0),
        "none": torch.zeros(0, 4),
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
        "sparse": torch.eye(3).to_sparse(),
    }
    with no_beta_warnings():
        path = save(state, tmp_path / f"model{suffix}")
        checkpoint = open_local(path)
    assert set(checkpoint.tensors) == set(state)
    for name, tensor in state.items():
        expected = tensor.detach().to_dense().numpy()
        read = checkpoint.read(name)
        np.testing.assert_array_equal(read.values, expected)
        assert read.sha256 == sha256(np.ascontiguousarray(expected).tobytes()).hexdigest()


@contextlib.contextmanager
def no_beta_warnings() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Ss]parse.*")
        yield


@both_formats
def test_nested_state_dicts_lose_their_wrapping(
    save: Callable[[object, Path], Path], tmp_path: Path
) -> None:
    state = {"wpe.weight": torch.ones(3, 2)}
    wrapped = {f"module.{name}": tensor for name, tensor in state.items()}
    contents: tuple[Any, ...] = (
        state, wrapped, {"model": state, "epoch": 1}, {"state_dict": wrapped}, [], {},
        {"model": {"state_dict": state}}, {"model_state_dict": state, "optimizer": {"state": {}}},
    )  # fmt: skip
    for content in contents:
        path = save(content, tmp_path / "model.pt")
        if not content:
            with pytest.raises(InvalidCheckpoint, match="no tensors"):
                open_local(path)
        else:
            assert set(open_local(path).tensors) == {"wpe.weight"}


@both_formats
def test_a_tensor_alone_is_named_after_its_file(
    save: Callable[[object, Path], Path], tmp_path: Path
) -> None:
    path = save(torch.ones(3, 2), tmp_path / "table.pt")
    assert open_local(path).read("table").values.shape == (3, 2)


@both_formats
def test_a_checkpoint_that_holds_itself_is_read_once(
    save: Callable[[object, Path], Path], tmp_path: Path
) -> None:
    content: dict[str, Any] = {"weights": {"wpe.weight": torch.ones(3, 2)}}
    content["again"] = content["model"] = content["weights"]["back"] = content
    checkpoint = open_local(save(content, tmp_path / "model.pt"))
    assert set(checkpoint.tensors) == {"weights.wpe.weight"}


@both_formats
def test_a_malicious_pickle_runs_nothing(
    save: Callable[[object, Path], Path], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    path = save({"wpe.weight": torch.ones(3, 2), "x": Payload(trace)}, tmp_path / "model.bin")
    with pytest.raises(InvalidCheckpoint, match=r"model\.bin: .*run code") as caught:
        load(str(path))
    assert caught.value.exit_code == 4
    assert not trace.exists()
    torch.load(path, weights_only=False)  # the payload is a live one
    assert trace.exists()


@both_formats
@pytest.mark.parametrize("keep", [0, 1, 30, 100, -100, -1])
def test_a_truncated_torch_file_is_one_clear_error(
    save: Callable[[object, Path], Path], keep: int, tmp_path: Path
) -> None:
    path = save({"wpe.weight": torch.ones(30, 20)}, tmp_path / "model.bin")
    write(path, path.read_bytes()[:keep])
    with pytest.raises(
        InvalidCheckpoint, match=r"model\.bin: .*(cannot read|not a plain)"
    ) as caught:
        load(str(path))
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn, torch.complex64])
def test_a_torch_tensor_that_is_no_float_is_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    path = save_zip({"wpe.weight": torch.ones(3, 2).to(dtype)}, tmp_path / "model.pt")
    with pytest.raises(InvalidTable, match=r"wpe\.weight.*\[3, 2\]"):
        load(str(path))


def test_a_torch_tensor_without_values_is_refused(tmp_path: Path) -> None:
    path = save_zip({"wpe.weight": torch.ones(3, 2, device="meta")}, tmp_path / "model.pt")
    with pytest.raises(InvalidCheckpoint, match="has no values"):
        load(str(path))


def test_safetensors_needs_no_torch_and_does_not_look_for_it(tmp_path: Path) -> None:
    safetensors.numpy.save_file({"wpe.weight": VALUES}, tmp_path / "model.safetensors")
    script = """
        import sys
        class Blocker:
            def find_spec(self, name, *_):
                assert name != "torch", "torch was imported"
        sys.meta_path.insert(0, Blocker())
        from posprobe.families import load
        print(len(load(sys.argv[1])))
    """
    assert run_python(script, str(tmp_path)).stdout == "6\n"


def run_python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": root},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done
