"""Every format of a file gives the same rows, in the precision in which they were stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from made_family_checks import assert_as_the_model
from tiny_models import Tiny, roberta, save_pretrained

from posprobe.families import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def save_bin(tiny: Tiny, folder: Path, **options: Any) -> str:
    folder.mkdir()
    tiny.model.config.save_pretrained(folder)
    torch.save(tiny.model.state_dict(), folder / "pytorch_model.bin", **options)
    return str(folder)


def save_bin_legacy(tiny: Tiny, folder: Path) -> str:
    return save_bin(tiny, folder, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("save", [save_pretrained, save_bin, save_bin_legacy])
def test_every_precision_is_kept_to_the_bit(
    dtype: torch.dtype, save: Callable[[Tiny, Path], str], tmp_path: Path
) -> None:
    tiny = roberta(1, dtype)()
    table = load(save(tiny, tmp_path / "model"))
    assert_as_the_model(table, tiny)
    names = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16"}
    assert table.source.dtype == names.get(dtype, "BF16")


def test_the_source_says_what_was_read(tmp_path: Path) -> None:
    from hashlib import sha256

    tiny = roberta(1)()
    folder = tmp_path / "model"
    table = load(save_pretrained(tiny, folder))
    assert table.source.reference == str(folder)
    assert table.source.resolved == str(folder.resolve())
    assert table.source.file == "model.safetensors"
    assert table.source.tensor == "embeddings.position_embeddings.weight"
    assert table.source.dtype == "F32"
    assert table.source.sha256 == sha256(tiny.table.detach().numpy().tobytes()).hexdigest()
    assert table.source.revision is None
    assert table.name == "model"
