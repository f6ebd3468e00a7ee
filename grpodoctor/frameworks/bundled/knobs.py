"""The bundled trainer's settings: dotted keys of its config, for `--set` and TOML alike.

The values are the knobs' own. The trainer uses `KEYS` to find its setting for a knob.
"""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.bundled.methods import FACTS, METHODS
from grpodoctor.frameworks.knob_mapping import KnobMapping, KnobTable, nothing_to_set, unsupported
from grpodoctor.frameworks.written_settings import Unsupported
from grpodoctor.vocabulary.knobs import KNOBS as CANONICAL

_RESTART = "takes effect after a restart"

KEYS: Mapping[str, str] = {
    "loss": "loss.kind",
    "clip_low": "loss.clip_low",
    "clip_high": "loss.clip_high",
    "aggregation": "loss.aggregation",
    "advantage": "advantage.kind",
    "correction": "correction.kind",
    "correction_cap": "correction.cap",
    "old_logprobs": "engine.old_logprobs",
    "dynamic_sampling": "rollout.dynamic_sampling",
    "overlong": "overlong.kind",
    "overlong_buffer": "overlong.buffer",
    "kl_coefficient": "loss.kl_coefficient",
    "entropy_coefficient": "loss.entropy_coefficient",
    "learning_rate": "optimizer.learning_rate",
    "temperature": "rollout.temperature",
    "group_size": "rollout.group_size",
    "prompts_per_batch": "rollout.prompts_per_batch",
    "updates_per_batch": "optimizer.updates_per_batch",
    "max_length": "rollout.max_length",
    "routing_replay": "engine.routing_replay",
    "sampler_sync_every": "engine.sync_every",
}
"""Dotted key of each canonical knob."""

KNOBS = KnobTable(
    title="the bundled trainer",
    checkpoint_interval="checkpoint.every",
    methods=METHODS,
    facts=FACTS,
    mappings=tuple(
        KnobMapping(knob, key, note="" if CANONICAL[knob].live else _RESTART)
        for knob, key in KEYS.items()
    ),
    engine_settings=(
        KnobMapping("sampler_dtype", "engine.precision", write="learner", note=_RESTART),
        KnobMapping("learner_dtype", "model.dtype",
            values={"float16": Unsupported("model.dtype takes float32 or bfloat16")},
            note=_RESTART),
        nothing_to_set("float32_head",
            "with engine.precision=learner the sampler uses the learner's head"),
        KnobMapping("sampler_tensor_parallel", "engine.tensor_parallel", note=_RESTART),
        KnobMapping("unquantized_sampler", "engine.precision", write="learner", note=_RESTART),
        nothing_to_set("unquantized_cache",
            "the bundled trainer never quantizes the key-value cache"),
        KnobMapping("whole_distribution", write={"rollout.top_p": "1.0", "rollout.top_k": "0"},
            note=_RESTART),
        KnobMapping("one_temperature", "rollout.temperature", write="1.0",
            note="remove engine.temperature, which changes the sampler only"),
        nothing_to_set("processed_logprobs",
            "the bundled trainer always requests processed log-probabilities"),
        nothing_to_set("no_prefix_cache",
            "the bundled trainer clears the prefix cache at every weight sync"),
        KnobMapping("small_micro_batch", "optimizer.micro_batch", write=1, note=_RESTART),
        KnobMapping("gradient_checkpointing", "model.gradient_checkpointing", note=_RESTART),
        KnobMapping("sampler_memory", "engine.memory_share", write=0.2,
            note="with vLLM; default 0.3"),
        unsupported("balanced_routers", "lower optimizer.learning_rate instead"),
    ),
)
