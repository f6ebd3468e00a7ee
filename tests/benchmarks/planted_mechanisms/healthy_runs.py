"""Healthy runs that look odd."""

from __future__ import annotations

import math
from random import Random

import numpy as np

from tests.benchmarks.planted_mechanisms.plants import (
    Change,
    accepted,
    by_difficulty,
    compliance,
    healthy,
    with_parts,
)
from tests.benchmarks.planted_mechanisms.run import Run, Sizes
from tests.benchmarks.planted_mechanisms.world import REFLECT, TAG, Floats, Responses


@healthy("plain")
def _plain(draw: Random, run: Run) -> None:
    """Nothing unusual."""


def _roomy(_: Random, sizes: Sizes) -> None:
    sizes.most = 64


@healthy("curriculum", _roomy)
def _curriculum(draw: Random, run: Run) -> Change:
    """Harder prompts join in four stages, so the training reward is a saw."""
    order = by_difficulty(run)
    stages = np.array_split(order, 4)

    def change(number: int) -> None:
        stage = min(4 * (number - 1) // run.sizes.steps, 3)
        run.allowed[:] = False
        run.allowed[stages[stage]] = True

    return change


def _late(draw: Random, sizes: Sizes) -> None:
    sizes.level = draw.uniform(0.6, 0.9)
    sizes.steps = draw.randint(220, 300)
    sizes.rate = draw.uniform(0.012, 0.02)


@healthy("late-take-off", _late)
def _late_take_off(draw: Random, run: Run) -> None:
    """Hard prompts: little happens for a long time, then the reward rises."""
    run.problems.depth[:] = np.maximum(run.problems.depth, 3)
    run.strangers.depth[:] = np.maximum(run.strangers.depth, 3)


def _small(draw: Random, sizes: Sizes) -> None:
    sizes.prompts, sizes.group = 8, 4
    sizes.pool = 300
    sizes.steps = draw.randint(200, 300)


@healthy("small-batch", _small)
def _small_batch(draw: Random, run: Run) -> None:
    """Thirty-two responses per batch, so all curves are noisy."""


@healthy("longer-and-better")
def _longer(draw: Random, run: Run) -> None:
    """Prompts mislead, so the policy learns to reflect, and responses become much longer."""
    for problems in (run.problems, run.strangers):
        problems.slips[:] = np.clip(problems.slips + 0.3, 0, 0.6)
    run.weights.skill[:, :, REFLECT] -= 1.0


@healthy("entropy-falls")
def _entropy_falls(draw: Random, run: Run) -> None:
    """A fast rate: entropy falls to a fraction while the policy becomes right."""
    run.rate *= 1.8
    for problems in (run.problems, run.strangers):
        problems.slips *= 0.4


@healthy("warm-up")
def _warm_up(draw: Random, run: Run) -> Change:
    """A third of the run is warm-up."""
    rate, last = 1.5 * run.rate, run.sizes.steps / 3

    def change(number: int) -> None:
        run.rate = rate * min(number / last, 1.0)

    return change


@healthy("resumed")
def _resumed(draw: Random, run: Run) -> Change:
    """A resume keeps the weights and loses the moments of the optimizer."""
    at = round(run.sizes.steps * draw.uniform(0.4, 0.6))

    def change(number: int) -> None:
        if number == at:
            run.optimizer.forget()

    return change


def _easy(draw: Random, sizes: Sizes) -> None:
    sizes.level, sizes.deepest = draw.uniform(3.2, 3.8), 3


@healthy("easy", _easy)
def _easy_task(draw: Random, run: Run) -> None:
    """The policy begins at about .8 and still improves."""


@healthy("mixture-changes")
def _mixture(draw: Random, run: Run) -> Change:
    """The share of one of two tasks grows slowly from a tenth to nine tenths."""
    task = run.problems.classes % 2 == 0

    def change(number: int) -> None:
        share = 0.1 + 0.8 * number / run.sizes.steps
        weight = np.where(task, share, 1 - share)
        run.allowed = run.random.random(run.problems.count) < weight / weight.max()

    return change


def _sparse(draw: Random, sizes: Sizes) -> None:
    sizes.every = sizes.steps // 3


@healthy("sparse-evaluation", _sparse)
def _sparse_evaluation(draw: Random, run: Run) -> None:
    """Three evaluations in the whole run."""


@healthy("kl-penalty")
def _kl_penalty(draw: Random, run: Run) -> None:
    """A KL penalty slows the run and does not stop it."""
    run.loss.kl = 0.1


@healthy("slight-entropy-bonus")
def _bonus(draw: Random, run: Run) -> None:
    """A small entropy bonus."""
    run.loss.entropy = 0.003


def _compared(_: Random, sizes: Sizes) -> None:
    sizes.logs_mismatch = True


@healthy("asynchronous", _compared)
def _asynchronous(draw: Random, run: Run) -> None:
    """The sampler is two steps behind, as designed."""
    run.engine.lag = 2


@healthy("negative-rewards")
def _negative(draw: Random, run: Run) -> None:
    """A wrong answer costs 1."""
    run.score = lambda run, responses: {"score": 2 * accepted(run, responses) - 1}


@healthy("cosine-to-zero")
def _cosine(draw: Random, run: Run) -> Change:
    """The schedule ends at zero with the run."""
    rate = 1.6 * run.rate

    def change(number: int) -> None:
        run.rate = rate * 0.5 * (1 + math.cos(math.pi * (number - 1) / run.sizes.steps))

    return change


@healthy("format-first", with_parts)
def _format_first(draw: Random, run: Run) -> None:
    """The format is learned first and then earned by every response; the answers follow."""
    run.weights.skill[:, :, TAG] -= 0.5

    def score(run: Run, responses: Responses) -> dict[str, Floats]:
        return {"correct": accepted(run, responses), "format": 0.2 * compliance(responses)}

    run.score = score


def _short(draw: Random, sizes: Sizes) -> None:
    sizes.steps = draw.randint(25, 35)
    sizes.rate *= 1.5


@healthy("short", _short)
def _short_run(draw: Random, run: Run) -> None:
    """Thirty steps."""
