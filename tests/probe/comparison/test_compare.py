"""Two engines on the same tokens: definitions, streaming, bounds and intervals."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from grpodoctor.errors import EngineError
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.mismatch import mismatch_readings
from grpodoctor.probe.comparison.bootstrap import FIGURES
from grpodoctor.probe.comparison.compare import compare, compare_shards
from grpodoctor.probe.comparison.worst import SCATTER_TOKENS, WORST_PROMPTS, WORST_RESPONSES
from grpodoctor.probe.results.results import Comparison, Interval
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable, Rate, scalar
from tests.probe.pairs import Both, endless, random_responses, shard, write


def compared(tmp_path: Path, responses: list[Both], per_shard: int = 64) -> Comparison:
    return compare(*write(tmp_path / str(per_shard), responses, per_shard))


def as_batch(responses: list[Both]) -> RolloutBatch:
    """The same responses as a batch of a training run."""
    width = max(len(each.sampler) for each in responses)
    columns = {}
    for side in ("sampler", "learner"):
        columns[side] = np.zeros((len(responses), width), np.float32)
        for row, each in enumerate(responses):
            columns[side][row, : len(each.sampler)] = getattr(each, side)
    lengths = np.array([len(each.sampler) for each in responses])
    ids = [f"prompt-{each.prompt}/{each.sample}" for each in responses]
    return RolloutBatch(
        step=0,
        sequence_ids=ids,
        group_ids_B=np.array([each.prompt for each in responses]),
        prompt_ids=ids,
        prompts=ids,
        texts=ids,
        references=ids,
        tokens_BT=np.zeros((len(responses), width), int),
        mask_BT=np.arange(width) < lengths[:, None],
        rewards_B=np.zeros(len(responses)),
        truncated_B=np.zeros(len(responses), bool),
        learner_logprobs_BT=columns["learner"],
        sampler_logprobs_BT=columns["sampler"],
    )


@pytest.mark.parametrize("spoil", [None, -math.inf, math.nan, -1e4])
def test_a_shard_is_measured_like_a_batch_of_a_run(tmp_path: Path, spoil: float | None) -> None:
    responses = random_responses(60, 1, gap=0.3, longest=300)
    if spoil is not None:
        responses[7].learner[0] = spoil
    found = compared(tmp_path, responses)
    assert found.readings == mismatch_readings(as_batch(responses))
    assert (found.responses, found.tokens) == (60, sum(len(each.sampler) for each in responses))
    assert all(metric_of(name) for name in found.readings)


def test_the_division_into_shards_does_not_matter(tmp_path: Path) -> None:
    responses = random_responses(150, 2, gap=0.2, prompt_gap=0.3)
    whole, parts = (compared(tmp_path, responses, size) for size in (150, 7))
    unlike = {"mismatch/ess", "mismatch/pearson"}
    assert {k: v for k, v in whole.readings.items() if k not in unlike} == {
        k: v for k, v in parts.readings.items() if k not in unlike
    }
    for name in unlike:
        assert scalar(parts.readings[name]) == pytest.approx(scalar(whole.readings[name]))
    assert parts.worst == whole.worst
    assert parts.scatter == whole.scatter
    assert parts.quantiles == whole.quantiles
    assert parts.effects == pytest.approx(whole.effects)
    for mine, theirs in zip(parts.worst_prompts, whole.worst_prompts, strict=True):
        assert (mine.prompt, mine.responses) == (theirs.prompt, theirs.responses)
        assert mine.prob_diff_mean == pytest.approx(theirs.prob_diff_mean)
    for name, interval in whole.intervals.items():
        assert fit_facts(parts.intervals[name]) == pytest.approx(fit_facts(interval))


def fit_facts(interval: Interval) -> tuple[float, float, float]:
    return interval.value, interval.low, interval.high


def test_means_are_not_means_of_shard_means(tmp_path: Path) -> None:
    """Correlation and effective size of all tokens, not averages over shards of unlike gaps."""
    responses = [*random_responses(64, 3, gap=0.001), *random_responses(64, 4, gap=1.0)]
    found = compared(tmp_path, responses)
    sampler = np.concatenate([each.sampler for each in responses]).astype(np.float32).astype(float)
    learner = np.concatenate([each.learner for each in responses]).astype(np.float32).astype(float)
    weights = np.exp(learner - sampler)
    assert scalar(found.readings["mismatch/pearson"]) == pytest.approx(
        np.corrcoef(np.exp(sampler), np.exp(learner))[0, 1]
    )
    assert scalar(found.readings["mismatch/ess"]) == pytest.approx(
        weights.sum() ** 2 / (weights.size * (weights**2).sum())
    )


def test_bins_contain_the_right_tokens(tmp_path: Path) -> None:
    responses = random_responses(40, 5, longest=400)
    found = compared(tmp_path, responses)
    sampler = np.concatenate([each.sampler for each in responses]).astype(np.float32).astype(float)
    learner = np.concatenate([each.learner for each in responses]).astype(np.float32).astype(float)
    positions = np.concatenate([np.arange(len(each.sampler)) for each in responses])
    diffs = np.abs(np.exp(learner) - np.exp(sampler))
    for bins, keys in ((found.by_position, positions), (found.by_probability, np.exp(sampler))):
        assert sum(each.tokens for each in bins) == len(sampler)
        assert all(one.high <= other.low for one, other in pairwise(bins))
        for each in bins:
            inside = (keys >= each.low) & (keys < each.high)
            assert each.tokens == inside.sum()
            assert each.prob_diff_mean == pytest.approx(diffs[inside].mean())
            assert each.prob_diff_max == diffs[inside].max()
    assert len(found.by_position) > 10
    assert len(found.by_probability) > 15


def test_the_worst_responses_with_their_positions(tmp_path: Path) -> None:
    responses = random_responses(200, 6)
    for number, row in enumerate((150, 3, 77)):
        responses[row].learner[-1] = responses[row].sampler[-1] = -0.01
        responses[row].learner[-1] -= 5 + number
    folders = write(tmp_path, responses)
    found = compare(*folders, prompts=[f"{'x' * 900}prompt {n}" for n in range(25)])
    assert [(each.prompt, each.sample) for each in found.worst[:3]] == [
        divmod(row, 8) for row in (77, 3, 150)
    ]
    worst, row = found.worst[0], responses[77]
    assert worst.at == len(row.sampler) - 1
    assert worst.learner_logprobs == pytest.approx(row.learner)
    assert len(worst.ids) == len(worst.sampler_logprobs) == len(row.sampler)
    assert worst.prompt_text.endswith("prompt 9")
    assert len(worst.prompt_text) < 300
    reading = found.readings["mismatch/prob_diff_max/worst_sequence"]
    assert isinstance(reading, Max)
    assert reading.where == f"prompt-{worst.prompt}/{worst.sample}"
    assert len(found.worst) == WORST_RESPONSES
    assert found.worst_prompts[0].prob_diff_mean >= found.worst_prompts[-1].prob_diff_mean
    assert len(found.worst_prompts) == WORST_PROMPTS
    assert found.prompts == 25


def test_a_bad_prompt_is_the_worst_prompt(tmp_path: Path) -> None:
    responses = random_responses(64, 7)
    for each in responses[24:32]:
        each.learner -= 0.5
    gap = compared(tmp_path, responses, per_shard=28).worst_prompts[0]  # cut within the prompt
    assert (gap.prompt, gap.responses) == (3, 8)
    diffs = [
        np.abs(np.exp(each.learner) - np.exp(each.sampler)).mean() for each in responses[24:32]
    ]
    assert gap.prob_diff_mean == pytest.approx(np.mean(diffs), rel=1e-5)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_responses() -> None:
    def peak(shards: int) -> tuple[int, Comparison]:
        tracemalloc.start()
        try:
            found = compare_shards(endless(shards, make), "memory")
            return tracemalloc.get_traced_memory()[1], found
        finally:
            tracemalloc.stop()

    def make(number: int) -> list[Both]:
        responses = random_responses(512, number, longest=8)
        return [replace(each, prompt=each.prompt + 64 * number) for each in responses]

    few, _ = peak(6)
    many, found = peak(60)
    assert found.responses == 60 * 512
    assert found.prompts == 60 * 64
    assert many < 1.3 * few
    assert len(found.scatter) == SCATTER_TOKENS


def test_memory_depends_on_tokens_not_on_prompts() -> None:
    rng = np.random.default_rng(0)
    sampler = -rng.exponential(0.5, (10_000, 1))
    responses = [Both(own, own - 0.01, prompt) for prompt, own in enumerate(sampler)]
    pair = (shard(responses, "sampler"), shard(responses, "learner"))
    tracemalloc.start()
    try:
        found = compare_shards([pair], "memory")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.prompts == 10_000
    assert found.intervals
    assert peak < 48 << 20  # all weights of all prompts at once take twice that


def test_the_scatter_is_a_uniform_and_repeatable_selection() -> None:
    responses = random_responses(3000, 8, longest=16)
    pair = [(shard(responses, "sampler"), shard(responses, "learner"))]
    one, again, other = (compare_shards(pair, "", seed=seed).scatter for seed in (1, 1, 2))
    assert one == again != other
    sampler = np.concatenate([each.sampler for each in responses])
    assert np.mean([point[0] for point in one]) == pytest.approx(sampler.mean(), abs=0.05)


def test_intervals_are_those_of_a_bootstrap_by_prompt() -> None:
    """Against the textbook's: prompts drawn with replacement. Tokens are not independent."""
    responses = random_responses(640, 9, gap=0.01, prompt_gap=0.2)
    found = compare_shards([(shard(responses, "sampler"), shard(responses, "learner"))], "")
    means = np.array([np.abs(np.exp(r.learner) - np.exp(r.sampler)).mean() for r in responses])
    by_prompt = means.reshape(80, 8).mean(axis=1)
    rng = np.random.default_rng(0)
    drawn = by_prompt[rng.integers(0, 80, (4000, 80))].mean(axis=1)
    interval = found.intervals["mismatch/prob_diff_mean"]
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert interval.value == pytest.approx(means.mean(), rel=1e-5)
    assert interval.high - interval.low == pytest.approx(high - low, rel=0.2)
    as_if_independent = 2 * 1.96 * means.std() / math.sqrt(means.size)
    assert interval.high - interval.low > 1.5 * as_if_independent
    assert {name.removeprefix("mismatch/") for name in found.intervals} == {*FIGURES} - {"nll_gap"}
    for each in found.intervals.values():
        assert each.low <= each.value <= each.high


