"""Routing on two sides: definitions, missing experts, and the effect of flips on the gap."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from grpodoctor.measure.experts import churn_readings
from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.comparison.experts import ExpertTally, compare_experts, rank_correlation
from grpodoctor.probe.contract import Shard
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import NotApplicable, scalar
from tests.probe.pairs import Both, random_responses, shard, with_experts, write

LAYERS, EXPERTS, SLOTS = 4, 8, 2


def routed(seed: int, count: int = 60, *, flips: bool = True) -> list[Both]:
    """A router with noise: small margins flip, and flipped tokens differ more."""
    rng = np.random.default_rng(seed)
    responses = []
    for both in random_responses(count, seed, gap=0.01):
        tokens = len(both.sampler)
        logits = rng.normal(0, 1, (tokens, LAYERS, EXPERTS))
        other = logits + (rng.normal(0, 0.03, logits.shape) if flips else 0)
        best = -np.sort(-other, axis=-1)
        routes = [np.argsort(-each, axis=-1)[..., :SLOTS] for each in (logits, other)]
        changed = (np.sort(routes[0]) != np.sort(routes[1])).any(axis=-1).sum(axis=1)
        gapped = replace(both, learner=both.learner + 0.2 * changed)
        responses.append(with_experts(gapped, *routes, best[..., SLOTS - 1] - best[..., SLOTS]))
    return responses


def joined(responses: list[Both], side: str, name: str) -> np.ndarray:
    return np.concatenate([getattr(each, f"{side}_extras")[name] for each in responses])


def test_flips_match_their_definition(tmp_path: Path) -> None:
    responses = routed(1)
    found = compare(*write(tmp_path, responses, 17))
    before, after = (joined(responses, side, "experts") for side in ("sampler", "learner"))
    expected = churn_readings(before, after, between="engine")
    assert expected.items() <= found.readings.items()
    assert all(metric_of(name) for name in found.readings)
    experts = found.experts
    assert experts is not None
    assert experts.coverage == 1
    assert experts.tokens == found.tokens
    assert experts.churn == scalar(expected["experts/churn_engine"])
    assert experts.any_flip_rate == scalar(expected["experts/tokens_with_any_flip"])
    flipped = (np.sort(before) != np.sort(after)).any(axis=-1)
    assert experts.agreement == pytest.approx(1 - flipped.mean())
    for layer, each in enumerate(experts.layers):
        assert each.layer == layer
        assert each.flipped_rate == pytest.approx(flipped[:, layer].mean())
        assert each.overlap == pytest.approx(
            1 - (scalar(expected[f"experts/churn_engine/layer/{layer}"]) or 0)
        )


def test_small_margins_flip_and_flips_cause_the_gap(tmp_path: Path) -> None:
    responses = routed(2)
    experts = compare(*write(tmp_path, responses)).experts
    assert experts is not None
    for layer in experts.layers:
        assert layer.margin_flipped is not None
        assert layer.margin_kept is not None
        assert layer.margin_flipped < layer.margin_kept / 5
    rates = [rate for _, _, rate, pairs in experts.by_margin if pairs > 50]
    assert rates[0] > 0.3
    assert rates[-1] == 0
    assert sum(pairs for *_, pairs in experts.by_margin) == LAYERS * experts.tokens
    assert (experts.logprob_diff_flipped or 0) > 10 * (experts.logprob_diff_kept or 1)
    before, after = (joined(responses, side, "experts") for side in ("sampler", "learner"))
    flips = (np.sort(before) != np.sort(after)).any(axis=-1).sum(axis=1)
    gaps = np.abs(np.concatenate([r.learner - r.sampler for r in responses]))
    assert experts.flips_to_gap == pytest.approx(stats.spearmanr(flips, gaps).statistic, abs=0.01)


def test_another_order_of_the_ids_is_no_flip(tmp_path: Path) -> None:
    responses = [
        with_experts(
            each, each.sampler_extras["experts"], each.sampler_extras["experts"][..., ::-1]
        )  # type: ignore[arg-type]  # arrays of ids
        for each in routed(3, flips=False)
    ]
    experts = compare(*write(tmp_path, responses)).experts
    assert experts is not None
    assert (experts.churn, experts.any_flip_rate, experts.agreement) == (0, 0, 1)
    assert experts.flips_to_gap is None
    assert experts.logprob_diff_flipped is None
    assert experts.by_margin == ()
    assert experts.layers[0].margin_kept is None


def test_missing_experts_lower_only_the_coverage(tmp_path: Path) -> None:
    responses = routed(4)
    whole = compare(*write(tmp_path / "whole", responses)).experts
    lost = 0
    for each in responses[::2]:
        each.sampler_extras["experts"][0] = -1
        lost += 1
    partly = compare(*write(tmp_path / "part", responses)).experts
    assert whole is not None
    assert partly is not None
    assert partly.coverage == pytest.approx(1 - lost / whole.tokens)
    assert partly.churn == pytest.approx(whole.churn, rel=0.1)


def test_layers_without_a_router_keep_their_numbers(tmp_path: Path) -> None:
    responses = routed(5)
    for each in responses:
        each.sampler_extras["experts"][:, 1] = -1
    found = compare(*write(tmp_path, responses))
    assert found.experts is not None
    assert [each.layer for each in found.experts.layers] == [0, 2, 3]
    assert found.experts.coverage == 1
    assert "experts/churn_engine/layer/3" in found.readings
    assert "experts/churn_engine/layer/1" not in found.readings


def test_missing_experts_and_experts_of_other_layers(tmp_path: Path) -> None:
    silent = compare(*write(tmp_path / "silent", random_responses(8, 1)))
    assert silent.experts is None
    assert not any(name.startswith("experts/") for name in silent.readings)
    unlike = routed(6, 8)
    for each in unlike:
        each.learner_extras["experts"] = each.learner_extras["experts"][:, :2]
        each.learner_extras["router_margin"] = each.learner_extras["router_margin"][:, :2]
    found = compare(*write(tmp_path / "unlike", unlike))
    assert found.experts is None
    why = found.readings["experts/churn_engine"]
    assert isinstance(why, NotApplicable)
    assert "4 layers with 2 experts and 2 layers" in why.why
    nothing = routed(7, 8)
    for each in nothing:
        each.sampler_extras["experts"][:] = -1
    found = compare(*write(tmp_path / "nothing", nothing))
    assert found.experts is None
    assert isinstance(found.readings["experts/churn_engine"], NotApplicable)


def test_experts_that_are_all_missing_are_absent(tmp_path: Path) -> None:
    none = [
        with_experts(each, *(np.zeros((len(each.sampler), LAYERS, 0), int) for _ in range(2)))
        for each in random_responses(8, 1)
    ]
    found = compare(*write(tmp_path, none))
    assert found.experts is None
    assert not any(name.startswith("experts/") for name in found.readings)


def test_two_checkpoints_churn(tmp_path: Path) -> None:
    responses = routed(8)
    found = compare_experts(*write(tmp_path, responses))
    before, after = (joined(responses, side, "experts") for side in ("sampler", "learner"))
    expected = churn_readings(before, after, between="update")
    assert expected.items() <= found.readings.items()
    assert "experts/tokens_with_any_flip" not in found.readings
    assert found.comparison is not None
    assert found.comparison.churn == scalar(expected["experts/churn_update"])


def test_a_replay_is_judged_by_coverage_and_agreement(tmp_path: Path) -> None:
    """A learner that is held to the sampler's experts: both are 1, or the replay does not work."""
    obeyed = routed(9, flips=False)
    whole = compare(*write(tmp_path / "obeyed", obeyed)).experts
    assert whole is not None
    assert (whole.coverage, whole.agreement) == (1, 1)
    for each in obeyed[:6]:
        each.sampler_extras["experts"][0] = -1
    lossy = compare(*write(tmp_path / "lossy", obeyed)).experts
    assert lossy is not None
    assert lossy.coverage == pytest.approx(1 - 6 / whole.tokens)
    assert lossy.agreement == 1
    ignored = compare(*write(tmp_path / "ignored", routed(10))).experts
    assert ignored is not None
    assert 0.5 < (ignored.agreement or 0) < 1


def test_memory_does_not_grow_with_the_number_of_tokens() -> None:
    def peak(shards: int) -> int:
        tracemalloc.start()
        try:
            tally = ExpertTally()
            for left, right in pairs(shards):
                tally.add(left, right)
            assert tally.finish().comparison is not None
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def pairs(shards: int) -> Iterator[tuple[Shard, Shard]]:
        for number in range(shards):
            responses = routed(number, 32)
            yield tuple(  # type: ignore[misc]  # two of them
                replace(
                    shard(responses, side),
                    experts_NLK=joined(responses, side, "experts").astype(np.int16),
                )
                for side in ("sampler", "learner")
            )

    assert peak(40) < 1.3 * peak(4)


@pytest.mark.parametrize("seed", range(5))
def test_ranks_from_counts_are_spearmans(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = rng.integers(0, 5, 400)
    other = rng.integers(0, 9, 400) + one * (seed - 2)
    joint = np.zeros((5, 40), int)
    np.add.at(joint, (one, other + 10), 1)
    assert rank_correlation(joint) == pytest.approx(stats.spearmanr(one, other).statistic)
