"""Top-p and top-k: which tokens stay, and what the engines report about them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TopKLogitsWarper, TopPLogitsWarper

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.engines.distribution import Distribution
from grpodoctor.trainer.engines.sampler import sample
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.model.scoring import score

SHARES = torch.tensor([[0.3, 0.05, 0.5, 0.15]])


@pytest.mark.parametrize(
    ("distribution", "kept"),
    [
        (Distribution(1.0), [0, 1, 2, 3]),
        (Distribution(1.0, top_p=0.7), [0, 2]),
        (Distribution(1.0, top_p=0.81), [0, 2, 3]),
        (Distribution(1.0, top_p=0.01), [2]),
        (Distribution(1.0, top_k=3), [0, 2, 3]),
        # Of the three tokens that top-k keeps, two have 0.8 / 0.95 of the probability.
        (Distribution(1.0, top_p=0.82, top_k=3), [0, 2]),
        # At temperature 0.5 the most likely token has 0.25 / 0.365 of the probability.
        (Distribution(0.5, top_p=0.68), [2]),
    ],
)
def test_only_the_most_likely_tokens_stay(distribution: Distribution, kept: list[int]) -> None:
    logits_RV = distribution.truncated(SHARES.log())
    assert logits_RV[0].isfinite().nonzero().flatten().tolist() == kept
    assert torch.equal(logits_RV[0, kept], SHARES.log()[0, kept])


@given(st.integers(0, 10_000), st.floats(0.05, 0.99), st.integers(1, 40))
def test_the_same_tokens_stay_as_in_transformers(seed: int, top_p: float, top_k: int) -> None:
    logits_RV = 3 * torch.randn(3, 40, generator=torch.Generator().manual_seed(seed))
    expected = TopPLogitsWarper(top_p)(None, TopKLogitsWarper(top_k)(None, logits_RV))
    found = Distribution(1.0, top_p, top_k).truncated(logits_RV)
    assert torch.equal(found.isfinite(), expected.isfinite())


def test_log_probabilities_are_those_of_the_truncated_distribution(warm_policy: Policy) -> None:
    prompts = [warm_policy.tokenizer.encode("7*3+8-2=")] * 64
    samples = sample(
        *(warm_policy.model, prompts),
        max_length=12,
        temperature=1.2,
        tokenizer=warm_policy.tokenizer,
        generator=torch.Generator().manual_seed(0),
        top_k=2,
        top_tokens=3,
    )
    assert samples.top is not None
    shares_BTK, mask_BT = samples.top.logprobs_BTK.exp(), samples.mask_BT
    assert (shares_BTK[mask_BT][:, 2] == 0).all()
    torch.testing.assert_close(shares_BTK[mask_BT].sum(-1), torch.ones(int(mask_BT.sum())))
    sampled_BT = (samples.top.ids_BTK == samples.response_BT[..., None])[mask_BT][:, :2]
    assert sampled_BT.any(-1).all()
    whole = score(warm_policy.model, samples, 1.2)
    gap_N = (samples.logprobs_BT - whole.logprobs_BT)[mask_BT]
    assert gap_N.min() > -1e-5
    assert gap_N.max() > math.log(1.05)


def test_a_run_samples_with_top_p(tmp_path: Path) -> None:
    small = ("steps=1", "evaluation.every=0", "model.warm_start_steps=30", "record.enabled=false")
    trainer = Trainer(load_config(assignments=[*small, "rollout.top_p=0.5"]), tmp_path)
    samples = trainer._collect(1).samples
    scores = score(trainer.policy.model, samples, 1.0)
    gap_N = (samples.logprobs_BT - scores.logprobs_BT)[samples.mask_BT]
    assert gap_N.min() > -1e-5
    assert gap_N.max() <= math.log(2) + 1e-5  # at least half of the probability stays
    assert gap_N.max() > 0.1


def test_a_truncated_distribution_gives_a_warning_or_is_refused() -> None:
    (warning,) = load_config(assignments=["rollout.top_p=0.9"]).warnings()
    assert "importance ratios to the sampler are too small" in warning
    with pytest.raises(ConfigError, match="top-p or top-k truncates"):
        load_config(assignments=["rollout.top_k=20", "loss.kind=dppo_topk_tv"])
