"""The quantities that frameworks log, computed from responses and log-probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.benchmarks.planted_mechanisms.learning import Positions
from tests.benchmarks.planted_mechanisms.world import Bools, Floats, Responses, Weights

if TYPE_CHECKING:
    from tests.benchmarks.planted_mechanisms.run import Run


def measured(
    run: Run,
    responses: Responses,
    rewards: Floats,
    parts: dict[str, Floats],
    advantages: Floats,
) -> dict[str, float]:
    """Rewards, groups, lengths and tools of a batch."""
    accepted = parts["correct"] > 0 if "correct" in parts else responses.correct
    lengths = _lengths(run, responses)
    values = _groups(run, rewards, accepted)
    values |= _length_measures(lengths, responses, accepted)
    for name, part in parts.items():
        values[f"component/{name}/mean"] = float(run.scale * part.mean())
        values[f"component/{name}/std"] = float(run.scale * part.std())
    values["max_advantage"] = float(advantages.max())
    values["min_advantage"] = float(advantages.min())
    values["mean_advantage"] = float((advantages * lengths).sum() / lengths.sum())
    values["accuracy"] = float(accepted.mean())
    values["truth"] = float(responses.correct.mean())
    values["prompt_length"] = float(run.prompt_tokens + run.random.normal(0, 3))
    calls = int(responses.calls.sum())
    values["tool_calls"] = float(responses.calls.mean())
    values["tool_failures"] = float(responses.failures.sum() / calls) if calls else 0.0
    values["turns"] = 1 + values["tool_calls"]
    values["repetition"] = float((responses.loops >= 4).mean())
    values["generated_per_kept"] = 1.0
    rollout = run.seconds * (0.3 + 0.7 * values["max_length"] / run.sizes.limit)
    values["rollout_seconds"] = rollout
    values["learn_seconds"] = 0.5 * run.seconds * values["length"] / run.sizes.limit
    values["seconds"] = rollout + values["learn_seconds"] + run.random.uniform(1, 3)
    return values


def _lengths(run: Run, responses: Responses) -> Floats:
    """Tokens of each response; a truncated one has exactly the limit."""
    chunk = run.sizes.chunk
    short = run.random.integers(0, chunk, len(responses.decisions))
    tokens = responses.decisions * chunk - short
    limit = run.sampling.most * chunk
    result: Floats = np.where(responses.truncated, limit, np.maximum(tokens, 1)).astype(float)
    return result


def _groups(run: Run, rewards: Floats, accepted: Bools) -> dict[str, float]:
    grouped = rewards.reshape(-1, run.sizes.group)
    right = accepted.reshape(-1, run.sizes.group)
    uniform = np.ptp(grouped, axis=1) < 1e-9
    good, bad = right.all(axis=1) & uniform, ~right.any(axis=1) & uniform
    other = uniform & ~good & ~bad
    kept = grouped[~uniform]
    values = {
        "reward": float(rewards.mean()),
        "reward_std": float(rewards.std()),
        "group_std": float(grouped.std(axis=1).mean()),
        "max_reward": float(rewards.max()),
        "min_reward": float(rewards.min()),
        "zero_variance": float(uniform.mean()),
        "mixed": float(1 - uniform.mean()),
        "all_correct": float(good.mean()),
        "all_incorrect": float(bad.mean()),
        "other_uniform": float(other.mean()),
        "kept_reward": 10 * float(kept.mean()) if len(kept) else 0.0,
        "kept_accuracy": float(right[~uniform].mean()) if len(kept) else 0.0,
    }
    for name, chosen in (("correct", good), ("incorrect", bad), ("other", other)):
        if chosen.any():
            values[f"{name}_reward"] = float(grouped[chosen].mean())
    return values


def _length_measures(lengths: Floats, responses: Responses, accepted: Bools) -> dict[str, float]:
    ended = lengths[~responses.truncated]
    values = {
        "length": float(lengths.mean()),
        "max_length": float(lengths.max()),
        "min_length": float(lengths.min()),
        "truncated": float(responses.truncated.mean()),
        "terminated_length": float(ended.mean()) if len(ended) else 0.0,
    }
    if accepted.any():
        values["length_correct"] = float(lengths[accepted].mean())
    if not accepted.all():
        values["length_incorrect"] = float(lengths[~accepted].mean())
    return values


def compared(at: Positions, weights: Weights, sampled: Floats, chunk: int) -> dict[str, float]:
    """Entropy of the learner, and the mismatch of the engines over all tokens.

    All tokens of a decision but one are certain for both engines, so means over decisions are
    divided by the tokens of a decision.
    """
    logprobs = at.logprobs(weights)
    entropy = float(-(np.exp(logprobs) * logprobs).sum(axis=1).mean()) / chunk
    gap = at.old - sampled
    ratio = np.exp(np.clip(gap, -20, 20))
    ours, theirs = np.exp(at.old), np.exp(sampled)
    difference = np.abs(ours - theirs)
    return {
        "entropy": entropy,
        "sampled_entropy": float(-at.old.mean()) / chunk,
        "logprob_diff": float(np.abs(gap).mean()) / chunk,
        "logprob_diff_max": float(np.abs(gap).max()),
        "prob_diff": float(difference.mean()) / chunk,
        "prob_diff_max": float(difference.max()),
        "far_moved": float((np.abs(ratio - 1) > 0.5).mean()) / chunk,
        "pearson": _pearson(ours, theirs, chunk),
        "engine_k1": float(-gap.mean()) / chunk,
        "engine_k2": float((gap**2).mean() / 2) / chunk,
        "engine_kl": float((ratio - gap - 1).mean()) / chunk,
        "engine_chi2": float((ratio**2).mean() - 1) / chunk,
        "weight": 1 + float((np.minimum(ratio, 2.0) - 1).mean()) / chunk,
    }


def _pearson(ours: Floats, theirs: Floats, chunk: int) -> float:
    """Correlation over all tokens, of which `chunk - 1` in `chunk` have probability 1 in both."""
    share = 1 / chunk
    a, b = share * ours.mean() + 1 - share, share * theirs.mean() + 1 - share

    def covariance(x: Floats, x_mean: float, y: Floats, y_mean: float) -> float:
        inner = share * float(((x - x_mean) * (y - y_mean)).mean())
        return inner + (1 - share) * (1 - x_mean) * (1 - y_mean)

    both = covariance(ours, a, theirs, b)
    spread = covariance(ours, a, ours, a) * covariance(theirs, b, theirs, b)
    return both / float(np.sqrt(spread)) if spread > 0 else 1.0
