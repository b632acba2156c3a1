"""Files in the layouts of llama.cpp's and whisper.cpp's converters."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
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


def write_whisper(path: Path, tensors: Mapping[str, NDArray[Any]], kind: int = 0) -> str:
    """Write the layout of whisper.cpp's convert-pt-to-ggml.py; 1 is half precision."""
    audio, width = tensors["encoder.positional_embedding"].shape
    text = len(tensors["decoder.positional_embedding"])
    sizes = (4, audio, width, 2, 1, text, width, 2, 1, 5, kind)
    words = [b"a", b"", b"longer", b"\xff"]
    content = b"lmgg" + struct.pack("<11i", *sizes) + struct.pack("<2i", 5, 3) + bytes(60)
    content += struct.pack("<i", len(words))
    content += b"".join(struct.pack("<i", len(word)) + word for word in words)
    for name, values in tensors.items():
        content += struct.pack("<3i", values.ndim, len(name), kind)
        content += struct.pack(f"<{values.ndim}i", *values.shape[::-1]) + name.encode()
        content += values.astype([np.float32, np.float16][kind]).tobytes()
    path.write_bytes(content)
    return str(path)
