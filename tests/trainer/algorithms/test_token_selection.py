"""Losses that select tokens of the step, or compare the most likely tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.algorithms.losses.base import (
    LossInputs,
    TopTokens,
    covariances,
)
from grpodoctor.trainer.algorithms.losses.divergence._shared import coarsened
from grpodoctor.trainer.algorithms.registry import loss_of, token_selector_of
from grpodoctor.trainer.config.loss import loss_config
from tests.trainer.algorithms.loss_cases import (
    CASES,
    MASK_BT,
    VECTORS,
    chosen_by,
    gradient_of,
    inputs_of,
    logprobs,
    tensor,
    terms_of,
)


@pytest.mark.parametrize("name", ["clip_cov_all_eligible", "kl_cov_top2_coef1"])
def test_tokens_are_selected_from_the_whole_step(name: str) -> None:
    expected = VECTORS["losses"][name]
    inputs = inputs_of(logprobs("new"), **CASES[name].settings)
    chosen_BT = chosen_by(inputs)
    assert chosen_BT is not None
    wanted_BT = tensor(expected["eligible" if name.startswith("clip") else "selected"]).bool()
    assert torch.equal(chosen_BT, wanted_BT)


def test_the_covariance_matches_the_published_vector() -> None:
    wanted_BT = tensor(VECTORS["losses"]["clip_cov_all_eligible"]["cov"])
    torch.testing.assert_close(
        covariances(inputs_of(logprobs("new"))), wanted_BT, rtol=1e-6, atol=1e-9
    )


def many_tokens(**settings: Any) -> LossInputs[Any]:
    """Two hundred responses of ten tokens, half of them with a much lower advantage."""
    generator = torch.Generator().manual_seed(3)
    new_BT = -3 * torch.rand(200, 10, generator=generator, dtype=torch.float64)
    mask_BT = torch.rand(200, 10, generator=generator) < 0.8
    advantages = torch.where(torch.arange(200) % 2 == 0, 1.0, -1.0)[:, None]
    return inputs_of(
        new_BT, advantages=advantages, old_logprobs_BT=new_BT, mask_BT=mask_BT, **settings
    )


def test_clip_cov_draws_its_share_evenly_among_the_eligible_tokens() -> None:
    inputs = many_tokens(kind="clip_cov", share=0.01, covariance_low=0.1)
    select_tokens, cov_BT, counts_BT = (
        token_selector_of("clip_cov"),
        covariances(inputs),
        torch.zeros(200, 10),
    )
    assert select_tokens is not None
    eligible_BT = inputs.mask_BT & (cov_BT > 0.1)
    share = int(0.01 * int(inputs.mask_BT.sum()))
    for seed in range(300):
        chosen_BT = select_tokens(inputs, torch.Generator().manual_seed(seed))
        assert chosen_BT.sum() == share
        assert not (chosen_BT & ~eligible_BT).any()
        counts_BT += chosen_BT
    mean = 300 * share / int(eligible_BT.sum())
    spread = counts_BT[eligible_BT].var() / mean
    assert 0.8 < spread < 1.2  # 1 for a Poisson count
    again = [select_tokens(inputs, torch.Generator().manual_seed(5)) for _ in range(2)]
    assert torch.equal(*again)


@pytest.mark.parametrize(("kind", "share"), [("clip_cov", 1e-6), ("kl_cov", 1e-6)])
def test_a_share_of_less_than_one_token_selects_the_minimum(kind: str, share: float) -> None:
    wide = {"covariance_low": 0.0} if kind == "clip_cov" else {}
    for fewest in (1, 0):
        chosen_BT = chosen_by(many_tokens(kind=kind, share=share, fewest=fewest, **wide))
        assert chosen_BT is not None
        assert chosen_BT.sum() == fewest


@pytest.mark.parametrize("kind", ["clip_cov", "kl_cov"])
def test_a_step_without_loss_tokens_chooses_none(kind: str) -> None:
    inputs = inputs_of(logprobs("new"), mask_BT=torch.zeros_like(MASK_BT), kind=kind)
    chosen_BT = chosen_by(inputs)
    assert chosen_BT is not None
    assert not chosen_BT.any()


def coarse(**settings: Any) -> LossInputs[Any]:
    """One token of a vocabulary of five; the sampler reports its two most likely tokens."""
    fixture = VECTORS["topk"]
    mu, pi, action = tensor(fixture["mu"]).log(), tensor(fixture["pi"]).log(), fixture["action"]
    likeliest = mu.topk(fixture["K"]).indices
    assert sorted([*likeliest.tolist(), action]) == fixture["set"]
    top = TopTokens(mu[likeliest][None, None], pi[likeliest][None, None], likeliest == action)
    inputs = inputs_of(
        pi[action].clone()[None, None].requires_grad_(),
        advantages=1.0,
        old_logprobs_BT=mu[action][None, None],
        mask_BT=torch.ones(1, 1, dtype=torch.bool),
        kind="dppo_binary_tv",
    )
    return replace(inputs, top=top, settings=loss_config(settings))


def test_the_coarse_distributions_match_the_published_vector() -> None:
    sampler_BTS, new_BTS = coarsened(coarse(kind="dppo_topk_tv"))
    for found, key in ((sampler_BTS, "mu_reduced_last_is_other"), (new_BTS, "pi_reduced")):
        torch.testing.assert_close(found[0, 0], tensor(VECTORS["topk"][key]), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "key"), [("dppo_topk_tv", "tv_topk"), ("dppo_topk_kl", "kl_topk")]
)
def test_a_coarse_divergence_masks_tokens_beyond_its_limit(kind: str, key: str) -> None:
    divergence, gradients = VECTORS["topk"][key], []
    for factor in (1 + 1e-6, 1 - 1e-6):
        inputs = coarse(kind=kind, divergence_limit=divergence * factor)
        terms = loss_of(kind)(inputs)
        gradients.append(gradient_of(terms.loss_BT.sum(), inputs.new_logprobs_BT).item())
        assert terms.clipped_high_BT is not None
        assert bool(terms.clipped_high_BT) == (gradients[-1] == 0)
    assert gradients == [pytest.approx(-VECTORS["topk"]["ratio"], rel=1e-6), 0]


def test_a_sampled_token_among_the_most_likely_counts_once() -> None:
    inputs = inputs_of(logprobs("new"), sampler_logprobs_BT=logprobs("mu"), kind="dppo_topk_tv")
    sampler_BTS, _ = coarsened(inputs)
    assert (sampler_BTS[..., 2] == 0).all()
    assert torch.allclose(sampler_BTS.sum(dim=-1), torch.ones(2, 3, dtype=torch.float64))
    # The rest is divided evenly in both, so the divergence equals the binary one.
    binary = terms_of(
        logprobs("new"), sampler_logprobs_BT=logprobs("mu"), kind="dppo_binary_tv"
    ).loss_BT
    assert torch.equal(loss_of("dppo_topk_tv")(inputs).loss_BT[MASK_BT], binary[MASK_BT])


def test_an_engine_without_its_most_likely_tokens_is_refused() -> None:
    inputs = replace(coarse(kind="dppo_topk_kl"), top=None)
    with pytest.raises(ConfigError, match="most likely tokens"):
        loss_of("dppo_topk_kl")(inputs)
