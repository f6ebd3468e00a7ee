"""A training run: sampling, rewards, updates and their measures, step by step.

The policy has few features: the log-odds to solve a prompt, to keep the format, to exploit a hole
of the verifier, the log length, the entropy. Each update moves a feature by the covariance of the
advantages with its noise, which is the policy gradient of a Bernoulli or a normal variable. A run
therefore learns what its rewards pay for: a verifier that pays nothing teaches nothing, one that
pays for the format teaches the format.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import numpy as np

from tests.benchmarks.planted_runs import tokens
from tests.benchmarks.planted_runs.batches import (
    Batch,
    Flags,
    advantages_of,
    rewards_of,
    sample,
    sigmoid,
)
from tests.benchmarks.planted_runs.measures import heldout_score, rollout_measures
from tests.benchmarks.planted_runs.parts import (
    Array,
    Engine,
    Learner,
    Policy,
    Rewards,
    Sizes,
    Task,
)

Change = Callable[["Simulation", int], None]
"""What a planted cause does before a step."""

_HISTORY = 64
"""Versions of the weights that a sampler may hold."""
_MOST_ENTROPY = 9.5
_MOST_BATCHES = 6
"""Batches that a filter draws at most."""


class Simulation:
    """A run that is trained step by step.

    Args:
        sizes: sizes of the run, which a cause may have changed.
        seed: seed of everything that is drawn.
    """

    def __init__(self, sizes: Sizes, seed: str) -> None:
        draw = Random(f"{seed}/world")
        self.sizes = sizes
        self.random = np.random.default_rng(draw.getrandbits(64))
        self.task = Task(
            spread=draw.uniform(1.0, 2.0),
            length_spread=draw.uniform(0.2, 0.45),
            length_drift=draw.uniform(-0.1, 0.15),
            prompt_length=float(draw.randint(60, 900)),
        )
        self.rewards = Rewards()
        self.learner = Learner(
            speed=draw.uniform(1.5, 4.0) / sizes.steps,
            step_size=draw.uniform(0.006, 0.025),
            gradient=math.exp(draw.uniform(math.log(0.02), math.log(2.0))),
            entropy_slope=draw.uniform(0.05, 0.4),
        )
        self.engine = Engine(noise=math.exp(draw.uniform(math.log(0.002), math.log(0.012))))
        self.policy = Policy(
            skill=draw.uniform(-1.5, 0.5),
            entropy=draw.uniform(0.15, 0.9),
            log_length=math.log(sizes.limit * draw.uniform(0.12, 0.3)),
            memory=np.zeros(sizes.pool),
        )
        self.difficulties: Array = self.random.normal(0, self.task.spread, sizes.pool)
        self.heldout: Array = self.random.normal(0, self.task.spread, sizes.heldout_prompts)
        self.seconds = draw.uniform(20, 200)
        self.ceiling = draw.uniform(2.5, 4.0)
        """Skill that can be gained."""
        self.versions: list[Policy] = []
        self.start = self.policy.copy()
        """The policy before the first step; to be set again after a cause has changed it."""
        self.reference_moved = 0.0
        self._order = np.array([], dtype=np.int64)

    def step(self, number: int) -> dict[str, float]:
        """Train one step and measure it."""
        self.versions = [*self.versions, self.policy.copy()][-_HISTORY:]
        sampler = self._sampler()
        batch, generated = self._sample(sampler)
        start_length = math.exp(self.start.log_length)
        rewards, parts = rewards_of(self.random, batch, self.rewards, start_length)
        advantages = advantages_of(rewards, self.learner.advantages)
        values = rollout_measures(batch, rewards, parts, advantages, self.rewards, generated)
        values |= self._token_measures(sampler)
        moved = self._update(batch, advantages)
        values |= self._update_measures(advantages, moved)
        values |= self._times(batch)
        if number % self.sizes.evaluated_every == 0:
            values["heldout"] = self._evaluate()
        self.engine.noise *= 1 + self.engine.noise_growth
        return values

    def _sampler(self) -> Policy:
        """The weights that the sampler holds."""
        if self.engine.frozen:
            return self._frozen
        self._frozen = self.versions[max(len(self.versions) - 1 - self.engine.lag, 0)]
        return self._frozen

    def _next_prompts(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        count = self.sizes.prompts
        if len(self._order) < count:
            self._order = self.random.permutation(self.sizes.pool)
        chosen, self._order = self._order[:count], self._order[count:]
        return chosen

    def _sample(self, sampler: Policy) -> tuple[Batch, float]:
        """A batch, and how many groups were generated for each one that is kept."""

        def draw(ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Batch:
            return sample(
                self.random, sampler, self.task, self.difficulties, ids, self.sizes.group,
                self.sizes.limit, self.start.entropy,
            )  # fmt: skip

        batch = draw(self._next_prompts())
        if not self.task.filtered:
            return batch, 1.0
        kept = batch.ids[~_uniform(batch)]
        drawn = 1
        while len(kept) < self.sizes.prompts and drawn < _MOST_BATCHES:
            more = draw(self._next_prompts())
            kept = np.concatenate([kept, more.ids[~_uniform(more)]])
            drawn += 1
        kept = kept[: self.sizes.prompts]
        return (_mixed(draw, kept) if len(kept) else batch), float(drawn)

    def _token_measures(self, sampler: Policy) -> dict[str, float]:
        policy, engine = self.policy, self.engine
        learner = tokens.draw_probabilities(self.random, policy.entropy)
        distance = math.sqrt(max(policy.moved - sampler.moved, 0.0))
        noise = engine.noise + engine.corrupted
        gaps = tokens.gap(self.random, learner, noise, distance, engine.temperature)
        measured = policy.entropy * (1 + self.random.normal(0, 0.015))
        values = {"entropy": measured}
        values["sampled_entropy"] = measured * (1 + self.random.normal(0, 0.02))
        mismatch = tokens.mismatch(gaps, learner)
        self._bias = mismatch["engine_kl"]
        values |= mismatch
        values["staleness"] = float(engine.lag)
        values["max_staleness"] = float(engine.lag)
        return values

    def _activity(self, advantages: Array) -> float:
        """The size of the gradient relative to one with advantages of variance 1."""
        if self.learner.masked:
            return 0.0
        return float(np.sqrt((advantages**2).mean()))

    def _update(self, batch: Batch, advantages: Array) -> float:
        """Change the policy; the size of the change as the log-ratio of a token."""
        learner, policy = self.learner, self.policy
        activity = self._activity(advantages)
        share = 1 - learner.lost
        if self.random.random() < learner.skipped or learner.broken:
            share = 0.0
        rate = learner.rate * share
        pushed = min(abs(learner.entropy_push) * 3, 1.0)
        moved = learner.step_size * rate * max(min(activity, 1.0) ** 0.5, pushed)
        moved += learner.kick * share
        learner.kick = 0.0
        gain = learner.speed * min(rate, 3.0) if activity else 0.0
        self._follow(batch, advantages, gain)
        policy.skill += self.random.normal(0, 0.3 * moved)
        policy.entropy *= math.exp(self.random.normal(0, 0.5 * min(moved, 0.2)))
        policy.log_length += self.random.normal(0, 0.5 * min(moved, 0.2))
        policy.skill -= learner.damage * max(moved - 0.2, 0.0)
        policy.skill -= learner.damage * 0.3 * share * max(self._bias - 0.03, 0.0)
        policy.entropy *= math.exp(learner.entropy_push * share)
        policy.entropy *= math.exp(self.direction * 0.6 * max(moved - 0.2, 0.0))
        policy.log_length += learner.length_push * share
        policy.wrong_extra += learner.length_bias * share
        policy.entropy = min(max(policy.entropy, 1e-4), _MOST_ENTROPY)
        policy.moved += moved**2
        self.reference_moved += moved**2 + 0.2 * moved * math.sqrt(self.reference_moved)
        return moved

    @property
    def direction(self) -> float:
        """Whether excessive updates raise or lower the entropy in this run."""
        return 1.0 if self.seconds % 1 < 0.6 else -1.0

    def _follow(self, batch: Batch, advantages: Array, gain: float) -> None:
        """Move each feature by the covariance of its noise with the advantages."""
        policy, task = self.policy, self.task
        centred = advantages - (0.0 if self.learner.advantages == "raw" else advantages.mean())
        chances = batch.chances[:, None]
        signal = float((centred * (batch.solved - chances)).mean())
        room = max(1 - (policy.skill - self.start.skill) / self.ceiling, 0.0)
        gained = 4 * gain * signal * (room if signal > 0 else 1.0)
        policy.skill += gained
        if len(policy.memory) > 1:
            repeated = self.sizes.prompts / self.sizes.pool
            own = (centred * (batch.solved - chances)).mean(axis=1)
            policy.memory[batch.ids] += 40 * gain * own * min(4 * repeated, 1.0)
        form = sigmoid(np.array(policy.form))
        policy.form += 30 * gain * float((centred * (batch.formed - form)).mean())
        trick = sigmoid(np.array(policy.trick))
        push = float((centred * (batch.tricked - trick)).mean())
        policy.trick += 8 * gain * push / max(float(trick * (1 - trick)), 0.02)
        if float(trick) > 0.3:
            policy.skill -= 2 * gain * float(trick)
        pull = float((centred * batch.length_noise).mean())
        pull *= task.length_elasticity * task.length_spread
        policy.log_length += 6 * gain * pull + task.length_drift * gained
        policy.entropy *= math.exp(-self.learner.entropy_slope * max(gained, 0.0))

    def _update_measures(self, advantages: Array, moved: float) -> dict[str, float]:
        learner, policy = self.learner, self.policy
        probabilities = tokens.draw_probabilities(self.random, policy.entropy)
        inner = moved * math.sqrt((self.sizes.updates - 1) / 2)
        values = tokens.ratios(self.random, probabilities, inner, learner.wrong_old)
        activity = self._activity(advantages)
        size = learner.gradient * activity * math.exp(self.random.normal(0, 0.2))
        size *= 1 + 12 * max(moved - 0.2, 0.0) + 5 * max(self._bias - 0.05, 0.0)
        values["grad_norm"] = size
        kl = learner.reference_gap + 0.4 * self.reference_moved
        values["kl"] = kl * abs(1 + self.random.normal(0, 0.08)) + 2e-5
        loss = 0.03 * activity * self.random.normal(0, 1) / math.sqrt(self.sizes.prompts)
        values["loss"] = loss if activity else 0.0
        values["learning_rate"] = self.sizes.learning_rate * learner.rate
        values["skipped"] = float(learner.skipped > self.random.random())
        if learner.masked:
            values["loss"] = 0.0
        if learner.broken:
            values["loss"] = values["grad_norm"] = math.nan
        values["replay_fallback"] = self.engine.replay_fallback
        load = max(self.engine.load * (1 + self.random.normal(0, 0.03)), 1.0)
        values["load_violation"] = load - 1
        values["aux_loss"] = self.engine.auxiliary * (1 + self.random.normal(0, 0.02))
        return values

    def _times(self, batch: Batch) -> dict[str, float]:
        longest = float(batch.lengths.max()) / self.sizes.limit
        rollout = self.seconds * (0.3 + longest) * math.exp(self.random.normal(0, 0.04))
        learn = self.seconds * 0.5 * math.exp(self.random.normal(0, 0.03))
        return {
            "seconds": rollout + learn,
            "rollout_seconds": rollout,
            "learn_seconds": learn,
            "prompt_length": self.task.prompt_length * (1 + self.random.normal(0, 0.02)),
            "turns": max(self.task.turns * (1 + self.random.normal(0, 0.03)), 1.0),
        }

    def _evaluate(self) -> float:
        return heldout_score(
            self.random, self.policy, self.task, self.heldout, self.sizes.limit, self.start.entropy
        )


def _uniform(batch: Batch) -> Flags:
    """Groups with one verdict."""
    same: Flags = batch.correct.all(axis=1) | ~batch.correct.any(axis=1)
    return same


def _mixed(draw: Callable[..., Batch], ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Batch:
    """Groups with both verdicts, drawn again until each has them or patience ends."""
    batch = draw(ids)
    for _ in range(20):
        uniform = _uniform(batch)
        if not uniform.any():
            break
        again = draw(ids)
        for name in ("solved", "correct", "formed", "tricked", "length_noise", "lengths",
                     "truncated", "looping", "calls", "failures", "errors", "aborted"):  # fmt: skip
            getattr(batch, name)[uniform] = getattr(again, name)[uniform]
    return batch
