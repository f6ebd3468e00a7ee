"""The calls of `Doctor` that a report names for missing metrics."""

from grpodoctor.frameworks.logging_advice import how_to_log, setting_that_logs
from grpodoctor.frameworks.torch_loop import NAME, call_that_gives


def test_a_missing_metric_names_the_call_that_gives_it() -> None:
    sampler = "pass sampler_logprobs to step.rollouts, and call step.logits"
    assert setting_that_logs(NAME, ["mismatch/prob_diff_mean"]) == sampler
    assert how_to_log(NAME, ["mismatch/prob_diff_mean"]) == sampler
    assert setting_that_logs(NAME, ["mismatch/nll_gap"]) == "call step.logits"
    metrics = ["experts/churn_update", "clip/low_rate"]
    assert setting_that_logs(NAME, metrics) == "pass logprobs and the clip to step.update"


def test_a_metric_that_no_call_gives_has_no_advice() -> None:
    assert call_that_gives("experts/churn_update") is None
    assert setting_that_logs(NAME, ["experts/churn_update"]) is None
    assert how_to_log(NAME, ["experts/churn_update"]) == ""
