"""A training run of the small policy, which a mechanism can break."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from tests.benchmarks.planted_mechanisms.learning import Loss, Moved, Optimizer, Positions, descend
from tests.benchmarks.planted_mechanisms.measures import compared, measured
from tests.benchmarks.planted_mechanisms.world import (
    CLASSES,
    OPERATIONS,
    STAGES,
    STATES,
    TOKENS,
    Bools,
    Floats,
    Ints,
    Problems,
    Responses,
    Sampling,
    Weights,
    pretrained,
    sample,
)

Score = Callable[["Run", Responses], dict[str, Floats]]
"""Parts of the reward of each response, by name."""


@dataclass
class Sizes:
    """Sizes of a run."""

    steps: int
    prompts: int
    group: int
    most: int
    """Decisions of a response at most."""
    chunk: int
    """Tokens of a decision: one in `chunk` tokens has any entropy."""
    pool: int
    deepest: int
    level: float
    """Knowledge of the pretrained policy; 2 solves about half."""
    updates: int
    rate: float
    every: int
    """Steps between evaluations; 0 without."""
    reward_parts: bool = False
    """Whether the log has the parts of the reward."""
    logs_kl: bool = True
    logs_mismatch: bool = True
    logs_tools: bool = False

    @property
    def limit(self) -> int:
        """Tokens of a response at most."""
        return self.most * self.chunk


def draw_sizes(draw: Random) -> Sizes:
    """Sizes of a run whose owner made no mistake."""
    prompts, group = draw.choice(((16, 8), (24, 8), (32, 8), (16, 16), (48, 4), (32, 6)))
    return Sizes(
        steps=draw.randint(90, 180),
        prompts=prompts,
        group=group,
        most=draw.choice((26, 32, 40)),
        chunk=draw.choice((6, 10, 16, 24)),
        pool=prompts * draw.choice((15, 30, 60)),
        deepest=draw.randint(3, 5),
        level=draw.uniform(1.6, 2.6),
        updates=draw.choice((1, 1, 2, 4)),
        rate=draw.uniform(0.004, 0.01),
        every=draw.choice((5, 10)),
        logs_kl=draw.random() < 0.7,
        logs_mismatch=draw.random() < 0.7,
    )


def correct_only(run: Run, responses: Responses) -> dict[str, Floats]:
    """1 for an answer that equals the label."""
    return {"correct": run.accepted(responses).astype(float)}


@dataclass
class Engine:
    """The sampler: where its weights come from and how it computes."""

    noise: float = 0.02
    """Standard deviation of the error of a logit that has entropy."""
    grid: float = 0.0
    """Spacing to which its weights are rounded."""
    delivered: bool = True
    """Whether it receives new weights."""
    lag: int = 0


class Run:
    """A run; mechanisms change its public attributes between steps.

    Args:
        sizes: sizes of the run.
        seed: seed of everything that is drawn.
    """

    def __init__(self, sizes: Sizes, seed: str) -> None:
        draw = Random(f"{seed}/run")
        self.sizes = sizes
        self.random = np.random.default_rng(draw.getrandbits(64))
        right = self.random.integers(0, OPERATIONS, (CLASSES, STAGES))
        self.problems = Problems.draw(self.random, sizes.pool, sizes.deepest, right)
        self.strangers = Problems.draw(self.random, 256, sizes.deepest, right)
        self.weights = pretrained(self.random, self.problems, sizes.level)
        self.start = self.weights.copy()
        self.reference = self.weights.copy()
        rate = sizes.rate / math.sqrt(sizes.updates)
        self.rate = rate
        self.logged_rate = draw.choice((1e-6, 2e-6, 5e-6, 2e-5)) / rate
        """Learning rate of the log for each unit of the simulation's."""
        self.optimizer = Optimizer(rate)
        self.loss = Loss()
        self.sampling = Sampling(sizes.most)
        self.engine = Engine(noise=draw.choice((0.01, 0.02, 0.04)))
        self.score: Score = correct_only
        self.scale = 1.0
        self.advantages = "standardized"
        """`standardized`, `flipped`, `raw`, `positive` or `batch`."""
        self.allowed: Bools = np.ones(sizes.pool, bool)
        """Prompts that may be drawn."""
        self.in_order: Ints | None = None
        """The order of the prompts; random if None."""
        self.trains_on_environment = False
        self.old_from_sampler = False
        self.old_noise = 0.0
        """Standard deviation of an error of the learner's log-probabilities before the update."""
        self.epochs = 1
        self.broken = 0.0
        """Share of the updates whose gradient is not finite."""
        self.verifier_rejects = 0.0
        self.prompt_tokens = draw.randint(60, 500)
        self.seconds = draw.uniform(20, 90)
        self.loss_scale = 1.0
        self.versions: list[Weights] = []
        self._held = self.weights
        self._queue = np.array([], np.int64)
        self._position = 0

    def accepted(self, responses: Responses) -> Bools:
        """Verdict of the verifier, which compares with the labels."""
        right: Bools = responses.answer == self.problems.labels[responses.prompts]
        lost = self.random.random(len(right)) < self.verifier_rejects
        return right & ~responses.truncated & ~lost

    def step(self, number: int) -> dict[str, float]:
        """Train one step and measure it."""
        sampler, disturb = self._sampler()
        prompts = np.repeat(self._next_prompts(), self.sizes.group)
        responses = sample(self.random, sampler, self.problems, prompts, self.sampling, disturb)
        parts = self.score(self, responses)
        rewards: Floats = self.scale * sum(parts.values(), np.zeros(len(prompts)))
        advantages = self._advantages(rewards)
        values = measured(self, responses, rewards, parts, advantages)
        at, sampled = self._positions(responses, advantages)
        values |= compared(at, self.weights, sampled, self.sizes.chunk)
        if self.old_from_sampler:
            at.old = sampled
        values |= self._learn(at, responses)
        values["staleness"] = values["max_staleness"] = float(self.engine.lag)
        if self.sizes.every and number % self.sizes.every == 0:
            values["heldout"] = self.evaluate()
        return values

    def evaluate(self) -> float:
        """Share of held-out prompts that the learner solves, by the truth."""
        prompts = np.arange(self.strangers.count)
        weights = self.weights.for_strangers(self.strangers.count)
        responses = sample(self.random, weights, self.strangers, prompts, Sampling(self.sizes.most))
        return float(responses.correct.mean())

    def _sampler(self) -> tuple[Weights, Floats]:
        """The weights that the sampler holds, and the error of its logits at this step."""
        engine = self.engine
        self.versions = [*self.versions, self.weights.copy()][-40:]
        if engine.delivered:
            self._held = self.versions[max(len(self.versions) - 1 - engine.lag, 0)]
        held = self._held
        if engine.grid:
            held = held.map(lambda part: np.round(part / engine.grid) * engine.grid)
        return held, self.random.normal(0, engine.noise, (STATES, TOKENS))

    def _next_prompts(self) -> Ints:
        count = self.sizes.prompts
        if self.in_order is not None:
            chosen = self.in_order[
                np.arange(self._position, self._position + count) % len(self.in_order)
            ]
            self._position += count
            return chosen
        queue = self._queue[self.allowed[self._queue]] if len(self._queue) else self._queue
        while len(queue) < count:
            queue = np.concatenate([queue, self.random.permutation(np.flatnonzero(self.allowed))])
        self._queue = queue[count:]
        return queue[:count]

    def _advantages(self, rewards: Floats) -> Floats:
        grouped = rewards.reshape(-1, self.sizes.group)
        if self.advantages == "raw":
            return rewards
        if self.advantages == "batch":
            return (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        spread = grouped.std(axis=1, ddof=1, keepdims=True)
        result: Floats = ((grouped - grouped.mean(axis=1, keepdims=True)) / (spread + 1e-6)).ravel()
        if self.advantages == "flipped":
            return -result
        return np.maximum(result, 0.0) if self.advantages == "positive" else result

    def _positions(self, responses: Responses, advantages: Floats) -> tuple[Positions, Floats]:
        """Decisions in the loss, and the sampler's log-probabilities of them."""
        inside = responses.exists.copy()
        if not self.trains_on_environment:
            inside &= ~responses.forced
        row, column = np.nonzero(inside)
        prompt = responses.prompts[row]
        at = Positions(
            prompt=prompt,
            classes=self.problems.classes[prompt],
            state=responses.state[row, column],
            last=responses.last[row, column],
            token=responses.token[row, column],
            advantage=advantages[row],
            old=np.zeros(len(row)),
            reference=np.zeros(len(row)),
        )
        rows = np.arange(len(row))
        at.old = at.logprobs(self.weights)[rows, at.token]
        at.old = np.minimum(at.old + self.random.normal(0, self.old_noise, len(row)), 0.0)
        at.reference = at.logprobs(self.reference)[rows, at.token]
        self._row = row
        return at, responses.logprob[row, column]

    def _learn(self, at: Positions, responses: Responses) -> dict[str, float]:
        """All optimizer steps on the batch."""
        log_ratio = at.reference - at.old
        kl = np.exp(np.clip(log_ratio, -20, 20)) - log_ratio - 1
        self.optimizer.rate = self.rate
        moved: list[Moved] = []
        broken = self.random.random() < self.broken
        for _ in range(self.epochs):
            order = self.random.permutation(len(responses.prompts))
            for part in np.array_split(order, self.sizes.updates):
                inside = at.of(np.flatnonzero(np.isin(self._row, part)))
                chunk = self.sizes.chunk
                step = descend(
                    self.weights, inside, self.loss, self.optimizer, chunk, broken=broken
                )
                moved.append(step)

        def mean(name: str) -> float:
            return float(np.mean([getattr(item, name) for item in moved]))

        return {
            "loss": self.loss_scale * mean("loss"),
            "grad_norm": mean("norm"),
            "clip_low": mean("low"),
            "clip_high": mean("high"),
            "clipped": mean("low") + mean("high"),
            "old_kl": mean("old_kl"),
            "kl": float(kl.mean()) / self.sizes.chunk,
            "learning_rate": self.rate * self.logged_rate,
        }
