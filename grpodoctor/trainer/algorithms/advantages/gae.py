"""Generalized advantage estimation (GAE): token advantages from a critic.

Formula
    With V the critic's value before a token and r the token's reward,
    delta = r + discount V' - V and A = delta + discount lambda A', where ' is the next token and 0
    after the last one. The response's reward is at its last token. lambda is `gae_lambda`, or
    max(0, 1 - 1 / (gae_alpha l)) with `gae_alpha` for a response of l tokens (VAPO). With `whiten`,
    the result is (A - mean) / (deviation + epsilon) over the batch's loss tokens.

Settings
    gae_lambda 0.95 and discount 1. gae_alpha off; VAPO's 0.05 gives lambda 0 up to 20 tokens.
    whiten off, as in VAPO's equations; PPO usually whitens, with `std` and `epsilon`. The critic's
    lambda is critic.gae_lambda: the two are decoupled.

Effect on metrics
    critic/explained_variance shows whether the critic is useful; advantage/lambda_mean shows how
    far the advantage looks ahead. Groups without reward variance contribute too.

Other implementations
    verl's gae has one lambda for policy and critic and always whitens. As in verl, a truncated
    response counts as finished: the limit is part of the task, the reward is at the last token, and
    no bootstrap value replaces the missing rest.

Do not combine with
    Dynamic sampling, which discards groups that a critic learns from. Group deviations and
    component weights have no effect.

Source
    GAE, arXiv 1506.02438; PPO, arXiv 1707.06347; length-adaptive and decoupled, VAPO,
    arXiv 2504.05118, section 4; VC-PPO, arXiv 2503.01491.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, batch_deviation
from grpodoctor.trainer.algorithms.advantages.settings import AdvantageConfig


def gae(inputs: AdvantageInputs) -> Tensor:
    """Advantages from the critic's values, shape (B, T), float64, zero outside the tokens.

    Raises:
        ValueError: if there are no values; the trainer provides them only to this advantage.
    """
    tokens, settings = inputs.tokens, inputs.settings
    if tokens is None:
        raise ValueError("gae needs a critic's values")
    lambda_B = policy_lambda(settings, tokens.mask_BT.sum(dim=1))
    rewards_BT = token_rewards(inputs.rewards_B, tokens.mask_BT, tokens.rewards_BT)
    advantages_BT = generalized_advantages(
        rewards_BT, tokens.values_BT, tokens.mask_BT, lambda_B, settings.discount
    )
    if not settings.whiten:
        return advantages_BT
    return _whiten(advantages_BT, tokens.loss_mask_BT, settings)


def policy_lambda(settings: AdvantageConfig, lengths_B: Tensor) -> Tensor:
    """The lambda of each response, shape (B,), float64; it depends on the length if `gae_alpha`."""
    if settings.gae_alpha is None:
        return torch.full_like(lengths_B, settings.gae_lambda, dtype=torch.float64)
    adaptive_B = 1 - 1 / (settings.gae_alpha * lengths_B.clamp(min=1).double())
    return adaptive_B.clamp(min=0)


def token_rewards(rewards_B: Tensor, mask_BT: Tensor, more_BT: Tensor | None = None) -> Tensor:
    """Each response's reward at its last token, shape (B, T), float64."""
    place_1T = torch.arange(mask_BT.shape[1], device=mask_BT.device)[None, :]
    last_BT = mask_BT & (place_1T == mask_BT.sum(dim=1, keepdim=True) - 1)
    rewards_BT = torch.where(last_BT, rewards_B.to(mask_BT.device).double()[:, None], 0.0)
    return rewards_BT if more_BT is None else rewards_BT + torch.where(mask_BT, more_BT, 0.0)


def generalized_advantages(
    rewards_BT: Tensor, values_BT: Tensor, mask_BT: Tensor, lambda_B: Tensor, discount: float
) -> Tensor:
    """The GAE recursion, shape (B, T), float64, zero outside the mask.

    Responses start in the first column. `values_BT` is the critic's value before each token.
    """
    values_BT = torch.where(mask_BT, values_BT.double(), 0.0)
    ahead_BT = torch.nn.functional.pad(values_BT[:, 1:], (0, 1))
    deltas_BT = torch.where(mask_BT, rewards_BT + discount * ahead_BT - values_BT, 0.0)
    advantages_BT = torch.empty_like(deltas_BT)
    following_B = torch.zeros_like(lambda_B)
    for place in reversed(range(mask_BT.shape[1])):
        following_B = deltas_BT[:, place] + discount * lambda_B * following_B
        advantages_BT[:, place] = following_B
    return advantages_BT


def _whiten(advantages_BT: Tensor, mask_BT: Tensor, settings: AdvantageConfig) -> Tensor:
    """Scale to mean 0 and deviation 1 over the mask; unchanged if it has fewer than two tokens."""
    chosen_N = advantages_BT[mask_BT]
    if len(chosen_N) < 2:
        return advantages_BT
    deviation = batch_deviation(chosen_N, settings) + settings.epsilon
    return torch.where(mask_BT, (advantages_BT - chosen_N.mean()) / deviation, 0.0)
