"""A change of knobs, written as the settings of a framework."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.knob_mapping import one_line_per_key
from grpodoctor.frameworks.registry import configurable_frameworks, find_framework
from grpodoctor.frameworks.written_settings import SettingLine, format_setting
from grpodoctor.support.suggestions import check_name
from grpodoctor.vocabulary.knobs import KNOBS, Setting
from grpodoctor.vocabulary.plain_names import plain_name

ENGINE_SETTINGS: Mapping[str, str] = {
    "sampler_dtype": "The sampler's compute dtype, as torch names it.",
    "learner_dtype": "The learner's compute dtype.",
    "float32_head": "The sampler's output head in float32.",
    "sampler_tensor_parallel": "Tensor-parallel size of the sampler.",
    "unquantized_sampler": "The sampler's weights in the learner's precision.",
    "unquantized_cache": "The sampler's key-value cache in the model's precision.",
    "whole_distribution": "Sampling without top-p, top-k and min-p.",
    "one_temperature": "The learner's log-probabilities at the sampling temperature.",
    "processed_logprobs": "Log-probabilities after the temperature, of the sampled distribution.",
    "no_prefix_cache": "No prefix cache.",
    "small_micro_batch": "One response, or few tokens, per pass of the learner.",
    "gradient_checkpointing": "Activations are computed again in the backward pass.",
    "sampler_memory": "A smaller share of the GPU memory for the sampler.",
    "balanced_routers": "Weight of the auxiliary loss that balances the load of the experts.",
}
"""Settings of the two engines that a probe or a remedy asks for. No log holds them, and a change
requires a restart. Every framework has a row for each in `KnobTable.engine_settings`."""

METHOD_SETTINGS: Mapping[str, str] = {
    "advantage_reweighting": "Advantages scaled by 1 - value + value times the old probability.",
    "critic_pretraining": "Steps in which only the critic learns.",
    "default_adam": "Adam's beta1 of 0.9, beta2 of 0.999 and epsilon of 1e-8.",
    "divergence_limit": "Largest change of a token's probability before the loss masks it.",
    "drift_penalty": "Weight of the squared log-ratio to the sampler.",
    "drop_failed_rollouts": "Rollouts that a tool or the environment ended stay out of the loss.",
    "float32_weights": "The learner's weights in float32.",
    "forking_tokens": "Share of the tokens, by entropy, that keep their policy gradient.",
    "gae_lambda": "Lambda of generalised advantage estimation, for policy and critic.",
    "kl_estimator": "Estimator of the KL penalty in the loss.",
    "kl_in_loss": "Weight of the KL penalty in the loss, for frameworks that choose the place.",
    "kl_in_reward": "Weight of the KL penalty in the reward, estimated with k1.",
    "lopti": "Probability below which tokens are updated first.",
    "mask_tool_tokens": "Tokens of tools and environments stay out of the loss.",
    "no_kl_in_reward": "No KL penalty in the reward; the one in the loss stays.",
    "no_repetition_penalty": "Sampling without a penalty on repeated tokens.",
    "pass_rate_filter": "Prompts with a pass rate of 20 to 80 % only.",
    "repetition_penalty": "Largest penalty on repeated 3-grams in the reward.",
    "router_loss": "Weight of the routers' auxiliary loss.",
    "staleness_limit": "Largest age of a sample, in steps.",
    "value_clip": "Largest change of a value on one batch.",
    "whitened_advantages": "GAE advantages of mean 0 and standard deviation 1 over the batch.",
}
"""Settings of published methods that are not knobs: a change requires a restart. A framework has a
row in `KnobTable.methods` for those that it supports, or for which it offers something else."""

OPTIONS: Mapping[str, str] = {
    "divergence_limit": METHOD_SETTINGS["divergence_limit"],
    "log_clip": "Bound on the log-ratio of a token, of GMPO.",
    "overlong_weight": "Weight of the soft overlong punishment.",
    "second_moment_limit": "Largest mean of the squared log-ratio of unmasked tokens, of M2PO.",
    "tau_negative": "Steepness of SAPO's gate for negative advantages.",
    "tau_positive": "Steepness of SAPO's gate for positive advantages.",
    "variance_of": "What must vary within a group that dynamic sampling keeps.",
    "vespo_k_negative": "k of the VESPO weight for negative advantages.",
    "vespo_k_positive": "k of the VESPO weight for positive advantages.",
    "vespo_lambda_negative": "Lambda of the VESPO weight for negative advantages.",
    "vespo_lambda_positive": "Lambda of the VESPO weight for positive advantages.",
}
"""Options of a loss or of another knob's value: the row of that value writes them, as `Option`."""


def framework_settings(
    changes: Mapping[str, Setting], framework: str, knobs: Mapping[str, Setting] | None = None
) -> list[SettingLine]:
    """Write a change of knobs, engine settings or method settings in the framework's own keys.

    Args:
        changes: canonical knobs and their new values; an engine setting without a value is set to
            True.
        framework: its name. For an unknown one, which may come from a log, each knob gets a note.
        knobs: the other knobs in force, for settings that depend on them.

    Raises:
        ConfigError: if a changed knob is not in the vocabulary.
    """
    known = find_framework(framework, configurable_frameworks())
    if known is None:
        name = "--framework NAME shows the keys of a framework"
        return [
            SettingLine("", "", f"set {plain_name(knob)} to {format_setting(value)}; {name}")
            for knob, value in changes.items()
        ]
    in_force = {**(knobs or {}), **changes}
    known_names = (*KNOBS, *ENGINE_SETTINGS, *METHOD_SETTINGS)
    lines: list[SettingLine] = []
    for knob, setting in changes.items():
        check_name(knob, known_names, "knob", where=f"settings of {known.name}")
        lines += known.knobs.lines(knob, setting, in_force)
    return one_line_per_key(lines)
