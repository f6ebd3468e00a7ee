"""Healthy runs that look odd: each does something that resembles a fault."""

from __future__ import annotations

import math
from random import Random

from tests.benchmarks.planted_runs.parts import Sizes
from tests.benchmarks.planted_runs.plants import at, each, healthy, onset, ramp, together
from tests.benchmarks.planted_runs.simulation import Change, Simulation


@healthy("plain")
def _plain(random: Random, run: Simulation) -> None:
    """Nothing odd."""


def _few_responses(random: Random, sizes: Sizes) -> None:
    sizes.prompts, sizes.group = random.choice(((4, 8), (8, 4), (4, 4)))
    sizes.pool = 400
    sizes.heldout_prompts = 50


@healthy("noisy", prepare=_few_responses)
def _noisy(random: Random, run: Simulation) -> None:
    """Batches of 16 or 32 responses and 50 held-out prompts."""


@healthy("slow")
def _slow(random: Random, run: Simulation) -> None:
    """The reward rises by a few points in all."""
    run.learner.speed *= 0.2


@healthy("saturates", steps=(150, 400))
def _saturates(random: Random, run: Simulation) -> None:
    """The task is solved in the second half of the run."""
    run.learner.speed = random.uniform(6, 10) / run.sizes.steps
    run.ceiling = 9.0


@healthy("long-responses")
def _long_responses(random: Random, run: Simulation) -> None:
    """Responses use half of the limit, and one in a hundred reaches it."""
    run.policy.log_length = math.log(run.sizes.limit * random.uniform(0.42, 0.5))
    run.task.length_spread = 0.28
    run.task.length_drift = 0.0


@healthy("longer-with-success")
def _longer_with_success(random: Random, run: Simulation) -> None:
    """Responses grow by half while more of them are correct."""
    run.policy.log_length = math.log(run.sizes.limit * 0.12)
    run.task.length_drift = random.uniform(0.2, 0.4)


@healthy("shorter-with-success")
def _shorter_with_success(random: Random, run: Simulation) -> None:
    """Responses shrink while more of them are correct."""
    run.task.length_drift = -random.uniform(0.15, 0.35)


@healthy("kl-from-step-one", logged="kl")
def _kl_from_step_one(random: Random, run: Simulation) -> None:
    """The reference runs in another precision, so its KL is never zero."""
    run.learner.reference_gap = random.uniform(0.0005, 0.004)


@healthy("curriculum")
def _curriculum(random: Random, run: Simulation) -> Change:
    """Prompts become harder as the policy improves."""
    run.learner.speed = random.uniform(3, 4.5) / run.sizes.steps
    return ramp("task__shift", 0.0, random.uniform(0.5, 1.0), 1, run.sizes.steps)


@healthy("cosine")
def _cosine(random: Random, run: Simulation) -> Change:
    """Warm-up, then a cosine to a tenth."""
    warm = max(round(0.05 * run.sizes.steps), 1)

    def schedule(run: Simulation, number: int) -> None:
        done = (number - warm) / max(run.sizes.steps - warm, 1)
        run.learner.rate = (
            number / warm if number <= warm else 0.1 + 0.45 * (1 + math.cos(math.pi * done))
        )

    return schedule


@healthy("linear-to-zero")
def _linear_to_zero(random: Random, run: Simulation) -> Change:
    """The learning rate ends at zero with the run."""
    return ramp("learner__rate", 1.0, 0.002, 1, run.sizes.steps)


@healthy("resumed")
def _resumed(random: Random, run: Simulation) -> Change:
    """A clean restart on another machine: other times, another kernel's rounding."""
    first = onset(random, run)

    def resume(run: Simulation, number: int) -> None:
        if number == first:
            run.seconds *= random.uniform(0.6, 1.5)
            run.engine.noise *= random.uniform(0.8, 1.25)

    return resume


@healthy("filtered", optional="filtered")
def _filtered(random: Random, run: Simulation) -> None:
    """DAPO's filter keeps groups with both verdicts alone."""
    run.task.filtered = True


@healthy("negative-rewards")
def _negative_rewards(random: Random, run: Simulation) -> None:
    """Wrong responses cost one."""
    run.rewards.incorrect = random.choice((-1.0, -0.5, -2.0))


@healthy("graded-rewards")
def _graded_rewards(random: Random, run: Simulation) -> None:
    """A judge gives graded scores, so that no group is without differences."""
    run.rewards.smooth = random.uniform(0.05, 0.3)


@healthy("several-parts", optional="parts")
def _several_parts(random: Random, run: Simulation) -> None:
    """A part of the reward for the format, which is learned at once."""
    run.rewards.form_weight = random.uniform(0.1, 0.4)
    run.policy.form = random.uniform(-1, 1)


@healthy("tools", optional="tools turns")
def _tools(random: Random, run: Simulation) -> None:
    """Tool calls, one in twenty of which fails."""
    run.task.calls, run.task.call_failures = random.uniform(1, 4), random.uniform(0.01, 0.06)
    run.task.turns = 1 + run.task.calls


@healthy("agents", optional="actions turns errors aborted")
def _agents(random: Random, run: Simulation) -> Change:
    """Episodes with a few rejected actions, rare errors and aborted rollouts."""
    run.task.turns, run.task.invalid = random.uniform(4, 15), random.uniform(0.03, 0.12)
    run.task.errors, run.task.aborted = 0.01, 0.005
    return ramp("task__invalid", run.task.invalid, 0.02, 1, run.sizes.steps)


@healthy("experts", optional="experts", logged="mismatch")
def _experts(random: Random, run: Simulation) -> None:
    """A mixture of experts: the engines differ more, and the load is uneven."""
    run.engine.noise = random.uniform(0.012, 0.022)
    run.engine.load = random.uniform(1.4, 2.6)


@healthy("asynchronous", optional="staleness", logged="mismatch")
def _asynchronous(random: Random, run: Simulation) -> None:
    """Samples are one to four updates old."""
    run.engine.lag = random.randint(1, 4)


@healthy("sharper-with-success")
def _sharper_with_success(random: Random, run: Simulation) -> None:
    """The entropy falls to a fifth while the reward rises."""
    run.learner.entropy_slope = random.uniform(0.6, 0.9)
    run.learner.speed = random.uniform(3, 4) / run.sizes.steps


@healthy("more-entropy")
def _more_entropy(random: Random, run: Simulation) -> Change:
    """A mild bonus raises the entropy by a half while the reward rises."""
    rise = random.uniform(0.5, 0.8) / run.sizes.steps
    return at(1, learner__entropy_push=rise)


@healthy("short", steps=(8, 19))
def _short(random: Random, run: Simulation) -> None:
    """A run that has just begun."""


@healthy("spikes")
def _spikes(random: Random, run: Simulation) -> Change:
    """Single batches with a large gradient, without damage."""
    every, usual = random.randint(20, 50), run.learner.gradient

    def spike(run: Simulation) -> None:
        run.learner.gradient = usual * (4 if run.random.random() < 1 / every else 1)

    return each(5, spike)


@healthy("slow-steps")
def _slow_steps(random: Random, run: Simulation) -> Change:
    """The cluster is slow for a while, and a few rollouts are lost."""
    first = onset(random, run)
    usual = run.seconds
    return together(
        at(first, task__aborted=0.02),
        each(first, lambda run: setattr(run, "seconds", usual * 2)),
    )
