"""Generalised advantage estimation: what a token changed, by a critic's account.

Formula
    With V the critic's value before a token and r its reward, delta = r + discount V' - V and
    A = delta + discount lambda A', the dash for the next token, 0 after the last one. The reward of
    a response stands at its last token. lambda is `gae_lambda`, or, with `gae_alpha`,
    max(0, 1 - 1 / (gae_alpha l)) for a response of l tokens (VAPO). With `whiten`, then
    (A - mean) / (deviation + epsilon) over the loss tokens of the batch.

Settings
    gae_lambda 0.95 and discount 1; gae_alpha off (VAPO 0.05, which leaves responses of up to 20
    tokens the lambda 0); whiten off, as VAPO's equations have it, and on in PPO's common form, with
    `std` and `epsilon`. The critic's own lambda is critic.gae_lambda: the two are decoupled.

Effect on metrics
    critic/explained_variance says whether there is anything to stand on; advantage/lambda_mean how
    far ahead it looks. Groups without variance in reward push too.

Other implementations
    verl's gae has one lambda for policy and critic, and always whitens. A response cut by the
    length limit ends there here as it does in verl: the limit is part of the task, its reward
    stands at the last token, and no value is put in place of what would have come.

Do not combine with
    Dynamic sampling, which throws away groups that a critic learns from. The deviations of groups
    have no part in it, nor have weights of components.

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
    """Advantages by the critic's values, shape (B, T), float64, zero outside the tokens.

    Raises:
        ValueError: if there are no values: the trainer gives them to this advantage alone.
    """
    tokens, settings = inputs.tokens, inputs.settings
    if tokens is None:
        raise ValueError("gae needs a critic's values")
    lambda_B = policy_lambda(settings, tokens.mask_BT.sum(dim=1))
    rewards_BT = token_rewards(inputs.rewards_B, tokens.mask_BT, tokens.rewards_BT)
    advantages_BT = generalised_advantages(
        rewards_BT, tokens.values_BT, tokens.mask_BT, lambda_B, settings.discount
    )
    if not settings.whiten:
        return advantages_BT
    return _whiten(advantages_BT, tokens.loss_mask_BT, settings)


def policy_lambda(settings: AdvantageConfig, lengths_B: Tensor) -> Tensor:
    """The lambda of each response, shape (B,), float64; of its length where `gae_alpha` is set."""
    if settings.gae_alpha is None:
        return torch.full_like(lengths_B, settings.gae_lambda, dtype=torch.float64)
    adaptive_B = 1 - 1 / (settings.gae_alpha * lengths_B.clamp(min=1).double())
    return adaptive_B.clamp(min=0)


def token_rewards(rewards_B: Tensor, mask_BT: Tensor, more_BT: Tensor | None = None) -> Tensor:
    """Each response's reward at its last token, shape (B, T), float64.

    Args:
        rewards_B: of the responses.
        mask_BT: their tokens, from the first column on.
        more_BT: what single tokens earn beside it; nothing if it is left out.
    """
    place_1T = torch.arange(mask_BT.shape[1], device=mask_BT.device)[None, :]
    last_BT = mask_BT & (place_1T == mask_BT.sum(dim=1, keepdim=True) - 1)
    rewards_BT = torch.where(last_BT, rewards_B.to(mask_BT.device).double()[:, None], 0.0)
    return rewards_BT if more_BT is None else rewards_BT + torch.where(mask_BT, more_BT, 0.0)


def generalised_advantages(
    rewards_BT: Tensor, values_BT: Tensor, mask_BT: Tensor, lambda_B: Tensor, discount: float
) -> Tensor:
    """The recursion itself, shape (B, T), float64, zero outside the mask.

    Args:
        rewards_BT: of each token.
        values_BT: the critic's, before each token.
        mask_BT: the tokens of each response, from the first column on.
        lambda_B: of each response.
        discount: of a reward one token later.
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
    """Mean 0 and deviation 1 over the tokens in the mask; as they are where there is but one."""
    chosen_N = advantages_BT[mask_BT]
    if len(chosen_N) < 2:
        return advantages_BT
    deviation = batch_deviation(chosen_N, settings) + settings.epsilon
    return torch.where(mask_BT, (advantages_BT - chosen_N.mean()) / deviation, 0.0)