def test_intervals_cover_the_true_value() -> None:
    """The signed bias is zero by construction; 60 probes of 30 prompts."""
    covered = 0
    for seed in range(60):
        responses = random_responses(90, 1000 + seed, samples=3, gap=0.1, longest=12)
        found = compare_shards([(shard(responses, "sampler"), shard(responses, "learner"))], "")
        interval = found.intervals["mismatch/bias"]
        covered += interval.low <= 0 <= interval.high
    assert 50 <= covered <= 60


def test_intervals_of_few_prompts_are_as_wide_as_students() -> None:
    """Plain percentiles would be a third narrower with six prompts."""
    ratios = []
    for seed in range(30):
        responses = random_responses(6, seed, samples=1, gap=0.3, longest=60)
        found = compare_shards([(shard(responses, "sampler"), shard(responses, "learner"))], "")
        interval = found.intervals["mismatch/logprob_diff_mean"]
        own = [np.abs(each.learner - each.sampler).mean() for each in responses]
        students = 2 * stats.t.ppf(0.975, 5) * stats.sem(own)
        ratios.append((interval.high - interval.low) / students)
    assert np.median(ratios) == pytest.approx(1, abs=0.15)


def test_a_rate_of_zero_has_no_interval() -> None:
    """Resampling cannot draw an event that never occurred; "0 to 0" would claim too much."""
    calm, far = random_responses(80, 15, gap=0.01), random_responses(80, 15, gap=0.01)
    far[30].learner[0] -= 1.0
    rates = []
    for responses in (calm, far):
        pair = (shard(responses, "sampler"), shard(responses, "learner"))
        rates.append(compare_shards([pair], "").intervals.get("mismatch/far_rate"))
    assert rates[0] is None
    assert rates[1] is not None
    assert rates[1].low == 0 < rates[1].value < rates[1].high


