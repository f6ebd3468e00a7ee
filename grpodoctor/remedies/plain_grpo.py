"""The settings of plain GRPO, as an example for remedies without a run."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.vocabulary.knobs import Setting

PLAIN_GRPO: Mapping[str, Setting] = {
    "loss": "ppo_clip",
    "clip_low": 0.2,
    "clip_high": 0.2,
    "aggregation": "sequence-mean",
    "advantage": "group",
    "correction": "none",
    "correction_cap": 3.0,
    "old_logprobs": "sampler",
    "dynamic_sampling": False,
    "overlong": "none",
    "overlong_buffer": 1024,
    "kl_coefficient": 0.0,
    "entropy_coefficient": 0.0,
    "learning_rate": 1e-6,
    "temperature": 1.0,
    "group_size": 4,
    "prompts_per_batch": 32,
    "updates_per_batch": 16,
    "max_length": 8192,
    "sampler_sync_every": 4,
    "routing_replay": "none",
}
"""Plain GRPO as frameworks ship it, with several updates per batch and a stale sampler, so that
every remedy that changes a knob has one to change."""
