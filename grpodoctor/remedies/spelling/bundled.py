"""The bundled trainer: dotted keys of its configuration, for `--set` and TOML alike.

The trainer reads `KEYS` to find its way from a knob to its own setting; the values are the same on
both sides.
"""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.spelling.table import Table, same
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
    "learning_rate": "optimiser.learning_rate",
    "temperature": "rollout.temperature",
    "group_size": "rollout.group_size",
    "prompts_per_batch": "rollout.prompts_per_batch",
    "updates_per_batch": "optimiser.updates_per_batch",
    "max_length": "rollout.max_length",
    "routing_replay": "engine.routing_replay",
    "sampler_sync_every": "engine.sync_every",
}
"""Dotted key of each canonical knob."""

_RESTART = "not in flight: restart the run with it"

TABLE: Table = {knob: same(key, "" if KNOBS[knob].live else _RESTART) for knob, key in KEYS.items()}