def test_a_constant_column_has_no_correlation(tmp_path: Path) -> None:
    """Its mean is rounded, so all deviations are rounding errors."""
    responses = random_responses(64, 14)
    for each in responses:
        each.sampler[:] = -1.0
    for per_shard in (7, 64):
        found = compared(tmp_path, responses, per_shard)
        assert isinstance(found.readings["mismatch/pearson"], NotApplicable)
        assert "mismatch/pearson" not in found.intervals


def test_few_prompts_have_no_interval(tmp_path: Path) -> None:
    assert compared(tmp_path, random_responses(32, 10)).intervals == {}
    assert compared(tmp_path, random_responses(40, 10), 63).intervals != {}


def drawn_from(logits_NV: np.ndarray, told_NV: np.ndarray, seed: int) -> list[Both]:
    """Tokens sampled from one distribution, with log-probabilities of another."""
    rng = np.random.default_rng(seed)
    shape = logits_NV.shape
    probs = np.exp(logits_NV) / np.exp(logits_NV).sum(axis=1, keepdims=True)
    tokens = (rng.random((*shape[:1], 1)) > np.cumsum(probs, axis=1)).sum(axis=1)
    logprobs = told_NV - np.log(np.exp(told_NV).sum(axis=1, keepdims=True))
    entropy = -(np.exp(logprobs) * logprobs).sum(axis=1)
    told = logprobs[np.arange(len(tokens)), np.minimum(tokens, shape[1] - 1)]
    return [
        Both(told[at : at + 50], told[at : at + 50], at // 50,
             learner_extras={"entropy": entropy[at : at + 50]})
        for at in range(0, shape[0], 50)
    ]  # fmt: skip


