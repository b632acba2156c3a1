"""Files in the layout of llama.cpp's converters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
from numpy.typing import NDArray


def write(
    path: Path,
    arch: str,
    tensors: Mapping[str, NDArray[Any]],
    add: Callable[[gguf.GGUFWriter], object] = lambda _: None,
    kinds: Mapping[str, Any] | None = None,
) -> str:
    """Write a file as llama.cpp's converters do, with a vocabulary."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_token_list([f"token {number}" for number in range(500)])
    writer.add_token_scores([0.5] * 500)
    add(writer)
    for name, values in tensors.items():
        kind = (kinds or {}).get(name)
        data = gguf.quants.quantize(values, kind) if kind is not None else values
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)
