"""Quantities of single tokens: the gap between sampler and learner, and the importance ratios."""

from __future__ import annotations

import numpy as np

from tests.benchmarks.planted_runs.parts import Array

COUNT = 2400
_FAR = 0.2
_CAP = 2.0


def draw_probabilities(random: np.random.Generator, entropy: float) -> Array:
    """Probabilities of sampled tokens: few uncertain ones, more with a higher entropy."""
    uncertain = random.random(COUNT) < min(entropy / 0.9, 1.0)
    probabilities = 1 - 10.0 ** -random.uniform(2, 6, COUNT)
    lowest = min(0.3, 0.03 / max(entropy, 0.03))
    probabilities[uncertain] = random.uniform(lowest, 0.97, int(uncertain.sum()))
    return probabilities


def gap(
    random: np.random.Generator, learner: Array, noise: float, stale: float, temperature: float
) -> Array:
    """Log-probability of the sampler minus that of the learner, for each token.

    Args:
        random: source of randomness.
        learner: the learner's probabilities.
        noise: mean absolute difference of engines with equal weights at an entropy of 0.4.
        stale: standard deviation of the log-ratio between the two versions of the weights.
        temperature: of the sampler, relative to the learner's.
    """
    free = 1 - learner
    heavy = np.clip(random.standard_t(2.2, COUNT), -30, 30)
    errors = noise * 2.6 * free * heavy
    # Tokens that the sampler makes unlikely are rarely sampled: the mean weight stays at 1.
    gaps = np.where(errors > 0, errors, -np.log1p(np.maximum(-errors, 0)))
    moved = stale * 2 * np.sqrt(free)
    gaps += random.normal(0, 1, COUNT) * moved + moved**2 / 2
    if temperature != 1:
        sharper = 1 / temperature - 1
        surprise = -np.log(learner)
        likely = random.random(COUNT) < 0.5
        gaps += sharper * (np.where(likely, 0.6, -0.35) * surprise)
        gaps += 0.5 * sharper**2 * surprise
    gaps += np.log(np.exp(-np.clip(gaps, -20, 20)).mean())
    return np.minimum(gaps, -np.log(np.clip(learner, 1e-9, 1 - 1e-9)))


def mismatch(gaps: Array, learner: Array) -> dict[str, float]:
    """What a framework measures of the gap."""
    gaps = np.clip(gaps, -20, 20)
    weights = np.exp(-gaps)
    sampler = learner * np.exp(gaps)
    differences = np.abs(learner - sampler)
    correlation = np.corrcoef(learner, sampler)[0, 1]
    return {
        "logprob_diff": float(np.abs(gaps).mean()),
        "logprob_diff_max": float(np.abs(gaps).max()),
        "prob_diff": float(differences.mean()),
        "prob_diff_max": float(differences.max()),
        "far_moved": float((differences > _FAR).mean()),
        "pearson": float(correlation),
        "engine_k1": float(gaps.mean()),
        "engine_k2": float((gaps**2).mean() / 2),
        "engine_kl": float((weights - 1 + gaps).mean()),
        "engine_chi2": float((weights**2).mean() - 1),
        "weight": float(np.minimum(weights, _CAP).mean()),
    }


def ratios(
    random: np.random.Generator, learner: Array, moved: float, wrong_old: float
) -> dict[str, float]:
    """Clip fractions and the KL to the old policy.

    Args:
        random: source of randomness.
        learner: the learner's probabilities.
        moved: standard deviation of the log-ratio within a batch; 0 with one update per batch.
        wrong_old: error of the old log-probabilities.
    """
    if not moved and not wrong_old:
        return dict.fromkeys(("clipped", "clip_low", "clip_high", "old_kl"), 0.0) | {
            "max_ratio": 1.0
        }
    free = np.sqrt(1 - learner)
    scale = 2 * moved * free
    logs = scale * np.clip(random.standard_t(5, COUNT), -15, 15) - scale**2 / 2
    logs += wrong_old * free * random.normal(0, 1, COUNT) * 2
    logs = np.clip(logs, -20, 20)
    positive = random.random(COUNT) < 0.5
    low = float(((logs < np.log(0.8)) & ~positive).mean())
    high = float(((logs > np.log(1.2)) & positive).mean())
    return {
        "clipped": low + high,
        "clip_low": low,
        "clip_high": high,
        "old_kl": float(-logs.mean()),
        "max_ratio": float(np.exp(logs.max())),
    }
