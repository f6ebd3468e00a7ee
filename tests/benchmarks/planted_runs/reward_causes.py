"""Causes in the reward function, the verifier and its judge, the prompts and the environment."""

from __future__ import annotations

import math
from random import Random

from tests.benchmarks.planted_runs.parts import Sizes
from tests.benchmarks.planted_runs.plants import FALL, at, cause, each, onset, ramp
from tests.benchmarks.planted_runs.simulation import Change, Simulation

_NO_SIGNAL = ("GRP002", "GRP004", "REW004")
_HACKED = ("REW005", "REW003", "REW008", "REW009")


@cause("verifier-rejects", (*FALL, "GRP002", "REW004", "REW017"))
def _verifier_rejects(random: Random, run: Simulation) -> Change:
    """From a step on, the verifier rejects almost every correct response."""
    return at(onset(random, run), rewards__rejects=random.uniform(0.9, 1.0))


@cause("verifier-decays", (*FALL, "REW001"))
def _verifier_decays(random: Random, run: Simulation) -> Change:
    """A parser fails on more and more responses."""
    first = onset(random, run, 0.2, 0.4)
    return ramp("rewards__rejects", 0.0, random.uniform(0.75, 0.95), first, run.sizes.steps)


@cause("judge-outages", ("REW019", "REW017", *FALL))
def _judge_outages(random: Random, run: Simulation) -> Change:
    """The judge is down for a few steps, several times."""
    every, length = random.randint(9, 20), random.randint(1, 3)
    first, share = onset(random, run, 0.2, 0.4), random.uniform(0.85, 1.0)

    def change(run: Simulation, number: int) -> None:
        is_down = number >= first and (number - first) % every < length
        run.rewards.outage = share if is_down else 0.0

    return change


@cause("judge-down", (*FALL, "REW004", "REW017", "GRP002", "GRP004"))
def _judge_down(random: Random, run: Simulation) -> Change:
    """From a step on, the judge returns one score for every response."""
    return at(onset(random, run), rewards__constant=random.choice((0.0, 0.0, -1.0)))


@cause("reward-random", ("REW018", "REW011", "REW001", "REW012", "REW020"), steps=(100, 300))
def _reward_random(random: Random, run: Simulation) -> None:
    """The verdict is a coin toss: answers belong to other prompts."""
    run.rewards.coin = random.uniform(0.95, 1.0)


@cause("reward-constant", _NO_SIGNAL, logged="heldout")
def _reward_constant(random: Random, run: Simulation) -> None:
    """Every response earns the same reward."""
    run.rewards.constant = random.choice((0.0, 0.5, -1.0, 0.1))


@cause("reward-inverted", ("REW003", "REW005", "REW012", "REW009", *FALL), ("heldout",),
       logged="heldout")  # fmt: skip
def _reward_inverted(random: Random, run: Simulation) -> None:
    """Wrong responses earn the reward."""
    run.rewards.correct, run.rewards.incorrect = 0.0, 1.0
    run.policy.skill = random.uniform(-0.5, 1.0)


@cause("verifier-hacked", (*_HACKED, "REW012"), ("heldout",), logged="heldout", steps=(80, 400))
def _verifier_hacked(random: Random, run: Simulation) -> None:
    """The verifier accepts a trick, which the policy learns instead of the task."""
    run.rewards.fooled = True
    run.policy.trick = random.uniform(-4.5, -2.5)


@cause("format-pays", (*_HACKED, "REW010", "REW007"), ("heldout", "component/format/mean"),
       logged="heldout", optional="parts")  # fmt: skip
def _format_pays(random: Random, run: Simulation) -> Change:
    """The format earns several times as much as a correct answer, and is at odds with it."""
    run.rewards.form_weight = random.uniform(3, 6)
    run.policy.form = random.uniform(-2, 0)
    first = run.policy.form

    def suffer(run: Simulation) -> None:
        run.policy.skill -= 0.6 * run.learner.speed * max(run.policy.form - first, 0.0)

    return each(1, suffer)


@cause("length-pays", ("LEN004", "LEN006", "REW013", "REW010", *_HACKED), ("length",),
       optional="parts")  # fmt: skip
def _length_pays(random: Random, run: Simulation) -> None:
    """Longer responses earn more, whatever their answer."""
    run.rewards.length_weight = random.uniform(1.5, 4)
    run.learner.speed = random.uniform(3, 6) / run.sizes.steps
    run.policy.log_length = math.log(run.sizes.limit * random.uniform(0.04, 0.08))


@cause("shortness-pays", ("LEN005", "REW010", "REW013", "REW005", "REW003", "REW015"),
       ("length",), optional="parts")  # fmt: skip
def _shortness_pays(random: Random, run: Simulation) -> Change:
    """A length penalty dominates: responses shrink until answers are wrong."""
    run.rewards.length_weight = -random.uniform(1.5, 4)
    run.learner.speed = random.uniform(4, 8) / run.sizes.steps
    start = run.policy.log_length

    def suffer(run: Simulation) -> None:
        lost = max(start - run.policy.log_length - 0.5, 0.0)
        run.policy.skill -= 0.5 * run.learner.speed * lost
        run.policy.log_length = max(run.policy.log_length, start - 2.5)

    return each(1, suffer)


@cause("reward-rescaled", ("REW016", "REW010"))
def _reward_rescaled(random: Random, run: Simulation) -> Change:
    """The reward is multiplied from a step on: a weight or a normalisation changed."""
    return at(onset(random, run), rewards__scale=random.choice((0.1, 5.0, 10.0, 100.0)))


