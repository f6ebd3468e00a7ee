"""Names of configuration keys: former spellings, and the keys of other trainers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from grpodoctor.support.suggestions import near_names

RENAMED_SECTIONS = {"optimiser": "optimizer"}
"""Former section names, which are still read."""

_OTHER_TRAINERS: Mapping[str, tuple[str, ...]] = {
    "actor_lr": ("optimizer.learning_rate",),
    "adam_beta1": ("optimizer.beta1",),
    "adam_beta2": ("optimizer.beta2",),
    "adam_epsilon": ("optimizer.epsilon",),
    "adam_eps": ("optimizer.epsilon",),
    "adv_estimator": ("advantage.kind",),
    "advantage_estimator": ("advantage.kind",),
    "batch_size": ("rollout.prompts_per_batch", "optimizer.micro_batch"),
    "beta": ("loss.kl_coefficient",),
    "bf16": ("model.compute", "model.dtype"),
    "clip_grad": ("optimizer.max_grad_norm",),
    "clip_ratio": ("loss.clip_low", "loss.clip_high"),
    "clip_ratio_c": ("loss.dual_clip",),
    "clip_ratio_high": ("loss.clip_high",),
    "clip_ratio_low": ("loss.clip_low",),
    "cliprange": ("loss.clip_low", "loss.clip_high"),
    "cliprange_value": ("critic.value_clip",),
    "dataset": ("task.data", "task.name"),
    "dataset_name": ("task.data", "task.name"),
    "delta": ("loss.dual_clip",),
    "entropy_coef": ("loss.entropy_coefficient",),
    "entropy_coeff": ("loss.entropy_coefficient",),
    "epochs": ("optimizer.epochs", "steps"),
    "eps_clip": ("loss.clip_low", "loss.clip_high"),
    "epsilon": ("loss.clip_low", "loss.clip_high"),
    "epsilon_high": ("loss.clip_high",),
    "eval_steps": ("evaluation.every",),
    "gamma": ("advantage.discount",),
    "gpu_memory_utilization": ("engine.memory_share",),
    "grad_clip": ("optimizer.max_grad_norm",),
    "gradient_accumulation_steps": ("optimizer.micro_batch",),
    "group_num": ("rollout.group_size",),
    "init_kl_coef": ("loss.kl_coefficient",),
    "kl_coef": ("loss.kl_coefficient",),
    "kl_loss_coef": ("loss.kl_coefficient",),
    "kl_loss_type": ("loss.kl_estimator",),
    "kl_penalty": ("loss.kl_estimator", "loss.kl_coefficient"),
    "lam": ("advantage.gae_lambda",),
    "lambda": ("advantage.gae_lambda",),
    "length_penalty": ("overlong.kind",),
    "lora_r": ("model.lora_rank",),
    "loss_agg_mode": ("loss.aggregation",),
    "loss_mode": ("loss.kind",),
    "loss_type": ("loss.kind", "loss.aggregation"),
    "lr": ("optimizer.learning_rate",),
    "lr_scheduler": ("optimizer.schedule",),
    "lr_scheduler_type": ("optimizer.schedule",),
    "lr_warmup_steps": ("optimizer.warmup_steps",),
    "mask_truncated_completions": ("overlong.kind",),
    "max_completion_length": ("rollout.max_length",),
    "max_new_tokens": ("rollout.max_length",),
    "max_response_length": ("rollout.max_length",),
    "max_steps": ("steps",),
    "max_tokens": ("rollout.max_length",),
    "micro_batch_size": ("optimizer.micro_batch",),
    "min_lr": ("optimizer.final_learning_rate",),
    "model_name": ("model.name",),
    "model_name_or_path": ("model.name",),
    "model_path": ("model.name",),
    "n": ("rollout.group_size",),
    "n_samples_per_prompt": ("rollout.group_size",),
    "norm_adv_by_std_in_grpo": ("advantage.kind",),
    "num_epochs": ("optimizer.epochs", "steps"),
    "num_generations": ("rollout.group_size",),
    "num_iterations": ("optimizer.updates_per_batch", "optimizer.epochs"),
    "num_samples": ("rollout.group_size",),
    "num_train_epochs": ("optimizer.epochs", "steps"),
    "overlong_filter": ("overlong.kind",),
    "per_device_train_batch_size": ("rollout.prompts_per_batch", "optimizer.micro_batch"),
    "policy_loss": ("loss.kind",),
    "ppo_epochs": ("optimizer.epochs",),
    "ppo_micro_batch_size": ("optimizer.micro_batch",),
    "ppo_micro_batch_size_per_gpu": ("optimizer.micro_batch",),
    "ppo_mini_batch_size": ("optimizer.updates_per_batch",),
    "repetition_penalty": ("repetition.penalty",),
    "reward_function": ("task.reward",),
    "reward_funcs": ("task.reward",),
    "rollout_batch_size": ("rollout.prompts_per_batch",),
    "rollout_is": ("correction.kind",),
    "rollout_is_threshold": ("correction.cap",),
    "rollout_n": ("rollout.group_size",),
    "router_replay": ("engine.routing_replay",),
    "save_freq": ("checkpoint.every",),
    "save_steps": ("checkpoint.every",),
    "save_total_limit": ("checkpoint.keep",),
    "scale_rewards": ("advantage.kind",),
    "stop_properly_penalty_coef": ("overlong.truncated_factor", "overlong.kind"),
    "steps_per_generation": ("optimizer.updates_per_batch",),
    "target_modules": ("model.lora_targets",),
    "tensor_model_parallel_size": ("engine.tensor_parallel",),
    "tensor_parallel_size": ("engine.tensor_parallel",),
    "test_freq": ("evaluation.every",),
    "top_entropy_quantile": ("reweighting.forking_share",),
    "total_steps": ("steps",),
    "total_training_steps": ("steps",),
    "train_batch_size": ("rollout.prompts_per_batch",),
    "train_file": ("task.data",),
    "use_vllm": ("engine.kind",),
    "vllm_importance_sampling_cap": ("correction.cap",),
    "vllm_importance_sampling_correction": ("correction.kind",),
    "warmup": ("optimizer.warmup_steps",),
    "wd": ("optimizer.weight_decay",),
}
"""Keys by the names that users of TRL, verl and other trainers type."""

_TYPO = 0.78
"""Smallest similarity of a typing error. Below it, short names that mean something else look alike:
`foo` and `floor` have 0.75; `clip_hi` and `clip_high` have 0.87."""


def rename_sections(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with former section names replaced; the present name wins if both are given."""
    renamed: dict[str, Any] = {}
    for section, fields in settings.items():
        name = RENAMED_SECTIONS.get(section, section)
        both = name != section and name in settings
        if both and isinstance(fields, Mapping) and isinstance(settings[name], Mapping):
            renamed[name] = {**fields, **settings[name]}
        elif not both and name not in renamed:
            renamed[name] = fields
    return renamed


def suggested_keys(key: str, known: Iterable[str]) -> list[str]:
    """The keys that a user may mean by an unknown key, the most likely first; at most three."""
    known = sorted(known, key=lambda each: each.startswith("critic."))  # its names are the policy's
    section, _, last = key.lower().rpartition(".")
    same_field = [each for each in known if _field(each) == last]
    near_sections = near_names(section, {each.rpartition(".")[0] for each in same_field})
    same_field.sort(key=lambda each: each.rpartition(".")[0] not in near_sections)
    meant = [*_OTHER_TRAINERS.get(last, ()), *same_field]
    if not meant:
        prefix = f"{section}." if section else ""
        candidates = [each for each in known if each.startswith(prefix)]
        by_field = {_field(each): each for each in reversed(candidates)}
        meant = [by_field[field] for field in near_names(last, by_field, _TYPO)]
    return list(dict.fromkeys(meant or near_names(key, known, _TYPO)))[:3]


def _field(key: str) -> str:
    return key.rpartition(".")[2]