def test_tokens_of_another_distribution_change_only_the_entropy_z(tmp_path: Path) -> None:
    logits = np.random.default_rng(0).normal(0, 2, (20_000, 16))
    sound = compared(tmp_path / "a", drawn_from(logits, logits, 1))
    wrong = compared(tmp_path / "b", drawn_from(1.25 * logits, logits, 1))
    for found in (sound, wrong):
        assert scalar(found.readings["mismatch/prob_diff_mean"]) == 0
        assert found.entropy_z is not None
    assert abs(sound.entropy_z or 99) < 4
    assert (wrong.entropy_z or 0) > 20
    gap = wrong.readings["mismatch/nll_gap"]
    assert isinstance(gap, Mean)
    assert gap.value < -0.05
    assert compared(tmp_path / "c", random_responses(8, 1)).entropy_z is None


def test_nonfinite_entropies_are_counted(tmp_path: Path) -> None:
    logits = np.random.default_rng(0).normal(0, 2, (1000, 16))
    some, none = (drawn_from(logits, logits, 1) for _ in range(2))
    some[3].learner_extras["entropy"][7:9] = math.nan
    gap = compared(tmp_path / "some", some).readings["mismatch/nll_gap"]
    assert isinstance(gap, Mean)
    assert (gap.count, gap.nonfinite) == (998, 2)
    for each in none:
        each.learner_extras["entropy"][:] = math.inf
    silent = compared(tmp_path / "none", none)
    assert "mismatch/nll_gap" not in silent.readings
    assert silent.entropy_z is None


def test_nonfinite_tokens_are_counted_and_left_out(tmp_path: Path) -> None:
    responses = random_responses(16, 11)
    for each in responses:
        each.learner[:] = math.nan
    found = compared(tmp_path / "all", responses)
    assert found.readings["mismatch/nonfinite"] == Rate(found.tokens, found.tokens)
    assert isinstance(found.readings["mismatch/prob_diff_mean"], NotApplicable)
    assert isinstance(found.readings["mismatch/pearson"], NotApplicable)
    assert (found.worst, found.scatter, found.by_position, found.intervals) == ((), (), (), {})
    assert found.unmeasured == tuple((0, 0, at) for at in range(10))
    mixed = compared(tmp_path / "half", [*responses[:8], *random_responses(56, 12)], per_shard=8)
    assert mixed.readings["mismatch/nonfinite"] != Rate(0, mixed.tokens)
    assert (scalar(mixed.readings["mismatch/prob_diff_mean"]) or 0) > 0


def test_the_first_nonfinite_tokens_are_named(
    tmp_path: Path,
) -> None:
    responses = random_responses(200, 16, gap=0.0)
    responses[9].learner[-1], responses[150].sampler[0] = math.nan, -math.inf
    responses[80].learner[0] -= 0.1
    for per_shard in (16, 200):
        found = compared(tmp_path, responses, per_shard)
        last = len(responses[9].sampler) - 1
        assert found.unmeasured == ((1, 1, last), (18, 6, 0))
        assert [(each.prompt, each.sample, each.at) for each in found.worst] == [(10, 0, 0)]


def test_extreme_numbers_cause_no_error(tmp_path: Path) -> None:
    responses = random_responses(64, 13)
    responses[0].learner[0], responses[9].sampler[0] = 3e38, -3e38
    responses[20].sampler[0], responses[21].learner[0] = 800.0, -800.0
    found = compared(tmp_path, responses)
    assert found.responses == 64
    assert found.worst[0].prob_diff_max == math.inf
    assert 0 <= found.effects["tis_token/2"] <= 1


def test_empty_and_mismatched_shards_are_refused(tmp_path: Path) -> None:
    for name in ("empty", "none"):
        (tmp_path / name).mkdir()
    with pytest.raises(EngineError, match="nothing to compare"):
        compare(tmp_path / "empty", tmp_path / "none")
    without = [Both(np.empty(0), np.empty(0), prompt) for prompt in range(4)]
    with pytest.raises(EngineError, match="all responses are empty"):
        compare(*write(tmp_path / "without", without))
    sampler, _ = write(tmp_path / "one", random_responses(8, 1))
    _, learner = write(tmp_path / "other", random_responses(8, 2))
    with pytest.raises(EngineError, match="other tokens"):
        compare(sampler, learner)
