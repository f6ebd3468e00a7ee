"""What a framework measures of a batch, by the quantities' names."""

from __future__ import annotations

import numpy as np

from tests.benchmarks.planted_runs.batches import Batch, sample
from tests.benchmarks.planted_runs.parts import Array, Policy, Rewards, Task


def rollout_measures(
    batch: Batch,
    rewards: Array,
    parts: dict[str, Array],
    advantages: Array,
    function: Rewards,
    generated: float,
) -> dict[str, float]:
    """Rewards, groups, advantages and lengths of a batch."""
    values = _reward_measures(batch, rewards, parts, function)
    weights = np.maximum(batch.lengths, 1)
    values["max_advantage"] = float(advantages.max())
    values["min_advantage"] = float(advantages.min())
    values["mean_advantage"] = float((advantages * weights).sum() / weights.sum())
    values |= _length_measures(batch)
    calls = int(batch.calls.sum())
    values["tool_calls"] = float(batch.calls.mean())
    values["tool_failures"] = float(batch.failures.sum() / calls) if calls else 0.0
    values["errors"] = float(batch.errors.mean())
    values["aborted"] = float(batch.aborted.mean())
    values["invalid_actions"] = batch.invalid
    values["repetition"] = float(batch.looping.mean())
    values["generated_per_kept"] = generated
    return values


def _reward_measures(
    batch: Batch, rewards: Array, parts: dict[str, Array], function: Rewards
) -> dict[str, float]:
    uniform = np.ptp(rewards, axis=1) < 1e-9
    middle = (function.correct + function.incorrect) / 2 * function.scale
    good = uniform & (rewards[:, 0] > middle)
    bad = uniform & ~good
    mixed = rewards[~uniform]
    values = {
        "reward": float(rewards.mean()),
        "reward_std": float(rewards.std()),
        "group_std": float(rewards.std(axis=1).mean()),
        "max_reward": float(rewards.max()),
        "min_reward": float(rewards.min()),
        "zero_variance": float(uniform.mean()),
        "mixed": float(1 - uniform.mean()),
        "all_correct": float(good.mean()),
        "all_incorrect": float(bad.mean()),
        "incorrect_reward": float(rewards[bad].mean()) if bad.any() else function.incorrect,
        "correct_reward": float(rewards[good].mean()) if good.any() else function.correct,
        "accuracy": float(batch.accepted.mean()),
        "kept_reward": 10 * float(mixed.mean()) if len(mixed) else 0.0,
        "kept_accuracy": float(batch.accepted[~uniform].mean()) if len(mixed) else 0.0,
    }
    for name, part in parts.items():
        values[f"component/{name}/mean"] = float(part.mean())
        values[f"component/{name}/std"] = float(part.std())
    return values


def _length_measures(batch: Batch) -> dict[str, float]:
    lengths = batch.lengths
    ended = lengths[~batch.truncated]
    values = {
        "length": float(lengths.mean()),
        "max_length": float(lengths.max()),
        "min_length": float(lengths.min()),
        "truncated": float(batch.truncated.mean()),
        "terminated_length": float(ended.mean()) if len(ended) else 0.0,
    }
    if batch.accepted.any():
        values["length_correct"] = float(lengths[batch.accepted].mean())
    if not batch.accepted.all():
        values["length_incorrect"] = float(lengths[~batch.accepted].mean())
    return values


def heldout_score(
    random: np.random.Generator,
    policy: Policy,
    task: Task,
    difficulties: Array,
    limit: int,
    start_entropy: float,
) -> float:
    """Share of held-out prompts that the policy solves, by a strict verifier."""
    stranger = policy.copy()
    stranger.memory = np.zeros(1)
    world = Task(
        length_spread=task.length_spread, calls=task.calls, call_failures=task.call_failures
    )
    ids = np.arange(len(difficulties))
    batch = sample(random, stranger, world, difficulties, ids, 1, limit, start_entropy)
    return float(batch.correct.mean())
