"""tinker-cookbook: arguments of its recipes, checked against v0.5.5.

The loss runs on a server. The client can change only what the server offers.
"""

from __future__ import annotations

from grpodoctor.frameworks.knob_mapping import (
    KnobMapping,
    KnobTable,
    always,
    nothing_to_set,
    unsupported,
)
from grpodoctor.frameworks.tinker_cookbook.methods import DEFAULTS, FACTS, METHODS
from grpodoctor.frameworks.written_settings import (
    NothingToSet,
    Raw,
    SettingLine,
    Settings,
    Syntax,
    Unsupported,
    WithNote,
    format_setting,
)
from grpodoctor.vocabulary.knobs import Setting

_SHAPE_REWARD = Unsupported("shape your own reward in the environment")
_SERVER = Unsupported("the server runs sampler and learner, and the client cannot change this")


def _clip(_: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
    low, high = (
        float(value) if isinstance(value := knobs.get(name, 0.2), int | float) else 0.2
        for name in ("clip_low", "clip_high")
    )
    bounds = {"clip_low_threshold": 1 - low, "clip_high_threshold": 1 + high}
    text = ", ".join(f'"{key}": {format_setting(round(bound, 6))}' for key, bound in bounds.items())
    return (
        SettingLine("loss_fn", '"ppo"', "the default loss, importance_sampling, does not clip"),
        SettingLine("loss_fn_config", f"{{{text}}}", "limits of the ratio itself"),
    )


_MAPPINGS = (
    KnobMapping("loss", "loss_fn", reads=False, values={"ppo_clip": "ppo"},
        write=Unsupported("see loss_fn for the variants that the server offers")),
    KnobMapping("clip_low", write=_clip),
    KnobMapping("clip_high", write=_clip),
    unsupported("aggregation", "the server sums over tokens, and the client cannot change this"),
    always("advantage", "centred", "tinker-cookbook never divides by the standard deviation",
        "advantages are always the reward minus the group's mean"),
    unsupported("correction",
        "every loss_fn takes its ratio to the sampler, so there is no second weight"),
    unsupported("correction_cap", "the loss bounds the ratio to the sampler: clip_high_threshold"),
    always("old_logprobs", "sampler", "tinker-cookbook always uses the sampler's log-probabilities",
        "the ratio always uses the sampler's log-probabilities"),
    KnobMapping("dynamic_sampling", "remove_constant_reward_groups", reads=False,
        values={True: WithNote(True, "drops groups and does not replace them"), False: False}),
    KnobMapping("overlong",
        values={"none": NothingToSet("tinker-cookbook treats truncated responses like all others")},
        write=_SHAPE_REWARD),
    KnobMapping("overlong_buffer", write=_SHAPE_REWARD),
    KnobMapping("kl_coefficient", "kl_penalty_coef", default=0.0, note="in the reward"),
    unsupported("entropy_coefficient", "raise clip_high_threshold or temperature instead"),
    KnobMapping("learning_rate", "learning_rate"),
    KnobMapping("temperature", "temperature", default=1.0),
    KnobMapping("group_size", "group_size"),
    KnobMapping("prompts_per_batch", "groups_per_batch"),
    KnobMapping("updates_per_batch", "num_substeps", default=1),
    KnobMapping("max_length", "max_tokens"),
    always("routing_replay", "none", "tinker-cookbook never replays routing",
        "the server decides; the client cannot replay routing"),
    nothing_to_set("sampler_sync_every",
        "tinker-cookbook creates a new sampler at every step; with async_config, limit staleness "
        "with async_config.max_steps_off_policy"),
)

_ENGINE_SETTINGS = (
    KnobMapping("sampler_dtype", write=_SERVER),
    KnobMapping("learner_dtype", write=_SERVER),
    KnobMapping("float32_head", write=_SERVER),
    KnobMapping("sampler_tensor_parallel", write=_SERVER),
    KnobMapping("unquantized_sampler", write=_SERVER),
    KnobMapping("unquantized_cache", write=_SERVER),
    nothing_to_set("whole_distribution", "its recipes sample with neither top-p nor top-k"),
    KnobMapping("one_temperature", "temperature", write=Raw("1.0"),
        note="the server scores at temperature 1"),
    unsupported("processed_logprobs", "sample at temperature=1.0, where both are the same"),
    KnobMapping("no_prefix_cache", write=_SERVER),
    KnobMapping("small_micro_batch", write=_SERVER),
    KnobMapping("gradient_checkpointing", write=_SERVER),
    KnobMapping("sampler_memory", write=_SERVER),
    KnobMapping("balanced_routers", write=_SERVER),
)

KNOBS = KnobTable(
    title="tinker-cookbook",
    syntax=Syntax(capital_booleans=True, quotes=True),
    mappings=_MAPPINGS,
    engine_settings=_ENGINE_SETTINGS,
    methods=METHODS,
    facts=FACTS,
    defaults=DEFAULTS,
    checkpoint_interval="save_every",
)
