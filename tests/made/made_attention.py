"""Numbers and modules that tests of attention ask with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


def noise(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def tensor(*shape: int, seed: int = 0) -> Any:
    return torch.from_numpy(noise(*shape, seed=seed)).float()


def randomised(kind: Any, *arguments: Any, **options: Any) -> Any:
    """A module of a library in evaluation mode, no parameter of which is zero or one."""
    module = kind(*arguments, **options)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(generator=generator)
    module.eval()
    return module


def same(found: Any, expected: Any, atol: float = 1e-5) -> None:
    assert tuple(found.shape) == tuple(expected.shape)
    np.testing.assert_allclose(
        torch.as_tensor(found).detach(), torch.as_tensor(expected).detach(), rtol=1e-5, atol=atol
    )
