"""Causes between sampler and learner: engines, weights that do not arrive, old samples."""

from __future__ import annotations

from random import Random

from tests.benchmarks.planted_runs.plants import at, cause, each, onset, together
from tests.benchmarks.planted_runs.simulation import Change, Simulation

_GAP = ("logprob_diff", "prob_diff", "engine_kl")
_OFF = ("MIS001", "MIS003")
_NOT_SYNCED = ("SYN001", "SYN002", "SYN006", "SYN008")


@cause("sampler-quantized", (*_OFF, "CFG032"), _GAP, logged="mismatch")
def _sampler_quantized(random: Random, run: Simulation) -> None:
    """The sampler's weights have four bits."""
    run.engine.noise = random.uniform(0.15, 0.3)


@cause("sampler-degrades", (*_OFF, "MIS004", "SYN003", "SYN007", "SYN008"), _GAP,
       logged="mismatch")  # fmt: skip
def _sampler_degrades(random: Random, run: Simulation) -> Change:
    """The gap grows with every step: scales of the quantization are not updated."""
    first = onset(random, run, 0.1, 0.3)
    rest = max(run.sizes.steps - first, 1)
    growth = (random.uniform(0.12, 0.25) / run.engine.noise) ** (1 / rest) - 1
    return at(first, engine__noise_growth=growth)


@cause("sampler-temperature", (*_OFF, "CFG020", "SYN003", "SYN008"), _GAP, logged="mismatch")
def _sampler_temperature(random: Random, run: Simulation) -> None:
    """The sampler has another temperature than the learner's log-probabilities."""
    run.engine.temperature = random.choice((0.5, 0.6, 0.7, 1.6))
    run.policy.entropy = max(run.policy.entropy, 0.35)


@cause("weights-never-arrive", (*_NOT_SYNCED, "MIS004", *_OFF), _GAP,
       logged="mismatch", steps=(100, 400))  # fmt: skip
def _weights_never_arrive(random: Random, run: Simulation) -> Change:
    """The sampler keeps the starting weights."""
    run.learner.step_size = random.uniform(0.02, 0.04)
    return at(2, engine__frozen=True)


@cause("sync-stops", (*_NOT_SYNCED, "SYN003", "MIS004", *_OFF), _GAP,
       logged="mismatch", steps=(100, 400))  # fmt: skip
def _sync_stops(random: Random, run: Simulation) -> Change:
    """From a step on, no new weights reach the sampler."""
    run.learner.step_size = random.uniform(0.02, 0.04)
    return at(onset(random, run, 0.2, 0.45), engine__frozen=True)


@cause("samples-grow-old", ("SYN001", "CFG033", "MIS003"), ("staleness",), logged="mismatch",
       optional="staleness", steps=(100, 400))  # fmt: skip
def _samples_grow_old(random: Random, run: Simulation) -> Change:
    """The queue grows, so that samples are dozens of updates old."""
    run.engine.lag = 1
    first, most = onset(random, run, 0.1, 0.3), random.randint(24, 60)
    every = max(round(0.4 * run.sizes.steps / most), 1)

    def age(run: Simulation, number: int) -> None:
        if number >= first:
            run.engine.lag = min(1 + (number - first) // every, most)

    return age


@cause("weights-corrupted", ("SYN003", "SYN007", "SYN008", "SYN009", "MIS004", *_OFF), _GAP,
       logged="mismatch")  # fmt: skip
def _weights_corrupted(random: Random, run: Simulation) -> Change:
    """After a sync, some tensors of the sampler are wrong."""
    return at(onset(random, run), engine__corrupted=random.uniform(0.08, 0.3))


@cause("old-logprobs-wrong", ("MIS002", "CLP001", "KLD001"), ("clipped old_kl", "clipped"))
def _old_logprobs_wrong(random: Random, run: Simulation) -> None:
    """The old log-probabilities come from another precision or another mask."""
    run.learner.wrong_old = random.uniform(0.4, 1.2)
    run.learner.speed *= 0.5


@cause("experts-differ", (*_OFF, "MOE001", "MOE005"), _GAP, logged="mismatch", optional="experts")
def _experts_differ(random: Random, run: Simulation) -> None:
    """The sampler routes tokens to other experts than the learner."""
    run.engine.noise = random.uniform(0.12, 0.2)


@cause("replay-lost", ("MOE005", "MOE001"), ("replay_fallback",), optional="experts")
def _replay_lost(random: Random, run: Simulation) -> Change:
    """From a step on, the recorded routes of many tokens are missing."""
    gap = random.uniform(0.03, 0.08)
    share = random.uniform(0.3, 0.9)
    return at(onset(random, run), engine__replay_fallback=share, engine__corrupted=gap)


@cause("tools-and-sync", ("DAT002", *_NOT_SYNCED, "SYN003", "MIS004", *_OFF),
       ("tool_failures logprob_diff",), logged="mismatch", optional="tools turns")  # fmt: skip
def _tools_and_sync(random: Random, run: Simulation) -> Change:
    """Two causes: tools fail, and later no weights arrive."""
    run.task.calls, run.task.turns = random.uniform(1, 3), 3.0
    run.learner.step_size = random.uniform(0.02, 0.04)
    return together(
        at(onset(random, run, 0.2, 0.3), task__call_failures=random.uniform(0.5, 0.9)),
        at(onset(random, run, 0.4, 0.5), engine__frozen=True),
    )


@cause("temperature-jumps", ("CFG020", "MIS004", "SYN003", "SYN008", *_OFF), _GAP,
       logged="mismatch")  # fmt: skip
def _temperature_jumps(random: Random, run: Simulation) -> Change:
    """A restart changes the sampling temperature alone."""
    run.policy.entropy = max(run.policy.entropy, 0.35)
    start = onset(random, run)
    return at(start, engine__temperature=random.choice((0.5, 0.6, 1.5)))


@cause("quantized-and-easy", (*_OFF, "CFG032", "GRP001", "REW006"), ("logprob_diff all_correct",
       "prob_diff all_correct", "engine_kl all_correct"), logged="mismatch")  # fmt: skip
def _quantized_and_easy(random: Random, run: Simulation) -> Change:
    """Two causes: prompts that are solved, and a coarse sampler."""
    run.engine.noise = random.uniform(0.1, 0.2)
    run.difficulties = run.random.normal(0, 0.8, run.sizes.pool)
    run.policy.skill = random.uniform(5, 7)

    def keep(run: Simulation) -> None:
        run.policy.entropy = max(run.policy.entropy, 0.2)

    return each(1, keep)
