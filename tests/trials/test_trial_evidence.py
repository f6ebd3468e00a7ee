"""Statistics and evidence from made-up results whose answer is known."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from grpodoctor.trials.evidence.collected_evidence import collected
from grpodoctor.trials.evidence.evidence_page import as_json, markdown, summary
from grpodoctor.trials.evidence.statistics import Share, holm, paired_difference
from grpodoctor.trials.results import Alarm, Evaluation, RunResult, RunSpec, failed
from grpodoctor.trials.trial import CONTROL, DISEASE, Arm, Treated, Trial

TRIAL = Trial(
    name="made-up",
    question="Does it work?",
    disease=Arm(settings=("optimizer.learning_rate=1e-2",)),
    rules=("CLP001",),
    remedies=(Treated(remedy="lower-learning-rate"),),
    onset=3,
)
REMEDY = "lower-learning-rate"


def run(arm, seed, values, *alarms, passes=100):
    spec = RunSpec(TRIAL.name, arm, seed, 60, f"{arm}-{seed}")
    evaluations = tuple(
        Evaluation(10 * place, value, passes * place) for place, value in enumerate(values, 1)
    )
    return RunResult(
        spec, "done", evaluations=evaluations, alarms=alarms, levels={"clip/low_rate": 1}
    )


def series(seeds=(1, 2, 3), treated=(0.5, 0.6, 0.7), cost=100):
    loud, quiet = Alarm("CLP001", "critical", 8, 4), Alarm("CLP001", "info", 2, 1)
    other = Alarm("KLD001", "warning", 9, 9)
    return [
        *(run(CONTROL, seed, [0.8] * 4, quiet) for seed in seeds),
        *(run(DISEASE, seed, [0.9, 0.2, 0.2, 0.2], loud, other) for seed in seeds),
        *(
            run(REMEDY, seed, [0.1] + [value] * 3, passes=cost)
            for seed, value in zip(seeds, treated, strict=True)
        ),
    ]


def evidence_from(results):
    """The evidence of the trial, alone and collected."""
    evidence = collected([TRIAL], results)
    (found,) = evidence.trials
    return found, evidence


def test_the_evidence_of_a_trial():
    found, _ = evidence_from(series())
    (rule,), (remedy,) = found.rules, found.remedies
    assert (rule.fired, rule.false_alarms) == (Share(3, 3), Share(0, 3))
    assert rule.delays == (5, 5, 5)
    assert found.others == (("KLD001", 3),)
    assert remedy.control == pytest.approx(0.8)
    assert remedy.untreated == pytest.approx(0.2)
    assert remedy.treated == pytest.approx(0.6)
    expected = stats.ttest_1samp([0.3, 0.4, 0.5], 0)
    interval = expected.confidence_interval(0.95)
    assert (remedy.gain.low, remedy.gain.high) == pytest.approx(interval)
    assert remedy.gain.p == remedy.adjusted_p == pytest.approx(expected.pvalue)
    assert remedy.helps
    assert not remedy.harms


def test_a_remedy_that_costs_twice_as_much_is_compared_within_half_its_run():
    found, _ = evidence_from(series(cost=200))
    (remedy,) = found.remedies
    # The treated runs have two evaluations within the cost of the untreated ones: 0.1 and theirs.
    expected = [(0.1 + value) / 2 - 0.2 for value in (0.5, 0.6, 0.7)]
    assert remedy.matched_gain.mean == pytest.approx(sum(expected) / 3)
    assert remedy.gain.mean == pytest.approx(0.4)


def test_one_seed_gives_no_interval_and_says_so():
    found, evidence = evidence_from(series((1,), (0.5,)))
    (remedy,) = found.remedies
    assert remedy.gain.mean == pytest.approx(0.3)
    assert (remedy.gain.low, remedy.gain.high, remedy.adjusted_p) == (None, None, None)
    assert not remedy.helps
    assert "With one seed there are no intervals: repeat with --seeds 2 or more." in summary(
        evidence
    )


def test_a_run_without_a_result_is_named_and_left_out():
    results = series()
    results[-1] = failed(results[-1].spec, "its process died (ended by SIGKILL)")
    found, evidence = evidence_from(results)
    assert found.failed == (
        "made-up, lower-learning-rate, seed 3: its process died (ended by SIGKILL)",
    )
    assert found.remedies[0].gain.pairs == 2
    assert any(line.startswith("Incomplete: 1 run ") for line in summary(evidence))
    assert "No result: made-up, lower-learning-rate, seed 3" in markdown(evidence)


def test_means_are_over_the_seeds_of_the_pairs():
    more = [run(CONTROL, 4, [0.1]), run(DISEASE, 4, [0.9])]
    found, _ = evidence_from(series() + more)
    (remedy,) = found.remedies
    assert (remedy.control, remedy.untreated) == pytest.approx((0.8, 0.2))
    assert remedy.treated - remedy.untreated == pytest.approx(remedy.gain.mean)
    assert found.rules[0].fired == Share(3, 4)


def test_a_run_that_diverged_is_data():
    diverged = zip((1, 2, 3), (0.0, 0.0, 0.01), strict=True)
    results = [*series()[:6], *(run(REMEDY, seed, [0.5] + [end] * 3) for seed, end in diverged)]
    found, _ = evidence_from(results)
    assert found.remedies[0].treated == pytest.approx(0.01 / 3)
    assert found.remedies[0].harms


def test_a_rule_that_only_notes_is_counted_by_its_notes():
    note = Alarm("CLP001", "info", 4, 3)
    runs = [run(DISEASE, 1, [0.5], note), run(DISEASE, 2, [0.5]), run(CONTROL, 1, [0.5], note)]
    found, _ = evidence_from(runs)
    (rule,) = found.rules
    assert (rule.severity, rule.fired, rule.false_alarms) == ("info", Share(1, 2), Share(1, 1))
    assert rule.delays == (1,)


def test_the_page_has_a_row_for_each_rule_and_remedy():
    _, evidence = evidence_from(series())
    page = markdown(evidence)
    assert "| CLP001 | critical | 3/3 | 0/3 | 5 |" in page
    assert "| lower-learning-rate | 3 | 0.800 | 0.200 | 0.600 | +0.400 (+0.152 to +0.648) |" in page
    (data,) = as_json(evidence)["trials"]
    assert data["remedies"][0]["effect"] == "helps"
    assert data["rules"][0]["interval"] == pytest.approx((0.292, 1.0), abs=1e-3)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_monotone_and_never_below_the_plain_p_value(values):
    adjusted = holm(values)
    order = sorted(range(len(values)), key=values.__getitem__)
    assert all(one >= other for one, other in zip(adjusted, values, strict=True))
    ranked = [adjusted[index] for index in order]
    assert ranked == sorted(ranked)
    assert ranked[0] == min(1.0, len(values) * min(values))


def test_holm_on_a_worked_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_differences_without_spread_have_no_interval():
    same = paired_difference([0.5, 0.5], [0.25, 0.25])
    assert (same.low, same.mean, same.high, same.p) == (None, 0.25, None, None)
    assert paired_difference([], []) is None


def test_the_interval_covers_the_truth_in_95_of_100_trials():
    """With the seed's own effect, which pairing removes, and five seeds."""
    import numpy as np

    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(2000):
        seed_effect = rng.normal(0, 1, 5)
        untreated = seed_effect + rng.normal(0, 0.1, 5)
        treated = seed_effect + 0.05 + rng.normal(0, 0.1, 5)
        found = paired_difference(treated.tolist(), untreated.tolist())
        covered += found.low <= 0.05 <= found.high
    # Three standard errors of a share of 0.95 among 2000.
    assert abs(covered / 2000 - 0.95) < 3 * math.sqrt(0.95 * 0.05 / 2000)
