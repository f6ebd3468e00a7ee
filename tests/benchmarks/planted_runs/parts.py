"""The parts of a simulated training run: sizes, the policy, and what a planted cause can change."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_BATCHES = ((8, 8), (16, 8), (32, 4), (32, 8), (64, 8), (32, 16), (128, 8), (64, 16), (128, 16))


@dataclass
class Sizes:
    """What the owner of a run chooses: sizes, scales and what is logged."""

    steps: int
    prompts: int
    group: int
    limit: int
    pool: int
    """Training prompts."""
    updates: int
    """Optimizer steps on each batch."""
    learning_rate: float
    """As logged; the effect of an update does not depend on it."""
    evaluated_every: int
    heldout_prompts: int
    logged: set[str] = field(default_factory=set)
    """Optional quantities that the run measures: `kl`, `heldout`, `mismatch`."""
    optional: set[str] = field(default_factory=set)
    """Quantities of special runs: `tools`, `turns`, `experts`, `parts` of the reward, and so on."""


def draw_sizes(random: Random, fewest: int = 50, most: int = 400) -> Sizes:
    """Sizes of a run: 50 to 400 steps, 64 to 2048 responses each."""
    prompts, group = random.choice(_BATCHES)
    return Sizes(
        steps=round(math.exp(random.uniform(math.log(fewest), math.log(most)))),
        prompts=prompts,
        group=group,
        limit=random.choice((512, 1024, 2048, 4096, 8192, 16384)),
        pool=prompts * random.choice((20, 50, 200)),
        updates=random.choice((1, 1, 2, 4)),
        learning_rate=random.choice((5e-7, 1e-6, 2e-6, 5e-6, 1e-5, 4e-5)),
        evaluated_every=random.choice((5, 10, 20)),
        heldout_prompts=random.choice((200, 500, 1000)),
        logged={name for name in ("kl", "heldout", "mismatch") if random.random() < 0.7},
    )


@dataclass
class Policy:
    """What training changes."""

    skill: float
    """Log-odds of solving a prompt of difficulty 0."""
    entropy: float
    """Nats per token."""
    log_length: float
    form: float = 2.0
    """Log-odds of the requested format."""
    trick: float = -6.0
    """Log-odds of a response that exploits a hole of the verifier."""
    endless: float = 0.0
    """Share of responses without an end token."""
    loops: float = 0.0
    """Share of responses that end in a loop."""
    wrong_extra: float = 0.05
    """How much longer wrong responses are, in log tokens."""
    memory: Array = field(default_factory=lambda: np.zeros(1))
    """Log-odds gained on each training prompt alone."""
    moved: float = 0.0
    """Distance that the updates so far moved, as the sum of squared log-ratios per token."""

    def copy(self) -> Policy:
        """The weights at this moment."""
        return replace(self, memory=self.memory.copy())


@dataclass
class Task:
    """Prompts and the environment."""

    spread: float = 1.5
    """Standard deviation of the difficulty of prompts."""
    shift: float = 0.0
    """Added to the difficulty of training prompts."""
    length_spread: float = 0.35
    length_elasticity: float = 1.0
    """How fast the length follows the advantages; below 1 where the task needs its length."""
    length_drift: float = 0.0
    """Change of the log length with each unit of skill."""
    prompt_length: float = 150.0
    calls: float = 0.0
    """Tool calls of a response."""
    call_failures: float = 0.0
    errors: float = 0.0
    """Share of responses whose environment raised an error."""
    aborted: float = 0.0
    invalid: float = 0.0
    """Share of actions that the environment rejects."""
    turns: float = 1.0
    copies: float = 0.0
    """Share of groups in which all responses are copies of one."""
    filtered: bool = False
    """Whether groups without differences are replaced by others."""


@dataclass
class Rewards:
    """The reward function."""

    correct: float = 1.0
    incorrect: float = 0.0
    rejects: float = 0.0
    """Share of correct responses that the verifier rejects."""
    accepts: float = 0.0
    """Share of incorrect responses that the verifier accepts."""
    coin: float = 0.0
    """Share of responses with a random verdict."""
    fooled: bool = False
    """Whether the verifier accepts the trick."""
    form_weight: float = 0.0
    length_weight: float = 0.0
    """Reward for each doubling of the length, relative to the start."""
    scale: float = 1.0
    outage: float = 0.0
    """Share of responses that the judge does not score."""
    outage_reward: float = 0.0
    constant: float | None = None
    smooth: float = 0.0
    """Standard deviation of a graded part of the reward."""


@dataclass
class Learner:
    """The optimizer and the loss."""

    rate: float = 1.0
    """Learning rate relative to a good one."""
    lost: float = 0.0
    """Share of each update that does not reach the weights."""
    speed: float = 1.0
    step_size: float = 0.02
    """Standard deviation of a token's log-ratio after an update at the good learning rate."""
    gradient: float = 0.5
    """Norm of the gradient with advantages of variance 1."""
    entropy_slope: float = 0.25
    """Fall of the log entropy with each unit of skill."""
    entropy_push: float = 0.0
    """Change of the log entropy at each step: a bonus, a penalty."""
    advantages: str = "standardized"
    """`standardized` by mean and standard deviation of the group, `raw` or `flipped`."""
    masked: bool = False
    """Whether no token counts in the loss."""
    skipped: float = 0.0
    """Chance that an update is skipped."""
    damage: float = 4.0
    """Skill lost with each unit of log-ratio beyond 0.25."""
    wrong_old: float = 0.0
    """Error of the old log-probabilities."""
    kick: float = 0.0
    """Size of a single excessive update, in log-ratio; reset after each step."""
    broken: bool = False
    """Whether loss and gradient are not finite."""
    reference_gap: float = 0.0
    """KL of the starting policy to the reference."""
    length_bias: float = 0.0
    """Growth of wrong responses at each step."""
    length_push: float = 0.0
    """Growth of the log length at each step."""


@dataclass
class Engine:
    """The sampler, compared with the learner."""

    noise: float = 0.006
    """Mean absolute difference of log-probabilities with equal weights."""
    noise_growth: float = 0.0
    """Relative growth of that difference at each step."""
    temperature: float = 1.0
    """Sampling temperature relative to that of the learner's log-probabilities."""
    lag: int = 0
    """Updates between the sampler's weights and the learner's."""
    frozen: bool = False
    """Whether no new weights arrive."""
    corrupted: float = 0.0
    """Further error of the sampler's weights, in log-probability."""
    replay_fallback: float = 0.0
    load: float = 1.6
    """Load of the busiest expert over the mean."""
    auxiliary: float = 0.01
