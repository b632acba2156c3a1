"""The calibration tools: expected answers, counts and rates."""

import calibration
import numpy as np
import pytest
import rotary_calibration
from numpy.typing import NDArray

from posprobe.layouts import Sequence


@pytest.mark.parametrize("name", calibration.ALL)
def test_processes_expect_answers_to_asked_questions_only(name: str) -> None:
    process = calibration.ALL[name]
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


#: Standard deviation of rows before training, and rows that `first-forty` trained.
INITIAL_SD = 0.02
N_SEEN_ROWS = 40


def trained_table(name: str) -> NDArray[np.float64]:
    n, d = calibration.TRAINED_SIZE
    return calibration.TRAINED[name].draw(np.random.default_rng(0), n, d)


def centred_cosines(values: NDArray[np.float64]) -> NDArray[np.float64]:
    rows = values - values.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows @ rows.T)


def periodic_share(values: NDArray[np.float64], period: int) -> float:
    """Return the share of the variance that a period and its harmonics hold."""
    rows = values - values.mean(axis=0)
    means = rows.reshape(-1, period, rows.shape[1]).mean(axis=0)
    return float(np.square(means).mean() / np.square(rows).mean())


def test_every_trained_table_has_a_truth_and_the_stated_size() -> None:
    with np.load(calibration.TRAINED_PATH) as tables:
        assert set(tables) == set(calibration.TRAINED)
        assert {tables[name].shape for name in tables} == {calibration.TRAINED_SIZE}
        assert all(np.isfinite(tables[name]).all() for name in tables)
        assert len({tables[name].tobytes() for name in tables}) == len(tables)


def test_untrained_table_is_normal_noise_without_order() -> None:
    values = trained_table("untrained")
    # Of 2,048 values, the standard deviation errs by 1.6 %.
    assert values.std() == pytest.approx(INITIAL_SD, rel=0.06)
    answers = calibration.answered(values, Sequence(len(values)), 0)
    assert answers["order"].answer == "no"
    assert not any(answer.yes for answer in answers.values())


@pytest.mark.parametrize("name", ["untrained", "bag", "bag-decay", "first-token"])
def test_exchangeable_rows_are_as_similar_to_neighbours_as_to_others(name: str) -> None:
    cosines = centred_cosines(trained_table(name))
    others = cosines[np.triu_indices(len(cosines), 2)]
    # The mean of 63 cosines of independent rows in 32 columns errs by 0.022, of rows in few
    # directions by more.
    assert cosines.diagonal(1).mean() == pytest.approx(others.mean(), abs=0.1)


def test_modulo_task_repeats_eight_rows_and_its_rotation_is_found() -> None:
    values = trained_table("modulo-8")
    assert periodic_share(values, 8) > 0.5 > 2 * periodic_share(trained_table("bag"), 8)
    rotations = calibration.answered(values, Sequence(len(values)), 0)["rotations"]
    assert rotations.yes
    periods = np.array([line["period"] for line in rotations.value])
    # Harmonics of 8 positions, each within a tenth of a bin of the spectrum.
    bins = len(values) / periods
    np.testing.assert_allclose(bins / 8, np.round(bins / 8), atol=0.1 / 8)


def test_parity_task_alternates_and_halves_separate_in_the_middle() -> None:
    parity, halves = trained_table("parity"), trained_table("halves")
    is_odd = np.arange(len(parity)) % 2
    is_second = np.arange(len(halves)) >= len(halves) // 2
    for values, is_member in ((parity, is_odd), (halves, is_second)):
        component = np.linalg.svd(values - values.mean(axis=0))[0][:, 0] > 0
        assert (component == is_member).all() or (component != is_member).all()


def test_rows_that_no_training_step_saw_stay_as_they_were() -> None:
    deviations = trained_table("first-forty").std(axis=1)
    # The deviation of 32 normal values errs by an eighth.
    assert deviations[N_SEEN_ROWS:].max() < 1.6 * INITIAL_SD
    assert deviations[:N_SEEN_ROWS].min() > 1.6 * INITIAL_SD
    text_norms = np.linalg.norm(trained_table("markov-text"), axis=1)
    assert text_norms[-1] < 0.5 * text_norms[:-1].min()


def test_trained_table_is_asked_about_in_its_own_size_only() -> None:
    process = calibration.TRAINED["first-forty"]
    assert process.sizes == (calibration.TRAINED_SIZE,)
    counts = calibration.measure(
        "first-forty", process, calibration.TRAINED_SIZE, 1, seed=0
    )
    assert counts["tables"] == 1
    assert counts["answers"]["seams"] == [1, 0, 0]


def test_page_marks_a_false_yes_and_a_false_no_and_counts_them() -> None:
    size = "x".join(map(str, calibration.TRAINED_SIZE))
    answers = {question: [0, 0, 1] for question in calibration.COLUMNS[False]}
    counts = {name: {size: {"answers": dict(answers)}} for name in calibration.TRAINED}
    counts["untrained"][size]["answers"]["order"] = [1, 0, 0]
    counts["halves"][size]["answers"]["seams"] = [0, 1, 0]
    counts["modulo-8"][size]["answers"]["rotations"] = [1, 0, 0]
    text = calibration.trained_answers(counts)
    assert text.startswith("False answers (bold): 2 of the ")
    assert text.count("**yes**") == text.count("**no**") == 1
