from __future__ import annotations

from functools import partial

import pytest

from grpodoctor.vocabulary.values import Mean, Rate
from tests.rules.scenario import Curve, Patient, altered, every, noisy, ramp, steps, successful
from tests.samples import sampled

REWARD, HELDOUT = "reward/mean", "accuracy/heldout"

run = partial(altered, count=120)


def test_a_hacked_verifier_is_seen_by_the_held_out_figures() -> None:
    """The reward rises to .7 like a healthy one while true accuracy goes from .57 to .17."""
    finding = run({HELDOUT: every(10, noisy(ramp(0.57, 0.17, 40, begin=30), 0.03, 11))})
    assert finding.finding("REW003").severity == "critical"
    assert finding.finding("REW003").remedies[0] == "recheck-reward"


def test_a_held_out_drop_is_dated_where_the_evaluations_fell() -> None:
    """The levels of three evaluations show it thirty steps later."""
    shared = noisy(0.65, 0.03, 5)
    curve = every(10, lambda step: shared(step) if step <= 60 else 0.1)
    finding = run({HELDOUT: curve}, count=120).finding("REW003")
    assert (finding.severity, finding.onset_step) == ("critical", 70)


def test_over_fitting_is_a_warning() -> None:
    curve = every(5, noisy(ramp(0.7, 0.5, 60, begin=40), 0.02, 12))
    assert run({HELDOUT: curve}).finding("REW003").severity == "warning"


def test_when_training_falls_too_it_is_another_disease() -> None:
    curves = {
        **successful(noisy(ramp(0.6, 0.1, 30, begin=50), 0.05, 13)),
        HELDOUT: every(5, noisy(ramp(0.6, 0.1, 30, begin=50), 0.03, 14)),
    }
    patient = run(curves)
    assert patient.findings("REW003") == []
    assert patient.finding("REW002").severity == "critical"


@pytest.mark.parametrize("seed", sampled(range(10), 3))
def test_the_noise_of_small_evaluations_is_no_fall(seed: int) -> None:
    flat = every(2, noisy(0.7, 0.041, seed))  # the binomial error of 128 prompts
    assert run({HELDOUT: flat}, count=400).findings("REW003") == []


@pytest.mark.parametrize(
    ("evaluations", "is_found"),
    [
        ((0.215, 0.085, 0.065, 0.035), True),  # at least 200 responses
        ((0.2, 0.1, 0.067, 0.033), False),  # 6, 3, 2 and 1 of 30
    ],
)
def test_rounded_evaluations_imply_a_number_of_responses(
    evaluations: tuple[float, ...], is_found: bool
) -> None:
    shares = dict(zip((20, 40, 60, 80), evaluations, strict=True))
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.26, 0.99, 25), 0.02, 1),
        "reward/heldout": shares.get,
    }
    assert bool(Patient(steps(90, curves)).findings("REW003")) is is_found


def evaluated(correct: list[int], count: int = 664) -> Patient:
    """Few evaluations on the same prompts, with their exact shares."""
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.35, 0.42, 40), 0.05, 1),
        HELDOUT: lambda step: Mean(correct[step // 10] / count, 1) if step % 10 == 0 else None,
    }
    return Patient(steps(10 * len(correct), curves))


def test_few_evaluations_that_only_fall_are_a_warning() -> None:
    """A public run: 376, 373, 361 and 338 of 664 while the reward held."""
    finding = evaluated([376, 373, 361, 338]).finding("REW003")
    assert (finding.severity, finding.onset_step) == ("warning", 10)
    assert "4 evaluations" in finding.summary


@pytest.mark.parametrize(
    "correct", [[376, 373, 361, 360], [376, 373, 378, 338], [376, 350, 338], [40, 38, 37, 34]]
)
def test_few_evaluations_that_fall_within_their_error_are_quiet(correct: list[int]) -> None:
    assert evaluated(correct, 64 if correct[0] == 40 else 664).findings("REW003") == []


def graded(values: list[float], reward: Curve) -> Patient:
    """Few evaluations of a measure whose number of responses is unknown."""
    curves: dict[str, Curve] = {
        REWARD: reward,
        "reward/heldout": lambda step: values[step // 10] if step % 10 == 0 else None,
    }
    return Patient(steps(10 * len(values), curves))


@pytest.mark.parametrize(
    ("moved", "is_found"),
    [({}, False), ({"entropy/mean": ramp(0.5, 0.3, 30)}, True), ({"length/mean": None}, True)],
)
def test_a_fall_within_the_noise_of_a_policy_that_stands_still(
    moved: dict[str, Curve | None], is_found: bool
) -> None:
    """Two planted runs without effective updates: 34, 30, 27 and 21 of 64."""
    correct = [34, 30, 27, 21]
    curves: dict[str, Curve | None] = {
        REWARD: noisy(0.44, 0.06, 1),
        "entropy/mean": noisy(0.5, 0.02, 2),
        "length/mean": noisy(9.5, 0.5, 3),
        HELDOUT: lambda step: Mean(correct[step // 10] / 64, 1) if step % 10 == 0 else None,
        **moved,
    }
    patient = Patient(steps(31, {name: each for name, each in curves.items() if each}))
    assert bool(patient.findings("REW003")) is is_found


FELL = [0.0232, 0.0222, 0.0203, 0.02026, 0.0204, 0.0202]


def test_evaluations_that_fell_once_and_stay_low_are_noted() -> None:
    """A public run was called healthy: ndcg .0232 to .0202 while the reward tripled."""
    rising = noisy(ramp(0.13, 0.4, 60), 0.03, 1)
    finding = graded(FELL, rising).finding("REW003")
    assert (finding.severity, finding.onset_step) == ("info", 20)
    assert graded([*FELL, 0.0203, 0.0204], rising).finding("REW003").severity == "warning"
    for values in (
        [0.0232, 0.0205, 0.0224, 0.0203, 0.0204, 0.0202],  # scattered
        [0.0232, 0.0222, 0.0203, 0.0229, 0.0204, 0.0202],  # came back
        FELL[:5],
        [each + 0.1 for each in FELL],  # two in a hundred
        FELL[::-1],
    ):
        assert graded(values, rising).findings("REW003") == []
    assert graded(FELL, noisy(0.3, 0.03, 1)).findings("REW003") == []


def counted(correct: list[int], count: int = 256) -> Patient:
    """Evaluations that log how many responses they judged."""
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.05, 0.15, 40), 0.02, 1),
        HELDOUT: lambda step: Rate(correct[step // 10], count) if step % 10 == 0 else None,
    }
    return Patient(steps(10 * len(correct), curves))


def test_a_first_evaluation_above_all_later_ones_is_a_warning() -> None:
    finding = counted([148, 88, 92, 104, 104, 88, 96]).finding("REW003")
    assert (finding.severity, finding.onset_step) == ("warning", 10)
    assert "6 evaluations since" in finding.summary
    assert counted([148, 120, 132, 136, 120, 144, 124]).findings("REW003") == []
    assert counted([148, 88, 92, 152, 104, 88, 96]).findings("REW003") == []


def test_a_lucky_first_evaluation_of_an_unchanged_policy_is_quiet() -> None:
    """A planted run with a learning rate of 0: 37 of 64, then 20 to 28."""
    assert counted([37, 22, 20, 25, 26, 28, 26], count=64).findings("REW003") == []
