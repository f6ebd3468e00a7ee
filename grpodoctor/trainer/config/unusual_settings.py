"""Settings that are allowed but rarely intended."""

from __future__ import annotations

from collections.abc import Iterator

from grpodoctor.trainer.config.sections import AllSections

_FEW_TOKENS = 2.0
"""GAE horizon 1 / (1 - lambda), in tokens, below which the advantage is almost only the critic."""


def warnings(config: AllSections) -> list[str]:
    """Settings that are allowed but rarely intended, one line each."""
    checks = (
        _short_gae_horizon(config),
        _bfloat16_weights(config),
        _truncated_sampling(config),
        _negative_rewards(config),
        _groups_without_variance(config),
        _unused_reward_weights(config),
        *_combined_exploration(config),
        *_without_effect(config),
    )
    return [line for present, line in checks if present]


def _without_effect(config: AllSections) -> Iterator[tuple[bool, str]]:
    yield (
        config.rollout.refill == "missing" and not config.rollout.dynamic_sampling,
        "rollout.refill has no effect: rollout.dynamic_sampling is off",
    )
    yield (
        config.optimizer.schedule == "constant" and config.optimizer.final_learning_rate > 0,
        "optimizer.final_learning_rate has no effect: optimizer.schedule is constant",
    )
    yield (
        config.overlong.only_correct and not config.overlong.punishes,
        "overlong.only_correct has no effect: overlong.kind is not a soft punishment",
    )


def _truncated_sampling(config: AllSections) -> tuple[bool, str]:
    rollout = config.rollout
    return rollout.truncates_distribution, (
        "rollout.top_p or rollout.top_k truncates the sampler's distribution, and the learner "
        "scores with the whole vocabulary: importance ratios to the sampler are too small"
    )


def _negative_rewards(config: AllSections) -> tuple[bool, str]:
    overlong = config.overlong
    return config.advantage.kind == "max_rl" and overlong.punishes, (
        "max_rl divides by the group's mean reward, which a soft overlong punishment can make "
        "negative: such groups get no advantage"
    )


def _groups_without_variance(config: AllSections) -> tuple[bool, str]:
    rollout = config.rollout
    removed = rollout.dynamic_sampling or rollout.filter_groups
    return config.advantage.kind == "reinforce_plus_plus_baseline" and not removed, (
        "whitening over tokens gives groups without variance an advantage that is not zero: "
        "set rollout.dynamic_sampling or rollout.filter_groups"
    )


def _bfloat16_weights(config: AllSections) -> tuple[bool, str]:
    model = config.model
    return model.dtype == "bfloat16" and model.name != "builtin" and not model.lora_rank, (
        "updates smaller than about 1/256 of a weight are rounded away in bfloat16 weights: "
        "use model.dtype=float32 with model.compute=bfloat16, or LoRA adapters"
    )


def _unused_reward_weights(config: AllSections) -> tuple[bool, str]:
    weighted = any(term.weight != 1 for term in config.task.rewards.values())
    return config.advantage.kind == "gdpo" and weighted, (
        "gdpo weights the reward components only by advantage.component_weights: the weights of "
        "task.rewards have no effect on it"
    )


def _short_gae_horizon(config: AllSections) -> tuple[bool, str]:
    advantage, max_length = config.advantage, config.rollout.max_length
    if advantage.kind != "gae" or advantage.gae_alpha is None:
        return False, ""
    horizon = advantage.gae_alpha * max_length
    return horizon < _FEW_TOKENS, (
        f"advantage.gae_alpha={advantage.gae_alpha:g} is meant for longer responses: at the "
        f"maximum length of {max_length} tokens lambda is {max(0.0, 1 - 1 / horizon):.2g}, so "
        "advantages look only a token or two ahead of the critic"
    )


def _combined_exploration(config: AllSections) -> Iterator[tuple[bool, str]]:
    """Combinations that act on the same entropy and have not been evaluated together."""
    loss, rare = config.loss, config.reweighting.alpha or config.reweighting.lopti_threshold
    higher = loss.kind in ("ppo_clip", "clip_cov") and (
        getattr(loss, "clip_high", 0.0) > getattr(loss, "clip_low", 0.0)
    )
    bonus = loss.entropy_coefficient > 0 or loss.entropy_target is not None
    yield (
        higher and (bonus or loss.kind == "clip_cov"),
        "loss.clip_high above loss.clip_low raises entropy, and so does "
        f"{'an entropy bonus' if bonus else loss.kind}: "
        "if the entropy explodes, remove one of them",
    )
    yield (
        rare is not None and (higher or loss.selects_by_covariance),
        "reweighting.alpha and reweighting.lopti_threshold favor likely tokens, "
        f"{loss.kind} here favors unlikely ones: the combination has not been evaluated",
    )
