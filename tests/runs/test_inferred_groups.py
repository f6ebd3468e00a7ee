"""What a log implies about groups that it does not count."""

import pytest

from grpodoctor.runs.chart import Chart
from grpodoctor.runs.inferred_groups import (
    INFERRED_ALL_CORRECT,
    INFERRED_ALL_INCORRECT,
    INFERRED_ZERO_VARIANCE,
    ZERO_VARIANCE,
    inferred_group_rates,
)
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import Max, Mean, Min, NotApplicable, Reading


@pytest.mark.parametrize(
    ("numbers", "share"),
    [
        ({"reward/max": -1.0, "reward/min": -1.0}, 1.0),
        ({"reward/max": 1.0, "reward/min": -1.0}, 0.0),
        ({"advantage/max": 0.0, "advantage/min": 0.0}, 1.0),
        ({"advantage/max": 1e-5, "advantage/min": -1e-5}, 1.0),
        ({"advantage/max": 0.7, "advantage/min": 0.7}, 0.0),
        ({"advantage/abs_max": 0.0}, 1.0),
        ({"groups/reward_std": 0.0}, 1.0),
        ({"reward/std": 0.2}, 0.0),
        ({"groups/effective_rate": 0.3}, 0.7),
        ({"advantage/zero_rate": 0.4}, 0.4),
        ({"groups/all_correct_rate": 0.2, "groups/all_incorrect_rate": 0.5}, 0.7),
    ],
)
def test_equal_rewards_are_inferred(numbers: dict[str, float], share: float) -> None:
    inferred = inferred_group_rates(numbers, {}, "verl")
    assert inferred[INFERRED_ZERO_VARIANCE] == pytest.approx(share)


def test_a_success_rate_bounds_the_groups_with_a_success() -> None:
    """At .4 % and eight responses per prompt, at most 3.2 % of the groups have a success."""
    starved = inferred_group_rates({"accuracy/train": 0.004}, {"group_size": 8}, "verl")
    assert starved[INFERRED_ALL_INCORRECT] == pytest.approx(1 - 8 * 0.004)
    assert starved[INFERRED_ALL_CORRECT] == 0.0
    solved = inferred_group_rates({"accuracy/train": 0.99, "groups/size": 4.0}, {}, "verl")
    assert solved[INFERRED_ALL_CORRECT] == pytest.approx(1 - 4 * 0.01)
    assert inferred_group_rates({"accuracy/train": 0.004}, {}, "verl") == {}


def test_pass_at_k_counts_only_where_it_is_computed_from_training_groups() -> None:
    numbers = {"pass_at_k/2": 0.1, "pass_at_k/8": 0.25}
    assert inferred_group_rates(numbers, {}, "slime")[INFERRED_ALL_INCORRECT] == 0.75
    assert inferred_group_rates(numbers, {}, "grpodoctor") == {}


def test_the_chart_infers_nothing_where_groups_are_counted_or_do_not_apply() -> None:
    flat: dict[str, Reading] = {"reward/max": Max(1.0), "reward/min": Min(1.0)}
    chart = Chart()
    chart.observe(StepRecord(0, flat))
    assert chart.is_fresh(INFERRED_ZERO_VARIANCE)
    for counted in (Mean.of([0.5]), NotApplicable("one response per prompt")):
        chart.observe(StepRecord(chart.step + 1, {**flat, ZERO_VARIANCE: counted}))
        assert not chart.is_fresh(INFERRED_ZERO_VARIANCE)
    assert metric_of(INFERRED_ZERO_VARIANCE) is metric_of(ZERO_VARIANCE)
