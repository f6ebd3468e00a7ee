"""Courses of training runs: what a framework would measure at each step, before it logs it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

STEPS = 60
LIMIT = 2048
PROMPTS, GROUP = 64, 8

Curve = Callable[[float], float]
"""A quantity as a function of the share of the run that is done."""


@dataclass(frozen=True)
class Course:
    """A run with a known state of health."""

    name: str
    curves: Mapping[str, Curve]
    noise: float = 0.03
    steps: int = STEPS
    limit: int = LIMIT
    prompts: int = PROMPTS
    group: int = GROUP

    def is_evaluated(self, step: int) -> bool:
        """Every ten steps."""
        return step % 10 == 0

    def at(self, step: int) -> dict[str, float]:
        """All quantities at a step, with relative noise that depends on step and quantity only."""
        done = (step - 1) / (STEPS - 1)
        values = {}
        for name, curve in {**_HEALTHY, **self.curves}.items():
            factor = 1 + self.noise * random.Random(f"{self.name}/{name}/{step}").gauss(0, 1)
            values[name] = curve(done) * factor
        return _consistent(values)


def ramp(first: float, last: float, begin: float = 0.0, end: float = 1.0) -> Curve:
    """From `first` to `last` between two shares of the run."""
    return lambda done: first + (last - first) * min(max((done - begin) / (end - begin), 0.0), 1.0)


def _constant(value: float) -> Curve:
    return lambda _: value


_SHARES = ("reward", "truncated", "mixed", "all_incorrect", "all_correct", "clipped", "heldout")


def _consistent(values: dict[str, float]) -> dict[str, float]:
    """Values within their bounds, and the ones that follow from others."""
    values |= {name: min(max(values[name], 0.0), 1.0) for name in _SHARES}
    known = values["all_incorrect"] + values["all_correct"]
    values["zero_variance"] = min(known, 1.0)
    values["mixed"] = 1 - values["zero_variance"]
    values["reward_std"] = (values["reward"] * (1 - values["reward"])) ** 0.5
    at_limit = values["truncated"] > 0.001
    values["max_length"] = float(LIMIT) if at_limit else float(round(values["max_length"]))
    values["length"] = min(values["length"], float(LIMIT))
    values["min_length"] = float(round(min(values["min_length"], values["length"])))
    has_signal = values["mixed"] > 0.5 / PROMPTS
    values["max_advantage"] = values["max_advantage"] if has_signal else 0.0
    values["min_advantage"] = -values["max_advantage"]
    return values


_HEALTHY: Mapping[str, Curve] = {
    "reward": ramp(0.3, 0.62),
    "heldout": ramp(0.28, 0.55),
    "all_incorrect": ramp(0.18, 0.1),
    "all_correct": ramp(0.06, 0.2),
    "entropy": ramp(0.5, 0.42),
    "length": ramp(560, 640),
    "max_length": _constant(1500),
    "min_length": _constant(90),
    "prompt_length": _constant(110),
    "truncated": _constant(0.0),
    "kl": ramp(0.0002, 0.02),
    "old_kl": _constant(0.0004),
    "clipped": _constant(0.003),
    "logprob_diff": _constant(0.008),
    "prob_diff": _constant(0.004),
    "engine_kl": _constant(0.0006),
    "weight": _constant(1.0),
    "grad_norm": _constant(0.3),
    "learning_rate": _constant(1e-6),
    "loss": _constant(0.002),
    "max_advantage": _constant(2.4),
    "seconds": _constant(60.0),
    "mixed": _constant(0.0),
}

HEALTHY = Course("healthy", {})
STARVED = Course(
    "starved",
    {
        "reward": _constant(0.004),
        "heldout": _constant(0.003),
        "all_incorrect": _constant(0.97),
        "all_correct": _constant(0.0),
        "grad_norm": _constant(0.02),
        "kl": ramp(0.0002, 0.0008),
    },
)
"""A success rate of 0.4 %: three of a hundred groups have a gradient."""
COLLAPSED = Course(
    "collapsed",
    {
        "reward": ramp(0.5, 0.03, 0.4, 0.7),
        "heldout": ramp(0.45, 0.02, 0.4, 0.7),
        "entropy": ramp(0.5, 0.01, 0.3, 0.6),
        "length": ramp(600, 25, 0.4, 0.7),
        "max_length": ramp(1500, 40, 0.4, 0.7),
        "all_incorrect": ramp(0.15, 0.95, 0.4, 0.7),
        "all_correct": ramp(0.1, 0.0, 0.4, 0.7),
        "kl": ramp(0.0002, 1.8, 0.3, 0.7),
    },
)
TRUNCATED = Course(
    "truncated",
    {
        "reward": ramp(0.45, 0.08, 0.3, 0.9),
        "heldout": ramp(0.42, 0.07, 0.3, 0.9),
        "length": ramp(700, 1990, 0.1, 0.8),
        "truncated": ramp(0.03, 0.93, 0.1, 0.8),
        "all_incorrect": ramp(0.15, 0.7, 0.3, 0.9),
    },
)
MISMATCHED = Course(
    "mismatched",
    {
        "reward": ramp(0.4, 0.2, 0.6, 1.0),
        "logprob_diff": ramp(0.008, 0.28, 0.2, 0.9),
        "prob_diff": ramp(0.004, 0.09, 0.2, 0.9),
        "engine_kl": ramp(0.0006, 0.12, 0.2, 0.9),
        "weight": ramp(1.0, 0.8, 0.2, 0.9),
    },
)
"""The sampler's log-probabilities drift away from the learner's."""

COURSES = {course.name: course for course in (HEALTHY, STARVED, COLLAPSED, TRUNCATED, MISMATCHED)}