@cause("component-dies", ("REW007", "REW016", *FALL), ("component/format/mean", "reward"),
       optional="parts")  # fmt: skip
def _component_dies(random: Random, run: Simulation) -> Change:
    """The tag of the format changes, so its part of the reward is zero."""
    run.rewards.form_weight = random.uniform(0.5, 1.5)
    return each(onset(random, run), lambda run: setattr(run.policy, "form", -20.0))


@cause("too-hard", ("GRP002", "GRP007", "REW004", "REW009"), ("all_incorrect", "reward"))
def _too_hard(random: Random, run: Simulation) -> None:
    """Almost no prompt is ever solved."""
    run.policy.skill = -random.uniform(6.5, 10)
    run.difficulties = run.random.normal(0, 0.8, run.sizes.pool)


@cause("too-easy", ("GRP001", "REW006"), ("all_correct", "reward"))
def _too_easy(random: Random, run: Simulation) -> None:
    """Almost every prompt is always solved."""
    run.policy.skill = random.uniform(5.5, 8)
    run.difficulties = run.random.normal(0, 0.8, run.sizes.pool)


def _small_groups(random: Random, sizes: Sizes) -> None:
    sizes.group, sizes.prompts = 2, random.choice((32, 64, 128))
    sizes.pool = sizes.prompts * 50


@cause("groups-too-small", ("GRP007", "CFG013", "GRP002", "GRP004"), ("zero_variance",
       "all_incorrect"), prepare=_small_groups)  # fmt: skip
def _groups_too_small(random: Random, run: Simulation) -> None:
    """Two responses to hard prompts rarely differ."""
    run.policy.skill = -random.uniform(2.5, 3.5)
    run.learner.speed *= 0.5


@cause("copied-responses", ("DAT006", "GRP004", "ENT003"), ("zero_variance", "mixed"))
def _copied_responses(random: Random, run: Simulation) -> None:
    """Every response of a group has the same seed."""
    run.task.copies = random.uniform(0.97, 1.0)


@cause("copies-begin", ("DAT006", "GRP004", "ENT003"), ("zero_variance", "mixed"))
def _copies_begin(random: Random, run: Simulation) -> Change:
    """From a step on, a cache returns one response for a whole group."""
    return at(onset(random, run), task__copies=random.uniform(0.95, 1.0))


@cause("other-prompts", (*FALL, "SYN009", "GRP002"))
def _other_prompts(random: Random, run: Simulation) -> Change:
    """From a step on, prompts are cut or come from a much harder set."""
    return at(onset(random, run), task__shift=random.uniform(3.5, 6))


def _tiny_pool(random: Random, sizes: Sizes) -> None:
    sizes.prompts, sizes.group = random.choice(((8, 16), (16, 8), (32, 8)))
    sizes.pool = sizes.prompts * random.choice((1, 1, 2))


@cause("few-prompts", ("REW003", "REW008", "REW005"), ("heldout",), prepare=_tiny_pool,
       logged="heldout", steps=(120, 400))  # fmt: skip
def _few_prompts(random: Random, run: Simulation) -> Change:
    """The policy memorises a few prompts, and others suffer."""
    rate = random.uniform(1.5, 3) / run.sizes.steps
    run.learner.speed *= 0.3
    slow = run.learner.speed

    def memorise(run: Simulation) -> None:
        run.policy.memory += 6 * slow
        run.policy.skill -= rate

    return each(round(0.25 * run.sizes.steps), memorise)


@cause("tools-fail", ("DAT002",), ("tool_failures",), optional="tools turns")
def _tools_fail(random: Random, run: Simulation) -> Change:
    """From a step on, most tool calls fail."""
    run.task.calls, run.task.call_failures = random.uniform(1, 4), random.uniform(0, 0.03)
    run.task.turns = 1 + run.task.calls
    return at(onset(random, run), task__call_failures=random.uniform(0.5, 0.95))


@cause("tools-always-fail", ("DAT002",), ("tool_failures",), optional="tools turns")
def _tools_always_fail(random: Random, run: Simulation) -> None:
    """The tool server is not reachable from the start."""
    run.task.calls, run.task.call_failures = random.uniform(1, 3), random.uniform(0.6, 0.98)
    run.task.turns = 1 + run.task.calls


@cause("environment-errors", ("DAT003", "DAT002"), ("errors",), optional="errors turns")
def _environment_errors(random: Random, run: Simulation) -> Change:
    """From a step on, many environments raise an error."""
    run.task.turns = random.uniform(2, 6)
    return at(onset(random, run), task__errors=random.uniform(0.3, 0.8))


@cause("rollouts-aborted", ("DAT003",), ("aborted",), optional="aborted")
def _rollouts_aborted(random: Random, run: Simulation) -> Change:
    """From a step on, the engine aborts many responses."""
    return at(onset(random, run), task__aborted=random.uniform(0.25, 0.7))


@cause("invalid-actions", ("DAT004",), ("invalid_actions",), optional="actions turns")
def _invalid_actions(random: Random, run: Simulation) -> Change:
    """The environment rejects more and more actions."""
    run.task.turns, run.task.invalid = random.uniform(4, 12), 0.03
    first = onset(random, run, 0.2, 0.4)
    last = round(0.8 * run.sizes.steps)
    return ramp("task__invalid", 0.03, random.uniform(0.6, 0.95), first, last)
