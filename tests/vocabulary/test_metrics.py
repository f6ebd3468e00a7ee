import re
from collections import Counter

import pytest

from grpodoctor.vocabulary.metrics import METRICS, metric_of

CANONICAL = """
reward/{mean,std,heldout} reward/component/<name>/{mean,std} accuracy/{train,heldout} pass_at_k/<k>
length/{mean,p95,max,correct,incorrect,truncated_rate,terminated_mean}
entropy/{mean,correct,incorrect,p10,fork_tokens}
groups/{zero_variance_rate,all_correct_rate,all_incorrect_rate,cancelled_rate,duplicate_rate}
groups/{effective_rate,reward_std}
clip/{low_rate,high_rate,dual_rate,fork_token_rate} ratio/{mean,max,sequence_max}
updates_per_batch kl/reference/{k1,k2,k3} kl/old_policy/{k1,k2,k3}
mismatch/{nll_gap,first_ratio_off,prob_diff_mean,prob_diff_max,logprob_diff_mean,logprob_diff_max,bias,kl_k1,kl_k3}
mismatch/{chi2,ess,pearson,nonfinite}
experts/{churn_update,churn_engine,tokens_with_any_flip,load_max_over_mean,router_entropy}
experts/{router_margin,replay_coverage,replay_agreement}
advantage/{abs_max,positive_rate,zero_rate}
optimizer/{loss,grad_norm,learning_rate,update_norm_ratio,changed_weight_rate,noise_scale}
staleness/{mean,max} text/{unique_ngram_rate,repetition_rate,reflection_rate,compression_ratio}
time/{step,rollout,learn,record}
"""


def _expand(pattern: str) -> list[str]:
    braces = re.search(r"\{([^}]*)\}", pattern)
    if not braces:
        return [pattern]
    return [pattern.replace(braces[0], each) for each in braces[1].split(",")]


@pytest.mark.parametrize("name", [name for part in CANONICAL.split() for name in _expand(part)])
def test_every_canonical_name_has_a_row(name):
    assert metric_of(name.replace("<name>", "format").replace("<k>", "8")) is not None


def test_no_name_has_two_meanings():
    repeated = [name for name, count in Counter(m.name for m in METRICS).items() if count > 1]
    assert repeated == []


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_row_is_complete(metric):
    assert re.fullmatch(r"[a-z0-9_]+(/([a-z0-9_]+|<[a-z]+>))*", metric.name)
    assert metric.unit
    assert metric.over
    assert metric.summary.endswith(".")
    assert metric.low < metric.high
    if metric.kind == "rate":
        assert (metric.unit, metric.low, metric.high) == ("share", 0, 1)
    if metric.name.startswith(("kl/", "mismatch/", "clip/", "ratio/", "experts/", "entropy/")):
        assert metric.policies


@pytest.mark.parametrize(
    ("qualified", "base"),
    [
        ("mismatch/prob_diff_max/worst_sequence", "mismatch/prob_diff_max"),
        ("mismatch/bias/position/0-15", "mismatch/bias"),
        ("mismatch/bias/position/4096-", "mismatch/bias"),
        ("mismatch/logprob_diff_mean/probability/0.99-1", "mismatch/logprob_diff_mean"),
        ("mismatch/kl_k3/engine/tp2-bf16", "mismatch/kl_k3"),
        ("experts/churn_update/layer/31", "experts/churn_update"),
        ("experts/churn_engine/layer/3/worst_sequence", "experts/churn_engine"),
        ("reward/component/any thing <b>/mean", "reward/component/<name>/mean"),
        ("pass_at_k/16", "pass_at_k/<k>"),
    ],
)
def test_qualifiers_and_templates_resolve_to_their_row(qualified, base):
    metric = metric_of(qualified)
    assert metric is not None
    assert metric.name == base


@pytest.mark.parametrize(
    "name",
    ["", "reward", "reward/", "reward/Mean", "reward/component/a/b/mean", "clip/low_rate/layer/x",
     "mismatch/bias/position/", "entropy/mean/", "/entropy/mean", "pg_clipfrac"],
)  # fmt: skip
def test_other_names_are_unknown(name):
    assert metric_of(name) is None
