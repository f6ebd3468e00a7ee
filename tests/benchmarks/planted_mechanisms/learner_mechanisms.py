"""Optimizers, losses, resumes and advantages that break a run."""

from __future__ import annotations

import math
from random import Random

from tests.benchmarks.planted_mechanisms.plants import (
    FALL,
    FLAT,
    Change,
    from_step,
    mechanism,
    onset,
    with_kl,
    with_mismatch,
)
from tests.benchmarks.planted_mechanisms.run import Run, Sizes
from tests.benchmarks.planted_mechanisms.world import Weights, pretrained

ADVANTAGES = ("min_advantage", "max_advantage", "mean_advantage")
RUNS_AWAY = ("OPT006", "OPT002", "KLD001", "KLD002", "CLP001", "ENT001", "ENT002", "LEN006")
"""What excessive updates look like."""


def _many_updates(_: Random, sizes: Sizes) -> None:
    sizes.updates = 8


@mechanism("schedule-restarts", (*RUNS_AWAY, *FALL), _many_updates)
def _schedule_restarts(draw: Random, run: Run) -> Change:
    """A schedule with restarts raises the learning rate after it has decayed."""
    first, rate = onset(draw, run), run.rate
    factor = draw.uniform(120, 240)
    run.epochs = 3

    def change(number: int) -> None:
        if number < first:
            run.rate = rate * 0.5 * (1 + math.cos(math.pi * number / first) * 0.9)
        else:
            run.rate = rate * factor

    return change


@mechanism("advantages-flipped", (*FALL, "ENT002", "KLD004", "REW001"))
def _flipped(draw: Random, run: Run) -> Change:
    """A refactoring of the loss changes the sign of the advantages."""
    return from_step(onset(draw, run), lambda: setattr(run, "advantages", "flipped"))


@mechanism("entropy-bonus", ("ENT002", "CFG056", "LEN006", "LEN002", "LEN004", *FALL))
def _entropy_bonus(draw: Random, run: Run) -> None:
    """The entropy bonus outweighs the advantages."""
    run.loss.entropy = draw.uniform(0.3, 0.6)


@mechanism("kl-too-large", ("OPT005", "CFG043", *FLAT), with_kl)
def _kl_too_large(draw: Random, run: Run) -> None:
    """The KL penalty holds the policy at the reference."""
    run.loss.kl = draw.uniform(20, 60)
    run.rate *= 0.5


@mechanism("other-reference", ("KLD003", "KLD002"), with_kl, ("kl",))
def _other_reference(draw: Random, run: Run) -> None:
    """The reference is the base model instead of the fine-tuned one."""
    run.reference = pretrained(run.random, run.problems, run.sizes.level - 1.0)
    run.loss.kl = draw.choice((0.0, 0.005))


@mechanism("lost-updates", ("OPT005", "CFG052", "CFG051", *FLAT))
def _lost_updates(draw: Random, run: Run) -> None:
    """Updates are smaller than the spacing of the weights' number format."""
    run.rate *= 0.05
    run.optimizer.rounding = 1 / 128


@mechanism("nan-updates", ("OPT003",), None, ("grad_norm",))
def _nan(draw: Random, run: Run) -> Change:
    """From some step on a growing share of gradients is not finite, and the update is skipped."""
    first = onset(draw, run)

    def change(number: int) -> None:
        run.broken = min(max(number - first, 0) * 0.02, 0.8)

    return change


@mechanism(
    "raw-advantages", ("GRP005", "CFG015", "ENT001", "ENT003", "GRP010", *FALL), None, ADVANTAGES
)
def _raw(draw: Random, run: Run) -> None:
    """The rewards are used as advantages, without a baseline."""
    run.advantages = "raw"
    run.rate *= 1.5


@mechanism("positive-only", ("ENT001", "ENT003", "GRP005", "GRP010"), None, ADVANTAGES)
def _positive_only(draw: Random, run: Run) -> None:
    """Only positive advantages are trained on."""
    run.advantages = "positive"


@mechanism("many-updates", (*RUNS_AWAY, *FALL, "REW001"), _many_updates)
def _many(draw: Random, run: Run) -> None:
    """Thirty-two updates per batch at a high learning rate."""
    run.epochs = 4
    run.rate *= draw.uniform(100, 200)


@mechanism("resume-from-base", ("SYN010", "SYN009", "SYN004", *FALL))
def _resume_from_base(draw: Random, run: Run) -> Change:
    """A resume does not find the checkpoint and starts from the base model."""

    run.rate *= 3

    def resume() -> None:
        run.weights = run.start.copy()
        run.versions = []
        run.optimizer.forget()

    return from_step(round(run.sizes.steps * draw.uniform(0.5, 0.7)), resume)


@mechanism("adapter-twice", ("SYN009", "SYN004", *FALL, "MIS001", "OPT006", "ENT001"))
def _adapter_twice(draw: Random, run: Run) -> Change:
    """A resume adds the trained difference to the weights a second and a third time."""

    def resume() -> None:
        parts = zip(run.weights.parts(), run.start.parts(), strict=True)
        times = draw.uniform(2.5, 4.0)
        run.weights = Weights(*(value + times * (value - start) for value, start in parts))
        run.versions = []
        run.optimizer.forget()

    return from_step(round(run.sizes.steps * draw.uniform(0.5, 0.7)), resume)


@mechanism("rate-ends-early", ("OPT007",), None, ("learning_rate",))
def _rate_ends_early(draw: Random, run: Run) -> Change:
    """The schedule was computed for fewer steps than the run has."""
    first, rate = onset(draw, run), run.rate

    def change(number: int) -> None:
        run.rate = rate * max(1 - number / first, 0.0)

    return change


@mechanism("wrong-old", ("MIS002", "CLP001", "MIS001", "CFG030", *FALL), with_mismatch)
def _wrong_old(draw: Random, run: Run) -> None:
    """A quantized sampler's log-probabilities are taken for the old ones of the learner."""
    run.engine.grid = draw.uniform(1.0, 1.6)
    run.engine.noise = 0.5
    run.old_from_sampler = True


@mechanism("endless-warm-up", ("OPT005", "CFG051", *FLAT))
def _endless_warm_up(draw: Random, run: Run) -> Change:
    """The warm-up was set in tokens and is read as steps, so the rate stays near zero."""
    rate = run.rate

    def change(number: int) -> None:
        run.rate = rate * number / 100_000

    return change


@mechanism("dropout-in-learner", ("MIS001", "MIS002", "CLP001", *FLAT, *FALL), with_mismatch)
def _dropout(draw: Random, run: Run) -> None:
    """The learner computes its log-probabilities in training mode, with dropout."""
    run.old_noise = draw.uniform(0.6, 1.2)
