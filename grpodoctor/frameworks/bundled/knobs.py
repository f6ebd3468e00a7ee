"""The bundled trainer: dotted keys of its configuration, for `--set` and TOML alike.

The trainer reads `KEYS` to find its way from a knob to its own setting; the values are the same on
both sides.
"""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.knob_spelling import (
    Spelled,
    Table,
    always,
    choice,
    fixed,
    lacks,
    same,
)
from grpodoctor.vocabulary.knobs import KNOBS

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

_RESTART = "not in flight: restart the run with it"

TABLE: Table = {knob: same(key, "" if KNOBS[knob].live else _RESTART) for knob, key in KEYS.items()}

ENGINES: Table = {
    "sampler_dtype": always(Spelled("engine.precision", "learner", _RESTART)),
    "learner_dtype": choice(
        {dtype: same("model.dtype", _RESTART) for dtype in ("float32", "bfloat16")},
        lacks("the bundled trainer", "model.dtype takes float32 or bfloat16"),
    ),
    "float32_head": fixed("with engine.precision=learner the head is the learner's own"),
    "sampler_tensor_parallel": same("engine.tensor_parallel", _RESTART),
    "unquantised_sampler": always(Spelled("engine.precision", "learner", _RESTART)),
    "unquantised_cache": fixed("the bundled trainer never quantises the cache"),
    "whole_distribution": fixed("the bundled trainer always samples from all tokens"),
    "processed_logprobs": fixed("it always asks for processed log-probabilities"),
    "no_prefix_cache": fixed("the bundled trainer empties the cache at every weight sync"),
    "balanced_routers": lacks("the bundled trainer", "lower optimizer.learning_rate instead"),
}
