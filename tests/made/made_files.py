"""Small files of the supported formats and their parts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.extra import numpy as hnp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Settings of properties on files: few fixed examples that take seconds.
quick = settings(
    max_examples=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
VALUES = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
FLOAT_DTYPES: dict[np.dtype[Any], str] = {
    np.dtype("f8"): "F64", np.dtype("f4"): "F32", np.dtype("f2"): "F16",
}  # fmt: skip
arrays = hnp.arrays(
    st.sampled_from(list(FLOAT_DTYPES)),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    elements={"allow_nan": True, "allow_infinity": True},
)


def header_of(tensors: Mapping[str, Any]) -> bytes:
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


def entry(shape: Any, begin: Any, end: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def save_zip(content: object, path: Path) -> Path:
    torch.save(content, path)
    return path


def save_legacy(content: object, path: Path) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=False)
    return path


class Payload:
    """A call that unpickling a malicious checkpoint would make."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.trace}",)


def npy(shape: str, descr: str = "<f4", data: bytes = b"\0" * 96) -> bytes:
    header = (
        f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    )
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data
