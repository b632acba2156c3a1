"""The calibration tools: expected answers, counts and rates."""

import calibration
import numpy as np
import pytest
import rotary_calibration


@pytest.mark.parametrize("name", [*calibration.PROCESSES, *calibration.FIELDS])
def test_processes_expect_answers_to_asked_questions_only(name: str) -> None:
    process = {**calibration.PROCESSES, **calibration.FIELDS}[name]
    assert process.yes | process.either <= set(calibration.COLUMNS[process.grid])


def test_every_question_is_counted_once_per_table() -> None:
    process = calibration.PROCESSES["walk"]
    counts = calibration.measure("walk", process, (32, 16), 2, seed=0)
    assert set(counts["answers"]) == set(calibration.COLUMNS[False])
    assert {sum(counts_by_answer) for counts_by_answer in counts["answers"].values()} == {
        2
    }


def test_rates_bound_a_false_yes_from_above_and_a_right_one_from_below() -> None:
    # Of 0 of n, the exact 95 % interval ends at 1 - 0.025 ** (1 / n).
    assert calibration.rate(0, 100, is_lower_bound=False) == "0 of 100 (≤ 3.6 %)"
    assert calibration.rate(100, 100, is_lower_bound=True) == "100 of 100 (≥ 96.4 %)"


def test_planted_heads_have_their_spread_and_share() -> None:
    spreads = np.array([0.3, 0.0] * 20)
    heads = rotary_calibration.planted(np.random.default_rng(0), 0.1, spreads, 0.5)
    estimates = np.array([(head.spread, head.share) for head in heads[::2]], dtype=float)
    np.testing.assert_allclose(estimates.mean(axis=0), [0.3, 0.5], rtol=0.1)
    assert {head.answer for head in heads[::2]} == {"yes"}
    assert "yes" not in {head.answer for head in heads[1::2]}


@pytest.mark.parametrize("context_share", rotary_calibration.CONTEXT_SHARES)
def test_noise_of_contexts_holds_its_share_of_the_variance(context_share: float) -> None:
    noise = rotary_calibration.noise(np.random.default_rng(1), context_share, 400)
    window = rotary_calibration.WINDOW
    assert noise.var() == pytest.approx(
        context_share + (1 - context_share) / window, rel=0.05
    )
    if context_share == 1:
        neighbours = np.mean(noise[..., 1:] * noise[..., :-1]) / noise.var()
        assert neighbours == pytest.approx(rotary_calibration.NOISE_CORRELATION, abs=0.02)
