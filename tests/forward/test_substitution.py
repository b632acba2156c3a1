"""Explanations in the place of a model's table: what they keep, and what the model loses."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from made_forward import forward_analysis
from made_models import (
    LENGTH,
    VOCABULARY,
    WIDTH,
    bert,
    gpt2,
    in_batches,
    language_model,
    pixels,
    timm_vit,
    tokens,
    vit,
)

import posprobe as pp
from posprobe.analyses.models.experiments import costs, measure_early
from posprobe.analyses.result import as_block
from posprobe.errors import InvalidTable, UsageError
from posprobe.figures import find_builder
from posprobe.figures.common import REPORT
from posprobe.forward.replacements import explained_share, explanations
from posprobe.layouts import Grid, Sequence
from posprobe.report.screen import render_text
from posprobe.sources import Source
from posprobe.tables import PositionTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from posprobe.analyses.facts import Answers
    from posprobe.analyses.models.experiments import SubstitutionEffect


def named(table: Any, **options: Any) -> dict[str, NDArray[np.float64]]:
    return {
        explanation.name: explanation.rows
        for explanation in explanations(table, **options)
    }


def line(values: NDArray[Any]) -> PositionTable:
    return PositionTable(values, Sequence(len(values)), "made", Source("a", "a"))


def rotated(values: Any, seed: int = 0) -> NDArray[np.float64]:
    d = values.shape[1]
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]
    noisy_rows = 2.5 * np.asarray(values, float) @ turn + np.random.default_rng(1).normal(
        size=d
    )
    return np.asarray(noisy_rows)


# What explanations keep.


def test_components_are_the_best_of_their_number() -> None:
    values = np.random.default_rng(0).normal(size=(30, 12)) + 3
    singular = np.linalg.svd(values - values.mean(axis=0), compute_uv=False)
    rows_by_name = named(line(values))
    for k in (1, 2, 3, 5, 10, 12):
        residual = float(np.square(values - rows_by_name[f"components_{k}"]).sum())
        assert residual == pytest.approx(
            float(np.square(singular[k:]).sum()), rel=1e-9, abs=1e-20
        )
    np.testing.assert_array_equal(rows_by_name["itself"], values)
    assert explained_share(values, rows_by_name["components_12"]) == pytest.approx(
        1, abs=1e-12
    )
    assert explained_share(values, rows_by_name["mean"]) == 0


def test_planted_waves_are_kept_by_sinusoids_and_rotations() -> None:
    t = np.arange(96)[:, None]
    rng = np.random.default_rng(2)
    amplitudes = rng.normal(size=(4, 16))
    waves = [np.cos(2 * np.pi * t / 12), np.sin(2 * np.pi * t / 12)]
    waves += [np.cos(2 * np.pi * t / 5.3), np.sin(2 * np.pi * t / 5.3)]
    values = np.concatenate(waves, axis=1) @ amplitudes + 1
    rows_by_name = named(line(values))
    assert (explained_share(values, rows_by_name["sinusoids_2"]) or 0) > 0.999
    assert (explained_share(values, rows_by_name["sinusoids_1"]) or 0) < 0.9
    assert (explained_share(values, rows_by_name["rotations"]) or 0) > 0.99


def test_sinusoids_are_limited_by_the_length_of_the_table() -> None:
    values = np.random.default_rng(0).normal(size=(96, 6))
    rows_by_name = named(line(values))
    kept_shares = [
        explained_share(values, rows_by_name[f"sinusoids_{k}"]) or 0 for k in (5, 10, 20)
    ]
    # Of noise each takes its share of the degrees of freedom at least: 2 of 95.
    assert all(
        share > 2 * k / 95 for k, share in zip((5, 10, 20), kept_shares, strict=True)
    )
    assert kept_shares == sorted(kept_shares)
    assert kept_shares[-1] < 1
    assert "sinusoids_50" not in rows_by_name


@pytest.mark.parametrize("shape", [(40, 64), (80, 32)])
def test_a_rotated_sinusoid_is_found_whatever_its_base(shape: tuple[int, int]) -> None:
    standard, other_base = (
        pp.sinusoidal(*shape, base=base).values for base in (10_000.0, 300.0)
    )
    values = rotated(standard)
    assert explained_share(values, named(line(values))["sinusoid"]) == pytest.approx(
        1, abs=1e-9
    )
    values = rotated(other_base)
    rows_by_name = named(line(values))
    assert (explained_share(values, rows_by_name["ladder"]) or 0) > 0.999
    assert (explained_share(values, rows_by_name["sinusoid"]) or 0) < 0.97


def test_a_grid_has_codes_and_smoothing_over_both_axes() -> None:
    rng = np.random.default_rng(3)
    rows, columns = rng.normal(size=(8, 1, 6)), rng.normal(size=(1, 9, 6))
    values = (rows + columns).reshape(72, 6)
    grid = PositionTable(values, Grid(8, 9), "made", Source("a", "a"))
    rows_by_name = named(grid)
    np.testing.assert_allclose(rows_by_name["codes"], values, atol=1e-12)
    assert not {"sinusoids_1", "rotations", "ladder", "walk", "repaired"} & set(
        rows_by_name
    )
    # Smoothing a code of rows alone is smoothing that code.
    row_codes = (rows + 0 * columns).reshape(72, 6)
    smooth = named(PositionTable(row_codes, Grid(8, 9), "made", Source("a", "a")))[
        "smoothed_2"
    ]
    weights = np.exp(-0.5 * np.square((np.arange(8)[:, None] - np.arange(8)) / 2))
    expected = weights / weights.sum(axis=1, keepdims=True) @ rows[:, 0]
    np.testing.assert_allclose(smooth.reshape(8, 9, 6)[:, 4], expected, atol=1e-12)


def test_outlier_rows_are_replaced_by_their_neighbours() -> None:
    values = np.array(pp.sinusoidal(64, 16).values, float)
    values[0] *= 9
    repaired = named(line(values))["repaired"]
    np.testing.assert_array_equal(repaired[1:], values[1:])
    assert (
        np.linalg.norm(repaired[0] - values[1])
        < np.linalg.norm(values[0] - values[1]) / 9
    )


def test_outlier_patches_are_replaced_by_their_neighbours_mean() -> None:
    values = np.array(pp.sincos2d(8, 9, 16).values, float)
    values[30] += 9  # in row 3 and column 3
    repaired = named(PositionTable(values, Grid(8, 9), "made", Source("a", "a")))[
        "repaired"
    ]
    np.testing.assert_allclose(
        repaired[30], values[[21, 29, 31, 39]].mean(axis=0), atol=1e-12
    )
    is_ordinary = np.arange(72) != 30
    np.testing.assert_array_equal(repaired[is_ordinary], values[is_ordinary])


def test_random_tables_keep_the_mean_row_and_the_directions() -> None:
    values = np.cumsum(np.random.default_rng(4).normal(size=(80, 3)), axis=0) @ (
        np.random.default_rng(5).normal(size=(3, 10))
    )
    rows_by_name, repeated = named(line(values), seed=7), named(line(values), seed=7)
    for name in ("gaussian", "permuted", "walk", "stationary"):
        np.testing.assert_array_equal(rows_by_name[name], repeated[name])
        np.testing.assert_allclose(
            rows_by_name[name].mean(axis=0), values.mean(axis=0), atol=1e-4
        )
    # The smooth one varies in the table's own three directions, about as much in each.
    _, size, directions = np.linalg.svd(values - values.mean(axis=0), full_matrices=False)
    projections = np.linalg.norm(
        (rows_by_name["stationary"] - values.mean(axis=0)) @ directions.T, axis=0
    )
    assert projections[3:].max() < 1e-4 * size[0]
    assert 0.2 < projections[0] / size[0] < 5


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((1, 1)), np.ones((2, 1)), np.array([[0.0, 1.0], [2.0, -1.0]]),
        np.full((20, 4), 3.0), np.arange(12.0)[:, None], np.eye(3), np.zeros((40, 6)),
    ],
)  # fmt: skip
def test_degenerate_tables_have_the_explanations_that_there_can_be(
    values: NDArray[Any],
) -> None:
    rows_by_name = named(line(values))
    assert {"itself", "mean", "zeros"} <= set(rows_by_name)
    for rows in rows_by_name.values():
        assert rows.shape == values.shape
        assert np.isfinite(rows).all()
    constant = bool((values == values[0]).all())
    assert (explained_share(values, rows_by_name["mean"]) is None) == constant
    assert ("permuted" in rows_by_name) == (not constant)


def test_tables_that_are_none_are_one_clear_error() -> None:
    with pytest.raises(InvalidTable, match="NaN"):
        pp.forward.explanations(np.full((3, 2), np.nan))


# Costs and their errors.


def test_errors_of_quotients_are_those_of_the_jackknife() -> None:
    rng = np.random.default_rng(6)
    sums = np.stack([rng.normal(1, 0.3, 9), rng.normal(4, 0.5, 9)])
    cost, removed = costs(sums, np.ones(9), 1)
    assert cost.error == pytest.approx(sums[0].std(ddof=1) / 3)
    assert cost.kept == pytest.approx(1 - sums[0].mean() / sums[1].mean())
    leave_one_out = [
        1 - np.delete(sums[0], c).sum() / np.delete(sums[1], c).sum() for c in range(9)
    ]
    assert cost.kept_error == pytest.approx(
        np.sqrt(8 / 9 * np.square(leave_one_out - np.mean(leave_one_out)).sum())
    )
    assert (removed.kept, removed.kept_error) == (0, 0)
    # Two costs of the same contexts that rise and fall together have a certain quotient.
    half, _ = costs(np.stack([sums[1] / 2, sums[1]]), np.ones(9), 1)
    assert half.kept == pytest.approx(0.5)
    assert half.kept_error == pytest.approx(0, abs=1e-12)


def test_a_table_without_measurable_value_has_no_shares() -> None:
    noise = np.random.default_rng(7).normal(0, 1, (3, 40))
    assert {cost.kept for cost in costs(noise, np.ones(40), 2)} == {None}
    assert costs(np.ones((2, 1)), np.ones(1), 1)[0].error is None
    assert costs(np.zeros((2, 5)), np.zeros(5), 1)[0].value is None
    # Weights of a single context leave nothing to leave out.
    assert costs(np.ones((2, 3)), np.array([0.0, 4.0, 0.0]), 1)[0].error is None


def test_the_part_of_the_first_positions_is_a_share_of_the_sum() -> None:
    costs_by_position = np.r_[np.full(16, 3.0), np.full(48, 1.0)]
    early_share = measure_early(costs_by_position, np.full(64, 5.0))
    assert early_share is not None
    assert (early_share.cost, early_share.of) == (0.5, 0.25)
    assert measure_early(costs_by_position[:30], np.ones(30)) is None
    assert measure_early(-costs_by_position, np.ones(64)) is None


# Models.


@pytest.mark.parametrize("build", [gpt2, bert, vit, timm_vit])
def test_the_original_table_changes_no_output(build: Any, device: str) -> None:
    model = build().to(device)
    contexts = pixels(6) if build in (vit, timm_vit) else tokens(6)
    effect = pp.substitution_effect(model, in_batches(contexts, 4))
    main = "loss" if build is gpt2 else "states"
    assert effect.measure == main
    for cost in effect["itself"].costs.values():
        assert (cost.value, cost.error) == (0, 0)
    all_components = [
        substitute for substitute in effect.substitutes if substitute.kind == "components"
    ][-1]
    assert all_components.variance == pytest.approx(1, abs=1e-9)
    assert abs(all_components.costs[main].value or 0) < 1e-5
    assert (effect["mean"].costs[main].value or 0) > 0.01
    if main == "states":
        assert effect["itself"].cka == pytest.approx(1)
        assert (effect["mean"].cka or 1) < 1
    json.dumps(as_block(effect), allow_nan=False)


def test_costs_are_those_of_a_model_whose_table_is_another_one(device: str) -> None:
    model, contexts = gpt2().double().to(device), tokens(7)
    table = model.transformer.wpe.weight.data
    own_table = table.clone()
    other_table = np.random.default_rng(8).normal(size=own_table.shape)
    effect = pp.substitution_effect(
        model, in_batches(contexts, 3), tables={"other": other_table}
    )
    assert torch.equal(own_table, table)
    ids = torch.from_numpy(contexts).to(device)
    runs = []
    with torch.no_grad():
        for rows in (own_table, torch.from_numpy(other_table).to(device)):
            table.copy_(rows)
            runs.append(model(ids).logits[:, :-1].log_softmax(dim=-1))
    before, after = runs
    losses = [-run.gather(2, ids[:, 1:, None])[..., 0] for run in runs]
    divergence = (before.exp() * (before - after)).sum(dim=-1)
    is_changed = (before.argmax(dim=-1) != after.argmax(dim=-1)).double()
    cost = effect["other"].costs
    assert effect.loss == pytest.approx(float(losses[0].mean()))
    for name, expected_cost in (
        ("loss", losses[1] - losses[0]), ("divergence", divergence), ("answers", is_changed),
    ):  # fmt: skip
        mean = expected_cost.mean(dim=1)
        assert cost[name].value == pytest.approx(float(mean.mean()), rel=1e-9)
        assert cost[name].error == pytest.approx(float(mean.std() / 7**0.5), rel=1e-9)
    assert effect.by_position is not None
    assert effect.unchanged is not None
    place = [expected_cost.name for expected_cost in effect.substitutes].index("other")
    cost_by_position = (losses[1] - losses[0]).mean(dim=0).cpu().numpy()
    np.testing.assert_allclose(
        effect.by_position[place, :-1], cost_by_position, rtol=1e-9
    )
    assert np.isnan(effect.by_position[place, -1])  # nothing follows the last token
    np.testing.assert_allclose(effect.unchanged[:-1], losses[0].mean(dim=0).cpu().numpy())


@pytest.mark.parametrize(("kind", "first_row"), [("opt", 2), ("roberta", 2)])
def test_rows_are_those_that_the_model_itself_looks_up(kind: str, first_row: int) -> None:
    model = language_model(kind)
    contexts = np.where(tokens(5) < 6, 6, tokens(5))
    ((path, table),) = ((n, p) for n, p in model.named_parameters() if "embed_pos" in n or (
        "position_emb" in n))  # fmt: skip
    untouched = table.detach().clone()
    effect = pp.substitution_effect(model, [contexts], mask_token=5, seed=1)
    assert effect.table == path
    assert effect.layout == Sequence(LENGTH)
    assert effect.task == ("next token" if kind == "opt" else "masked token")
    assert torch.equal(untouched, table)
    # Rows that no context reaches cost nothing, whatever stands there.
    with torch.no_grad():
        table[: first_row - 1] = 0
        table[first_row + LENGTH :] = 7
    repeated = pp.substitution_effect(model, [contexts], mask_token=5, seed=1)
    assert repeated["mean"].costs == effect["mean"].costs
    assert repeated["components_2"].costs == effect["components_2"].costs


def test_part_of_the_positions_can_be_replaced() -> None:
    model = gpt2()
    own_table = model.transformer.wpe.weight.detach().clone()
    effect = pp.substitution_effect(model, [tokens(4)], rows=slice(2, 6))
    assert (effect.start, effect.layout) == (2, Sequence(4))
    partial_table = own_table.clone()
    partial_table[2:6] = own_table[2:6].mean(dim=0)
    by_hand = pp.substitution_effect(
        model, [tokens(4)], tables={"part": partial_table.double().numpy()}
    )
    for name, cost in effect["mean"].costs.items():
        assert by_hand["part"].costs[name].value == pytest.approx(cost.value, rel=1e-5)


def test_the_table_is_put_back_after_an_error() -> None:
    model = bert()
    own_table = model.embeddings.position_embeddings.weight.detach().clone()

    def fail(*_: object) -> None:
        if not torch.equal(own_table, model.embeddings.position_embeddings.weight):
            raise ArithmeticError("in the middle")

    handle = model.encoder.register_forward_hook(fail)
    with pytest.raises(UsageError, match="in the middle"):
        pp.substitution_effect(model, [tokens(4)])
    handle.remove()
    assert torch.equal(own_table, model.embeddings.position_embeddings.weight)


def test_attention_by_distance_is_that_of_the_model_run_by_hand() -> None:
    model: Any = transformers.GPT2Model(gpt2().config).train(mode=False).double()
    model.set_attn_implementation("eager")
    contexts = tokens(5)
    effect = pp.substitution_effect(model, in_batches(contexts, 2))
    model.wpe.weight.data[:LENGTH] = model.wpe.weight.data[:LENGTH].mean(dim=0)
    with torch.no_grad():
        attentions = model(torch.from_numpy(contexts), output_attentions=True).attentions
    weights = torch.stack(attentions).mean(dim=(0, 2)).numpy()  # [c, n, n]
    ranges = (*pairwise(effect.distances or ()), ((effect.distances or (0,))[-1], LENGTH))
    for (start, stop), (value, error) in zip(
        ranges, effect["mean"].attention or (), strict=True
    ):
        shares = [
            sum(layer[i, j] for i in range(LENGTH) for j in range(1, LENGTH)
                if start <= abs(i - j) < stop) / LENGTH
            for layer in weights
        ]  # fmt: skip
        assert value == pytest.approx(np.mean(shares), abs=1e-12)
        assert error == pytest.approx(np.std(shares, ddof=1) / np.sqrt(5), abs=1e-12)


def test_missing_attention_leaves_other_costs() -> None:
    model = gpt2()
    effect = pp.substitution_effect(model, [tokens(8)], random=True)
    assert effect.distances is not None
    # A model that cannot show its attention is asked the rest.
    model.set_attn_implementation = lambda _: (_ for _ in ()).throw(ValueError("none"))
    blind = pp.substitution_effect(model, [tokens(8)], random=True)
    assert blind.distances is None
    assert "cannot show its attention" in blind.undefined["attention"]
    assert blind["mean"].costs["divergence"].value == pytest.approx(
        effect["mean"].costs["divergence"].value, rel=1e-4
    )


def test_results_do_not_depend_on_how_contexts_are_grouped() -> None:
    contexts = np.where(tokens(8) < 6, 6, tokens(8))
    model = language_model("roberta").double()
    a, b = (
        pp.substitution_effect(model, in_batches(contexts, size), mask_token=5, seed=3)
        for size in (3, 8)
    )
    assert a.task == "masked token"
    for name, substitute in (
        (substitute.name, substitute) for substitute in a.substitutes
    ):
        for measure, cost in substitute.costs.items():
            assert cost.value == pytest.approx(
                b[name].costs[measure].value, rel=1e-6, abs=1e-9
            )
            assert cost.error == pytest.approx(
                b[name].costs[measure].error, rel=1e-6, abs=1e-9
            )


def test_non_finite_outputs_are_undefined() -> None:
    model = gpt2()
    size = model.transformer.wpe.weight.shape
    tables = {"huge": np.full(size, 3e38) * np.where(np.arange(WIDTH) % 2, 1, -1)}
    effect = pp.substitution_effect(model, [tokens(4)], tables=tables)
    assert effect["huge"].costs["loss"].value is None
    assert "not finite" in effect.undefined["value"]
    assert effect["mean"].costs["loss"].value is not None
    json.dumps(as_block(effect), allow_nan=False)
    model.transformer.wte.weight.data[:] = np.nan
    for broken in (model, model.transformer):
        with pytest.raises(
            InvalidTable, match=r"in context 1\..* the checkpoint is damaged"
        ):
            pp.substitution_effect(broken, [tokens(4)])


def test_random_contexts_have_no_loss_and_masks_that_are_unknown_neither() -> None:
    random = pp.substitution_effect(gpt2(), [tokens(4)], random=True)
    assert (random.measure, random.loss) == ("divergence", None)
    assert "random" in random.undefined["loss"]
    contexts = np.where(tokens(4) < 6, 6, tokens(4))
    unmasked = pp.substitution_effect(language_model("roberta"), [contexts])
    assert unmasked.measure == "divergence"
    assert "which token masks" in unmasked.undefined["loss"]


def test_a_model_that_is_not_the_same_when_run_again_says_so() -> None:
    model = bert()
    noise = torch.Generator().manual_seed(0)

    def shake(*arguments: Any) -> Any:
        return arguments[-1] + 1e-3 * torch.randn(arguments[-1].shape, generator=noise)

    handle = model.embeddings.register_forward_hook(shake)
    effect = pp.substitution_effect(model, [tokens(3)])
    handle.remove()
    assert "repeated runs differ" in effect.notes[0]
    assert (effect["itself"].costs["states"].value or 0) > 1e-5


# Models without a table.


def llama(**options: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=24, intermediate_size=16, num_hidden_layers=2, num_attention_heads=1,
        vocab_size=VOCABULARY, initializer_range=0.5, **options,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).train(mode=False)


def test_rotations_are_stopped_in_bands_of_periods_and_turn_again(device: str) -> None:
    model = llama().to(device)
    own_frequencies = model.model.rotary_emb.inv_freq.clone()
    contexts = tokens(6)
    effect = pp.substitution_effect(model, in_batches(contexts, 4), random=True)
    assert torch.equal(own_frequencies, model.model.rotary_emb.inv_freq)
    assert (effect.scheme, effect.removed) == ("rotary", "none")
    bands = [substitute for substitute in effect.substitutes if substitute.kind == "band"]
    assert [substitute.size for substitute in bands] == list(range(1, 9))
    assert "6.28" in bands[0].label  # the fastest pair turns by one radian per position
    assert effect["itself"].costs["divergence"].value == 0
    # The slowest band turns by next to nothing within a context.
    kept_shares = [substitute.costs["divergence"].kept or 0 for substitute in bands]
    assert kept_shares[-1] == max(kept_shares)


def test_biases_of_heads_are_set_to_their_mean_which_attention_does_not_see() -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(
        d_model=WIDTH, d_kv=4, d_ff=16, num_layers=2, num_heads=3, vocab_size=VOCABULARY,
        initializer_factor=3.0,
    )  # fmt: skip
    model: Any = (
        transformers.T5EncoderModel(config).train(mode=False).double().get_encoder()
    )
    bias = model.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    bias.data.normal_(0, 2)
    effect = pp.substitution_effect(model, [tokens(5)])
    assert effect.scheme == "relative"
    assert [substitute.name for substitute in effect.substitutes][1:] == [
        "head_0",
        "head_1",
        "head_2",
        "none",
    ]
    value_before = effect["none"].costs["states"].value
    # A constant of each head's own changes nothing that its attention sees.
    bias.data += torch.tensor([5.0, -3.0, 1.0], dtype=torch.float64)
    value_after = pp.substitution_effect(model, [tokens(5)])["none"].costs["states"].value
    assert value_after == pytest.approx(value_before, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "contexts", "options", "message"),
    [
        (torch.nn.Linear(4, 4), pixels(2), {}, "one table of positions"),
        (timm_vit(pos_embed="none"), pixels(2), {}, "biases of T5 are taken away"),
        (llama(), tokens(2), {"rows": slice(0, 4)}, "no table of positions"),
        # Of a single token nothing turns.
        (llama(), tokens(2, 1), {}, "makes no difference"),
        (gpt2(), tokens(4, 1), {}, "the mean row itself"),
        (gpt2(), tokens(4), {"rows": slice(3, 4)}, "the mean row itself"),
        (gpt2(), tokens(2), {"tables": {"short": np.ones((3, WIDTH))}}, "shape"),
    ],
)
def test_an_impossible_substitution_is_one_clear_error(
    model: Any, contexts: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        pp.substitution_effect(model, [contexts], **options)


# What is answered.


def answers_of(result: SubstitutionEffect) -> Answers:
    analysis = forward_analysis(results={"substitution": result})
    render_text(analysis.to_dict(), verbose=True)
    return analysis.answers


def test_the_value_of_rotations_is_drawn_and_answered() -> None:
    rotations = pp.substitution_effect(llama(), [tokens(6)], random=True)
    for name in ("substitution", "substitution_positions"):
        assert find_builder(rotations, name)(REPORT, {"made": rotations}, {}).axes
    needed = answers_of(rotations)["needed"]
    assert needed.facts.worth.scheme == "rotary"
    assert needed.facts.worth.table == "model.rotary_emb.inv_freq"
    assert needed.value == rotations["none"].costs["divergence"].value


def test_a_harmful_table_is_reported_only_when_certain() -> None:
    # Each token predicts itself, and the table is noise beside it.
    model = gpt2()
    for block in model.transformer.h:
        for part in (block.attn.c_proj, block.mlp.c_proj):
            part.weight.data.zero_()
    noise = np.random.default_rng(0).normal(size=(LENGTH, WIDTH))
    model.transformer.wpe.weight.data[:] = torch.from_numpy(3 * noise)
    contexts = np.repeat(np.arange(12)[:, None], LENGTH, axis=1)
    effect = pp.substitution_effect(model, [contexts])
    cost = effect["mean"].costs["loss"]
    assert cost.value is not None
    assert cost.error is not None
    assert cost.value < -3 * cost.error
    assert answers_of(effect)["needed"].reason == "gain"


def test_a_table_of_equal_rows_is_drawn_and_makes_no_difference() -> None:
    model = vit()
    model.embeddings.position_embeddings.data.zero_()
    effect = pp.substitution_effect(model, [pixels(6)], random=True)
    assert find_builder(effect, "substitution")(REPORT, {"made": effect}, {}).axes
    needed = answers_of(effect)["needed"]
    assert (needed.answer, needed.reason) == ("no", "little")
