"""tinker-cookbook: arguments of its recipes, checked against v0.5.5.

The loss runs on a server, and the client cannot change what the server does not offer.
"""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.knob_spelling import Spelled, Table, choice, fixed, lacks, same, written
from grpodoctor.vocabulary.knobs import Setting

_NAME = "tinker-cookbook"
_REWARD = "shape your own reward in the environment"


def _clip(_: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
    low, high = (
        float(value) if isinstance(value := knobs.get(name, 0.2), int | float) else 0.2
        for name in ("clip_low", "clip_high")
    )
    bounds = {"clip_low_threshold": 1 - low, "clip_high_threshold": 1 + high}
    text = ", ".join(f'"{key}": {written(round(bound, 6))}' for key, bound in bounds.items())
    return (
        Spelled("loss_fn", '"ppo"', "the default importance_sampling has no clip"),
        Spelled("loss_fn_config", f"{{{text}}}", "bounds of the ratio itself, not of its distance"),
    )


TABLE: Table = {
    "loss": choice(
        {"ppo_clip": (Spelled("loss_fn", '"ppo"'),)},
        lacks(_NAME, "see loss_fn for the variants that the server has"),
    ),
    "clip_low": _clip,
    "clip_high": _clip,
    "aggregation": lacks(_NAME, "the server sums over tokens; the client cannot change that"),
    "advantage": choice(
        {"centred": fixed("tinker-cookbook never divides by the standard deviation")},
        lacks(_NAME, "advantages are always the reward minus the group's mean"),
    ),
    "correction": lacks(
        _NAME, 'loss_fn="importance_sampling" weighs by learner over sampler, without a cap'
    ),
    "correction_cap": lacks(_NAME, 'loss_fn="cispo" caps its weight with clip_high_threshold'),
    "old_logprobs": choice(
        {"sampler": fixed("tinker-cookbook always uses the sampler's log-probabilities")},
        lacks(_NAME, "the ratio is always taken to the sampler's log-probabilities"),
    ),
    "dynamic_sampling": choice(
        {
            True: (
                Spelled("remove_constant_reward_groups", "True", "drops groups without refilling"),
            ),
            False: (Spelled("remove_constant_reward_groups", "False"),),
        },
        lacks(_NAME, "use remove_constant_reward_groups"),
    ),
    "overlong": choice({"none": fixed("nothing is done by itself")}, lacks(_NAME, _REWARD)),
    "overlong_buffer": lacks(_NAME, _REWARD),
    "kl_coefficient": same("kl_penalty_coef", "in the reward"),
    "entropy_coefficient": lacks(_NAME, "raise clip_high_threshold or temperature instead"),
    "learning_rate": same("learning_rate"),
    "temperature": same("temperature"),
    "group_size": same("group_size"),
    "prompts_per_batch": same("groups_per_batch"),
    "updates_per_batch": same("num_substeps"),
    "max_length": same("max_tokens"),
    "routing_replay": choice(
        {"none": fixed("tinker-cookbook never replays any routing")},
        lacks(_NAME, "the server decides; the client cannot replay any routing"),
    ),
    "sampler_sync_every": fixed(
        "a fresh sampler is made at every step; with async_config bound staleness with "
        "async_config.max_steps_off_policy"
    ),
}

_SERVED = "the server runs both sides, and the client cannot change that"

ENGINES: Table = {
    "sampler_dtype": lacks(_NAME, _SERVED),
    "learner_dtype": lacks(_NAME, _SERVED),
    "float32_head": lacks(_NAME, _SERVED),
    "sampler_tensor_parallel": lacks(_NAME, _SERVED),
    "unquantised_sampler": lacks(_NAME, _SERVED),
    "unquantised_cache": lacks(_NAME, _SERVED),
    "whole_distribution": fixed("its recipes sample with neither top-p nor top-k"),
    "processed_logprobs": lacks(_NAME, "sample at temperature=1.0, where both are the same"),
    "no_prefix_cache": lacks(_NAME, _SERVED),
    "balanced_routers": lacks(_NAME, _SERVED),
}
