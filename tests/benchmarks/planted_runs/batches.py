"""Sampling of a batch: prompts, responses, rewards and advantages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.planted_runs.parts import Array, Policy, Rewards, Task

Flags = NDArray[np.bool_]


def sigmoid(logits: Array) -> Array:
    """Probabilities from log-odds."""
    result: Array = 1 / (1 + np.exp(-np.clip(logits, -40, 40)))
    return result


@dataclass
class Batch:
    """Responses of one step, one row for each group."""

    chances: Array
    """Chance of each prompt to be solved."""
    solved: Flags
    """Solved before the limit or the environment interfered."""
    correct: Flags
    formed: Flags
    tricked: Flags
    length_noise: Array
    lengths: Array
    truncated: Flags
    looping: Flags
    calls: NDArray[np.int64]
    failures: NDArray[np.int64]
    errors: Flags
    aborted: Flags
    invalid: float
    ids: NDArray[np.int64]
    accepted: Flags
    """What the verifier calls correct; equal to `correct` until it is called."""


def coherence(entropy: float, start: float) -> float:
    """How much of the skill is left at an entropy: text far beyond the start is noise."""
    excess = entropy / start - 3
    return float(1 / (1 + np.exp(np.clip(2.5 * excess, -30, 30)))) if excess > -2 else 1.0


def sameness(entropy: float, start: float) -> float:
    """The share of groups whose responses are identical, at an entropy."""
    return float(np.clip(1 - entropy / (0.1 * start), 0, 1))


def sample(
    random: np.random.Generator,
    policy: Policy,
    task: Task,
    difficulties: Array,
    ids: NDArray[np.int64],
    group: int,
    limit: int,
    start_entropy: float,
) -> Batch:
    """Sample a group of responses to each prompt."""
    shape = (len(ids), group)
    memory = policy.memory[ids] if len(policy.memory) > 1 else 0.0
    logits = policy.skill - difficulties[ids] - task.shift + memory
    chances = sigmoid(logits) * coherence(policy.entropy, start_entropy)
    solved = random.random(shape) < chances[:, None]
    formed = random.random(shape) < sigmoid(np.array(policy.form))
    tricked = random.random(shape) < sigmoid(np.array(policy.trick))
    noise = random.normal(0, 1, shape)
    endless = random.random(shape) < policy.endless
    looping = random.random(shape) < policy.loops
    copied = random.random(len(ids)) < max(task.copies, sameness(policy.entropy, start_entropy))
    for column in (solved, formed, tricked, noise, endless, looping):
        column[copied] = column[copied, :1]
    hardness = difficulties[ids] - difficulties.mean()
    logs = policy.log_length + 0.1 * hardness[:, None] + task.length_spread * noise
    lengths = np.exp(logs + policy.wrong_extra * ~solved)
    lengths[endless | looping] = limit
    truncated = lengths >= limit
    lengths = np.round(np.clip(lengths, 1, limit))
    calls = random.poisson(task.calls, shape)
    failures = random.binomial(calls, task.call_failures)
    unhelped = random.random(shape) < failures / np.maximum(calls, 1)
    errors = random.random(shape) < task.errors
    aborted = random.random(shape) < task.aborted
    rejected = random.random(shape) < task.invalid
    lengths[aborted] = 0
    broken = truncated | unhelped | errors | aborted | rejected
    return Batch(
        chances, solved, solved & ~broken, formed & ~truncated & ~aborted, tricked & ~truncated,
        noise, lengths, truncated, looping, calls, failures, errors, aborted,
        float(np.clip(task.invalid + random.normal(0, 0.005), 0, 1)), ids, solved & ~broken,
    )  # fmt: skip


def rewards_of(
    random: np.random.Generator, batch: Batch, rewards: Rewards, start_length: float
) -> tuple[Array, dict[str, Array]]:
    """The reward of each response and its parts."""
    shape = batch.correct.shape
    accepted = batch.correct & (random.random(shape) >= rewards.rejects)
    accepted |= ~batch.correct & (random.random(shape) < rewards.accepts)
    if rewards.fooled:
        accepted |= batch.tricked
    tossed = random.random(shape) < rewards.coin
    accepted = np.where(tossed, random.random(shape) < 0.5, accepted)
    verdict = np.where(accepted, rewards.correct, rewards.incorrect)
    if rewards.smooth:
        graded = rewards.smooth * random.normal(0, 1, shape)
        verdict = verdict + np.where(batch.errors | batch.aborted, 0.0, graded)
    parts = {"correct": verdict}
    if rewards.form_weight:
        parts["format"] = rewards.form_weight * batch.formed
    if rewards.length_weight:
        doublings = np.clip(np.log2(np.maximum(batch.lengths, 1) / start_length), -4, 4)
        parts["length"] = rewards.length_weight * doublings
    total = sum(parts.values()) * rewards.scale
    unscored = random.random(shape) < rewards.outage
    total = np.where(unscored, rewards.outage_reward, total)
    batch.accepted = accepted & ~unscored
    if rewards.constant is not None:
        batch.accepted = np.full(shape, rewards.constant > 0.5)
        total = np.full(shape, rewards.constant)
        parts = {"correct": total}
    return total, parts


def advantages_of(rewards: Array, kind: str) -> Array:
    """The advantage of each response."""
    if kind == "raw":
        return rewards
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    std = rewards.std(axis=1, keepdims=True)
    scaled = np.where(std > 1e-8, centred / (std + 1e-6), 0.0)
    return -scaled if kind == "flipped" else scaled
