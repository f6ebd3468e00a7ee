"""The effects on training against the bundled trainer's own formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.probe.comparison.compare import compare_shards
from grpodoctor.probe.comparison.correction_effects import BY_NAME, EFFECTS
from grpodoctor.trainer.algorithms.corrections.base import CorrectionInputs
from grpodoctor.trainer.algorithms.corrections.settings import CorrectionConfig
from grpodoctor.trainer.algorithms.registry import correction_of
from grpodoctor.trainer.config.train_config import load_config
from tests.probe.comparison.test_compare import as_batch
from tests.probe.pairs import Both, random_responses, shard

RESPONSES = [
    *random_responses(40, 3, gap=0.002, longest=40),
    *random_responses(40, 4, gap=1.2, longest=40),
]


@pytest.fixture(scope="module")
def shares() -> dict[str, float]:
    pair = (shard(RESPONSES, "sampler"), shard(RESPONSES, "learner"))
    return dict(compare_shards([pair], "").effects)


@pytest.fixture(scope="module")
def batch() -> RolloutBatch:
    return as_batch(RESPONSES)


def corrected(batch: RolloutBatch, name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The trainer's weights before and after a correction, and where it acted."""
    effect = BY_NAME[name]
    kind = name.partition("/")[0]
    sides = [batch.learner_logprobs_BT, batch.sampler_logprobs_BT]
    learner_BT, sampler_BT = (torch.from_numpy(np.asarray(side, np.float64)) for side in sides)

    def apply(floor: float, cap: float) -> tuple[torch.Tensor, torch.Tensor]:
        settings = CorrectionConfig.model_construct(
            kind=kind, cap=cap, floor=floor, of_response="product"
        )
        inputs = CorrectionInputs(learner_BT, sampler_BT, torch.from_numpy(batch.mask_BT), settings)
        found = correction_of(kind)(inputs)
        assert found is not None
        return found.weights_BT, found.capped_BT

    free, _ = apply(0.0, 1e300)
    kept, acted = apply(effect.low, effect.high)
    return free, kept, acted


CORRECTIONS = [
    each.name for each in EFFECTS if each.act != "clip" and each.name.partition("/")[0] != "scalerl"
]


@pytest.mark.parametrize("name", CORRECTIONS)
def test_a_correction_affects_the_same_tokens_as_in_the_trainer(
    shares: dict[str, float], batch: RolloutBatch, name: str
) -> None:
    free, kept, acted = corrected(batch, name)
    mask = torch.from_numpy(batch.mask_BT)
    by_token = BY_NAME[name].over == "tokens"
    expected = acted[mask].double().mean() if by_token else acted.any(dim=1).double().mean()
    assert 0 < shares[name] < 1
    assert shares[name] == pytest.approx(float(expected))
    if BY_NAME[name].quantity == "product":  # one weight a response, the same for its tokens
        free, kept, mask = free[:, :1], kept[:, :1], mask[:, :1]
    lost = 1 - kept[mask].sum() / free[mask].sum()
    assert shares[f"{name}/lost"] == pytest.approx(float(lost), abs=1e-9)


def test_the_bound_of_the_geometric_mask(shares: dict[str, float]) -> None:
    assert shares["geo_mask/0.999_1.001"] >= shares["geo_mask/0.99_1.01"] > 0.4
    calm = random_responses(80, 3, gap=1e-5)
    found = compare_shards([(shard(calm, "sampler"), shard(calm, "learner"))], "").effects
    assert found["geo_mask/0.999_1.001"] == found["gspo_clip/0.0003_0.0004"] == 0


def test_clips_are_counted_on_both_sides(shares: dict[str, float], batch: RolloutBatch) -> None:
    mask = batch.mask_BT
    assert batch.learner_logprobs_BT is not None
    assert batch.sampler_logprobs_BT is not None
    gap = batch.learner_logprobs_BT.astype(float) - batch.sampler_logprobs_BT.astype(float)
    ratio = np.exp(gap)[mask]
    assert shares["ppo_clip/0.2_0.28/low"] == pytest.approx((ratio < 0.8).mean())
    assert shares["ppo_clip/0.2_0.28/high"] == pytest.approx((ratio > 1.28).mean())
    assert shares["ppo_clip/0.2_0.28"] == pytest.approx(
        shares["ppo_clip/0.2_0.28/low"] + shares["ppo_clip/0.2_0.28/high"]
    )
    means = np.exp(np.where(mask, gap, 0).sum(axis=1) / mask.sum(axis=1))
    assert shares["gspo_clip/0.0003_0.0004/high"] == pytest.approx((means > 1.0004).mean())
    probs = [np.exp(side.astype(float))[mask]
             for side in (batch.learner_logprobs_BT, batch.sampler_logprobs_BT)]  # fmt: skip
    assert shares["dppo_tv/0.15"] == pytest.approx((np.abs(probs[0] - probs[1]) > 0.15).mean())
    assert shares["scalerl/5"] == pytest.approx((ratio > 5).mean())


def test_the_clips_are_those_of_the_trainers_presets() -> None:
    from grpodoctor.trainer.config.presets import preset_of

    for preset, name in (("gspo", "gspo_clip/0.0003_0.0004"), ("dapo", "ppo_clip/0.2_0.28")):
        loss = load_config(preset_of(preset).settings).loss
        assert BY_NAME[name].low == pytest.approx(1 - loss.clip_low)
        assert BY_NAME[name].high == pytest.approx(1 + loss.clip_high)
    assert (
        load_config(preset_of("dppo").settings).loss.divergence_limit
        == BY_NAME["dppo_tv/0.15"].high
    )


def test_every_effect_has_a_description() -> None:
    assert len(BY_NAME) == len(EFFECTS)
    for effect in EFFECTS:
        assert effect.title
        assert effect.source
        assert f"{effect.high:g}" in effect.name or effect.act == "clip"


def test_corrections_have_no_effect_on_agreeing_engines() -> None:
    same = random_responses(40, 4, gap=0.0)
    found = compare_shards([(shard(same, "sampler"), shard(same, "learner"))], "").effects
    assert set(found.values()) == {0.0}


def test_responses_with_weight_zero_lose_none() -> None:
    """400 tokens at 5 nats each: the product is 0 in doubles."""
    far = [replace(each, learner=each.sampler - 5.0) for each in random_responses(40, 4)]
    long = [Both(np.full(400, -1.0), np.full(400, -6.0), prompt) for prompt in range(8)]
    found = compare_shards([(shard(long, "sampler"), shard(long, "learner"))], "").effects
    assert found["mis_sequence/3"] == 0
    assert "mis_sequence/3/lost" not in found
    assert found["icepop/0.5_5"] == found["ppo_clip/0.2_0.28/low"] == 1
    mixed = compare_shards([(shard(far, "sampler"), shard(far, "learner"))], "").effects
    assert mixed["mis_sequence/3/lost"] == 0
