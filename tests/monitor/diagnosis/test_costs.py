import math

import pytest

from grpodoctor.monitor.diagnosis.costs import MOST_POINTS, CostTracker, gpus_of
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate


def record(step, share=None, seconds=None, time=0.0, **values):
    readings = dict(values)
    if share is not None:
        readings["groups/zero_variance_rate"] = Rate(round(100 * share), 100)
    if seconds is not None:
        readings["time/step"] = Mean.of([seconds])
    return StepRecord(step, readings, time=time)


def ledger(records):
    costs = CostTracker()
    for each in records:
        costs.observe(each)
    return costs


def test_the_cost_counts_from_the_onset():
    costs = ledger(record(step, 0.1 if step < 20 else 0.9, 36.0) for step in range(30))
    cost = costs.cost(20, gpus=8)
    assert cost.steps == 10
    assert cost.rollouts_without_gradient == pytest.approx(0.9)
    assert cost.hours == pytest.approx(0.1)
    assert cost.gpu_hours == pytest.approx(0.8)
    assert costs.cost(10, 19).rollouts_without_gradient == pytest.approx(0.1)
    assert costs.cost(10, 19).steps == 10


def test_what_is_not_logged_has_no_cost():
    cost = ledger(record(step) for step in range(30)).cost(10)
    assert (cost.steps, cost.rollouts_without_gradient, cost.hours) == (20, None, None)
    critic = {"groups/zero_variance_rate": NotApplicable("critic")}
    assert ledger([StepRecord(0, critic)]).cost(0).rollouts_without_gradient is None


def test_the_share_follows_from_the_effective_rate():
    costs = ledger(StepRecord(step, {"groups/effective_rate": Rate(1, 4)}) for step in range(3))
    assert costs.cost(0).rollouts_without_gradient == pytest.approx(0.75)


def test_an_inferred_share_stands_in_for_one_that_is_not_logged():
    costs = CostTracker()
    for step in range(10):
        costs.observe(record(step, 0.2 if step < 5 else None), 1.0)
    assert costs.cost(0, 4).rollouts_without_gradient == pytest.approx(0.2)
    assert costs.cost(5).rollouts_without_gradient == pytest.approx(1.0)


def test_the_time_between_steps_stands_in_for_the_time_of_a_step():
    costs = ledger(record(step, time=1000.0 + 60 * step) for step in range(61))
    assert costs.cost(1).hours == pytest.approx(1.0)


def test_impossible_times_do_not_count():
    costs = ledger([record(0, seconds=1e308), record(1, seconds=36.0), record(2, seconds=-1.0)])
    assert costs.cost(0).hours == pytest.approx(0.01)


def test_a_run_that_goes_back_forgets_what_it_repeats():
    costs = ledger(
        [*(record(step, 1.0) for step in range(20)), *(record(step, 0.0) for step in range(10, 20))]
    )
    assert costs.cost(0).rollouts_without_gradient == pytest.approx(0.5)
    assert costs.cost(10).rollouts_without_gradient == pytest.approx(0.0)
    assert costs.cost(0).steps == 20


def test_a_long_run_costs_no_memory():
    costs = ledger(record(step, float(step >= 50_000)) for step in range(100_000))
    assert len(costs._sums) < MOST_POINTS
    assert costs.cost(50_000).rollouts_without_gradient == pytest.approx(1.0, abs=2e-3)
    assert costs.cost(0).rollouts_without_gradient == pytest.approx(0.5, abs=2e-3)


def test_readings_that_are_no_shares_do_not_count():
    costs = ledger([StepRecord(0, {"groups/effective_rate": Mean.of([math.nan])})])
    assert costs.cost(0).rollouts_without_gradient is None


@pytest.mark.parametrize(
    ("settings", "gpus"),
    [
        ({"trainer.n_gpus_per_node": 8, "trainer.nnodes": 4}, 32),
        ({"cluster.gpus_per_node": 8}, 8),
        ({"actor.n_gpus_per_node": 8, "rollout.n_gpus_per_node": 4}, None),
        ({"trainer.n_gpus_per_node": "8"}, None),
        ({"learning_rate": 1e-6}, None),
    ],
)
def test_the_number_of_gpus_is_read_or_unknown(settings, gpus):
    assert gpus_of(settings) == gpus
