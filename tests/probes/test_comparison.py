"""Comparisons of real engines: a mixture of experts in several precisions.

The engines are those of the transformers program; their output goes through shards on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.comparison.experts import compare_experts
from grpodoctor.probe.controls.controls import repeat_control, self_scoring_control, stale_control
from grpodoctor.probe.results.results import Comparison
from grpodoctor.vocabulary.values import scalar
from tests.probes.conftest import engine
from tests.probes.models import texts

Score = Callable[..., Path]
WANT = ("entropy", "experts")
PER_SHARD = 16


def written(folder: Path, responses: Sequence[Any]) -> Path:
    from contract import write_shard

    folder.mkdir(parents=True)
    for number, start in enumerate(range(0, len(responses), PER_SHARD)):
        write_shard(folder / f"shard-{number:05d}.npz", responses[start : start + PER_SHARD])
    return folder


@pytest.fixture(scope="module")
def drawn(moe_model: Path) -> list[Any]:
    """Samples of the mixture in float32."""
    from contract import Sampling

    source = engine(moe_model)
    ids = source.tokenise([{"text": text} for text in texts(12)])
    responses: list[Any] = source.sample(ids, Sampling(samples=4, max_tokens=48), WANT)
    return responses


@pytest.fixture(scope="module")
def sampled(drawn: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("pair") / "sampled", drawn)


@pytest.fixture(scope="module")
def score(moe_model: Path, drawn: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Score:
    """Score with the mixture under some options, once each; the folder of shards."""
    from contract import Processing

    folder, known = tmp_path_factory.mktemp("scored"), dict[str, Path]()

    def scored(backwards: bool = False, **options: Any) -> Path:
        name = f"{backwards}-{sorted(options.items())}"
        if name not in known:
            asked = drawn[::-1] if backwards else drawn
            told = engine(moe_model, **options).score(asked, Processing(), WANT)
            known[name] = written(folder / str(len(known)), told[::-1] if backwards else told)
        return known[name]

    return scored


@pytest.fixture(scope="module")
def rounded(sampled: Path, score: Score) -> Comparison:
    return compare(sampled, score(dtype="bfloat16"))


@pytest.mark.slow
def test_rounding_flips_only_experts_with_small_margins(rounded: Comparison) -> None:
    experts = rounded.experts
    assert experts is not None
    assert experts.coverage == 1
    assert 0 < experts.churn < 0.05
    assert experts.churn < experts.any_flip_rate < 0.5
    assert len(experts.layers) == 4
    for layer in experts.layers:
        if layer.margin_flipped is not None:
            assert layer.margin_flipped < (layer.margin_kept or 0) / 4
    flipped = [rate for _, _, rate, pairs in experts.by_margin if pairs > 20]
    assert flipped[0] > flipped[-1] == 0


def test_flipped_tokens_differ_more(rounded: Comparison) -> None:
    experts = rounded.experts
    assert experts is not None
    assert (experts.logprob_diff_flipped or 0) > 1.5 * (experts.logprob_diff_kept or 1)
    assert (experts.flips_to_gap or 0) > 0.02


def test_own_samples_match_their_entropy(rounded: Comparison) -> None:
    assert rounded.entropy_z is not None
    assert abs(rounded.entropy_z) < 4
    assert abs(scalar(rounded.readings["mismatch/nll_gap"]) or 0) < 0.1


def test_coarser_precision_has_a_larger_gap_and_effect(
    sampled: Path, score: Score, rounded: Comparison
) -> None:
    coarse = compare(sampled, score(quantise="int4"))
    for name in ("mismatch/prob_diff_mean", "mismatch/kl_k3", "experts/churn_engine"):
        assert (scalar(coarse.readings[name]) or 0) > (scalar(rounded.readings[name]) or 9)
    for effect in ("geo_mask/0.999_1.001", "gspo_clip/0.0003_0.0004", "ppo_clip/0.2_0.28"):
        assert coarse.effects[effect] >= rounded.effects[effect]
    assert rounded.effects["tis_token/2"] < 0.01
    mean = "mismatch/prob_diff_mean"
    assert coarse.intervals[mean].low > rounded.intervals[mean].high


def test_controls_of_real_engines(sampled: Path, score: Score, rounded: Comparison) -> None:
    own = self_scoring_control(sampled, score(), dtype="float32")
    assert own.passed, own.summary
    again = repeat_control(score(dtype="bfloat16"), score(True, dtype="bfloat16"))
    assert again.passed, again.summary
    wrong = compare(sampled, score(dtype="bfloat16", perturb=0.05))
    stale = stale_control(rounded, wrong, what="its own weights with 5% of noise")
    assert stale.passed, stale.summary
    hidden = stale_control(wrong, rounded, what="sound weights, next to a faulty pair")
    assert hidden.passed is not True


def test_churn_grows_with_the_change_of_a_checkpoint(score: Score) -> None:
    before = score()
    found = [
        compare_experts(before, score(perturb=noise)).readings["experts/churn_update"]
        for noise in (0.005, 0.05)
    ]
    little, much = (scalar(each) or 0 for each in found)
    assert 0 < little < much / 2 < 0.5
    same = compare_experts(before, before)
    assert scalar(same.readings["experts/churn_update"]) == 0
    assert same.comparison is not None
    assert same.comparison.agreement == 1
