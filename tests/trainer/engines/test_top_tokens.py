"""The sampler's most likely tokens: reported, kept with their rows, scored by the learner."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from grpodoctor.runs.reading.native_run import read_run
from grpodoctor.trainer.algorithms.losses.base import LossInputs
from grpodoctor.trainer.algorithms.losses.divergence._shared import coarsened
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.trainer.engines.sampler import sample
from grpodoctor.trainer.loop import Trainer
from grpodoctor.trainer.model.forward import response_logits
from grpodoctor.trainer.model.forward_scores import top_tokens
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.samples import Samples, concatenate
from grpodoctor.vocabulary.values import scalar

TEMPERATURE = 0.7


def drawn(policy: Policy, top_tokens: int, prompts: int = 3, max_length: int = 12) -> Samples:
    return sample(
        policy.model,
        [policy.tokenizer.encode(f"{n}+{n}=") for n in range(prompts) for _ in range(4)],
        max_length=max_length,
        temperature=TEMPERATURE,
        tokenizer=policy.tokenizer,
        generator=torch.Generator().manual_seed(1),
        top_tokens=top_tokens,
    )


def logits(policy: Policy, samples: Samples) -> Tensor:
    with torch.no_grad():
        return response_logits(
            policy.model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
        )


def test_top_tokens_come_from_the_sampling_distribution(warm_policy: Policy) -> None:
    samples = drawn(warm_policy, 5)
    wanted = torch.log_softmax(logits(warm_policy, samples) / TEMPERATURE, dim=-1).topk(5)
    mask_BT, top = samples.mask_BT, samples.top
    assert top is not None
    torch.testing.assert_close(top.logprobs_BTK[mask_BT], wanted.values[mask_BT])
    apart = wanted.values.diff(dim=-1).abs().min(dim=-1).values > 1e-5  # no ties to break
    chosen = mask_BT & apart
    assert chosen.sum() > 10
    assert torch.equal(top.ids_BTK[chosen], wanted.indices[chosen])
    assert (top.logprobs_BTK[~mask_BT] == 0).all()


def test_recording_top_tokens_changes_no_response(warm_policy: Policy) -> None:
    plain, asked = drawn(warm_policy, 0), drawn(warm_policy, 3)
    assert plain.top is None
    assert torch.equal(plain.tokens_BL, asked.tokens_BL)
    assert torch.equal(plain.logprobs_BT, asked.logprobs_BT)


def test_top_tokens_stay_with_their_rows(warm_policy: Policy) -> None:
    short, long = drawn(warm_policy, 3, 2, max_length=2), drawn(warm_policy, 3)
    both = concatenate([short, long])
    assert both.top is not None
    assert long.top is not None
    width = long.top.ids_BTK.shape[1]
    assert torch.equal(both.top.ids_BTK[len(short) :, :width], long.top.ids_BTK)
    picked = both.rows([len(short) + 1])
    assert picked.top is not None
    assert torch.equal(picked.top.logprobs_BTK[:, :width], long.top.logprobs_BTK[1:2])
    assert concatenate([drawn(warm_policy, 0), long]).top is None


def test_the_learner_sees_the_same_tokens_and_all_of_them_make_a_whole(
    warm_policy: Policy,
) -> None:
    samples = drawn(warm_policy, 10_000)  # more than the vocabulary: all tokens
    logits_BTV, mask_BT = logits(warm_policy, samples) * 1.3, samples.mask_BT
    log_policy_BTV = torch.log_softmax(logits_BTV / TEMPERATURE, dim=-1)
    new_BT = log_policy_BTV.gather(2, samples.response_BT[..., None])[..., 0]
    logits_NV = logits_BTV.flatten(0, 1) / TEMPERATURE
    top = top_tokens(samples, new_BT, lambda ids_NK: logits_NV.gather(1, ids_NK))
    assert top is not None
    inputs = LossInputs(
        *(new_BT, new_BT, samples.logprobs_BT, torch.ones_like(new_BT), mask_BT),
        settings=load_config(assignments=["loss.kind=dppo_topk_tv"]).loss,
        top=top,
    )
    sampler_BTS, new_BTS = coarsened(inputs)
    mu_BTV = torch.softmax(logits_BTV / 1.3 / TEMPERATURE, dim=-1)
    full_BT = (mu_BTV - log_policy_BTV.exp()).abs().sum(dim=-1) / 2
    coarse_BT = (sampler_BTS - new_BTS).abs().sum(dim=-1) / 2
    torch.testing.assert_close(coarse_BT[mask_BT], full_BT[mask_BT], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["dppo_topk_tv", "dppo_topk_kl"])
def test_a_run_masks_the_mismatch_of_an_int4_engine(kind: str, tmp_path: Path) -> None:
    config = load_config(
        assignments=[
            *("threads=1", "model.warm_start_steps=30", "steps=2", "evaluation.every=0"),
            *("rollout.prompts_per_batch=4", "rollout.group_size=4", "engine.precision=int4"),
            *("overlong.kind=soft-punishment", "overlong.buffer=28", f"loss.kind={kind}"),
            *("loss.divergence_limit=0.001", "loss.top_tokens=4", "rollout.dynamic_sampling=true"),
        ]
    )
    Trainer(config, tmp_path / "run").run()
    values = [step.values for step in read_run(tmp_path / "run").steps]
    rates = [scalar(each[f"clip/{side}_rate"]) for each in values for side in ("low", "high")]
    assert all(rate > 0 for rate in rates)
