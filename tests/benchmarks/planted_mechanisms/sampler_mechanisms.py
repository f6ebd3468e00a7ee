"""Samplers, environments and data pipelines that break a run."""

from __future__ import annotations

from random import Random

from tests.benchmarks.planted_mechanisms.plants import (
    FALL,
    FLAT,
    OFF_POLICY,
    Change,
    from_step,
    mechanism,
    onset,
    with_mismatch,
    with_tools,
)
from tests.benchmarks.planted_mechanisms.run import Run, Sizes
from tests.benchmarks.planted_mechanisms.world import END, REFLECT, STAGES, TAG, TOOL

COMPARED = ("logprob_diff", "prob_diff", "engine_kl", "engine_k1", "sampled_entropy")


@mechanism(
    "weights-stop-arriving",
    (*OFF_POLICY, "MIS004", "SYN002", "SYN003", "SYN006", "SYN008"),
    with_mismatch,
    COMPARED,
)
def _stop_arriving(draw: Random, run: Run) -> Change:
    """From some step on the sampler receives no new weights."""
    run.rate *= 1.5
    first = round(run.sizes.steps * draw.uniform(0.15, 0.35))
    return from_step(first, lambda: setattr(run.engine, "delivered", False))


def _asynchronous(_: Random, sizes: Sizes) -> None:
    sizes.logs_mismatch = True
    sizes.rate *= 1.5


@mechanism("lag-grows", (*OFF_POLICY, "MIS004", "SYN002", "SYN008"), _asynchronous,
           ("staleness", *COMPARED))  # fmt: skip
def _lag_grows(draw: Random, run: Run) -> Change:
    """The queue of an asynchronous trainer grows, so samples become older and older."""
    every = run.sizes.steps // 30

    def change(number: int) -> None:
        run.engine.lag = min(number // every, 39)

    return change


@mechanism("sampler-hotter", ("MIS001", "MIS002", "MIS003", "CFG020"), with_mismatch, COMPARED)
def _hotter(draw: Random, run: Run) -> None:
    """The sampler's temperature is not that of the learner's log-probabilities."""
    run.sampling.temperature = draw.choice((0.5, 0.6, 1.5, 1.7))


@mechanism("precision-degrades", ("MIS001", "MIS004", "MIS003", "SYN008"), with_mismatch, COMPARED)
def _precision(draw: Random, run: Run) -> Change:
    """The scales of a quantized sampler are never refreshed, so its errors grow."""
    first = run.sizes.steps // 5

    def change(number: int) -> None:
        run.engine.grid = 0.15 + 1.8 * max(number - first, 0) / run.sizes.steps

    return change


def _fours(draw: Random, sizes: Sizes) -> None:
    sizes.prompts, sizes.group = draw.choice(((48, 4), (32, 8)))


@mechanism("seeds-shared", ("DAT006", "GRP004", "GRP001", "GRP002", "ENT003"), _fours)
def _seeds_shared(draw: Random, run: Run) -> None:
    """Replicas of the sampler share their seed: of four responses, three are copies."""
    run.sampling.shared_seed = True


def _tool_task(draw: Random, run: Run) -> None:
    run.weights.skill[:STAGES, :, TOOL] = draw.uniform(0.5, 1.2)
    for problems in (run.problems, run.strangers):
        problems.slips[:] = 1.0
    run.start = run.weights.copy()
    run.reference = run.weights.copy()


@mechanism("tools-fail", ("DAT002", *FALL), with_tools, ("tool_failures",))
def _tools_fail(draw: Random, run: Run) -> Change:
    """The tool's server is overloaded from some step on and most calls fail."""
    _tool_task(draw, run)
    run.sampling.tool_failures = 0.03
    failing = draw.uniform(0.7, 0.95)
    return from_step(onset(draw, run), lambda: setattr(run.sampling, "tool_failures", failing))


def _tools_compared(draw: Random, sizes: Sizes) -> None:
    with_tools(draw, sizes)
    with_mismatch(draw, sizes)


@mechanism(
    "environment-in-loss", ("DAT001", "MIS001", "MIS002", "MIS003", "CFG027"), _tools_compared,
    COMPARED,
)  # fmt: skip
def _environment_in_loss(draw: Random, run: Run) -> None:
    """The answers of tools are trained on as if the policy had written them."""
    _tool_task(draw, run)
    run.trains_on_environment = True


@mechanism("stop-string", ("LEN005", "REW015", "SYN009", *FALL))
def _stop_string(draw: Random, run: Run) -> Change:
    """A restart adds a stop string that occurs in the middle of solutions."""
    token = draw.choice((REFLECT, TAG))
    run.weights.skill[:, :, token] += 1.5
    run.start = run.weights.copy()
    run.reference = run.weights.copy()
    return from_step(onset(draw, run), lambda: setattr(run.sampling, "stop_at", token))


def _long_solutions(draw: Random, sizes: Sizes) -> None:
    sizes.most = 5
    sizes.deepest = 5


@mechanism("limit-too-low", ("LEN002", "LEN003"), _long_solutions)
def _limit_too_low(draw: Random, run: Run) -> None:
    """The limit is below the length of most solutions from the start."""


@mechanism("no-end", ("LEN007", "LEN002", "LEN003", "LEN006", *FLAT))
def _no_end(draw: Random, run: Run) -> None:
    """The end token of the template is not the engine's, so every response runs to the limit."""
    run.weights.skill[:, :, END] = -14.0
    run.start = run.weights.copy()
    run.reference = run.weights.copy()


@mechanism(
    "sync-damages-weights",
    (*OFF_POLICY, "MIS004", "SYN003", "SYN007", "SYN008", "SYN009"),
    with_mismatch,
    COMPARED,
)
def _damaging_sync(draw: Random, run: Run) -> Change:
    """From some step on each sync loses a part of a weight matrix."""
    first, size = onset(draw, run), draw.uniform(0.8, 1.5)

    def change(number: int) -> None:
        if number >= first:
            run.engine.noise = size

    return change
