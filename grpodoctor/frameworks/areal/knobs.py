"""AReaL: overrides of its configuration, checked against 2.0."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.knob_spelling import (
    Spelled,
    Table,
    always,
    choice,
    fixed,
    known,
    lacks,
    same,
)
from grpodoctor.vocabulary.knobs import Setting

_NAME = "AReaL"
_REJECTION = "actor.rejection_sampling"


def _truncated(_: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    return (
        Spelled("actor.use_decoupled_loss", "true"),
        Spelled(f"{_REJECTION}.level", "token"),
        Spelled(f"{_REJECTION}.action", "clamp"),
        Spelled(f"{_REJECTION}.metric", "ratio"),
        Spelled(f"{_REJECTION}.upper", known(knobs, "correction_cap", "2")),
    )


def _group_norm(std_level: str) -> tuple[Spelled, ...]:
    return (
        Spelled("actor.reward_norm.mean_level", "group"),
        Spelled("actor.reward_norm.std_level", std_level),
    )


def _soft_overlong(_: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    buffer = known(knobs, "overlong_buffer", "<a fifth of the limit>")
    return (
        Spelled("actor.overlong_reward_penalty", "true"),
        Spelled("actor.overlong_tokens", buffer),
        Spelled("actor.overlong_penalty_factor", "1.0"),
    )


TABLE: Table = {
    "loss": choice(
        {
            "ppo_clip": (
                Spelled("actor.importance_sampling_level", "token"),
                Spelled("actor.use_cispo_loss", "false"),
                Spelled("actor.use_sapo_loss", "false"),
            ),
            "gspo": (
                Spelled(
                    "actor.importance_sampling_level",
                    "sequence",
                    "weighs responses by their tokens",
                ),
            ),
        },
        lacks(_NAME, "see actor for the variants that it has"),
    ),
    "clip_low": same("actor.eps_clip"),
    "clip_high": same("actor.eps_clip_higher"),
    "aggregation": choice(
        {"token-mean": fixed("AReaL always averages over all tokens of the batch")},
        lacks(_NAME, "the loss is always averaged over all tokens of the batch"),
    ),
    "advantage": choice(
        {"group": _group_norm("group"), "centred": _group_norm("null")},
        lacks(_NAME, "use actor.reward_norm and actor.adv_norm"),
    ),
    "correction": choice(
        {"none": (Spelled(_REJECTION, "null"),), "tis_token": _truncated},
        lacks(_NAME, f"see {_REJECTION} for the corrections that it has"),
    ),
    "correction_cap": same(f"{_REJECTION}.upper"),
    "old_logprobs": choice(
        {
            "recompute": (
                Spelled("actor.recompute_logprob", "true"),
                Spelled("actor.prox_logp_method", "recompute"),
            ),
            "sampler": (
                Spelled("actor.recompute_logprob", "false"),
                Spelled("actor.use_decoupled_loss", "false"),
            ),
        },
        lacks(_NAME, "use actor.recompute_logprob"),
    ),
    "dynamic_sampling": choice(
        {False: fixed("leave out dynamic_filter_fn")},
        lacks(
            _NAME,
            "pass a dynamic_filter_fn that drops groups without variance to trainer.train()",
        ),
    ),
    "overlong": choice(
        {
            "none": (Spelled("actor.overlong_reward_penalty", "false"),),
            "mask": lacks(
                _NAME,
                "actor.mask_no_eos_with_zero gives truncated responses a reward of zero, "
                "which is not a mask of the loss",
            ),
            "soft-punishment": _soft_overlong,
        },
        lacks(_NAME, "use actor.overlong_reward_penalty"),
    ),
    "overlong_buffer": same("actor.overlong_tokens"),
    "kl_coefficient": same("actor.kl_ctl", "in the reward"),
    "entropy_coefficient": lacks(_NAME, "raise actor.eps_clip_higher or gconfig.temperature"),
    "learning_rate": same("actor.optimizer.lr"),
    "temperature": same("gconfig.temperature"),
    "group_size": same("gconfig.n_samples"),
    "prompts_per_batch": same("train_dataset.batch_size"),
    "updates_per_batch": same("actor.ppo_n_minibatches"),
    "max_length": same("gconfig.max_new_tokens"),
    "routing_replay": choice(
        {
            "none": (Spelled("rollout.return_routed_experts", "false"),),
            "R3": (
                Spelled(
                    "rollout.return_routed_experts",
                    "true",
                    "it captures them; check that your version's engine replays them",
                ),
            ),
        },
        lacks(_NAME, "rollout.return_routed_experts captures the sampler's routing, R3"),
    ),
    "sampler_sync_every": fixed(
        "weights are synced at every step; bound staleness with rollout.max_head_offpolicyness=0"
    ),
}


def _layout(setting: Setting, _: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    note = "or sglang; d is the number of replicas"
    return (Spelled("rollout.backend", f"vllm:d<replicas>t{setting}", note),)


ENGINES: Table = {
    "sampler_dtype": same("vllm.dtype", "or sglang.dtype"),
    "learner_dtype": same("actor.dtype"),
    "float32_head": lacks(_NAME, "the head computes in vllm.dtype or sglang.dtype"),
    "sampler_tensor_parallel": _layout,
    "unquantised_sampler": fixed("give the sampler a checkpoint that is not quantised"),
    "unquantised_cache": always(Spelled("sglang.kv_cache_dtype", "auto", "vLLM's is always so")),
    "whole_distribution": always(
        Spelled("gconfig.top_p", "1.0"), Spelled("gconfig.top_k", "100000000")
    ),
    "processed_logprobs": fixed("SGLang gives processed log-probabilities by default"),
    "no_prefix_cache": always(
        Spelled("vllm.no_enable_prefix_caching", "true", "or sglang.disable_radix_cache=true")
    ),
    "balanced_routers": lacks(_NAME, "train with a lower learning rate instead"),
}
