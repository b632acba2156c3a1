"""Runs of a model that end early or fail: nothing is counted twice, and it is said."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from made_models import (
    LENGTH,
    VOCABULARY,
    bert,
    gpt2,
    hooks_of,
    in_batches,
    pixels,
    timm_vit,
    tokens,
    vit,
)

from posprobe.errors import InvalidTable, UsageError
from posprobe.forward import (
    attend,
    blank_images,
    decompose,
    permutation_effect,
    phase_shift,
    substitution_effect,
)
from posprobe.forward.experiments import token_losses

if TYPE_CHECKING:
    from numpy.typing import NDArray


def test_a_batch_that_does_not_fit_is_one_clear_error() -> None:
    model = gpt2().base_model

    def full(_: object, inputs: tuple[torch.Tensor, ...]) -> None:
        if len(inputs[0]) > 3:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 20.00 MiB."
            )

    with model.wte.register_forward_pre_hook(full):
        assert decompose(model, [tokens(3)]).contexts == 3
        with pytest.raises(UsageError, match=r"does not fit into memory.*`batch_size`"):
            decompose(model, [tokens(3), tokens(4)])


@pytest.mark.parametrize("build", [timm_vit, vit])
def test_hooks_are_gone_after_a_run_and_after_an_error(build: Any) -> None:
    model = build()
    decompose(model, [pixels(2)])
    hooks_before = hooks_of(model)
    last_linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear)][-1]
    handle = last_linear.register_forward_pre_hook(_fail)
    with pytest.raises(UsageError, match=r"its own code fails \(ArithmeticError: "):
        decompose(model, [pixels(2)])
    handle.remove()
    assert hooks_of(model) == hooks_before
    decompose(model, [pixels(2)])


def _fail(*_: object) -> None:
    raise ArithmeticError


def test_ctrl_c_keeps_the_sums_so_far_with_a_note(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, contexts = gpt2().double(), tokens(12)

    def interrupted() -> Iterator[NDArray[Any]]:
        yield contexts[:4]
        yield contexts[4:8]
        raise KeyboardInterrupt

    with caplog.at_level(logging.WARNING, "posprobe"):
        decomposition = decompose(model, interrupted())
    assert decomposition.contexts == 8
    assert decomposition.stopped
    assert "8 contexts" in caplog.text
    expected_decomposition = decompose(model, [contexts[:8]])
    np.testing.assert_allclose(
        decomposition.layers[2].pos, expected_decomposition.layers[2].pos, atol=1e-12
    )
    assert not expected_decomposition.stopped


def test_ctrl_c_before_the_first_context_is_an_interruption() -> None:
    def interrupted() -> Iterator[NDArray[Any]]:
        if LENGTH:
            raise KeyboardInterrupt
        yield tokens(2)

    with pytest.raises(KeyboardInterrupt):
        decompose(gpt2(), interrupted())


def test_ctrl_c_inside_a_layer_leaves_all_layers_with_the_same_contexts() -> None:
    model, contexts = bert().double(), tokens(8)
    calls = iter(range(100))

    def stop(*_: object) -> None:
        if next(calls) == 4:  # the first two find where states appear
            raise KeyboardInterrupt

    handle = model.encoder.layer[1].register_forward_hook(stop)
    decomposition = decompose(model, in_batches(contexts, 2))
    handle.remove()
    expected_decomposition = decompose(model, [contexts[:4]])
    assert decomposition.contexts == 4
    for number, layer in expected_decomposition.layers.items():
        np.testing.assert_allclose(
            decomposition.layers[number].pos, layer.pos, atol=1e-12
        )


@pytest.mark.parametrize(
    ("batches", "options", "message"),
    [
        ([], {}, "the inputs are empty"),
        ([np.zeros((2, 5))], {}, "integer token ids"),
        ([np.zeros((0, 5), int)], {}, "at least one"),
        ([np.full((2, 5), VOCABULARY)], {}, "tokenizer of another model"),
        ([np.zeros((2, LENGTH + 1), int)], {}, "longer than the 9 positions"),
        ([np.zeros((2, 5), int), np.zeros((2, 6), int)], {}, "as long as each other"),
        ([np.zeros((2, 5), int)], {"positions": slice(5, 9)}, "nothing is left"),
        ([np.zeros((2, 5), int)], {"layers": [3]}, "choose some of 0 to 2"),
        ([np.zeros((2, 5), int)], {"layers": []}, "choose some of 0 to 2"),
        ([np.zeros((2, 3, 14, 21))], {}, "does not take such input"),
    ],
)
def test_contexts_that_cannot_be_run_are_one_clear_error(
    batches: list[NDArray[Any]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        decompose(gpt2(), batches, **options)


def test_models_without_hidden_states_are_one_clear_error() -> None:
    with pytest.raises(UsageError, match="neither a model of transformers"):
        decompose(torch.nn.Linear(4, 4), [tokens(2)])
    config = transformers.T5Config(
        vocab_size=40, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    with pytest.raises(UsageError, match="get_encoder"):
        decompose(transformers.T5Model(config), [tokens(2)])
    decomposition = decompose(transformers.T5Model(config).get_encoder(), [tokens(2)])
    assert list(decomposition.layers) == [0, 1]


def runs() -> dict[str, Callable[[Any, Any], object]]:
    return {
        "hidden states": decompose,
        "attention": attend,
        "permutation": permutation_effect,
        "shift": lambda model, contexts: phase_shift(model, contexts, shifts=(1,)),
        "substitution": substitution_effect,
        "loss": lambda model, contexts: token_losses(
            model, contexts, mask_token=None, seed=0, name="made"
        ),
    }


@pytest.mark.parametrize("name", runs())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_overflow_is_reported_with_its_context_and_a_remedy(
    name: str, dtype: str
) -> None:
    model = gpt2().to(getattr(torch, dtype))
    contexts = tokens(4, LENGTH - 1) % 30
    contexts[2, 4] = 35
    # What this token alone becomes overflows.
    model.transformer.wte.register_forward_hook(
        lambda _, inputs, output: output.masked_fill((inputs[0] == 35)[..., None], np.inf)
    )
    # Of a batch of two the context is the third of all.
    with pytest.raises(
        InvalidTable, match=r"hold NaN or infinity in context 3\. It o"
    ) as refusal:
        runs()[name](model, in_batches(contexts, 2))
    assert ("`dtype='float32'`" in str(refusal.value)) == (dtype == "bfloat16")
    if name in ("hidden states", "attention"):
        assert "at layer" in str(refusal.value)
    model.transformer.wpe.weight.data[2] = np.nan
    with pytest.raises(InvalidTable, match="checkpoint is damaged"):
        runs()[name](model, in_batches(contexts, 2))


def test_images_whose_states_overflow_are_one_clear_error() -> None:
    model = vit()
    model.layers[1].mlp.fc2.bias.data[:] = np.inf
    with pytest.raises(
        InvalidTable, match="at layer 2 hold NaN or infinity in context 1"
    ):
        blank_images(model)
