"""Builds the batch that the updates learn from: advantages, loss mask, corrections."""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.advantages.base import AdvantageInputs, TokenInputs, of_kept
from grpodoctor.trainer.algorithms.batches import LearnBatch
from grpodoctor.trainer.algorithms.corrections.base import Corrected, CorrectionInputs
from grpodoctor.trainer.algorithms.prompt_history import Visits
from grpodoctor.trainer.algorithms.registry import advantage_of, correction_of, replay_of
from grpodoctor.trainer.algorithms.replays.base import KnownExperts
from grpodoctor.trainer.algorithms.shaping.kl_in_reward import kl_in_reward
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.model.critic import value_batch
from grpodoctor.trainer.model.scoring import Scores
from grpodoctor.trainer.moe.routes import Gates
from grpodoctor.trainer.rollout import RolloutGroups, loss_mask
from grpodoctor.trainer.samples import Samples


def build_learn_batch(
    config: TrainConfig,
    rollouts: RolloutGroups,
    scores: Scores,
    *,
    visits: Visits | None,
    values_BT: Tensor | None = None,
    reference_logprobs_BT: Tensor | None = None,
    full_return: bool = False,
) -> LearnBatch:
    """Compute everything about a rollout batch that stays the same during its updates.

    Args:
        config: configuration of the step.
        rollouts: the sampled batch.
        scores: the learner's log-probabilities and entropies before the first update.
        visits: rewards of the prompts in earlier batches; None if the advantage does not use them.
        values_BT: the critic's value before each token; None without a critic.
        reference_logprobs_BT: log-probabilities under the KL reference; None without a KL penalty.
        full_return: train the critic on the full return, whatever `critic.gae_lambda` is.
    """
    samples = rollouts.samples
    mask_BT = loss_mask(rollouts, config)
    kl_penalty_B = _kl_penalty(config, samples, scores, reference_logprobs_BT)
    rewards_B = rollouts.totals()
    inputs = AdvantageInputs(
        rewards_B=rewards_B if kl_penalty_B is None else rewards_B - kl_penalty_B,
        group_ids_B=rollouts.group_ids_B,
        settings=config.advantage,
        components=rollouts.components(),
        tokens=None if values_BT is None else TokenInputs(values_BT, samples.mask_BT, mask_BT),
        visits=visits,
        lengths_B=mask_BT.sum(dim=1),
    )
    advantages = of_kept(advantage_of(config.advantage.kind), inputs, rollouts.kept_B).float()
    from_sampler = config.engine.old_logprobs == "sampler"
    return LearnBatch(
        samples=samples,
        group_ids_B=rollouts.group_ids_B,
        kept_B=rollouts.kept_B,
        advantages_BT=_per_token(advantages, mask_BT),
        loss_mask_BT=mask_BT,
        old_logprobs_BT=samples.logprobs_BT if from_sampler else scores.logprobs_BT,
        corrected=_corrected(config, scores, samples, mask_BT),
        reference_logprobs_BT=reference_logprobs_BT,
        kl_penalty_B=kl_penalty_B,
        correct_B=rollouts.correct(),
        values=value_batch(samples, inputs, config, full_return=full_return),
        replay_BLDK=experts_to_replay(config, samples, scores),
        old_gates=_old_gates(config, scores),
    )


def _corrected(
    config: TrainConfig, scores: Scores, samples: Samples, mask_BT: Tensor
) -> Corrected | None:
    """The correction of the mismatch between sampler and learner; None if none is configured."""
    inputs = CorrectionInputs(
        learner_logprobs_BT=scores.logprobs_BT,
        sampler_logprobs_BT=samples.logprobs_BT,
        mask_BT=mask_BT,
        settings=config.correction,
    )
    return correction_of(config.correction.kind)(inputs)


def experts_to_replay(
    config: TrainConfig, samples: Samples, scores: Scores | None = None
) -> Tensor | None:
    """The experts to force on the learner, shape (B, L, D, K); None leaves its routers free."""
    routes = None if scores is None else scores.routes
    known = KnownExperts(samples.experts_BLDK, None if routes is None else routes.experts_BLDK)
    return replay_of(config.engine.routing_replay.lower())(known)


def _old_gates(config: TrainConfig, scores: Scores) -> Gates | None:
    """The old policy's routing, if the loss compares the new routing with it."""
    if scores.routes is None or not config.loss.needs_router_shift:
        return None
    return scores.routes.gates


def _kl_penalty(
    config: TrainConfig, samples: Samples, scores: Scores, reference_logprobs_BT: Tensor | None
) -> Tensor | None:
    """The KL penalty subtracted from each reward; None if there is none or it is in the loss."""
    loss = config.loss
    if reference_logprobs_BT is None or loss.kl_placement == "loss":
        return None
    return kl_in_reward(
        scores.logprobs_BT, reference_logprobs_BT, samples.mask_BT, loss.kl_coefficient
    )


def _per_token(advantages: Tensor, mask_BT: Tensor) -> Tensor:
    """Advantages of shape (B, T): one per response, shape (B,), is repeated for each token."""
    return advantages if advantages.ndim == 2 else advantages[:, None].expand(mask_BT.shape)
